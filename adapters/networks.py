"""Networks that fit observation and action spaces, for corral's own trainers. Requires only torch.

Observations come as ``Parts``, see ``corral.adapters.spaces``. Actor and critic are separate
networks. Weights are initialized orthogonally (Saxe et al., 2013) with a gain of sqrt(2), 0.01 for
the outputs of the actor and 1 for values. Biases are initialized to 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional

from corral.adapters.masked_distribution import MaskedCategorical
from corral.adapters.spaces import (
    ActionCodec,
    Grid,
    Image,
    ObservationCodec,
    count_actions,
    image_axes,
    image_of,
    scale_of,
    width_of,
)
from corral.envs.masks import MASK, split_space
from corral.errors import UnsupportedSpaceError

__all__ = [
    "SMALLEST_OF_NATURE",
    "STATE",
    "MaskedActorCritic",
    "Network",
    "Parts",
    "describe",
    "make_cnn",
    "plan_halving",
]

Parts = list[torch.Tensor]
"""A vector float32 [R, F], then images uint8 [R, C, H, W]."""

STATE = "state"
"""The entry of an observation that only critics observe."""

SMALLEST_OF_NATURE = 36
"""Minimum pixels per side for the layers of Mnih et al. (2015); smaller images would vanish."""

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


# --- CNNs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """A CNN: its layers as (filters, kernel, stride, padding), and the number of output units."""

    layers: tuple[tuple[int, int, int, int], ...]
    units: int


def plan_cnn(image: Image, arch: Sequence[int] | None, patch: int) -> Plan:
    """Return the CNN for an image [C, H, W]. ``arch`` lists the filters per layer, then the units.

    Images of at least 36 pixels per side get the layers of Mnih et al. (Human-level control through
    deep reinforcement learning, 2015). Smaller images get layers of 3 x 3, which halve sides of
    more than 8 pixels. With ``patch``, the first layer takes adjacent squares of that many pixels
    per side (Dosovitskiy et al., An Image is Worth 16x16 Words, 2021). Layers of 3 x 3 follow. This
    takes a tenth of the time.
    """
    _, high, wide = image
    smallest = min(high, wide)
    if patch:
        if high % patch or wide % patch:
            raise ValueError(
                f"cnn_patch={patch} must divide both sides of the images, {high} x {wide} pixels; "
                "pass a common divisor, or 0"
            )
        *filters, units = arch or (32, 128)
        kernels = [(patch, patch, 0), *[(3, 1, 1)] * (len(filters) - 1)]
    else:
        default: tuple[int, ...] = (32, 64, 64, 256)
        kernels = [(8, 4, 0), (4, 2, 0), (3, 1, 0)]
        if smallest < SMALLEST_OF_NATURE:
            default = (32, 64, 64, 128) if smallest > 8 else (32, 64, 128)
            kernels = [(3, 2, 1)] * 3 if smallest > 8 else [(3, 1, 1)] * 2
        if arch is not None and len(arch) != len(default):
            raise ValueError(
                f"cnn_arch={tuple(arch)} for images of {high} x {wide} pixels: pass {len(default)} "
                f"numbers, the filters of {len(default) - 1} layers and the number of units, such "
                f"as {default}"
            )
        *filters, units = arch or default
    layers = [(size, *kernel) for size, kernel in zip(filters, kernels, strict=True)]
    return Plan(tuple(layers), units)


def plan_halving(image: Image, arch: Sequence[int]) -> Plan:
    """Return a CNN with one layer of 3 x 3 per filter in ``arch``; each layer halves the sides."""
    *filters, units = arch
    return Plan(tuple((size, 3, 2, 1) for size in filters), units)


def make_grid_cnn(grid: Grid, arch: Sequence[int]) -> nn.Sequential:
    """Return the module that maps grids [R, C, H, W] to features [R, filters * H * W].

    ``arch`` lists the filters of its layers. They are 3 x 3 and keep the sides, as in Silver et al.
    (Mastering the game of Go without human knowledge, 2017).
    """
    channels, layers = grid.image[0], list[nn.Module]()
    for filters in arch:
        layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()]
        channels = filters
    return nn.Sequential(*layers, nn.Flatten())


def make_cnn(image: Image, plan: Plan) -> nn.Module:
    """Return the module that maps images [R, C, H, W] in 0..1 to features [R, units]."""
    channels, high, wide = image
    layers: list[nn.Module] = []
    for filters, kernel, stride, padding in plan.layers:
        layers += [nn.Conv2d(channels, filters, kernel, stride, padding), nn.ReLU()]
        channels = filters
        wide, high = ((side + 2 * padding - kernel) // stride + 1 for side in (wide, high))
    flat = channels * wide * high
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(flat, plan.units), nn.ReLU())


# --- The network ---------------------------------------------------------------------------------


class Network(nn.Module):
    """Encoders of observations, hidden layers, an optional GRU, and a linear head.

    ``outputs`` is the output size of the head, ``gain`` the gain of its initial weights. With
    ``memory`` > 0, a GRU of that many units (Cho et al., 2014) precedes the head. Outputs then
    depend on a hidden state float32 [R, memory], which is 0 at the start of an episode. Weights are
    drawn from ``generator``, or from the global generator of torch if None. ``plan`` returns the
    CNN for an image. With ``grid_arch``, a CNN also reads each of the ``grids`` in the vector. An
    ``encoder`` from parts to features [R, out_features] replaces the encoders and hidden layers.
    """

    def __init__(
        self,
        width: int,
        images: Sequence[Image],
        scales: Sequence[float],
        grids: Sequence[Grid] = (),
        *,
        outputs: int,
        gain: float,
        net_arch: Sequence[int],
        activation: str,
        memory: int = 0,
        generator: torch.Generator | None = None,
        cnn_arch: Sequence[int] | None = None,
        cnn_patch: int = 0,
        grid_arch: Sequence[int] | None = None,
        plan: Callable[[Image], Plan] | None = None,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(
            devices=[]
        ):  # torch draws initial weights, which are overwritten
            self.scales = tuple(scales)
            self.grids = tuple(grids) if grid_arch and encoder is None else ()
            plan = plan or partial(plan_cnn, arch=cnn_arch, patch=cnn_patch)
            self.encoder: nn.Module | None = None
            if encoder is None:
                plans = [plan(image) for image in images]
                self.cnns = nn.ModuleList(map(make_cnn, images, plans))
                self.grid_cnns = nn.ModuleList(
                    make_grid_cnn(grid, grid_arch or ()) for grid in self.grids
                )
                features = width + sum(plan_of_image.units for plan_of_image in plans)
                features += sum((grid_arch or ())[-1] * math.prod(g.image[1:]) for g in self.grids)
                layers: list[nn.Module] = []
                for units in net_arch:
                    layers += [nn.Linear(features, units), ACTIVATIONS[activation]()]
                    features = units
                self.layers = nn.Sequential(*layers)
            else:
                features = int(encoder.out_features)  # type: ignore[arg-type]
            self.memory = memory
            if memory:
                self.gru = nn.GRU(features, memory)
                features = memory
            self.head = nn.Linear(features, outputs)
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
                    nn.init.orthogonal_(module.weight, math.sqrt(2), generator=generator)
                    nn.init.zeros_(module.bias)
            if memory:
                for name, weights in self.gru.named_parameters():
                    if "bias" in name:
                        nn.init.zeros_(weights)
                    else:
                        for gate in weights.chunk(3):
                            nn.init.orthogonal_(gate, 1.0, generator=generator)
            nn.init.orthogonal_(self.head.weight, gain, generator=generator)
        if encoder is not None:
            self.encoder = encoder  # keeps its own initial weights

    def initial(self, rows: int) -> torch.Tensor:
        """Return the hidden state before an episode's first step: float32 [rows, memory]."""
        return torch.zeros(rows, self.memory, device=self.head.weight.device)

    def encode(self, parts: Parts) -> torch.Tensor:
        """Return the features [R, units] of observations."""
        if self.encoder is not None:
            encoded: torch.Tensor = self.encoder(parts)
            return encoded
        pieces = [parts[0]]
        for cnn, grid in zip(self.grid_cnns, self.grids, strict=True):
            columns = parts[0][:, grid.low : grid.low + math.prod(grid.shape)]
            planes = columns.reshape(-1, *grid.shape).permute(0, *(axis + 1 for axis in grid.axes))
            pieces.append(cnn(planes.contiguous()))  # other strides take up to twice the time
        for cnn, image, scale in zip(self.cnns, parts[1:], self.scales, strict=True):
            pieces.append(cnn(image.float() / scale))
        features: torch.Tensor = self.layers(torch.cat(pieces, dim=-1) if pieces[1:] else parts[0])
        return features

    def forward(self, parts: Parts) -> torch.Tensor:
        """Return the outputs [R, outputs] of a network without hidden state."""
        outputs: torch.Tensor = self.head(self.encode(parts))
        return outputs

    def step(self, parts: Parts, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs [R, outputs] and the next hidden state [R, memory].

        A network without hidden state returns ``state``.
        """
        if not self.memory:
            return self(parts), state
        _, after = self.gru(self.encode(parts)[None], state[None].contiguous())
        return self.head(after[0]), after[0]

    def unroll(
        self, parts: Parts, state: torch.Tensor, padded: torch.Tensor, at: torch.Tensor
    ) -> torch.Tensor:
        """Return the hidden states [R, memory] after each of R decisions, for their ``parts``
        [R, ...].

        S sequences begin with ``state`` [S, memory]. ``padded`` [L, S] holds the rows of their
        decisions in order of time. ``at`` [R] is the index of each decision in the flattened
        ``padded``. ``head`` maps the states to outputs.
        """
        states, _ = self.gru(self.encode(parts)[padded], state[None].contiguous())
        reached: torch.Tensor = states.flatten(0, 1)[at]
        return reached


def describe(observations: ObservationCodec, actions: ActionCodec) -> Mapping[str, Any]:
    """Return inputs and outputs as JSON values, for programs that load exported weights."""
    entries = observations.entries
    return {
        "vector": [[entry.key, entry.low, entry.high] for entry in entries if entry.axes is None],
        "images": [list(image) for image in observations.images],
        "grids": [[low, list(shape), list(axes)] for low, shape, axes in observations.grids()],
        "action_space": str(actions.space),
        "outputs": actions.outputs,
    }


# --- Networks for trees of tensors ---------------------------------------------------------------


class MaskedActorCritic(nn.Module):
    """Separate networks ``actor`` [..., A] and ``critic`` [..., 1] for a Dict observation.

    Entries may be nested. The actor gets all entries except ``action_mask`` and ``state``, the
    critic all entries except ``action_mask``.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        net_arch: Sequence[int] = (64, 64),
        activation: str = "relu",
        cnn_arch: Sequence[int] = (16, 32, 64),
    ) -> None:
        """``cnn_arch`` lists the filters of 3 x 3 layers that halve the sides, then the units.

        Raises UnsupportedSpaceError if actions are not Discrete from 0, a mask does not fit them,
        or an entry is not in the table of ``corral.adapters.spaces``.
        """
        super().__init__()
        actions = count_actions(action_space)
        mask = split_space(observation_space)[1]
        if mask is not None and mask.shape != (actions,):
            raise UnsupportedSpaceError(f"the mask has shape {mask.shape} for {actions} actions")
        make = partial(
            TreeNetwork,
            observation_space,
            net_arch=net_arch,
            activation=activation,
            plan=partial(plan_halving, arch=cnn_arch),
        )
        self.actor = make(hidden=(MASK, STATE), outputs=actions, gain=0.01)
        self.critic = make(hidden=(MASK,), outputs=1, gain=1.0)

    def distribution(self, observation: Any) -> MaskedCategorical:
        """Return the distribution of actions for tensors [R, ...], with their mask [R, A]."""
        return MaskedCategorical(self.actor(observation), observation[MASK] != 0)


