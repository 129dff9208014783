"""Base class of environments with RLlib's multi-agent interface, without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium import spaces

__all__ = ["MultiAgentEnv", "is_multi_agent", "space_of"]


class MultiAgentEnv(gymnasium.Env[Any, Any]):
    """Replacement for RLlib's MultiAgentEnv, with the attributes that its subclasses use."""

    agents: Any = ()  # active agents
    possible_agents: Any = ()
    observation_spaces: Any = None  # by agent
    action_spaces: Any = None
    observation_space: Any = None  # one for all agents
    action_space: Any = None
    _num_agents: int | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Seed ``np_random``. A subclass returns observations, or observations and infos."""
        super().reset(seed=seed, options=options)

    def step(self, action_dict: Any) -> Any:
        raise NotImplementedError

    def render(self) -> Any:
        """Render the environment. The base class draws nothing."""

    def get_observation_space(self, agent_id: Any) -> Any:
        """Return the observation space of an agent."""
        return space_of(self, "observation", agent_id)

    def get_action_space(self, agent_id: Any) -> Any:
        """Return the action space of an agent."""
        return space_of(self, "action", agent_id)

    def get_agent_ids(self) -> set[Any]:
        """Return the ids in ``possible_agents``, or else in ``agents``."""
        return set(self.possible_agents or self.agents)

    @property
    def num_agents(self) -> int:
        """Number of active agents, or the number that a subclass has set."""
        return len(self.agents) if self._num_agents is None else self._num_agents

    @num_agents.setter
    def num_agents(self, number: int) -> None:
        self._num_agents = number

    @property
    def max_num_agents(self) -> int:
        """Number of possible agents."""
        return len(self.possible_agents)


def is_multi_agent(kind: type) -> bool:
    """Return True if a class derives from a MultiAgentEnv, corral's or RLlib's."""
    return any(base.__name__ == "MultiAgentEnv" for base in kind.__mro__)


def space_of(env: Any, kind: str, agent: Any) -> Any:
    """Return an agent's space from the attributes of ``env``; None if they do not define it."""
    shared = getattr(env, f"{kind}_space", None)
    for candidate in (getattr(env, f"{kind}_spaces", None), shared):
        # ``in`` of a Dict space tests for values, and a Dict space is a Mapping too.
        table = candidate.spaces if isinstance(candidate, spaces.Dict) else candidate
        if isinstance(table, Mapping) and agent in table:
            return table[agent]
    if isinstance(shared, spaces.Space):
        return shared
    if isinstance(shared, Mapping):
        return None
    return shared(agent) if callable(shared) else shared
