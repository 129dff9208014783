"""What if: the rule that is recommended on the same days, had they been otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corral.data import Trace
from corral.data.trace import MAX_VALUE
from corral.progress import Progress
from corral.trainers.loads import replay as engine
from corral.trainers.loads.advise.verdict import Saving, between, both, percent, requests, saving
from corral.trainers.loads.best_rule import best_of_others
from corral.trainers.loads.paired import has_costs
from corral.trainers.loads.replay import Replay

__all__ = ["LOAD", "MORE_CAPACITY", "WhatIf", "what_ifs"]

LOAD, MORE_CAPACITY = 1.5, 1.2
"""Times the load, and times the capacity."""

SCALES = ("load_scale", "capacity_scale")
"""Arguments that a team is trained with, which a larger load would exceed; no rule needs them."""


@dataclass(frozen=True)
class WhatIf:
    """The recommended rule under one change, paired with the same days as they were."""

    name: str  # "load x 1.5", ...
    rule: str
    cost: float  # share of the arrivals there
    lost: float
    before: float  # the lost (with costs: the cost) as the days were
    change: Saving  # what the change saves, in requests of the days as they were
    other: str | None  # the best other rule there, chosen on other days
    instead: Saving | None  # what that one saves there
    costs: bool = False

    def lines(self) -> list[str]:
        """Return it in a sentence."""
        change, verb = self.change, "costs" if self.costs else "loses"
        less = "less" if self.costs else "fewer"
        now = self.cost if self.costs else self.lost
        if change.same:
            return [f"{self.name}: that changes nothing.{self._instead()}"]
        said = f"{self.name}: {self.rule} {verb} {percent(now)} instead of {percent(self.before)}"
        sign = less if change.share > 0 else "more"
        said += f", {requests(abs(change.requests))} {change.unit} {sign}{_ends(change)}."
        return [f"{said}{self._instead()}"]

    def _instead(self) -> str:
        found = self.instead
        if found is None or self.other is None:
            return ""
        if found.low is None:
            told = f" There {self.other} would save {requests(found.requests)} {found.unit}"
            return f"{told}, which may be chance." if found.share > 0 else ""
        if found.low > 0:
            much = f"{requests(found.requests)} {found.unit}{_ends(found)}"
            return f" There {self.other} would save {much}."
        if found.share > 0:
            much = f"{requests(found.requests)} {found.unit}{_ends(found)}"
            return f" There {self.other} may save {much}, or nothing."
        return " No other rule is better there."

    def to_json(self) -> dict[str, Any]:
        """Return its values."""
        paired = {"change": self.change.to_json()}
        instead = None if self.instead is None else self.instead.to_json()
        own = {k: getattr(self, k) for k in ("name", "rule", "cost", "lost", "before", "other")}
        return {**own, **paired, "instead": instead, "lines": self.lines()}


def what_ifs(
    base: Replay,
    rules: Sequence[str],
    rule: str,
    settings: Mapping[str, Any],
    seed: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> tuple[list[WhatIf], list[str]]:
    """Return what becomes of ``rule`` under each change, and what could not be asked.

    Args:
        base: a replay of all ``rules`` on the days as they were.
        settings: the arguments of dfaas_v0 that it was played with.
    """
    found, left_out = [], []
    own = {key: value for key, value in settings.items() if key not in SCALES}
    for name, trace, changed in _changes(base.trace, settings):
        if isinstance(trace, str):
            left_out.append(f"{name}: {trace}.")
            continue
        plan: dict[str, Any] = {"window": base.window, "seed": seed, "optimum_windows": 0}
        told = _named(name, progress)
        then = engine.replay(
            trace, rules, rows=base.rows, progress=told, **plan, **{**own, **changed}
        )
        found.append(_paired(name, base, then, rule))
    return found, left_out


def how_many(trace: Trace, settings: Mapping[str, Any]) -> int:
    """Return how many changes of ``trace`` are played."""
    return sum(not isinstance(load, str) for _, load, _ in _changes(trace, settings))


def _changes(
    trace: Trace, settings: Mapping[str, Any]
) -> list[tuple[str, Trace | str, dict[str, Any]]]:
    """Return by name the load of each change, or why there is none, and other settings."""
    assert trace.capacity is not None
    largest = int(trace.capacity.sum(axis=0).argmax())
    down = trace.capacity.copy()
    down[:, largest] = 0
    found: list[tuple[str, Trace | str, dict[str, Any]]] = [
        (f"{trace.nodes[largest]} down, the largest server", replace(trace, capacity=down), {})
    ]
    more = np.rint(LOAD * trace.arrivals).astype(np.int64)
    room = np.rint(MORE_CAPACITY * trace.capacity).astype(np.int64)
    for name, what, values in (
        (f"Load x {LOAD:g}", "arrivals", more),
        (f"Capacity +{100 * (MORE_CAPACITY - 1):.0f} %", "capacity", room),
    ):
        beyond = f"not played, for a cell would exceed {MAX_VALUE:,} requests"
        fits = values.max() <= MAX_VALUE
        found.append((name, replace(trace, **{what: values}) if fits else beyond, {}))
    delay = settings.get("report_delay", 1)
    fresh = "Reports of spare capacity fresh, not late"
    known = "the reports are fresh already (report_delay 0)"
    found.append((fresh, trace if delay else known, {"report_delay": 0}))
    return found


def _named(name: str, progress: Progress) -> Progress:
    return lambda what, done, total: progress(f"what if: {name}", done, total)


def _paired(name: str, base: Replay, then: Replay, rule: str) -> WhatIf:
    before, after = base.sums[rule], then.sums[rule]
    load = before.arrivals
    costs = {label: sums.cost for label, sums in then.sums.items() if label != rule}
    best, other, instead = best_of_others(costs), None, None
    if best is not None:
        other = best.names[0]
        lost = np.array([then.sums[label].lost[w] for w, label in enumerate(best.labels)])
        instead = saving(then, both(after), (best.cost, lost), after.arrivals)
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


def _ends(found: Saving) -> str:
    if found.low is None or found.constant:
        return ""
    return f" (95 %: {between(found)})"