class TreeNetwork(Network):
    """A Network without hidden state, for observations as trees of tensors."""

    def __init__(self, space: spaces.Space[Any], *, hidden: Sequence[str], **options: Any) -> None:
        """``hidden`` are entries of the outermost Dict that the network does not get."""
        entries = [leaf for leaf in _leaves(space) if leaf[0][:1] not in [(h,) for h in hidden]]
        width, images, scales = 0, [], []
        for path, entry in entries:
            if image := image_of(entry):
                images.append(image)
                scales.append(scale_of(entry))
                continue
            columns = width_of(entry)
            if columns is None:
                raise UnsupportedSpaceError(
                    f"entry {'/'.join(path) or 'observation'} is {entry}; use Box, Discrete, "
                    "MultiDiscrete, MultiBinary, or Dicts of them"
                )
            width += columns
        if not width and not images:
            raise UnsupportedSpaceError(f"{space} has no entries except {', '.join(hidden)}")
        super().__init__(width, images, scales, **options)
        self.entries = entries

    def forward(self, observation: Any) -> torch.Tensor:
        """Return the outputs [R, outputs] for an observation with entries [R, ...]."""
        vectors, images = [], []
        for path, entry in self.entries:
            value = observation
            for key in path:
                value = value[key]
            if axes := image_axes(entry):
                images.append(value.permute(0, *(axis + 1 for axis in axes)))
            else:
                vectors.append(_numbers(entry, value))
        vector = torch.cat(vectors, dim=-1) if vectors else images[0].new_zeros(len(images[0]), 0)
        return super().forward([vector.float(), *images])


def _leaves(
    space: spaces.Space[Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], spaces.Space[Any]]]:
    """Yield the leaves of a space, each with its path of keys."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key))
    else:
        yield path, space


def _numbers(space: spaces.Space[Any], value: torch.Tensor) -> torch.Tensor:
    """Return the values [R, ...] of an entry as columns float32 [R, F]."""
    rows = len(value)
    if isinstance(space, spaces.Discrete):
        number = value.reshape(rows).long() - int(space.start)
        return functional.one_hot(number, int(space.n)).float()
    if isinstance(space, spaces.MultiDiscrete):
        start = torch.as_tensor(np.asarray(space.start).reshape(-1), device=value.device)
        numbers = value.reshape(rows, -1).long() - start
        choices = zip(numbers.unbind(dim=1), space.nvec.reshape(-1).tolist(), strict=True)
        return torch.cat([functional.one_hot(v, n) for v, n in choices], dim=-1).float()
    return value.reshape(rows, -1).float() / scale_of(space)


def tensors(observation: Mapping[str, Any] | Any) -> Any:
    """Return a tree of arrays as tensors."""
    if isinstance(observation, Mapping):
        return {key: tensors(value) for key, value in observation.items()}
    return torch.as_tensor(np.asarray(observation))
