"""Playing any PettingZoo environment, parallel or AEC, and writing down what it shows.

A ``Game`` brings both kinds to the same terms. A step is one call of ``step``: of all live agents
in a parallel environment, of the one whose turn it is in an AEC environment (``step(None)`` of an
agent whose episode is over is a step too). Agents play random actions, legal ones where they have a
mask. An agent's actions are drawn from a stream of its own, so that they do not depend on the order
of agents: two games that show the same masks play the same actions.

What is shown becomes a ``Trace`` of fingerprints (``corral.envs.conformance.trace``).
"""

from __future__ import annotations

import copy
import pickle
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from corral.envs.conformance.trace import EXCEPTION, Frame, Trace, brief, fingerprint
from corral.envs.core import Array

__all__ = [
    "MASK",
    "SHORT",
    "BadAnswer",
    "Broke",
    "Game",
    "Make",
    "NotOurs",
    "View",
    "Watcher",
    "game_of",
    "make_game",
    "mask_of",
    "play_on",
    "record",
    "steps_of",
    "usable_mask",
]

MASK = "action_mask"
SHORT = 200  # steps of further episodes, once one did not end within the limit

Make = Callable[[], Any]
"""Makes a fresh environment, a ParallelEnv or an AECEnv."""


class BadAnswer(Exception):
    """The environment answered a call with something that cannot be read."""


class NotOurs(Exception):
    """``make`` gave no PettingZoo environment."""


# --- A game --------------------------------------------------------------------------------------


@dataclass
class View:
    """What there is to see after one call of reset or step, as the environment handed it out."""

    step: int
    before: list[Any]  # agents that were live before the call; none before a reset
    agents: list[Any]  # those that are live after it
    acted: Mapping[Any, Any]  # what was played
    observations: Mapping[Any, Any]  # AEC: of the selected agent alone
    rewards: Mapping[Any, Any]
    terminations: Mapping[Any, Any]
    truncations: Mapping[Any, Any]
    infos: Mapping[Any, Any]
    # AEC only: who is selected, and what last() said of it but for the observation.
    selection: Any = None
    last: tuple[Any, Any, Any, Any] | None = None  # reward, terminated, truncated, info
    stuck: bool = False  # an agent that has ended took its None, and did not leave


@dataclass
class Broke:
    """An exception that the environment raised."""

    call: Literal["reset", "step"]
    error: Exception
    actions: Mapping[Any, Any]

    def __str__(self) -> str:
        text = " ".join(str(self.error).split())
        text = text if len(text) <= 200 else text[:197] + "..."
        return f"{type(self.error).__name__}: {text}" if text else type(self.error).__name__


class Watcher(Protocol):
    """Is shown every view of a game."""

    def see(self, game: Game, view: View) -> None: ...


