"""Codecs that convert observations and actions to the arrays that learners use.

``ObservationCodec`` is for networks:

| entry of an observation | becomes |
|---|---|
| Box of numbers | a vector of float32, unchanged |
| Box of uint8, 3 axes, sides of 3 and more | an image, scaled to 0..1, for a CNN |
| other Box of uint8 | a vector, scaled to 0..1 |
| of these Boxes, a grid (see ``grid_of``) | the same vector, of which a CNN may read the grid |
| Discrete, MultiDiscrete, MultiBinary | one-hot, one-hot for each, 0 and 1 |
| one level of Dict of these | all vectors joined, and all images |

``ColumnCodec`` is for single-agent libraries. It has no nested Dicts, as Stable-Baselines3 refuses
them:

| entry | space |
|---|---|
| ``observation`` | the environment's observation; ``observation_<key>`` for each key of a Dict |
| ``action_mask`` | Box int8 [A], 1 for legal actions |
| ``agent`` | Box float32 [N], one-hot; only with ``agent_id`` and more than one agent |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from corral.adapters.nested import flat_tree
from corral.adapters.refusals import ONE_SEAT, refuse_death, refuse_masks, refuse_turns
from corral.envs.core import Array, Observation, stack_agents
from corral.envs.masks import MASK, OBSERVATION, has_mask, mask_space, split, split_space
from corral.errors import UnsupportedSpaceError

__all__ = [
    "ActionCodec",
    "ColumnCodec",
    "Grid",
    "ObservationCodec",
    "count_actions",
    "grid_of",
    "image_axes",
    "image_of",
    "refuse_death",
    "refuse_masks",
    "refuse_turns",
    "width_of",
]

Image = tuple[int, int, int]
"""Channels, height and width."""


# --- Entries of an observation -------------------------------------------------------------------


def image_axes(space: spaces.Space[Any]) -> Image | None:
    """Return the axes (channels, height, width) of an image space; None for other spaces."""
    if not (isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3):
        return None
    axes = (
        (0, 1, 2) if space.shape[0] <= space.shape[2] else (2, 0, 1)
    )  # the smaller axis is the channels
    return axes if min(space.shape[axis] for axis in axes[1:]) >= 3 else None


def image_of(space: spaces.Space[Any]) -> Image | None:
    """Return channels, height and width of an image space; None for other spaces."""
    axes = image_axes(space)
    shape = space.shape or ()
    return None if axes is None else (shape[axes[0]], shape[axes[1]], shape[axes[2]])


LARGEST_GRID = 32
"""Maximum height and width of a grid."""


class Grid(NamedTuple):
    """A grid in the columns from ``low`` of a vector: C H W values in the order of ``shape``."""

    low: int
    shape: Image
    axes: Image  # channels, height, width

    @property
    def image(self) -> Image:
        """Channels, height and width."""
        channels, height, width = self.axes
        return self.shape[channels], self.shape[height], self.shape[width]


def grid_of(space: spaces.Space[Any], low: int = 0) -> Grid | None:
    """Return a space as a grid, such as a board, in the columns from ``low``; None for others.

    A grid is a Box with a height and a width of 3 to 32. With two axes it contains integers, in one
    channel. With three axes, the channels are the first or the last axis: the one that differs from
    two equal sides, else the smaller one, else the last one. Images are not grids.
    """
    if not isinstance(space, spaces.Box) or image_axes(space) is not None:
        return None
    axes: Image = (2, 0, 1)
    if len(space.shape) == 2 and space.dtype.kind in "iub":
        front, middle, back = (*space.shape, 1)
    elif len(space.shape) == 3:
        front, middle, back = space.shape
        equal = middle == back  # two equal sides behind the channels
        if front < back if equal == (front == middle) else equal:
            axes = (0, 1, 2)
    else:
        return None
    grid = Grid(low, (front, middle, back), axes)
    return grid if all(3 <= side <= LARGEST_GRID for side in grid.image[1:]) else None


def width_of(space: spaces.Space[Any]) -> int | None:
    """Return the number of vector columns for ``space``; None for Dicts and other spaces."""
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return math.prod(space.shape)
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return int(space.nvec.sum()) if isinstance(space, spaces.MultiDiscrete) else None


def scale_of(space: spaces.Space[Any]) -> float:
    """Return the divisor for the numbers of a Box of uint8; 1 for other spaces."""
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        return float(max(1, int(space.high.max())))
    return 1.0


def _numbers(space: spaces.Space[Any], value: Array) -> Array:
    """Return the values [R, ...] of an entry as columns [R, F]."""
    rows = len(value)
    if isinstance(space, spaces.Discrete):
        return _one_hot(value.reshape(rows, 1) - int(space.start), np.array([space.n]))
    if isinstance(space, spaces.MultiDiscrete):
        return _one_hot((value - space.start).reshape(rows, -1), space.nvec.reshape(-1))
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        return value.reshape(rows, -1) / np.float32(scale_of(space))
    return value.reshape(rows, -1)


def _one_hot(value: Array, sizes: Array) -> Array:
    """Return integers [R, D], column d below ``sizes[d]``, as one-hot float32 [R, sum of sizes]."""
    columns = value.astype(np.int64) + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    encoded = np.zeros((len(value), int(sizes.sum())), dtype=np.float32)
    np.put_along_axis(encoded, columns, 1.0, axis=1)
    return encoded


@dataclass(frozen=True)
class Entry:
    """One entry of an observation, and its position in the arrays."""

    key: str | None  # in a Dict observation, else None
    space: spaces.Space[Any]
    low: int  # columns low .. high - 1 of the vector
    high: int
    axes: Image | None = None  # of an image: channels, height, width

    def of(self, observation: Any) -> Any:
        """Return this entry of an ``observation`` without its mask."""
        return observation if self.key is None else observation[self.key]


# --- Observations for networks -------------------------------------------------------------------


@dataclass(frozen=True)
class ObservationCodec:
    """An agent's observation as a vector of ``width`` numbers and images of uint8 [C, H, W]."""

    entries: tuple[Entry, ...]
    width: int
    images: tuple[Image, ...]
    wrapped: bool  # a Dict with the observation in "observation"
    masked: bool  # ... and a mask in "action_mask"

    @classmethod
    def of(cls, agent: str, space: spaces.Space[Any]) -> ObservationCodec:
        """Return the codec. Raises UnsupportedSpaceError for an entry that is not in the table."""
        names = set(space.spaces) if isinstance(space, spaces.Dict) else set()
        wrapped = OBSERVATION in names and names <= {OBSERVATION, MASK}
        if has_mask(space) and not wrapped:
            raise UnsupportedSpaceError(
                f"{agent}: the entries besides action_mask are {sorted(names - {MASK})}; use "
                "Dict(observation=..., action_mask=...)"
            )
        inner = space[OBSERVATION] if wrapped else space  # type: ignore[index]
        parts: list[tuple[str | None, spaces.Space[Any]]] = [(None, inner)]
        if isinstance(inner, spaces.Dict):
            parts = [(str(key), part) for key, part in inner.spaces.items()]
        entries, images, width = [], [], 0
        for key, part in parts:
            if (axes := image_axes(part)) and (image := image_of(part)):
                images.append(image)
                entries.append(Entry(key, part, width, width, axes))
                continue
            columns = width_of(part)
            if columns is None:
                name = "the observation" if key is None else f"entry {key!r} of the observation"
                raise UnsupportedSpaceError(
                    f"{agent}: {name} is {part}; use Box, Discrete, MultiDiscrete or "
                    "MultiBinary, or one level of Dict of them"
                )
            entries.append(Entry(key, part, width, width + columns))
            width += columns
        return cls(tuple(entries), width, tuple(images), wrapped, has_mask(space))

    @property
    def scales(self) -> tuple[float, ...]:
        """The divisors of the images."""
        return tuple(scale_of(entry.space) for entry in self.entries if entry.axes is not None)

    def grids(self, first: int = 0) -> tuple[Grid, ...]:
        """Return the grids of a vector in which the observation starts at column ``first``."""
        grids = (grid_of(entry.space, first + entry.low) for entry in self.entries)
        return tuple(grid for grid in grids if grid is not None)

    def inner(self, observation: Any) -> Any:
        """Return the observation without its mask, flattened to one level of dict."""
        return flat_tree(observation[OBSERVATION] if self.wrapped else observation)

    def rows(self, observation: Any) -> int | None:
        """Return the number of rows R of an observation [R, ...]; None for a single observation."""
        if self.masked:
            mask = observation[MASK]
            return None if np.ndim(mask) == 1 else len(mask)
        first = self.entries[0]
        value = first.of(self.inner(observation))
        return None if np.ndim(value) == len(first.space.shape or ()) else len(value)

    def write(self, observation: Any, vector: Array, images: Sequence[Array]) -> None:
        """Write ``observation`` [R, ...], without its mask, to ``vector`` float32 [R, >= F] and
        ``images`` uint8 [R, C, H, W]."""
        targets = iter(images)
        for entry in self.entries:
            value = np.asarray(entry.of(observation))
            if entry.axes is not None:
                next(targets)[...] = value.transpose(0, *(axis + 1 for axis in entry.axes))
            else:
                numbers = _numbers(entry.space, value)
                if numbers.shape[1:] != (entry.high - entry.low,):
                    name = OBSERVATION if entry.key is None else entry.key
                    raise ValueError(f"{name} of shape {value.shape}: pass rows of {entry.space}")
                vector[:, entry.low : entry.high] = numbers


