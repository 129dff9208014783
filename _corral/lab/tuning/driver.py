"""Tune settings: ``corral.tune``.

    study = corral.tune("arena_v0", trainer="mappo", grid={"learning_rate": [1e-4, 5e-4]}, seeds=3)
    print(study.best.params, study.best.command)

Trials are trained by ``corral.lab.jobs``, and judged here. ``study.db`` in the study's
folder is Optuna's; what a trial is worth is found in its runs, so that nothing is lost where the
study is killed: the same call goes on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from corral.envs.arguments import nonnegative_int
from corral.envs.registry import registered_name
from corral.errors import ArgumentError, StudyError
from corral.lab.jobs import require_room, threads_of_each
from corral.lab.tuning.judging import beside, measure_of
from corral.lab.tuning.plan import STUDY, Plan, optuna
from corral.lab.tuning.result import Study, Trial
from corral.lab.tuning.space import Space
from corral.lab.tuning.trials import Trials, opened
from corral.lab.tuning.words import words_of
from corral.trainers.arguments import arguments_of
from corral.trainers.base import find_trainer
from corral.trainers.driver import session
from corral.trainers.planning import threads_set
from corral.trainers.runs.folders import HOLDER, LOCK, locked
from corral.trainers.runs.run_config import RunConfig

__all__ = ["tune"]

TRIALS = 20
"""Trials of a search, where nothing is said."""

SOURCE = ("env_kwargs", "api", "model")
"""What a run of others' environments and networks is read with again."""


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
    out: str | Path | None = None,
    on_trial: Callable[[Trial, Study], None] | None = None,
    tell: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> Study:
    """Train an environment with many settings, and return what became of each.

    A trial is trained with each of its seeds by processes of their own, and worth the mean of their
    values: how the policies play on what is kept for validation, the same episodes for all, never
    on what is held out. A call that is repeated goes on with a study that was stopped or killed,
    and gives back one that is complete. Parameters of a trial depend on the study, not on when
    other trials end.

    Args:
        env: its name or id, or module:function.
        trainer: a name of ``corral.trainers.trainers()``, or file.py:name.
        grid: setting -> values; each point of the grid is a trial.
        search: setting -> (low, high), "log:0.005..0.3" or values, drawn by Optuna's TPE. With a
            grid as well, each of its points gets its turn.
        points: setting -> value of each, tried first.
        trials: trials in all; default: all points of the grid, 20 with a search. A study that goes
            on may have more than it had.
        seeds: trainings of each trial, with the first seed and those after it.
        seed: the first seed, and what the search begins with.
        jobs: processes that train side by side.
        prune: end trials early whose first seed is below the median of others. It is looked at a
            quarter, half and three quarters of the steps.
        out: the study's folder; default: runs/tune-<env>-<trainer>.
        on_trial: called with each trial that ends, and the study so far.
        tell: called with how many runs there are to train, and after the first with how long the
            others will take.
        options: of ``corral.train``, its settings too, for all trials alike: steps, stop, held_out,
            validation, env_kwargs, gamma, ... as text or numbers.

    Raises UnknownNameError and ArgumentError for what is no setting of the trainer, ValueError for
    ranges that are empty, reversed, or hold what the setting may not be, and for too few steps;
    StudyError where the folder holds a damaged study or another one, RunError where another process
    is at it; MissingExtraError.
    """
    optuna()
    if not (isinstance(env, str) and isinstance(trainer, str)):
        raise ArgumentError(
            "env and trainer: trials are trained by processes of their own; give text that names "
            "them, such as file.py:name"
        )
    kind = find_trainer(trainer).kind
    seed, seeds = nonnegative_int("seed", seed), nonnegative_int("seeds", seeds, least=1)
    jobs = nonnegative_int("jobs", jobs, least=1)
    require_room(seeds=seeds)
    if trials is not None:
        trials = nonnegative_int("trials", trials, least=1)
    space = Space.of(kind, arguments_of(env), grid or {}, search or {}, points)
    if doubled := [name for name in space.names if name in options]:
        raise ValueError(f"{doubled[0]} is tried with several values; leave it out of the others")
    count = _trials(space, trials)
    arguments = words_of(env, trainer, kind, options)
    config = _checked(env, trainer, space, seed, options)
    plan = Plan(
        arguments=arguments,
        space=space,
        trials=count,
        seeds=tuple(range(seed, seed + seeds)),
        lag=1 + math.ceil((jobs - 1) / seeds),
        threads=threads_of_each(jobs),
        prune=bool(prune),
    )
    evaluated = options.get("evaluate_every") is not None
    measure = measure_of(config, evaluated=evaluated, prune=plan.prune)
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
        if (kept := plan.kept_in(folder)) is not None:
            plan = dataclasses.replace(plan, **kept)
        plan.write(folder)
        with opened(folder) as storage:
            found = Trials(folder, plan, storage, config, measure, source, evaluated=evaluated)
            study = found.play(jobs, on_trial, tell)
        if study.best is not None:
            with threads_set(plan.threads):
                others = beside(study.best.run, source, evaluated=evaluated)
            study = dataclasses.replace(study, beside=others)
        study.write()
    return study


def _trials(space: Space, trials: int | None) -> int:
    """Return how many trials there are to be. Raises ValueError where some points get none."""
    listed = len(space.listed())
    if not space.search:
        if trials is not None and trials < listed:
            raise ValueError(f"trials={trials}: the grid has {listed} points; leave it out")
        return listed
    trials = max(TRIALS, listed) if trials is None else trials
    if trials < listed:
        raise ValueError(f"trials={trials}: {listed} points come first; give that or more")
    return trials


def _require_free(folder: Path) -> None:
    """Raise StudyError where a folder holds something else than a study."""
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file; give another --out (out=)")
    if not folder.exists() or (folder / STUDY).exists():
        return
    if {path.name for path in folder.iterdir()} - {LOCK, HOLDER, f".{STUDY}"}:
        raise StudyError(f"{folder} is not empty and holds no study; give another --out (out=)")


def _checked(
    env: str, trainer: str, space: Space, seed: int, options: Mapping[str, Any]
) -> RunConfig:
    """Return the configuration of a run of the study. Raises what ``corral.train`` raises for
    settings that it refuses, and ValueError where one rollout is more than all steps."""
    found: RunConfig | None = None
    for parameters in space.corners():
        begun = session(
            env, **{**options, **parameters}, trainer=trainer, seed=seed, progress=False
        )
        begun.learner.close()
        found = begun.config
        rollout = begun.learner.rollout_steps
        if rollout > found.steps:
            text = ", ".join(f"{name}={value}" for name, value in parameters.items())
            raise ValueError(
                f"steps={found.steps}: too few for {text}, where one rollout has {rollout:,} env "
                "steps; give that or more"
            )
    assert found is not None
    return found