class Game(ABC):
    """One environment being played.

    ``asked`` holds the agents that must act now, each with its mask (bool [A]) or None; ``broke``
    what the environment raised, after which the episode counts as over.
    """

    turns: bool  # an AECEnv

    def __init__(self, env: Any, watcher: Watcher | None = None) -> None:
        self.env = env
        self.watcher = watcher
        self.step = 0
        self.over = True
        self.broke: Broke | None = None
        self.trace: Trace = []
        self.played: list[Mapping[Any, Any]] = []
        self.asked: dict[Any, Array | None] = {}
        self.total_steps = 0  # of all episodes
        self._stream = 0
        self._chances: dict[str, np.random.Generator] = {}
        self._spaces: dict[Any, Any] = {}

    def begin(self, seed: int | None, stream: int = 0) -> None:
        """Reset the environment, with no argument where ``seed`` is None.

        ``stream``: the number of the streams of random actions.
        """
        self.step, self.over, self.broke = 0, False, None
        self.trace, self.played, self.asked = [], [], {}
        self._stream, self._chances = stream, {}
        try:
            view = self._reset({} if seed is None else {"seed": seed})
        except Exception as error:  # whatever an environment raises is a finding
            self._break("reset", error, {})
        else:
            self._see(view)

    def choose(self) -> dict[Any, Any]:
        """Random actions of the agents in ``asked``; None for one whose episode is over."""
        return {agent: self._action(agent, mask) for agent, mask in self.asked.items()}

    def play(self, actions: Mapping[Any, Any]) -> None:
        """Play one step."""
        self.played.append(actions)
        self.step += 1
        self.total_steps += 1
        try:
            view = self._step(actions)
        except Exception as error:
            self._break("step", error, actions)
        else:
            self._see(view)

    def fork(self, how: Literal["deepcopy", "pickle"]) -> Game:
        """A copy of the game that goes on from here, unwatched. Raises what copying raises."""
        twin: Game = object.__new__(type(self))
        twin.__dict__.update(vars(self))
        twin.watcher, twin.total_steps = None, 0
        twin.trace, twin.played = list(self.trace), list(self.played)
        twin.asked, twin._spaces = dict(self.asked), dict(self._spaces)
        twin._chances = copy.deepcopy(self._chances)
        twin.env = (
            copy.deepcopy(self.env) if how == "deepcopy" else pickle.loads(pickle.dumps(self.env))
        )
        return twin

    def alternatives(self, agent: Any, mask: Array) -> tuple[list[Any], list[Any]]:
        """Some legal and some illegal actions: of each the first, the last and two between."""
        start = self.space("action", agent).start

        def some(numbers: Array) -> list[Any]:
            places = np.linspace(0, len(numbers) - 1, min(len(numbers), 4)).astype(int)
            return [np.int64(start + number) for number in numbers[places]]

        return some(np.flatnonzero(mask)), some(np.flatnonzero(~mask))

    def space(self, kind: Literal["observation", "action"], agent: Any) -> Any:
        """The space of an agent as it was when it was first asked for."""
        key = (kind, agent)
        if key not in self._spaces:
            found = self.env.observation_space if kind == "observation" else self.env.action_space
            self._spaces[key] = found(agent)
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
        """What the view shows, for the trace."""

    def _break(self, call: Literal["reset", "step"], error: Exception, actions: Any) -> None:
        self.broke = Broke(call, error, actions)
        self.over, self.asked = True, {}
        # Only the type: messages may hold addresses, or the order of a set.
        self.trace.append(Frame(self.step, {EXCEPTION: type(error).__name__}))

    def _see(self, view: View) -> None:
        parts = {("list of agents", ""): fingerprint(view.agents), **self._parts(view)}
        self.trace.append(Frame(self.step, parts))
        self.over = not view.agents or view.stuck
        try:
            self.asked = {} if self.over else self._asked(view)
        except Exception as error:  # its action_space, or a selection of nobody
            self._break("step" if self.step else "reset", error, {})
        if self.watcher is not None:
            self.watcher.see(self, view)

    @abstractmethod
    def _asked(self, view: View) -> dict[Any, Array | None]: ...

    def _mask(self, view: View, agent: Any) -> Array | None:
        observation, info = view.observations.get(agent), view.infos.get(agent)
        return usable_mask(self.space("action", agent), mask_of(observation, info))

    def _action(self, agent: Any, mask: Array | None) -> Any:
        name = str(agent)
        if name not in self._chances:
            self._chances[name] = np.random.default_rng([self._stream, zlib.crc32(name.encode())])
        rng = self._chances[name]
        space = self.space("action", agent)
        if isinstance(space, spaces.Discrete):
            legal = np.arange(space.n) if mask is None or not mask.any() else np.flatnonzero(mask)
            return np.int64(space.start + legal[rng.integers(len(legal))])
        own = copy.deepcopy(space)  # seeding the environment's own would change its game
        own.seed(int(rng.integers(2**31)))
        return own.sample()


class ParallelGame(Game):
    """A ParallelEnv: a step plays the actions of all live agents."""

    turns = False

    def _reset(self, kwargs: dict[str, Any]) -> View:
        answer = self.env.reset(**kwargs)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise BadAnswer(f"reset() returned {brief(answer)}, not (observations, infos)")
        _require_dicts("reset()", ("observations", "infos"), answer)
        agents = list(self.env.agents)
        return View(0, [], agents, {}, answer[0], {}, {}, {}, answer[1])

    def _step(self, actions: Mapping[Any, Any]) -> View:
        before = list(self.env.agents)
        answer = self.env.step(dict(actions))
        names = ("observations", "rewards", "terminations", "truncations", "infos")
        if not (isinstance(answer, tuple) and len(answer) == len(names)):
            raise BadAnswer(f"step() returned {brief(answer)}, not ({', '.join(names)})")
        _require_dicts("step()", names, answer)
        return View(self.step, before, list(self.env.agents), actions, *answer)

    def _parts(self, view: View) -> dict[tuple[str, str], str]:
        given = {
            "observation": view.observations,
            "reward": view.rewards,
            "termination": view.terminations,
            "truncation": view.truncations,
            "info": view.infos,
        }
        parts = {
            (kind, str(agent)): fingerprint(value)
            for kind, table in given.items()
            for agent, value in table.items()
        }
        order = fingerprint([list(table) for table in given.values()])
        return {**parts, ("order of the dicts", ""): order}

    def _asked(self, view: View) -> dict[Any, Array | None]:
        return {agent: self._mask(view, agent) for agent in view.agents}


