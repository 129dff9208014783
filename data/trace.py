"""A load trace: the arriving requests and the capacity of each node, step by step."""

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
    """Return True if ``text`` can name a node: not empty, printable, no space around it."""
    return bool(text) and text.isprintable() and text == text.strip()


@dataclass(frozen=True, eq=False)
class Trace:
    """Arrivals and capacities of N nodes over T steps, as read-only arrays.

    ``arrivals`` and ``capacity`` are int64 [T, N], in requests per step. ``capacity`` is None if
    the source has no capacities. ``times`` is int64 [T], evenly spaced: plain integers
    (``clock="integer"``) or seconds since 1970-01-01 UTC (``clock="utc"``). Columns are in the
    order of ``nodes``. Two traces are equal if nodes, clock, times and numbers are equal.

    Raises TraceError if shapes disagree, a number is negative or above ``MAX_VALUE``, or times are
    not evenly spaced. Node names must not be empty, repeated, unprintable or surrounded by space.
    """

    nodes: tuple[str, ...]
    arrivals: Counts
    capacity: Counts | None
    times: Counts
    clock: Literal["integer", "utc"] = "integer"
    name: str = "trace"
    digest: str = field(init=False)
    """SHA-256 over nodes, clock, times and numbers. It identifies the load of a run."""

    def _repr_html_(self) -> str:
        from corral.notebook import as_html  # late: only for notebooks

        end = len(self) - 1
        times = f"{self.clock_text(0)} to {self.clock_text(end)}, a step is {self.step}"
        facts = {"steps": len(self), "time": times + " s" * (self.clock == "utc")}
        means = [None] * len(self.nodes)
        if self.capacity is not None:
            means = self.capacity.mean(axis=0).tolist()
        rows = zip(
            self.nodes,
            self.arrivals.mean(axis=0).tolist(),
            self.arrivals.max(axis=0).tolist(),
            means,
            strict=True,
        )
        columns = ["node", "mean load", "peak load", "mean capacity"]
        return as_html(f"Trace {self.name}", facts, columns, rows)

    @classmethod
    def from_dataframe(cls, frame: pd.DataFrame, *, name: str = "frame", **options: Any) -> Trace:
        """Return the trace of a DataFrame: a column per node, or a row per node and time.

        Times are its index or a column: timestamps, texts, or seconds since 1970. ``options`` are
        options of ``corral.data.import_table``, such as ``capacity=``, ``arrivals=``, ``zone=``,
        ``scale=`` and ``gaps=``. Warns (TraceWarning) about filled, rounded and unused data, about
        a unit taken from a column name, and about an assumed time zone.

        Raises TraceError for an invalid or ambiguous DataFrame, ValueError for options out of
        range.
        """
        imported = required_extension("trace.of_frame")(frame, name=name, **options)
        messages = [guess.found for guess in imported.guesses if guess.what == "unused"]
        messages = [f"not used: {text}" for text in messages] + [
            f"{guess.what}: {guess.found} (pass {guess.accept} to confirm this without a warning, "
            f"or {guess.change} to change it)"
            for guess in imported.guesses
            if guess.accept
        ]
        for note in [*messages, *imported.notes]:
            warnings.warn(note, TraceWarning, stacklevel=2)
        trace: Trace = imported.trace
        return trace

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        for name, dimensions in (("arrivals", 2), ("capacity", 2), ("times", 1)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._frozen(name, dimensions))
        self._check()
        object.__setattr__(self, "digest", self._digest())

    def _frozen(self, name: str, dimensions: int) -> Counts:
        array = np.asarray(getattr(self, name))
        if array.dtype.kind not in "iu":
            raise self._error(f"{name} must be whole numbers, not {array.dtype}")
        if array.ndim != dimensions:
            raise self._error(f"{name} must have {dimensions} dimensions, not {array.ndim}")
        array = array.astype(np.int64)  # a copy that no caller can change
        array.flags.writeable = False
        return array

    def _check(self) -> None:
        shape = (len(self.times), len(self.nodes))
        if 0 in shape:
            raise self._error("a trace needs at least one step and one node")
        bad = [name for name in self.nodes if not is_name(name)]
        if bad:
            raise self._error(f"node names must be printable, without space around: {bad[:3]}")
        if len(set(self.nodes)) != len(self.nodes):
            raise self._error(f"node names must differ: {list(self.nodes)}")
        for name, values in (("arrivals", self.arrivals), ("capacity", self.capacity)):
            if values is None:
                continue
            if values.shape != shape:
                raise self._error(f"{name} has shape {values.shape}, but times x nodes is {shape}")
            if values.min() < 0 or values.max() > MAX_VALUE:
                raise self._error(f"{name} must be in 0 .. {MAX_VALUE}")
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
        """Steps per 24 hours; None if the clock has no days, or the step does not divide a day."""
        divides = self.clock == "utc" and len(self) > 1 and SECONDS_PER_DAY % self.step == 0
        return SECONDS_PER_DAY // self.step if divides else None

    def clock_text(self, row: int) -> str:
        """Return the time of a row as text: "2026-01-05 08:35" (UTC), or an integer."""
        time = int(self.times[row])
        if self.clock == "integer":
            return str(time)
        unit = "s" if time % 60 else "m"
        return str(np.datetime64(time, "s").astype(f"datetime64[{unit}]")).replace("T", " ")

    def section(self, low: int, high: int) -> Trace:
        """Return the rows low, low + 1, ... high - 1 as a new trace.

        Raises ValueError if the trace does not have these rows.
        """
        if not 0 <= low < high <= len(self):
            raise ValueError(
                f"rows {low}..{high} must be within 0..{len(self)}, the rows of the trace"
            )
        capacity = None if self.capacity is None else self.capacity[low:high]
        return replace(
            self, arrivals=self.arrivals[low:high], capacity=capacity, times=self.times[low:high]
        )

    def with_capacity(self, capacity: int | str, rows: tuple[int, int] | None = None) -> Trace:
        """Return the same load with a constant capacity per node.

        ``capacity`` is a number of requests per step, or a text such as ``"1.25x"`` for a multiple
        of each node's mean arrivals, rounded to the nearest integer. The mean is over ``rows``
        (low, high), by default the whole trace. Raises ValueError for any other value.
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
                per_node = (
                    ". To set one value per node, import the loads again: corral trace import FILE "
                    f"--capacity {capacity} --out loads.csv"
                )
                raise ValueError(
                    f"capacity {capacity!r}: give a whole number of requests per step, or a text "
                    f"such as '1.25x'{per_node * ('=' in capacity)}"
                )
            levels: Counts = np.rint(multiple * self.arrivals.mean(axis=0)).astype(np.int64)
            return levels
        try:
            whole = float(capacity).is_integer() and not isinstance(capacity, bool)
        except TypeError:
            whole = False
        if not whole or capacity < 0:
            raise ValueError(
                f"capacity {capacity!r} must be a whole number of requests, 0 or more, "
                "or a text such as '1.25x'"
            )
        return np.full(len(self.nodes), int(capacity), dtype=np.int64)


def about_capacity(trace: Trace) -> list[str]:
    """Return a sentence if the load exceeds the total capacity in more than half of the steps."""
    if trace.capacity is None:
        return []
    over = int((trace.arrivals.sum(axis=1) > trace.capacity.sum(axis=1)).sum())
    if 2 * over <= len(trace):
        return []
    per = f"step of {trace.step} s" if trace.clock == "utc" else "step"
    return [
        f"The load exceeds the total capacity in {over:,} of {len(trace):,} steps. Check the unit: "
        f"capacity is per {per}."
    ]
