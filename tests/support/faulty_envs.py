"""A sound ParallelEnv, ``Walk``, and the same with one planted fault each, seen in single steps.

A fault is a subclass, whose name says what is wrong. It stands on none of corral's shells: it is
what anybody might have written.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Walk(ParallelEnv[str, Any, int]):  # type: ignore[misc]
    """Two walk on five fields: left, stay, right; no step off the end. One leaves at step 5.

    ``late`` is cut at step 7. The start and a part of each reward are drawn.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "walk_v0", "is_parallelizable": True}
    render_mode = None
    length = 7

    def __init__(self) -> None:
        self.possible_agents = ["early", "late"]
        self.agents: list[str] = []
        seen = spaces.Box(0, 10, (6,), np.float32)
        mask = spaces.Box(0, 1, (3,), np.int8)
        names = self.possible_agents
        self.observation_spaces: dict[str, Any] = {
            agent: spaces.Dict({"observation": seen, "action_mask": mask}) for agent in names
        }
        self.action_spaces: dict[str, Any] = {agent: spaces.Discrete(3) for agent in names}
        self.rng = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = self.names()
        self.t = 0
        self.place = {agent: int(self.rng.integers(5)) for agent in self.possible_agents}
        self.illegal = dict.fromkeys(self.agents, 0)
        return self.shown(), self.infos()

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        self.t += 1
        rewards = {}
        for agent in self.agents:
            self.illegal[agent] = int(not self.legal(agent)[actions[agent]])
            if not self.illegal[agent]:
                self.place[agent] += int(actions[agent]) - 1
            rewards[agent] = self.reward(agent)
        terminations = {a: a == "early" and self.t == 5 for a in self.agents}
        truncations = dict.fromkeys(self.agents, self.t == self.length)
        answer = self.shown(), rewards, terminations, truncations, self.infos()
        self.agents = [a for a in self.agents if not (terminations[a] or truncations[a])]
        return answer

    def names(self) -> list[str]:
        return list(self.possible_agents)

    def legal(self, agent: str) -> np.ndarray:
        return np.array([self.place[agent] > 0, True, self.place[agent] < 4], np.int8)

    def mask(self, agent: str) -> Any:
        return self.legal(agent)

    def reward(self, agent: str) -> Any:
        return self.place[agent] + float(self.rng.random())

    def seen(self, agent: str) -> Any:
        return np.array([self.place[agent], min(self.t, 9), 0, 0, 1, 0], np.float32)

    def shown(self) -> dict[str, Any]:
        return {a: {"observation": self.seen(a), "action_mask": self.mask(a)} for a in self.agents}

    def infos(self) -> dict[str, Any]:
        return {a: {"illegal_actions": self.illegal[a], "t": self.t} for a in self.agents}


class Prints(Walk):
    """Sound, but it prints."""

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        print("a step")
        return super().step(actions)


# --- What one call shows -------------------------------------------------------------------------


class OutsideItsSpace(Walk):
    def seen(self, agent: str) -> Any:
        return super().seen(agent) + np.float32(20 * (self.t == 3))


class OtherDtype(Walk):
    def seen(self, agent: str) -> Any:
        return super().seen(agent).astype(np.float64)


class OtherShape(Walk):
    def seen(self, agent: str) -> Any:
        return super().seen(agent)[: 6 - (self.t == 2)]


class NanSeen(Walk):
    def seen(self, agent: str) -> Any:
        return super().seen(agent) * np.float32(np.nan if self.t == 4 else 1)


class MaskOfBools(Walk):
    def mask(self, agent: str) -> Any:
        return self.legal(agent).astype(bool)


class MaskTooLong(Walk):
    def mask(self, agent: str) -> Any:
        return np.append(self.legal(agent), np.int8(0))


class MaskAllZero(Walk):
    def mask(self, agent: str) -> Any:
        return self.legal(agent) * np.int8(self.t != 2)


class NanReward(Walk):
    def reward(self, agent: str) -> Any:
        return float("nan") if self.t == 3 else super().reward(agent)


class ArrayReward(Walk):
    def reward(self, agent: str) -> Any:
        return np.array([super().reward(agent)])


class Edited(Walk, abc.ABC):
    """What a step answers, edited by a subclass."""

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        answer = super().step(actions)
        self.edit(*answer)
        return answer

    @abc.abstractmethod
    def edit(
        self, seen: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any
    ) -> None: ...


