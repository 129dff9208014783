"""Tune settings: ``corral.tune``.

    study = corral.tune("arena_v0", trainer="mappo", grid={"learning_rate": [1e-4, 5e-4]}, seeds=3)
    print(study.best.params, study.best.command)

``corral.lab.jobs`` trains the trials, and this package judges them. ``study.db`` in the study's
folder is Optuna's database. The values of trials are computed from their runs, so a killed study
loses nothing: repeat the call to resume it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from corral.envs.arguments import nonnegative_int
from corral.envs.registry import registered_name
from corral.errors import ArgumentError, StudyError, concise
from corral.lab.jobs import require_room, threads_of_each
from corral.lab.tuning.judging import measure_of, reference_play_of
from corral.lab.tuning.plan import STUDY, Plan, optuna
from corral.lab.tuning.result import Study, Trial
from corral.lab.tuning.space import Space
from corral.lab.tuning.trials import Trials, opened
from corral.lab.tuning.words import words_of
from corral.progress import Progress, cell_progress
from corral.trainers.arguments import arguments_of
from corral.trainers.base import find_trainer
from corral.trainers.driver import session
from corral.trainers.planning import threads_set
from corral.trainers.runs.folders import HOLDER, LOCK, locked
from corral.trainers.runs.run_config import RunConfig

__all__ = ["tune"]

TRIALS = 20
"""Default number of trials of a search."""

SOURCE = ("env_kwargs", "api", "model")
"""Options that are needed again to read a run with a third-party environment or custom network."""


@concise
def tune(
    env: str,
    *,
    trainer: str = "mappo",
    grid: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
    points: Sequence[Mapping[str, Any]] = (),
    trials: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    jobs: int = 1,
    prune: bool = False,
    deterministic: bool = True,
    out: str | Path | None = None,
    on_trial: Callable[[Trial, Study], None] | None = None,
    tell: Callable[[str], None] = lambda text: None,
    progress: Progress = cell_progress,
    **options: Any,
) -> Study:
    """Train an environment with many settings, and return all trials.

    Each trial is trained with all its seeds, in separate processes. Its value is the mean over the
    seeds of the policies' return on validation data, in the same episodes for all trials. Held-out
    data is never used. Repeat the call to resume a study that was stopped or killed; for a complete
    study it returns the result. The parameters of a trial depend on the study, not on the timing of
    other trials.

    Args:
        env: name or id of an environment, or module:function.
        trainer: a name of ``corral.trainers.trainers()``, or file.py:name.
        grid: setting -> values; each combination is a trial.
        search: setting -> (low, high), "log:0.005..0.3" or values, sampled by Optuna's TPE. With a
            grid as well, the points of the grid take turns.
        points: mappings setting -> value, tried first.
        trials: total number of trials; default: all points of the grid, 20 with a search. When a
            study is resumed, the number may be larger than before.
        seeds: number of runs per trial, with consecutive seeds.
        seed: the first seed of the runs, and the seed of the search.
        jobs: number of processes that train in parallel.
        prune: end a trial early if its first seed is below the median of the other trials. This is
            tested at a quarter, half and three quarters of the steps.
        deterministic: judge trials by greedy play; False: by sampled actions. Pruning and
            ``evaluate_every`` keep their own play.
        out: the study's folder; default: runs/tune-<env>-<trainer>.
        on_trial: called with each finished trial, and the study so far.
        tell: called with a text about the runs to train, and after the first run with the estimated
            remaining time.
        progress: called with a label, and the env steps of all runs so far and in total.
        options: options of ``corral.train`` and settings, the same for all trials: steps, stop,
            held_out, validation, env_kwargs, gamma, ... as text or numbers.

    Raises UnknownNameError and ArgumentError for unknown settings of the trainer; ValueError for
    ranges that are empty, reversed or contain invalid values, for too few steps, and for a setting
    that ``settings_of`` sets for every trained policy; StudyError if
    the folder holds a damaged or a different study; RunError if another process uses the study;
    MissingExtraError.
    """
    optuna()
    if not (isinstance(env, str) and isinstance(trainer, str)):
        raise ArgumentError(
            "env and trainer: trials run in separate processes, so give text that names them, such "
            "as file.py:name"
        )
    kind = find_trainer(trainer).kind
    seed, seeds = nonnegative_int("seed", seed), nonnegative_int("seeds", seeds, least=1)
    jobs = nonnegative_int("jobs", jobs, least=1)
    require_room(seeds=seeds)
    if trials is not None:
        trials = nonnegative_int("trials", trials, least=1)
    space = Space.of(kind, arguments_of(env), grid or {}, search or {}, points)
    if repeated := [name for name in space.names if name in options]:
        raise ValueError(
            f"{repeated[0]} has several values in the study; leave it out of the other options"
        )
    count = _trials(space, trials)
    arguments = words_of(env, trainer, kind, options)
    config = _checked(env, trainer, space, seed, options)
    _require_effect(space, config)
    plan = Plan(
        arguments=arguments,
        space=space,
        trials=count,
        seeds=tuple(range(seed, seed + seeds)),
        lag=1 + math.ceil((jobs - 1) / seeds),
        threads=threads_of_each(jobs),
        prune=bool(prune),
        deterministic=bool(deterministic),
    )
    evaluated = options.get("evaluate_every") is not None
    measure = measure_of(
        config, evaluated=evaluated, prune=plan.prune, deterministic=plan.deterministic
    )
    folder = Path(f"runs/tune-{config.env_config.env}-{config.trainer}" if out is None else out)
    source = {name: options[name] for name in SOURCE if options.get(name) is not None}
    if registered_name(env) is None:
        source["env"] = env
    else:
        source.pop("env_kwargs", None)
    if config.trainer_source is not None:
        source["trainer"] = trainer
    _require_free(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if (stored := plan.stored_in(folder)) is not None:
            plan = dataclasses.replace(plan, **stored)
        plan.write(folder)
        with opened(folder) as storage:
            study_trials = Trials(
                folder, plan, storage, config, measure, source, evaluated=evaluated
            )
            study = study_trials.play(jobs, on_trial, tell, progress)
        if study.best is not None:
            with threads_set(plan.threads):
                reference_play = reference_play_of(
                    study.best.run, source, evaluated=evaluated, deterministic=plan.deterministic
                )
            study = dataclasses.replace(study, reference_play=reference_play)
        study.write()
    return study


def _require_effect(space: Space, config: RunConfig) -> None:
    """Raise ValueError if every trained policy has its own value of a setting of the study."""
    policies = sorted({config.policies[agent] for agent in config.learners})
    for name in space.names:
        if all(name in config.settings_of.get(policy, {}) for policy in policies):
            raise ValueError(
                f"{name} has values in the study, but --set (settings_of=) sets it for every "
                f"trained policy: {', '.join(policies)}. Remove it from one of them"
            )


def _trials(space: Space, trials: int | None) -> int:
    """Return the number of trials. Raises ValueError if it is less than the number of points."""
    points = len(space.listed())
    if not space.search:
        if trials is not None and trials < points:
            raise ValueError(f"trials={trials}: the grid has {points} points; leave out trials=")
        return points
    trials = max(TRIALS, points) if trials is None else trials
    if trials < points:
        raise ValueError(
            f"trials={trials}: {points} points are tried first; give at least {points}"
        )
    return trials


def _require_free(folder: Path) -> None:
    """Raise StudyError if a folder holds something other than a study."""
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file; choose another --out (out=)")
    if not folder.exists() or (folder / STUDY).exists():
        return
    if {path.name for path in folder.iterdir()} - {LOCK, HOLDER, f".{STUDY}"}:
        raise StudyError(f"{folder} is not empty and holds no study; choose another --out (out=)")


def _checked(
    env: str, trainer: str, space: Space, seed: int, options: Mapping[str, Any]
) -> RunConfig:
    """Return the configuration of a run of the study.

    Raises the errors of ``corral.train`` for invalid settings, and ValueError if one rollout is
    longer than all steps.
    """
    config: RunConfig | None = None
    for parameters in space.corners():
        trial_session = session(
            env, **{**options, **parameters}, trainer=trainer, seed=seed, progress=False
        )
        trial_session.learner.close()
        config = trial_session.config
        rollout = trial_session.learner.rollout_steps
        if rollout > config.steps:
            text = ", ".join(f"{name}={value}" for name, value in parameters.items())
            raise ValueError(
                f"steps={config.steps}: too few for {text}: one rollout has {rollout:,} env steps; "
                "give at least as many"
            )
    assert config is not None
    return config
