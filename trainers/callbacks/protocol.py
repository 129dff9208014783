"""The protocol of callbacks, and what goes wrong in them.

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
    """What is called while a run is trained; override what you need, the rest does nothing.

    ``session`` is the ``corral.trainers.Session`` that trains: its ``run``, ``env_steps``,
    ``policies``, ``evaluate()``, ``save()`` and ``stop("why")``. Numbers do not depend on callbacks
    that only look on. An error ends training, and the run is saved.
    """

    order: ClassVar[int] = 0
    """Callbacks of a lower order are called first; of the same, in the order in which they are
    given. What evaluates has -1, what stops has 1."""

    keeps_plan: ClassVar[bool] = False
    """True for those without which a run of ``from_rule`` must not go on."""

    columns: tuple[str, ...] = ()
    """What it adds to the rows, where that is known before."""

    def on_start(self, session: Any) -> None:
        """Before the first update of a run, and of one that goes on."""

    def on_rollout(self, session: Any, rollout: Any) -> None:
        """After a rollout was played, before it is learned from.

        ``rollout`` is a ``corral.trainers.on_policy.buffer.RolloutBuffer``. Only trainers that are
        made in house have one.
        """

    def on_episode(self, session: Any, episode: Episode) -> None:
        """For each episode that ended in an update; ``episode`` has returns, length, kpis and
        players: agent -> the snapshot that played it, see ``corral.Pool``."""

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        """After an update. ``row`` is about to be written to progress.csv: numbers that are added
        here become columns, None an empty cell."""

    def on_evaluation(self, session: Any, evaluation: Evaluation) -> None:
        """After ``session.evaluate``, whoever called it."""

    def on_end(self, session: Any) -> None:
        """When the run is saved, however training ended."""


class BeforeSave(Callback):
    """A callback of corral's own that compares this moment with the best before it is saved."""

    def before_save(self, session: Any) -> None:
        """Called by every ``session.save``, before anything is written."""


class Listener(Callback):
    """A function that is called with each row."""

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self.function = function

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        self.function(row)


HOOKS = [name for name in vars(Callback) if name.startswith("on_")]


def callbacks_of(given: Iterable[Any]) -> list[Callback]:
    """Return callbacks in the order in which they are called.

    Each is one, a class of them without arguments, a function(row), or what names one of these:
    "my_file.py:Name". Raises ListenerError for what is none, and for a method like ``on_updates``,
    which nobody would call; UnknownNameError where a text names nothing.
    """
    if isinstance(given, str | Callback) or not isinstance(given, Iterable):
        raise ListenerError(
            f"callbacks={given!r:.80}: give a list, such as callbacks=[MyCallback()]"
        )
    return sorted((_callback(one) for one in given), key=lambda callback: callback.order)


def _callback(given: Any) -> Callback:
    made = made_of(given, "callback", Callback)
    one: Callback = made if isinstance(made, Callback) else Listener(made)
    if one is not made and not callable(made):
        raise ListenerError(
            f"callback {given!r:.80} is of {type(made).__name__}: give a corral.Callback, a "
            "class of them, or a function that takes a row"
        )
    for name in dir(one):
        if name.startswith("on_") and name not in HOOKS:
            raise ListenerError(
                f"callback {name_of(one)} has {name}, which is never called{hint(name, HOOKS)} "
                f"Called are {', '.join(HOOKS)}"
            )
    return one


def made_of(given: Any, kind: str, base: type) -> Any:
    """Return what a text names; of a class, an instance. Raises ListenerError, UnknownNameError."""
    found = named_object(given, kind) if isinstance(given, str) else given
    if not isinstance(found, type):
        return found
    if base is Callback and not issubclass(found, base):
        raise ListenerError(f"{kind} {given}: {found.__name__} is no class of corral.Callback")
    try:
        return found()
    except TypeError as error:
        raise ListenerError(
            f"{kind} {given}: {error}. Give an object instead of the class: one that is made in "
            f"the file can be named, too"
        ) from error


def name_of(callback: Any) -> str:
    """Return what a callback is called in errors."""
    one = callback.function if isinstance(callback, Listener) else callback
    return str(getattr(one, "__qualname__", type(one).__qualname__))


# --- Errors --------------------------------------------------------------------------------------


@contextlib.contextmanager
def blamed(what: str, session: Any, *, own: bool = False) -> Iterator[None]:
    """Raise CallbackError that says ``what`` raised, when, and where; ``own``: it is of corral."""
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
    """Return how to go on when a mistake is mended; "" where nothing was learned yet."""
    if not session.statistics.updates:
        return "Nothing was trained"
    return f"Mend it, and go on with: {again(session)}"


def again(session: Any, *, stops: bool = True) -> str:
    """Return the command that goes on with a run, with what was given as text; without ``stops``,
    of which one was met, and would be met at once."""
    given = session.listeners
    words = given.again + given.stops * stops
    return f"corral train --resume {session.config.named(session.run.folder)}{words}"


def _place(error: Exception) -> str:
    """Return the line of the user's own code that an error comes from, in brackets."""
    ours = str(Path(__file__).parents[1])
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<frozen")) and "lib/python" not in frame.filename
    ]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
