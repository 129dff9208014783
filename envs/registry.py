"""The registry of environments by name, here and in PettingZoo."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """An entry of the registry. The environment is the module ``corral.envs.<name>``; the probes
    are all in ``corral.envs.probes``."""

    name: str
    rules: str
    """The class of its rules in that module."""
    simultaneous: bool
    summary: str
    players: str | None = None
    """The module with its reference players, see ``corral.envs.reference``."""
    zero_sum: bool = False
    """Two players, and what one wins the other loses: each agent is judged by itself."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that suit it better than a trainer's own; a trainer takes those that it has."""
    judge: str | None = None
    """``module:function`` of what judges runs of it instead of the general evaluation."""

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
            # What a node forwards shows in the rewards of this step and, through queues and what
            # neighbours report, of the next few. With a longer horizon the load to come, which
            # nobody moves, is noise in every advantage: see "Discounting dfaas_v0" in
            # benchmarks/LOG.md.
            settings={"gamma": 0.5},
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
            # The reward of a game comes at its end, which is certain: nothing to discount. A large
            # bonus for entropy keeps self-play in all positions: where it fades to 0, the greedy
            # policy is beaten in games that it no longer meets. See "Self-play in tictactoe_v0" in
            # benchmarks/LOG.md.
            settings={
                "num_envs": 256,
                "n_steps": 32,
                "gamma": 1.0,
                "ent_coef": 0.3,
                "ent_coef_end": 0.1,
                "net_arch": (128, 128),
            },
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
            # An image is taken in tile by tile (layers of 3 x 3 take ten times as long); gamma
            # below 1 rewards to be done soon, and an entropy bonus that fades keeps the team from
            # settling for many small tiles: see "Learning tiles_v0" in benchmarks/LOG.md.
            settings={
                "num_envs": 64,
                "n_steps": 32,
                "n_minibatches": 4,
                "gamma": 0.95,
                "ent_coef": 0.01,
                "ent_coef_end": 0.0,
                "cnn_arch": (8, 16),
                "cnn_patch": 8,
            },
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
"""Tiny environments with exact answers; not in PettingZoo's registry."""

REGISTERED = {**ENVIRONMENTS, **PROBES}
"""Every environment that can be made by name."""


def _load(name: str, attribute: str) -> Any:
    return getattr(importlib.import_module(REGISTERED[name].module), attribute)


def env_spec(name: str) -> EnvSpec:
    """Return the entry of that name. Raises UnknownNameError, with the nearest known one."""
    if name not in REGISTERED:
        known = PROBES if name.startswith("probe") else ENVIRONMENTS
        raise UnknownNameError.of("environment", name, known)
    return REGISTERED[name]


def rules_class(name: str) -> type:
    """Return the class of an environment's rules; its signature holds the arguments."""
    found: type = _load(name, env_spec(name).rules)
    return found


def make_rules(name: str, **kwargs: Any) -> Rules[Any]:
    """Make the rules of a registered environment, as ``Batch`` and the trainers run them."""
    build = rules_class(name)
    known_arguments(build, kwargs)
    rules: Rules[Any] = build(**kwargs)
    return rules


def make(name: str, **kwargs: Any) -> Any:
    """Make a registered environment for PettingZoo users.

    It is a ParallelEnv where all agents act at once, else an AECEnv. ``kwargs`` are its arguments.
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
