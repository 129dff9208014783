"""What benchmarks/same_numbers.py plays, and what a version calls it.

Every setting and every argument is said here: no default and no preset may decide a number, and
same_numbers.py fails where one is left out. The tables of what is played mean the same in every
version; the first section maps their names to those of the version at hand, before or after.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.classic import tictactoe_v3

# --- What hangs on the version: the newest names first -------------------------------------------

PLACES: dict[str, tuple[str, ...]] = {
    "train": ("corral:train",),
    "evaluate": ("corral:evaluate",),
    "replay": ("corral.loads.replay:replay", "corral.trainers.replay:replay"),
    "make_batch": ("corral.envs.batch:make_batch", "corral.adapters.batch:make_batch"),
    "zoo_rules": ("corral.adapters:zoo_rules",),
    "registered": ("corral.envs.registry:REGISTERED",),
    "rules_class": ("corral.envs.registry:rules_class",),
}
for _name, *_modules in (
    ("trainer_class", "base", "trainer"),
    ("latest_checkpoint", "runs.checkpoint", "checkpoint"),
    ("load_checkpoint", "runs.checkpoint", "checkpoint"),
):
    PLACES[_name] = tuple(f"corral.trainers.{module}:{_name}" for module in _modules)
SETTING_NAMES = {  # of the cases -> earlier names, tried first: a name may have had another meaning
    "num_envs": "copies",
    "clip_range_vf": "value_clip",
    "normalize_values": "normalise_values",
    "target_kl": "kl_stop",
}
ARGUMENT_NAMES = {"env_kwargs": "env"}  # of train, evaluate and replay: new -> earlier
ADDED: dict[str, Any] = {
    **{"api": None, "horizon": None, "workers": 0, "zero_sum": False},
    **{"env": None, "env_kwargs": None, "trainer": None, "dry_run": False, "require": ()},
    **{"callbacks": (), "metrics": None, "sinks": (), "stop": (), "evaluate_every": None},
    **{"model": None, "settings_of": None, "preset": "none", "init": None},
    **{"init_critic": True, "self_play": None, "capacity_rows": None, "best_rule": None},
    **{"report_delay": 1, "reward_fn": None, "augment": None, "amount": "unit"},
    **{"observation": "every", "arrivals": "known", "last_counts": None, "daily_mean": False},
    **{"minutes": None, "stay_coef": 0.0, "stay_target": None},
}
"""Settings and arguments that a later version added, each with the value that changes nothing."""
ADDED_INFOS: frozenset[str] = frozenset({"waited"})
"""Infos that a later version added."""
DROPPED: frozenset[str] = frozenset({"zero_sum", "validation"})
"""Settings and arguments of the cases that a later version no longer takes, or an earlier not."""
ATTRIBUTES: dict[str, tuple[str, ...]] = {"return": ("return_team", "return_seat")}
"""Of steps and of rows of results: name of this script -> the attribute's, newest first."""
NEUTRAL = (  # what a checkpoint calls its parts -> what this script calls them
    (r"^arrays/policy_(\w+)/(actor|critic)\.cnns\.", r"weights/\1/\2/images/"),
    (r"^arrays/policy_(\w+)/(actor|critic)\.layers\.", r"weights/\1/\2/hidden/"),
    (r"^arrays/policy_(\w+)/(actor|critic)\.gru\.", r"weights/\1/\2/recurrent/"),
    (r"^arrays/policy_(\w+)/(actor|critic)\.head\.", r"weights/\1/\2/output/"),
    (r"^arrays/policy_(\w+)/value_norm\.", r"value norm/\1/"),
    (r"^arrays/policy_(\w+)/", r"weights/\1/"),
    (r"^arrays/optimizer_(\w+)/", r"Adam/\1/"),
    (r"^arrays/generators/", "generators/"),
    (r"^arrays/memory/", "hidden states/"),
    (r"^arrays/", ""),
    (r"^documents/trainer/(shuffles|generators)/", r"generators/\1/"),
    (r"^documents/", ""),
)
PROGRESS: dict[str, str] = {}  # a column of progress.csv -> what this script calls it
UNHASHED = re.compile(
    r"wall_s|env_steps_per_s|progress/(share_|warning)|/environment/rules$|"
    r"^checkpoint/configuration/"
)
"""Clocks, warnings, the sentence that names the rules, and what was asked for."""


