"""Read and check the numbers for a decision: loads of the nodes, reports, the time of day.

Exports contain the source of this module, see ``numpy_folder``. NumPy only.
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
"""Maximum number of requests in one decision of a rule: products of two such numbers fit int64."""

MAX_DRAWN = 100_000
"""The same for a rule that draws two nodes for each request; this number takes 3 s."""

MAX_COUNTS = 1_000
"""Maximum number of past counts of a node in one decision."""


class DecisionError(ValueError):
    """A number for a decision is missing or invalid. ``field`` names it, as in
    "nodes.fra.arrivals"."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class OutOfRangeError(DecisionError):
    """A number is larger than any in the training of the team."""


@dataclass(frozen=True)
class NodeLoads:
    """The current numbers of N nodes: int64 [1, N] each."""

    arrivals: Array  # of this step; 0 if they are unknown
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
        self.any_counts = about["requests"] is None  # a rule ignores them
        limits = limits_of(about)
        self._loads, capacities = limits["arrivals"], limits["capacity"]
        self._now: Fields = (("capacity", capacities), ("queue", limits["queue"]))
        if not self.unknown:
            self._now = (("arrivals", self._loads), *self._now)
        self._ended: Fields = (("spare", capacities), ("lost", self._loads))
        self.own = ("last_arrivals",) if self.unknown or self.counts else ()
        self._fields = {*self.own, *(key for key, _ in self._now)}

    def load(self, values: Any) -> NodeLoads:
        """Return the numbers of ``nodes=``. Raises DecisionError."""
        self._check_nodes("nodes", values)
        numbers = self._read("nodes", values, self._now, self.own)
        counts = self._counts(values) if self.own else np.zeros((0, 1, len(self.nodes)), np.int64)
        if self.unknown:
            return NodeLoads(np.zeros_like(numbers[0]), numbers[0], numbers[1], counts)
        return NodeLoads(numbers[0], numbers[1], numbers[2], counts)

    def reports(self, values: Any) -> Array:
        """Return spare and lost of ``previous=``: int64 [2, 1, N]. Raises DecisionError."""
        self._check_nodes("previous", values)
        return self._read("previous", values, self._ended)

    def _read(
        self,
        argument: str,
        values: Any,
        fields: Fields,
        optional: tuple[str, ...] = (),
    ) -> Array:
        """Return the ``fields`` of all nodes, each with its limit: [fields, 1, N]. A node may also
        have the ``optional`` ones. Raises DecisionError."""
        numbers: list[int] = []
        for key, limit in fields:
            for name in self.nodes:
                node = values[name]
                if not isinstance(node, Mapping):
                    raise DecisionError(
                        f"{argument}.{name}", f"{node!r:.40}: pass a mapping with {key}"
                    )
                try:
                    number = node[key]
                except LookupError:
                    number = self._missing(argument, name, key, node)
                if type(number) is not int or not 0 <= number <= limit:
                    number = _whole(f"{argument}.{name}.{key}", number, limit)
                numbers.append(number)
        allowed = {key for key, _ in fields}.union(optional)
        for name in self.nodes:
            if not values[name].keys() <= allowed:
                self._refuse_keys(
                    argument, name, values[name], [*optional, *(k for k, _ in fields)]
                )
        return np.array(numbers, dtype=np.int64).reshape(len(fields), 1, -1)

    def _counts(self, values: Any) -> Array:
        """Return the counts of past steps that are observed; missing ones are 0: int64
        [K, 1, N]."""
        table = np.zeros((self.counts, 1, len(self.nodes)), dtype=np.int64)
        for i, name in enumerate(self.nodes):
            node, field = values[name], f"nodes.{name}.last_arrivals"
            if "last_arrivals" not in node:
                raise self._missing_field("nodes", name, "last_arrivals", node)
            counts = node["last_arrivals"]
            if not isinstance(counts, Sequence) or isinstance(counts, str | bytes):
                if self.counts > 1 and not self.any_counts:
                    raise DecisionError(
                        field, f"{counts!r:.40}: pass a list of {self.counts} counts, newest first"
                    )
                counts = [counts]
            maximum = MAX_COUNTS if self.any_counts else self.counts
            if len(counts) > maximum:
                raise DecisionError(field, f"{len(counts)} counts: pass {maximum}, newest first")
            for back, count in enumerate(counts):
                place = field if len(counts) == 1 else f"{field}.{back}"
                if type(count) is not int or not 0 <= count <= self._loads:
                    count = _whole(place, count, self._loads)
                if back < self.counts:
                    table[back, 0, i] = count
        return table

    def _check_nodes(self, argument: str, values: Any) -> None:
        if isinstance(values, Mapping) and values.keys() == self._names:
            return
        if not isinstance(values, Mapping):
            raise DecisionError(argument, f"{type(values).__name__}: pass a mapping of node names")
        unknown = [str(name) for name in values if name not in self._names]
        missing = [name for name in self.nodes if name not in values]
        problems = [f"{some(missing)} missing"] if missing else []
        problems += [f"{some(unknown)} unknown"] if unknown else []
        raise DecisionError(argument, f"{'; '.join(problems)}. The nodes are {some(self.nodes)}")

    def _missing(self, argument: str, name: str, key: str, node: Any) -> int:
        """Return the default of a missing number. Raises DecisionError."""
        if key == "queue":
            return 0
        raise self._missing_field(argument, name, key, node)

    def _missing_field(self, argument: str, name: str, key: str, node: Any) -> DecisionError:
        other_key = {"arrivals": "last_arrivals", "last_arrivals": "arrivals"}.get(key)
        if argument == "nodes" and other_key in node and other_key not in self._fields:
            return DecisionError(f"nodes.{name}.{other_key}", wrong_form(self.unknown))
        return DecisionError(f"{argument}.{name}.{key}", "is missing")

    def _refuse_keys(self, argument: str, name: str, node: Any, allowed: Sequence[str]) -> None:
        unknown = [str(key) for key in node if key not in allowed]
        field = f"{argument}.{name}.{unknown[0]}"
        if argument == "nodes" and unknown[0] in ("arrivals", "last_arrivals"):
            raise DecisionError(field, wrong_form(self.unknown))
        raise DecisionError(field, f"is unknown: pass {', '.join(allowed)}")


