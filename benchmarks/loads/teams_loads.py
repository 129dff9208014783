"""Loads of teams.py: a history to learn from, and later days that nothing is chosen on.

- The thirty operators of operators_laws.py and operators_more.py, with 200 later days.
- NASA's web server, as in hard_days.py: a node is a day of July 1995, turned by a random shift.
  Every third day is held out, in three ways. Every third day of the rest validates. Histories are
  42 draws of the remaining 12 days and 18 draws of the 6 days of validation. 200 draws of the 9
  held-out days are the later ones.
- Twitter volumes of three companies, a node each, in 54 whole days of 288 steps. A history is all
  days before the later ones: 24, 34 or 44 days, and the 10 days after them. Capacity is 1.25 times
  the mean load of a node in the history, and the settings are those of hard_days.py.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from common import TRACES
from hard_days import CAPACITY, DAY, drawn, joined, month
from operators_laws import COUNT, describe, operator
from operators_more import MORE, describe_more, more_operator
from reference_policies import HARD

from corral.data import Trace, import_series

__all__ = [
    "OPERATORS",
    "REAL",
    "Split",
    "nasa",
    "numbers_of_history",
    "operator_split",
    "split_of",
    "twitter",
]

OPERATORS = tuple(str(number) for number in (*range(COUNT), *MORE))
REAL = ("nasa", "twitter")
SPLITS = 3
"""Divisions of each real load into a history and later days."""

NASA_DRAWS = {"learn": 42, "validate": 18, "judge": 200}
COMPANIES = ("AAPL", "AMZN", "GOOG")
TWITTER_DAYS, TWITTER_LATER = 54, 10
HEADROOM = 1.25


@dataclass(frozen=True)
class Split:
    """A load of two parts, and the settings of dfaas_v0."""

    history: Trace
    later: Trace
    window: int  # steps of a day, or of a draw
    settings: dict[str, Any]
    law: dict[str, Any]  # what defines the load, as plain values
    training: dict[str, Any] = field(default_factory=dict)  # arguments of ``corral.from_rule``
    days: np.ndarray[Any, Any] | None = None
    """int64 [W, N]: the day of each node in each later window; None if windows are days."""

    @property
    def holds_out(self) -> bool:
        """Whether ``from_rule`` holds out days of the history, as it does by default."""
        return "rows" not in self.training


def split_of(load: str, split: int, days: int) -> Split:
    """Return a load by its name; ``days``: how many days follow the history of an operator."""
    if load == "nasa":
        return nasa(split)
    if load == "twitter":
        return twitter(split)
    return operator_split(int(load), days)


def numbers_of_history(load: str) -> int:
    """Return nodes times steps of an operator's history: its CPU time grows with them."""
    number = int(load)
    law = describe(operator(number)) if number < COUNT else describe_more(more_operator(number))
    return int(law["nodes"] * law["history_days"] * 86400 // law["step"])


def operator_split(number: int, days: int) -> Split:
    """Return an operator's load. It trains as a user would: ``from_rule`` divides the history."""
    each = operator(number) if number < COUNT else more_operator(number)
    law = describe(each) if number < COUNT else describe_more(each)
    history, later = each.days()
    day = history.steps_per_day
    assert day is not None
    return Split(history, later.section(0, days * day), day, dict(each.settings), law)


def thirds(days: Sequence[int], part: int) -> tuple[list[int], list[int]]:
    """Return every third of ``days`` from number ``part`` on, and all others."""
    return list(days[part::3]), [day for k, day in enumerate(days) if k % 3 != part]


def nasa(split: int) -> Split:
    """Return draws of NASA's days; split 0 holds out the days that hard_days.py holds out."""
    loads = month()
    judged, others = thirds(range(len(loads)), (2 + split) % 3)
    validated, learned = thirds(others, 2)
    parts = {"learn": learned, "validate": validated, "judge": judged}
    arrivals, days = {}, np.zeros((0, 3), dtype=np.int64)
    for seed, (part, own) in enumerate(parts.items()):
        draws = drawn(len(own), NASA_DRAWS[part], seed)
        arrivals[part] = joined(loads[own], draws)
        days = np.array(own)[[chosen for chosen, _ in draws]]  # of the last part: judge
    cut, end = len(arrivals["learn"]), len(arrivals["learn"]) + len(arrivals["validate"])

    def trace(name: str, load: np.ndarray[Any, Any]) -> Trace:
        return Trace(
            nodes=("node_a", "node_b", "node_c"),
            arrivals=load,
            capacity=np.full_like(load, CAPACITY),
            times=np.arange(len(load)),
            name=f"nasa_{split}_{name}",
        )

    history = np.concatenate([arrivals["learn"], arrivals["validate"]])
    law = {"law": "NASA", "learned": learned, "validated": validated, "judged": judged, **HARD}
    return Split(
        trace("history", history),
        trace("later", arrivals["judge"]),
        DAY,
        dict(HARD),
        law,
        # Draws of one day are in one part. Nothing else is held out.
        {"rows": (0, end), "validation": (cut, end)},
        days,
    )


@functools.cache
def volumes() -> Trace:
    """Return the whole days of the Twitter volumes, without capacity."""
    files = [TRACES / "nab" / f"Twitter_volume_{company}.csv" for company in COMPANIES]
    both = import_series(files, names=COMPANIES, name="twitter").trace
    day = both.steps_per_day
    assert day is not None
    return both.section(0, TWITTER_DAYS * day)


def twitter(split: int) -> Split:
    """Return the Twitter volumes: 10 days, and all days before them."""
    whole = volumes()
    day = whole.steps_per_day
    assert day is not None
    last = TWITTER_DAYS - (SPLITS - 1 - split) * TWITTER_LATER
    cut = (last - TWITTER_LATER) * day
    capacity = np.rint(HEADROOM * whole.arrivals[:cut].mean(axis=0)).astype(np.int64)

    def section(low: int, high: int) -> Trace:
        load = whole.arrivals[low:high]
        return Trace(
            nodes=whole.nodes,
            arrivals=load,
            capacity=np.tile(capacity, (len(load), 1)),
            times=whole.times[low:high],
            clock=whole.clock,
            name=f"twitter_{split}",
        )

    law = {"law": "Twitter", "history_days": cut // day, "capacity": capacity.tolist(), **HARD}
    return Split(
        section(0, cut), section(cut, last * day), day, dict(HARD), law, {"rows": (0, cut)}
    )
