"""The load of an episode of dfaas_v0: the rows as they were recorded, or days made of them.

``Recorded`` looks up the rows of a section; ``Augmented`` draws each episode a load of its own as
it begins, see the manual of the package. The rules ask both for the same.

For a fork of a moment (see ``OptionalRules.redrawing``) the rows that its policies cannot know are
those of another day of the section at the same time of day. With known arrivals a policy observes
the row that comes next, so that the rows after it are replaced. With unknown arrivals it observes
the row before and the next one's capacity: the rows are replaced from the next one on, and that
capacity stays. All nodes get the same day, drawn from the half of the days whose last observed row
is nearest, since a busy moment mostly follows a busy one. If no row was observed, any other day is
drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from corral.data import Trace
from corral.envs.arguments import nonnegative_float, nonnegative_int
from corral.envs.core import Array, changed
from corral.envs.dfaas_v0.amounts import Levels
from corral.errors import ArgumentError
from corral.hints import hint

__all__ = ["Augment", "Augmented", "AugmentedState", "DfaasState", "Recorded", "with_other_days"]

COMMON = 0.5
"""Correlation of two nodes' ``scale``: what one node cannot serve is hard where all are busy."""


# --- States --------------------------------------------------------------------------------------


@dataclass
class DfaasState:
    """B environments between two steps; all int64."""

    start: Array  # [B] first row of the window, counted from the section's first
    t: Array  # [B] steps since the episode began
    queue: Array  # [B, N] requests waiting
    spare: Array  # [B, N] as the last step ended, 0 at the start
    lost: Array  # [B, N] in the last step
    draws: Array  # [B, max_cycles, N, 2] neighbours drawn for route "two"; else [B, 0, N, 2]
    flow: Array  # [B, N, N] accepted i -> j in the last step, for pictures; else [B, 0, 0]
    reports: Array  # [B, K, N, 2] of K steps before the last, see ``corral.envs.dfaas_v0.past``
    aged: Array  # [B, K, N] of the queue by age, see there


@dataclass
class AugmentedState(DfaasState):
    """B environments whose episodes have loads of their own, with the row after the last step."""

    load: Array  # [B, max_cycles + 1, 3, N] arrivals, capacity, highest legal level; maybe int32
    offset: Array  # [B, N] rows from the episode's to those that a node's load is made of
    factor: Array  # float64 [B, N] what it is multiplied by


@dataclass
class OtherDayState(DfaasState):
    """B environments whose load is another day's from a step on; ``start`` is that day's."""

    since: Array  # int64 [B] the first step of the other day
    passed: Array  # int64 [B, K] rows of the K steps before it, the last one first
    capacity_row: Array  # int64 [B] the row whose capacity that first step has


# --- The load of an episode ----------------------------------------------------------------------


@dataclass(frozen=True)
class Augment:
    """How the load of an episode differs from the recorded one; 0: it does not."""

    shift: int = 0  # steps, at most, by which a node's rows come earlier or later
    scale: float = 0.0  # deviation of the logarithm of a node's load, the whole episode long
    noise: float = 0.0  # the same of each row of a node by itself
    mix: float = 0.0  # probability that a node has another day's rows

    def __post_init__(self) -> None:
        nonnegative_int("augment: shift", self.shift)
        for name in ("scale", "noise", "mix"):
            if nonnegative_float(f"augment: {name}", getattr(self, name)) > 1:
                raise ValueError(f"augment: {name}={getattr(self, name)}: give a number of 0 to 1")

    @classmethod
    def of(cls, given: Any) -> Augment | None:
        """Return what is ``given``: a mapping, text such as "shift=12,scale=0.2", or None. None
        where nothing changes. Raises ArgumentError, ValueError."""
        if given is None or isinstance(given, Augment):
            found: Augment | None = given
        else:
            values = _parsed(given) if isinstance(given, str) else given
            known = [each.name for each in fields(cls)]
            if not isinstance(values, Mapping) or not values:
                raise ArgumentError(
                    f"augment={given!r:.80}: give a mapping, or text such as shift=12,scale=0.2"
                )
            for name in values:
                if name not in known:
                    near = hint(str(name), known)
                    raise ArgumentError(
                        f"augment has no part {name!r}{near} Known: {', '.join(known)}"
                    )
            found = cls(**values)
        return None if found == cls() else found


