"""Plain rules of dfaas_v0: counters and shares that fit into one line of a configuration.

A rule is written amount/route: "backlog=0.75/least". Let c be the capacity of the step, q the
queued requests and Q the queue limit:

| amount | requests that stay before any is forwarded |
|---|---|
| local | all |
| overflow | c |
| threshold | 80 % of c, rounded down |
| margin | c; forwards at most the sum of the spare that its neighbors reported |
| patient | c + Q - q: the requests that it can serve and hold |
| patient-margin | as patient, with the limit of margin |
| static | forwards 40 % of the arrivals, rounded down; rounded up if they are unknown |
| random | forwards a uniformly random number; a random share if arrivals are unknown |
| backlog=x | max(0, floor(c + x Q) - q) |
| capacity=w | floor(w c) |
| share=s | forwards ceil(s a) of a arrivals |

The last three forward at most as many requests as the links carry. Each accepts "+margin=y": then
it forwards to a neighbor at most floor(y times its reported spare). A comma may replace the plus,
unless rules are in a list.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.plans import KEEP_ALL, Plans
from corral.envs.dfaas_v0.routes import (
    UNBOUNDED,
    Route,
    canonical_route,
    shown_route,
)
from corral.errors import ArgumentError, UnknownNameError

__all__ = ["AMOUNTS", "TUNED", "PlainRule", "Seen", "plans_of"]

AMOUNTS = (
    "local",
    "random",
    "static",
    "overflow",
    "threshold",
    "margin",
    "patient",
    "patient-margin",
)
TUNED = ("backlog", "capacity", "share")
"""Amounts that need a number, such as "backlog=0.75"."""

STATIC = 0.4
"""Share of the arrivals that "static" forwards."""

ROUNDING = 1e-9
"""Tolerance for products that are whole numbers except for rounding errors."""


@dataclass(frozen=True)
class Seen:
    """Inputs of rules in a step of B environments with N nodes; int64 [B, N] each."""

    capacity: Array
    queue: Array
    spare: Array  # as reported
    links: Array  # bool [N, N]
    queue_limit: int
    link_limit: int | None
    arrivals: Array | None = None  # None: unknown

    def rows(self, part: slice) -> Seen:
        """Return the inputs for a slice of the environments."""
        arrivals = None if self.arrivals is None else self.arrivals[part]
        return dataclasses.replace(
            self,
            capacity=self.capacity[part],
            queue=self.queue[part],
            spare=self.spare[part],
            arrivals=arrivals,
        )


@dataclass(frozen=True)
class PlainRule:
    """A rule with an amount of the table of this module."""

    amount: str  # without its numbers: "overflow", "backlog", ...
    route: Route = "equal"
    number: float | None = None  # of a tuned amount
    margin: float | None = None  # of a tuned amount; None: no limit per neighbor

    @classmethod
    def of(cls, text: str) -> PlainRule:
        """Return the rule for ``text``. Without a route, it is "equal".

        Raises UnknownNameError, ArgumentError.
        """
        written, _, route = text.strip().partition("/")
        rule_route = canonical_route(route or "equal")
        first, *more = written.replace(",", "+").split("+")
        name, _, number = first.partition("=")
        if name in AMOUNTS and not number and not more:
            return cls(name, rule_route)
        if name not in TUNED:
            known = [*AMOUNTS, *(f"{amount}=NUMBER" for amount in TUNED)]
            raise UnknownNameError.of("reference policy", written, known)
        limit = 1.0 if name == "share" else math.inf
        margin = None
        for part in more:
            key, _, value = part.partition("=")
            if key != "margin" or margin is not None:
                raise ArgumentError(f"{text}: {part!r} is not valid; give one margin=NUMBER")
            margin = _number(text, key, value, math.inf)
        return cls(name, rule_route, _number(text, name, number, limit), margin)

    def keep(
        self, capacity: Array, queue: Array, queue_limit: int, number: Any = None
    ) -> Array | None:
        """Return the number of arrivals that stay before any is forwarded, int64 like ``queue``.

        Returns None for an amount that depends on the arrivals. ``number`` replaces the number of
        the rule.
        """
        number = self.number if number is None else number
        if self.amount == "local":
            return np.full_like(queue, KEEP_ALL)
        if self.amount in ("overflow", "margin"):
            return capacity
        if self.amount == "threshold":
            return np.asarray(capacity * 4 // 5)
        if self.amount.startswith("patient"):
            return np.asarray(np.maximum(capacity + queue_limit - queue, 0))
        if self.amount == "backlog":
            kept = _floor(capacity + number * queue_limit) - queue
            return np.asarray(np.maximum(kept, 0))
        if self.amount == "capacity":
            return _floor(number * capacity)
        return None

    def places(self, queue_limit: int) -> int:
        """Return the number of queue places that a backlog uses."""
        return math.floor((self.number or 0.0) * queue_limit + ROUNDING)

    @property
    def within_links(self) -> bool:
        """Whether it forwards at most as many requests as the links carry."""
        return self.amount in TUNED

    @property
    def amount_text(self) -> str:
        """The amount as text, with its numbers."""
        if self.number is None:
            return self.amount
        more = "" if self.margin is None else f"+margin={_digits(self.margin)}"
        return f"{self.amount}={_digits(self.number)}{more}"

    def __str__(self) -> str:
        return f"{self.amount_text}/{shown_route(self.route)}"


def _digits(number: float) -> str:
    """Return the shortest text from which the number can be read again."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def _number(rule: str, name: str, text: str, maximum: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value <= maximum and math.isfinite(value)):
        bound = "0 or more" if maximum == math.inf else f"from 0 to {maximum:g}"
        raise ArgumentError(f"{rule}: {name}={text!r}: give a number {bound}")
    return value