class TurnGame(Game):
    """An AECEnv: a step plays the action of the selected agent."""

    turns = True
    _dead = False  # the selected agent's episode is over: None is its only action

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
        tables = (env.rewards, env.terminations, env.truncations, env.infos)
        _require_dicts("env", ("rewards", "terminations", "truncations", "infos"), tables)
        agents = list(env.agents)
        rewards, terminations, truncations, infos = map(dict, tables)
        view = View(self.step, before, agents, acted, {}, rewards, terminations, truncations, infos)
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
        given = {
            "reward": view.rewards,
            "termination": view.terminations,
            "truncation": view.truncations,
            "observation": view.observations,
        }
        parts = {
            (kind, str(agent)): fingerprint(value)
            for kind, table in given.items()
            for agent, value in table.items()
        }
        parts["agent_selection", ""] = fingerprint(view.selection)
        if view.last is not None:
            parts["reward of last()", str(view.selection)] = fingerprint(view.last[0])
            parts["info", str(view.selection)] = fingerprint(view.last[3])
        return parts

    def _asked(self, view: View) -> dict[Any, Array | None]:
        if view.last is None:
            raise BadAnswer(f"agent_selection is {view.selection!r}, and agents are {view.agents}")
        agent = view.selection
        self._dead = bool(view.terminations.get(agent) or view.truncations.get(agent))
        return {agent: None if self._dead else self._mask(view, agent)}

    def choose(self) -> dict[Any, Any]:
        return dict.fromkeys(self.asked) if self._dead else super().choose()


def game_of(env: Any, watcher: Watcher | None = None) -> Game:
    """The game of a ParallelEnv or an AECEnv. Raises NotOurs for anything else."""
    if isinstance(env, AECEnv):
        return TurnGame(env, watcher)
    if isinstance(env, ParallelEnv):
        return ParallelGame(env, watcher)
    raise NotOurs(f"make() gave {brief(env)}, which is neither a ParallelEnv nor an AECEnv")


def make_game(make: Make, watcher: Watcher | None = None) -> Game:
    return game_of(make(), watcher)


def play_on(game: Game, limit: int) -> bool:
    """Play to the end of the episode, or to ``limit`` steps; whether it ended."""
    while not game.over and game.step < limit:
        game.play(game.choose())
    return game.over


def record(make: Make, seeds: Sequence[int], limit: int) -> list[Trace]:
    """A whole episode per seed, each of a fresh environment; seed k plays with action stream k.

    ``limit``: steps of all agents after which an episode is cut. Once one was, ``SHORT`` is.
    """
    traces = []
    for stream, seed in enumerate(seeds):
        game = make_game(make)
        game.begin(seed, stream)
        if not play_on(game, steps_of(game, limit)):
            limit = min(limit, SHORT)
        traces.append(game.trace)
        game.close()
    return traces


def steps_of(game: Game, limit: int) -> int:
    """``limit`` in calls of step: in an AEC environment each agent makes one of its own."""
    agents = getattr(game.env, "possible_agents", None) or game.env.agents
    return limit * max(1, len(agents)) if game.turns else limit


# --- Masks ---------------------------------------------------------------------------------------


def mask_of(observation: Any, info: Any) -> Any:
    """The action mask, from the observation Dict or else from info; None where there is none."""
    for place in (observation, info):
        if isinstance(place, Mapping) and place.get(MASK) is not None:
            return place[MASK]
    return None


def usable_mask(space: Any, mask: Any) -> Array | None:
    """A mask as bool [A]; None where there is none, or none that fits the action space."""
    if not isinstance(space, spaces.Discrete) or mask is None:
        return None
    try:
        array = np.asarray(mask).astype(bool)
    except (TypeError, ValueError):
        return None
    return array if array.shape == (int(space.n),) else None


def _require_dicts(call: str, names: Sequence[str], tables: Sequence[Any]) -> None:
    for name, table in zip(names, tables, strict=True):
        if not isinstance(table, Mapping):
            raise BadAnswer(f"{call}: {name} are {brief(table)}, not a dict by agent")
