"""Players of the published comparison that run in corral's own environment, and their curves.

Trainers of corral are called as anyone calls them, with the presets that this gives; the loop in
CleanRL's style is docs/plug_it_in/cleanrl_example.py as it stands.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from published_games import Game

import corral
from corral.envs.batch import batch_for
from corral.envs.policy import Decision

__all__ = ["CORRAL", "VARIANTS", "Curve", "Played", "cleanrl", "trained"]

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mappo_like_sb3": (
        "mappo",
        {"preset": "none", "num_envs": 16, "n_minibatches": 6, "n_epochs": 6}
        | {"learning_rate": 2e-3, "activation": "tanh"},
    ),
    "mappo_constant_rate": ("mappo", {"anneal": False}),
    "mappo_raw_values": ("mappo", {"normalize_values": False}),
    "mappo_squared_loss": ("mappo", {"huber_delta": None}),
    "mappo_no_ids": ("mappo", {"agent_id": False}),
    "mappo_all_four": (
        "mappo",
        {"anneal": False, "normalize_values": False, "huber_delta": None, "agent_id": False},
    ),
}
"""Trainers with settings that are not what a user gets: they say where a difference comes from."""
CORRAL = ("mappo", "ippo", "sb3_ppo", "rllib_ppo", *VARIANTS)
LAST = 100
"""Episodes that a training return is the mean of."""
POINTS = 40
EXAMPLE = Path(__file__).parents[2] / "docs" / "plug_it_in" / "cleanrl_example.py"
CONSTANTS = ("COPIES", "ROLLOUT", "EPOCHS", "MINIBATCHES", "LEARNING_RATE", "LAMBDA", "CLIP")


@dataclass
class Played:
    """What training gave: a team (agent -> policy), the settings it had, and the env steps."""

    team: Mapping[str, Any]
    settings: dict[str, Any]
    env_steps: int


class Curve:
    """Env steps, CPU and wall seconds since it was made, and the return of the last episodes."""

    def __init__(self) -> None:
        self.points: list[list[float]] = []
        self.returns: deque[float] = deque(maxlen=LAST)
        self.restart()

    def restart(self) -> None:
        """Let the clocks run from now on."""
        self.began = self._clocks()

    @staticmethod
    def _clocks() -> tuple[float, float]:
        used = os.times()  # of this process and of children that have ended
        cpu = used.user + used.system + used.children_user + used.children_system
        return cpu, time.perf_counter()

    def seconds(self) -> tuple[float, float]:
        """Return CPU and wall seconds since the start."""
        cpu, wall = self._clocks()
        return cpu - self.began[0], wall - self.began[1]

    def add(self, env_steps: int, value: float | None = None, ended: Iterable[float] = ()) -> None:
        """Note a point; ``ended``: team returns of episodes, if ``value`` is not their mean."""
        self.returns.extend(ended)
        if value is None and self.returns:
            value = float(np.mean(self.returns))
        if value is not None and np.isfinite(value):
            cpu, wall = self.seconds()
            self.points.append([env_steps, round(cpu, 2), round(wall, 2), round(float(value), 4)])

    def thinned(self) -> list[list[float]]:
        """Return at most ``POINTS`` of the points, evenly spread, with the last."""
        if len(self.points) <= POINTS:
            return self.points
        chosen = np.linspace(0, len(self.points) - 1, POINTS).round().astype(int)
        return [self.points[i] for i in chosen]


class _Looking(corral.Callback):
    def __init__(self, curve: Curve) -> None:
        self.curve = curve

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        self.curve.add(int(row["env_steps"]), row.get("return_team"))


def trained(name: str, game: Game, seed: int, curve: Curve, **more: Any) -> Played:
    """Train by ``corral.train`` with its presets, and the game's discounting."""
    trainer, other = VARIANTS.get(name, (name, {}))
    with tempfile.TemporaryDirectory() as folder:
        run = corral.train(
            game.env(),
            trainer=trainer,
            steps=game.steps,
            seed=seed,
            out=Path(folder) / "run",
            progress=False,
            callbacks=[_Looking(curve)],
            **{**game.options(), **game.discounting, **other, **more},
        )
        settings = {**run.config.settings, "policies": sorted({*run.config.policies.values()})}
        return Played(dict(run.policies), settings, int(run.progress["env_steps"].iloc[-1]))


# --- The loop in CleanRL's style -----------------------------------------------------------------


class _Watched:
    """A Batch whose steps and ended episodes are noted, once a rollout."""

    def __init__(self, batch: Any, curve: Curve, every: int) -> None:
        self.batch, self.curve, self.every = batch, curve, every
        self.num_envs, self.env_steps = batch.num_envs, 0

    def reset(self) -> Any:
        return self.batch.reset()

    def step(self, actions: Any) -> Any:
        if self.env_steps and self.env_steps % self.every == 0:  # the update before is over
            self.curve.add(self.env_steps)
        step = self.batch.step(actions)
        self.env_steps += self.num_envs
        if step.finished is not None:
            self.curve.returns.extend(step.finished.returns.sum(axis=1).tolist())
        return step


class _CleanRL:
    """The trained agent of the example, as the policy of one of N agents; greedy."""

    def __init__(self, agent: Any, index: int, agents: int) -> None:
        self.agent, self.identity = agent, torch.eye(agents)[index]

    def act(
        self, observation: Any, state: Any = None, rng: Any = None, deterministic: bool = False
    ) -> Decision:
        seen = torch.as_tensor(np.array(observation["observation"]))
        mask = torch.as_tensor(np.array(observation["action_mask"])) == 1
        seen = torch.cat([seen, self.identity.expand(len(seen), -1)], dim=-1)
        with torch.no_grad():
            return Decision(self.agent.policy(seen, mask).probs.argmax(-1).numpy())


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cleanrl_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def cleanrl(game: Game, seed: int, curve: Curve) -> Played:
    """Train the example's loop, with its own settings but for the game's discounting."""
    example, rules = _example(), game.rules()
    gamma = game.discounting.get("gamma", 0.99)
    if "gae_lambda" in game.discounting:
        example.LAMBDA = game.discounting["gae_lambda"]  # type: ignore[attr-defined]
    torch.manual_seed(seed)
    watched = _Watched(
        batch_for(rules, example.COPIES, seed), curve, example.COPIES * example.ROLLOUT
    )
    try:
        agent = example.train(watched, game.steps, gamma=gamma)
    finally:
        if hasattr(watched.batch, "close"):
            watched.batch.close()
    curve.add(watched.env_steps)
    names = rules.agents
    team = {name: _CleanRL(agent, index, len(names)) for index, name in enumerate(names)}
    settings = {key.lower(): getattr(example, key) for key in CONSTANTS} | {"gamma": gamma}
    return Played(team, settings, watched.env_steps)
