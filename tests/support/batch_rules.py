"""Rules that ``Batch`` is tested with: acting at once, and in turns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from corral.envs.arena_v0 import ArenaRules
from corral.envs.dfaas_v0 import DfaasRules
from support.loads import small_trace
from support.turn_rules import MortalRules, PileRules

dfaas = functools.partial(
    DfaasRules, trace=small_trace(nodes=4), max_cycles=7, queue=5, illegal="raise"
)
mortal = functools.partial(MortalRules, illegal="raise")
pile = functools.partial(PileRules, illegal="raise")

RULES: dict[str, Callable[..., Any]] = {
    "dfaas equal": dfaas,
    "dfaas two": functools.partial(dfaas, route="two", second_offer=False, wait_cost=0.1),
    "dfaas team": functools.partial(dfaas, reward="team", queue=0),
    "arena": functools.partial(ArenaRules, 3, 2, max_cycles=9, walls="mask", illegal="raise"),
    "mortal": mortal,
    "mortal, unlike agents": functools.partial(mortal, sizes=(2, 5, 1)),
    "mortal, limited": functools.partial(mortal, max_cycles=3),
    "mortal, ends told once": functools.partial(mortal, tell="once", max_cycles=5),
}
TURNS: dict[str, Callable[..., Any]] = {
    "pile": pile,
    "pile, unlike agents": functools.partial(pile, takes=(3, 2), gift=0.5),
    "pile, one leaves": functools.partial(pile, last_move=1, gift=0.5),
    "pile, told once": functools.partial(pile, last_move=2, tell="once"),
    "pile, limited": functools.partial(pile, max_cycles=3),
}
