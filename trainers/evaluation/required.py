"""Criteria for an evaluation: ``corral evaluate RUN --require 'served>=0.95'``.

A criterion bounds a column of results.json in the first row of the run: ``return_team``,
``served``, ``returns.node_0``, ``kpis.lost``. This row is greedy play, unless the run plays with
sampled actions. ``served.low`` is the lower end of the interval of ``served``. A zero-sum game has
one such row per seat and opponent; the criterion must hold in all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.trainers.criteria import Criterion
from corral.trainers.evaluation.scores import Evaluation, figures_of, with_ends

__all__ = ["Required", "column_names", "criteria_of", "require_columns", "required"]


@dataclass(frozen=True)
class Required:
    """A criterion and the value of its column."""

    criterion: str
    value: float | None  # the worst value over all rows; None: the value is missing
    holds: bool
    where: str = ""  # in a zero-sum game: the seat and the opponent

    def __str__(self) -> str:
        text = "the value is missing" if self.value is None else f"{self.value:.6g}"
        where = f", {self.where}" if self.where else ""
        return f"{self.criterion} {'holds' if self.holds else 'does not hold'}: {text}{where}"


SHARES = (
    *("served", "lost", "forwarded", "share_of_optimum", "won", "drawn"),
    *("served_low", "served_high", "lost_by_node", "forwarded_by_node"),
)
"""Columns that are shares, or mappings of shares."""


def criteria_of(require: str | Iterable[str]) -> list[Criterion]:
    """Parse one or several criteria. Raises ValueError."""
    return [Criterion.parse(text) for text in ([require] if isinstance(require, str) else require)]


def column_names(row: type, parts: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names of the numeric columns of a row dataclass.

    ``parts`` lists the keys of columns that are mappings: ``returns`` -> agents.
    """
    names: list[str] = []
    for column in dataclasses.fields(row):
        kind = str(column.type)
        if kind.startswith("dict"):
            names += [f"{column.name}.{key}" for key in parts.get(column.name, ())]
        elif kind != "str":
            names.append(column.name)
    return list(with_ends(dict.fromkeys(names)))


def require_columns(
    criteria: Iterable[Criterion], known: Sequence[str], unknown: Sequence[str] = ()
) -> None:
    """Check the columns of criteria.

    Raises UnknownNameError, with the closest name, for a column that is not in ``known``. Raises
    ValueError for a bound above 1 on a share. Columns in ``unknown``, such as ``kpis``, are not
    checked: their keys are only known after playing.
    """
    for criterion in criteria:
        if criterion.name.partition(".")[0] not in unknown:
            criterion.require_known(known)
        if criterion.name.partition(".")[0] in SHARES and criterion.bound > 1:
            raise ValueError(
                f"criterion {str(criterion)!r}: {', '.join(s for s in SHARES if s in known)} are "
                "shares between 0 and 1. Write 5 % as 0.05"
            )


def required(evaluation: Evaluation, policy: str, criteria: Iterable[Criterion]) -> list[Required]:
    """Return the result of each criterion in the rows of ``policy``.

    Raises UnknownNameError if the rows do not have its column.
    """
    rows = [row for row in evaluation if row.policy == policy]
    return [_worst(criterion, rows) for criterion in criteria]


def _worst(criterion: Criterion, rows: Sequence[Any]) -> Required:
    results = []
    for row in rows:
        figures = figures_of(row)
        criterion.require_known(figures)
        seat = getattr(row, "seat", None)
        place = "" if seat is None else f"{seat} against {row.opponent}"
        results.append(
            Required(str(criterion), criterion.value(figures), criterion.holds(figures), place)
        )
    sign = -1 if criterion.operator.startswith("<") else 1
    return min(results, key=lambda one: (one.value is not None, sign * (one.value or 0.0)))
