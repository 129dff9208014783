"""Games of every kind, and an episode of one seat, for tests of what gymnasium gets."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from corral.adapters import SeatEnv
from corral.envs.arena_v0 import ArenaRules
from corral.envs.dfaas_v0 import DfaasRules
from support.contract import plain
from support.loads import small_trace
from support.steady_rules import SteadyRules
from support.turn_rules import MortalRules, PileRules

ARENA: dict[str, Any] = {"width": 3, "height": 2, "max_cycles": 9, "walls": "mask"}
LOAD: dict[str, Any] = {"trace": small_trace(), "max_cycles": 8, "queue": 3}
SHORT = {"dfaas_v0": LOAD, "arena_v0": ARENA}

GAMES: dict[str, Any] = {
    "arena": functools.partial(ArenaRules, **ARENA, illegal="raise"),
    "dfaas": functools.partial(DfaasRules, **LOAD, illegal="raise"),
    "nested": functools.partial(SteadyRules, nested=True),
    "piles": functools.partial(PileRules, gift=0.25, illegal="raise"),
    "piles, one leaves": functools.partial(PileRules, last_move=1, illegal="raise"),
    "mortal": functools.partial(MortalRules, (3, 3), max_cycles=5, illegal="raise"),
}


def first_legal(observation: dict[str, Any]) -> int:
    return int(observation["action_mask"].argmax())


def play(env: SeatEnv, seed: int | None, chooser: np.random.Generator) -> list[Any]:
    """Play an episode of random legal actions, and return all that the learner gets of it."""
    obs, info = env.reset(seed=seed)
    record, over = [(plain(obs), info)], False
    while not over:
        legal = np.flatnonzero(env.action_masks())
        assert legal.tolist() == np.flatnonzero(obs["action_mask"]).tolist()
        obs, reward, terminated, truncated, info = env.step(chooser.choice(legal))
        assert env.observation_space.contains(obs)
        over = terminated or truncated
        assert not (terminated and truncated)
        record.append((plain(obs), reward, terminated, truncated, info))
    return record
