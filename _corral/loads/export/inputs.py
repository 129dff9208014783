"""The numbers that a decision is made of, checked: loads of the nodes, reports, the time of day.

An export holds the source of this module, see ``numpy_folder``. NumPy alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np

from corral.envs.core import Array

__all__ = [
    "MOST",
    "DecisionError",
    "Inputs",
    "NodeLoads",
    "OutOfRangeError",
    "limits_of",
    "seconds_of",
    "slot_of",
    "some",
]

MOST = 2**31
"""Requests that a rule takes at once: products of two such numbers fit int64."""

MOST_DRAWN = 100_000
"""The same of a rule that draws two nodes for each request, which takes 3 s."""

MOST_COUNTS = 1_000
"""Past counts of a node that one decision takes."""


class DecisionError(ValueError):
    """A number that is given for a decision is missing, or is none. ``field`` says which, as in
    "nodes.fra.arrivals"."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class OutOfRangeError(DecisionError):
    """A number is larger than any that the team was trained on."""


@dataclass(frozen=True)
class NodeLoads:
    """The present numbers of N nodes: int64 [1, N] each."""

    arrivals: Array  # of this step; 0 where they are unknown
    capacity: Array
    queue: Array
    counts: Array  # [K, 1, N] arrivals in the K steps before this one, newest first


Fields = tuple[tuple[str, int], ...]
"""Names of numbers, each with its limit."""


