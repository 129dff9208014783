"""The supported spaces of third-party PettingZoo environments, and their conversion to arrays."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from corral.adapters.nested import flat_space, flat_tree
from corral.adapters.zoo.bare import ObservedOnce, bare
from corral.envs.core import Array, Observation
from corral.envs.masks import (
    MASK,
    OBSERVATION,
    has_mask,
    mask_space,
    refuse_masked_arrays,
    require_integers,
    require_legal,
    split,
    split_space,
)
from corral.errors import ActionError, EnvironmentFault, UnsupportedSpaceError

__all__ = ["ZooSpec", "leaves"]


@dataclass(frozen=True)
class ZooSpec:
    """The properties that all copies of an environment share. It is sent to worker processes."""

    name: str
    agents: tuple[str, ...]
    turns: bool  # an AECEnv
    simultaneous: bool
    own_observations: tuple[spaces.Space[Any], ...]  # unconverted spaces of the environment
    own_actions: tuple[spaces.Space[Any], ...]
    max_cycles: int | None
    state_size: int | None = None  # size of the environment's state(); None: no state; 0: unused

    @classmethod
    def of(cls, env: Any, max_cycles: int | None) -> ZooSpec:
        """Return the spec of an environment. Resets it once, to check if it has a state.

        Raises UnsupportedSpaceError, and EnvironmentFault if it has no ``possible_agents``.
        """
        name = str(getattr(env, "metadata", {}).get("name", type(env).__name__))
        if not isinstance(env, ParallelEnv | AECEnv):
            raise UnsupportedSpaceError(
                f"make_env returned {type(env).__name__}, not a PettingZoo environment; pass a "
                "function that returns a ParallelEnv or an AECEnv"
            )
        agents = tuple(getattr(env, "possible_agents", ()))
        if not agents:
            raise EnvironmentFault(
                f"{name} has no possible_agents; set them, as all agents must be known in advance"
            )
        spec = cls(
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
            spec.observation_space(agent)  # raises for unsupported spaces
            spec.blank(i)
        first = env.reset(seed=0)
        state = _state_of(env)
        if state is not None and isinstance(bare(env, masked=False), ObservedOnce):
            # The state of MPE2 repeats all observations, which take a third of the time of a step.
            seen = [first[0][agent].ravel() for agent in agents]
            state = None if np.array_equal(state, np.concatenate(seen)) else state
        return spec if state is None else dataclasses.replace(spec, state_size=len(state))

    def masked(self, index: int) -> bool:
        """Return True if the agent's observation contains a mask."""
        return has_mask(self.own_observations[index])

    def actions(self, index: int) -> int | None:
        """Return the number of the agent's actions; None if they are not Discrete."""
        space = self.own_actions[index]
        return int(space.n) if isinstance(space, spaces.Discrete) else None

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return the action space: Discrete counted from 0, MultiDiscrete, or Box."""
        space = self.own_actions[self.agents.index(agent)]
        return spaces.Discrete(int(space.n)) if isinstance(space, spaces.Discrete) else space

    def observation_space(self, agent: str) -> spaces.Dict:
        """Return the space of ``observation`` and, for Discrete actions, ``action_mask``."""
        index = self.agents.index(agent)
        action = self.own_actions[index]
        if not isinstance(action, spaces.Discrete | spaces.MultiDiscrete | spaces.Box):
            raise UnsupportedSpaceError(
                f"{self.name}, {agent}: action space {action} is not supported; wrap the "
                "environment so that it has Discrete, MultiDiscrete or Box actions"
            )
        if isinstance(action, spaces.Box) and action.dtype.kind not in "fiu":
            raise UnsupportedSpaceError(
                f"{self.name}, {agent}: action space {action} is not numeric"
            )
        count = self.actions(index)
        if count is None and self.masked(index):
            raise UnsupportedSpaceError(
                f"{self.name}, {agent}: an action_mask for {action} would be lost; masks are only "
                "for Discrete actions"
            )
        entries: dict[str, spaces.Space[Any]] = {OBSERVATION: self._inner(index)}
        if count is not None:
            entries[MASK] = mask_space(count)
        return spaces.Dict(entries)

    def state_space(self) -> spaces.Box:
        """Return the space of ``env.state()``, else of all observations, concatenated."""
        size = self.state_size
        if size is None:
            blanks = (self.blank(i)[OBSERVATION] for i in range(len(self.agents)))
            size = sum(leaf.size for blank in blanks for leaf in leaves(blank))
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def _inner(self, index: int) -> spaces.Space[Any]:
        """Return the space of the observation without the mask, as one level of Dict."""
        return flat_space(self._own_inner(index), self.agents[index])

    def _own_inner(self, index: int) -> spaces.Space[Any]:
        """Return the space of the observation without the mask, not flattened."""
        return split_space(self.own_observations[index])[0]

    @functools.cached_property
    def _codecs(self) -> tuple[_Codec, ...]:
        """The properties that ``encode`` needs for every observation, by agent."""
        return tuple(
            _Codec(
                where=f"{self.name}, {agent}",
                inner=self._own_inner(i),
                masked=self.masked(i),
                all_legal=None if (count := self.actions(i)) is None else np.ones(count, np.int8),
            )
            for i, agent in enumerate(self.agents)
        )

    # --- Observations ----------------------------------------------------------------------------

    def blank(self, index: int) -> Observation:
        """Return the zero observation of an absent agent. Raises UnsupportedSpaceError."""
        where = f"{self.name}, {self.agents[index]}"
        zeros: Observation = {OBSERVATION: flat_tree(_zeros(self._own_inner(index), where))}
        if (count := self.actions(index)) is not None:
            zeros[MASK] = np.zeros(count, dtype=np.int8)
        return zeros

    def encode(self, index: int, observation: Any, info: Mapping[str, Any]) -> Observation:
        """Return an agent's observation as new, checked arrays, with its mask."""
        codec = self._codecs[index]
        mask = info.get(MASK)  # PettingZoo also allows masks in infos
        if codec.masked:
            observation, mask = split(observation)
            if mask is None:
                raise EnvironmentFault(f"{codec.where}: an observation without its action_mask")
        arrays = _array(codec.inner, observation, codec.where)
        encoded: Observation = {OBSERVATION: flat_tree(arrays)}
        if codec.all_legal is None:
            if mask is not None:
                raise UnsupportedSpaceError(
                    f"{codec.where}: an action_mask for {self.own_actions[index]}"
                )
        elif mask is None:
            encoded[MASK] = codec.all_legal.copy()
        else:
            legal = np.asarray(mask) != 0
            if legal.shape != codec.all_legal.shape:
                raise EnvironmentFault(
                    f"{codec.where}: an action_mask of shape {legal.shape} for "
                    f"{len(codec.all_legal)} actions"
                )
            encoded[MASK] = legal.view(np.int8)
        return encoded

    # --- Actions ---------------------------------------------------------------------------------

    def checked(self, index: int, values: Any, acts: Array, mask: Array | None) -> Array:
        """Return one agent's actions [B, ...] in B copies as arrays of its action space.

        ``acts`` is bool [B]; entries of copies in which the agent does not act are ignored.
        ``mask`` is [B, A]. Raises ActionError and IllegalActionError with the number of the copy.
        """
        agent, copies = self.agents[index], len(acts)
        space: Any = self.action_space(agent)
        shape = (copies, *space.shape)
        if isinstance(space, spaces.Box) and space.dtype.kind == "f":
            refuse_masked_arrays(values)
            try:
                actions = np.asarray(values)
            except ValueError:
                actions = np.zeros(0)
            if actions.dtype.kind not in "fiu" or actions.shape != shape:
                raise ActionError(
                    f"{agent}: actions are {actions.dtype} {actions.shape}; pass numbers of shape "
                    f"{shape}"
                )
            actions = actions.astype(space.dtype)
        else:
            actions = require_integers(values, shape, f"copies x actions of {agent}")
        if isinstance(space, spaces.Box):
            low, high = space.low, space.high
        elif isinstance(space, spaces.MultiDiscrete):
            low, high = space.start, space.start + space.nvec - 1
        else:
            low, high = np.zeros((), np.int64), np.asarray(space.n - 1)
        inside = (actions >= low) & (actions <= high) & np.isfinite(actions)  # no NaN passes
        out_of_range = acts & ~inside.reshape(copies, -1).all(axis=1)
        if out_of_range.any():
            row = int(out_of_range.argmax())
            raise ActionError(
                f"copy {row}, {agent}: action {actions[row].tolist()} is out of range; "
                f"pass {_bounds(low, high)}"
            )
        if mask is not None:
            rows = np.flatnonzero(acts)
            illegal = rows[mask[rows, actions[rows]] == 0]
            if len(illegal):
                row = int(illegal[0])
                require_legal(f"copy {row}, {agent}", int(actions[row]), mask[row])
        return actions if isinstance(space, spaces.Discrete) else actions.astype(space.dtype)


