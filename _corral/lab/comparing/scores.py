"""One number for each run, on episodes that are the same for all and that none was trained on."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.progress import Progress
from corral.trainers.evaluation.judge import evaluate, judge_of, players
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.zero_sum import evaluate_seat, is_zero_sum, seat_players
from corral.trainers.runs.run import Run

__all__ = ["SEED", "mean_returns", "require_new_seed", "scores_of"]

SEED = 10_000
"""Added to the seed that is given: episodes are others than those of training with that seed."""


def require_new_seed(runs: Sequence[Run], seed: int) -> None:
    """Raise ValueError where a run was trained with the seed of the episodes."""
    for run in runs:
        if run.config.seed == seed + SEED:
            raise ValueError(
                f"seed={seed}: its episodes have the seed {seed + SEED}, with which {run.folder} "
                "was trained; give another"
            )


def scores_of(
    runs: Mapping[str, Run],
    *,
    episodes: int = 100,
    seed: int = 0,
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> tuple[str, dict[str, float]]:
    """Return what is measured, in words, and the greedy score of each run; higher is better.

    Where an environment has a judge of its own, a load is replayed on held-out rows: the share of
    the optimum's gain where that is known, else 1 - cost. In a zero-sum game of two it is the mean
    return against the reference players and random play, over the seats that learned. Elsewhere it
    is the team's return.
    """
    first = next(iter(runs.values()))
    if judge_of(first.config.env_config.env):
        return _replayed(runs, seed, progress)
    plan: dict[str, Any] = {"episodes": episodes, "seed": seed + SEED, "workers": workers}
    if is_zero_sum(first.config.env_config.rules()):
        found = {}
        for done, (label, run) in enumerate(runs.items()):
            progress(label, done, len(runs))
            found[label] = _against_references(run, **plan)
        return f"return against reference players, {episodes} episodes each", found
    found = {}
    for label, run in runs.items():
        rules = run.config.env_config.rules()
        score = evaluate_team(rules, players(run)[0], label=label, progress=progress, **plan)
        found[label] = score.return_team
    return f"return of the team, greedy, {episodes} episodes", found


def mean_returns(
    runs: Mapping[str, Run],
    *,
    episodes: int = 100,
    seed: int = 0,
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> tuple[str, dict[str, float]]:
    """Return what BenchMARL writes as "return" for each run: greedy, the mean over agents."""
    found = {}
    for label, run in runs.items():
        rules = run.config.env_config.rules()
        plan: dict[str, Any] = {"episodes": episodes, "seed": seed + SEED, "workers": workers}
        score = evaluate_team(rules, players(run)[0], label=label, progress=progress, **plan)
        found[label] = score.return_team / len(rules.agents)
    return f"return, mean over agents, greedy, {episodes} episodes", found


def _replayed(
    runs: Mapping[str, Run], seed: int, progress: Progress
) -> tuple[str, dict[str, float]]:
    labels, listed = [*runs], [*runs.values()]
    with tempfile.TemporaryDirectory() as folder:  # the report of an evaluation is not asked for
        plan: dict[str, Any] = {"seed": seed, "references": [], "progress": progress}
        result = evaluate(listed[0], beside=listed[1:], out=Path(folder), **plan)
    # Rows are named by labels of the evaluation's own; those of runs stand in their order.
    rows = [row for row in result if row.mode == "greedy"]
    assert len(rows) == len(runs)
    low, high = result.replay.rows
    held = f"rows {low:,} to {high:,}"
    if all(row.share_of_optimum is not None for row in rows):
        shares = [row.share_of_optimum for row in rows]
        return f"share of the optimum's gain, {held}", dict(zip(labels, shares, strict=True))
    kept = [1.0 - row.cost for row in rows]
    return f"1 - cost, {held}", dict(zip(labels, kept, strict=True))


def _against_references(run: Run, *, episodes: int, seed: int, workers: int) -> float:
    rules = run.config.env_config.rules()
    team = players(run)[0].team
    returns = []
    for seat in rules.agents:
        if seat in run.config.opponents:
            continue
        other = next(agent for agent in rules.agents if agent != seat)
        for name, opponent in seat_players(rules, other).items():
            score = evaluate_seat(
                rules,
                seat,
                team[seat],
                opponent,
                deterministic=True,
                labels=(run.name, "greedy", name),
                episodes=episodes,
                seed=seed,
                workers=workers,
            )
            returns.append(score.return_seat)
    return float(np.mean(returns))
