"""The spaces of third-party PettingZoo environments: what is handled, and as which arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from corral.envs.core import Array, Observation
from corral.envs.masks import sample_legal
from corral.errors import EnvironmentFault, UnsupportedSpaceError

__all__ = ["MASK", "Layout", "bounds", "leaves", "random_actions", "stack"]

MASK = "action_mask"


@dataclass(frozen=True)
class Layout:
    """What all copies of an environment have in common; travels to worker processes."""

    name: str
    agents: tuple[str, ...]
    turns: bool  # an AECEnv
    simultaneous: bool
    own_observations: tuple[spaces.Space[Any], ...]  # as the environment has them
    own_actions: tuple[spaces.Space[Any], ...]
    max_cycles: int | None
    state_size: int | None = None  # of the environment's own state(); None: it has none

    @classmethod
    def of(cls, env: Any, max_cycles: int | None) -> Layout:
        """The layout of an environment, which is reset once to see whether it has a state.

        Raises UnsupportedSpaceError, and EnvironmentFault where it names no ``possible_agents``.
        """
        name = str(getattr(env, "metadata", {}).get("name", type(env).__name__))
        if not isinstance(env, ParallelEnv | AECEnv):
            raise UnsupportedSpaceError(
                f"make_env gave {type(env).__name__}, which is no PettingZoo environment; give a "
                "function that returns a ParallelEnv or an AECEnv"
            )
        agents = tuple(getattr(env, "possible_agents", ()))
        if not agents:
            raise EnvironmentFault(
                f"{name} has no possible_agents; the places of agents must be known beforehand"
            )
        layout = cls(
            name=name,
            agents=agents,
            turns=isinstance(env, AECEnv),
            simultaneous=isinstance(env, ParallelEnv)
            and bool(env.metadata.get("is_parallelizable", True)),
            own_observations=tuple(env.observation_space(agent) for agent in agents),
            own_actions=tuple(env.action_space(agent) for agent in agents),
            max_cycles=max_cycles,
        )
        for i, agent in enumerate(agents):
            layout.observation_space(agent)  # refuses what cannot be shown
            layout.blank(i)
        env.reset(seed=0)
        state = _state_of(env)
        return layout if state is None else dataclasses.replace(layout, state_size=len(state))

    def masked(self, place: int) -> bool:
        """Whether the agent's observation brings a mask of its own."""
        space = self.own_observations[place]
        return isinstance(space, spaces.Dict) and MASK in space.spaces

    def actions(self, place: int) -> int | None:
        """How many actions the agent has; None where they are not Discrete."""
        space = self.own_actions[place]
        return int(space.n) if isinstance(space, spaces.Discrete) else None

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Discrete, counted from 0, MultiDiscrete or Box."""
        space = self.own_actions[self.agents.index(agent)]
        return spaces.Discrete(int(space.n)) if isinstance(space, spaces.Discrete) else space

    def observation_space(self, agent: str) -> spaces.Dict:
        """``observation`` and, where actions are Discrete, ``action_mask``."""
        place = self.agents.index(agent)
        action = self.own_actions[place]
        if not isinstance(action, spaces.Discrete | spaces.MultiDiscrete | spaces.Box):
            raise UnsupportedSpaceError(
                f"{self.name}, {agent}: action space {action}; Discrete, MultiDiscrete and Box "
                "are handled. Wrap the environment"
            )
        if isinstance(action, spaces.Box) and action.dtype.kind not in "fiu":
            raise UnsupportedSpaceError(f"{self.name}, {agent}: action space {action} of no number")
        count = self.actions(place)
        if count is None and self.masked(place):
            raise UnsupportedSpaceError(
                f"{self.name}, {agent}: an action_mask for {action}; masks are for Discrete "
                "actions, and would be lost"
            )
        entries: dict[str, spaces.Space[Any]] = {"observation": self._inner(place)}
        if count is not None:
            entries[MASK] = spaces.Box(0, 1, (count,), np.int8)
        return spaces.Dict(entries)

    def _inner(self, place: int) -> spaces.Space[Any]:
        """What is observed, without the mask."""
        space = self.own_observations[place]
        if not self.masked(place):
            return space
        assert isinstance(space, spaces.Dict)
        rest = {key: part for key, part in space.spaces.items() if key != MASK}
        return rest["observation"] if set(rest) == {"observation"} else spaces.Dict(rest)

    # --- Observations ----------------------------------------------------------------------------

    def blank(self, place: int) -> Observation:
        """What an agent that is not there observes: zeros. Raises UnsupportedSpaceError."""
        where = f"{self.name}, {self.agents[place]}"
        shown: Observation = {"observation": _zeros(self._inner(place), where)}
        if (count := self.actions(place)) is not None:
            shown[MASK] = np.zeros(count, dtype=np.int8)
        return shown

    def shown(self, place: int, observation: Any, info: Mapping[str, Any]) -> Observation:
        """An agent's observation as checked arrays of its own, with its mask."""
        where = f"{self.name}, {self.agents[place]}"
        mask = info.get(MASK)  # where PettingZoo allows it to be, too
        if self.masked(place):
            if not isinstance(observation, Mapping) or MASK not in observation:
                raise EnvironmentFault(f"{where}: an observation without its action_mask")
            mask = observation[MASK]
            rest = {key: part for key, part in observation.items() if key != MASK}
            observation = rest["observation"] if set(rest) == {"observation"} else rest
        shown: Observation = {"observation": _array(self._inner(place), observation, where)}
        count = self.actions(place)
        if count is not None:
            legal = np.ones(count, dtype=bool) if mask is None else np.asarray(mask) != 0
            if legal.shape != (count,):
                raise EnvironmentFault(
                    f"{where}: an action_mask of shape {legal.shape} for {count} actions"
                )
            shown[MASK] = legal.astype(np.int8)
        elif mask is not None:
            raise UnsupportedSpaceError(f"{where}: an action_mask for {self.own_actions[place]}")
        return shown


