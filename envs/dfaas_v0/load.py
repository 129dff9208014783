"""The load of an episode in dfaas_v0: recorded rows, or days made from them.

``Recorded`` looks up the rows of a section. ``Augmented`` draws a separate load for each episode at
its start, see the manual of the package. Both have the same interface for the rules.

Forks of a moment (see ``OptionalRules.redrawing``) replace rows that policies cannot know by rows
of another day of the section, at the same time of day. With known arrivals a policy observes the
next row, so that later rows are replaced. With unknown arrivals it observes the last row and the
capacity of the next row. Then all rows from the next one are replaced, except for this capacity.
All nodes get the same day. It is drawn from the half of the days with the nearest values in the
last observed row, because busy moments usually follow busy moments. If no row was observed, any
other day is drawn.
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
"""Correlation of ``scale`` between two nodes: hard days are those on which all nodes are busy."""


# --- States --------------------------------------------------------------------------------------


@dataclass
class DfaasState:
    """B environments between two steps; all arrays are int64."""

    start: Array  # [B] first row of the window, counted from the section's first
    t: Array  # [B] steps since the episode began
    queue: Array  # [B, N] queued requests
    spare: Array  # [B, N] at the end of the last step, 0 at the start
    lost: Array  # [B, N] in the last step
    draws: Array  # [B, K, N, 2] random numbers of the route, see ``DfaasRules._draws``
    flow: Array  # [B, N, N] accepted i -> j in the last step, for pictures; or [B, 0, 0]
    reports: Array  # [B, K, N, 2] of K steps before the last, see ``corral.envs.dfaas_v0.past``
    aged: Array  # [B, K, N] queued requests by age, see ``corral.envs.dfaas_v0.past``


@dataclass
class AugmentedState(DfaasState):
    """B environments with a separate load for each episode, plus the row after its last step."""

    load: Array  # [B, max_cycles + 1, 3, N] arrivals, capacity, highest legal level; or int32
    offset: Array  # [B, N] distance in rows from the episode to the source of a node's load
    factor: Array  # float64 [B, N] factor of a node's load


@dataclass
class OtherDayState(DfaasState):
    """B environments that change to the load of another day at some step.

    ``start`` belongs to the other day.
    """

    since: Array  # int64 [B] the first step of the other day
    passed: Array  # int64 [B, K] rows of the K steps before it, newest first
    capacity_row: Array  # int64 [B] row with the capacity of that first step


# --- The load of an episode ----------------------------------------------------------------------


@dataclass(frozen=True)
class Augment:
    """Random changes of the recorded load in an episode; 0: no change."""

    shift: int = 0  # most steps by which a node's rows come earlier or later
    scale: float = 0.0  # standard deviation of the log load of a node, one draw per episode
    noise: float = 0.0  # standard deviation of the log load of a node, one draw per row
    mix: float = 0.0  # probability that a node gets the rows of another day

    def __post_init__(self) -> None:
        nonnegative_int("augment: shift", self.shift)
        for name in ("scale", "noise", "mix"):
            if nonnegative_float(f"augment: {name}", getattr(self, name)) > 1:
                raise ValueError(
                    f"augment: {name}={getattr(self, name)}: give a number from 0 to 1"
                )

    @classmethod
    def of(cls, argument: Any) -> Augment | None:
        """Return an Augment from a mapping, from text such as "shift=12,scale=0.2", or from None.

        Returns None if nothing changes. Raises ArgumentError, ValueError.
        """
        if argument is None or isinstance(argument, Augment):
            augment: Augment | None = argument
        else:
            values = _parsed(argument) if isinstance(argument, str) else argument
            names = [field.name for field in fields(cls)]
            if not isinstance(values, Mapping) or not values:
                raise ArgumentError(
                    f"augment={argument!r:.80}: give a mapping, or text such as shift=12,scale=0.2"
                )
            for name in values:
                if name not in names:
                    near = hint(str(name), names)
                    raise ArgumentError(
                        f"augment has no part {name!r}{near} Known: {', '.join(names)}"
                    )
            augment = cls(**values)
        return None if augment == cls() else augment


def _parsed(text: str) -> dict[str, Any]:
    """Return the pairs of "name=number, ..." as a dict; values that are not numbers stay text."""
    values: dict[str, Any] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, _, number = map(str.strip, pair.partition("="))
        try:
            values[name] = int(number) if number.isdigit() else float(number)
        except ValueError:
            values[name] = number
    return values


class Recorded:
    """The L rows of a ``section``, with precomputed values that depend only on the row.

    ``scales`` divide arrivals and capacities. ``levels`` are the levels of actions. ``linked``
    (bool [N]) are the nodes with neighbors. With ``clipped``, scaled numbers are at most 1. In the
    methods, ``row`` int64 [B] is the row of the next step.
    """

    def __init__(
        self,
        section: Trace,
        scales: tuple[float, float],
        levels: Levels,
        linked: Array,
        clipped: bool = False,
    ) -> None:
        assert section.capacity is not None  # with_capacity ensures it
        self.arrivals, self.capacity = section.arrivals, section.capacity  # [L, N]
        self.day = section.steps_per_day
        self.scales = scales
        self.levels, self.linked = levels, linked
        parts = self.arrivals, self.capacity, self.highest(self.arrivals)
        self._rows = np.stack(parts)  # [3, L, N]
        shares = [part / scale for part, scale in zip(parts, scales, strict=False)]
        self._features = np.stack(shares, axis=-1).astype(np.float32)  # [L, N, 2]
        if clipped:
            np.minimum(self._features, 1, out=self._features)

    def highest(self, arrivals: Array) -> Array:
        """Return the highest legal levels for arrivals [..., N]."""
        return np.where(self.linked, self.levels.highest(arrivals), 0)

    def begin(
        self, first: Array, rngs: Sequence[np.random.Generator], steps: int
    ) -> dict[str, Array]:
        """Return the fields of new states that hold the load; ``first`` are their first rows."""
        return {}

    def at(self, state: Any, row: Array) -> Array:
        """Return arrivals, capacity and highest legal levels: int64 [3, B, N]."""
        return self._rows.take(row, axis=1)

    def observed(self, state: Any, row: Array) -> tuple[Array, Array]:
        """Return scaled arrivals and capacity: [B, N, 2]; and the highest legal levels."""
        return self._features.take(row, axis=0), self._rows[2].take(row, axis=0)

    def counted(self, state: Any, row: Array, back: int) -> Array:
        """Return the arrivals of the step ``back`` steps before the next step: int64 [B, N].

        ``row`` [B] is the row of that step. Arrivals are 0 before the start of the episode.
        """
        return np.asarray(self.arrivals.take(row, axis=0) * (state.t >= back)[:, None])


class OtherDays(Recorded):
    """The rows of ``recorded``, for environments that may have changed to another day."""

    def __init__(self, recorded: Recorded) -> None:
        vars(self).update(vars(recorded))

    def at(self, state: Any, row: Array) -> Array:
        rows = super().at(state, row)
        if (first_steps := self._first_steps(state)) is not None:
            rows[1, first_steps] = self.capacity.take(state.capacity_row[first_steps], axis=0)
        return rows

    def observed(self, state: Any, row: Array) -> tuple[Array, Array]:
        features, highest = super().observed(state, row)
        if (first_steps := self._first_steps(state)) is not None:
            capacity = self._features[..., 1].take(state.capacity_row[first_steps], axis=0)
            features[first_steps, :, 1] = capacity
        return features, highest

    def _first_steps(self, state: Any) -> Array | None:
        """Return the environments at the first step of another day; None if there are none."""
        if not isinstance(state, OtherDayState):
            return None
        first_steps = np.flatnonzero(state.t == state.since)
        return first_steps if len(first_steps) else None


class Augmented:
    """Loads that are drawn at the start of episodes and kept in states (``AugmentedState``)."""

    def __init__(self, recorded: Recorded, augment: Augment) -> None:
        self.recorded = recorded
        self.arrivals = recorded.arrivals  # [L, N]
        self.augment = augment
        # Recorded rows exceed the scale only with ``beyond``.
        self._limit = max(int(recorded.scales[0]), int(self.arrivals.max()))
        largest = max(self._limit, int(recorded.scales[1]), int(recorded.capacity.max()))
        self._dtype = np.int32 if largest <= np.iinfo(np.int32).max else np.int64
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
        # One more row, for the last observation. The loop over environments keeps arrays in cache.
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
        """Replace the future load of environment ``i`` by that of the day ``shift`` rows away.

        ``row`` is its next row. Noise is redrawn. The new load starts with the next row, but keeps
        its capacity. If the next row is ``shown``, the new load starts with the row after it.
        """
        state.offset[i] += shift
        now = int(state.t[i]) % state.load.shape[1]
        capacity = state.load[i, now, 1].copy()
        rest = state.load[i, now + shown :]
        self._fill(rest, row + shown + state.offset[i], state.factor[i], rng)
        state.load[i, now, 1] = capacity

    def _offset(self, first: Array, chance: Array) -> Array:
        """Return the distance in rows to the source of each node's load, int64 [B, N].

        Episodes begin at ``first`` [B, 1]. ``chance`` [B, 3, N] are uniform draws: the shift,
        whether to mix, and the day.
        """
        moved, mixed, other = chance.transpose(1, 0, 2)
        shift, day = self.augment.shift, self.recorded.day or 1  # without days, any other row
        offset = (moved * (2 * shift + 1)).astype(np.int64) - shift
        days, own_day = -(-(len(self.arrivals) - first % day) // day), first // day
        other_day = (other * (days - 1)).astype(np.int64)
        other_day += other_day >= own_day
        mixed = (mixed < self.augment.mix) & (days > 1)
        return np.asarray(offset + np.where(mixed, other_day - own_day, 0) * day)

    def _factor(self, normal: Array) -> Array:
        """Return the factor of each node's load, [B, N], from normal draws [B, 1 + N]."""
        log_scale = COMMON**0.5 * normal[:, :1] + (1 - COMMON) ** 0.5 * normal[:, 1:]
        return np.asarray(np.exp(self.augment.scale * log_scale))

    def _fill(self, load: Array, first: Array, factor: Array, rng: np.random.Generator) -> None:
        """Fill ``load`` [S, 3, N] with the load from the rows ``first`` [N] on, with noise."""
        at = (first + np.arange(len(load))[:, None]) % len(self.arrivals), self._nodes
        arrivals = self.arrivals[at]
        if self.augment.scale or self.augment.noise:
            scaled = arrivals * factor
            if self.augment.noise:
                scaled *= np.exp(self.augment.noise * rng.standard_normal(scaled.shape))
            arrivals = np.minimum(np.rint(scaled), self._limit).astype(np.int64)
        load[:, 0], load[:, 1] = arrivals, self.recorded.capacity[at]
        load[:, 2] = self.recorded.highest(arrivals)


