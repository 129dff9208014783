"""The textbook fitted to four loads: CPU seconds, and what a search of a fine grid would gain.

    OMP_NUM_THREADS=1 python benchmarks/loads/textbook.py [LOAD ...]

The fine grid has the rules without a number, and numbers and margins in small steps, by all routes
but "two-choices"; all of it is played in all windows. So the gap is what the race loses by playing
few windows and few rules. The demo's rules are also compared on the ten days after those that they
are fitted to.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save
from operators_laws import operator

from corral.data import Trace, TraceSpec, make_trace
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.loads.textbook import TODAY, fit, play_rules
from corral.loads.textbook.grid import BY_COUNT, FAST

DEMO = TraceSpec(
    nodes=3,
    days=35,
    seed=1,
    mean=16,
    largest=60,
    headroom=1.25,
    spread=0,
    uneven=0,
    scaling=0,
    maintenance=0,
    noise=0.25,
    bursts=3,
    shared=0,
)
"""The load of ``make demo``."""
DEMO_GAME = {"queue": 16, "forward_cost": 0.2, "link_limit": 7, "second_offer": False}
FITTED_DAYS = 25

MADE_GAME = {"queue": 25, "forward_cost": 0.1, "link_limit": 5}
LINES = ("patient/equal", "backlog=1/equal", "backlog=0.75/equal", "backlog=0.75/least")
"""Rules that the demo's fitted rules are compared with."""


@dataclass(frozen=True)
class Load:
    """A load, and the arguments of dfaas_v0 that it is played with."""

    title: str
    trace: Trace
    days: int  # that rules are fitted to
    game: dict[str, Any]
    bar: float | None = None  # CPU seconds that a fit may take
    with_grid: bool = True  # whether the fine grid is played, too: it takes ten times as long


def loads() -> Iterator[tuple[str, Load]]:
    """Return the loads by their names."""
    yield "demo", Load("the demo's", make_trace(DEMO), FITTED_DAYS, DEMO_GAME)
    four = make_trace(nodes=4, days=30, seed=2)
    yield "four", Load("4 servers, 30 days of five minutes", four, 30, MADE_GAME, 20)
    law = operator(11)
    yield "operator", Load("operator 11", law.days()[0], 27, law.settings)
    twelve = make_trace(nodes=12, days=30, step=60, seed=3)
    yield "twelve", Load("12 servers, 30 days of minutes", twelve, 30, MADE_GAME, 60, False)


def fine_grid(queue: int, arrivals: str) -> list[str]:
    """Return the rules of the fine grid."""
    routes = [*FAST, *(BY_COUNT if arrivals == "known" else ())]
    amounts = [f"capacity={w:g}" for w in np.arange(0.5, 1.51, 0.05).round(2)]
    amounts += [f"share={s:g}" for s in (0.01, 0.02, 0.04, *np.arange(0.06, 0.71, 0.04).round(2))]
    amounts += [f"backlog={x:g}" for x in np.arange(0, 2.01, 0.125)] if queue else []
    margins = ("", *(f"+margin={y:g}" for y in (0.5, 0.75, 1, 1.5, 2)))
    named = [rule for rule in TODAY if PlainRule.of(rule).route in routes]
    return [*named, *(f"{a}{m}/{route}" for a in amounts for m in margins for route in routes)]


def measured(load: Load, arrivals: str) -> dict[str, Any]:
    """Fit the textbook to a load, then play the fine grid."""
    rows = (0, load.days * load.trace.steps_per_day) if load.trace.steps_per_day else None
    plan: dict[str, Any] = {"rows": rows, "arrivals": arrivals, **load.game}
    began = time.process_time()
    fitted = fit(load.trace, **plan)
    seconds = time.process_time() - began
    every = float(fitted.arrivals.sum())
    own = float(fitted.costs[str(fitted.rule)].sum())
    found = {
        "arrivals": arrivals,
        "cpu_seconds": round(seconds, 1),
        "tried": fitted.tried,
        "days_played": fitted.days_played,
        "rule": str(fitted.rule),
        "cost": 100 * own / every,
    }
    if not load.with_grid:
        return found
    grid = fine_grid(load.game.get("queue", 0), arrivals)
    sums = play_rules(load.trace, grid, **plan)
    best = min(sums, key=lambda label: float(sums[label].cost.sum()))
    return {
        **found,
        "grid": len(grid),
        "best_of_grid": best,
        "cost_of_best": 100 * float(sums[best].cost.sum()) / every,
        "gap": 100 * (own - float(sums[best].cost.sum())) / every,
    }


def on_later_days(load: Load, rules: list[str]) -> dict[str, float]:
    """Return the cost a day of rules on the days after those that rules are fitted to."""
    rows = load.days * 288, len(load.trace)
    sums = play_rules(load.trace, rules, rows=rows, arrivals="known", **load.game)
    return {rule: float(each.cost.mean()) for rule, each in sums.items()}


def main() -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    later: dict[str, float] = {}
    table = [
        "| load | arrivals | CPU s | rules tried | days played | fitted rule | cost % | grid | "
        "its best | cost % | gap, points |",
        "|---|---|--:|--:|--:|---|--:|--:|---|--:|--:|",
    ]
    for name, load in loads():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        found[name] = [measured(load, arrivals) for arrivals in ("unknown", "known")]
        for line in found[name]:
            bar = "" if load.bar is None else f" (bar {load.bar:g})"
            beside = "not played | | | |"
            if load.with_grid:
                beside = (
                    f"{line['grid']:,} | {line['best_of_grid']} "
                    f"| {line['cost_of_best']:.3f} | {line['gap']:+.3f} |"
                )
            table.append(
                f"| {load.title} | {line['arrivals']} | {line['cpu_seconds']}{bar} "
                f"| {line['tried']} | {line['days_played']:,} | {line['rule']} "
                f"| {line['cost']:.3f} | {beside}"
            )
            print(table[-1], flush=True)
        if name == "demo":
            fitted = [line["rule"] for line in found[name]]
            later = on_later_days(load, list(dict.fromkeys([*LINES, *fitted])))
    text = ["# The textbook, fitted", "", *table, ""]
    if later:
        text += [
            f"The demo's {FITTED_DAYS} days fit; on the 10 days after them a day costs:",
            "",
            "| rule | requests a day |",
            "|---|--:|",
            *(f"| {rule} | {cost:,.1f} |" for rule, cost in later.items()),
        ]
    save("textbook", "\n".join(text), {"loads": found, "later_days": later}, machine())


if __name__ == "__main__":
    main()
