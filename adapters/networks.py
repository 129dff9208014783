"""Actor and critic for observations with masks, of any kind of entries. Torch only.

| entry of an observation | becomes |
|---|---|
| Box of numbers | a vector of float32, as it is |
| Box of uint8, 3 axes, sides of 3 and more, channels first or last | an image, through a CNN |
| other Box of uint8 | a vector, scaled to 0..1 |
| Discrete, MultiDiscrete, MultiBinary | one-hot, one-hot for each, 0 and 1 |
| Dict | its entries |

The actor sees all but ``action_mask`` and ``state``, the critic all but ``action_mask``. Weights
begin orthogonal (Saxe et al., 2013) with a gain of sqrt(2), 0.01 for the actor's logits and 1 for
values; biases begin at 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional

from corral.errors import UnsupportedSpaceError

__all__ = ["MASK", "STATE", "MaskedActorCritic", "masked_logits"]

MASK, STATE = "action_mask", "state"
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def masked_logits(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``logits`` [..., A] with the least float where ``mask`` [..., A] is 0.

    Not -inf, for libraries that compute a divergence of what they take for any categorical
    distribution: -inf minus -inf is NaN. The probabilities of masked actions are exactly 0 all the
    same, and sampling, the likeliest action, log-probabilities of legal actions, entropy and
    divergence are those of the legal actions alone, with finite gradients.

    Rows without a legal action are left as they are: nobody acts there, and a learner that batches
    them (RLlib does, and leaves them out of its loss) needs finite numbers.
    """
    legal = mask != 0
    legal = legal | ~legal.any(dim=-1, keepdim=True)
    return logits.masked_fill(~legal, torch.finfo(logits.dtype).min)


class MaskedActorCritic(nn.Module):
    """``actor`` [..., A] and ``critic`` [..., 1], networks of their own, for a Dict observation."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        net_arch: Sequence[int] = (64, 64),
        activation: str = "relu",
        cnn_arch: Sequence[int] = (16, 32, 64),
    ) -> None:
        """``cnn_arch``: filters of layers of 3 x 3 that halve the sides, and units after them.

        Raises UnsupportedSpaceError where actions are not Discrete from 0, a mask does not fit
        them, or an entry has no place in the table.
        """
        super().__init__()
        if not isinstance(action_space, spaces.Discrete) or action_space.start != 0:
            raise UnsupportedSpaceError(
                f"action space {action_space}; masks need Discrete, counted from 0"
            )
        actions = int(action_space.n)
        if isinstance(observation_space, spaces.Dict) and MASK in observation_space.spaces:
            shape = observation_space[MASK].shape
            if shape != (actions,):
                raise UnsupportedSpaceError(f"a mask of shape {shape} for {actions} actions")
        given: dict[str, Any] = {
            "net_arch": net_arch,
            "activation": activation,
            "cnn_arch": cnn_arch,
        }
        self.actor = Network(observation_space, (MASK, STATE), actions, 0.01, **given)
        self.critic = Network(observation_space, (MASK,), 1, 1.0, **given)

    def logits(self, observation: Any) -> torch.Tensor:
        """float32 [R, A], masked."""
        return masked_logits(self.actor(observation), observation[MASK])


class Network(nn.Module):
    """Encoders of the entries, hidden layers and a linear head."""

    def __init__(
        self,
        space: spaces.Space[Any],
        hidden: Sequence[str],
        outputs: int,
        gain: float,
        *,
        net_arch: Sequence[int],
        activation: str,
        cnn_arch: Sequence[int],
    ) -> None:
        """``hidden`` are entries of the outermost Dict that are not shown."""
        super().__init__()
        self.entries = [
            each for each in _entries(space) if each[0][:1] not in [(h,) for h in hidden]
        ]
        features, cnns = 0, []
        for path, entry in self.entries:
            if axes := _image_axes(entry):
                cnns.append(_cnn([entry.shape[axis] for axis in axes], cnn_arch))  # type: ignore[index]
                features += cnn_arch[-1]
            else:
                features += _columns(path, entry)
        if not features:
            raise UnsupportedSpaceError(f"{space}: nothing to see but {', '.join(hidden)}")
        self.cnns = nn.ModuleList(cnns)
        layers: list[nn.Module] = []
        for units in net_arch:
            layers += [nn.Linear(features, units), ACTIVATIONS[activation]()]
            features = units
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(features, outputs)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(module.weight, gain if module is self.head else math.sqrt(2))
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]  # it is there

    def forward(self, observation: Any) -> torch.Tensor:
        """Outputs [R, outputs] for entries [R, ...]."""
        parts, cnns = [], iter(self.cnns)
        for path, entry in self.entries:
            value = observation
            for key in path:
                value = value[key]
            if axes := _image_axes(entry):
                # RLlib may have made floats of it, which changes no number.
                image = value.permute(0, *(axis + 1 for axis in axes)).float()
                parts.append(next(cnns)(image / float(entry.high.max())))  # type: ignore[attr-defined]
            else:
                parts.append(_numbers(entry, value))
        outputs: torch.Tensor = self.head(self.layers(torch.cat(parts, dim=-1)))
        return outputs


# --- Parts ---------------------------------------------------------------------------------------


def _entries(
    space: spaces.Space[Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], spaces.Space[Any]]]:
    """The leaves of a space, each with the keys that lead to it."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _entries(part, (*path, key))
    else:
        yield path, space


def _image_axes(space: spaces.Space[Any]) -> tuple[int, int, int] | None:
    """The axes (channels, height, width) of an image; None for what is none."""
    if not (isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3):
        return None
    axes = (0, 1, 2) if space.shape[0] <= space.shape[2] else (2, 0, 1)
    return axes if min(space.shape[axis] for axis in axes[1:]) >= 3 else None


def _columns(path: tuple[str, ...], space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return math.prod(space.shape)
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    raise UnsupportedSpaceError(
        f"entry {'/'.join(path) or 'observation'} is {space}; give Box, Discrete, MultiDiscrete, "
        "MultiBinary, or Dicts of them"
    )


def _numbers(space: spaces.Space[Any], value: torch.Tensor) -> torch.Tensor:
    """An entry's values [R, ...] as columns [R, F]."""
    rows = len(value)
    if isinstance(space, spaces.Discrete):
        whole = value.reshape(rows).long() - int(space.start)
        return functional.one_hot(whole, int(space.n)).float()
    if isinstance(space, spaces.MultiDiscrete):
        start = torch.as_tensor(np.asarray(space.start).reshape(-1), device=value.device)
        whole = value.reshape(rows, -1).long() - start
        each = zip(whole.unbind(dim=1), space.nvec.reshape(-1).tolist(), strict=True)
        return torch.cat([functional.one_hot(v, n) for v, n in each], dim=-1).float()
    columns = value.reshape(rows, -1).float()
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        return columns / max(1.0, float(space.high.max()))
    return columns


def _cnn(shape: Sequence[int], arch: Sequence[int]) -> nn.Module:
    """Features [R, units] of images [R, C, H, W] in 0..1."""
    *filters, units = arch
    channels, high, wide = shape
    layers: list[nn.Module] = []
    for found in filters:
        layers += [nn.Conv2d(channels, found, 3, stride=2, padding=1), nn.ReLU()]
        channels, high, wide = found, (high + 1) // 2, (wide + 1) // 2
    flat = channels * high * wide
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(flat, units), nn.ReLU())


def tensors(observation: Mapping[str, Any] | Any) -> Any:
    """A tree of arrays as tensors."""
    if isinstance(observation, Mapping):
        return {key: tensors(value) for key, value in observation.items()}
    return torch.as_tensor(np.asarray(observation))
