"""The tables of a comparison for the terminal, for 80 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.table import Table

from corral.trainers.evaluation.tables import table_of
from corral.trainers.study.comparing.comparison import Comparison

__all__ = ["comparison_tables", "cut"]

NAME = 20
"""Letters of a group's name."""


def comparison_tables(comparison: Comparison) -> Iterator[Table | str]:
    """Yield the groups, every two of them, and the sentences that belong to the numbers."""
    yield _groups(comparison)
    yield f"Score: {comparison.metric}; higher is better. IQM: interquartile mean over runs."
    yield _pairs(comparison)
    level = comparison.pairs[0].level
    yield (
        f"P: how likely a run of the first scores more, ties half. [ ]: {100 * level:.4g} % "
        "intervals. p: of a permutation test."
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
    table = table_of("", ["IQM higher by", "P", "p"])
    for pair in comparison.pairs:
        sign = "better than" if pair.found == "better" else "beside"
        table.add_row(
            f"{cut(pair.better)}\n{sign} {cut(pair.other)}",
            f"{_number(pair.difference)}\n{_interval(*pair.interval)}",
            f"{pair.probability:.2f}\n{_interval(*pair.probability_interval)}",
            f"{pair.p:.2g}\n",
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