# --- Actions -------------------------------------------------------------------------------------


class ActionCodec:
    """An action space: the network outputs for it, and the stored form of its actions.

    | space | stored as | outputs |
    |---|---|---|
    | Discrete from 0 | int64 [R] | a logit for each action |
    | MultiDiscrete from 0 | int64 [R, D] | the logits of all D choices, concatenated |
    | Box [...] of floats | float32 [R, D] | D means; deviations are separate parameters |

    For a bounded dimension of a Box, -1 .. 1 stands for the range between the bounds. Actions are
    stored unclipped, and the probability is that of the unclipped action. The environment gets the
    action clipped to the space.
    """

    def __init__(self, agent: str, space: spaces.Space[Any]) -> None:
        self.space = space
        self.sizes = np.zeros(0, dtype=np.int64)  # of the choices
        self.shape: tuple[int, ...] = ()  # of a stored action
        self.dtype: np.dtype[Any] = np.dtype(np.int64)
        if isinstance(space, spaces.Discrete) and space.start == 0:
            self.sizes = np.array([int(space.n)])
            self.outputs = int(space.n)
        elif isinstance(space, spaces.MultiDiscrete) and not space.start.any():
            self.sizes = space.nvec.reshape(-1).astype(np.int64)
            self.outputs, self.shape = int(self.sizes.sum()), (len(self.sizes),)
        elif isinstance(space, spaces.Box) and space.dtype.kind == "f":
            self.outputs = math.prod(space.shape)
            self.shape, self.dtype = (self.outputs,), np.dtype(np.float32)
            low, high = space.low.reshape(-1), space.high.reshape(-1)
            bounded = np.isfinite(low) & np.isfinite(high)
            with np.errstate(all="ignore"):
                self.center = np.where(bounded, (high + low) / 2, 0.0).astype(np.float32)
                self.half = np.where(bounded, (high - low) / 2, 1.0).astype(np.float32)
        else:
            raise UnsupportedSpaceError(
                f"{agent}: action space {space} is not supported; use Discrete or MultiDiscrete, "
                "counted from 0, or Box of floats"
            )

    @property
    def continuous(self) -> bool:
        return self.dtype.kind == "f"

    @property
    def masks(self) -> int:
        """Number of mask entries: one per logit."""
        return 0 if self.continuous else self.outputs

    @property
    def encoded(self) -> int:
        """Number of columns of an action as a network input."""
        return self.outputs

    def require_mask(self, agent: str, space: spaces.Space[Any]) -> None:
        """Raise UnsupportedSpaceError if the mask of an observation ``space`` does not fit."""
        mask = split_space(space)[1]
        if mask is not None and mask.shape != (self.masks,):
            raise UnsupportedSpaceError(
                f"{agent}: a mask of shape {mask.shape} for {self.space}; use one entry per action"
            )

    def decode(self, stored: Array) -> Array:
        """Return the environment's actions for ``stored`` [R, ...]."""
        if isinstance(self.space, spaces.Box):
            flat = self.center + self.half * stored
            shaped = flat.reshape(len(stored), *self.space.shape)
            clipped = np.clip(shaped, self.space.low, self.space.high)
            return np.asarray(clipped, dtype=self.space.dtype)
        if isinstance(self.space, spaces.MultiDiscrete):
            return stored.reshape(len(stored), *self.space.shape)
        return stored

    def encode(self, stored: Array) -> Array:
        """Return ``stored`` [R, ...] as network input: float32 [R, encoded]."""
        if self.continuous:
            return stored
        return _one_hot(stored.reshape(len(stored), -1), self.sizes)


