"""Two sound PettingZoo environments, and the same with one planted fault each.

``Walk`` is a ParallelEnv, ``Count`` an AECEnv; a fault is a subclass, whose name says
what is wrong. Neither stands on corral's shells: they are what anybody might have written.
"""

from __future__ import annotations

import abc
import os
import random
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from pettingzoo import AECEnv, ParallelEnv


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


# --- Chance, copies, processes -------------------------------------------------------------------


class NotSeeded(Walk):
    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        return super().reset()


class RandomFromStepTwo(Walk):
    def reward(self, agent: str) -> Any:
        return super().reward(agent) + (self.t > 2) * random.SystemRandom().random()


class TimeInInfo(Walk):
    def infos(self) -> dict[str, Any]:
        return {agent: {**info, "at": time.time_ns()} for agent, info in super().infos().items()}


class ForgetsItsGenerator(Walk):
    """Only the seeded episode is repeatable; the next one is not."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.rng = np.random.default_rng(seed)
        return super().reset()


class OneEpisode(Walk):
    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        return super().reset(seed=0)


class NeedsASeed(Walk):
    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        return super().reset(seed=seed + 1)  # type: ignore[operator]


class RemembersTheEpisodeBefore(Walk):
    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        before = getattr(self, "place", {"early": 0})["early"]
        answer = super().reset(seed=seed)
        self.t = min(before, 2)
        return answer


class GlobalGenerator(Walk):
    """Seeded, but one for all environments of the process."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            random.seed(seed)
        return super().reset(seed)

    def reward(self, agent: str) -> Any:
        return super().reward(agent) + random.random()


class ClockOfTheClass(Walk):
    clock: ClassVar[list[int]] = [0]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.clock[0] = 0
        return super().reset(seed)

    def reward(self, agent: str) -> Any:
        self.clock[0] += 1
        return super().reward(agent) + self.clock[0]


class CannotBePickled(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.callback = lambda: 0


class LosesItsGenerator(Walk):
    """A pickled copy draws from another generator."""

    def __getstate__(self) -> Any:
        return {key: value for key, value in vars(self).items() if key != "rng"}

    def __setstate__(self, state: Any) -> None:
        vars(self).update(state, rng=np.random.default_rng(7))

    def __deepcopy__(self, memo: Any) -> Any:
        twin = type(self)()
        twin.__dict__.update({**vars(self), "rng": np.random.default_rng()})
        twin.rng.bit_generator.state = self.rng.bit_generator.state
        twin.place, twin.illegal = dict(self.place), dict(self.illegal)
        return twin


class RebuiltByEzPickle(EzPickle, Walk):
    """A copy is a new environment, without the state of the game."""

    def __init__(self) -> None:
        EzPickle.__init__(self)
        Walk.__init__(self)


class SharesWithItsCopy(Walk):
    """A deep copy and its original move the same pieces."""

    def __deepcopy__(self, memo: Any) -> Any:
        twin = type(self)()
        twin.__dict__.update(vars(self))
        return twin


class OrderOfASet(Walk):
    def names(self) -> list[str]:
        return list(set(self.possible_agents))


class HashOfANumberedName(Walk):
    def reward(self, agent: str) -> Any:
        return super().reward(agent) + hash(agent + str(self.t)) % 1000


class NumberOfTheProcess(Walk):
    def reward(self, agent: str) -> Any:
        return super().reward(agent) + os.getpid()


# --- AEC -----------------------------------------------------------------------------------------


class Count(AECEnv[str, Any, int]):  # type: ignore[misc]
    """Two name numbers in turn, 0 to 2, never the one before; each is paid what the other names."""

    metadata: ClassVar[dict[str, Any]] = {"name": "count_v0", "is_parallelizable": False}
    render_mode = None

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["one", "two"]
        self.observation_spaces: dict[str, Any] = {
            agent: spaces.Dict(
                {
                    "observation": spaces.Box(0, 20, (6,), np.float32),
                    "action_mask": spaces.Box(0, 1, (3,), np.int8),
                }
            )
            for agent in self.possible_agents
        }
        self.action_spaces: dict[str, Any] = {a: spaces.Discrete(3) for a in self.possible_agents}
        self.rng = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {"illegal_actions": 0} for agent in self.agents}
        self._skip_agent_selection = None
        self.moves, self.before = 0, int(self.rng.integers(3))
        self.length = int(self.rng.integers(6, 9))
        self.agent_selection = self.agents[0]

    def observe(self, agent: str) -> Any:
        seen = np.array([self.moves, self.before, 0, 0, 0, 1], np.float32)
        mask = (np.arange(3) != self.before).astype(np.int8)
        return {"observation": seen, "action_mask": mask}

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self.dead_step(action)
            return
        assert action is not None
        other = next(a for a in self.possible_agents if a != agent)
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.infos[agent] = {"illegal_actions": int(action == self.before)}
        self.rewards[other] = float(action) + float(self.rng.random())
        self.rewards[agent] = 0.25
        self.before, self.moves = int(action), self.moves + 1
        if self.moves >= self.length:
            self.terminations = dict.fromkeys(self.agents, True)
        self.account()
        self.agent_selection = other

    def account(self) -> None:
        self._accumulate_rewards()

    def dead_step(self, action: int | None) -> None:
        self._was_dead_step(action)


class SelectsNobody(Count):
    def step(self, action: int | None) -> None:
        super().step(action)
        if self.moves == 4:
            self.agent_selection = "three"


class ObservesAtRandom(Count):
    def observe(self, agent: str) -> Any:
        shown = super().observe(agent)
        shown["observation"][2] = random.SystemRandom().random()
        return shown


class ObservingCounts(Count):
    """Each look draws a number: who looks more often plays another game."""

    def observe(self, agent: str) -> Any:
        self.rng.random()
        return super().observe(agent)


class LastTellsAnotherInfo(Count):
    def last(self, observe: bool = True) -> Any:
        *rest, info = super().last(observe)
        return (*rest, {**info, "illegal_actions": 7})


class PaysTwice(Count):
    def account(self) -> None:
        self._accumulate_rewards()
        self._accumulate_rewards()


class KeepsWhatItPaid(Count):
    """An agent's cumulative reward is not set to 0 when it acts."""

    def account(self) -> None:
        self._accumulate_rewards()
        self.kept = getattr(self, "kept", 0.0) if self.moves > 1 else 0.0
        self.kept += self.rewards[self.agent_selection]
        self._cumulative_rewards[self.agent_selection] = self.kept


class DeadStay(Count):
    def dead_step(self, action: int | None) -> None:
        self.agent_selection = "two" if self.agent_selection == "one" else "one"


class DeadAreRemoved(Count):
    """All leave with the last move, before anybody saw its last reward."""

    def step(self, action: int | None) -> None:
        super().step(action)
        if any(self.terminations.values()):
            self.agents = []


class RefusesNone(Count):
    def dead_step(self, action: int | None) -> None:
        raise ValueError(f"{action} is no number from 0 to 2")
