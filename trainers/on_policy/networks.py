"""Networks made to fit spaces: what is seen as tensors, what is played as a distribution.

| seen | becomes |
|---|---|
| Box of numbers | a vector of float32, as it is |
| Box of uint8, 3 axes, sides of 3 and more | an image: scaled to 0..1, through a CNN |
| other Box of uint8 | a vector, scaled to 0..1 |
| Discrete, MultiDiscrete, MultiBinary | one-hot, one-hot for each, 0 and 1 |
| one level of Dict of these | all its vectors as one, and its images |

Actor and critic are networks of their own. Weights begin orthogonal (Saxe et al., 2013) with a gain
of sqrt(2), 0.01 for what is played and 1 for values; biases begin at 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from corral.adapters.masked_distribution import MaskedCategorical
from corral.envs.core import Array
from corral.errors import MaskError, NonFiniteError, UnsupportedSpaceError

__all__ = [
    "Actions",
    "Distribution",
    "Layout",
    "Network",
    "Parts",
    "describe",
    "image_scales",
    "legal_mask",
]

Parts = list[torch.Tensor]
"""A vector float32 [R, F], then images uint8 [R, C, H, W]."""

SMALLEST_OF_NATURE = 36
"""Pixels per side below which the layers of Mnih et al. (2015) leave nothing of an image."""

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


# --- What is seen --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One entry of an observation, and where it goes."""

    key: str | None  # of the Dict, if it is one
    space: spaces.Space[Any]
    low: int  # columns low .. high - 1 of the vector
    high: int
    axes: tuple[int, ...] | None = None  # of an image, to bring its channels to the front


@dataclass(frozen=True)
class Layout:
    """An agent's observation as a vector of ``width`` numbers and images of uint8 [C, H, W]."""

    parts: tuple[Part, ...]
    width: int
    images: tuple[tuple[int, int, int], ...]
    wrapped: bool  # a Dict with the observation in "observation"
    masked: bool  # ... and a mask beside it

    @classmethod
    def of(cls, agent: str, space: spaces.Space[Any]) -> Layout:
        """Raises UnsupportedSpaceError, naming the entry, for what has no place in the table."""
        names = set(space.spaces) if isinstance(space, spaces.Dict) else set()
        wrapped = "observation" in names and names <= {"observation", "action_mask"}
        if "action_mask" in names and not wrapped:
            raise UnsupportedSpaceError(
                f"{agent}: beside action_mask there is {sorted(names - {'action_mask'})}; give "
                "Dict(observation=..., action_mask=...)"
            )
        seen = space["observation"] if wrapped else space  # type: ignore[index]
        entries: list[tuple[str | None, spaces.Space[Any]]] = [(None, seen)]
        if isinstance(seen, spaces.Dict):
            entries = [(str(key), part) for key, part in seen.spaces.items()]
        parts, images, width = [], [], 0
        for key, part in entries:
            if axes := _image_axes(part):
                shape = tuple(part.shape[axis] for axis in axes)  # type: ignore[index]
                images.append((shape[0], shape[1], shape[2]))
                parts.append(Part(key, part, width, width, axes))
            else:
                wide = _columns(agent, key, part)
                parts.append(Part(key, part, width, width + wide))
                width += wide
        return cls(tuple(parts), width, tuple(images), wrapped, "action_mask" in names)

    def inner(self, observation: Any) -> Any:
        """The observation without its mask."""
        return observation["observation"] if self.wrapped else observation

    def write(self, observation: Any, vector: Array, images: Sequence[Array]) -> None:
        """Bring ``observation`` [R, ...], without its mask, into ``vector`` float32 [R, >= F] and
        ``images`` uint8 [R, C, H, W]."""
        place = 0
        for part in self.parts:
            value = np.asarray(observation if part.key is None else observation[part.key])
            if part.axes is not None:
                images[place][...] = value.transpose(0, *(axis + 1 for axis in part.axes))
                place += 1
            else:
                vector[:, part.low : part.high] = _numbers(part.space, value)


def _image_axes(space: spaces.Space[Any]) -> tuple[int, int, int] | None:
    """The axes (channels, height, width) of an image; None for what is none."""
    if not (isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3):
        return None
    first = space.shape[0] <= space.shape[2]  # the channels are the fewer
    axes = (0, 1, 2) if first else (2, 0, 1)
    return axes if min(space.shape[axis] for axis in axes[1:]) >= 3 else None


