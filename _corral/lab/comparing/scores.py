"""One score per run. All runs play the same episodes, on a seed unused in training."""

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
"""Offset added to ``seed``, so that episodes differ from those of training with ``seed``."""


def require_new_seed(runs: Sequence[Run], seed: int) -> None:
    """Raise ValueError if a run was trained with the seed of the evaluation episodes."""
    for run in runs:
        if run.config.seed == seed + SEED:
            raise ValueError(
                f"seed={seed}: the episodes use the seed {seed + SEED}, and {run.folder} was "
                "trained with it; choose another seed"
            )


def scores_of(
    runs: Mapping[str, Run],
    *,
    episodes: int = 100,
    seed: int = 0,
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> tuple[str, dict[str, float]]:
    """Return a description of the score, and the score of each run; higher is better.

    A run plays in its mode, see ``Run.deterministic``: greedily, unless its training recorded
    sampled play.

    If the environment has its own judge, a load is replayed on held-out rows. The score is the
    share of the optimum's gain if the optimum is known, else 1 - cost. In a two-player zero-sum
    game, the score is the mean return against the reference players and random play, over the
    trained seats. In other environments, it is the team's return.
    """
    first = next(iter(runs.values()))
    if judge_of(first.config.env_config.env):
        return _replayed(runs, seed, progress)
    plan: dict[str, Any] = {"episodes": episodes, "seed": seed + SEED, "workers": workers}
    if is_zero_sum(first.config.env_config.rules()):
        scores = {}
        for done, (label, run) in enumerate(runs.items()):
            progress(label, done, len(runs))
            scores[label] = _against_references(run, **plan)
        return f"return against reference players, {episodes} episodes each", scores
    scores = {}
    for label, run in runs.items():
        rules = run.config.env_config.rules()
        score = evaluate_team(rules, players(run)[0], label=label, progress=progress, **plan)
        scores[label] = score.return_team
    return f"return of the team, {_mode(runs)}, {episodes} episodes", scores


def mean_returns(
    runs: Mapping[str, Run],
    *,
    episodes: int = 100,
    seed: int = 0,
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> tuple[str, dict[str, float]]:
    """Return BenchMARL's "return" for each run, mean over agents, and its description. A run plays
    in its mode."""
    scores = {}
    for label, run in runs.items():
        rules = run.config.env_config.rules()
        plan: dict[str, Any] = {"episodes": episodes, "seed": seed + SEED, "workers": workers}
        score = evaluate_team(rules, players(run)[0], label=label, progress=progress, **plan)
        scores[label] = score.return_team / len(rules.agents)
    return f"return, mean over agents, {_mode(runs)}, {episodes} episodes", scores


def _mode(runs: Mapping[str, Run]) -> str:
    """Return the mode of all runs, or that each plays in its own."""
    modes = {players(run)[0].mode for run in runs.values()}
    return modes.pop() if len(modes) == 1 else "in the mode of each run"


def _replayed(
    runs: Mapping[str, Run], seed: int, progress: Progress
) -> tuple[str, dict[str, float]]:
    labels, run_list = [*runs], [*runs.values()]
    with tempfile.TemporaryDirectory() as folder:  # the report of the evaluation is not kept
        plan: dict[str, Any] = {"seed": seed, "references": [], "progress": progress}
        result = evaluate(run_list[0], beside=run_list[1:], out=Path(folder), **plan)
    # The evaluation labels its rows differently, but keeps the order of the runs.
    rows = [row for row in result if row.mode == "greedy"]
    assert len(rows) == len(runs)
    low, high = result.replay.rows
    rows_text = f"rows {low:,} to {high:,}"
    if all(row.share_of_optimum is not None for row in rows):
        shares = [row.share_of_optimum for row in rows]
        return f"share of the optimum's gain, {rows_text}", dict(zip(labels, shares, strict=True))
    scores = [1.0 - row.cost for row in rows]
    return f"1 - cost, {rows_text}", dict(zip(labels, scores, strict=True))


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
