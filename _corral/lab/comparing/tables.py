"""The tables of a comparison for the terminal, for 80 columns."""

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
"""Letters of a group's name."""

PAIR = 24
"""Letters of two names in one line."""


def comparison_tables(comparison: Comparison) -> Iterator[Table | str]:
    """Yield the groups, every two of them, and the sentences that belong to the numbers."""
    yield _groups(comparison)
    yield f"Score: {comparison.metric}; higher is better. IQM: interquartile mean over runs."
    yield _pairs(comparison)
    yield (
        "Difference: of IQMs. P: how likely a run of the first scores more, ties half. p: of a "
        "permutation test."
    )
    yield from comparison.notes


def _groups(comparison: Comparison) -> Table:
    table = table_of("group", ["runs", "IQM", "95 % interval", "least", "most"])
    for name, row in comparison.table.iterrows():
        numbers = [_number(row[key]) for key in ("min", "max")]
        interval = _interval(row["low"], row["high"])
        table.add_row(cut(str(name)), f"{row['runs']:.0f}", _number(row["iqm"]), interval, *numbers)
    return table


def _pairs(comparison: Comparison) -> Table:
    level = 100 * comparison.pairs[0].level
    table = table_of("", ["difference", f"{level:.4g} % interval", "P", "p"])
    for pair in comparison.pairs:
        both = f"{cut(pair.better)} - {cut(pair.other)}"
        table.add_row(
            both if len(both) <= PAIR else both.replace(" - ", " -\n", 1),
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
    """Return the name of a group as tables and pictures have room for it."""
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"
