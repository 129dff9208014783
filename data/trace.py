"""A load trace: how many requests arrive at each node, and how many it can serve, step by step."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from corral.errors import Fault, TraceError, TraceWarning
from corral.extensions import required_extension

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAX_VALUE", "Counts", "Trace", "is_name"]

Counts = npt.NDArray[np.int64]

MAX_VALUE = 2**31
"""The largest number of requests that one cell of a trace may hold."""

SECONDS_PER_DAY = 86_400


def is_name(text: str) -> bool:
    """Tell whether ``text`` can name a node: not empty, printable, no space around it."""
    return bool(text) and text.isprintable() and text == text.strip()


@dataclass(frozen=True, eq=False)
class Trace:
    """Arrivals and capacities of N nodes over T steps, as read-only arrays.

    ``arrivals`` and ``capacity`` are int64 [T, N], in requests per step; ``capacity`` is None
    where the source has none. ``times`` is int64 [T], evenly spaced: plain integers
    (``clock="integer"``) or seconds since 1970-01-01 UTC (``clock="utc"``). Columns stand in the
    order of ``nodes``. Two traces are equal when nodes, clock, times and numbers are.

    Raises TraceError where shapes disagree, a number is negative or above ``MAX_VALUE``, times
    are not evenly spaced, or node names are empty, repeated, unprintable or have space around.
    """

    nodes: tuple[str, ...]
    arrivals: Counts
    capacity: Counts | None
    times: Counts
    clock: Literal["integer", "utc"] = "integer"
    name: str = "trace"
    digest: str = field(init=False)
    """SHA-256 over nodes, clock, times and numbers: names the load of a run beyond doubt."""

    @classmethod
    def from_dataframe(cls, frame: pd.DataFrame, *, name: str = "frame", **options: Any) -> Trace:
        """Return the trace of a DataFrame: a column per node, or a row per node and time.

        Times are its index or a column: timestamps, texts, or seconds since 1970. ``options`` are
        those of ``corral.data.import_table``, such as ``capacity=``, ``arrivals=``, ``zone=``,
        ``scale=`` and ``gaps=``. What was filled, rounded or left out is warned of (TraceWarning),
        and so are a unit that a column's name gave and a zone that nobody named.

        Raises TraceError for what cannot be read or only the caller can decide, ValueError for
        options out of range.
        """
        imported = required_extension("trace.of_frame")(frame, name=name, **options)
        told = [guess.found for guess in imported.guesses if guess.what == "unused"]
        told = [f"not used: {each}" for each in told] + [
            f"{guess.what}: {guess.found} ({guess.accept} says so without this warning, "
            f"{guess.change} something else)"
            for guess in imported.guesses
            if guess.accept
        ]
        for note in [*told, *imported.notes]:
            warnings.warn(note, TraceWarning, stacklevel=2)
        trace: Trace = imported.trace
        return trace

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        for what, dimensions in (("arrivals", 2), ("capacity", 2), ("times", 1)):
            if getattr(self, what) is not None:
                object.__setattr__(self, what, self._frozen(what, dimensions))
        self._check()
        object.__setattr__(self, "digest", self._digest())

    def _frozen(self, what: str, dimensions: int) -> Counts:
        array = np.asarray(getattr(self, what))
        if array.dtype.kind not in "iu":
            raise self._error(f"{what} must be whole numbers, not {array.dtype}")
        if array.ndim != dimensions:
            raise self._error(f"{what} must have {dimensions} dimensions, not {array.ndim}")
        array = array.astype(np.int64)  # a copy: nobody else can change it
        array.flags.writeable = False
        return array

    def _check(self) -> None:
        shape = (len(self.times), len(self.nodes))
        if 0 in shape:
            raise self._error("a trace needs at least one step and one node")
        bad = [name for name in self.nodes if not is_name(name)]
        if bad:
            raise self._error(f"node names must be printable, no space around: {bad[:3]}")
        if len(set(self.nodes)) != len(self.nodes):
            raise self._error(f"node names must differ: {list(self.nodes)}")
        for what, values in (("arrivals", self.arrivals), ("capacity", self.capacity)):
            if values is None:
                continue
            if values.shape != shape:
                raise self._error(f"{what} has shape {values.shape}, times x nodes is {shape}")
            if values.min() < 0 or values.max() > MAX_VALUE:
                raise self._error(f"{what} must lie in 0 .. {MAX_VALUE}")
        gaps = np.diff(self.times)
        if len(gaps) and (gaps[0] <= 0 or (gaps != gaps[0]).any()):
            raise self._error("times must increase by one constant step")

    def _error(self, rule: str) -> TraceError:
        return TraceError([Fault(file=self.name, rule=rule)])

    def _digest(self) -> str:
        sha = hashlib.sha256(repr((self.nodes, self.clock)).encode())
        for values in (self.times, self.arrivals, self.capacity):
            sha.update(b"none" if values is None else values.astype("<i8").tobytes())
        return sha.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __len__(self) -> int:
        """Return the number of steps, T."""
        return len(self.times)

    def __repr__(self) -> str:
        capacity = "no capacity" if self.capacity is None else "capacity"
        return f"<Trace {self.name!r}: {len(self)} steps x {len(self.nodes)} nodes, {capacity}>"

    @property
    def step(self) -> int:
        """The distance between two times (seconds for a UTC clock); 1 for a trace of one step."""
        return int(self.times[1] - self.times[0]) if len(self) > 1 else 1

    @property
    def steps_per_day(self) -> int | None:
        """Steps in 24 hours, or None where the clock has no days or a step does not divide one."""
        divides = self.clock == "utc" and len(self) > 1 and SECONDS_PER_DAY % self.step == 0
        return SECONDS_PER_DAY // self.step if divides else None

    def clock_text(self, row: int) -> str:
        """Return the time of a row for people: "2026-01-05 08:35" (UTC), or the integer itself."""
        time = int(self.times[row])
        if self.clock == "integer":
            return str(time)
        unit = "s" if time % 60 else "m"
        return str(np.datetime64(time, "s").astype(f"datetime64[{unit}]")).replace("T", " ")

    def section(self, low: int, high: int) -> Trace:
        """Return the rows low, low + 1, ... high - 1 as a trace of their own.

        Raises ValueError where there are no such rows.
        """
        if not 0 <= low < high <= len(self):
            raise ValueError(f"rows {low}..{high} do not lie in the trace's 0..{len(self)}")
        capacity = None if self.capacity is None else self.capacity[low:high]
        return replace(
            self, arrivals=self.arrivals[low:high], capacity=capacity, times=self.times[low:high]
        )

    def with_capacity(self, capacity: int | str, rows: tuple[int, int] | None = None) -> Trace:
        """Return the same load with a constant capacity per node.

        ``capacity`` is requests per step, or a text such as ``"1.25x"``: that multiple of each
        node's own mean arrivals over ``rows`` (low, high), by default the whole trace, rounded to
        the nearest integer. Raises ValueError for anything else.
        """
        measured = self if rows is None else self.section(*rows)
        levels = np.broadcast_to(measured._levels(capacity), self.arrivals.shape)
        return replace(self, capacity=levels)

    def _levels(self, capacity: int | str) -> Counts:
        if isinstance(capacity, str):
            try:
                multiple = float(capacity.removesuffix("x"))
            except ValueError:
                multiple = float("nan")
            if not capacity.endswith("x") or not 0 <= multiple < float("inf"):
                raise ValueError(
                    f"capacity {capacity!r}: give a whole number, or a text like '1.25x'"
                )
            levels: Counts = np.rint(multiple * self.arrivals.mean(axis=0)).astype(np.int64)
            return levels
        try:
            whole = float(capacity).is_integer() and not isinstance(capacity, bool)
        except TypeError:
            whole = False
        if not whole or capacity < 0:
            raise ValueError(
                f"capacity {capacity!r}: give a whole number of requests, 0 or more, "
                "or a text like '1.25x'"
            )
        return np.full(len(self.nodes), int(capacity), dtype=np.int64)
