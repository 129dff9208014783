"""A sound AECEnv, ``Count``, and the same with one planted fault each."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv


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


class NeverClears(Count):
    """Every second move pays nothing new, and the rewards of the move before are paid again."""

    def _clear_rewards(self) -> None:
        self.old = dict(self.rewards)
        if self.moves >= self.length:
            super()._clear_rewards()

    def account(self) -> None:
        if self.moves % 2 == 0:
            self.rewards = self.old
        self._accumulate_rewards()


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
