"""The requests of a window: drawn within the steps of a trace, or those of a request log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from corral.data.request_log import RequestWindow
from corral.envs.core import Array
from corral.loads.rehearsal.setting import Work

__all__ = ["CHUNK", "Chunk", "DrawnRequests", "LoggedRequests", "Requests", "chunks_of"]

CHUNK = 100_000
"""Requests that are played at once, if a single step does not have more."""

TIMES, WORKS, DECISIONS = 100, 101, 102
"""Uses of random numbers, with separate streams for each window."""


def stream(seed: int, use: int, window: int) -> np.random.Generator:
    """Return the generator of a window for one of the uses above."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(use, window)))


@dataclass(frozen=True)
class Chunk:
    """The R requests of consecutive steps of a window, in time order."""

    first: int  # step of the window
    last: int  # the step after the last one
    until: Array  # int64 [last - first] number of requests up to the end of each step
    node: Array  # int64 [R]
    time: Array  # float64 [R] in steps since the start of the window
    work: Array  # float64 [R]


class Requests(Protocol):
    """Provides the requests of a window, for any division into chunks."""

    def take(self, first: int, last: int) -> Chunk:
        """Return the requests of the steps ``first`` .. ``last - 1``. Steps are taken in order."""
        ...


class DrawnRequests:
    """Requests at uniform times in their step, so that the counts are those of a trace.

    ``arrivals`` is int64 [T, N]. Times, nodes and work do not depend on the division into chunks.
    """

    def __init__(self, arrivals: Array, work: Work, seed: int, window: int) -> None:
        self.arrivals, self.work = arrivals, work
        self._times = stream(seed, TIMES, window)
        self._works = stream(seed, WORKS, window)

    def take(self, first: int, last: int) -> Chunk:
        arrivals = self.arrivals[first:last]
        per_step = arrivals.sum(axis=1)
        until = per_step.cumsum()
        total = int(until[-1])
        node = np.repeat(np.tile(np.arange(arrivals.shape[1]), len(arrivals)), arrivals.ravel())
        step = np.repeat(np.arange(first, last), per_step)
        time = step + self._times.random(total)
        order = np.argsort(time, kind="stable")
        work = np.ones(total)
        if self.work == "exponential":
            work = self._works.standard_exponential(total)
        # A sum may round up to the next step.
        time = np.minimum(time[order], np.nextafter(step + 1.0, 0.0))
        return Chunk(first, last, until, node[order], time, work)


def chunks_of(requests: Requests, arrivals: Array, single: bool) -> Iterator[Chunk]:
    """Yield all requests of a window: step by step if ``single``, else in chunks of ``CHUNK``."""
    steps, first = len(arrivals), 0
    total = arrivals.sum(axis=1).cumsum()
    while first < steps:
        last = first + 1
        if not single:
            before = int(total[first - 1]) if first else 0
            last = max(last, int(np.searchsorted(total, before + CHUNK, side="right")))
        yield requests.take(first, last)
        first = last


class LoggedRequests:
    """Requests of a log, at their recorded times.

    ``requests`` are those of the rows from ``first_row`` on. Without sizes in the log, their work
    is drawn as in ``DrawnRequests``. Sizes are divided by ``mean_work``.
    """

    def __init__(
        self,
        requests: RequestWindow,
        first_row: int,
        mean_work: float,
        work: Work,
        rng: np.random.Generator,
    ) -> None:
        self.step, self.node = requests.step - first_row, requests.node
        # A sum may round up to the next step.
        self.time = np.minimum(self.step + requests.offset, np.nextafter(self.step + 1.0, 0.0))
        if requests.work is not None:
            self.work = requests.work / mean_work
        elif work == "exponential":
            self.work = rng.standard_exponential(len(self.step))
        else:
            self.work = np.ones(len(self.step))

    def take(self, first: int, last: int) -> Chunk:
        bounds = np.searchsorted(self.step, np.arange(first, last + 1))
        rows = slice(int(bounds[0]), int(bounds[-1]))
        until = bounds[1:] - bounds[0]
        return Chunk(first, last, until, self.node[rows], self.time[rows], self.work[rows])
