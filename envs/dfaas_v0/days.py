"""The load of other days: what could have come instead of the rows that did.

A policy observes the row that comes next, and none after it. For a fork of such a moment (see
``OptionalRules.redrawing``) the rows after it are those of another day of the section at the same
time of the day, drawn from the half of the days whose load at the moment itself is nearest: what
follows a busy moment is mostly busy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from corral.envs.core import Array, changed
from corral.envs.dfaas_v0.rules import DfaasRules, DfaasState

__all__ = ["OtherDayState", "with_other_days"]


@dataclass
class OtherDayState(DfaasState):
    """B environments whose load is another day's after a moment."""

    since: Array  # int64 [B] steps of the episode at that moment
    shift: Array  # int64 [B] rows from the own day to the other one


def with_other_days(rules: DfaasRules) -> DfaasRules | None:
    """Return rules with ``redraw``; None where the section has no two days."""
    day = rules.trace.steps_per_day
    length = rules.rows[1] - rules.rows[0]
    if day is None or length < 2 * day:
        return None
    return changed(rules, redraw=partial(_redraw, rules, day, length), _row=partial(_row, length))


def _row(length: int, state: DfaasState) -> Array:
    """Return the row of the section that comes next, [B]."""
    row = state.start + state.t
    if isinstance(state, OtherDayState):
        row = row + np.where(state.t > state.since, state.shift, 0)
    return np.asarray(row % length)


def _redraw(
    rules: DfaasRules,
    day: int,
    length: int,
    state: DfaasState,
    rngs: Sequence[np.random.Generator],
    told: bool = False,
) -> OtherDayState:
    """Draw the load after the next row, and the neighbours of route "two", anew; neither is shown,
    whether or not they are ``told`` the global state."""
    row = _row(length, state)
    load = rules.trace.arrivals[slice(*rules.rows)]
    high = np.maximum(rules.network.degree, 1)[:, None]
    shift = np.zeros(len(row), dtype=np.int64)
    for i, (rng, here) in enumerate(zip(rngs, row.tolist(), strict=True)):
        days = np.arange(here % day, length, day)
        days = days[days != here]
        distance = np.abs(load[days] - load[here]).sum(axis=1)
        near = days[np.argsort(distance, kind="stable")[: -(-len(days) // 2)]]
        shift[i] = rng.choice(near) - here
        if draws := state.draws.shape[1]:
            t = int(state.t[i]) % draws
            shape = draws - t, len(high), 2
            state.draws[i, t:] = rng.integers(high, size=shape, dtype="i4")
    own = {each.name: getattr(state, each.name) for each in dataclasses.fields(DfaasState)}
    own["start"] = row - state.t  # the own day, if this one was another's
    return OtherDayState(**own, since=state.t.copy(), shift=shift)