def _columns(agent: str, key: str | None, space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return math.prod(space.shape)
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    name = "the observation" if key is None else f"entry {key!r} of the observation"
    raise UnsupportedSpaceError(
        f"{agent}: {name} is {space}; give Box, Discrete, MultiDiscrete or MultiBinary, or one "
        "level of Dict of them"
    )


def _numbers(space: spaces.Space[Any], value: Array) -> Array:
    """An entry's values [R, ...] as columns [R, F]."""
    rows = len(value)
    if isinstance(space, spaces.Discrete):
        return one_hot(value.reshape(rows, 1) - int(space.start), np.array([space.n]))
    if isinstance(space, spaces.MultiDiscrete):
        return one_hot((value - space.start).reshape(rows, -1), space.nvec.reshape(-1))
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        return value.reshape(rows, -1) / np.float32(max(1, int(space.high.max())))
    return value.reshape(rows, -1)


def one_hot(value: Array, sizes: Array) -> Array:
    """Whole numbers [R, D], the d-th below ``sizes[d]``, as float32 [R, sum of sizes]."""
    columns = value.astype(np.int64) + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    shown = np.zeros((len(value), int(sizes.sum())), dtype=np.float32)
    np.put_along_axis(shown, columns, 1.0, axis=1)
    return shown


def image_scales(layout: Layout) -> tuple[float, ...]:
    """What the images are divided by."""
    return tuple(
        float(max(1, int(part.space.high.max())))
        for part in layout.parts
        if part.axes is not None and isinstance(part.space, spaces.Box)
    )


# --- What is played ------------------------------------------------------------------------------


class Distribution(Protocol):
    """Of actions [R, ...], as they are stored."""

    @property
    def mode(self) -> torch.Tensor: ...

    def sample(self, generator: torch.Generator) -> torch.Tensor: ...

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """float32 [R]"""
        ...

    def entropy(self) -> torch.Tensor:
        """float32 [R], in nats; of the legal actions alone."""
        ...


class Categorical:
    """One of the legal actions, int64 [R], of ``logits`` [R, A] where ``mask`` bool [R, A] is True.

    What ``MaskedCategorical`` says, computed only as far as it is asked for, and checked where it
    is used: it raises the same errors.
    """

    def __init__(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        if not torch.isfinite(logits.detach().sum()):
            MaskedCategorical(logits, mask)  # knows which; large numbers alone are no fault
        self._given = logits
        self.mask = mask
        self.logits = logits.masked_fill(~mask, -torch.inf).log_softmax(dim=-1)

    @property
    def probs(self) -> torch.Tensor:
        return self.logits.exp()

    @property
    def mode(self) -> torch.Tensor:
        return MaskedCategorical(self._given, self.mask).mode

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        # The first action at which the running sum passes a uniform number; in double precision
        # that number times the whole sum stays below it, and illegal actions add exactly 0.
        sums = self.probs.double().cumsum(dim=-1)
        whole = sums[:, -1:]
        if not bool((whole > 0).all()):
            MaskedCategorical(self._given, self.mask)
        drawn = torch.rand(len(sums), 1, dtype=torch.float64, generator=generator)
        return torch.searchsorted(sums, drawn.to(whole.device) * whole, right=True)[:, 0]

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        return self.logits.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        finite = self.logits.masked_fill(~self.mask, 0)
        return -(self.probs * finite).sum(dim=-1)


class MultiCategorical:
    """Several choices at once, independent of each other: int64 [R, D]."""

    def __init__(self, choices: Sequence[Categorical]) -> None:
        self.choices = choices

    @property
    def mode(self) -> torch.Tensor:
        return torch.stack([choice.mode for choice in self.choices], dim=-1)

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        return torch.stack([choice.sample(generator) for choice in self.choices], dim=-1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        each = zip(self.choices, actions.unbind(dim=-1), strict=True)
        return torch.stack([choice.log_prob(taken) for choice, taken in each]).sum(dim=0)

    def entropy(self) -> torch.Tensor:
        return torch.stack([choice.entropy() for choice in self.choices]).sum(dim=0)


class Gaussian:
    """Independent normal distributions around ``mean`` [R, D]: float32 [R, D], unbounded."""

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        if not (torch.isfinite(mean).all() and torch.isfinite(log_std).all()):
            raise NonFiniteError(
                "the mean or the standard deviation of an action is not finite. The network that "
                "gave it, or what it was shown, is no longer finite; go back to an earlier "
                "checkpoint, and lower the learning rate or check the observations"
            )
        self.mode = mean
        self.log_std = log_std.clamp(-20.0, 4.0)

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        noise = torch.randn(self.mode.shape, generator=generator).to(self.mode.device)
        return self.mode + self.log_std.exp() * noise

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        z = (actions - self.mode) * (-self.log_std).exp()
        return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(dim=-1)

    def entropy(self) -> torch.Tensor:
        each = self.log_std + 0.5 * (1 + math.log(2 * math.pi))
        return each.sum().expand(len(self.mode))


class Actions:
    """What a network puts out for an action space, and what the environment is given.

    | space | stored as | outputs |
    |---|---|---|
    | Discrete from 0 | int64 [R] | a logit for each action |
    | MultiDiscrete from 0 | int64 [R, D] | the logits of all D choices in a row |
    | Box [...] of floats | float32 [R, D] | D means; deviations are parameters of their own |

    A bounded side of a Box is stored as -1 .. 1 between its bounds, unclipped: what is played is
    clipped to the space, the probability is of what was drawn.
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
                f"{agent}: action space {space}; give Discrete or MultiDiscrete, counted from 0, "
                "or Box of floats"
            )

    @property
    def continuous(self) -> bool:
        return self.dtype.kind == "f"

    @property
    def masks(self) -> int:
        """Entries of a mask: one for each logit."""
        return 0 if self.continuous else self.outputs

    @property
    def encoded(self) -> int:
        """Columns of an action that is shown to a network."""
        return self.outputs

    def require_mask(self, agent: str, layout: Layout, space: spaces.Space[Any]) -> None:
        """Raise UnsupportedSpaceError where the mask that ``layout`` has does not fit."""
        if layout.masked and (shape := space["action_mask"].shape) != (self.masks,):  # type: ignore[index]
            raise UnsupportedSpaceError(
                f"{agent}: a mask of shape {shape} for {self.space}; give one entry per action"
            )

    def distribution(
        self, outputs: torch.Tensor, mask: torch.Tensor, log_std: torch.Tensor | None
    ) -> Distribution:
        """Of ``outputs`` float32 [R, outputs], with ``mask`` bool [R, masks]."""
        if log_std is not None:
            return Gaussian(outputs, log_std)
        if not self.shape:
            return Categorical(outputs, mask)
        sizes = self.sizes.tolist()
        each = zip(torch.split(outputs, sizes, -1), torch.split(mask, sizes, -1), strict=True)
        return MultiCategorical([Categorical(logits, legal) for logits, legal in each])

    def played(self, stored: Array) -> Array:
        """What the environment is given for ``stored`` [R, ...]."""
        if isinstance(self.space, spaces.Box):
            flat = self.center + self.half * stored
            shaped = flat.reshape(len(stored), *self.space.shape)
            clipped = np.clip(shaped, self.space.low, self.space.high)
            return np.asarray(clipped, dtype=self.space.dtype)
        if isinstance(self.space, spaces.MultiDiscrete):
            return stored.reshape(len(stored), *self.space.shape)
        return stored

    def shown(self, stored: Array) -> Array:
        """``stored`` [R, ...] for a network: float32 [R, encoded]."""
        if self.continuous:
            return stored
        return one_hot(stored.reshape(len(stored), -1), self.sizes)


def legal_mask(agent: str, mask: Any) -> Array:
    """A mask of 0 and 1 as bool. Raises MaskError for other values."""
    given = np.asarray(mask)
    if given.dtype == np.bool_:
        return given
    if given.dtype.itemsize == 1:
        legal = given.view(np.bool_) if given.size == 0 or given.view(np.uint8).max() <= 1 else None
    else:
        legal = given != 0 if np.isin(given, (0, 1)).all() else None
    if legal is None:
        wrong = given[(given != 0) & (given != 1)][0]
        raise MaskError(f"{agent}: action_mask holds {wrong!r}, and a mask holds 0 and 1 alone")
    return legal


# --- Networks ------------------------------------------------------------------------------------


class Network(nn.Module):
    """Encoders of what is seen, hidden layers, optionally a GRU, and a linear head.

    ``outputs`` is what the head puts out, ``gain`` how large its weights begin. With ``memory`` > 0
    a GRU of that many units (Cho et al., 2014) comes before the head, and outputs depend on a state
    float32 [R, memory], 0 at the beginning of an episode.
    """

    def __init__(
        self,
        width: int,
        images: Sequence[tuple[int, int, int]],
        scales: Sequence[float],
        *,
        outputs: int,
        gain: float,
        net_arch: Sequence[int],
        activation: str,
        memory: int,
        generator: torch.Generator,
        cnn_arch: Sequence[int] | None = None,
        cnn_patch: int = 0,
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):  # torch's own weights are drawn, and overwritten
            self.scales = tuple(scales)
            plans = [_cnn_plan(image, cnn_arch, cnn_patch) for image in images]
            self.cnns = nn.ModuleList(map(_cnn, images, plans))
            features = width + sum(plan.units for plan in plans)
            layers: list[nn.Module] = []
            for units in net_arch:
                layers += [nn.Linear(features, units), ACTIVATIONS[activation]()]
                features = units
            self.layers = nn.Sequential(*layers)
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

    def initial(self, rows: int) -> torch.Tensor:
        """The state before an episode's first step: float32 [rows, memory]."""
        return torch.zeros(rows, self.memory, device=self.head.weight.device)

    def encode(self, parts: Parts) -> torch.Tensor:
        """Features [R, units] of what is seen."""
        if not len(self.cnns):
            features: torch.Tensor = self.layers(parts[0])
            return features
        pictures = [
            cnn(image.float() / scale)
            for cnn, image, scale in zip(self.cnns, parts[1:], self.scales, strict=True)
        ]
        joined: torch.Tensor = self.layers(torch.cat([parts[0], *pictures], dim=-1))
        return joined

    def forward(self, parts: Parts) -> torch.Tensor:
        """Outputs [R, outputs] of a network without memory."""
        outputs: torch.Tensor = self.head(self.encode(parts))
        return outputs

    def step(self, parts: Parts, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs [R, outputs] and the next state [R, memory]; without memory it is the given."""
        if not self.memory:
            return self(parts), state
        _, after = self.gru(self.encode(parts)[None], state[None].contiguous())
        return self.head(after[0]), after[0]

    def unroll(
        self, parts: Parts, state: torch.Tensor, padded: torch.Tensor, at: torch.Tensor
    ) -> torch.Tensor:
        """The states [R, memory] after each of R decisions, for ``parts`` [R, ...] of them.

        S sequences begin with ``state`` [S, memory]; ``padded`` [L, S] holds the rows of their
        decisions in turn, and ``at`` [R] where in it, flattened, each decision is. ``head`` of the
        states gives the outputs.
        """
        states, _ = self.gru(self.encode(parts)[padded], state[None].contiguous())
        reached: torch.Tensor = states.flatten(0, 1)[at]
        return reached


@dataclass(frozen=True)
class _Plan:
    """A CNN: its layers, as (filters, kernel, stride, padding), and the units they lead to."""

    layers: tuple[tuple[int, int, int, int], ...]
    units: int


def _cnn_plan(image: tuple[int, int, int], arch: Sequence[int] | None, patch: int) -> _Plan:
    """The CNN for an image [C, H, W]; ``arch`` are filters of its layers, then units.

    From 36 pixels a side on the layers of Mnih et al. (Human-level control through deep
    reinforcement learning, 2015); below, layers of 3 x 3, which halve sides of more than 8. With
    ``patch`` the first layer takes squares of so many pixels, side by side (Dosovitskiy et al., An
    Image is Worth 16x16 Words, 2021), and layers of 3 x 3 follow: a tenth of the time.
    """
    _, high, wide = image
    smallest = min(high, wide)
    if patch:
        if high % patch or wide % patch:
            raise ValueError(
                f"cnn_patch={patch}: images of {high} x {wide} pixels do not fall into squares of "
                "that side; give one that divides both, or 0"
            )
        *filters, units = arch or (32, 128)
        kernels = [(patch, patch, 0), *[(3, 1, 1)] * (len(filters) - 1)]
    else:
        usual: tuple[int, ...] = (32, 64, 64, 256)
        kernels = [(8, 4, 0), (4, 2, 0), (3, 1, 0)]
        if smallest < SMALLEST_OF_NATURE:
            usual = (32, 64, 64, 128) if smallest > 8 else (32, 64, 128)
            kernels = [(3, 2, 1)] * 3 if smallest > 8 else [(3, 1, 1)] * 2
        if arch is not None and len(arch) != len(usual):
            raise ValueError(
                f"cnn_arch={tuple(arch)} for images of {high} x {wide} pixels: give {len(usual)} "
                f"numbers, the filters of {len(usual) - 1} layers and the units after them, such "
                f"as {usual}"
            )
        *filters, units = arch or usual
    layers = [(found, *kernel) for found, kernel in zip(filters, kernels, strict=True)]
    return _Plan(tuple(layers), units)


def _cnn(image: tuple[int, int, int], plan: _Plan) -> nn.Module:
    """Features [R, units] of images [R, C, H, W] in 0..1."""
    channels, high, wide = image
    layers: list[nn.Module] = []
    for filters, kernel, stride, padding in plan.layers:
        layers += [nn.Conv2d(channels, filters, kernel, stride, padding), nn.ReLU()]
        channels = filters
        wide, high = ((side + 2 * padding - kernel) // stride + 1 for side in (wide, high))
    flat = channels * wide * high
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(flat, plan.units), nn.ReLU())


def describe(layout: Layout, actions: Actions) -> Mapping[str, Any]:
    """What goes in and out, as JSON values: for whoever loads exported weights elsewhere."""
    return {
        "vector": [[part.key, part.low, part.high] for part in layout.parts if part.axes is None],
        "images": [list(image) for image in layout.images],
        "action_space": str(actions.space),
        "outputs": actions.outputs,
    }
