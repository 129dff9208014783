"""The callback protocol, and the handling of errors in callbacks.

class Shout(corral.Callback):
    def on_update(self, session, row):
        print(row["return_team"])

corral.train("arena_v0", callbacks=[Shout()])
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from corral.envs.episode_stats import Episode
from corral.errors import CallbackError, ListenerError
from corral.hints import hint
from corral.named import named_object

if TYPE_CHECKING:
    from corral.trainers.evaluation.scores import Evaluation

__all__ = ["Callback", "again", "blamed", "callbacks_of", "made_of", "resuming"]


class Callback:
    """Base class of callbacks during training; override the methods that you need.

    ``session`` is the ``corral.trainers.Session`` of the run: its ``run``, ``env_steps``,
    ``policies``, ``evaluate()``, ``save()`` and ``stop("why")``. A callback that only observes does
    not change results. An error in a callback ends training, and the run is saved.
    """

    order: ClassVar[int] = 0
    """Callbacks with a lower order are called first; callbacks with equal order keep their given
    order. Evaluation has order -1, stopping has 1."""

    keeps_plan: ClassVar[bool] = False
    """True if a ``from_rule`` run must not continue without this callback."""

    columns: tuple[str, ...] = ()
    """Columns that the callback adds to rows, if they are known in advance."""

    def on_start(self, session: Any) -> None:
        """Called before the first update of a new or resumed run."""

    def on_rollout(self, session: Any, rollout: Any) -> None:
        """Called after a rollout, before training on it.

        ``rollout`` is a ``corral.trainers.on_policy.buffer.RolloutBuffer``. Only in-house trainers
        call this method.
        """

    def on_episode(self, session: Any, episode: Episode) -> None:
        """Called for each episode that ended in an update.

        ``episode`` has returns, length, kpis and players: agent -> the snapshot that played it, see
        ``corral.Pool``.
        """

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        """Called after an update, before ``row`` is written to progress.csv.

        Numbers added to ``row`` become columns; None becomes an empty cell.
        """

    def on_evaluation(self, session: Any, evaluation: Evaluation) -> None:
        """Called after every ``session.evaluate``."""

    def on_end(self, session: Any) -> None:
        """Called when the run is saved at the end of training, also after an error."""


class BeforeSave(Callback):
    """A callback of corral that compares the team with the best one before each save."""

    def before_save(self, session: Any) -> None:
        """Called by every ``session.save``, before it writes."""


class Listener(Callback):
    """A function that is called with each row."""

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self.function = function

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        self.function(row)


HOOKS = [name for name in vars(Callback) if name.startswith("on_")]


def callbacks_of(given: Iterable[Any]) -> list[Callback]:
    """Return callbacks in calling order.

    An item is a callback, a callback class without arguments, a function(row), or a name of one:
    "my_file.py:Name". Raises ListenerError for an invalid item, and for a method such as
    ``on_updates`` that is never called; UnknownNameError for an unknown name.
    """
    if isinstance(given, str | Callback) or not isinstance(given, Iterable):
        raise ListenerError(
            f"callbacks={given!r:.80}: pass a list, such as callbacks=[MyCallback()]"
        )
    return sorted((_callback(item) for item in given), key=lambda callback: callback.order)


def _callback(given: Any) -> Callback:
    made = made_of(given, "callback", Callback)
    callback: Callback = made if isinstance(made, Callback) else Listener(made)
    if callback is not made and not callable(made):
        raise ListenerError(
            f"callback {given!r:.80} is of {type(made).__name__}: pass a corral.Callback, a "
            "subclass of it, or a function that takes a row"
        )
    for name in dir(callback):
        if name.startswith("on_") and name not in HOOKS:
            raise ListenerError(
                f"callback {name_of(callback)} has {name}, which is never "
                f"called{hint(name, HOOKS)} "
                f"The supported methods are {', '.join(HOOKS)}"
            )
    return callback


def made_of(given: Any, kind: str, base: type) -> Any:
    """Return the named object, or an instance if it is a class.

    Raises ListenerError, UnknownNameError.
    """
    resolved = named_object(given, kind) if isinstance(given, str) else given
    if not isinstance(resolved, type):
        return resolved
    if base is Callback and not issubclass(resolved, base):
        raise ListenerError(f"{kind} {given}: {resolved.__name__} is not a corral.Callback class")
    try:
        return resolved()
    except TypeError as error:
        raise ListenerError(
            f"{kind} {given}: {error}. Pass an object instead of the class; a name such as "
            f"my_file.py:name may also refer to an object"
        ) from error


def name_of(callback: Any) -> str:
    """Return the name of a callback for error messages."""
    target = callback.function if isinstance(callback, Listener) else callback
    return str(getattr(target, "__qualname__", type(target).__qualname__))


# --- Errors --------------------------------------------------------------------------------------


@contextlib.contextmanager
def blamed(what: str, session: Any, *, own: bool = False) -> Iterator[None]:
    """Raise CallbackError with the listener ``what``, the time and the place of an exception.

    ``own``: the listener is corral's, and its exceptions are raised unchanged.
    """
    try:
        yield
    except Exception as error:
        if own or isinstance(error, CallbackError):
            raise
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise CallbackError(
            f"{what}, {session.moment}: {text}{_place(error)}. {resuming(session)}"
        ) from error


def resuming(session: Any) -> str:
    """Return the next step after an error is corrected, for the end of a message."""
    if not session.statistics.updates:
        return "No update was trained"
    return f"Correct the error, then resume with: {again(session)}"


def again(session: Any, *, stops: bool = True) -> str:
    """Return the command that resumes a run with the same listeners.

    Without ``stops`` it omits the stop criteria, because one is met already.
    """
    listeners = session.listeners
    words = listeners.again + listeners.stops * stops
    return f"corral train --resume {session.config.named(session.run.folder)}{words}"


def _place(error: Exception) -> str:
    """Return the location in the user's own code that raised an error, in parentheses."""
    ours = str(Path(__file__).parents[1])
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<frozen")) and "lib/python" not in frame.filename
    ]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
