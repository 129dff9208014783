"""``Walk`` with one planted fault each of chance, resets, copies or processes."""

from __future__ import annotations

import os
import random
import time
from typing import Any, ClassVar

import numpy as np
from gymnasium.utils import EzPickle

from support.faulty_envs import Walk


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
    """The seed of an experiment was left in reset."""

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
