"""The value of a trial: how well its runs play on validation data."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.adapters.seats import random_policy
from corral.envs.episode_stats import EndedEpisodes
from corral.errors import StudyError
from corral.files import read_text, reason
from corral.lab.jobs import MAX_PROGRESS
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.validate import EPISODES, Validation, validate
from corral.trainers.evaluation.zero_sum import constant_sum, is_zero_sum, seat_players
from corral.trainers.runs.run import PROGRESS, Run, load_run
from corral.trainers.runs.run_config import RunConfig

__all__ = [
    "RUNGS",
    "ReferencePlay",
    "curve",
    "judged",
    "measure_of",
    "reference_play_of",
    "values_at",
]

RUNGS = (0.25, 0.5, 0.75)
"""Shares of the steps at which a trial may be pruned."""

LOOK = 16
"""Episodes of random play to test whether the returns have a constant sum."""


def measure_of(
    config: RunConfig, *, evaluated: bool, prune: bool, deterministic: bool = True
) -> str:
    """Return a description of the values of trials, with greedy or sampled play.

    Raises ValueError if no validation data exists, and if the returns of all agents have a constant
    sum, so that they cannot distinguish trials.
    """
    env_config, learners = config.env_config, config.learners
    rules = env_config.validation_rules()
    checkpoint = "best checkpoint" if evaluated else "last checkpoint"
    if not deterministic:
        checkpoint += ", sampled play,"
    description = f"mean return of its {checkpoint}"
    if len(learners) > 1:
        all_learn = set(learners) == set(rules.agents)
        team = (
            "the team's mean return"
            if all_learn
            else "the summed mean return of all trained agents"
        )
        description = f"{team} with its {checkpoint}"
    if env_config.validation:
        low, high = env_config.validation["rows"]
        return f"{description} on validation rows {low}:{high}"
    played: list[EndedEpisodes] = []
    random_policies = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    if not is_zero_sum(rules):
        evaluate_team(rules, random_policies, episodes=LOOK, on_played=played.append)
    is_zero = not played or constant_sum(played[0].returns) is not None
    if is_zero and len(rules.agents) > 2 and set(learners) == set(rules.agents):
        raise ValueError(
            f"{env_config.env}: the returns of its {len(rules.agents)} agents have a constant sum, "
            "and no agent is fixed, so trials cannot be compared. Fix an agent with --opponent "
            "(opponents=)"
        )
    if is_zero and len(rules.agents) == 2:
        if prune and not evaluated:
            raise ValueError(
                "prune: self-play returns cannot distinguish trials; give --evaluate-every "
                "(evaluate_every=) to prune by evaluations"
            )
        has_references = any(len(seat_players(rules, agent)) > 1 for agent in rules.agents)
        players = "reference players and random play" if has_references else "random play"
        return (
            f"mean return of its {checkpoint} in each trained seat, against {players}, "
            f"{EPISODES} validation episodes each"
        )
    return f"{description} in the same {EPISODES} validation episodes"


def judged(
    folder: Path,
    parameters: Mapping[str, Any],
    source: Mapping[str, Any],
    *,
    evaluated: bool,
    deterministic: bool = True,
) -> float:
    """Return the value of a run. Raises StudyError if the run has other settings than the trial."""
    run = load_run(folder, **source)
    for name, value in parameters.items():
        stored = run.config.settings.get(name)
        if (tuple(stored) if isinstance(stored, list) else stored) != value:
            raise StudyError(
                f"{folder} was trained with {name}={stored!r}, but the trial has {value!r}, so the "
                "run is not part of this study. Move it away, or choose another --out (out=)"
            )
    judged_run = _judged_run(run, source, evaluated=evaluated)
    return validate(judged_run, deterministic=deterministic).value


def _judged_run(run: Run, source: Mapping[str, Any], *, evaluated: bool) -> Run:
    if evaluated and run.best_by is not None:
        return load_run(f"{run.folder}@best", **source)
    return run


@dataclass(frozen=True)
class ReferencePlay:
    """Values of other play in the same validation, for comparison with the best trial."""

    random: float  # value of random play in place of the trained agents
    sampled: float | None
    """The value of the best trial's first run with sampled actions, if trials are judged by greedy
    play and sampled play is much better: its interval is above the greedy interval. Else None."""
    greedy: float  # the value of that run with greedy actions


def reference_play_of(
    folder: Path, source: Mapping[str, Any], *, evaluated: bool, deterministic: bool = True
) -> ReferencePlay:
    """Return the values for comparison with the run in ``folder``."""
    run = _judged_run(load_run(folder, **source), source, evaluated=evaluated)
    rules = run.config.env_config.validation_rules()
    random_policies = {
        agent: random_policy(rules.action_space(agent)) for agent in run.config.learners
    }
    random_play = validate(run, {**dict(run.policies), **random_policies})
    greedy, sampled = (validate(run, deterministic=greedily) for greedily in (True, False))
    better = deterministic and _above(sampled, greedy)
    return ReferencePlay(random_play.value, sampled.value if better else None, greedy.value)


def _above(one: Validation, other: Validation) -> bool:
    """Whether a team's interval is above another's; always False for a zero-sum game."""
    ends = [(score.low, score.high) for validation in (one, other) for score in validation.rows]
    if len(ends) != 2 or one.value <= other.value:
        return False
    (low, _), (_, high) = ends
    return low is not None and high is not None and low > high


def curve(folder: Path, learners: Sequence[str]) -> list[tuple[int, float]]:
    """Return (env steps, value) of a run so far.

    Values are the validation results if the run has them, else the mean return of its learners in
    recent episodes. A row that is incomplete is left out.
    """
    try:
        text = read_text(folder / PROGRESS, MAX_PROGRESS, folder=folder)
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{folder / PROGRESS} cannot be read: {reason(error)}") from error
    lines = text[: text.rfind("\n") + 1].splitlines()
    rows = [row for row in csv.DictReader(lines) if row.get("env_steps")]
    if rows and "validation_return_learned" in rows[0]:
        columns = ["validation_return_learned"]
    else:
        columns = [f"return_{agent}" for agent in learners]
    complete_rows = [row for row in rows if all(row.get(column) for column in columns)]
    try:
        return [
            (int(row["env_steps"]), sum(float(row[c] or 0) for c in columns))
            for row in complete_rows
        ]
    except ValueError as error:
        raise StudyError(f"{folder / PROGRESS} is damaged: {reason(error)}") from error


def values_at(points: Sequence[tuple[int, float]], steps: int) -> dict[int, float]:
    """Return env steps -> value at the first point at or after each of ``RUNGS``, if reached."""
    values: dict[int, float] = {}
    for share in RUNGS:
        at = int(share * steps)
        value = next((value for env_steps, value in points if env_steps >= at), None)
        if value is not None:
            values[at] = value
    return values
