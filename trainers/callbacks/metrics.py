"""Custom metrics: a number per whole episode, as columns of progress.csv.

def blocked(episode):
    return episode.info["blocked"].sum()

corral.train("arena_v0", metrics={"blocked": blocked})
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.episode_stats import EpisodeRecord, EpisodeRecorder
from corral.errors import CheckpointError, ListenerError, UnknownNameError
from corral.trainers.base import Trainer
from corral.trainers.callbacks.protocol import blamed, made_of

__all__ = ["Metrics"]

NAME = re.compile(r"[A-Za-z0-9_]{1,60}", flags=re.ASCII)
OF_EACH: dict[str, Callable[[Array], Any]] = {"mean": np.mean, "min": np.min, "max": np.max}


class Metrics:
    """Functions of an ``EpisodeRecord``, with mean, min and max over the episodes of an update.

    A function returns a number, or None to skip an episode.
    """

    def __init__(self, functions: Mapping[str, Any] | None) -> None:
        """Raises ValueError for an invalid name and ListenerError for an invalid function.

        A function can be given as "my_file.py:f".
        """
        if not isinstance(functions or {}, Mapping):
            raise ListenerError(f"metrics={functions!r:.80}: pass name -> function of an episode")
        self.functions: dict[str, Callable[..., Any]] = {}
        self.recorder: EpisodeRecorder | None = None
        for name, function in (functions or {}).items():
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise ValueError(
                    f"metric {name!r:.80}: use a name of 1 to 60 of a-z, A-Z, 0-9 and _"
                )
            resolved = made_of(function, f"metric {name}", object)
            if not callable(resolved):
                raise ListenerError(
                    f"metric {name}={function!r:.80}: pass a function of an episode"
                )
            self.functions[name] = resolved

    @property
    def columns(self) -> list[str]:
        return [f"{name}_{statistic}" for name in self.functions for statistic in OF_EACH]

    def attach(self, learner: Trainer, trainer: str) -> None:
        """Record whole episodes. Raises ValueError if the trainer does not support it."""
        if not self.functions:
            return
        if not learner.wrap_batches(self._recorded):
            raise ValueError(
                f"metrics={list(self.functions)}: trainer {trainer} cannot record whole "
                "episodes. Use mappo, ippo, or an sb3 trainer with vec_env='batch'. The values of "
                "the "
                "environment's info are in progress.csv without a metric: kpi_<name>"
            )
        self.recorder = EpisodeRecorder(learner.rules.agents, learner.settings.num_envs)
        if learner.casting is not None:
            self.recorder.players_in = learner.casting.players_in

    def _recorded(self, batch: Any) -> Any:
        return batch if self.recorder is None else self.recorder.wrap(batch)

    def read(self, session: Any) -> tuple[dict[str, float | None], dict[str, Array]]:
        """Return columns for the episodes that ended since the last call, and all values by metric.

        Raises CallbackError that names the metric.
        """
        records = self.recorder.ended() if self.recorder else []
        row: dict[str, float | None] = {}
        values: dict[str, Array] = {}
        for name, function in self.functions.items():
            with blamed(f"metric {name}", session):
                numbers = [_value(function, record) for record in records]
            valid = values[name] = np.array([v for v in numbers if v is not None], dtype=np.float64)
            for statistic, of in OF_EACH.items():
                row[f"{name}_{statistic}"] = float(of(valid)) if len(valid) else None
        return row, values

    # --- Checkpoints
    # ---------------------------------------------------------------------------------

    def save(self) -> dict[str, Array]:
        """Return the steps of unfinished episodes."""
        return self.recorder.save() if self.recorder else {}

    def load(self, saved: Mapping[str, Array]) -> int:
        """Restore the state from ``save``; return the number of environment copies to skip.

        There the running episode does not count, because its start is unknown. Raises
        CheckpointError.
        """
        if self.recorder is None:
            return 0
        try:
            self.recorder.load(saved)
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"the saved episodes belong to another environment: {error}"
            ) from error
        return self.recorder.waiting


def _value(function: Callable[..., Any], record: EpisodeRecord) -> float | None:
    """Return a metric's number for an episode.

    Raises the function's own exceptions, and TypeError or ValueError for an invalid result.
    """
    try:
        value = function(record)
    except KeyError as error:
        if not error.args or error.args[0] in record.info:
            raise
        unknown = UnknownNameError.of("info", str(error.args[0]), record.info)
        raise unknown.with_traceback(error.__traceback__) from error
    if value is None:
        return None
    try:
        if isinstance(value, str | bytes) or np.ndim(value):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        code = getattr(function, "__code__", None)
        place = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
        raise TypeError(f"returned {value!r:.80}{place}; return a number or None") from None
    if not math.isfinite(number):
        raise ValueError(f"returned {number}; return None to skip an episode")
    return number
