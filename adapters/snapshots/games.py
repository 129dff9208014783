"""Running games that can be copied: by ``copy.deepcopy``, or by the same actions again.

``corral.adapters.snapshots.forks`` has the third way, a fork of the process.
"""

from __future__ import annotations

import copy
import io
import pickle
import weakref
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

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


# --- copy.deepcopy -------------------------------------------------------------------------------


class LocalGame(Game):
    """A game in this process, which ``deepcopy`` copies."""

    def __init__(self, env: ZooCopy) -> None:
        self._env = env

    def begin(self, rng: np.random.Generator) -> Observed:
        self.look = self._env.reset(rng)
        return self.look

    def play(self, actions: Actions) -> CopyStep:
        moved = self._env.play(actions)
        self.look = moved.look
        return moved

    def copy(self) -> Game:
        spec = self._env.spec
        twin = type(self)(copy.deepcopy(self._env, {id(spec): spec}))
        twin.look = self.look
        return twin

    def data(self) -> bytes:
        """Return the pickled environment, without the sums that do not affect its future."""
        data = io.BytesIO()
        _Pickler(data).dump(self._env.without_sums())
        return data.getvalue()


class _Pickler(pickle.Pickler):
    """Leaves out the spec, which all copies share."""

    def persistent_id(self, value: Any) -> str | None:
        return "spec" if isinstance(value, ZooSpec) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, spec: ZooSpec) -> None:
        super().__init__(io.BytesIO(data))
        self.spec = spec

    def persistent_load(self, name: str) -> ZooSpec:
        return self.spec


class PickledGame(LocalGame):
    """A game in this process, which is copied by its data."""

    def copy(self) -> Game:
        twin = PickledGame(_Unpickler(self.data(), self._env.spec).load())
        twin.look = self.look
        return twin


class Deepcopy(Way):
    """Copy the environment with ``copy.deepcopy``."""

    name = "deepcopy"
    max_games = 1024

    def __init__(self, rules: ZooRules) -> None:
        self._rules = rules

    def make(self) -> Game:
        return LocalGame(make_copy(self._rules.make_env(), self._rules))

    def close(self) -> None:
        """Do nothing: the games are only memory."""


class Pickled(Deepcopy):
    """Copy the environment with ``pickle``. If this is exact, equal data have equal futures."""

    name = "pickle"

    def make(self) -> Game:
        return PickledGame(make_copy(self._rules.make_env(), self._rules))


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
