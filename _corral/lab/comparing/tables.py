"""Tables of a comparison for a terminal with 80 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table

from corral.trainers.evaluation.tables import table_of

if TYPE_CHECKING:
    from corral.lab.comparing.comparison import Comparison

__all__ = ["comparison_tables", "cut"]

NAME = 20
"""Maximum characters of a group's name."""

PAIR = 24
"""Maximum characters of two names on one line."""


def comparison_tables(comparison: Comparison) -> Iterator[Table | str]:
    """Yield the table of groups, the table of pairs, and the notes that explain the numbers."""
    yield _groups(comparison)
    yield f"Score: {comparison.metric}; higher is better. IQM: interquartile mean over runs."
    yield _pairs(comparison)
    yield (
        "Difference: difference of the IQMs. P: probability that a run of the first group scores "
        "higher, ties counted half. p: p-value of a permutation test."
    )
    yield from comparison.notes


def _groups(comparison: Comparison) -> Table:
    table = table_of("group", ["runs", "IQM", "95 % interval", "min", "max"])
    for name, row in comparison.table.iterrows():
        numbers = [_number(row[key]) for key in ("min", "max")]
        interval = _interval(row["low"], row["high"])
        table.add_row(cut(str(name)), f"{row['runs']:.0f}", _number(row["iqm"]), interval, *numbers)
    return table


def _pairs(comparison: Comparison) -> Table:
    level = 100 * comparison.pairs[0].level
    table = table_of("", ["difference", f"{level:.4g} % interval", "P", "p"])
    for pair in comparison.pairs:
        names = f"{cut(pair.better)} - {cut(pair.other)}"
        table.add_row(
            names if len(names) <= PAIR else names.replace(" - ", " -\n", 1),
            _number(pair.difference),
            _interval(*pair.interval),
            f"{pair.probability:.2f}",
            f"{pair.p:.2g}",
        )
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e8 else f"{value:.4g}"


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None or math.isnan(low):
        return "-"
    return f"[{_number(low)}, {_number(high)}]"


def cut(name: str) -> str:
    """Return a group's name, cut to the space in tables and pictures."""
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"
