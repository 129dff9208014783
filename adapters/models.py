"""Custom networks of users: their inputs, and checks of their outputs. Requires only torch.

A user's function ``make(observation_space, *, role) -> nn.Module`` returns a module for the role
"actor" or "critic". The module has an attribute ``out_features``, and maps a batch of observations
to features float32 [R, out_features]. ``Network`` adds hidden state, heads, masks and
distributions.

``forward`` receives R observations of the space:

| entry of the environment's observation | in the space, and as a tensor [R, ...] |
|---|---|
| image, Box of uint8 with 3 axes | Box of float32 [C, H, W] in 0..1: channels first |
| other Box of uint8 | Box of float32 in 0..1, same shape |
| Box of other numbers | Box of float32, unchanged |
| Discrete, MultiDiscrete | the same space: int64, numbers of the space |
| MultiBinary | the same space: float32, 0 and 1 |

A Dict becomes a dict of these tensors, a Tuple a tuple, a plain observation a tensor. Masks are
left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from corral.adapters.networks import Network, Parts
from corral.adapters.spaces import Entry, ObservationCodec, scale_of
from corral.errors import ModelError
from corral.text import dotted_name

__all__ = [
    "Branch",
    "GradientCheck",
    "Leaf",
    "Make",
    "Model",
    "Role",
    "View",
    "box",
    "integers_note",
    "make_model",
    "require_separate_weights",
    "view_of",
]

Role = Literal["actor", "critic"]

Make = Callable[..., nn.Module]
"""``make(observation_space, *, role)``."""


# --- Observations as trees -----------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """One entry of an observation, and its position in the stored parts."""

    space: spaces.Space[Any]  # the space that a model gets
    low: int = 0  # columns low .. high - 1 of the vector
    high: int = 0
    image: int | None = None  # index of the image, if the entry is one
    scale: float = 1.0  # divisor of its pixels

    def read(self, parts: Parts) -> torch.Tensor:
        """Return the entry [R, ...]; a view of the vector if no conversion is needed."""
        if self.image is not None:
            return parts[1 + self.image].float() / self.scale
        space, columns = self.space, parts[0][:, self.low : self.high]
        if isinstance(space, spaces.Discrete):
            return columns.argmax(dim=1) + int(space.start)
        if isinstance(space, spaces.MultiDiscrete):
            choices = torch.split(columns, space.nvec.reshape(-1).tolist(), dim=1)
            numbers = torch.stack([choice.argmax(dim=1) for choice in choices], dim=1)
            start = torch.as_tensor(np.asarray(space.start), device=columns.device)
            return numbers.reshape(-1, *space.nvec.shape) + start
        return columns.reshape(-1, *(space.shape or ()))

    def write_sample(self, parts: list[np.ndarray[Any, Any]], rng: np.random.Generator) -> None:
        """Write random values of the space."""
        if self.image is not None:
            pixels = parts[1 + self.image]
            pixels[...] = rng.integers(0, int(self.scale) + 1, size=pixels.shape)
            return
        columns = parts[0][:, self.low : self.high]
        columns[...] = rng.random(columns.shape)
        if isinstance(self.space, spaces.MultiBinary):
            columns.round(out=columns)
        elif isinstance(self.space, spaces.Box):
            low, high = _finite_bounds(self.space.low.reshape(-1), self.space.high.reshape(-1))
            columns[...] = low + columns * (high - low)


@dataclass(frozen=True)
class Branch:
    """A Dict or a Tuple of entries."""

    parts: Mapping[Any, View] | tuple[View, ...]

    @property
    def space(self) -> spaces.Space[Any]:
        """The space that a model gets."""
        if isinstance(self.parts, tuple):
            return spaces.Tuple([part.space for part in self.parts])
        return spaces.Dict({key: part.space for key, part in self.parts.items()})

    def read(self, parts: Parts) -> Any:
        """Return the tree of tensors [R, ...]."""
        if isinstance(self.parts, tuple):
            return tuple(part.read(parts) for part in self.parts)
        return {key: part.read(parts) for key, part in self.parts.items()}

    def write_sample(self, parts: list[np.ndarray[Any, Any]], rng: np.random.Generator) -> None:
        """Write random values of the space."""
        for part in self.parts if isinstance(self.parts, tuple) else self.parts.values():
            part.write_sample(parts, rng)


View = Leaf | Branch
"""The conversion of stored parts to the tree of tensors that a model gets."""


def view_of(layout: ObservationCodec, column: int = 0, image: int = 0) -> View:
    """Return the view of an agent's observation.

    Its vector begins at ``column``, its images at index ``image``.
    """
    views: dict[Any, View] = {}
    for entry in layout.entries:
        if entry.axes is not None:
            views[entry.key] = _image_leaf(entry, image)
            image += 1
            continue
        space = entry.space
        if isinstance(space, spaces.Box):
            space = box(space, scale_of(space))
        views[entry.key] = Leaf(space, column + entry.low, column + entry.high)
    return views[None] if list(views) == [None] else Branch(views)


def box(space: spaces.Box, scale: float = 1.0) -> spaces.Box:
    """Return ``space`` as float32, with bounds divided by ``scale``."""
    if space.dtype == np.float32:
        return space
    return _box(space.low, space.high, scale)


def _image_leaf(entry: Entry, number: int) -> Leaf:
    assert isinstance(entry.space, spaces.Box)
    assert entry.axes is not None
    low, high = (bound.transpose(entry.axes) for bound in (entry.space.low, entry.space.high))
    scale = scale_of(entry.space)
    return Leaf(_box(low, high, scale), image=number, scale=scale)


def _box(low: Any, high: Any, scale: float) -> spaces.Box:
    with np.errstate(over="ignore"):  # large float64 bounds become infinite
        lower, upper = (np.asarray(bound / scale, dtype=np.float32) for bound in (low, high))
    return spaces.Box(lower, upper, dtype=np.float32)


def _finite_bounds(low: Any, high: Any) -> tuple[Any, Any]:
    """Return finite bounds within the bounds of a Box. Very large bounds count as unbounded."""
    far = 1e6
    lower = np.where(np.abs(low) < far, low, np.where(np.abs(high) < far, high - 1, -1.0))
    upper = np.where(np.abs(high) < far, high, np.maximum(lower + 1, 1.0))
    return lower, upper


def integers_note(space: spaces.Space[Any]) -> str:
    """Return a remark about the numbers that a model gets for ``space``; "" without such entries.

    The default layers get Discrete and MultiDiscrete entries one-hot.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        entries = space.values() if isinstance(space, spaces.Dict) else space.spaces
        return next(filter(None, map(integers_note, entries)), "")
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return ""
    kind = type(space).__name__
    return (
        f"{kind} observations are int64 numbers for a custom network; net_arch gets them one-hot. "
        "Use torch.nn.functional.one_hot or nn.Embedding"
    )


