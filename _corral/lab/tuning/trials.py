"""The trials of a study: start, train and judge them, and report them to Optuna."""

from __future__ import annotations

import contextlib
import math
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from corral.errors import StudyError
from corral.files import open_regular, reason
from corral.lab.jobs import Ended, Job, is_finished, play
from corral.lab.pace import Pace
from corral.lab.tuning.judging import curve, judged, values_at
from corral.lab.tuning.plan import Plan, optuna, quiet
from corral.lab.tuning.result import Study, Trial
from corral.progress import Progress
from corral.trainers.planning import threads_set
from corral.trainers.runs.run_config import RunConfig
from corral.trainers.runs.signals import stop_signals

__all__ = ["Trials", "opened"]

DATABASE = "study.db"
NAME = "corral"

ENDED = ("complete", "pruned", "failed")

STARTUP = 4
"""Minimum number of complete trials before trials are pruned."""

MAX_RESUMES = 3
"""Maximum number of resumptions after signals, before the trial counts as failed."""

CHECK_S = 1.0
"""Seconds between two pruning checks of a run."""

REPORT_S = 5.0
"""Seconds between two reports of progress."""


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Any]:
    """Yield Optuna's storage of the study in ``folder``; create it if it is missing.

    Raises StudyError if the storage is damaged or not writable.
    """
    import sqlalchemy.exc

    storage: Any = None
    for name in (DATABASE, f"{DATABASE}-journal", f"{DATABASE}-wal", f"{DATABASE}-shm"):
        try:
            open_regular(folder / name, folder=folder).close()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StudyError(f"{folder / name}: {reason(error)}") from error
    try:
        with quiet():
            storage = optuna().storages.RDBStorage(f"sqlite:///{(folder / DATABASE).absolute()}")
            optuna().create_study(
                storage=storage, study_name=NAME, direction="maximize", load_if_exists=True
            ).get_trials()
    except (sqlalchemy.exc.SQLAlchemyError, RuntimeError, ValueError, AssertionError) as error:
        raise StudyError(
            f"{folder / DATABASE} is damaged: {_first_line(error)}. Remove it: the runs of the "
            "trials are kept, and will be judged again"
        ) from error
    try:
        yield storage
    except (sqlalchemy.exc.SQLAlchemyError, optuna().exceptions.StorageInternalError) as error:
        raise StudyError(
            f"{folder / DATABASE} cannot be read or written: {_first_line(error)}. The runs of the "
            "trials are kept; repeat the command to resume"
        ) from error
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split("\n")[0].split())[:200]