@dataclass(frozen=True)
class _Codec:
    """The properties of an agent's observation."""

    where: str  # names the agent in errors
    inner: spaces.Space[Any]  # without the mask, not flattened
    masked: bool
    all_legal: Array | None  # the mask of an agent without mask, int8 [A]; None: not Discrete


def _bounds(low: Array, high: Array) -> str:
    """Return the bounds as text: "0..3", or lists of bounds if they differ between numbers."""
    if low.size and (low == low.flat[0]).all() and (high == high.flat[0]).all():
        return f"{low.flat[0]}..{high.flat[0]}"
    return f"from {low.tolist()} to {high.tolist()}"


def _zeros(space: spaces.Space[Any], where: str) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _zeros(part, where) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_zeros(part, where) for part in space.spaces)
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return np.zeros(space.shape or (), dtype=space.dtype)
    raise UnsupportedSpaceError(
        f"{where}: observation space {space} is not supported; wrap the environment so that it has "
        "Box, Discrete, MultiDiscrete, MultiBinary, or Dicts and Tuples of these"
    )


def _array(space: spaces.Space[Any], value: Any, where: str) -> Any:
    """Return ``value`` as new arrays of the space's shapes and types. Raises EnvironmentFault."""
    if type(space) is spaces.Box:  # the usual case first
        return _leaf(space, value, where)
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            keys = sorted(value) if isinstance(value, Mapping) else type(value).__name__
            raise EnvironmentFault(f"{where}: observed {keys}, but its space has {sorted(space)}")
        return {key: _array(part, value[key], where) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            text = f"{len(value)} values" if isinstance(value, tuple | list) else repr(value)
            raise EnvironmentFault(f"{where}: observed {text}, but its space is {space}")
        pairs = zip(space.spaces, value, strict=True)
        return tuple(_array(part, part_value, where) for part, part_value in pairs)
    return _leaf(space, value, where)


def _leaf(space: spaces.Space[Any], value: Any, where: str) -> Array:
    """Return ``value`` as a new array of a space other than Dict and Tuple."""
    try:
        observed = np.asarray(value)
        # A copy, because environments may overwrite observations.
        array: Array = observed.astype(space.dtype)
    except (TypeError, ValueError):
        raise EnvironmentFault(f"{where}: observed {value!r}, but its space is {space}") from None
    if observed.shape != (space.shape or ()):
        raise EnvironmentFault(
            f"{where}: an observation of shape {observed.shape}, but its space is {space}"
        )
    if (
        observed.dtype != array.dtype
        and not np.can_cast(observed.dtype, array.dtype, "same_kind")
        and (observed != array).any()
    ):
        raise EnvironmentFault(
            f"{where}: an observation of {observed.dtype}, but its space is {space}; converting it "
            "would change values"
        )
    return array


def leaves(tree: Any) -> Iterable[Array]:
    """Yield the arrays of a tree of dicts."""
    if not isinstance(tree, dict):
        yield tree
        return
    for part in tree.values():
        yield from leaves(part)


def _state_of(env: Any) -> Array | None:
    """Return the environment's state, float32 [G]; None if it has no state as an array."""
    try:
        state = np.asarray(env.state(), dtype=np.float32).ravel()
    except Exception:  # environments without a state raise various exceptions
        return None
    return state if len(state) else None