# --- Other days ----------------------------------------------------------------------------------


def with_other_days(rules: Any) -> Any:
    """Return rules with ``redraw``; None if the section is shorter than two days."""
    day = rules.trace.steps_per_day
    length = rules.rows[1] - rules.rows[0]
    if day is None or length < 2 * day:
        return None
    load = OtherDays(rules.load) if isinstance(rules.load, Recorded) else rules.load
    redraw = partial(_redraw, rules, day, length)
    return changed(rules, redraw=redraw, _row=partial(_row, length), load=load)


def _row(length: int, state: DfaasState, back: int = 0) -> Array:
    """Return the row of the section for the next step, or for ``back`` steps before it: [B]."""
    t = state.t - back
    row = (state.start + t) % length
    if isinstance(state, OtherDayState):
        before = state.since - 1 - t  # steps from that step to the last one before the other day
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
    """Redraw the load that the nodes do not know, and the random numbers of the route.

    Random numbers of the route are redrawn even if the nodes are ``told`` the global state, which
    does not contain them.
    """
    shown = told or rules.arrivals == "known"  # whether nodes know the next row
    row, last = _row(length, state), _row(length, state, back=1)
    load = rules.load.arrivals
    offset = state.offset if isinstance(state, AugmentedState) else np.zeros_like(state.queue)
    nodes = np.arange(load.shape[1])
    high = np.maximum(rules.network.degree, 1)[:, None]
    shift = np.zeros(len(row), dtype=np.int64)
    for i, (rng, next_row) in enumerate(zip(rngs, row.tolist(), strict=True)):
        days = np.arange(next_row % day, length, day)
        days = days[days != next_row]
        if shown or state.t[i]:  # a row was observed: the next row, or the last one
            observed_row = next_row if shown else int(last[i])
            candidate_rows = (days[:, None] - (not shown) + offset[i]) % length
            now = (observed_row + offset[i]) % length
            distance = np.abs(load[candidate_rows, nodes] - load[now, nodes]).sum(axis=1)
            days = days[np.argsort(distance, kind="stable")[: -(-len(days) // 2)]]
        shift[i] = rng.choice(days) - next_row
        if draws := state.draws.shape[1]:
            t = int(state.t[i]) % draws
            if rules.route == "two-choices":  # two numbers determine all draws
                state.draws[i] = rng.integers(2**31, size=state.draws.shape[1:], dtype="i4")
            else:
                shape = draws - t, len(high), 2
                state.draws[i, t:] = rng.integers(high, size=shape, dtype="i4")
        if isinstance(rules.load, Augmented):
            rules.load.redraw(state, i, next_row, int(shift[i]), rng, shown)
    if isinstance(state, AugmentedState):
        return state
    kept = 1 + rules.last_counts  # number of rows that nodes know
    passed = [row] * shown + [_row(length, state, back) for back in range(1, kept + 1 - shown)]
    capacity_row = row  # nodes know its capacity
    if isinstance(state, OtherDayState):
        capacity_row = np.where(state.t == state.since, state.capacity_row, row)
    start, since = row + shift - state.t, state.t + shown
    values = {field.name: getattr(state, field.name) for field in fields(DfaasState)}
    return OtherDayState(
        **{**values, "start": start},
        since=since,
        passed=np.stack(passed, axis=1),
        capacity_row=(start + since) % length if shown else capacity_row,
    )
