"""The environments of the suite by name, here and in PettingZoo's own registry."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import pettingzoo

from corral.envs.arguments import known_arguments
from corral.envs.core import Rules
from corral.errors import UnknownNameError

__all__ = [
    "ENVIRONMENTS",
    "PROBES",
    "REGISTERED",
    "EnvSpec",
    "env_spec",
    "make",
    "make_rules",
    "register_with_pettingzoo",
    "rules_class",
]


@dataclass(frozen=True)
class EnvSpec:
    """Where an environment is found: ``corral.envs.<name>``, and the class of its rules there.

    The probes are all in ``corral.envs.probes``.
    """

    name: str
    rules: str
    simultaneous: bool
    summary: str
    players: str | None = None
    """The module with its reference players, see ``corral.envs.reference``."""
    zero_sum: bool = False
    """Two players, and what one wins the other loses: they are judged seat by seat."""
    judge: str | None = None
    """"module:function" that judges its runs, where ``corral.evaluate`` has no loop for it."""

    @property
    def module(self) -> str:
        return "corral.envs.probes" if self.name in PROBES else f"corral.envs.{self.name}"


ENVIRONMENTS: dict[str, EnvSpec] = {
    spec.name: spec
    for spec in (
        EnvSpec(
            name="dfaas_v0",
            rules="DfaasRules",
            simultaneous=True,
            summary="N edge servers serve, queue or forward the requests of a load trace",
            players="dfaas_v0.baselines",
            judge="corral.trainers.loads.judge:evaluate_loads",
        ),
        EnvSpec(
            name="arena_v0",
            rules="ArenaRules",
            simultaneous=True,
            summary="an explorer collects new fields of a grid, a blocker runs into it",
            players="arena_v0.baselines",
        ),
        EnvSpec(
            name="tictactoe_v0",
            rules="TicTacToeRules",
            simultaneous=False,
            summary="two players in turn: three in a row, or any m,n,k game",
            players="tictactoe_v0.baselines",
            zero_sum=True,
        ),
        EnvSpec(
            name="rps_v0",
            rules="RpsRules",
            simultaneous=True,
            summary="rock-paper-scissors round after round: beat who gives itself away",
            players="rps_v0.baselines",
            zero_sum=True,
        ),
        EnvSpec(
            name="tiles_v0",
            rules="TilesRules",
            simultaneous=False,
            summary="one picks tiles of an image, one how finely they are sent, under a budget",
            players="tiles_v0.baselines",
        ),
        EnvSpec(
            name="two_step_v0",
            rules="TwoStepRules",
            simultaneous=True,
            summary="one picks the game, both play it: safe 7, or 8 for two that coordinate",
        ),
    )
}


PROBES: dict[str, EnvSpec] = {
    spec.name: spec
    for spec in (
        EnvSpec(f"probe_p{number:02}_v0", rules, number not in (12, 13), summary)
        for number, rules, summary in (
            (1, "ConstantReward", "constant rewards, one for each"),
            (2, "ShownReward", "the reward is shown"),
            (3, "LaterReward", "the reward comes one step later"),
            (4, "WhoPlays", "equal observations, other tasks"),
            (5, "BitOrOpposite", "the right action is shown"),
            (6, "FifteenMasks", "all 15 masks of four actions"),
            (7, "Credit", "one agent's action pays the other"),
            (8, "OtherSees", "the other sees what one is paid"),
            (9, "CutOrEnd", "a time limit beside an end"),
            (10, "Death", "agents that end early"),
            (11, "UnlikeAgents", "unlike observations and actions"),
            (12, "ReplyPays", "in turns: pay comes with the reply"),
            (13, "EarlyGift", "in turns: pay before the first move"),
            (14, "Memory", "a cue to be remembered"),
            (15, "Accounts", "rewards 1, 10 and 100"),
            (16, "OneLegal", "one legal action"),
            (17, "EqualAdvantages", "all advantages are equal"),
            (18, "RockPaperScissors", "rock-paper-scissors, one step"),
        )
    )
}
"""Tiny environments with exact answers, in one module; not in PettingZoo's registry."""

REGISTERED = {**ENVIRONMENTS, **PROBES}
"""All that can be made by name."""


def _load(name: str, attribute: str) -> Any:
    return getattr(importlib.import_module(REGISTERED[name].module), attribute)


def env_spec(name: str) -> EnvSpec:
    """The entry of that name; UnknownNameError has the nearest known one."""
    if name not in REGISTERED:
        known = PROBES if name.startswith("probe") else ENVIRONMENTS
        raise UnknownNameError.of("environment", name, known)
    return REGISTERED[name]


def rules_class(name: str) -> type:
    """The class of a registered environment's rules; its signature holds the arguments."""
    found: type = _load(name, env_spec(name).rules)
    return found


def make_rules(name: str, **kwargs: Any) -> Rules[Any]:
    """The rules of a registered environment, as ``Batch`` and the trainers run them."""
    build = rules_class(name)
    known_arguments(build, kwargs)
    rules: Rules[Any] = build(**kwargs)
    return rules


def make(name: str, **kwargs: Any) -> Any:
    """A registered environment for PettingZoo users.

    A ParallelEnv where all agents act at once, else an AECEnv. ``kwargs`` go to the environment.
    Raises UnknownNameError, with the nearest known name.
    """
    build = _load(name, "parallel_env" if env_spec(name).simultaneous else "env")
    return build(name, **kwargs) if name in PROBES else build(**kwargs)


def register_with_pettingzoo() -> None:
    """Enter all as ``corral/<name>-v<N>`` in PettingZoo's registry, where it has one."""
    if not hasattr(pettingzoo, "register"):  # before 1.27
        return
    for spec in ENVIRONMENTS.values():
        for kind, function in (("aec", "env"), ("parallel", "parallel_env")):
            known = getattr(pettingzoo, f"{kind}_registry")
            identity = "corral/" + "-v".join(spec.name.rsplit("_v", 1))  # its spelling: dfaas-v0
            if identity not in known and (kind == "aec" or spec.simultaneous):
                pettingzoo.register(kind, identity, entry_point=f"{spec.module}:{function}")
