"""A team on days of edge3 that it was not trained on, beside random legal play."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import corral
from corral.envs.core import Array

Play = Callable[[Mapping[str, Any]], Mapping[str, int]]


def team_returns(play: Play, windows: int = 20) -> Array:
    """The team's return in each of so many held-out windows; the same ones for everybody."""
    env = corral.make("dfaas_v0", trace="edge3", rows=(2822, 4032), max_cycles=48, illegal="raise")
    found = []
    for seed in range(windows):
        seen, _ = env.reset(seed=seed)
        total = 0.0
        while env.agents:
            seen, rewards, *_ = env.step(play(seen))
            total += sum(rewards.values())
        found.append(total)
    return np.array(found)


def random_returns() -> Array:
    rng = np.random.default_rng(0)

    def play(seen: Mapping[str, Any]) -> dict[str, int]:
        return {a: int(rng.choice(np.flatnonzero(o["action_mask"]))) for a, o in seen.items()}

    return team_returns(play)


def upper_end(returns: Array) -> float:
    """Of the 95 % bootstrap interval of the mean."""
    rng = np.random.default_rng(0)
    means = rng.choice(returns, (2000, len(returns))).mean(axis=1)
    return float(np.quantile(means, 0.975))