def _parsed(text: str) -> dict[str, Any]:
    """Return the numbers of "name=number" pairs with commas; what is none stays text."""
    values: dict[str, Any] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, _, number = map(str.strip, pair.partition("="))
        try:
            values[name] = int(number) if number.isdigit() else float(number)
        except ValueError:
            values[name] = number
    return values


class Recorded:
    """The L rows of a ``section``, with all that depends on the row alone.

    ``scales`` divide arrivals and capacities; ``levels`` are those of actions, ``linked`` (bool
    [N]) the nodes with neighbours. ``row`` below is int64 [B]: the one that comes next.
    """

    def __init__(
        self, section: Trace, scales: tuple[float, float], levels: Levels, linked: Array
    ) -> None:
        assert section.capacity is not None  # with_capacity saw to it
        self.arrivals, self.capacity = section.arrivals, section.capacity  # [L, N]
        self.day = section.steps_per_day
        self.scales = scales
        self.levels, self.linked = levels, linked
        parts = self.arrivals, self.capacity, self.highest(self.arrivals)
        self._rows = np.stack(parts)  # [3, L, N]
        shares = [part / scale for part, scale in zip(parts, scales, strict=False)]
        self._features = np.stack(shares, axis=-1).astype(np.float32)  # [L, N, 2]

    def highest(self, arrivals: Array) -> Array:
        """Return the highest legal levels for arrivals [..., N]."""
        return np.where(self.linked, self.levels.highest(arrivals), 0)

    def begin(
        self, first: Array, rngs: Sequence[np.random.Generator], steps: int
    ) -> dict[str, Array]:
        """Return what the states of B episodes hold of their load; ``first`` are their rows."""
        return {}

    def at(self, state: Any, row: Array) -> Array:
        """Return arrivals, capacity and highest legal levels: int64 [3, B, N]."""
        return self._rows.take(row, axis=1)

    def observed(self, state: Any, row: Array) -> tuple[Array, Array]:
        """Return arrivals and capacity, scaled: [B, N, 2]; and the highest legal levels."""
        return self._features.take(row, axis=0), self._rows[2].take(row, axis=0)

    def counted(self, state: Any, row: Array, back: int) -> Array:
        """Return the arrivals of the step so many before the next, whose ``row`` [B] it is: int64
        [B, N]; 0 before the episode began."""
        return np.asarray(self.arrivals.take(row, axis=0) * (state.t >= back)[:, None])


class OtherDays(Recorded):
    """The rows of ``recorded`` for environments that may have gone over to another day."""

    def __init__(self, recorded: Recorded) -> None:
        vars(self).update(vars(recorded))

    def at(self, state: Any, row: Array) -> Array:
        found = super().at(state, row)
        if (where := self._first_steps(state)) is not None:
            found[1, where] = self.capacity.take(state.capacity_row[where], axis=0)
        return found

    def observed(self, state: Any, row: Array) -> tuple[Array, Array]:
        features, highest = super().observed(state, row)
        if (where := self._first_steps(state)) is not None:
            known = self._features[..., 1].take(state.capacity_row[where], axis=0)
            features[where, :, 1] = known
        return features, highest

    def _first_steps(self, state: Any) -> Array | None:
        """Return which environments are at the first step of another day; None: none is."""
        if not isinstance(state, OtherDayState):
            return None
        where = np.flatnonzero(state.t == state.since)
        return where if len(where) else None


