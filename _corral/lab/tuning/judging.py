"""What a trial is worth: how its runs play on what is kept for validation."""

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

__all__ = ["RUNGS", "Beside", "beside", "curve", "judged", "measure_of", "values_at"]

RUNGS = (0.25, 0.5, 0.75)
"""Shares of the steps at which a trial may be pruned."""

LOOK = 16
"""Episodes of random play that show whether rewards sum to a constant."""


def measure_of(config: RunConfig, *, evaluated: bool, prune: bool) -> str:
    """Return in words what trials are judged by.

    Raises ValueError where nothing is kept for validation, and where what all earn sums to the same
    whatever they play, so that it tells no trial from another.
    """
    env_config, learners = config.env_config, config.learners
    rules = env_config.validation_rules()
    which = "best checkpoint" if evaluated else "last checkpoint"
    own = f"mean return of its {which}"
    if len(learners) > 1:
        all_learn = set(learners) == set(rules.agents)
        team = "the team's mean return" if all_learn else "mean return of all that learn, summed,"
        own = f"{team} with its {which}"
    if env_config.validation:
        low, high = env_config.validation["rows"]
        return f"{own} on rows {low}:{high}, kept for validation"
    played: list[EndedEpisodes] = []
    chance = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    if not is_zero_sum(rules):
        evaluate_team(rules, chance, episodes=LOOK, on_played=played.append)
    zero = not played or constant_sum(played[0].returns) is not None
    if zero and len(rules.agents) > 2 and set(learners) == set(rules.agents):
        raise ValueError(
            f"{env_config.env}: what its {len(rules.agents)} agents earn sums to the same whatever "
            "they play, and none of them is fixed: no trial can be told from another. Fix one with "
            "--opponent (opponents=)"
        )
    if zero and len(rules.agents) == 2:
        if prune and not evaluated:
            raise ValueError(
                "prune: returns in self-play tell no trial from another; give --evaluate-every "
                "(evaluate_every=), whose values are used then"
            )
        known = any(len(seat_players(rules, agent)) > 1 for agent in rules.agents)
        players = "reference players and random play" if known else "random play"
        return (
            f"mean return of its {which} in each seat that learns, against {players}, "
            f"{EPISODES} validation episodes each"
        )
    return f"{own} in the same {EPISODES} validation episodes"


def judged(
    folder: Path, parameters: Mapping[str, Any], source: Mapping[str, Any], *, evaluated: bool
) -> float:
    """Return the value of a run. Raises StudyError where it is not the trial's."""
    run = load_run(folder, **source)
    for name, value in parameters.items():
        kept = run.config.settings.get(name)
        if (tuple(kept) if isinstance(kept, list) else kept) != value:
            raise StudyError(
                f"{folder} was trained with {name}={kept!r}, and the trial has {value!r}: it is no "
                "run of this study. Move it away, or give another --out (out=)"
            )
    return validate(_judged_run(run, source, evaluated=evaluated)).value


def _judged_run(run: Run, source: Mapping[str, Any], *, evaluated: bool) -> Run:
    if evaluated and run.best_by is not None:
        return load_run(f"{run.folder}@best", **source)
    return run


@dataclass(frozen=True)
class Beside:
    """What stands beside the best trial's value: other play in the same validation."""

    random: float  # what random play earns in place of the agents that learn
    sampled: float | None
    """The value of the best trial's first run with sampled actions, where it is far better than
    with greedy ones: the interval of one is above the other's."""
    greedy: float  # the value of that run, as it was judged


def beside(folder: Path, source: Mapping[str, Any], *, evaluated: bool) -> Beside:
    """Return what stands beside the run in ``folder``."""
    run = _judged_run(load_run(folder, **source), source, evaluated=evaluated)
    rules = run.config.env_config.validation_rules()
    chance = {agent: random_policy(rules.action_space(agent)) for agent in run.config.learners}
    by_chance = validate(run, {**dict(run.policies), **chance})
    greedy, sampled = validate(run), validate(run, deterministic=False)
    return Beside(by_chance.value, sampled.value if _above(sampled, greedy) else None, greedy.value)


def _above(one: Validation, other: Validation) -> bool:
    """Return whether a team's interval is above another's; no for a zero-sum game."""
    ends = [(score.low, score.high) for each in (one, other) for score in each.rows]
    if len(ends) != 2 or one.value <= other.value:
        return False
    (low, _), (_, high) = ends
    return low is not None and high is not None and low > high


def curve(folder: Path, learners: Sequence[str]) -> list[tuple[int, float]]:
    """Return (env steps, value) of a run so far: what it was validated at, where it was, else the
    mean return of its learners in the last episodes. A row that is being written is left out."""
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
    known = [row for row in rows if all(row.get(column) for column in columns)]
    try:
        return [(int(row["env_steps"]), sum(float(row[c] or 0) for c in columns)) for row in known]
    except ValueError as error:
        raise StudyError(f"{folder / PROGRESS} is damaged: {reason(error)}") from error


def values_at(points: Sequence[tuple[int, float]], steps: int) -> dict[int, float]:
    """Return rung -> value at the first point at or after each of ``RUNGS``, as far as it got."""
    found: dict[int, float] = {}
    for share in RUNGS:
        at = int(share * steps)
        value = next((value for env_steps, value in points if env_steps >= at), None)
        if value is not None:
            found[at] = value
    return found
