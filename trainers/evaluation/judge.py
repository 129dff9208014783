"""Judge a run: what it learned, beside random, the reference policies and the optimum."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from corral.data import Trace, load_trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import PAIRS, baseline_team
from corral.envs.reference import reference_teams
from corral.errors import ScaleError
from corral.trainers.evaluation.episodes import TeamScore, evaluate_players, evaluate_team
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.zero_sum import SeatScore, evaluate_seats, is_duel
from corral.trainers.loads.policy_picture import team_pictures
from corral.trainers.loads.replay import OWN, Replay, replay
from corral.trainers.loads.report import LearningCurve, write_report
from corral.trainers.loads.scores import Progress
from corral.trainers.runs.run import Run, load_run

__all__ = [
    "as_trained",
    "evaluate",
    "game_settings",
    "learning_curves",
    "players",
    "run_labels",
    "seats",
    "trained_on",
]

CURVE_LEVELS = ("random", "local", "overflow")

NOT_OF_THE_GAME = {"trace", "rows", "start", "max_cycles", "capacity", "reward", *OWN}


def evaluate(
    run: str | Path | Run,
    *,
    beside: Sequence[str | Path | Run] = (),
    references: Sequence[str] = PAIRS,
    trace: str | Path | Trace | None = None,
    rows: tuple[int, int] | None = None,
    window: int | None = None,
    episodes: int = 100,
    seed: int = 0,
    optimum_windows: int = 8,
    out: str | Path | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Replay | list[TeamScore] | list[SeatScore]:
    """What the team of ``run`` earns, greedily and with sampled actions, beside the others.

    A run of dfaas_v0 is replayed over the rows that its training did not see, in windows of a day,
    beside the ``references`` and the optimum, and gets a report. Any other environment is played
    for ``episodes`` episodes on fixed seeds, beside its teams of reference players and random play;
    a zero-sum game of two seat by seat, against each reference player in the other seat, see
    ``corral.trainers.evaluation.zero_sum``. results.json and the report go to ``out``; default: the
    run's folder.

    Args:
        beside: other runs of the same environment, to be judged beside this one.
        references: pairs of ``corral.envs.dfaas_v0.baselines``, for dfaas_v0.
        trace: another load with capacity, all of it unless ``rows`` are given; scales stay those
            of the run.
        rows: (low, high), other rows than those held out.
        window: steps of a window; default: a day.
        episodes: for other environments than dfaas_v0; of each row.
        seed: of random policies, sampled actions, and other environments' episodes.
        optimum_windows: see ``corral.trainers.loads.replay.replay``.

    Raises what ``load_run`` and ``replay`` raise, and ValueError for trace, rows or window where
    the environment replays no load, and for runs ``beside`` of another game.
    """
    given, *others = (each if isinstance(each, Run) else load_run(each) for each in (run, *beside))
    folder = Path(out) if out is not None else given.folder
    task = given.config.env_config
    for other in others:
        _require_same_game(given, other)
    labels = run_labels([given, *others])
    label = next(iter(labels))
    if not isinstance(rules := task.rules(), DfaasRules):
        for name, value in (("trace", trace), ("rows", rows), ("window", window)):
            if value is not None:
                raise ValueError(f"{name}={value}: {task.env} replays no load; give episodes")
        teams = seats(labels)
        if is_duel(rules):
            learned = [agent for agent in rules.agents if agent not in given.config.opponents]
            duels = evaluate_seats(rules, teams, seats=learned, episodes=episodes, seed=seed)
            _write_scores(given, duels, folder)
            return duels
        scores = evaluate_players(rules, teams, episodes=episodes, seed=seed)
        known = [
            evaluate_team(rules, Player(team, False), episodes=episodes, seed=seed, label=name)
            for name, team in reference_teams(rules).items()
        ]
        scores[-1:-1] = [dataclasses.replace(score, mode="") for score in known]  # random is last
        _write_scores(given, scores, folder)
        return scores
    # The references play by the scales of the run too, unless those are the load's own anyway.
    settings = game_settings(given) | {key: task.env_kwargs[key] for key in OWN if key != "route"}
    settings["capacity"] = task.env_kwargs["capacity"] if trace is None else None
    load = task.trace if trace is None else load_trace(trace)
    assert load is not None  # dfaas_v0 has one
    plain = DfaasRules(load, capacity=settings["capacity"])
    if trace is not None:
        _require_fit(given, rules, plain)
    for scale in ("load_scale", "capacity_scale"):
        if settings[scale] == getattr(plain, scale):
            del settings[scale]
    if trace is None:
        rows = rows or task.held_out["rows"]
    result = replay(
        load,
        {**{pair: pair for pair in references}, **seats(labels)},
        rows=rows,
        window=window,
        seed=seed,
        optimum_windows=optimum_windows,
        progress=progress,
        **_but_defaults(settings),
    )
    write_report(
        result,
        folder,
        learning=learning_curves(labels),
        levels=_levels(rules),
        pictures=team_pictures(rules, given.policies, label=label),
    )
    return result


def _require_fit(run: Run, rules: DfaasRules, other: DfaasRules) -> None:
    """Raise ValueError where the team of ``run`` cannot play the load of ``other``."""
    if len(other.agents) != len(rules.agents):
        raise ValueError(
            f"{other.trace.name} has {len(other.agents)} nodes, and {run.folder} was trained on "
            f"{len(rules.agents)}"
        )
    for scale in ("load_scale", "capacity_scale"):
        own, needed = getattr(rules, scale), getattr(other, scale)
        if needed > own:
            raise ScaleError(
                f"{run.folder} was trained with {scale} {own:g}, and {other.trace.name} reaches "
                f"{needed:g}: train again with --{scale.replace('_', '-')} {needed:g} or more"
            )


def _require_same_game(run: Run, other: Run) -> None:
    """Raise ValueError where what one was trained on could not be played by the other."""
    tasks = [each.config.env_config for each in (run, other)]
    names = [task.env for task in tasks]
    if names[0] != names[1]:
        raise ValueError(f"{run.folder} is of {names[0]}, {other.folder} of {names[1]}")
    rules, theirs = (task.rules() for task in tasks)
    for agent in rules.agents:
        for kind in ("observation_space", "action_space"):
            if agent not in theirs.agents or getattr(rules, kind)(agent) != getattr(theirs, kind)(
                agent
            ):
                raise ValueError(
                    f"{run.folder} and {other.folder}: the {kind.replace('_', ' ')} of {agent} "
                    "differs; they play games of different sizes"
                )
    if isinstance(rules, DfaasRules):
        as_trained([run, other], {})


def players(run: Run) -> tuple[Player, Player]:
    """The run's team twice: greedy, and with sampled actions."""
    arguments = run.config.env_config.env_kwargs
    own = {key: arguments[key] for key in OWN if key in arguments}
    return Player(run.policies, True, own), Player(run.policies, False, own)


