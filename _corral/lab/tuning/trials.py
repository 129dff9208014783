"""The trials of a study: begun, trained, judged, told to Optuna."""

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
from corral.trainers.planning import threads_set
from corral.trainers.runs.run_config import RunConfig
from corral.trainers.runs.signals import stop_signals

__all__ = ["Trials", "opened"]

DATABASE = "study.db"
NAME = "corral"

ENDED = ("complete", "pruned", "failed")

STARTUP = 4
"""Complete trials from which on others are pruned."""

AGAIN = 3
"""Times that a training which a signal ended goes on, before its trial counts as failed."""

LOOK_S = 1.0
"""Seconds between two looks at how a training that may be pruned is getting on."""


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Any]:
    """Yield Optuna's storage of the study in ``folder``; it is made if it is not there.

    Raises StudyError where it is damaged, or cannot be written.
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
            f"{folder / DATABASE} is damaged: {_first_line(error)}. Remove it: the trials' runs "
            "beside it are kept, and judged again"
        ) from error
    try:
        yield storage
    except (sqlalchemy.exc.SQLAlchemyError, optuna().exceptions.StorageInternalError) as error:
        raise StudyError(
            f"{folder / DATABASE} cannot be read or written: {_first_line(error)}. What is in the "
            "trials' runs is kept; the same command goes on"
        ) from error
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split("\n")[0].split())[:200]


class Trials:
    """Plays the trials of a plan that are not over, and tells Optuna."""

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
        """``source``: what runs are read with; ``evaluated``: their best checkpoint is judged."""
        self.folder, self.plan, self.storage, self.config = folder, plan, storage, config
        self.measure, self.source, self.evaluated = measure, source, evaluated
        with quiet():
            self.study = optuna().load_study(storage=storage, study_name=NAME)
        self.known: list[Any] = self.study.get_trials()  # as Optuna has them
        self.trials = [self._read(frozen) for frozen in self.known]
        self.whose: dict[Job, tuple[int, int]] = {}  # trial, seed
        self.signals: dict[Job, int] = {}  # how often one ended it
        self.waiting: list[Job] = []  # to go on with
        self.looked: dict[Job, float] = {}
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
            self.known,
            self.played,
            self.config,
        )

    def play(
        self,
        jobs: int,
        on_trial: Callable[[Trial, Study], None] | None,
        tell: Callable[[str], None],
    ) -> Study:
        """Train and judge all that is not over; ``tell`` how much that is.

        Raises KeyboardInterrupt, or SystemExit of SIGTERM, after the runs under way are saved.
        """
        self.on_trial = on_trial or (lambda trial, study: None)
        pace = Pace(self._runs_left(), self.config.steps, jobs)
        if pace.runs:
            tell(pace.planned())
        with stop_signals() as stop:

            def watch(job: Job) -> bool:
                if stop.number is not None:
                    raise KeyboardInterrupt
                return self._goes_on(job)

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
        """Return how many runs are not judged yet."""
        begun = [trial for trial in self.trials if trial.state == "running"]
        new = max(0, self.plan.trials - len(self.trials))
        each = len(self.plan.seeds)
        return new * each + sum(each - len(trial.values) for trial in begun)

    # --- What is trained -------------------------------------------------------------------------

    def _jobs(self) -> Iterator[Job | None]:
        """Yield the trainings of all trials that are not over; None: wait for others."""
        number = 0
        most = max(self.plan.trials, len(self.trials))
        while number < most:
            yield from self._going_on()
            if self.plan.depends and not self._known(number - self.plan.lag):
                yield None
                continue
            if number == len(self.trials) and not self._begin(number):
                break
            for seed in self.plan.seeds:
                if self.trials[number].state == "running":
                    yield self._job(number, seed)
            number += 1
        while any(trial.state == "running" for trial in self.trials):
            yield from self._going_on()
            yield None

    def _going_on(self) -> Iterator[Job]:
        while self.waiting:
            yield self.waiting.pop()

    def _known(self, last: int) -> bool:
        """Return whether all trials up to ``last`` are over."""
        return all(trial.state != "running" for trial in self.trials[: max(0, last + 1)])

    def _past(self, number: int) -> list[Any]:
        """Return what a trial may depend on: those far enough before it, whenever they ended."""
        return self.known[: max(0, number - self.plan.lag + 1)]

    def _begin(self, number: int) -> bool:
        """Begin a trial: Optuna has it with all its parameters, or not at all."""
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
        self.whose[job] = number, seed
        return job

    def _goes_on(self, job: Job) -> bool:
        """Return whether a training is to go on: its trial is not over, nor to be pruned."""
        number, seed = self.whose[job]
        if self.trials[number].state != "running":
            return False
        if not self.plan.prune or seed != self.plan.seeds[0]:
            return True
        if time.monotonic() < self.looked.get(job, 0.0) + LOOK_S:
            return True
        self.looked[job] = time.monotonic()
        return self._pruned_at(number, job) is None

    def _pruned_at(self, number: int, job: Job) -> int | None:
        """Return the env steps at which Optuna's median pruner ends a trial; None: it does not.

        It follows from the rows of its first seed and from trials far enough before: a look that
        comes late, or after the end, finds the same.
        """
        values = values_at(curve(job.folder, self.config.learners), self.config.steps)
        past = self.plan.history(self._past(number))
        pruner = optuna().pruners.MedianPruner(n_startup_trials=STARTUP)
        seen: dict[int, float] = {}
        for at, value in values.items():
            seen[at] = value
            frozen = optuna().trial.create_trial(
                state=optuna().trial.TrialState.RUNNING, intermediate_values=dict(seen)
            )
            if pruner.prune(past, frozen):
                return at
        return None

    # --- What became of it -----------------------------------------------------------------------

    def _take(self, ended: Ended) -> None:
        """Judge a training that ended, and end its trial where that was the last."""
        number, seed = self.whose[ended.job]
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
            value = judged(job.folder, trial.parameters, self.source, evaluated=self.evaluated)
        steps = curve_end(job.folder)
        values = {**trial.values, seed: value}
        self._set(number, "values", {str(each): values[each] for each in sorted(values)})
        played = {**trial.env_steps, seed: steps}
        self._set(number, "env_steps", {str(each): played[each] for each in sorted(played)})
        if len(values) == len(self.plan.seeds):
            mean = statistics.fmean(values.values())
            if math.isfinite(mean):
                self._tell(number, "COMPLETE", mean)
            else:
                self._tell(number, "FAIL", reason=f"its value is {mean}")
        else:
            self._refresh(number)

    def _not_finished(self, number: int, seed: int, ended: Ended) -> None:
        """Go on with a training that a signal ended; a trial whose training fails has failed."""
        code = ended.code or 0
        self.signals[ended.job] = self.signals.get(ended.job, 0) + 1
        if (code < 0 or code > 128) and self.signals[ended.job] <= AGAIN:
            self.waiting.append(ended.job)
            return
        by = f"seed {seed}: " if len(self.plan.seeds) > 1 else ""
        said = ended.last_line or f"it ended with exit code {code}"
        self._tell(number, "FAIL", reason=f"{by}{said.removeprefix('corral: ')}")

    def _set(self, number: int, key: str, value: Any) -> None:
        self.storage.set_trial_user_attr(self.known[number]._trial_id, key, value)

    def _set_values(self, number: int, job: Job) -> None:
        """Let Optuna know the values on the way, which later trials are compared with."""
        values = values_at(curve(job.folder, self.config.learners), self.config.steps)
        for at, value in values.items():
            self.storage.set_trial_intermediate_value(self.known[number]._trial_id, at, value)

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
        self.known[number:] = [frozen, *self.known[number + 1 :]]
        self.trials[number:] = [self._read(frozen), *self.trials[number + 1 :]]

    def _read(self, frozen: Any) -> Trial:
        """Return a trial as Optuna has it. Raises StudyError where that is damaged."""
        states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        try:
            parameters = self.plan.parameters(frozen.params)
        except KeyError as error:
            raise StudyError(
                f"{self.folder / DATABASE}: trial {frozen.number} has {error.args[0]!r}, which is "
                "no value of this study; give another --out (out=)"
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
                f"{self.folder / DATABASE} is damaged: trial {frozen.number} is complete, and "
                "lacks values of seeds. Remove it: the trials' runs beside it are kept, and judged "
                "again"
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
    """Return the env steps of a run that is finished."""
    import pandas as pd

    from corral.trainers.runs.run import PROGRESS

    return int(pd.read_csv(folder / PROGRESS)["env_steps"].iloc[-1])
