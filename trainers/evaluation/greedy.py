"""A warning where greedy play is far below sampled play: what shows it, and what to do.

A policy that has not settled, or that must mix its actions, may earn much when its actions are
drawn, and little when the likeliest is taken. Both play the same episodes in an evaluation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.episode_stats import EndedEpisodes
from corral.trainers.evaluation.episodes import bootstrap_ratio
from corral.trainers.evaluation.zero_sum import SeatScore
from corral.trainers.runs.run import Run
from corral.trainers.runs.run_config import RunConfig

__all__ = ["Gap", "gap_of", "greedy_alone", "in_order", "say_gaps", "seat_gaps", "team_gaps"]

LEARNED = 0.5
"""A gap is large that is this share of what sampled play earns beyond random play, or more; ..."""

SPREAD = 0.5
"""... and this share of the standard deviation between episodes of sampled play."""


@dataclass(frozen=True)
class Gap:
    """What greedy play earns less than sampled play in the same episodes: means of them."""

    greedy: float
    sampled: float
    low: float  # 95 % bootstrap interval of the difference, over the pairs of episodes
    high: float
    episodes: int
    seat: str = ""  # of a zero-sum game


def greedy_alone(run: Run) -> bool:
    """Return whether the probabilities of its policies are no advice how often to play an action,
    so that they are played greedily alone."""
    return run.config.trainer == "policy_iteration"


def gap_of(greedy: Array, sampled: Array, chance: Array, seat: str = "") -> Gap | None:
    """Return how far greedy play is below sampled play; None where it is not far below.

    ``greedy``, ``sampled`` and ``chance`` (random play) are returns [E] of the same episodes.
    """
    difference = np.asarray(sampled, dtype=np.float64) - greedy
    low, high = bootstrap_ratio(difference, np.ones(len(difference)))
    if low is None or high is None or low <= 0:
        return None
    large = max(LEARNED * (np.mean(sampled) - np.mean(chance)), SPREAD * np.std(sampled))
    if difference.mean() < large:
        return None
    return Gap(float(np.mean(greedy)), float(np.mean(sampled)), low, high, len(difference), seat)


def in_order(played: EndedEpisodes) -> Array:
    """Return the returns [E, N] of episodes in the order in which they began, row by row: the same
    for all who play them."""
    return np.asarray(played.returns[np.argsort(played.rows, kind="stable")])


def team_gaps(
    runs: Mapping[str, Run], played: Sequence[EndedEpisodes]
) -> dict[str, tuple[Gap, RunConfig]]:
    """Return the runs whose greedy play is far below their sampled play. What was ``played``: each
    run's episodes, greedy and, unless it is played so alone, sampled, then random play's."""
    team = (in_order(each).sum(axis=1) for each in played)
    both = [(next(team), None if greedy_alone(run) else next(team)) for run in runs.values()]
    chance = next(team)
    gaps = {
        label: (gap_of(greedy, sampled, chance), run.config)
        for (label, run), (greedy, sampled) in zip(runs.items(), both, strict=True)
        if sampled is not None
    }
    return {label: (gap, config) for label, (gap, config) in gaps.items() if gap is not None}


def seat_gaps(
    runs: Mapping[str, Run],
    agents: Sequence[str],
    rows: Sequence[SeatScore],
    played: Sequence[EndedEpisodes],
) -> dict[str, tuple[Gap, RunConfig]]:
    """Return the same of a zero-sum game, over all opponents of a seat: the seat with the largest
    gap. ``played`` holds the episodes of each of the ``rows``."""
    earned: dict[tuple[str, str], list[Array]] = {}
    for row, episodes in zip(rows, played, strict=True):
        own = in_order(episodes)[:, agents.index(row.seat)]
        earned.setdefault((row.seat, row.policy), []).append(own)
    found = {}
    for label, run in runs.items():
        if greedy_alone(run):
            continue
        gaps = []
        for seat in dict.fromkeys(row.seat for row in rows):
            greedy, sampled, chance = (
                np.concatenate(earned[seat, name])
                for name in (f"{label}, greedy", f"{label}, sampled", "random")
            )
            gap = gap_of(greedy, sampled, chance, seat)
            gaps += [] if gap is None else [gap]
        if gaps:
            found[label] = (max(gaps, key=lambda gap: gap.sampled - gap.greedy), run.config)
    return found


# --- In words ------------------------------------------------------------------------------------


def say_gaps(gaps: Mapping[str, tuple[Gap, RunConfig]]) -> dict[str, Any]:
    """Return what results.json says of gaps, by the run's label: figures, and a sentence ``said``;
    nothing where there are none."""
    found = [
        {"run": label, **dataclasses.asdict(gap), "said": _sentence(label, gap, config)}
        for label, (gap, config) in gaps.items()
    ]
    return {"greedy_below_sampled": found} if found else {}


def _sentence(label: str, gap: Gap, config: RunConfig) -> str:
    who = f"{label} as {gap.seat}" if gap.seat else label
    longer = "train it longer" + " or with a lower ent_coef" * bool(config.settings.get("ent_coef"))
    mixed = f": mixed actions may be right here; if not, {longer}."
    learned = [config.policies[agent] for agent in config.learners]
    alike = not gap.seat and len(set(learned)) < len(learned)
    return (
        f"{who}: greedy play is far below sampled play, {gap.greedy:.3g} against {gap.sampled:.3g} "
        f"in the same {gap.episodes} episodes (95 % interval of the difference {gap.low:.3g} to "
        f"{gap.high:.3g}). Play it sampled (in Python deterministic=False)"
        f"{mixed if gap.seat else f', or {longer}.'}"
        + " Where like agents must act unlike each other, train --policies separate."
        * alike
    )