def wrong_form(unknown: bool) -> str:
    """Return a message about "arrivals" with ``unknown`` arrivals, or "last_arrivals" without."""
    if unknown:
        return (
            "decisions are made before the arrivals of a step are known: pass last_arrivals, the "
            "count of the last step, or a list of counts, newest first"
        )
    return "decisions use the arrivals of the same step: pass arrivals"


def limits_of(about: Mapping[str, Any]) -> dict[str, int]:
    """Return the maximum arrivals, capacity and queue of a ``NodeDecider`` with ``about``."""
    draws = about["route"] == "two-choices" and about.get("arrivals", "known") == "known"
    if about["requests"] is None:
        limits = dict.fromkeys(("arrivals", "capacity", "queue"), MOST)
        if draws:
            limits["arrivals"] = MAX_DRAWN
        return limits
    loads, capacities = int(about["load_scale"]), int(about["capacity_scale"])
    if about["observation"] != "every" or about.get("beyond") is not None:
        loads, capacities = max(loads, MAX_DRAWN) if draws else MOST, MOST
    return {"arrivals": loads, "capacity": capacities, "queue": int(about["queue"])}


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017  # an export runs on Python 3.10
SECONDS_PER_DAY = 86_400


def slot_of(time: Any, steps_per_day: int) -> int:
    """Return the step of the day, from 0 at midnight UTC, of a ``time`` in a format of
    ``seconds_of``. Raises DecisionError."""
    return seconds_of(time) % SECONDS_PER_DAY * steps_per_day // SECONDS_PER_DAY


def seconds_of(time: Any) -> int:
    """Return the seconds since 1970 of an ISO-8601 text or a datetime, UTC without a zone. Raises
    DecisionError."""
    moment = time
    try:
        if isinstance(time, str):  # Python 3.10 cannot parse Z
            moment = datetime.fromisoformat(f"{time[:-1]}+00:00" if time[-1:] in "Zz" else time)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=EPOCH.tzinfo)
        return int((moment - EPOCH) // timedelta(seconds=1))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise DecisionError(
            "time", f"{time!r:.60}: pass ISO-8601, such as 2026-03-01T12:05:00Z"
        ) from None


def _whole(field: str, number: Any, limit: int) -> int:
    """Return ``number`` as an int in 0 .. limit. Raises DecisionError, OutOfRangeError."""
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not whole and isinstance(number, float | np.floating):
        whole = float(number).is_integer()
    if not whole or number < 0:
        raise DecisionError(field, f"{number!r:.40}: pass a whole number from 0 to {limit:,}")
    if number > limit:
        remedy = "" if limit == MOST else " in training; a rule accepts more: by_rule"
        remedy = " for two-choices" if limit == MAX_DRAWN else remedy
        raise OutOfRangeError(field, f"{int(number):,} is above {limit:,}, the maximum{remedy}")
    return int(number)


def some(names: Any) -> str:
    """Return the first few names, and the number of further ones."""
    shown = ", ".join(map(str, names[:8]))
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
