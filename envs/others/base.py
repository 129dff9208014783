"""The base class of environments in RLlib's form, without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium import spaces

__all__ = ["MultiAgentEnv", "is_multi_agent", "space_of"]


class MultiAgentEnv(gymnasium.Env[Any, Any]):
    """The base class that environments of RLlib have, with what their code relies on."""

    agents: Any = ()  # that play now
    possible_agents: Any = ()
    observation_spaces: Any = None  # by agent
    action_spaces: Any = None
    observation_space: Any = None  # one for all agents
    action_space: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Seed ``np_random``; a class returns its observations, or these and infos."""
        super().reset(seed=seed, options=options)

    def step(self, action_dict: Any) -> Any:
        raise NotImplementedError

    def render(self) -> Any:
        """Draw the environment; nothing here."""

    def get_observation_space(self, agent_id: Any) -> Any:
        """Return an agent's observation space."""
        return space_of(self, "observation", agent_id)

    def get_action_space(self, agent_id: Any) -> Any:
        """Return an agent's action space."""
        return space_of(self, "action", agent_id)

    def get_agent_ids(self) -> set[Any]:
        """Return the ids of all agents, as far as they are named."""
        return set(self.possible_agents or self.agents)

    @property
    def num_agents(self) -> int:
        """Number of agents that play now."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """Number of agents that may come."""
        return len(self.possible_agents)


def is_multi_agent(kind: type) -> bool:
    """Return whether a class has a MultiAgentEnv, ours or RLlib's, among its bases."""
    return any(base.__name__ == "MultiAgentEnv" for base in kind.__mro__)


def space_of(env: Any, kind: str, agent: Any) -> Any:
    """Return an agent's space as the attributes of ``env`` say; None where they do not."""
    shared = getattr(env, f"{kind}_space", None)
    for found in (getattr(env, f"{kind}_spaces", None), shared):
        # A Dict space has "in" for its values, and is a Mapping too.
        table = found.spaces if isinstance(found, spaces.Dict) else found
        if isinstance(table, Mapping) and agent in table:
            return table[agent]
    if isinstance(shared, spaces.Space):
        return shared
    if isinstance(shared, Mapping):
        return None
    return shared(agent) if callable(shared) else shared
