"""Requirements on an evaluation: ``corral evaluate RUN --require 'served>=0.95'``.

A criterion bounds a column of results.json in the row of the run's greedy play: ``return_team``,
``served``, ``returns.node_0``, ``kpis.lost``; ``served.low`` is the lower end of its interval. In a
zero-sum game there are several such rows, and it must hold in each: in every seat, against every
opponent.
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
    """A criterion, and the figure that was found."""

    criterion: str
    value: float | None  # the one that is furthest from holding; None: there is none
    holds: bool
    where: str = ""  # in a zero-sum game: the seat and the opponent

    def __str__(self) -> str:
        found = "there is no such figure" if self.value is None else f"{self.value:.6g}"
        where = f", {self.where}" if self.where else ""
        return f"{self.criterion} {'holds' if self.holds else 'does not hold'}: {found}{where}"


SHARES = (
    *("served", "lost", "forwarded", "share_of_optimum", "won", "drawn"),
    *("served_low", "served_high", "lost_by_node", "forwarded_by_node"),
)
"""Columns of shares, and those whose parts are."""


def criteria_of(require: str | Iterable[str]) -> list[Criterion]:
    """Return the criteria of one text or several. Raises ValueError."""
    return [Criterion.parse(text) for text in ([require] if isinstance(require, str) else require)]


def column_names(row: type, parts: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the columns of numbers that rows of this dataclass have.

    ``parts`` names the keys of columns that are mappings: ``returns`` -> agents.
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
    """Raise UnknownNameError, with the nearest name, for what is none of the ``known`` columns, and
    ValueError for a bound above 1 on a share.

    ``unknown`` columns have parts whose names show while they are played, such as ``kpis``.
    """
    for criterion in criteria:
        if criterion.name.partition(".")[0] not in unknown:
            criterion.require_known(known)
        if criterion.name.partition(".")[0] in SHARES and criterion.bound > 1:
            raise ValueError(
                f"criterion {str(criterion)!r}: {', '.join(s for s in SHARES if s in known)} are "
                "shares of 0 to 1; 5 % is 0.05"
            )


def required(evaluation: Evaluation, policy: str, criteria: Iterable[Criterion]) -> list[Required]:
    """Return what was found of each criterion in the rows of ``policy``.

    Raises UnknownNameError where the rows have no such column.
    """
    rows = [row for row in evaluation if row.policy == policy]
    return [_found(criterion, rows) for criterion in criteria]


def _found(criterion: Criterion, rows: Sequence[Any]) -> Required:
    found = []
    for row in rows:
        figures = figures_of(row)
        criterion.require_known(figures)
        seat = getattr(row, "seat", None)
        where = "" if seat is None else f"{seat} against {row.opponent}"
        found.append(
            Required(str(criterion), criterion.value(figures), criterion.holds(figures), where)
        )
    sign = -1 if criterion.operator.startswith("<") else 1
    return min(found, key=lambda each: (each.value is not None, sign * (each.value or 0.0)))
