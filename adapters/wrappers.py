"""Make the agents of a ParallelEnv alike, and have them all stay until the episode ends.

    vec_env = vectorize(homogenize(env), num_envs=8)

Vectorised learners want one shape for all agents and all of them in every step. ``homogenize`` pads
what differs and keeps agents that have ended in place.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from corral.envs.core import Array
from corral.errors import IllegalActionError, ResetNeededError, UnsupportedSpaceError

__all__ = ["Homogenized", "homogenize"]


def homogenize(parallel_env: Any) -> Homogenized:
    """``parallel_env`` with one observation space and one action space for all agents.

    Every observation is a Dict of ``observation`` and ``action_mask``:

    * ``observation``, or each entry of it where it is a Dict: Box, zeros added at the end of every
      axis up to the largest; bounds, dtype and entries take in all agents';
    * ``action_mask``: int8 [A], A the largest number of actions; the added ones are illegal.

    An agent that ends before the others stays: its observation is zeros, its mask allows action 0
    alone, which the environment is not told of, its reward is 0. It counts as terminated when all
    have ended, so that what it is worth after its end is learned to be 0.

    Raises UnsupportedSpaceError where an environment is no ParallelEnv, an action space is not
    Discrete from 0, or observations differ in more than their sizes; and, when stepping, where
    time is up for some agents only: their values would go on, and here they cannot.
    """
    return Homogenized(parallel_env)


class Homogenized(ParallelEnv[str, Any, int]):  # type: ignore[misc]  # PettingZoo ships no types
    """A ParallelEnv around another one; see ``homogenize``."""

    def __init__(self, env: Any) -> None:
        name = str(getattr(env, "metadata", {}).get("name", env))
        if not isinstance(env, ParallelEnv):
            raise UnsupportedSpaceError(f"{name} is no ParallelEnv; give the parallel_env()")
        self.env = env
        self.name = name
        self.metadata = env.metadata
        self.render_mode = getattr(env, "render_mode", None)
        self.possible_agents = list(env.possible_agents)
        self.agents: list[str] = []
        self._sizes = {agent: _size(name, env.action_space(agent)) for agent in env.possible_agents}
        self._actions = max(self._sizes.values())
        views = [_view(env.observation_space(agent)) for agent in self.possible_agents]
        self._space = spaces.Dict(
            {
                "observation": _common(name, views),
                "action_mask": spaces.Box(0, 1, (self._actions,), np.int8),
            }
        )
        self._action_space = spaces.Discrete(self._actions)

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def observation_space(self, agent: str) -> spaces.Dict:
        return self._space

    def action_space(self, agent: str) -> spaces.Discrete:
        return self._action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode; all agents take part."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        self._keys = {agent: dict.fromkeys(infos.get(agent, {}), 0) for agent in self.agents}
        return self._shown(observations, self.env.agents), self._told(infos)

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[
        dict[str, Any],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Play one action per agent; those of agents that have ended must be 0.

        Raises IllegalActionError, before anything changes, for an action that was added, or any but
        0 of an agent that has ended. All other actions are the environment's to judge.
        """
        if not self.agents:
            raise ResetNeededError(f"{self.name}: the episode is over; call reset()")
        live = list(self.env.agents)
        for agent, action in actions.items():
            legal = self._sizes.get(agent, 1) if agent in live else 1
            if agent in self.agents and operator.index(action) >= legal:
                raise IllegalActionError(
                    f"{agent}: action {action} is illegal here; legal at most: 0..{legal - 1}. "
                    'Choose by observation["action_mask"].'
                )
        given = {a: action for a, action in actions.items() if a in live or a not in self.agents}
        observations, rewards, terminated, truncated, infos = self.env.step(given)

        over = not self.env.agents
        cut = [agent for agent in live if truncated[agent] and not terminated[agent]]
        if cut and not over:
            raise UnsupportedSpaceError(
                f"{self.name}: time is up for {', '.join(cut)}, but not for the others: their "
                "values go on after the cut, which agents kept in place cannot show. Step it with "
                "agents that end together"
            )
        everyone = self.agents
        if over:
            self.agents = []
        shown = self._shown(observations, live if over else self.env.agents)
        return (
            shown,
            {agent: float(rewards.get(agent, 0.0)) for agent in everyone},
            {agent: over and agent not in cut for agent in everyone},
            {agent: over and agent in cut for agent in everyone},
            self._told(infos),
        )

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def state(self) -> Array:
        return np.asarray(self.env.state())

    # --- Parts -----------------------------------------------------------------------------------

    def _shown(self, observations: Mapping[str, Any], live: Sequence[str]) -> dict[str, Any]:
        """All agents' observations, padded; zeros for those that are not ``live``."""
        shown = {}
        for agent in self.possible_agents:
            mask = np.zeros(self._actions, dtype=np.int8)
            if agent in live:
                given, own = observations[agent], self.env.observation_space(agent)
                masked = isinstance(own, spaces.Dict) and "action_mask" in own.spaces
                mask[: self._sizes[agent]] = given["action_mask"] if masked else 1
                seen = given["observation"] if masked else given
            else:
                mask[0] = 1
                seen = None
            shown[agent] = {"observation": _padded(self._space["observation"], seen)}
            shown[agent]["action_mask"] = mask
        return shown

    def _told(self, infos: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """All agents' infos; zeros under the keys of the first one for those that have none."""
        return {agent: dict(infos.get(agent, self._keys[agent])) for agent in self.possible_agents}


def _size(name: str, space: Any) -> int:
    if not isinstance(space, spaces.Discrete) or space.start != 0:
        raise UnsupportedSpaceError(
            f"{name}: action space {space}; masks need Discrete, counted from 0"
        )
    return int(space.n)


def _view(space: Any) -> Any:
    """The space of what is seen, without the mask."""
    masked = isinstance(space, spaces.Dict) and "action_mask" in space.spaces
    return space["observation"] if masked else space


def _common(name: str, parts: Sequence[Any]) -> Any:
    """The least space that takes in all of ``parts``, padded with zeros."""
    same_entries = all(isinstance(part, spaces.Dict) for part in parts) and (
        len({frozenset(part.spaces) for part in parts}) == 1
    )
    if same_entries:
        return spaces.Dict({k: _common(name, [p[k] for p in parts]) for k in parts[0].spaces})
    same_axes = all(isinstance(part, spaces.Box) for part in parts) and (
        len({len(part.shape) for part in parts}) == 1
    )
    if not same_axes:
        raise UnsupportedSpaceError(
            f"{name}: the agents see {', '.join(map(str, parts))}; only Boxes of as many axes, or "
            "Dicts of such with the same entries, can be padded to one"
        )
    shape = tuple(np.max([part.shape for part in parts], axis=0).tolist())
    dtype = np.result_type(*(part.dtype for part in parts))
    # The zeros of the padding, and of ended agents, are inside of the bounds too.
    low, high = np.zeros(shape, dtype), np.zeros(shape, dtype)
    for part in parts:
        corner = tuple(slice(size) for size in part.shape)
        low[corner] = np.minimum(low[corner], part.low)
        high[corner] = np.maximum(high[corner], part.high)
    return spaces.Box(low, high, shape, dtype.type)


def _padded(space: Any, value: Any) -> Any:
    """``value`` in the corner of zeros; None: zeros alone."""
    if isinstance(space, spaces.Dict):
        return {k: _padded(part, None if value is None else value[k]) for k, part in space.items()}
    whole = np.zeros(space.shape, space.dtype)
    if value is not None:
        whole[tuple(slice(size) for size in np.shape(value))] = value
    return whole