def count_actions(space: spaces.Space[Any], where: str = "") -> int:
    """Return the number of actions of a mask. Raises UnsupportedSpaceError for other spaces."""
    if not isinstance(space, spaces.Discrete) or space.start != 0:
        raise UnsupportedSpaceError(
            f"{where}action space {space}; masks require Discrete, counted from 0"
        )
    return int(space.n)


# --- Columns for single-agent libraries ----------------------------------------------------------


@dataclass(frozen=True)
class ColumnCodec:
    """Agents with equal spaces as columns: their spaces, and observations as one level of Dict."""

    name: str  # of the environment
    agents: tuple[str, ...]
    observation_space: spaces.Dict
    action_space: spaces.Space[Any]
    masked: bool  # True if the environment gives masks; else all Discrete actions are legal
    names: dict[str, str] | None  # key in the environment's Dict observation -> entry name
    identities: Array | None  # float32 [N, N] one row per agent

    @classmethod
    def of(
        cls, env: Any, name: str, agents: Sequence[str], agent_id: bool, any_actions: bool = False
    ) -> ColumnCodec:
        """Return the codec for a ParallelEnv or for Rules.

        ``any_actions`` also allows MultiDiscrete and Box, without a mask. Raises
        UnsupportedSpaceError if agents differ, actions are not Discrete from 0, or an observation
        is neither plain nor one level of Dict.
        """
        space, action = env.observation_space(agents[0]), env.action_space(agents[0])
        for agent in agents[1:]:
            agent_spaces = env.observation_space(agent), env.action_space(agent)
            for first, other in zip((space, action), agent_spaces, strict=True):
                if other != first:
                    raise UnsupportedSpaceError(
                        f"{name}: {agents[0]} has {first}, {agent} has {other}, but columns need "
                        "equal spaces. Use vectorize(corral.adapters.wrappers.homogenize(env), "
                        "...), which pads them, or corral.adapters.make_batch. " + ONE_SEAT
                    )
        discrete = not any_actions or isinstance(action, spaces.Discrete)
        mask = mask_space(count_actions(action, f"{name}: ")) if discrete else None
        inner = split_space(space)[0]
        if isinstance(inner, spaces.Dict) and set(inner.spaces) == {OBSERVATION}:
            inner = inner[OBSERVATION]
        names: dict[Any, str] | None = None
        entries: dict[Any, spaces.Space[Any]] = {OBSERVATION: inner}
        if isinstance(inner, spaces.Dict):
            # Stable-Baselines3 uses the names for torch modules, which must not contain dots.
            names = {key: "observation_" + str(key).replace(".", "_") for key in inner.spaces}
            entries = {names[key]: part for key, part in inner.spaces.items()}
            if len(entries) != len(names):
                raise UnsupportedSpaceError(f"{name}: {list(names)} differ only in dots")
        for key, part in entries.items():
            if width_of(part) is None:
                raise UnsupportedSpaceError(
                    f"{name}: {key} is {part}; Stable-Baselines3 supports arrays and numbers in "
                    "one level of Dict"
                )
        if mask is not None:
            entries[MASK] = mask
        identities = None
        if agent_id and len(agents) > 1:
            identities = np.eye(len(agents), dtype=np.float32)
            entries["agent"] = spaces.Box(0.0, 1.0, (len(agents),), np.float32)
        return cls(
            name, tuple(agents), spaces.Dict(entries), action, has_mask(space), names, identities
        )

    def flat(
        self, observation: Any, rows: tuple[int, ...] = (), agent: int | None = None
    ) -> dict[str, Array]:
        """Return an observation [*rows, ...] without nesting; ``agent`` adds its identity."""
        inner, mask = split(observation) if self.masked else (observation, None)
        if isinstance(inner, Mapping) and set(inner) == {OBSERVATION}:
            inner = inner[OBSERVATION]
        if self.names is None:
            entries = {
                OBSERVATION: np.asarray(inner)[()]
            }  # a single Discrete observation is np.int64
        else:
            entries = {name: np.asarray(inner[key])[()] for key, name in self.names.items()}
        if MASK in self.observation_space.spaces:
            if mask is None:
                mask = np.ones((*rows, count_actions(self.action_space)), dtype=np.int8)
            entries[MASK] = np.asarray(mask, dtype=np.int8)
        if self.identities is not None and agent is not None:
            entries["agent"] = np.tile(self.identities[agent], (*rows, 1))
        return entries

    def columns(self, observations: Mapping[str, Observation]) -> dict[str, Array]:
        """Return batched observations [B, ...] by agent as entries [B * N, ...].

        The row is copy * N + agent.
        """
        # A copy, because callers may write to it, and Batch checks actions by its own masks.
        blocks: dict[str, Any] = {}
        if self.masked:
            blocks[MASK] = stack_agents(observations, MASK).copy()
        parts = [observations[agent][OBSERVATION] for agent in self.agents]
        if self.names is not None:
            blocks[OBSERVATION] = {
                key: np.stack([part[key] for part in parts], axis=1) for key in self.names
            }
        elif isinstance(parts[0], Mapping):  # a Dict of only "observation"
            blocks[OBSERVATION] = np.stack([part[OBSERVATION] for part in parts], axis=1)
        else:
            blocks[OBSERVATION] = stack_agents(observations, OBSERVATION)
        entries = {
            key: block.reshape(-1, *block.shape[2:])  # [B, N, ...] -> [B * N, ...]
            for key, block in self.flat(blocks).items()
        }
        if self.identities is not None:
            num_envs = len(next(iter(entries.values()))) // len(self.agents)
            entries["agent"] = np.tile(self.identities, (num_envs, 1))  # [B * N, N]
        return entries
