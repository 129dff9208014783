"""Duels: teams against each other, in every seat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corral.envs.core import Rules
from corral.envs.policy import PolicyLike
from corral.trainers.evaluation.episodes import play_episodes

__all__ = ["points_against"]


def points_against(
    rules: Rules[Any],
    team: Mapping[str, PolicyLike],
    others: Mapping[str, Mapping[str, PolicyLike]],
    *,
    seats: Sequence[str],
    episodes: int,
    seed: int = 0,
    deterministic: bool = False,
) -> dict[str, float]:
    """Return the share of points that ``team`` wins against each of ``others``, seat by seat."""
    found = {}
    for name, other in others.items():
        points = []
        for seat in seats:
            mixed = {a: team[a] if a == seat else other[a] for a in rules.agents}
            greedy = dict.fromkeys(rules.agents, deterministic)
            played, _ = play_episodes(rules, mixed, greedy, episodes=episodes, seed=seed)
            at = rules.agents.index(seat)
            rest = np.delete(played.returns, at, axis=1)
            ahead = played.returns[:, at, None] - rest
            points.append(np.where(abs(ahead) < 1e-9, 0.5, ahead > 0).mean())
        found[name] = float(np.mean(points))
    return found
