"""Running games that can be copied: by ``pickle``, ``copy.deepcopy``, or the same actions again.

``corral.adapters.snapshots.forks`` has the last way, a fork of the process.
"""

from __future__ import annotations

import copy
import copyreg
import io
import pickle
import weakref
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle

from corral.adapters.zoo.batch import ZooRules
from corral.adapters.zoo.copies import Actions, CopyStep, Observed, ZooCopy, make_copy
from corral.adapters.zoo.spec import ZooSpec
from corral.errors import CorralError

__all__ = ["Deepcopy", "Game", "LocalGame", "Pickled", "Replay", "SnapshotError", "Way"]


class SnapshotError(CorralError, RuntimeError):
    """A game cannot be copied in this way."""


class Game(ABC):
    """One environment in an episode."""

    look: Observed  # the current observations

    @abstractmethod
    def begin(self, rng: np.random.Generator) -> Observed:
        """Begin an episode with chance from ``rng``, see ``ZooCopy.reset``."""

    @abstractmethod
    def play(self, actions: Actions) -> CopyStep:
        """Play the actions of the acting agents."""

    @abstractmethod
    def copy(self) -> Game:
        """Return a game in the same state. Raises any error of the environment."""


class Way(ABC):
    """A way to copy games of one environment."""

    name: ClassVar[str]
    max_games: ClassVar[int]
    """Number of games that run at the same time, to limit memory and processes."""

    @abstractmethod
    def make(self) -> Game:
        """Return a new game, before its first episode."""

    def require(self, game: Game) -> None:
        """Raise SnapshotError if ``game``, after some steps, must not be copied in this way."""
        return

    @abstractmethod
    def close(self) -> None:
        """Close unused environments and end processes."""


# --- pickle --------------------------------------------------------------------------------------


class LocalGame(Game):
    """A game in this process."""

    def __init__(self, env: ZooCopy) -> None:
        self._env = env

    def begin(self, rng: np.random.Generator) -> Observed:
        self.look = self._env.reset(rng)
        return self.look

    def play(self, actions: Actions) -> CopyStep:
        moved = self._env.play(actions)
        self.look = moved.look
        return moved


class PickledGame(LocalGame):
    """A game in this process, which is copied by its data."""

    _pickled: tuple[bytes, list[Any]] | None = None  # of the current state

    def begin(self, rng: np.random.Generator) -> Observed:
        self._pickled = None
        return super().begin(rng)

    def play(self, actions: Actions) -> CopyStep:
        self._pickled = None
        return super().play(actions)

    def copy(self) -> Game:
        twin = PickledGame(_Unpickler(*self._data()).load())
        twin.look = self.look
        return twin

    def data(self) -> bytes:
        """Return the pickled environment, without the sums that do not affect its future."""
        return self._data()[0]

    def _data(self) -> tuple[bytes, list[Any]]:
        """Return the pickled environment, and the objects that its copies share."""
        if self._pickled is None:
            data = io.BytesIO()
            pickler = _Pickler(data, pickle.HIGHEST_PROTOCOL)
            pickler.shared = []
            pickler.dump(self._env.without_sums())
            self._pickled = data.getvalue(), pickler.shared
        return self._pickled


class _Pickler(pickle.Pickler):
    """Pickles the attributes of EzPickle objects, which else pickle as new environments.

    Copies share the spec and the spaces, by their number and text. Surfaces of pygame are blank and
    clocks new, so an environment that observes what it draws fails the proof.
    """

    shared: list[Any]

    def persistent_id(self, value: Any) -> tuple[int, str] | None:
        is_space = isinstance(value, spaces.Space)
        if not (isinstance(value, ZooSpec) or (is_space and _is_fixed(value))):
            return None
        number = next((i for i, one in enumerate(self.shared) if one is value), len(self.shared))
        if number == len(self.shared):
            self.shared.append(value)
        return number, repr(value) if is_space else ""

    def reducer_override(self, value: Any) -> Any:
        kind: Any = type(value)
        if isinstance(value, EzPickle) and kind.__getstate__ is EzPickle.__getstate__:
            return copyreg.__newobj__, (kind,), vars(value), None, None, _set_attributes  # type: ignore[attr-defined]
        if kind.__module__.startswith("pygame"):
            if kind.__name__ == "Surface":
                return kind, (value.get_size(),)
            if kind.__name__ == "Clock":
                return kind, ()
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, shared: list[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._shared = shared

    def persistent_load(self, key: tuple[int, str]) -> Any:
        return self._shared[key[0]]


def _set_attributes(value: Any, attributes: dict[str, Any]) -> None:
    """Set the attributes of an EzPickle object, without its ``__setstate__``."""
    vars(value).update(attributes)


def _is_fixed(space: spaces.Space[Any]) -> bool:
    """Return True if the space, and those in it, have no random generator yet."""
    parts = list(vars(space).values())
    parts += [part for group in parts if isinstance(group, dict) for part in group.values()]
    parts += [part for group in parts if isinstance(group, tuple) for part in group]
    inner = [part for part in parts if isinstance(part, spaces.Space)]
    return vars(space).get("_np_random", 0) is None and all(map(_is_fixed, inner))


class Pickled(Way):
    """Copy the environment with ``pickle``. If this is exact, equal data have equal futures."""

    name = "pickle"
    max_games = 1024

    def __init__(self, rules: ZooRules) -> None:
        self._rules = rules

    def make(self) -> Game:
        return PickledGame(make_copy(self._rules.make_env(), self._rules))

    def close(self) -> None:
        """Do nothing: the games are only memory."""


# --- copy.deepcopy -------------------------------------------------------------------------------


class DeepcopiedGame(LocalGame):
    """A game in this process, which ``deepcopy`` copies."""

    def copy(self) -> Game:
        spec = self._env.spec
        twin = DeepcopiedGame(copy.deepcopy(self._env, {id(spec): spec}))
        twin.look = self.look
        return twin


class Deepcopy(Pickled):
    """Copy the environment with ``copy.deepcopy``, which also copies local functions."""

    name = "deepcopy"

    def make(self) -> Game:
        return DeepcopiedGame(make_copy(self._rules.make_env(), self._rules))


# --- The same actions again ----------------------------------------------------------------------


class ReplayedGame(Game):
    """A game in this process that remembers its actions."""

    def __init__(self, way: Replay, env: ZooCopy) -> None:
        self._way, self._env = way, env
        # An unused game leaves its environment to a later one.
        weakref.finalize(self, way.spare.append, env).atexit = False

    def begin(self, rng: np.random.Generator) -> Observed:
        self._chance, self._past = copy.deepcopy(rng), []
        self.look = self._env.reset(rng)
        return self.look

    def play(self, actions: Actions) -> CopyStep:
        self._past.append(actions)
        moved = self._env.play(actions)
        self.look = moved.look
        return moved

    def copy(self) -> Game:
        twin = self._way.make()
        twin.begin(copy.deepcopy(self._chance))
        for actions in self._past:
            twin.play(actions)
        return twin

    _past: list[Actions]


class Replay(Way):
    """Copy a game with ``reset(seed)`` and the same actions."""

    name = "replay"
    max_games = 512

    def __init__(self, rules: ZooRules) -> None:
        self._rules = rules
        self.spare: list[ZooCopy] = []

    def make(self) -> Game:
        env = self.spare.pop() if self.spare else make_copy(self._rules.make_env(), self._rules)
        return ReplayedGame(self, env)

    def close(self) -> None:
        while self.spare:
            self.spare.pop().close()
