"""Probes: tiny environments with exact known values, to diagnose errors in a learning algorithm.

Each probe tests for one kind of error. A correct learner reaches the exact values of ``answer``,
within ``tolerance``, in ``budget`` env steps. A learner with this error cannot reach them.

| probe | scenario | fails for a learner that |
|---|---|---|
| ``probe_p01_v0`` | a constant reward per agent | mixes rewards, or bootstraps past termination |
| ``probe_p02_v0`` | the observation shows the reward | ignores the observation |
| ``probe_p03_v0`` | the reward comes one step later | discounts or bootstraps wrongly |
| ``probe_p04_v0`` | equal observations, different tasks | shares a policy without agent ids |
| ``probe_p05_v0`` | the observation shows the best action | does not use its advantages |
| ``probe_p06_v0`` | all 15 masks of four actions | loses or ignores a mask |
| ``probe_p07_v0`` | one agent's action pays the other | gives rewards to the wrong agent |
| ``probe_p08_v0`` | only the other agent sees the reward | gives its critic a local view |
| ``probe_p09_v0`` | truncation and termination | confuses truncation with termination |
| ``probe_p10_v0`` | agents that terminate early | learns from terminated agents |
| ``probe_p11_v0`` | agents with different spaces | assumes identical agents |
| ``probe_p12_v0`` | turn-based: the reply brings the reward | loses rewards between own moves |
| ``probe_p13_v0`` | turn-based: reward before the first move | credits this reward to a move |
| ``probe_p14_v0`` | a cue to remember | has no memory, or keeps it across episodes |
| ``probe_p15_v0`` | rewards 1, 10 and 100 | assigns rewards to wrong agents |
| ``probe_p16_v0`` | one legal action | changes the policy although no choice exists |
| ``probe_p17_v0`` | all advantages are equal | divides by their standard deviation of 0 |
| ``probe_p18_v0`` | rock-paper-scissors, one step | cannot learn against a frozen opponent |

The idea is from Andy Jones (Debugging Reinforcement Learning, 2021) and bsuite (Osband et al.,
2020). ``parallel_env``, ``env`` and ``raw_env`` take the name of a probe.
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
"""All probes by name."""


# --- PettingZoo ----------------------------------------------------------------------------------


def _rules(name: str, kwargs: dict[str, Any]) -> Probe:
    if name not in PROBES:
        raise UnknownNameError.of("probe", name, PROBES)
    known_arguments(PROBES[name], kwargs)
    return PROBES[name](**kwargs)


def parallel_env(name: str, render_mode: str | None = None, **kwargs: Any) -> ParallelShell:
    """Return a probe with simultaneous actions, as a PettingZoo ParallelEnv."""
    rules = _rules(name, kwargs)
    if not rules.simultaneous:
        raise ValueError(f"{name} is turn-based; call env() or raw_env()")
    return ParallelShell(rules, render_mode, kwargs)


def raw_env(name: str, render_mode: str | None = None, **kwargs: Any) -> AECEnv:
    """Return a probe as a PettingZoo AECEnv, without the wrapper that checks the call order."""
    return TurnShell(_rules(name, kwargs), render_mode, kwargs)


def env(name: str, render_mode: str | None = None, **kwargs: Any) -> AECEnv:
    """Return a probe as a PettingZoo AECEnv."""
    return ordered(raw_env(name, render_mode, **kwargs))