class Inputs:
    """Reads the numbers of all ``nodes`` for a decider with ``about``, see ``about_rules``."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.nodes = tuple(about["nodes"])
        self._names = frozenset(self.nodes)
        self.unknown = about.get("arrivals", "known") == "unknown"
        self.counts = int(about.get("last_counts", 0))
        self.any_counts = about["requests"] is None  # a rule does not use them
        limits = limits_of(about)
        self._loads, capacities = limits["arrivals"], limits["capacity"]
        self._now: Fields = (("capacity", capacities), ("queue", limits["queue"]))
        if not self.unknown:
            self._now = (("arrivals", self._loads), *self._now)
        self._ended: Fields = (("spare", capacities), ("lost", self._loads))
        self.own = ("last_arrivals",) if self.unknown or self.counts else ()
        self._fields = {*self.own, *(key for key, _ in self._now)}

    def load(self, given: Any) -> NodeLoads:
        """Return the numbers of ``nodes=``. Raises DecisionError."""
        self._check_nodes("nodes", given)
        numbers = self._read("nodes", given, self._now, self.own)
        counts = self._counts(given) if self.own else np.zeros((0, 1, len(self.nodes)), np.int64)
        if self.unknown:
            return NodeLoads(np.zeros_like(numbers[0]), numbers[0], numbers[1], counts)
        return NodeLoads(numbers[0], numbers[1], numbers[2], counts)

    def reports(self, given: Any) -> Array:
        """Return spare and lost of ``previous=``: int64 [2, 1, N]. Raises DecisionError."""
        self._check_nodes("previous", given)
        return self._read("previous", given, self._ended)

    def _read(
        self,
        where: str,
        given: Any,
        fields: Fields,
        others: tuple[str, ...] = (),
    ) -> Array:
        """Return the numbers of the ``fields``, each with its limit, of all nodes: [fields, 1, N].
        A node may have the ``others`` too. Raises DecisionError."""
        numbers: list[int] = []
        for key, limit in fields:
            for name in self.nodes:
                node = given[name]
                if not isinstance(node, Mapping):
                    raise DecisionError(
                        f"{where}.{name}", f"{node!r:.40}: give a mapping with {key}"
                    )
                try:
                    number = node[key]
                except LookupError:
                    number = self._missing(where, name, key, node)
                if type(number) is not int or not 0 <= number <= limit:
                    number = _whole(f"{where}.{name}.{key}", number, limit)
                numbers.append(number)
        known = {key for key, _ in fields}.union(others)
        for name in self.nodes:
            if not given[name].keys() <= known:
                self._refuse_keys(where, name, given[name], [*others, *(k for k, _ in fields)])
        return np.array(numbers, dtype=np.int64).reshape(len(fields), 1, -1)

    def _counts(self, given: Any) -> Array:
        """Return the counts of past steps that are observed, 0 for those that are missing: int64
        [K, 1, N]."""
        found = np.zeros((self.counts, 1, len(self.nodes)), dtype=np.int64)
        for i, name in enumerate(self.nodes):
            node, field = given[name], f"nodes.{name}.last_arrivals"
            if "last_arrivals" not in node:
                raise self._missing_field("nodes", name, "last_arrivals", node)
            counts = node["last_arrivals"]
            if not isinstance(counts, Sequence) or isinstance(counts, str | bytes):
                if self.counts > 1 and not self.any_counts:
                    raise DecisionError(
                        field, f"{counts!r:.40}: give a list of {self.counts} counts, newest first"
                    )
                counts = [counts]
            most = MOST_COUNTS if self.any_counts else self.counts
            if len(counts) > most:
                raise DecisionError(field, f"{len(counts)} counts: give {most}, newest first")
            for back, count in enumerate(counts):
                place = field if len(counts) == 1 else f"{field}.{back}"
                if type(count) is not int or not 0 <= count <= self._loads:
                    count = _whole(place, count, self._loads)
                if back < self.counts:
                    found[back, 0, i] = count
        return found

    def _check_nodes(self, where: str, given: Any) -> None:
        if isinstance(given, Mapping) and given.keys() == self._names:
            return
        if not isinstance(given, Mapping):
            raise DecisionError(where, f"{type(given).__name__}: give a mapping of names of nodes")
        unknown = [str(name) for name in given if name not in self._names]
        missing = [name for name in self.nodes if name not in given]
        problems = [f"{some(missing)} missing"] if missing else []
        problems += [f"{some(unknown)} unknown"] if unknown else []
        raise DecisionError(where, f"{'; '.join(problems)}. The nodes are {some(self.nodes)}")

    def _missing(self, where: str, name: str, key: str, node: Any) -> int:
        """Return the default of a number that is missing. Raises DecisionError."""
        if key == "queue":
            return 0
        raise self._missing_field(where, name, key, node)

    def _missing_field(self, where: str, name: str, key: str, node: Any) -> DecisionError:
        other = {"arrivals": "last_arrivals", "last_arrivals": "arrivals"}.get(key)
        if where == "nodes" and other in node and other not in self._fields:
            return DecisionError(f"nodes.{name}.{other}", wrong_form(self.unknown))
        return DecisionError(f"{where}.{name}.{key}", "is missing")

    def _refuse_keys(self, where: str, name: str, node: Any, known: Sequence[str]) -> None:
        unknown = [str(key) for key in node if key not in known]
        field = f"{where}.{name}.{unknown[0]}"
        if where == "nodes" and unknown[0] in ("arrivals", "last_arrivals"):
            raise DecisionError(field, wrong_form(self.unknown))
        raise DecisionError(field, f"is unknown: give {', '.join(known)}")


def wrong_form(unknown: bool) -> str:
    """Return what to give in the place of "arrivals" (``unknown``), or of "last_arrivals"."""
    if unknown:
        return (
            "decisions are made before the arrivals of a step are known: give last_arrivals, the "
            "count of the last step, or a list of counts, newest first"
        )
    return "decisions are made by the arrivals of the step itself: give arrivals"


def limits_of(about: Mapping[str, Any]) -> dict[str, int]:
    """Return the largest arrivals, capacity and queue that ``NodeDecider`` takes with ``about``."""
    if about["requests"] is None:
        limits = dict.fromkeys(("arrivals", "capacity", "queue"), MOST)
        if about["route"] == "two-choices" and about.get("arrivals", "known") == "known":
            limits["arrivals"] = MOST_DRAWN
        return limits
    loads, capacities = int(about["load_scale"]), int(about["capacity_scale"])
    if about["observation"] != "every":
        loads = capacities = MOST
    return {"arrivals": loads, "capacity": capacities, "queue": int(about["queue"])}


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017  # an export runs on Python 3.10
SECONDS_PER_DAY = 86_400


def slot_of(time: Any, steps_per_day: int) -> int:
    """Return the step of the day, from 0 at midnight UTC, of a ``time`` as ``seconds_of`` takes it.
    Raises DecisionError."""
    return seconds_of(time) % SECONDS_PER_DAY * steps_per_day // SECONDS_PER_DAY


def seconds_of(time: Any) -> int:
    """Return the seconds since 1970 of an ISO-8601 text or a datetime, UTC without a zone. Raises
    DecisionError."""
    found = time
    try:
        if isinstance(time, str):  # Python 3.10 reads no Z
            found = datetime.fromisoformat(f"{time[:-1]}+00:00" if time[-1:] in "Zz" else time)
        if found.tzinfo is None:
            found = found.replace(tzinfo=EPOCH.tzinfo)
        return int((found - EPOCH) // timedelta(seconds=1))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise DecisionError(
            "time", f"{time!r:.60}: give ISO-8601, such as 2026-03-01T12:05:00Z"
        ) from None


def _whole(field: str, number: Any, limit: int) -> int:
    """Return ``number`` as an int of 0 .. limit. Raises DecisionError, OutOfRangeError."""
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not whole and isinstance(number, float | np.floating):
        whole = float(number).is_integer()
    if not whole or number < 0:
        raise DecisionError(field, f"{number!r:.40}: give a whole number from 0 to {limit:,}")
    if number > limit:
        remedy = "" if limit == MOST else " that was trained on; a rule takes more: by_rule"
        remedy = " that two-choices draws for" if limit == MOST_DRAWN else remedy
        raise OutOfRangeError(field, f"{int(number):,} is above {limit:,}, the largest{remedy}")
    return int(number)


def some(names: Any) -> str:
    """Return the first few names, and how many there are more."""
    shown = ", ".join(map(str, names[:8]))
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
