"""One third-party environment in which agents act one after another, for ``SeatEnv``."""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.adapters.zoo.copies import Observed, make_copy
from corral.adapters.zoo.spec import ZooSpec
from corral.envs.core import Array, Observation
from corral.envs.masks import MASK
from corral.errors import ResetNeededError

__all__ = ["ZooTurns"]


class ZooTurns:
    """A PettingZoo environment, parallel or AEC, with the part of TurnShell that ``SeatEnv`` uses.

    A step of the environment is played after all acting agents have an action. ``sums`` adds up
    the numbers for ``agent`` in the infos. The reader of ``sums`` resets it. Ended agents do not
    act; ``terminations`` and ``truncations`` mark them.
    """

    def __init__(self, spec: ZooSpec, env: Any, agent: str) -> None:
        self.spec, self.agent = spec, agent
        self.metadata: dict[str, Any] = dict(env.metadata)
        self.render_mode = getattr(env, "render_mode", None)
        self.max_cycles = spec.max_cycles
        self.sums: dict[str, Any] = {}
        self.agent_selection = spec.agents[0]
        self._env, self._copy = env, make_copy(env, spec, checked=True)
        self._index = {name: i for i, name in enumerate(spec.agents)}
        self._look: Observed | None = None

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode with the environment's ``reset(seed=seed)``."""
        look = self._copy.begin(seed)
        self.terminations = dict.fromkeys(self.spec.agents, False)
        self.truncations = dict.fromkeys(self.spec.agents, False)
        self._cumulative_rewards = dict.fromkeys(self.spec.agents, 0.0)
        self._add_reward(self._copy.take_early())
        self.sums = {}
        self._add_info(look.info)
        self._store(look)
        if not self._agents_to_act:
            self._play()

    def observe(self, agent: str) -> Observation:
        """Return an agent's observation, with a copy of its mask."""
        own = self._current_look().observations[self._index[agent]]
        return {**own, MASK: own[MASK].copy()} if MASK in own else dict(own)

    def step(self, action: Any) -> None:
        """Take the action of the selected agent. Raises ActionError before anything changes."""
        agent = self.agent_selection
        i = self._index[agent]
        mask = self._current_look().observations[i].get(MASK)
        acts = np.ones(1, dtype=bool)
        checked = self.spec.checked(i, [action], acts, None if mask is None else mask[None])
        self._cumulative_rewards[agent] = 0.0
        self._pending_actions[agent] = checked[0]
        self._agents_to_act.remove(agent)
        if self._agents_to_act:
            self.agent_selection = self._agents_to_act[0]
        else:
            self._play()

    def render(self) -> Any:
        """Return the picture of the environment."""
        return self._env.render()

    def close(self) -> None:
        self._copy.close()

    # --- Parts -----------------------------------------------------------------------------------

    def _play(self) -> None:
        """Play a step of the environment, and all steps until an agent acts."""
        while True:
            moved = self._copy.play(self._pending_actions)
            over = moved.final is not None
            self._add_reward(moved.reward)
            self._add_info(moved.info)
            for agent, i in self._index.items():
                self.terminations[agent] |= bool(moved.terminated[i])
                self.truncations[agent] |= bool(moved.truncated[i])
                if over and not self.truncations[agent]:  # some agents never joined
                    self.terminations[agent] = True
            self._store(moved.look)
            if over or self._agents_to_act:
                return

    def _store(self, look: Observed) -> None:
        """Store the current observations, and the agents that act next."""
        self._look = look
        self._pending_actions: dict[str, Any] = {}
        self._agents_to_act = [agent for agent, i in self._index.items() if look.acting[i]]
        if self._agents_to_act:
            self.agent_selection = self._agents_to_act[0]

    def _add_reward(self, reward: Array) -> None:
        for agent, i in self._index.items():
            self._cumulative_rewards[agent] += float(reward[i])

    def _add_info(self, info: dict[str, Array]) -> None:
        i = self._index[self.agent]
        for key, values in info.items():
            self.sums[key] = self.sums.get(key, 0.0) + values[i].item()

    def _current_look(self) -> Observed:
        if self._look is None:
            raise ResetNeededError(f"{self.spec.name}: call reset() first")
        return self._look
