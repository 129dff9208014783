"""What other frameworks' teams are judged by: 20 held-out windows of edge3, beside random play."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs import dfaas_v0
from corral.trainers.evaluation.episodes import bootstrap_ratio

EXAMPLES = Path(__file__).parents[2] / "docs" / "plug_it_in"
WINDOWS = 20

Play = Callable[[dict[str, Any]], dict[str, int]]
"""Observations by agent -> legal actions."""


@dataclass(frozen=True)
class Verdict:
    """Mean team returns over the same windows; illegal actions would have raised."""

    learned: float
    random: float
    random_low: float  # 95 % bootstrap interval of the mean over windows
    random_high: float
    seconds: float  # that learning took

    @property
    def beats_random(self) -> bool:
        return self.learned > self.random_high


def example(name: str) -> Any:
    """The module docs/plug_it_in/<name>_example.py."""
    spec = importlib.util.spec_from_file_location(
        f"plug_it_in_{name}", EXAMPLES / f"{name}_example.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judge(learn: Callable[[int, int], Play], steps: int, seed: int = 0) -> Verdict:
    """Train with ``learn(steps, seed)`` and play what it returns, and random legal actions."""
    begun = time.perf_counter()
    play = learn(steps, seed)
    seconds = time.perf_counter() - begun
    rng = np.random.default_rng(0)
    chance = team_returns(lambda seen: {a: _legal(rng, s["action_mask"]) for a, s in seen.items()})
    low, high = bootstrap_ratio(chance, np.ones(WINDOWS))
    assert low is not None
    assert high is not None
    return Verdict(float(team_returns(play).mean()), float(chance.mean()), low, high, seconds)


def team_returns(play: Play) -> Any:
    """The team's return in each of the held-out windows: float64 [WINDOWS]."""
    env = dfaas_v0.parallel_env(trace="edge3", rows=(2822, 4032), max_cycles=48, illegal="raise")
    returns = np.zeros(WINDOWS)
    for window in range(WINDOWS):
        observations, _ = env.reset(seed=window)
        while env.agents:
            observations, rewards, *_ = env.step(play(observations))
            returns[window] += sum(rewards.values())
    return returns


def _legal(rng: np.random.Generator, mask: Any) -> int:
    return int(rng.choice(np.flatnonzero(mask)))