def plans_of(
    rules: Sequence[PlainRule], seen: Seen, rngs: Sequence[np.random.Generator] = ()
) -> Plans:
    """Return the plans of rules with one route, each for a block of environments.

    Args:
        rules: R rules; environment b follows rule b * R // B.
        rngs: one generator for each node, only for "random".
    """
    (route,) = {rule.route for rule in rules}
    b = len(seen.queue)
    assert b % len(rules) == 0, f"{b} environments for {len(rules)} rules"
    size = b // len(rules)
    parts, row = [], 0
    for _, group in itertools.groupby(rules, lambda rule: (rule.amount, rule.margin is None)):
        same_kind = [*group]
        rows = slice(row, row + size * len(same_kind))
        parts.append(_plan(same_kind, seen.rows(rows), rngs))
        row = rows.stop
    if len(parts) == 1:
        return parts[0]
    return Plans(
        route,
        np.concatenate([part.keep for part in parts]),
        _joined([part.share for part in parts], parts, np.nan),
        _joined([part.most for part in parts], parts, UNBOUNDED),
        _joined_caps(parts, len(seen.links)),
    )


def _joined(values: Sequence[Array | None], parts: Sequence[Plans], default: float) -> Any:
    """Return ``values`` as one array; None if all are missing.

    Single missing arrays are filled with ``default``.
    """
    if all(array is None for array in values):
        return None
    return np.concatenate(
        [
            np.full(part.keep.shape, default) if array is None else array
            for array, part in zip(values, parts, strict=True)
        ]
    )


def _joined_caps(parts: Sequence[Plans], n: int) -> Any:
    if not any(isinstance(part.caps, np.ndarray) for part in parts):
        bounds = {part.caps for part in parts}
        if len(bounds) == 1:
            return bounds.pop()
    caps = np.empty((sum(len(part.keep) for part in parts), n, n), dtype=np.int64)
    row = 0
    for part in parts:
        rows = slice(row, row + len(part.keep))
        caps[rows] = UNBOUNDED if part.caps is None else part.caps
        row = rows.stop
    return caps


def _plan(rules: Sequence[PlainRule], seen: Seen, rngs: Sequence[np.random.Generator]) -> Plans:
    """Return the plans of rules that differ only in their numbers."""
    rule, share, most = rules[0], None, None
    number = _column([r.number for r in rules], len(seen.queue))
    keep = rule.keep(seen.capacity, seen.queue, seen.queue_limit, number)
    if keep is None:  # the amount depends on the arrivals
        keep = np.zeros_like(seen.queue)
        if rule.amount == "share":
            share = np.broadcast_to(np.asarray(number, dtype=np.float64), keep.shape)
        elif rule.amount == "random":
            share, most = _random(seen, rngs)
        elif seen.arrivals is None:
            share = np.full(keep.shape, STATIC)
        else:
            most = seen.arrivals * 2 // 5
    if rule.amount.endswith("margin"):
        most = seen.spare @ seen.links.T.astype(np.int64)
    margin = _column([r.margin for r in rules], len(seen.queue))
    return Plans(rule.route, keep, share, most, _caps(rule, margin, seen))


def _column(numbers: Sequence[float | None], rows: int) -> Any:
    """Return numbers as a column of ``rows`` rows, each repeated; a single number unchanged."""
    if len(numbers) == 1 or numbers[0] is None:
        return numbers[0]
    return np.repeat(np.array(numbers, dtype=np.float64), rows // len(numbers))[:, None]


def _random(seen: Seen, rngs: Sequence[np.random.Generator]) -> tuple[Any, Any]:
    """Return random shares [B, N] for unknown arrivals, otherwise random numbers of requests."""
    if len(rngs) != len(seen.links):
        raise ValueError("the random policy draws actions: pass rng=, a numpy Generator")
    near = seen.links.any(axis=1)
    if seen.arrivals is None:
        return np.stack([rng.random(len(seen.queue)) for rng in rngs], axis=1), None
    high = np.where(near, seen.arrivals, 0) + 1
    return None, np.stack([rng.integers(high[:, i]) for i, rng in enumerate(rngs)], axis=1)


def _caps(rule: PlainRule, margin: Any, seen: Seen) -> Any:
    if not rule.within_links:
        return None
    if margin is None:
        return seen.link_limit
    caps = _floor(margin * seen.spare)[:, None, :]  # [B, 1, N]
    if seen.link_limit is not None:
        caps = np.minimum(caps, seen.link_limit)
    return np.broadcast_to(caps, (len(caps), *seen.links.shape))


def _floor(values: Any) -> Array:
    return np.floor(np.asarray(values) + ROUNDING).astype(np.int64)
