"""Probes: tiny environments whose values can be worked out by hand, for telling what a learner
does wrong.

A probe is made for one mistake. A learner that does not make it comes out at the exact values of
``answer``, within ``tolerance``, in ``budget`` env steps; one that makes it cannot.

| probe | about | a learner fails it that |
|---|---|---|
| ``probe_p01_v0`` | constant rewards, one for each | mixes the rewards, or goes on at the end |
| ``probe_p02_v0`` | the reward is shown | does not look |
| ``probe_p03_v0`` | the reward comes one step later | does not discount, or goes on at the end |
| ``probe_p04_v0`` | equal observations, other tasks | shares a policy without telling who plays |
| ``probe_p05_v0`` | the right action is shown | does not learn from its advantages |
| ``probe_p06_v0`` | all 15 masks of four actions | loses or ignores a mask anywhere |
| ``probe_p07_v0`` | one agent's action pays the other | pays one agent for another's reward |
| ``probe_p08_v0`` | the other sees what one is paid | has a central critic that sees its own view |
| ``probe_p09_v0`` | a time limit beside an end | takes the one for the other |
| ``probe_p10_v0`` | agents that end early | learns from the dead |
| ``probe_p11_v0`` | unlike observations and actions | takes the agents for alike |
| ``probe_p12_v0`` | in turns: pay comes with the reply | loses what is paid in between |
| ``probe_p13_v0`` | in turns: pay before the first move | credits it to a move |
| ``probe_p14_v0`` | a cue to be remembered | has no memory, or one that outlives episodes |
| ``probe_p15_v0`` | rewards 1, 10 and 100 | loses account of who got what |
| ``probe_p16_v0`` | one legal action | learns where there is nothing to choose |
| ``probe_p17_v0`` | all advantages are equal | divides by their spread of 0 |
| ``probe_p18_v0`` | rock-paper-scissors, one step | cannot learn against a frozen opponent |

The idea is Andy Jones's (Debugging Reinforcement Learning, 2021) and bsuite's (Osband et al.,
2020). ``parallel_env``, ``env`` and ``raw_env`` take the probe's name.
"""

from __future__ import annotations

from typing import Any

from pettingzoo import AECEnv

from corral.envs.arguments import known_arguments
from corral.envs.probes.base import Probe
from corral.envs.probes.episodes import Accounts, CutOrEnd, Death, LaterReward, Memory
from corral.envs.probes.one_step import (
    PAPER,
    BitOrOpposite,
    ConstantReward,
    Credit,
    EqualAdvantages,
    FifteenMasks,
    OneLegal,
    OtherSees,
    RockPaperScissors,
    ShownReward,
    UnlikeAgents,
    WhoPlays,
)
from corral.envs.probes.turns import EarlyGift, ReplyPays
from corral.envs.shells import ParallelShell, TurnShell, ordered
from corral.errors import UnknownNameError

__all__ = [
    "PAPER",
    "PROBES",
    "Accounts",
    "BitOrOpposite",
    "ConstantReward",
    "Credit",
    "CutOrEnd",
    "Death",
    "EarlyGift",
    "EqualAdvantages",
    "FifteenMasks",
    "LaterReward",
    "Memory",
    "OneLegal",
    "OtherSees",
    "ReplyPays",
    "RockPaperScissors",
    "ShownReward",
    "UnlikeAgents",
    "WhoPlays",
    "env",
    "parallel_env",
    "raw_env",
]

PROBES: dict[str, type[Probe]] = {
    probe.name: probe
    for probe in (
        *(ConstantReward, ShownReward, LaterReward, WhoPlays, BitOrOpposite, FifteenMasks),
        *(Credit, OtherSees, CutOrEnd, Death, UnlikeAgents, ReplyPays, EarlyGift, Memory),
        *(Accounts, OneLegal, EqualAdvantages, RockPaperScissors),
    )
}
"""The probes by name."""


# --- PettingZoo ----------------------------------------------------------------------------------


def _rules(name: str, kwargs: dict[str, Any]) -> Probe:
    if name not in PROBES:
        raise UnknownNameError.of("probe", name, PROBES)
    known_arguments(PROBES[name], kwargs)
    return PROBES[name](**kwargs)


def parallel_env(name: str, render_mode: str | None = None, **kwargs: Any) -> ParallelShell:
    """Return a probe in which all act at once, as a PettingZoo ParallelEnv."""
    rules = _rules(name, kwargs)
    if not rules.simultaneous:
        raise ValueError(f"{name} is played in turns: it has env() and raw_env() only")
    return ParallelShell(rules, render_mode, kwargs)


def raw_env(name: str, render_mode: str | None = None, **kwargs: Any) -> AECEnv:
    """Return a probe as a PettingZoo AECEnv, without the wrapper that checks the order of calls."""
    return TurnShell(_rules(name, kwargs), render_mode, kwargs)


def env(name: str, render_mode: str | None = None, **kwargs: Any) -> AECEnv:
    """Return a probe as a PettingZoo AECEnv."""
    return ordered(raw_env(name, render_mode, **kwargs))
