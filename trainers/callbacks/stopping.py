"""Callbacks that end training: at a bound on a column of progress.csv, or without progress."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from corral.envs.arguments import nonnegative_float, nonnegative_int
from corral.envs.core import generator, plays_as_arrays
from corral.errors import ListenerError, UnknownNameError
from corral.hints import meant
from corral.trainers.base import BUILT_IN
from corral.trainers.callbacks.protocol import Callback, resuming
from corral.trainers.criteria import Criterion

__all__ = ["EarlyStop", "StopWhen", "bounds_of"]


RLLIB = {
    "training_iteration": "updates",
    "timesteps_total": "env_steps",
    "num_env_steps_sampled": "env_steps",
    "num_env_steps_sampled_lifetime": "env_steps",
    "episodes_total": "episodes",
    "num_episodes_lifetime": "episodes",
    "time_total_s": "wall_s",
    "episode_return_mean": "return_team",
    "episode_reward_mean": "return_team",
    "episode_len_mean": "length",
}
"""RLlib's name of a metric -> column of progress.csv with the same meaning."""

RLLIB_GROUPS = ("env_runners/", "sampler_results/")
"""Groups of these metrics, which RLlib writes in front of the names."""


def bounds_of(stop: Iterable[str] | Mapping[str, float] | str) -> list[str]:
    """Return the bounds of ``stop`` of ``corral.train`` as texts, such as "return_team>=15".

    RLlib's form {"training_iteration": 5}, also as JSON, means at least this value.
    Raises ListenerError for any other form.
    """
    texts: Iterable[Any] = [stop] if isinstance(stop, str | Mapping) else stop
    bounds = list[str]()
    for text in texts:
        if isinstance(text, str) and text.lstrip().startswith("{"):
            with contextlib.suppress(ValueError):
                text = json.loads(text)
        if isinstance(text, Mapping):
            bounds += [f"{name}>={value}" for name, value in text.items()]
        elif isinstance(text, str):
            bounds.append(text)
        else:
            raise ListenerError(
                f"stop={stop!r:.80}: pass texts such as 'return_team>=15', or column -> number"
            )
    return bounds


class _OfColumn(Callback):
    """Base class for callbacks that read one required column."""

    order: ClassVar[int] = 1  # after the callbacks that add columns
    column: str

    def on_start(self, session: Any) -> None:
        """Raises UnknownNameError if the column can never exist."""
        if _cannot_be(self.column, session):
            if self.column.startswith("validation_") and not session.listeners.evaluates:
                raise UnknownNameError(
                    f"no column {self.column}: no evaluation is configured. Add "
                    "Evaluate(every) to the callbacks, or pass --evaluate-every (evaluate_every=)"
                )
            raise UnknownNameError.of("column of progress.csv", self.column, _known(session))

    def _require_column(self, session: Any, row: Mapping[str, Any]) -> bool:
        """Return True if ``row`` has the column. Raises UnknownNameError if no row will have it."""
        if self.column in row:
            return True
        if self.column.startswith("kpi_") and not row["episodes"]:
            return False  # the column appears with the first finished episode
        if self.column.startswith("validation_") and not _validated(session):
            return False  # ... or with the first evaluation, in third-party games
        unknown = UnknownNameError.of("column of progress.csv", self.column, row)
        raise UnknownNameError(f"{unknown}. {resuming(session)}")


class StopWhen(_OfColumn):
    """Ends training when a column meets a bound: ``StopWhen("return_team>=15")``.

    A row with an empty column does not meet the bound. RLlib's names of columns are accepted, such
    as "env_runners/episode_return_mean>=15".
    """

    def __init__(self, criterion: str) -> None:
        """Raises ValueError for an invalid ``criterion``."""
        parsed = Criterion.parse(criterion)
        name = parsed.name
        for group in RLLIB_GROUPS:
            name = name.removeprefix(group)
        self.criterion = replace(parsed, name=RLLIB.get(name, parsed.name))
        self.column = self.criterion.name

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        if self._require_column(session, row) and self.criterion.holds(row):
            session.stop(f"{self.criterion}: {self.column} is {row[self.column]:.6g}")


class EarlyStop(_OfColumn):
    """Ends training when a column has not improved in ``patience`` consecutive rows.

    Rows with an empty column do not count, so for a column of evaluations ``patience`` counts
    evaluations. A resumed run includes its earlier rows.
    """

    def __init__(
        self, column: str, patience: int, min_delta: float = 0.0, *, lower: bool = False
    ) -> None:
        """An improvement is an increase by more than ``min_delta``, or a decrease with
        ``lower``."""
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
                f"no improvement of {self.column} in {self.since} rows since its best value "
                f"{best:.6g} at {self.best_at:,} env steps"
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


def _validated(session: Any) -> bool:
    """Return True if an evaluation has been played."""
    return any(row.get("validation_return_learned") is not None for row in session.rows)


GROUPS = ("return_", "validation_")
"""Prefixes of columns that are all known before training."""


def _cannot_be(column: str, session: Any) -> bool:
    """Return True if a column is unknown and cannot appear later.

    A trainer's metrics and the columns of custom callbacks are only known after the first update.
    """
    columns = _known(session)
    only_corral = all(
        type(callback).__module__.startswith("corral.") for callback in session.listeners.callbacks
    )
    if column in columns or not only_corral or session.config.trainer not in BUILT_IN:
        return False
    infos = plays_as_arrays(session.config.env_config.rules())  # third-party kpis appear in play
    if not infos and column.startswith("validation_kpi_"):
        return False
    return column.startswith((*GROUPS, "kpi_") if infos else GROUPS) or bool(meant(column, columns))


def _known(session: Any) -> list[str]:
    """Return the columns that are known before training.

    Unknown are the trainer's metrics and undeclared columns of callbacks.
    """
    rules: Any = session.config.env_config.rules()
    info = rules.info(rules.start([generator(0, "env")])) if plays_as_arrays(rules) else {}
    kpis = [f"kpi_{name}" for name in info]
    added_columns = [name for callback in session.listeners.callbacks for name in callback.columns]
    return [*session.statistics.columns, *kpis, *session.listeners.metrics.columns, *added_columns]
