"""Games: play any PettingZoo environment, parallel or AEC, and record it.

A ``Game`` treats both kinds in the same way. A step is one call of ``step``: for all live agents in
a parallel environment, for the selected agent in an AEC environment (including ``step(None)`` of an
ended agent). Agents play random actions; with a mask, random legal actions. Each agent has its own
random stream, so its actions do not depend on the order of agents: two games with the same masks
play the same actions.

Everything the environment returns is recorded in a ``Trace`` of fingerprints: texts that can be
compared between processes.
"""

from __future__ import annotations

import copy
import pickle
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from corral.envs.conformance.report import brief, fingerprint
from corral.envs.core import Array
from corral.envs.masks import split

__all__ = [
    "EXCEPTION",
    "BadAnswer",
    "Failure",
    "Game",
    "Make",
    "NoEnvironment",
    "Trace",
    "View",
    "Watcher",
    "game_of",
    "mask_of",
    "play_on",
]

Make = Callable[[], Any]
"""Returns a fresh environment, a ParallelEnv or an AECEnv."""

TABLES = ("rewards", "terminations", "truncations", "infos")
"""Attributes of an AECEnv, and return values of ParallelEnv.step after the observations."""


class BadAnswer(Exception):
    """The environment returned an invalid value from a call."""


class NoEnvironment(Exception):
    """``make`` did not return a PettingZoo environment."""


# --- Traces --------------------------------------------------------------------------------------

EXCEPTION = ("exception", "")  # the only entry of a frame if the environment raised


@dataclass
class Frame:
    """The result of one call, as fingerprints by (kind, agent or "")."""

    step: int  # calls of step so far; 0 is the reset
    parts: dict[tuple[str, str], str]


Trace = list[Frame]


# --- A game --------------------------------------------------------------------------------------


@dataclass
class View:
    """The values returned by one call of reset or step."""

    step: int
    before: list[Any]  # live agents before the call; empty before a reset
    agents: list[Any]  # live agents after the call
    acted: Mapping[Any, Any]  # played actions
    observations: Mapping[Any, Any]  # AEC: of the selected agent only
    rewards: Mapping[Any, Any]
    terminations: Mapping[Any, Any]
    truncations: Mapping[Any, Any]
    infos: Mapping[Any, Any]
    # AEC only: the selected agent, and the result of last() without the observation.
    selection: Any = None
    last: tuple[Any, Any, Any, Any] | None = None  # reward, terminated, truncated, info
    stuck: bool = False  # an ended agent took None and was not removed

    @property
    def outcome(self) -> dict[str, Mapping[Any, Any]]:
        """Return the rewards, terminations and truncations of a step, by the name of an entry."""
        tables = (self.rewards, self.terminations, self.truncations)
        return dict(zip(("reward", "termination", "truncation"), tables, strict=True))

    def is_over(self, agent: Any) -> bool:
        """Return True if the agent's episode has ended."""
        return bool(self.terminations.get(agent) or self.truncations.get(agent))


@dataclass
class Failure:
    """An exception that the environment raised."""

    call: Literal["reset", "step"]
    error: Exception
    actions: Mapping[Any, Any]

    def __str__(self) -> str:
        text = " ".join(str(self.error).split())
        text = text if len(text) <= 200 else text[:197] + "..."
        return f"{type(self.error).__name__}: {text}" if text else type(self.error).__name__


class Watcher(Protocol):
    """Receives every view of a game."""

    def watch(self, game: Game, view: View) -> None: ...


