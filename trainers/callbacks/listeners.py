"""Callbacks, metrics and sinks of a run during training."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from typing import Any

from corral.envs.core import Array
from corral.errors import CorralError
from corral.extensions import extension
from corral.text import pasted
from corral.trainers.base import Trainer
from corral.trainers.callbacks.evaluation import Evaluate
from corral.trainers.callbacks.metrics import Metrics
from corral.trainers.callbacks.protocol import (
    BeforeSave,
    Callback,
    Listener,
    blamed,
    callbacks_of,
    name_of,
)
from corral.trainers.callbacks.sinks import OURS, sinks_of
from corral.trainers.callbacks.stopping import StopWhen, bounds_of
from corral.trainers.observers import Observer

__all__ = ["Listeners", "RolloutObserver"]

OWN = ("corral.trainers.callbacks.", "corral.trainers.selfplay.")
"""Modules of corral's own callbacks: their errors are raised unchanged."""


class RolloutObserver(Observer):
    """Passes the rollouts of an in-house trainer to the callbacks of a session."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def on_rollout(self, rollout: Any) -> None:
        self.session.listeners.call("on_rollout", self.session, rollout)


class Listeners:
    """Callbacks, metrics and sinks from ``corral.train``.

    An error names the listener that raised it, see ``CallbackError``.
    """

    def __init__(
        self,
        callbacks: Iterable[Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        sinks: Iterable[Any] | None = None,
    ) -> None:
        """Raises TypeError, ValueError and UnknownNameError for invalid arguments."""
        self.callbacks = callbacks_of(() if callbacks is None else callbacks)
        self.metrics = Metrics(metrics)
        self.sinks = sinks_of(() if sinks is None else sinks)
        self.again = self.stops = ""  # command-line options that pass the same listeners again
        self.watch: Any = None  # see ``attach``
        self._begun: list[tuple[str, Any]] = []  # opened sinks, to be closed

    @classmethod
    def of(
        cls,
        callbacks: Iterable[Any] | None,
        metrics: Mapping[str, Any] | None,
        sinks: Iterable[Any] | None,
        stop: Iterable[str] | Mapping[str, float] | str = (),
        evaluate_every: int | None = None,
    ) -> Listeners:
        """Return listeners that include ``stop`` and ``evaluate_every`` of ``corral.train``."""
        stop = bounds_of(stop)
        more: list[Any] = [] if evaluate_every is None else [Evaluate(evaluate_every)]
        more += [StopWhen(text) for text in stop]
        own_callbacks = callbacks_of(() if callbacks is None else callbacks)
        listeners = cls([*own_callbacks, *more], metrics, sinks)
        texts = {"callback": callbacks, "sink": sinks, "evaluate-every": [evaluate_every]}
        texts["metric"] = [f"{k}={v}" for k, v in (metrics or {}).items() if isinstance(v, str)]
        listeners.again = "".join(
            f" --{option} {pasted(text)}"
            for option, values in texts.items()
            for text in values or ()
            if isinstance(text, str | int)
        )
        listeners.stops = "".join(f" --stop {pasted(text)}" for text in stop)
        return listeners

    def attach(self, learner: Trainer, trainer: str) -> None:
        """Connect metrics to the learner, and add the learner's callbacks and the warnings.

        Raises ValueError if the trainer cannot record whole episodes.
        """
        self.metrics.attach(learner, trainer)
        self.callbacks = callbacks_of([*self.callbacks, *learner.callbacks()])
        if importlib.util.find_spec("torch") and (watch := extension("observer.warnings")):
            self.watch = watch()

    def read(
        self, session: Any, row: dict[str, Any]
    ) -> tuple[dict[str, float | None], dict[str, Array]]:
        """Warn of faults in ``row`` and its update; return the result of ``Metrics.read``."""
        if self.watch is not None:
            self.watch.look(session, row)
        return self.metrics.read(session)

    @property
    def evaluates(self) -> bool:
        """True if the team is evaluated during training."""
        return any(isinstance(callback, Evaluate) for callback in self.callbacks)

    def missing(self, columns: Collection[str]) -> list[str]:
        """Describe the listeners that made ``columns`` of earlier rows and are missing now."""
        named = [name.removesuffix("_mean") for name in columns if name.endswith("_mean")]
        of_metrics = [n for n in named if {f"{n}_min", f"{n}_max"} <= set(columns)]
        messages = [
            f"continues without metric {name}; pass it again: --metric {name}=file.py:name "
            "(metrics=)"
            for name in of_metrics
            if name not in self.metrics.functions
        ]
        if not self.evaluates and any(name.startswith("validation_") for name in columns):
            messages.append(
                "continues without evaluations; pass them again: --evaluate-every (evaluate_every=)"
            )
        return messages

    def who(self, hook: str) -> list[Callback]:
        """Return the callbacks that override the method ``hook``."""
        base = getattr(Callback, hook)
        return [
            callback for callback in self.callbacks if getattr(type(callback), hook) is not base
        ]

    def call(self, hook: str, session: Any, *arguments: Any) -> None:
        """Call the method ``hook`` of all callbacks that override it."""
        for callback in self.who(hook):
            own = type(callback).__module__.startswith(OWN) and not isinstance(callback, Listener)
            with blamed(f"callback {name_of(callback)}, {hook}", session, own=own):
                getattr(callback, hook)(session, *arguments)
                if hook == "on_update":
                    _require_numbers(*arguments)

    def before_save(self, session: Any) -> None:
        """Let callbacks compare the current team with the best one before a save."""
        for callback in self.callbacks:
            if isinstance(callback, BeforeSave):
                callback.before_save(session)

    # --- Start and end of a session
    # ------------------------------------------------------------------

    def begin(self, session: Any) -> None:
        """Open the sinks, and call ``on_start`` of the callbacks."""
        for name, sink in self.sinks.items():
            with self._of_sink(name, session):
                sink.open(session.run.folder, session.config, session.statistics.updates)
            self._begun.append((name, sink))
        if self.watch is not None:
            self.watch.begin(session)
        self.call("on_start", session)

    def write(self, session: Any, row: Mapping[str, Any], values: Mapping[str, Array]) -> None:
        """Write a row to all sinks, progress.csv first."""
        for name, sink in self.sinks.items():
            with self._of_sink(name, session):
                sink.write(row, values)
            session.is_sound = True  # progress.csv is the first sink and has the row

    def end(self, session: Any) -> list[CorralError | OSError]:
        """Call ``on_end`` of the callbacks and close the sinks; return the errors."""
        faults: list[CorralError | OSError] = []
        try:
            self.call("on_end", session)
        except CorralError as error:
            faults.append(error)
        for name, sink in self._begun:
            try:
                with self._of_sink(name, session):
                    sink.close()
            except (CorralError, OSError) as error:
                faults.append(error)
        return faults

    def _of_sink(self, name: str, session: Any) -> contextlib.AbstractContextManager[None]:
        return blamed(f"sink {name}", session, own=name in dict(OURS))


def _require_numbers(row: dict[str, Any]) -> None:
    """Raise TypeError if a value of ``row`` is not a number or None, and remove it."""
    for name, value in list(row.items()):
        if not isinstance(name, str) or not (value is None or isinstance(value, Real)):
            del row[name]
            raise TypeError(f"column {name!r:.80} is {value!r:.80}: use a number or None")