def found(name: str) -> Any:
    """What is called ``name`` in PLACES, wherever this version has it."""
    for place in PLACES[name]:
        module, attribute = place.split(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ModuleNotFoundError, AttributeError) as error:
            if isinstance(error, ModuleNotFoundError) and not module.startswith(error.name or "?"):
                raise
    raise SystemExit(f"{name} is in none of {PLACES[name]}: say in PLACES where it is now")


def named_settings(given: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """``given`` settings as this version calls them; ends the program where one is not named."""
    names = {name: name for name in given}
    names |= {new: old for new, old in SETTING_NAMES.items() if new in given and old in known}
    if "kl_target" in given and "kl_target" not in known:
        names["kl_target"] = "target_kl"  # until kl_stop took that name
    chosen = {names[name]: value for name, value in given.items()}
    return complete("the settings", chosen, known)


def complete(what: str, given: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """``given`` with those of ADDED; ends the program where they are not all that are ``known``."""
    chosen = {name: value for name, value in ADDED.items() if name in known} | {
        name: value for name, value in given.items() if name in known or name not in DROPPED
    }
    if unnamed := known - set(chosen):
        raise SystemExit(f"{what}: {sorted(unnamed)} are not named: add them to the cases or ADDED")
    if unknown := set(chosen) - known:
        raise SystemExit(f"{what}: {sorted(unknown)} are unknown here: say what they are called")
    return chosen


OF_LOADS = ("references", "trace", "rows", "window", "optimum_windows")  # arguments of evaluate


def judge_options(options: dict[str, Any], load: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """``options`` of evaluate: those that it names itself, and those that it hands on."""
    if "references" in inspect.signature(found("evaluate")).parameters:
        return options, {}
    own = {name: value for name, value in options.items() if name not in OF_LOADS}
    return own, {name: options[name] for name in OF_LOADS if load}


def call(name: str, first: tuple[Any, ...], given: Mapping[str, Any], **more: Any) -> Any:
    """Call a function with every argument named; ``more`` are its settings or the environment's."""
    function = found(name)
    parameters = list(inspect.signature(function).parameters.values())[len(first) :]
    known = {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD}
    chosen = dict(given)
    if more and len(known) == len(parameters):  # they have a parameter of their own
        chosen["env_kwargs" if "env_kwargs" in known else "settings"], more = more, {}
    chosen = {k if k in known else ARGUMENT_NAMES.get(k, k): v for k, v in chosen.items()}
    return function(*first, **complete(name, chosen, known), **more)


def attribute(value: Any, name: str) -> Any:
    """An attribute of an object or row under any of its names; None where it has none of them."""
    names = ATTRIBUTES.get(name, (name,))
    own = value.get if isinstance(value, Mapping) else lambda key: getattr(value, key, None)
    return next((v for v in map(own, names) if v is not None), None)


def result_rows(result: Any) -> list[Any]:
    """The rows of what evaluate or replay found: a list, or in ``scores`` or ``rows``."""
    if isinstance(result, list):
        return result
    rows = getattr(result, "scores", None) or result.rows
    if isinstance(rows, list | tuple) and rows and not isinstance(rows[0], int):
        return list(rows)
    return list(result.to_dataframe().replace({np.nan: None}).to_dict("records"))


def neutral(name: str) -> str:
    """What this script calls a part of a checkpoint."""
    for pattern, replacement in NEUTRAL:
        told, changed = re.subn(pattern, replacement, name)
        if changed:
            return told
    return name


# --- What is played: numbers that all share -------------------------------------------------------

SEED, COPIES, STEPS, UPDATES, EPISODES = 11, 4, 60, 3, 6
DFAAS_ROWS = (2900, 3000)  # of the held-out days of edge3, to be judged on

# --- Trainers ------------------------------------------------------------------------------------

IPPO: dict[str, Any] = {
    "num_envs": COPIES,
    "workers": 0,
    "n_steps": 16,
    "n_minibatches": 2,
    "n_epochs": 2,
    "learning_rate": 2e-2,
    "anneal": True,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.01,
    "ent_coef_end": None,
    "clip_range_vf": None,
    "huber_delta": 10.0,
    "normalize_values": True,
    "value_decay": 0.99,
    "max_grad_norm": 0.5,
    "kl_coef": 0.0,
    "kl_target": None,  # what kl_coef is adapted to
    "target_kl": None,  # ends the epochs of an update
    "net_arch": (16,),
    "cnn_arch": None,
    "cnn_patch": 0,
    "grid_arch": None,
    "activation": "relu",
    "memory": 0,
    "action_std": 0.6,
    "agent_id": True,
    "device": "cpu",
}
MAPPO: dict[str, Any] = {**IPPO, "critic_input": "state", "own_action": False}
SB3: dict[str, Any] = {
    "vec_env": "batch",
    "num_envs": COPIES,
    "cpus": 0,
    "n_steps": 16,
    "batch_size": 48,
    "n_epochs": 2,
    "learning_rate": 2e-2,
    "anneal": True,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "target_kl": None,
    "net_arch": (16,),
    "agent_id": True,
    "device": "cpu",
}
TRAINERS = {"mappo": MAPPO, "ippo": IPPO, "sb3_ppo": SB3, "sb3_maskable_ppo": SB3}

# --- Environments --------------------------------------------------------------------------------

DFAAS: dict[str, Any] = {
    "trace": "edge3",
    "max_cycles": 12,
    "rows": None,
    "start": "random",
    "load_scale": None,
    "capacity_scale": None,
    "max_level": 20,
    "queue": 0,
    "forward_cost": 0.0,
    "wait_cost": 0.0,
    "route": "equal",
    "second_offer": True,
    "link_limit": None,
    "neighbours": None,
    "reward": "own",
    "capacity": None,
    "keep_flow": False,
    "illegal": "penalise",
}
ARENA: dict[str, Any] = {
    "width": 5,
    "height": 4,
    "max_cycles": 14,
    "observation": "positions",
    "walls": "bump",
    "illegal": "penalise",
}
TICTACTOE: dict[str, Any] = {"size": 3, "line": 3, "max_cycles": None, "illegal": "penalise"}
RPS: dict[str, Any] = {"rounds": 5, "max_cycles": None, "illegal": "penalise"}
TILES: dict[str, Any] = {
    "templates": None,
    "levels": 4,
    "budget": 384,
    "noise": 0.3,
    "value_cost": 0.002,
    "confidence": 0.95,
    "max_cycles": 10,
    "illegal": "penalise",
}
PROBE_ARGUMENTS: dict[int, dict[str, Any]] = {
    7: {"reward": "own"},
    12: {"replies": 1},
    14: {"cue": "own"},
}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "dfaas_v0": DFAAS,
    "arena_v0": ARENA,
    "tictactoe_v0": TICTACTOE,
    "rps_v0": RPS,
    "tiles_v0": TILES,
    "two_step_v0": {"max_cycles": None, "illegal": "penalise"},
    **{
        f"probe_p{number:02}_v0": {**PROBE_ARGUMENTS.get(number, {}), "illegal": "penalise"}
        for number in range(1, 19)
    },
}
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "dfaas_v0": (
        {"queue": 40, "wait_cost": 0.1, "forward_cost": 0.05, "route": "capacity"},
        {"second_offer": False, "link_limit": 6, "route": "spare", "capacity": "1.1x"},
        {"second_offer": False, "route": "two", "queue": 15, "reward": "team", "keep_flow": True},
        {"route": "shortest", "trace": "edge8", "max_level": 7, "rows": (100, 160), "start": 3},
        {"neighbours": {"node_0": ["node_1"], "node_1": ["node_2", "node_0"]}},
    ),
    "arena_v0": (
        {"observation": "visited"},
        {"walls": "mask"},
        {"observation": "visited", "walls": "mask", "width": 3, "height": 6, "max_cycles": 25},
    ),
    "tictactoe_v0": ({"size": (4, 5), "line": 4}, {"max_cycles": 4}),
    "rps_v0": ({"rounds": 4, "max_cycles": 3},),
    "tiles_v0": ({"levels": 2, "budget": 100, "noise": 0.1, "confidence": 0.6},),
    "two_step_v0": ({"max_cycles": 1},),
    "probe_p07_v0": ({"reward": "team"},),
    "probe_p12_v0": ({"replies": 2},),
    "probe_p14_v0": ({"cue": "last"},),
}


class Targets(ParallelEnv):  # type: ignore[type-arg]
    """Two agents name a point each, in continuous actions, and are paid for how near they are."""

    metadata = {"name": "targets"}  # noqa: RUF012
    possible_agents = ["near", "far"]  # noqa: RUF012

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-1, 1, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.time = 0
        return self._look(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        miss = {a: float(abs(actions[a] - self.targets[a]).sum()) for a in self.agents}
        self.time += 1
        cut, agents = self.time == 5, self.agents
        observations = self._look()
        self.agents = [] if cut else agents
        ended, late = dict.fromkeys(agents, False), dict.fromkeys(agents, cut)
        infos: Any = {agent: {} for agent in agents}
        return observations, {a: -m for a, m in miss.items()}, ended, late, infos

    def _look(self) -> dict[str, Any]:
        drawn = self.rng.uniform(-1, 1, (2, 2)).astype(np.float32)
        self.targets = dict(zip(self.agents, drawn, strict=True))
        return dict(self.targets)


# --- Runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A run: what differs from the tables above."""

    trainer: str
    env: Any  # a name, or a function that makes a PettingZoo environment
    settings: dict[str, Any] = field(default_factory=dict)
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    policies: Any = "shared"
    opponents: dict[str, str] | None = None


RUNS: dict[str, Case] = {
    "1 mappo, shared policy": Case("mappo", "dfaas_v0", {"target_kl": 1e-5}),
    "2 mappo, separate policies": Case(
        "mappo",
        "arena_v0",
        {"kl_coef": 0.2, "kl_target": 0.01, "activation": "tanh", "clip_range_vf": 0.2},
        policies="separate",
    ),
    "3 mappo, hidden state": Case("mappo", "dfaas_v0", {"memory": 6}, {"queue": 20}),
    "4 mappo, images": Case(
        "mappo",
        "tiles_v0",
        {"cnn_arch": (2, 8), "cnn_patch": 8, "ent_coef_end": 0.0},
        policies="separate",
    ),
    "5 mappo, in turns": Case("mappo", "tictactoe_v0", {"gamma": 1.0, "anneal": False}),
    "6 mappo, opponents": Case(
        "mappo",
        "rps_v0",
        {"critic_input": "observations+actions"},
        {"rounds": 10, "max_cycles": 7},
        opponents={"player_1": "beat-last"},
    ),
    "7a mappo, observations": Case(
        "mappo",
        "arena_v0",
        {"critic_input": "observations", "normalize_values": False, "huber_delta": None},
        {"observation": "visited"},
        policies="separate",
    ),
    "7b mappo, observations+actions": Case(
        "mappo", "dfaas_v0", {"critic_input": "observations+actions", "agent_id": False}
    ),
    "8 ippo": Case("ippo", "dfaas_v0", {"gae_lambda": 0.8, "huber_delta": 0.3}, {"reward": "team"}),
    "9 sb3_ppo, Batch": Case("sb3_ppo", "dfaas_v0", {"target_kl": 1e-3}, policies="separate"),
    "10 sb3_ppo, SuperSuit": Case("sb3_ppo", "dfaas_v0", {"vec_env": "supersuit"}),
    "11 sb3_maskable_ppo": Case("sb3_maskable_ppo", "dfaas_v0", {"anneal": False}),
    "12a mappo, PettingZoo's tictactoe_v3, hidden state": Case(
        "mappo", tictactoe_v3.env, {"memory": 5}
    ),
    "12b mappo, continuous actions of a ParallelEnv": Case(
        "mappo", Targets, {"critic_input": "observations"}
    ),
}

REPLAYS: dict[str, dict[str, Any]] = {
    "a day, every load in reach": {},
    "costs, a queue, one offer": {
        "queue": 30,
        "wait_cost": 0.05,
        "forward_cost": 0.1,
        "second_offer": False,
        "link_limit": 15,
    },
}
PAIRS = ("local", "random/equal", "overflow/equal", "overflow/two", "threshold/spare")
