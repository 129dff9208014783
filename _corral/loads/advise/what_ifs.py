"""What-ifs: the recommended rule on the same days, under one change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corral.data import Trace
from corral.data.trace import MAX_VALUE
from corral.envs.core import Array
from corral.loads.advise.verdict import Saving, between, both, saving
from corral.loads.advise.words import percent, requests
from corral.loads.best_rule import best_of_others
from corral.loads.paired import has_costs
from corral.loads.replay import Replay
from corral.loads.scores import WindowSums
from corral.loads.textbook import play_rules
from corral.progress import Progress

__all__ = [
    "LOAD",
    "MORE_CAPACITY",
    "SCALES",
    "WhatIf",
    "capacity_saving",
    "freshest",
    "how_many",
    "more_capacity",
    "what_ifs",
]

LOAD, MORE_CAPACITY = 1.5, 1.2
"""Factors on the load and on the capacity."""

SCALES = ("load_scale", "capacity_scale")
"""Arguments for training a team, which a larger load would exceed; rules do not need them."""

CAPACITY = f"Capacity +{100 * (MORE_CAPACITY - 1):.0f} %"
"""Name of the change that a team is compared with."""


@dataclass(frozen=True)
class WhatIf:
    """The recommended rule under one change, compared with the unchanged days."""

    name: str  # "load x 1.5", ...
    rule: str
    cost: float  # under the change, as a share of the arrivals
    lost: float
    before: float  # cost (lost, if only losses cost something) on the unchanged days
    change: Saving  # saving of the change, in requests of the unchanged days
    other: str | None  # the best other rule under the change, chosen on other days
    instead: Saving | None  # saving of that rule under the change
    costs: bool = False

    def lines(self) -> list[str]:
        """Return the what-if as a sentence."""
        change, verb = self.change, "costs" if self.costs else "loses"
        now = self.cost if self.costs else self.lost
        if change.same:
            return [f"{self.name}: no change.{self._instead()}"]
        text = f"{self.name}: {self.rule} {verb} {percent(now)} instead of {percent(self.before)}"
        sign = "fewer" if change.share > 0 else "more"
        text += f", {requests(abs(change.requests))} {sign} requests {change.unit}{_ends(change)}."
        return [f"{text}{self._instead()}"]

    def _instead(self) -> str:
        saving = self.instead
        if saving is None or self.other is None:
            return ""
        if saving.low is None:
            text = f" {self.other} would then save {requests(saving.requests)} {saving.unit}"
            return f"{text}, which may be chance." if saving.share > 0 else ""
        if saving.low > 0:
            much = f"{requests(saving.requests)} {saving.unit}{_ends(saving)}"
            return f" {self.other} would then save {much}."
        if saving.share > 0:
            much = f"{requests(saving.requests)} {saving.unit}{_ends(saving)}"
            return f" {self.other} may then save {much}, or nothing."
        return " No other rule would then be better."

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        paired = {"change": self.change.to_json()}
        instead = None if self.instead is None else self.instead.to_json()
        fields = {k: getattr(self, k) for k in ("name", "rule", "cost", "lost", "before", "other")}
        return {**fields, **paired, "instead": instead, "lines": self.lines()}


def what_ifs(
    base: Replay,
    rule: str,
    progress: Progress = lambda what, done, total: None,
) -> tuple[list[WhatIf], list[str]]:
    """Return the figures of ``rule`` under each change, and the changes that cannot be played.

    ``base``: a replay of the rule, and of others for comparison, on the unchanged days.
    """
    results, left_out = [], []
    settings = {key: v for key, v in base.settings.items() if key not in (*SCALES, "capacity")}
    for name, trace, changed in _changes(base.trace, base.settings):
        if isinstance(trace, str):
            left_out.append(f"{name}: {trace}.")
            continue
        plan: dict[str, Any] = {"window": base.window, "seed": base.seed, "rows": base.rows}
        show = _named(name, progress)
        then = play_rules(trace, [*base.sums], progress=show, **plan, **{**settings, **changed})
        results.append(_paired(name, base, then, rule))
    return results, left_out


def capacity_saving(results: Sequence[WhatIf]) -> Saving | None:
    """Return the saving of more capacity; None if more capacity was not played."""
    return next((what_if.change for what_if in results if what_if.name == CAPACITY), None)


def how_many(trace: Trace, settings: Mapping[str, Any]) -> int:
    """Return the number of changes of ``trace`` that can be played."""
    return sum(not isinstance(load, str) for _, load, _ in _changes(trace, settings))


def _changes(
    trace: Trace, settings: Mapping[str, Any]
) -> list[tuple[str, Trace | str, dict[str, Any]]]:
    """Return each change as (name, load, settings); a reason instead of an unplayable load."""
    assert trace.capacity is not None
    largest = int(trace.capacity.sum(axis=0).argmax())
    down = trace.capacity.copy()
    down[:, largest] = 0
    changes: list[tuple[str, Trace | str, dict[str, Any]]] = [
        (f"{trace.nodes[largest]} down, the largest server", replace(trace, capacity=down), {})
    ]
    more = np.rint(LOAD * trace.arrivals).astype(np.int64)
    scaled: list[tuple[str, str, Any]] = [
        (f"Load x {LOAD:g}", "arrivals", more),
        (CAPACITY, "capacity", more_capacity(trace)),
    ]
    for name, what, values in scaled:
        beyond = f"not played: a node would have more than {MAX_VALUE:,} {what} in a step"
        fits = values.max() <= MAX_VALUE
        changes.append((name, replace(trace, **{what: values}) if fits else beyond, {}))
    delay, fresh = settings.get("report_delay", 1), freshest(settings)
    if delay > fresh:
        late = "of this step" if fresh == 0 else "of the last step"
        changes.append((f"Spare capacity reported {late}", trace, {"report_delay": fresh}))
    return changes


def more_capacity(trace: Trace) -> Array:
    """Return ``MORE_CAPACITY`` times the capacity, int64 [T, N]; it may exceed ``MAX_VALUE``."""
    assert trace.capacity is not None
    return np.asarray(np.rint(MORE_CAPACITY * trace.capacity).astype(np.int64))


def freshest(settings: Mapping[str, Any]) -> int:
    """Return the age of the freshest reports, in steps.

    1 with unknown arrivals, because a report of the same step would reveal its arrivals; else 0.
    """
    return 1 if settings.get("arrivals", "known") == "unknown" else 0


def _named(name: str, progress: Progress) -> Progress:
    return lambda what, done, total: progress(f"what if: {name}", done, total)


def _paired(name: str, base: Replay, then: Mapping[str, WindowSums], rule: str) -> WhatIf:
    before, after = base.sums[rule], then[rule]
    load = before.arrivals
    costs = {label: sums.cost for label, sums in then.items() if label != rule}
    best, other, instead = best_of_others(costs), None, None
    if best is not None:
        other = best.names[0]
        lost = np.array([then[label].lost[w] for w, label in enumerate(best.labels)])
        instead = saving(base, both(after), (best.cost, lost), after.arrivals)
    every = max(1.0, float(after.arrivals.sum()))
    priced = has_costs(base)
    now = before.cost if priced else before.lost
    return WhatIf(
        name,
        rule,
        cost=float(after.cost.sum()) / every,
        lost=float(after.lost.sum()) / every,
        before=float(now.sum()) / max(1.0, float(load.sum())),
        change=saving(base, both(before), both(after), load),
        other=other,
        instead=instead,
        costs=priced,
    )


def _ends(saving: Saving) -> str:
    if saving.low is None or saving.constant:
        return ""
    return f" (95 %: {between(saving)})"