def _integers(space: spaces.Space[Any]) -> str:
    """Return the remark about integers as the end of an error message."""
    note = integers_note(space)
    return f". {note}" if note else ""


# --- Models --------------------------------------------------------------------------------------


class Model(nn.Module):
    """A user's ``module`` for ``view``, as the encoder of a ``Network``.

    The last ``identities`` columns of a vector are the agent's one-hot identity in a shared policy.
    They are appended to the features of the module, so that no module can lose them.
    """

    def __init__(
        self, module: nn.Module, view: View, identities: int, inputs: tuple[Any, ...], name: str
    ) -> None:
        """``inputs`` are the number of vector columns and the shapes of the images."""
        super().__init__()
        self.module, self.view, self.identities, self.name = module, view, identities, name
        self.inputs = inputs
        features = getattr(module, "out_features", None)
        if isinstance(features, bool) or not isinstance(features, int) or features < 1:
            raise ModelError(
                f"{name}: the module {type(module).__name__} has "
                + ("no out_features" if features is None else f"out_features={features!r}")
                + "; set self.out_features to the number of features that forward returns"
            )
        self.features = features
        self.out_features = features + identities

    def forward(self, parts: Parts) -> torch.Tensor:
        """Return features [R, out_features]. Raises ModelError for another shape or type."""
        features = self.module(self.view.read(parts))
        expected = len(parts[0]), self.features
        if not isinstance(features, torch.Tensor):
            raise ModelError(
                f"{self.name}: forward returned {type(features).__name__}; return one tensor"
            )
        if features.shape != expected:
            raise ModelError(
                f"{self.name}: forward returned shape {tuple(features.shape)} for {expected[0]} "
                f"observations; return {expected}, [batch, out_features]"
            )
        if features.dtype != torch.float32:
            raise ModelError(
                f"{self.name}: forward returned {features.dtype}; return torch.float32"
            )
        if not self.identities:
            return features
        return torch.cat([features, parts[0][:, -self.identities :]], dim=-1)

    def try_out(self, device: torch.device) -> None:
        """Raise ModelError if ``forward`` fails for valid observations, or mixes rows of a batch.

        Random number generators and buffers are restored afterwards.
        """
        before = {name: values.clone() for name, values in self.named_buffers()}
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            try:
                self._try_out(self.sample(3, device))
            except ModelError:
                raise
            except Exception as error:  # user code may raise any exception
                raise ModelError(
                    f"{self.name}: forward raised {type(error).__name__}: {error}. Its input was "
                    f"a batch of {self.view.space}{self._remedy()}{_integers(self.view.space)}"
                ) from error
            for name, values in self.named_buffers():
                values.copy_(before[name])

    def sample(self, rows: int, device: torch.device) -> Parts:
        """Return ``rows`` random observations of the space, as parts."""
        columns, images = self.inputs
        parts = [np.zeros((rows, columns), np.float32)]
        parts += [np.zeros((rows, *image), np.uint8) for image in images]
        self.view.write_sample(parts, np.random.default_rng(0))
        return [torch.from_numpy(part).to(device) for part in parts]

    def _try_out(self, parts: Parts) -> None:
        originals = [part.clone() for part in parts]
        features = self(parts)
        if not all(map(torch.equal, parts, originals)):
            raise ModelError(
                f"{self.name}: forward changes its input in place, which would change the stored "
                "observations; use operations that return new tensors"
            )
        if not torch.isfinite(features).all():
            raise ModelError(
                f"{self.name}: forward returned features that are not finite, for a random "
                f"observation of {self.view.space}; check its operations"
            )
        if not _close(self(parts), features):
            raise ModelError(
                f"{self.name}: forward returned different features for the same observation. The "
                "probability of an action must be equal in the rollout and in the update"
                + (self._remedy() or "; remove all randomness")
            )
        for row in range(len(features)):
            if not _close(self([part[row : row + 1] for part in parts]), features[row : row + 1]):
                raise ModelError(
                    f"{self.name}: the features of an observation depend on other observations in "
                    f"the batch; compute each row independently{self._remedy()}"
                )

    def _remedy(self) -> str:
        """Return the remedy for layers that differ in training mode; "" without such layers."""
        kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
        layers = [
            f"{name} ({type(layer).__name__})"
            for name, layer in self.module.named_modules()
            if isinstance(layer, kinds) and layer.training
        ]
        if not layers:
            return ""
        return (
            f"; remove {', '.join(layers)}, or call .eval() on it in make. LayerNorm and GroupNorm "
            "behave equally in the rollout and in the update"
        )