def _zeros(space: spaces.Space[Any], where: str) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _zeros(part, where) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return np.zeros(space.shape or (), dtype=space.dtype)
    raise UnsupportedSpaceError(
        f"{where}: observation space {space}; Box, Discrete, MultiDiscrete, MultiBinary and Dicts "
        "of these are handled. Wrap the environment"
    )


def _array(space: spaces.Space[Any], value: Any, where: str) -> Any:
    """``value`` as new arrays of the space's shapes and types. Raises EnvironmentFault."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            keys = sorted(value) if isinstance(value, Mapping) else type(value).__name__
            raise EnvironmentFault(f"{where}: observed {keys}, its space has {sorted(space)}")
        return {key: _array(part, value[key], where) for key, part in space.spaces.items()}
    try:
        given = np.asarray(value)
        array = given.astype(space.dtype)  # a copy: environments overwrite what they showed
    except (TypeError, ValueError):
        raise EnvironmentFault(f"{where}: observed {value!r}, its space is {space}") from None
    if given.shape != (space.shape or ()):
        raise EnvironmentFault(
            f"{where}: an observation of shape {given.shape}, its space is {space}"
        )
    if not np.can_cast(given.dtype, array.dtype, "same_kind") and (given != array).any():
        raise EnvironmentFault(
            f"{where}: an observation of {given.dtype}, its space is {space}: values would be lost"
        )
    return array


def leaves(tree: Any) -> Iterable[Array]:
    if not isinstance(tree, dict):
        yield tree
        return
    for part in tree.values():
        yield from leaves(part)


def _state_of(env: Any) -> Array | None:
    """The environment's own state, float32 [G]; None where it has none that is an array."""
    try:
        state = np.asarray(env.state(), dtype=np.float32).ravel()
    except Exception:  # there is no telling how an environment says that it has none
        return None
    return state if len(state) else None


# --- Arrays of copies ----------------------------------------------------------------------------


def stack(trees: Sequence[Any]) -> Any:
    """Trees of arrays [...] as one tree of arrays [R, ...]."""
    if isinstance(trees[0], dict):
        return {key: stack([tree[key] for tree in trees]) for key in trees[0]}
    return np.stack(trees)


def bounds(low: Array, high: Array) -> str:
    if low.size and (low == low.flat[0]).all() and (high == high.flat[0]).all():
        return f"{low.flat[0]}..{high.flat[0]}"
    return f"from {low.tolist()} to {high.tolist()}"


def random_actions(
    space: Any, mask: Array | None, num_envs: int, rng: np.random.Generator
) -> Array:
    """Random actions [B, ...] of one agent, legal ones where it has a mask [B, A].

    Where a Box has no bound, they are drawn within 1 of 0, or of the bound that it has.
    """
    shape = (num_envs, *space.shape)
    if mask is not None:
        return np.asarray(sample_legal(mask, rng))
    if isinstance(space, spaces.MultiDiscrete):
        numbers: Array = rng.integers(space.nvec, size=shape) + space.start
        return numbers.astype(space.dtype)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    lower = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 1, -1.0))
    upper = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 1, 1.0))
    if space.dtype.kind in "iu":
        whole: Array = np.floor(rng.random(shape) * (upper - lower + 1)) + lower
        return whole.astype(space.dtype)
    drawn: Array = rng.random(shape) * (upper - lower) + lower
    return np.asarray(np.clip(drawn.astype(space.dtype), space.low, space.high))