class PaysStrangers(Edited):
    def edit(self, seen: Any, rewards: Any, *rest: Any) -> None:
        rewards["nobody"] = 1.0


class ShowsTheGone(Edited):
    def edit(
        self, seen: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any
    ) -> None:
        if self.t == 6:
            infos["early"] = {"illegal_actions": 0, "t": 6}
            terminations["early"] = True


class ForgetsItsDead(Edited):
    def edit(self, seen: Any, rewards: Any, *rest: Any) -> None:
        if self.t == 5:
            del seen["early"], rewards["early"]


class BothEnds(Edited):
    def edit(
        self, seen: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any
    ) -> None:
        truncations.update({a: True for a, ended in terminations.items() if ended})


class InfoGrows(Edited):
    def edit(
        self, seen: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any
    ) -> None:
        for info in infos.values():
            info["distance"] = 0.5


class StaysAfterItsEnd(Walk):
    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        answer = super().step(actions)
        if self.t == 5:
            self.agents = ["early", *self.agents]
        return answer


class LeavesWithoutAnEnd(Edited):
    def edit(self, seen: Any, rewards: Any, terminations: Any, *rest: Any) -> None:
        terminations["early"] = False


class NeverEnds(Walk):
    length = 10**9


class Raises(Walk):
    def reward(self, agent: str) -> Any:
        return 1 / (self.t - 6)


class FourValues(Walk):
    def step(self, actions: Mapping[str, int]) -> Any:
        seen, rewards, terminations, _, infos = super().step(actions)
        return seen, rewards, terminations, infos


class NewSpaceObjects(Walk):
    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)


class SpaceChanges(Walk):
    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(4) if getattr(self, "t", 0) == 4 else self.action_spaces[agent]


class OverwritesObservations(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.array = {agent: np.zeros(6, np.float32) for agent in self.possible_agents}

    def seen(self, agent: str) -> Any:
        self.array[agent][...] = super().seen(agent)
        return self.array[agent]


class OverwritesInfos(Walk):
    def infos(self) -> dict[str, Any]:
        kept: dict[str, Any] = self.__dict__.setdefault("kept", {a: {} for a in self.agents})
        for agent, info in super().infos().items():
            kept[agent].update(info)
        return {agent: kept[agent] for agent in self.agents}


# --- Masks that lie ------------------------------------------------------------------------------


class AllowsTooMuch(Walk):
    """Field 0 lets one go left, by the mask; info counts it as illegal."""

    def mask(self, agent: str) -> Any:
        return np.array([1, 1, self.place[agent] < 4], np.int8)


class ForbidsTooMuch(Walk):
    """Field 3 does not let one go right, by the mask; the game does, and counts nothing."""

    def mask(self, agent: str) -> Any:
        return np.array([self.place[agent] > 0, 1, self.place[agent] < 3], np.int8)


class Strict(Walk):
    """Sound: illegal actions raise, and info has no count of them."""

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        for agent in self.agents:
            if not self.legal(agent)[actions[agent]]:
                raise ValueError(f"{agent} cannot play {actions[agent]}")
        return super().step(actions)

    def infos(self) -> dict[str, Any]:
        return {agent: {"t": self.t} for agent in self.agents}


class AllowsWhatRaises(Strict):
    mask = AllowsTooMuch.mask


class ForbidsWhatIsPlayed(Strict):
    mask = ForbidsTooMuch.mask


class Punishing(Walk):
    """Sound: an illegal action ends the game, and costs its agent 1; info has no count of them."""

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        guilty = [a for a in self.agents if not self.legal(a)[actions[a]]]
        answer = super().step(actions)
        if guilty:
            answer[1].update({agent: -1.0 * (agent in guilty) for agent in answer[1]})
            answer[2].update(dict.fromkeys(answer[2], True))
            answer[3].update(dict.fromkeys(answer[3], False))
            self.agents = []
        return answer

    infos = Strict.infos


class AllowsWhatEndsTheGame(Punishing):
    """Forbids one end of the fields only, where one sees what the penalty is."""

    mask = AllowsTooMuch.mask


class ForbidsWhatGoesOn(Punishing):
    mask = ForbidsTooMuch.mask


class StateGoesWithAnAgent(Walk):
    """Its ``state`` needs a body that the first end takes away; there is no state_space."""

    def state(self) -> Any:
        if len(self.agents) < 2:
            raise AttributeError("'NoneType' object has no attribute 'position'")
        return np.array([self.t], np.float32)