def make_model(
    make: Make,
    view: View,
    role: Role,
    *,
    policy: str,
    identities: int,
    inputs: tuple[Any, ...],
    rng: torch.Generator,
) -> Model:
    """Return the model of ``make`` for ``view``. Its weights are drawn from ``rng``.

    Raises ModelError if ``make`` fails, or does not return a module with ``out_features``.
    """
    name = f"model {dotted_name(make)}, {role} of policy {policy}"
    if not callable(make):
        raise ModelError(f"{name}: pass a function make(observation_space, *, role), or its name")
    space = view.space
    try:
        inspect.signature(make).bind(space, role=role)
    except TypeError as error:
        raise ModelError(
            f"{name}: the call make(observation_space, role={role!r}) fails: {error}. Define "
            "def make(observation_space, *, role)"
        ) from None
    except ValueError:
        pass  # the callable has no signature
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=rng)))
        try:
            module = make(space, role=role)
        except Exception as error:  # user code may raise any exception
            raise ModelError(
                f"{name}: make raised {type(error).__name__}: {error}. Its input was {space}"
            ) from error
        if not isinstance(module, nn.Module):
            raise ModelError(
                f"{name}: make returned {type(module).__name__}; return torch.nn.Module"
            )
        model = Model(module, view, identities, inputs, name)
        if any(
            isinstance(parameter, nn.UninitializedParameter) for parameter in model.parameters()
        ):
            model.try_out(torch.device("cpu"))  # initializes lazy layers
    return model


def require_separate_weights(networks: Mapping[str, nn.Module]) -> None:
    """Raise ModelError, with two names, if any networks share weights."""
    owners: dict[int, str] = {}
    for name, network in networks.items():
        for values in network.parameters():
            if owners.setdefault(id(values), name) != name:
                raise ModelError(
                    f"the {name} and the {owners[id(values)]} share weights, but each is trained "
                    "separately; let make return a new module in each call"
                )


def _close(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.allclose(first, second, rtol=1e-3, atol=1e-4)


# --- Gradients -----------------------------------------------------------------------------------


class GradientCheck:
    """Checks that all parameters of a network's model get a gradient in an update.

    An update without a gradient for the head of the network is inconclusive: all advantages were
    equal, no decision had a choice, or the loss does not use the network. Then the next update is
    checked.
    """

    def __init__(self, network: Network) -> None:
        assert isinstance(network.encoder, Model)
        self.name = network.encoder.name
        self.head = network.head.weight
        self.module = network.encoder.module
        self.begin()

    def begin(self) -> None:
        """Begin the check of the next update."""
        self.learned = False
        self.missing = dict(self._trainable())

    def see(self) -> None:
        """Record the parameters that now have a finite gradient other than 0."""
        if self.missing:
            self.learned = self.learned or _has_gradient(self.head)
            self.missing = {k: v for k, v in self.missing.items() if not _has_gradient(v)}

    def require(self) -> None:
        """Raise ModelError, at the end of an update, for parameters without a gradient."""
        if not self.missing:
            return
        if self.learned:
            raise ModelError(
                f"{self.name}: {', '.join(self.missing)} got no gradient other than 0 in the first "
                "update. Use these parameters in forward, or remove them. To freeze them, call "
                "requires_grad_(False) in make. If their input was always 0, increase n_steps"
            )
        self.begin()

    def _trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name, values in self.module.named_parameters():
            if values.requires_grad:
                yield name, values


def _has_gradient(values: torch.Tensor) -> bool:
    gradient = values.grad
    return gradient is not None and bool(gradient.isfinite().all()) and bool(gradient.any())