class Augmented:
    """Loads that are drawn as episodes begin, and kept in their states (``AugmentedState``)."""

    def __init__(self, recorded: Recorded, augment: Augment) -> None:
        self.recorded = recorded
        self.arrivals = recorded.arrivals  # [L, N]
        self.augment = augment
        largest = np.iinfo(np.int32).max
        self._dtype = np.int32 if max(recorded.scales) <= largest else np.int64
        self._scales = np.reshape(recorded.scales, (2, 1, 1))
        self._nodes = np.arange(self.arrivals.shape[1])

    def begin(
        self, first: Array, rngs: Sequence[np.random.Generator], steps: int
    ) -> dict[str, Array]:
        b, n = len(first), len(self._nodes)
        chance, normal = np.empty((b, 3, n)), np.empty((b, 1 + n))
        for i, rng in enumerate(rngs):
            rng.random(out=chance[i])
            rng.standard_normal(out=normal[i])
        offset, factor = self._offset(first[:, None], chance), self._factor(normal)
        # With the row that is observed after the last step. One by one: small arrays stay in cache.
        load = np.empty((b, steps + 1, 3, n), dtype=self._dtype)
        for i, rng in enumerate(rngs):
            self._fill(load[i], first[i] + offset[i], factor[i], rng)
        return {"load": load, "offset": offset, "factor": factor}

    def at(self, state: Any, row: Array) -> Array:
        now = state.load[np.arange(len(row)), state.t % state.load.shape[1]]  # [B, 3, N]
        return np.asarray(now.transpose(1, 0, 2), dtype=np.int64, order="C")

    def observed(self, state: Any, row: Array) -> tuple[Array, Array]:
        now = self.at(state, row)
        return (now[:2] / self._scales).transpose(1, 2, 0), now[2]

    def counted(self, state: Any, row: Array, back: int) -> Array:
        t = state.t - back
        then = state.load[np.arange(len(t)), t % state.load.shape[1], 0]  # [B, N]
        return np.asarray(then * (t >= 0)[:, None], dtype=np.int64)

    def redraw(
        self, state: Any, i: int, row: int, shift: int, rng: np.random.Generator, shown: bool
    ) -> None:
        """Give environment ``i``, whose next row is ``row``, the load of the day ``shift`` rows
        away, with the noise drawn anew: from the next row on but for its capacity, or from the row
        after it if the next one is ``shown``."""
        state.offset[i] += shift
        now = int(state.t[i]) % state.load.shape[1]
        capacity = state.load[i, now, 1].copy()
        rest = state.load[i, now + shown :]
        self._fill(rest, row + shown + state.offset[i], state.factor[i], rng)
        state.load[i, now, 1] = capacity

    def _offset(self, first: Array, chance: Array) -> Array:
        """Return how many rows away each node's load is taken from, int64 [B, N], in episodes that
        begin at ``first`` [B, 1], by uniform draws [B, 3, N]: of the shift, who is mixed, a day."""
        moved, mixed, other = chance.transpose(1, 0, 2)
        shift, day = self.augment.shift, self.recorded.day or 1  # without a clock, any other row
        offset = (moved * (2 * shift + 1)).astype(np.int64) - shift
        days, own = -(-(len(self.arrivals) - first % day) // day), first // day
        chosen = (other * (days - 1)).astype(np.int64)
        chosen += chosen >= own
        mixed = (mixed < self.augment.mix) & (days > 1)
        return np.asarray(offset + np.where(mixed, chosen - own, 0) * day)

    def _factor(self, normal: Array) -> Array:
        """Return what each node's load is multiplied by, [B, N], by normal draws [B, 1 + N]."""
        together = COMMON**0.5 * normal[:, :1] + (1 - COMMON) ** 0.5 * normal[:, 1:]
        return np.asarray(np.exp(self.augment.scale * together))

    def _fill(self, load: Array, first: Array, factor: Array, rng: np.random.Generator) -> None:
        """Write to ``load`` [S, 3, N] what it is from the rows ``first`` [N] on, with its noise."""
        at = (first + np.arange(len(load))[:, None]) % len(self.arrivals), self._nodes
        arrivals = self.arrivals[at]
        if self.augment.scale or self.augment.noise:
            wanted = arrivals * factor
            if self.augment.noise:
                wanted *= np.exp(self.augment.noise * rng.standard_normal(wanted.shape))
            most = int(self.recorded.scales[0])
            arrivals = np.minimum(np.rint(wanted), most).astype(np.int64)
        load[:, 0], load[:, 1] = arrivals, self.recorded.capacity[at]
        load[:, 2] = self.recorded.highest(arrivals)


# --- Other days ----------------------------------------------------------------------------------


def with_other_days(rules: Any) -> Any:
    """Return rules with ``redraw``; None where the section has no two days."""
    day = rules.trace.steps_per_day
    length = rules.rows[1] - rules.rows[0]
    if day is None or length < 2 * day:
        return None
    load = OtherDays(rules.load) if isinstance(rules.load, Recorded) else rules.load
    redraw = partial(_redraw, rules, day, length)
    return changed(rules, redraw=redraw, _row=partial(_row, length), load=load)


def _row(length: int, state: DfaasState, back: int = 0) -> Array:
    """Return the row of the section that comes next, or that of the step so many before it: [B]."""
    t = state.t - back
    row = (state.start + t) % length
    if isinstance(state, OtherDayState):
        before = state.since - 1 - t  # steps between that one and the last of the own day
        place = np.clip(before, 0, state.passed.shape[1] - 1)
        row = np.where(before >= 0, state.passed[np.arange(len(t)), place], row)
    return np.asarray(row)


def _redraw(
    rules: Any,
    day: int,
    length: int,
    state: DfaasState,
    rngs: Sequence[np.random.Generator],
    told: bool = False,
) -> DfaasState:
    """Draw anew the load that the nodes do not know, and the neighbours of routes that draw: these
    are not shown, whether or not the nodes are ``told`` the global state."""
    shown = told or rules.arrivals == "known"  # the next row
    row, last = _row(length, state), _row(length, state, back=1)
    load = rules.load.arrivals
    offset = state.offset if isinstance(state, AugmentedState) else np.zeros_like(state.queue)
    nodes = np.arange(load.shape[1])
    high = np.maximum(rules.network.degree, 1)[:, None]
    shift = np.zeros(len(row), dtype=np.int64)
    for i, (rng, here) in enumerate(zip(rngs, row.tolist(), strict=True)):
        days = np.arange(here % day, length, day)
        days = days[days != here]
        if shown or state.t[i]:  # a row was observed: that one, or the last
            seen = here if shown else int(last[i])
            there = (days[:, None] - (not shown) + offset[i]) % length
            now = (seen + offset[i]) % length
            distance = np.abs(load[there, nodes] - load[now, nodes]).sum(axis=1)
            days = days[np.argsort(distance, kind="stable")[: -(-len(days) // 2)]]
        shift[i] = rng.choice(days) - here
        if draws := state.draws.shape[1]:
            t = int(state.t[i]) % draws
            if rules.route == "two-choices":  # two numbers that all draws follow from
                state.draws[i] = rng.integers(2**31, size=state.draws.shape[1:], dtype="i4")
            else:
                shape = draws - t, len(high), 2
                state.draws[i, t:] = rng.integers(high, size=shape, dtype="i4")
        if isinstance(rules.load, Augmented):
            rules.load.redraw(state, i, here, int(shift[i]), rng, shown)
    if isinstance(state, AugmentedState):
        return state
    kept = 1 + rules.last_counts  # rows that nodes observe, and the one that is shown
    passed = [row] * shown + [_row(length, state, back) for back in range(1, kept + 1 - shown)]
    known = row  # whose capacity the nodes know
    if isinstance(state, OtherDayState):
        known = np.where(state.t == state.since, state.capacity_row, row)
    start, since = row + shift - state.t, state.t + shown
    own = {each.name: getattr(state, each.name) for each in fields(DfaasState)}
    return OtherDayState(
        **{**own, "start": start},
        since=since,
        passed=np.stack(passed, axis=1),
        capacity_row=(start + since) % length if shown else known,
    )
