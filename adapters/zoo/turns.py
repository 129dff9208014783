"""One third-party environment whose agents are asked one after the other, for ``SeatEnv``."""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.adapters.zoo.copies import Look, make_copy
from corral.adapters.zoo.spec import ZooSpec
from corral.envs.core import Array, Observation
from corral.envs.masks import MASK
from corral.errors import ResetNeededError

__all__ = ["ZooTurns"]


class ZooTurns:
    """A PettingZoo environment, parallel or AEC, with what ``SeatEnv`` uses of a TurnShell.

    A step of the environment is played once all that act in it were asked. ``sums`` adds up what
    its infos say of ``agent``; whoever reads them empties them. Agents that have ended are not
    asked: ``terminations`` and ``truncations`` say so.
    """

    def __init__(self, spec: ZooSpec, env: Any, agent: str) -> None:
        self.spec, self.agent = spec, agent
        self.metadata: dict[str, Any] = dict(env.metadata)
        self.render_mode = getattr(env, "render_mode", None)
        self.max_cycles = spec.max_cycles
        self.sums: dict[str, Any] = {}
        self.agent_selection = spec.agents[0]
        self._env, self._copy = env, make_copy(env, spec)
        self._index = {name: i for i, name in enumerate(spec.agents)}
        self._look: Look | None = None

    def reset(self, seed: int | None = None) -> None:
        """Begin the episode of the environment's ``reset(seed=seed)``."""
        look = self._copy.begin(seed)
        self.terminations = dict.fromkeys(self.spec.agents, False)
        self.truncations = dict.fromkeys(self.spec.agents, False)
        self._cumulative_rewards = dict.fromkeys(self.spec.agents, 0.0)
        self._pay(self._copy.take_early())
        self.sums = {}
        self._tell(look.info)
        self._take(look)
        if not self._to_ask:
            self._play()

    def observe(self, agent: str) -> Observation:
        """Return an agent's observation; its mask is a copy."""
        own = self._shown().observations[self._index[agent]]
        return {**own, MASK: own[MASK].copy()} if MASK in own else dict(own)

    def step(self, action: Any) -> None:
        """Take the selected agent's action. Raises ActionError, before anything changes."""
        agent = self.agent_selection
        i = self._index[agent]
        mask = self._shown().observations[i].get(MASK)
        acts = np.ones(1, dtype=bool)
        given = self.spec.checked(i, [action], acts, None if mask is None else mask[None])
        self._cumulative_rewards[agent] = 0.0
        self._asked[agent] = given[0]
        self._to_ask.remove(agent)
        if self._to_ask:
            self.agent_selection = self._to_ask[0]
        else:
            self._play()

    def render(self) -> Any:
        """Return the environment's own picture."""
        return self._env.render()

    def close(self) -> None:
        self._copy.close()

    # --- Parts -----------------------------------------------------------------------------------

    def _play(self) -> None:
        """Play a step of the environment, and those in which nobody has a choice."""
        while True:
            moved = self._copy.play(self._asked)
            over = moved.final is not None
            self._pay(moved.reward)
            self._tell(moved.info)
            for agent, i in self._index.items():
                self.terminations[agent] |= bool(moved.terminated[i])
                self.truncations[agent] |= bool(moved.truncated[i])
                if over and not self.truncations[agent]:  # some never came
                    self.terminations[agent] = True
            self._take(moved.look)
            if over or self._to_ask:
                return

    def _take(self, look: Look) -> None:
        """Take what is shown now, and who is to be asked."""
        self._look = look
        self._asked: dict[str, Any] = {}
        self._to_ask = [agent for agent, i in self._index.items() if look.acting[i]]
        if self._to_ask:
            self.agent_selection = self._to_ask[0]

    def _pay(self, reward: Array) -> None:
        for agent, i in self._index.items():
            self._cumulative_rewards[agent] += float(reward[i])

    def _tell(self, info: dict[str, Array]) -> None:
        i = self._index[self.agent]
        for key, values in info.items():
            self.sums[key] = self.sums.get(key, 0.0) + values[i].item()

    def _shown(self) -> Look:
        if self._look is None:
            raise ResetNeededError(f"{self.spec.name}: call reset() first")
        return self._look