def run_labels(runs: Iterable[Run]) -> dict[str, Run]:
    """A name for each run: its trainer's, its folder's where trainers repeat, else its path."""
    listed = list(runs)
    for names in (
        [run.config.trainer for run in listed],
        [run.folder.resolve().name for run in listed],
    ):
        if len(set(names)) == len(names):
            return dict(zip(names, listed, strict=True))
    return {str(run.folder): run for run in listed}


def trained_on(label: str, run: Run, trace: Trace, rows: tuple[int, int]) -> str | None:
    """A sentence where some of the ``rows`` of that load are those of the run's training."""
    task = run.config.env_config
    if task.trace is None or task.trace != trace:
        return None
    low, high = task.env_kwargs["rows"]
    if rows[0] >= high or rows[1] <= low:
        return None
    return f"{label} was trained on rows {low}:{high} of this load: it has seen some of these."


def game_settings(run: Run) -> dict[str, Any]:
    """The run's arguments of dfaas_v0 that make the game: costs, queue, limits, ..."""
    arguments = run.config.env_config.env_kwargs
    return {key: value for key, value in arguments.items() if key not in NOT_OF_THE_GAME}


def learning_curves(runs: Mapping[str, Run]) -> list[LearningCurve]:
    """The teams' returns over training, where episodes ended in more than one update."""
    curves = []
    for label, run in runs.items():
        seen = run.progress.dropna(subset=["return_team"])
        if seen["episodes"].nunique() > 1:
            steps, returns = seen["env_steps"].to_numpy(), seen["return_team"].to_numpy()
            curves.append(LearningCurve(label, steps, returns))
    return curves


def _levels(rules: DfaasRules) -> dict[str, float]:
    """What some reference policies return per episode of the training, to compare curves with."""
    teams = {amount: Player(baseline_team(amount, rules)) for amount in CURVE_LEVELS}
    scores = evaluate_players(rules, teams, episodes=64, seed=0)
    return {score.policy: score.return_team for score in scores}


def as_trained(runs: Sequence[Run], given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` settings of dfaas_v0, completed with those that the ``runs`` were trained with.

    Raises ValueError where the runs do not agree on one that is not given, or are of another
    environment.
    """
    complete = dict(given)
    for run in runs:
        if not isinstance(run.config.env_config.rules(), DfaasRules):
            raise ValueError(f"{run.folder} is of {run.config.env_config.env}, not of dfaas_v0")
        for key, value in game_settings(run).items():
            if key not in given and complete.setdefault(key, value) != value:
                raise ValueError(
                    f"the runs were trained with {key}={complete[key]!r} and {key}={value!r}: "
                    "say which to play"
                )
    return _but_defaults(complete)


def seats(runs: Mapping[str, Run]) -> dict[str, Player]:
    """Both players of each run, under labels that tell them apart."""
    return {f"{label}, {p.mode}": p for label, run in runs.items() for p in players(run)}


def _but_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is the default anyway, so that a report names what is particular."""
    defaults = inspect.signature(DfaasRules).parameters
    return {key: value for key, value in settings.items() if value != defaults[key].default}


def _write_scores(run: Run, scores: Sequence[TeamScore | SeatScore], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "environment": run.config.env_config.env,
        "versions": run.config.versions,
        "rows": [asdict(score) for score in scores],
    }
    unfinished = folder / ".results.json"
    unfinished.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(unfinished, folder / "results.json")