class Game(ABC):
    """One environment being played.

    ``to_act`` holds the agents that must act now, each with its mask (bool [A]) or None.
    ``failure`` is the exception of the environment, after which the episode counts as over.
    """

    turns: bool  # an AECEnv

    def __init__(self, env: Any, watcher: Watcher | None = None) -> None:
        self.env = env
        self.watcher = watcher
        self.step = 0
        self.over = True
        self.failure: Failure | None = None
        self.trace: Trace = []
        self.played: list[Mapping[Any, Any]] = []
        self.to_act: dict[Any, Array | None] = {}
        self.view: View | None = None  # the last one
        self.total_steps = 0  # in all episodes
        self._stream = 0
        self._chances: dict[str, np.random.Generator] = {}
        self._spaces: dict[Any, Any] = {}

    def begin(self, seed: int | None, stream: int = 0) -> None:
        """Reset the environment; without an argument if ``seed`` is None.

        ``stream``: the number of the random streams for the actions.
        """
        self.step, self.over, self.failure = 0, False, None
        self.trace, self.played, self.to_act = [], [], {}
        self._stream, self._chances = stream, {}
        try:
            view = self._reset({} if seed is None else {"seed": seed})
        except Exception as error:  # any exception of the environment is a finding
            self._fail("reset", error, {})
        else:
            self._take(view)

    def choose(self) -> dict[Any, Any]:
        """Return random actions of the agents in ``to_act``; None for an ended agent."""
        return {agent: self._action(agent, mask) for agent, mask in self.to_act.items()}

    def play(self, actions: Mapping[Any, Any]) -> None:
        """Play one step."""
        self.played.append(actions)
        self.step += 1
        self.total_steps += 1
        try:
            view = self._step(actions)
        except Exception as error:
            self._fail("step", error, actions)
        else:
            self._take(view)

    def fork(self, how: Literal["deepcopy", "pickle"]) -> Game:
        """Return a copy without a watcher, which continues from here. Copying may raise."""
        twin: Game = object.__new__(type(self))
        twin.__dict__.update(vars(self))
        twin.watcher, twin.total_steps = None, 0
        twin.trace, twin.played = list(self.trace), list(self.played)
        twin.to_act, twin._spaces = dict(self.to_act), dict(self._spaces)
        twin._chances = copy.deepcopy(self._chances)
        twin.env = (
            copy.deepcopy(self.env) if how == "deepcopy" else pickle.loads(pickle.dumps(self.env))  # nosec B301: made on the same line
        )
        return twin

    def alternatives(self, agent: Any, mask: Array) -> tuple[list[Any], list[Any]]:
        """Return up to four legal and four illegal actions of a ``mask`` (bool [A])."""
        start = self.space("action", agent).start

        def some(numbers: Array) -> list[Any]:
            places = np.linspace(0, len(numbers) - 1, min(len(numbers), 4)).astype(int)
            return [np.int64(start + number) for number in numbers[places]]

        return some(np.flatnonzero(mask)), some(np.flatnonzero(~mask))

    def space(self, kind: Literal["observation", "action"], agent: Any) -> Any:
        """Return the space of an agent from the first call."""
        key = (kind, agent)
        if key not in self._spaces:
            method = self.env.observation_space if kind == "observation" else self.env.action_space
            self._spaces[key] = method(agent)
        return self._spaces[key]

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    @abstractmethod
    def _reset(self, kwargs: dict[str, Any]) -> View: ...

    @abstractmethod
    def _step(self, actions: Mapping[Any, Any]) -> View: ...

    @abstractmethod
    def _parts(self, view: View) -> dict[tuple[str, str], str]:
        """Return the trace entries of a view."""

    def _fail(self, call: Literal["reset", "step"], error: Exception, actions: Any) -> None:
        self.failure = Failure(call, error, actions)
        self.over, self.to_act = True, {}
        # Record only the type: messages may contain addresses, or the order of a set.
        self.trace.append(Frame(self.step, {EXCEPTION: type(error).__name__}))

    def _take(self, view: View) -> None:
        self.view = view
        parts = {("list of agents", ""): fingerprint(view.agents), **self._parts(view)}
        self.trace.append(Frame(self.step, parts))
        self.over = not view.agents or view.stuck
        try:
            self.to_act = {} if self.over else self._agents_to_act(view)
        except Exception as error:  # from action_space, or no selected agent
            self._fail("step" if self.step else "reset", error, {})
        if self.watcher is not None:
            self.watcher.watch(self, view)

    @abstractmethod
    def _agents_to_act(self, view: View) -> dict[Any, Array | None]: ...

    def _mask(self, view: View, agent: Any) -> Array | None:
        observation, info = view.observations.get(agent), view.infos.get(agent)
        return _usable(self.space("action", agent), mask_of(observation, info))

    def _action(self, agent: Any, mask: Array | None) -> Any:
        name = str(agent)
        if name not in self._chances:
            self._chances[name] = np.random.default_rng([self._stream, zlib.crc32(name.encode())])
        rng = self._chances[name]
        space = self.space("action", agent)
        if isinstance(space, spaces.Discrete):
            legal = np.arange(space.n) if mask is None or not mask.any() else np.flatnonzero(mask)
            return np.int64(space.start + legal[rng.integers(len(legal))])
        own = copy.deepcopy(space)  # seeding the original would change the game
        own.seed(int(rng.integers(2**31)))
        return own.sample()


class ParallelGame(Game):
    """A ParallelEnv: a step plays the actions of all live agents."""

    turns = False

    def _reset(self, kwargs: dict[str, Any]) -> View:
        observations, infos = _tables("reset()", self.env.reset(**kwargs), "observations", "infos")
        return View(0, [], list(self.env.agents), {}, observations, {}, {}, {}, infos)

    def _step(self, actions: Mapping[Any, Any]) -> View:
        before = list(self.env.agents)
        answer = self.env.step(dict(actions))
        tables = _tables("step()", answer, "observations", *TABLES)
        return View(self.step, before, list(self.env.agents), actions, *tables)

    def _parts(self, view: View) -> dict[tuple[str, str], str]:
        tables = {"observation": view.observations, **view.outcome, "info": view.infos}
        order = fingerprint([list(table) for table in tables.values()])
        return {**_entries(tables), ("order of the dicts", ""): order}

    def _agents_to_act(self, view: View) -> dict[Any, Array | None]:
        return {agent: self._mask(view, agent) for agent in view.agents}