class Trials:
    """Trains and judges the unfinished trials of a plan, and reports them to Optuna."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        storage: Any,
        config: RunConfig,
        measure: str,
        source: Mapping[str, Any],
        *,
        evaluated: bool,
    ) -> None:
        """``source``: options to read runs; ``evaluated``: judge the best checkpoint."""
        self.folder, self.plan, self.storage, self.config = folder, plan, storage, config
        self.measure, self.source, self.evaluated = measure, source, evaluated
        with quiet():
            self.study = optuna().load_study(storage=storage, study_name=NAME)
        self.optuna_trials: list[Any] = self.study.get_trials()  # Optuna's trials
        self.trials = [self._read(frozen) for frozen in self.optuna_trials]
        self.trial_of: dict[Job, tuple[int, int]] = {}  # trial, seed
        self.signals: dict[Job, int] = {}  # number of signals that ended the job
        self.to_resume: list[Job] = []  # jobs to resume
        self.checked_at: dict[Job, float] = {}
        self.reported_at = -math.inf
        self.played = 0

    @property
    def now(self) -> Study:
        """The study so far."""
        return Study(
            self.folder,
            self.plan,
            self.measure,
            self.config.learners,
            tuple(self.trials),
            self.optuna_trials,
            self.played,
            self.config,
        )

    def play(
        self,
        jobs: int,
        on_trial: Callable[[Trial, Study], None] | None,
        tell: Callable[[str], None],
        progress: Progress,
    ) -> Study:
        """Train and judge all unfinished trials; report the amount of work with ``tell``, and the
        env steps of all runs to train with ``progress``.

        Raises KeyboardInterrupt, or SystemExit on SIGTERM, after the current runs have been saved.
        """
        self.on_trial = on_trial or (lambda trial, study: None)
        pace = Pace(self._runs_left(), self.config.steps, jobs)
        if pace.runs:
            tell(pace.planned())
        with stop_signals() as stop:

            def watch(job: Job) -> bool:
                if stop.number is not None:
                    raise KeyboardInterrupt
                if time.monotonic() >= self.reported_at + REPORT_S:
                    self.reported_at = time.monotonic()
                    progress("env steps", self._steps_done(pace.runs), pace.runs * pace.env_steps)
                return self._continues(job)

            training = play(self._jobs(), jobs, watch=watch, threads=self.plan.threads)
            try:
                with contextlib.closing(training), quiet():
                    for ended in training:
                        if stop.number is not None:
                            raise KeyboardInterrupt
                        if ended.code == 0 and (text := pace.ended()):
                            tell(text)
                        self._take(ended)
            except KeyboardInterrupt:
                if stop.number == signal.SIGTERM:
                    raise SystemExit(128 + signal.SIGTERM) from None
                raise
        return self.now

    def _runs_left(self) -> int:
        """Return the number of runs that are not judged yet."""
        running = [trial for trial in self.trials if trial.state == "running"]
        new = max(0, self.plan.trials - len(self.trials))
        seeds = len(self.plan.seeds)
        return new * seeds + sum(seeds - len(trial.values) for trial in running)

    def _steps_done(self, runs: int) -> int:
        """Return the env steps of ``runs`` so far; a run that is judged or not needed counts as
        complete."""
        steps = (runs - self._runs_left()) * self.config.steps
        for job, (number, seed) in self.trial_of.items():
            trial = self.trials[number]
            if trial.state == "running" and seed not in trial.values:
                with contextlib.suppress(OSError, ValueError, LookupError):  # no row yet
                    steps += min(curve_end(job.folder), self.config.steps)
        return steps

    # --- Training --------------------------------------------------------------------------------

    def _jobs(self) -> Iterator[Job | None]:
        """Yield the jobs of all unfinished trials; None means: wait for other trials."""
        number = 0
        count = max(self.plan.trials, len(self.trials))
        while number < count:
            yield from self._resumed()
            if self.plan.depends and not self._are_finished(number - self.plan.lag):
                yield None
                continue
            if number == len(self.trials) and not self._begin(number):
                break
            for seed in self.plan.seeds:
                if self.trials[number].state == "running":
                    yield self._job(number, seed)
            number += 1
        while any(trial.state == "running" for trial in self.trials):
            yield from self._resumed()
            yield None

    def _resumed(self) -> Iterator[Job]:
        while self.to_resume:
            yield self.to_resume.pop()

    def _are_finished(self, last: int) -> bool:
        """Whether all trials up to ``last`` are finished."""
        return all(trial.state != "running" for trial in self.trials[: max(0, last + 1)])

    def _past(self, number: int) -> list[Any]:
        """Return the trials that trial ``number`` may depend on, independent of timing."""
        return self.optuna_trials[: max(0, number - self.plan.lag + 1)]

    def _begin(self, number: int) -> bool:
        """Start a trial. Optuna stores it with all its parameters, or not at all."""
        taken = [trial.parameters for trial in self.trials]
        with quiet():
            parameters = self.plan.proposed(number, self._past(number), taken)
            if parameters is None:
                return False
            stored = {
                name: ",".join(map(str, value)) if isinstance(value, tuple) else value
                for name, value in parameters.items()
            }
            distributions = {name: self.plan.distributions()[name] for name in stored}
            self.study.add_trial(
                optuna().trial.create_trial(
                    state=optuna().trial.TrialState.RUNNING,
                    params=stored,
                    distributions=distributions,
                )
            )
        self._refresh(number)
        return True

    def _job(self, number: int, seed: int) -> Job:
        job = self.plan.job(self.folder, number, self.trials[number].parameters, seed)
        self.trial_of[job] = number, seed
        return job

    def _continues(self, job: Job) -> bool:
        """Whether a run should continue: its trial is not finished and is not pruned."""
        number, seed = self.trial_of[job]
        if self.trials[number].state != "running":
            return False
        if not self.plan.prune or seed != self.plan.seeds[0]:
            return True
        if time.monotonic() < self.checked_at.get(job, 0.0) + CHECK_S:
            return True
        self.checked_at[job] = time.monotonic()
        return self._pruned_at(number, job) is None

    def _pruned_at(self, number: int, job: Job) -> int | None:
        """Return the env steps at which Optuna's median pruner ends a trial, or None.

        The result depends only on the rows of the first seed and on sufficiently early trials. So a
        later check gives the same result.
        """
        values = values_at(curve(job.folder, self.config.learners), self.config.steps)
        past = self.plan.history(self._past(number))
        pruner = optuna().pruners.MedianPruner(n_startup_trials=STARTUP)
        seen: dict[int, float] = {}
        for env_steps, value in values.items():
            seen[env_steps] = value
            frozen = optuna().trial.create_trial(
                state=optuna().trial.TrialState.RUNNING, intermediate_values=dict(seen)
            )
            if pruner.prune(past, frozen):
                return env_steps
        return None

    # --- Results ---------------------------------------------------------------------------------

    def _take(self, ended: Ended) -> None:
        """Judge a finished run, and finish its trial if this was the last run."""
        number, seed = self.trial_of[ended.job]
        trial, job = self.trials[number], ended.job
        if trial.state != "running":
            return
        first = seed == self.plan.seeds[0]
        if self.plan.prune and first and (at := self._pruned_at(number, job)) is not None:
            self._set_values(number, job)
            self._tell(number, "PRUNED", reason=f"below the median at {at:,} env steps")
            return
        if not is_finished(job.folder):
            self._not_finished(number, seed, ended)
            return
        if self.plan.prune and first:
            self._set_values(number, job)
        with threads_set(self.plan.threads):
            value = judged(
                job.folder,
                trial.parameters,
                self.source,
                evaluated=self.evaluated,
                deterministic=self.plan.deterministic,
            )
        steps = curve_end(job.folder)
        values = {**trial.values, seed: value}
        self._set(number, "values", {str(key): values[key] for key in sorted(values)})
        played = {**trial.env_steps, seed: steps}
        self._set(number, "env_steps", {str(key): played[key] for key in sorted(played)})
        if len(values) == len(self.plan.seeds):
            mean = statistics.fmean(values.values())
            if math.isfinite(mean):
                self._tell(number, "COMPLETE", mean)
            else:
                self._tell(number, "FAIL", reason=f"its value is {mean}")
        else:
            self._refresh(number)

    def _not_finished(self, number: int, seed: int, ended: Ended) -> None:
        """Resume a run that a signal ended. If a run fails, its trial fails."""
        code = ended.code or 0
        self.signals[ended.job] = self.signals.get(ended.job, 0) + 1
        if (code < 0 or code > 128) and self.signals[ended.job] <= MAX_RESUMES:
            self.to_resume.append(ended.job)
            return
        prefix = f"seed {seed}: " if len(self.plan.seeds) > 1 else ""
        message = ended.last_line or f"it ended with exit code {code}"
        self._tell(number, "FAIL", reason=f"{prefix}{message.removeprefix('corral: ')}")

    def _set(self, number: int, key: str, value: Any) -> None:
        self.storage.set_trial_user_attr(self.optuna_trials[number]._trial_id, key, value)

    def _set_values(self, number: int, job: Job) -> None:
        """Report intermediate values to Optuna, for the comparison with later trials."""
        values = values_at(curve(job.folder, self.config.learners), self.config.steps)
        for at, value in values.items():
            self.storage.set_trial_intermediate_value(
                self.optuna_trials[number]._trial_id, at, value
            )

    def _tell(
        self, number: int, state: str, value: float | None = None, *, reason: str = ""
    ) -> None:
        if reason:
            self._set(number, "reason", reason)
        self.study.tell(number, value, state=getattr(optuna().trial.TrialState, state))
        self._refresh(number)
        self.played += 1
        self.on_trial(self.trials[number], self.now)

    def _refresh(self, number: int) -> None:
        frozen = self.study.get_trials()[number]
        self.optuna_trials[number:] = [frozen, *self.optuna_trials[number + 1 :]]
        self.trials[number:] = [self._read(frozen), *self.trials[number + 1 :]]

    def _read(self, frozen: Any) -> Trial:
        """Return a trial from Optuna's. Raises StudyError if it is damaged."""
        states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        try:
            parameters = self.plan.parameters(frozen.params)
        except KeyError as error:
            raise StudyError(
                f"{self.folder / DATABASE}: trial {frozen.number} has {error.args[0]!r}, which is "
                "not a value of this study; choose another --out (out=)"
            ) from None
        jobs = {
            seed: self.plan.job(self.folder, frozen.number, parameters, seed).folder
            for seed in self.plan.seeds
        }
        attributes = frozen.user_attrs
        state = states.get(frozen.state.name, "running")
        values = {int(seed): value for seed, value in attributes.get("values", {}).items()}
        if state == "complete" and {*values} != {*self.plan.seeds}:
            raise StudyError(
                f"{self.folder / DATABASE} is damaged: trial {frozen.number} is complete, but "
                "lacks values of seeds. Remove it: the runs of the trials are kept, and will be "
                "judged again"
            )
        return Trial(
            frozen.number,
            parameters,
            state,
            values,
            {int(seed): steps for seed, steps in attributes.get("env_steps", {}).items()},
            {seed: folder for seed, folder in jobs.items() if folder.exists()},
            str(attributes.get("reason", "")),
        )


def curve_end(folder: Path) -> int:
    """Return the env steps of a finished run."""
    import pandas as pd

    from corral.trainers.runs.run import PROGRESS

    return int(pd.read_csv(folder / PROGRESS)["env_steps"].iloc[-1])
