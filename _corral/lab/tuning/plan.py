"""The plan of a study: the runs to train, the search space, and the parameters of trial N.

The parameters depend on the plan, on N, and on the results of trials up to N - ``lag``. They do not
depend on the times at which trials end, or on interruptions. So a resumed study tries the same
parameters as an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from corral.errors import StudyError
from corral.extras import require
from corral.files import write_file
from corral.lab.jobs import Job
from corral.lab.tuning.space import Parameters, Range, Space
from corral.lab.tuning.words import option
from corral.trainers.file_fields import read_fields

__all__ = ["STUDY", "Plan", "optuna", "quiet"]

STUDY = "study.json"
FORMAT = 1
REDRAWN = 100
"""Number of draws for unused parameters, after which the space counts as exhausted."""

FIXED = ("arguments", "grid", "search", "points", "seeds", "prune", "deterministic")
"""Fields that must not change when a study is resumed."""


def optuna() -> Any:
    """Return the optuna module. Raises MissingExtraError."""
    return require("optuna", extra="tune", purpose="tune settings")


MAX_BYTES = 2**22
MAX_TRIALS, MAX_THREADS = 10**6, 2**12


class StudyFile(TypedDict):
    """Content of study.json."""

    format: int
    arguments: list[str]
    grid: dict[str, str]
    search: dict[str, str]
    points: list[dict[str, str]]
    trials: int
    seeds: list[int]
    prune: bool
    lag: int
    threads: int
    deterministic: NotRequired[bool]  # missing: True


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's messages about created studies on stderr."""
    logger = logging.getLogger("optuna")
    optuna()  # the import sets the log level
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True)
class Plan:
    """The definition of a study, without its folder."""

    arguments: tuple[str, ...]  # arguments of ``corral train`` of all trials
    space: Space
    trials: int
    seeds: tuple[int, ...]  # each trial is trained with all of them
    lag: int  # if trials depend on results, trial N waits for trials up to N - lag
    threads: int  # torch threads per process, which affect the results
    prune: bool = False
    deterministic: bool = True  # trials are judged by greedy play, else by sampled play

    @property
    def depends(self) -> bool:
        """Whether a trial depends on the results of other trials."""
        return bool(self.space.search) or self.prune

    # --- study.json ------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """Return the content of study.json."""
        return {
            "format": FORMAT,
            "arguments": list(self.arguments),
            **self.space.as_json(),
            "trials": self.trials,
            "seeds": list(self.seeds),
            "prune": self.prune,
            "lag": self.lag,
            "threads": self.threads,
            "deterministic": self.deterministic,
        }

    def write(self, folder: Path) -> None:
        text = json.dumps(self.as_json(), indent=1)
        write_file(folder / STUDY, text + "\n", folder=folder)

    def stored_in(self, folder: Path) -> dict[str, Any] | None:
        """Return ``lag`` and ``threads`` of the same study in ``folder``, or None for no study.

        Raises StudyError if the study is a different one or damaged.
        """
        path = folder / STUDY
        try:
            stored_plan = read_fields(
                path, StudyFile, max_bytes=MAX_BYTES, error=StudyError, folder=folder, format=FORMAT
            )
        except FileNotFoundError:
            return None
        except StudyError as error:
            raise StudyError(
                f"{error}; if the file is not from corral tune, choose another --out (out=)"
            ) from error
        stored_plan = {"deterministic": True, **stored_plan}
        for name, maximum in (("lag", MAX_TRIALS), ("threads", MAX_THREADS)):
            if not 0 < stored_plan[name] <= maximum:
                raise StudyError(f"{path}: {name} = {stored_plan[name]}: give 1 to {maximum}")
        current = self.as_json()
        for name in FIXED:
            if stored_plan[name] != current[name]:
                raise StudyError(
                    f"{path} is from another study, with {_in_words(name, stored_plan[name])}; "
                    f"this study has {_in_words(name, current[name])}: choose another --out (out=)"
                )
        return {name: stored_plan[name] for name in ("lag", "threads")}

    # --- Trials ----------------------------------------------------------------------------------

    def job(self, folder: Path, number: int, parameters: Parameters, seed: int) -> Job:
        """Return the job that trains a trial with one of the seeds."""
        name = f"trial-{number:04}" + (f"-seed{seed}" if len(self.seeds) > 1 else "")
        words = [word for key, value in parameters.items() for word in option(key, value)]
        return Job(folder / name, (*self.arguments, *words, "--seed", str(seed)))

    def distributions(self) -> dict[str, Any]:
        """Return the space as Optuna distributions; tuples are stored as text."""
        optuna_distributions, distributions = optuna().distributions, {}
        for name in self.space.names:
            values = self.space.search.get(name) or self.space.grid.get(name)
            if isinstance(values, Range) and values.whole:
                distribution = optuna_distributions.IntDistribution
                distributions[name] = distribution(
                    int(values.low), int(values.high), log=values.log
                )
            elif isinstance(values, Range):
                distributions[name] = optuna_distributions.FloatDistribution(
                    values.low, values.high, log=values.log
                )
            else:
                distributions[name] = optuna_distributions.CategoricalDistribution(
                    [*self._stored(name)]
                )
        return distributions

    def parameters(self, stored: dict[str, Any]) -> Parameters:
        """Return the parameters of an Optuna trial."""
        return {
            name: value
            if isinstance(self.space.search.get(name), Range)
            else self._stored(name)[value]
            for name, value in stored.items()
        }

    def _stored(self, name: str) -> dict[Any, Any]:
        """Return the values of a setting without a range: value in Optuna -> value."""
        tried = self.space.search.get(name) or self.space.grid.get(name)
        values = [
            *(tried.ends if tried else ()),
            *(p[name] for p in self.space.points if name in p),
        ]
        return {stored(value): value for value in values}

    def proposed(
        self, number: int, past: Sequence[Any], taken: Sequence[Parameters]
    ) -> Parameters | None:
        """Return the parameters of trial ``number``, or None if the space is exhausted.

        ``past``: Optuna trials that the proposal may use; ``taken``: parameters of earlier trials.
        """
        points_in_order = self.space.listed()
        if not self.space.search:
            return points_in_order[number] if number < len(points_in_order) else None
        first_points = len(self.space.points)
        fixed: Parameters = {}
        if number < first_points:
            fixed = points_in_order[number]
        elif len(points_in_order) > first_points:  # the points of the grid take turns
            fixed = points_in_order[
                first_points + (number - first_points) % (len(points_in_order) - first_points)
            ]
        for attempt in range(REDRAWN):
            drawn = self._sampled(number, attempt, past, fixed)
            if drawn not in taken:
                return drawn
            if set(fixed) == set(self.space.names):
                break
        return None

    def _sampled(
        self, number: int, attempt: int, past: Sequence[Any], fixed: Parameters
    ) -> Parameters:
        """Return parameters that Optuna's TPE samples after ``past``, with ``fixed`` kept."""
        key = np.random.SeedSequence([self.seeds[0], number, attempt])
        seed = int(key.generate_state(1)[0])
        study = self.history(past, optuna().samplers.TPESampler(seed=seed))
        if fixed:
            study.enqueue_trial({name: stored(value) for name, value in fixed.items()})
        return self.parameters(study.ask(self.distributions()).params)

    def history(self, past: Sequence[Any], sampler: Any = None) -> Any:
        """Return an Optuna study in memory with the given trials."""
        study = optuna().create_study(direction="maximize", sampler=sampler)
        for trial in past:
            study.add_trial(trial)
        return study


def stored(value: Any) -> Any:
    """Return a value in Optuna's storage format."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def _in_words(name: str, value: Any) -> str:
    if name == "arguments":
        return f"corral train {shlex.join(value)}"
    if isinstance(value, dict):
        return f"{name}={' '.join(f'{key}={text}' for key, text in value.items())}"
    return f"{name}={json.dumps(value)}"
