"""A study's plan: what is trained, what is tried, and which parameters trial N has.

They depend on the plan, on N, and on the results of trials up to N - ``lag``: not on when a trial
ended, nor on whether the study was killed. So a study that goes on tries what it would have tried.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

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
"""Draws of parameters that none has had yet; after them the space counts as exhausted."""

SAME = ("arguments", "grid", "search", "points", "seeds", "prune")
"""What a study that goes on has as before."""


def optuna() -> Any:
    """Return the module of Optuna. Raises MissingExtraError."""
    return require("optuna", extra="tune", purpose="tune settings")


MOST_BYTES = 2**22
MOST_TRIALS, MOST_THREADS = 10**6, 2**12


class Kept(TypedDict):
    """What study.json holds."""

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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from saying on stderr that a study was created."""
    logger = logging.getLogger("optuna")
    optuna()  # which sets its level when it is imported
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


@dataclass(frozen=True)
class Plan:
    """What defines a study, but for where it is."""

    arguments: tuple[str, ...]  # words of ``corral train`` that all trials have
    space: Space
    trials: int
    seeds: tuple[int, ...]  # each trial is trained with all of them
    lag: int  # trial N waits for the results of those up to N - lag, where it depends on results
    threads: int  # of torch in each process: figures depend on them
    prune: bool = False

    @property
    def depends(self) -> bool:
        """Whether a trial depends on the results of others."""
        return bool(self.space.search) or self.prune

    # --- study.json ------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """Return what study.json holds."""
        return {
            "format": FORMAT,
            "arguments": list(self.arguments),
            **self.space.as_json(),
            "trials": self.trials,
            "seeds": list(self.seeds),
            "prune": self.prune,
            "lag": self.lag,
            "threads": self.threads,
        }

    def write(self, folder: Path) -> None:
        text = json.dumps(self.as_json(), indent=1)
        write_file(folder / STUDY, text + "\n", folder=folder)

    def kept_in(self, folder: Path) -> dict[str, Any] | None:
        """Return ``lag`` and ``threads`` of the same study in ``folder``; None: there is none.

        Raises StudyError where it is another study, or damaged.
        """
        path = folder / STUDY
        try:
            kept = read_fields(
                path, Kept, most=MOST_BYTES, error=StudyError, folder=folder, format=FORMAT
            )
        except FileNotFoundError:
            return None
        except StudyError as error:
            raise StudyError(
                f"{error}; if it is of no study of corral tune, give another --out (out=)"
            ) from error
        for name, most in (("lag", MOST_TRIALS), ("threads", MOST_THREADS)):
            if not 0 < kept[name] <= most:
                raise StudyError(f"{path}: {name} = {kept[name]}: give 1 to {most}")
        now = self.as_json()
        for name in SAME:
            if kept[name] != now[name]:
                raise StudyError(
                    f"{path} is of another study, with {_in_words(name, kept[name])}; this is "
                    f"with {_in_words(name, now[name])}: give another --out (out=)"
                )
        return {name: kept[name] for name in ("lag", "threads")}

    # --- Trials ----------------------------------------------------------------------------------

    def job(self, folder: Path, number: int, parameters: Parameters, seed: int) -> Job:
        """Return the training of a trial with one of the seeds."""
        name = f"trial-{number:04}" + (f"-seed{seed}" if len(self.seeds) > 1 else "")
        words = [word for key, value in parameters.items() for word in option(key, value)]
        return Job(folder / name, (*self.arguments, *words, "--seed", str(seed)))

    def distributions(self) -> dict[str, Any]:
        """Return the space as Optuna has it; a tuple is kept as text."""
        kinds, found = optuna().distributions, {}
        for name in self.space.names:
            each = self.space.search.get(name) or self.space.grid.get(name)
            if isinstance(each, Range) and each.whole:
                kind = kinds.IntDistribution
                found[name] = kind(int(each.low), int(each.high), log=each.log)
            elif isinstance(each, Range):
                found[name] = kinds.FloatDistribution(each.low, each.high, log=each.log)
            else:
                found[name] = kinds.CategoricalDistribution([*self._stored(name)])
        return found

    def parameters(self, stored: dict[str, Any]) -> Parameters:
        """Return the parameters of a trial of Optuna."""
        return {
            name: value
            if isinstance(self.space.search.get(name), Range)
            else self._stored(name)[value]
            for name, value in stored.items()
        }

    def _stored(self, name: str) -> dict[Any, Any]:
        """Return the values of a setting that is no range, by how Optuna stores them."""
        each = self.space.search.get(name) or self.space.grid.get(name)
        values = [*(each.ends if each else ()), *(p[name] for p in self.space.points if name in p)]
        return {stored(value): value for value in values}

    def proposed(
        self, number: int, past: Sequence[Any], taken: Sequence[Parameters]
    ) -> Parameters | None:
        """Return the parameters of trial ``number``; None where there is no more to try.

        ``past``: the trials of Optuna that it may know; ``taken``: parameters of all before it.
        """
        listed = self.space.listed()
        if not self.space.search:
            return listed[number] if number < len(listed) else None
        points = len(self.space.points)
        fixed: Parameters = {}
        if number < points:
            fixed = listed[number]
        elif len(listed) > points:  # each point of the grid in its turn
            fixed = listed[points + (number - points) % (len(listed) - points)]
        for attempt in range(REDRAWN):
            drawn = self._drawn(number, attempt, past, fixed)
            if drawn not in taken:
                return drawn
            if set(fixed) == set(self.space.names):
                break
        return None

    def _drawn(
        self, number: int, attempt: int, past: Sequence[Any], fixed: Parameters
    ) -> Parameters:
        """Return parameters that Optuna's TPE draws after ``past``, beside those ``fixed``."""
        key = np.random.SeedSequence([self.seeds[0], number, attempt])
        seed = int(key.generate_state(1)[0])
        known = self.history(past, optuna().samplers.TPESampler(seed=seed))
        if fixed:
            known.enqueue_trial({name: stored(value) for name, value in fixed.items()})
        return self.parameters(known.ask(self.distributions()).params)

    def history(self, past: Sequence[Any], sampler: Any = None) -> Any:
        """Return a study of Optuna in memory, with some trials."""
        study = optuna().create_study(direction="maximize", sampler=sampler)
        for trial in past:
            study.add_trial(trial)
        return study


def stored(value: Any) -> Any:
    """Return a value as Optuna stores it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def _in_words(name: str, value: Any) -> str:
    if name == "arguments":
        return f"corral train {shlex.join(value)}"
    if isinstance(value, dict):
        return f"{name}={' '.join(f'{key}={text}' for key, text in value.items())}"
    return f"{name}={json.dumps(value)}"
