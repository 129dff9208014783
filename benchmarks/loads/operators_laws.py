"""Twenty made operators of servers, for verdicts.py: loads of a law of their own, and settings.

What an operator has is its history: 21 to 90 days of loads and capacities. What its choice is
judged on are the 200 days after it, of the same law. Servers, step, sizes, waves, bursts, capacity,
queue, costs and delay are drawn from ``SEED`` and the operator's number alone.

Loads are cut at ``TraceSpec.largest``. Operators do not know this limit: later loads may exceed all
loads of the history.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.data import Trace, TraceSpec, make_trace

__all__ = ["COUNT", "FRESH_DAYS", "Operator", "describe", "operator"]

SEED = 17
COUNT = 20
FRESH_DAYS = 200
MARCH = "2026-03-02T00:00:00Z"  # a Monday


@dataclass(frozen=True)
class Operator:
    """One operator: the law of its load, and its settings of dfaas_v0."""

    number: int
    history_days: int
    spec: TraceSpec  # of the history and the fresh days together
    settings: dict[str, Any]

    def days(self) -> tuple[Trace, Trace]:
        """Return the history, and the fresh days after it.

        Both are cut from one trace, so that sizes and capacities of the servers stay as they are.
        """
        whole = make_trace(self.spec, name=f"operator_{self.number}")
        cut = self.history_days * 86400 // self.spec.step
        return whole.section(0, cut), whole.section(cut, len(whole))


def operator(number: int) -> Operator:
    """Return operator 0 .. COUNT - 1."""
    rng = np.random.default_rng([SEED, number])

    def between(low: float, high: float) -> float:
        return round(float(rng.uniform(low, high)), 3)

    def scattered(low: float, high: float) -> float:
        """Draw between two numbers on the log scale."""
        return round(float(np.exp(rng.uniform(math.log(low), math.log(high)))), 3)

    def one_of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    history_days = int(rng.integers(21, 91))
    days = history_days + FRESH_DAYS
    mean, spread = scattered(12, 5000), between(0.0, 0.6)
    crowds = between(0.0, 1.5) * days / 7  # per node, over all days
    burst_minutes, in_bursts = scattered(5.0, 60.0), between(0.0, 0.15)  # a share of the time
    spec = TraceSpec(
        nodes=int(rng.integers(2, 13)),
        days=days,
        step=one_of(60, 120, 300, 300, 600, 900),
        seed=1000 * SEED + number,
        start=MARCH,
        mean=mean,
        spread=spread,
        largest=math.ceil(mean * (1 + spread) * between(3.0, 6.0)),
        daily=between(0.1, 0.75),
        peak_hour=between(0.0, 24.0),
        peak_spread=between(0.0, 24.0),
        weekend=between(0.4, 1.1),
        noise=between(0.05, 0.5),
        memory=between(0.5, 0.98),
        shared=between(0.0, 0.5),
        bursts=round(in_bursts * 1440 / burst_minutes, 3),
        burst_size=between(0.3, 2.5),
        burst_minutes=burst_minutes,
        flash_crowds=(round(0.7 * crowds), round(0.3 * crowds)),  # evenly over all days
        flash_size=between(1.0, 4.0),
        flash_minutes=between(20.0, 180.0),
        headroom=between(1.15, 2.2),
        uneven=between(0.0, 0.5),
        scaling=between(0.0, 0.6),
        scaling_hours=one_of(1.0, 4.0, 12.0),
        maintenance=between(0.0, 3.0),
        maintenance_hours=between(1.0, 6.0),
        maintenance_depth=between(0.2, 1.0),
    )
    queue = one_of(0, 1, 1) * math.ceil(mean * scattered(0.1, 3.0))
    forward_cost = one_of(0.0, 1.0, 1.0) * between(0.02, 0.4)
    wait_cost = one_of(0.0, 1.0, 1.0) * between(0.01, 0.2) * (queue > 0)
    link_limit = math.ceil(mean * scattered(0.05, 0.5))
    settings = {
        "queue": queue,
        "forward_cost": forward_cost,
        "wait_cost": wait_cost,
        "second_offer": one_of(True, False),
        "link_limit": one_of(None, None, link_limit),
        "report_delay": one_of(0, 1, 1, 2, 5),
    }
    return Operator(number, history_days, spec, settings)


def describe(each: Operator) -> dict[str, Any]:
    """Return what defines an operator, as plain values."""
    spec = dataclasses.asdict(each.spec)
    return {"history_days": each.history_days, **spec, **each.settings}
