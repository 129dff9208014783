"""Callbacks that end training: at a bound on a column of progress.csv, or without progress."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from corral.envs.arguments import nonnegative_float, nonnegative_int
from corral.envs.core import generator, plays_as_arrays
from corral.errors import UnknownNameError
from corral.hints import meant
from corral.trainers.base import BUILT_IN
from corral.trainers.callbacks.protocol import Callback, resuming
from corral.trainers.criteria import Criterion

__all__ = ["EarlyStop", "StopWhen"]


class _OfColumn(Callback):
    """Looks at one column, which there must be."""

    order: ClassVar[int] = 1  # what the others add to a row is there
    column: str

    def on_start(self, session: Any) -> None:
        """Raises UnknownNameError where it is sure that there is no such column."""
        if _cannot_be(self.column, session):
            if self.column.startswith("validation_") and not session.listeners.evaluates:
                raise UnknownNameError(
                    f"no column {self.column}: nothing evaluates while training; add "
                    "Evaluate(every) to the callbacks, or give --evaluate-every (evaluate_every=)"
                )
            raise UnknownNameError.of("column of progress.csv", self.column, _known(session))

    def _require_column(self, session: Any, row: Mapping[str, Any]) -> bool:
        """Return whether ``row`` has it. Raises UnknownNameError where none ever will."""
        if self.column in row:
            return True
        if self.column.startswith("kpi_") and not row["episodes"]:
            return False  # it comes with the first episode that ends
        unknown = UnknownNameError.of("column of progress.csv", self.column, row)
        raise UnknownNameError(f"{unknown}. {resuming(session)}")


class StopWhen(_OfColumn):
    """Ends training when a column meets a bound: ``StopWhen("return_team>=15")``.

    Rows in which the column is empty meet none.
    """

    def __init__(self, criterion: str) -> None:
        """Raises ValueError where ``criterion`` is none."""
        self.criterion = Criterion.parse(criterion)
        self.column = self.criterion.name

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        if self._require_column(session, row) and self.criterion.holds(row):
            session.stop(f"{self.criterion}: {self.column} is {row[self.column]:.6g}")


class EarlyStop(_OfColumn):
    """Ends training when a column has not got better in ``patience`` rows in a row.

    Rows in which it is empty do not count: patience with a column of an evaluation counts
    evaluations. A run that goes on remembers the rows before.
    """

    def __init__(
        self, column: str, patience: int, min_delta: float = 0.0, *, lower: bool = False
    ) -> None:
        """Better is higher by more than ``min_delta``; or lower, where ``lower`` is set."""
        self.column, self.lower = column, bool(lower)
        self.patience = nonnegative_int("patience", patience, least=1)
        self.min_delta = nonnegative_float("min_delta", min_delta)

    def on_start(self, session: Any) -> None:
        super().on_start(session)
        self.best, self.best_at, self.since = -math.inf, 0, 0
        for row in session.rows:
            self._take(row)

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        if self._require_column(session, row):
            self._take(row)
        if self.since >= self.patience:
            best = -self.best if self.lower else self.best
            session.stop(
                f"{self.column} was best at {self.best_at:,} env steps, {best:.6g}, and not better "
                f"in {self.since} rows since"
            )

    def _take(self, row: Mapping[str, Any]) -> None:
        value = row.get(self.column)
        if value is None:
            return
        value = -value if self.lower else value
        if value > self.best + self.min_delta or self.best == -math.inf:
            self.best, self.best_at, self.since = value, int(row["env_steps"]), 0
        else:
            self.since += 1


GROUPS = ("return_", "validation_")
"""How columns begin that are all known before training."""


def _cannot_be(column: str, session: Any) -> bool:
    """Return whether a column is unknown, and nobody can bring it later.

    A trainer's metrics are known after the first update alone, and so is what a callback adds.
    """
    known = _known(session)
    own = all(type(each).__module__.startswith("corral.") for each in session.listeners.callbacks)
    if column in known or not own or session.config.trainer not in BUILT_IN:
        return False
    infos = plays_as_arrays(session.config.env_config.rules())  # of others they come in play
    return column.startswith((*GROUPS, "kpi_") if infos else GROUPS) or bool(meant(column, known))


def _known(session: Any) -> list[str]:
    """Return the columns that are known before training: all but the trainer's metrics, and what
    callbacks add without saying so."""
    rules: Any = session.config.env_config.rules()
    info = rules.info(rules.start([generator(0, "env")])) if plays_as_arrays(rules) else {}
    kpis = [f"kpi_{name}" for name in info]
    added = [name for callback in session.listeners.callbacks for name in callback.columns]
    return [*session.statistics.columns, *kpis, *session.listeners.metrics.columns, *added]