class TurnGame(Game):
    """An AECEnv: a step plays the action of the selected agent."""

    turns = True
    _dead = False  # the selected agent has ended: its only action is None

    def _reset(self, kwargs: dict[str, Any]) -> View:
        self.env.reset(**kwargs)
        return self._look([], {})

    def _step(self, actions: Mapping[Any, Any]) -> View:
        before, was_dead = list(self.env.agents), self._dead
        ((agent, action),) = actions.items()
        self.env.step(action)
        view = self._look(before, actions)
        view.stuck = was_dead and agent in view.agents
        return view

    def _look(self, before: list[Any], acted: Mapping[Any, Any]) -> View:
        env = self.env
        agents = list(env.agents)
        values = tuple(getattr(env, name) for name in TABLES)
        tables: Any = map(dict, _tables("env", values, *TABLES))
        view = View(self.step, before, agents, acted, {}, *tables)
        if agents:
            view.selection = env.agent_selection
            if view.selection in agents:
                answer = env.last()
                if not (isinstance(answer, tuple) and len(answer) == 5):
                    raise BadAnswer(f"last() returned {brief(answer)}, not five values")
                view.observations = {view.selection: answer[0]}
                view.last = answer[1:]
        return view

    def _parts(self, view: View) -> dict[tuple[str, str], str]:
        parts = _entries({**view.outcome, "observation": view.observations})
        parts["agent_selection", ""] = fingerprint(view.selection)
        if view.last is not None:
            parts["reward of last()", str(view.selection)] = fingerprint(view.last[0])
            parts["info", str(view.selection)] = fingerprint(view.last[3])
        return parts

    def _agents_to_act(self, view: View) -> dict[Any, Array | None]:
        if view.last is None:
            raise BadAnswer(f"agent_selection {view.selection!r} is not in agents {view.agents}")
        agent = view.selection
        self._dead = view.is_over(agent)
        return {agent: None if self._dead else self._mask(view, agent)}

    def choose(self) -> dict[Any, Any]:
        return dict.fromkeys(self.to_act) if self._dead else super().choose()


def _entries(tables: Mapping[str, Mapping[Any, Any]]) -> dict[tuple[str, str], str]:
    return {
        (kind, str(agent)): fingerprint(value)
        for kind, table in tables.items()
        for agent, value in table.items()
    }


def game_of(env: Any, watcher: Watcher | None = None) -> Game:
    """Return the game of a ParallelEnv or an AECEnv. Raises NoEnvironment for other objects."""
    if isinstance(env, AECEnv):
        return TurnGame(env, watcher)
    if isinstance(env, ParallelEnv):
        return ParallelGame(env, watcher)
    raise NoEnvironment(f"make() returned {brief(env)}, neither a ParallelEnv nor an AECEnv")


def play_on(game: Game, limit: int, in_time: Callable[[], bool] = lambda: True) -> bool:
    """Play until the episode ends, ``limit`` steps are reached, or ``in_time`` returns False.

    Return True if the episode ended.
    """
    while not game.over and game.step < limit and in_time():
        game.play(game.choose())
    return game.over


# --- Masks ---------------------------------------------------------------------------------------


def mask_of(observation: Any, info: Any) -> Any:
    """Return the mask of an observation Dict, or else of info; None if both lack a mask."""
    mask = split(observation)[1]
    return split(info)[1] if mask is None else mask


def _usable(space: Any, mask: Any) -> Array | None:
    """Return a mask as bool [A]; None if it is missing or does not fit the action space."""
    if not isinstance(space, spaces.Discrete) or mask is None:
        return None
    try:
        array = np.asarray(mask).astype(bool)
    except (TypeError, ValueError):
        return None
    return array if array.shape == (int(space.n),) else None


def _tables(call: str, answer: Any, *names: str) -> Any:
    """Check that an answer is a tuple of one dict per name, and return it. Raises BadAnswer."""
    if not (isinstance(answer, tuple) and len(answer) == len(names)):
        raise BadAnswer(f"{call} returned {brief(answer)}, expected ({', '.join(names)})")
    for name, table in zip(names, answer, strict=True):
        if not isinstance(table, Mapping):
            raise BadAnswer(f"{call}: {name} are {brief(table)}, not a dict by agent")
    return answer
