"""Networks of a user's own, fed with what they are made for, and checked. Torch only.

``make(observation_space, *, role) -> nn.Module`` makes one for the role "actor" or "critic". The
module has ``out_features``, and turns a batch of observations into features float32
[R, out_features]. Hidden state, heads, masks and distributions are put on top by ``Network``.

The space says exactly what ``forward`` gets, R rows of it:

| entry of the environment's observation | in the space, and as a tensor [R, ...] |
|---|---|
| image, Box of uint8 with 3 axes | Box of float32 [C, H, W] in 0..1: channels first |
| other Box of uint8 | Box of float32 in 0..1, shape as it is |
| Box of other numbers | Box of float32, as it is |
| Discrete, MultiDiscrete | the same: int64, numbers as in the space |
| MultiBinary | the same: float32, 0 and 1 |

A Dict is a dict of these, a Tuple a tuple, a plain observation a tensor; masks are left out.
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
    "make_model",
    "require_apart",
    "view_of",
]

Role = Literal["actor", "critic"]

Make = Callable[..., nn.Module]
"""``make(observation_space, *, role)``."""


# --- Observations as trees -----------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """One entry of an observation: where it is in the parts that are stored."""

    space: spaces.Space[Any]  # as a model gets it
    low: int = 0  # columns low .. high - 1 of the vector
    high: int = 0
    image: int | None = None  # number of the image, for one
    scale: float = 1.0  # of its pixels

    def read(self, parts: Parts) -> torch.Tensor:
        """Return the entry [R, ...]; a view of the vector, where it holds the numbers as such."""
        if self.image is not None:
            return parts[1 + self.image].float() / self.scale
        space, columns = self.space, parts[0][:, self.low : self.high]
        if isinstance(space, spaces.Discrete):
            return columns.argmax(dim=1) + int(space.start)
        if isinstance(space, spaces.MultiDiscrete):
            each = torch.split(columns, space.nvec.reshape(-1).tolist(), dim=1)
            numbers = torch.stack([choice.argmax(dim=1) for choice in each], dim=1)
            start = torch.as_tensor(np.asarray(space.start), device=columns.device)
            return numbers.reshape(-1, *space.nvec.shape) + start
        return columns.reshape(-1, *(space.shape or ()))

    def write_sample(self, parts: list[np.ndarray[Any, Any]], rng: np.random.Generator) -> None:
        """Write something that the space contains."""
        if self.image is not None:
            pixels = parts[1 + self.image]
            pixels[...] = rng.integers(0, int(self.scale) + 1, size=pixels.shape)
            return
        columns = parts[0][:, self.low : self.high]
        columns[...] = rng.random(columns.shape)
        if isinstance(self.space, spaces.MultiBinary):
            columns.round(out=columns)
        elif isinstance(self.space, spaces.Box):
            low, high = _reach(self.space.low.reshape(-1), self.space.high.reshape(-1))
            columns[...] = low + columns * (high - low)


@dataclass(frozen=True)
class Branch:
    """A Dict of entries, or a Tuple of them."""

    parts: Mapping[Any, View] | tuple[View, ...]

    @property
    def space(self) -> spaces.Space[Any]:
        """Return the space that a model gets."""
        if isinstance(self.parts, tuple):
            return spaces.Tuple([part.space for part in self.parts])
        return spaces.Dict({key: part.space for key, part in self.parts.items()})

    def read(self, parts: Parts) -> Any:
        """Return the tree of tensors [R, ...]."""
        if isinstance(self.parts, tuple):
            return tuple(part.read(parts) for part in self.parts)
        return {key: part.read(parts) for key, part in self.parts.items()}

    def write_sample(self, parts: list[np.ndarray[Any, Any]], rng: np.random.Generator) -> None:
        """Write something that the space contains."""
        for part in self.parts if isinstance(self.parts, tuple) else self.parts.values():
            part.write_sample(parts, rng)


View = Leaf | Branch
"""How parts become the tree of tensors that a model gets."""


def view_of(layout: ObservationCodec, column: int = 0, image: int = 0) -> View:
    """Return the view of an agent's observation, whose vector begins at ``column`` and whose images
    at number ``image``."""
    views: dict[Any, View] = {}
    for entry in layout.entries:
        if entry.axes is not None:
            views[entry.key] = _picture(entry, image)
            image += 1
            continue
        space = entry.space
        if isinstance(space, spaces.Box):
            space = box(space, scale_of(space))
        views[entry.key] = Leaf(space, column + entry.low, column + entry.high)
    return views[None] if list(views) == [None] else Branch(views)


def box(space: spaces.Box, scale: float = 1.0) -> spaces.Box:
    """Return ``space`` as float32, its bounds divided by ``scale``."""
    if space.dtype == np.float32:
        return space
    return _box(space.low, space.high, scale)


def _picture(entry: Entry, number: int) -> Leaf:
    assert isinstance(entry.space, spaces.Box)
    assert entry.axes is not None
    low, high = (bound.transpose(entry.axes) for bound in (entry.space.low, entry.space.high))
    scale = scale_of(entry.space)
    return Leaf(_box(low, high, scale), image=number, scale=scale)


def _box(low: Any, high: Any, scale: float) -> spaces.Box:
    with np.errstate(over="ignore"):  # the largest of float64 become infinite
        lower, upper = (np.asarray(bound / scale, dtype=np.float32) for bound in (low, high))
    return spaces.Box(lower, upper, dtype=np.float32)


def _reach(low: Any, high: Any) -> tuple[Any, Any]:
    """Return finite bounds within those of a Box: those that are far off say nothing."""
    far = 1e6
    lower = np.where(np.abs(low) < far, low, np.where(np.abs(high) < far, high - 1, -1.0))
    upper = np.where(np.abs(high) < far, high, np.maximum(lower + 1, 1.0))
    return lower, upper


# --- Models --------------------------------------------------------------------------------------


class Model(nn.Module):
    """A ``module`` that was made for ``view``, as the encoder of a ``Network``.

    The last ``identities`` columns of a vector tell which agent of a shared policy it is of. They
    are joined to the module's features, so that no module can lose them.
    """

    def __init__(
        self, module: nn.Module, view: View, identities: int, inputs: tuple[Any, ...], name: str
    ) -> None:
        """``inputs`` are the columns of the vector and the shapes of the images."""
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
        """Return features [R, out_features]. Raises ModelError where the module returns others."""
        features = self.module(self.view.read(parts))
        expected = len(parts[0]), self.features
        if not isinstance(features, torch.Tensor):
            raise ModelError(
                f"{self.name}: forward returned {type(features).__name__}; give one tensor"
            )
        if features.shape != expected:
            raise ModelError(
                f"{self.name}: forward returned shape {tuple(features.shape)} for {expected[0]} "
                f"observations; give {expected}, [batch, out_features]"
            )
        if features.dtype != torch.float32:
            raise ModelError(f"{self.name}: forward returned {features.dtype}; give torch.float32")
        if not self.identities:
            return features
        return torch.cat([features, parts[0][:, -self.identities :]], dim=-1)

    def try_out(self, device: torch.device) -> None:
        """Raise ModelError where ``forward`` fails for rows that the space contains, or mixes them.

        What it draws and counts is put back.
        """
        before = {name: values.clone() for name, values in self.named_buffers()}
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            try:
                self._try_out(self.sample(3, device))
            except ModelError:
                raise
            except Exception as error:  # whatever a user's own code raises
                raise ModelError(
                    f"{self.name}: forward raised {type(error).__name__}: {error}. It was given a "
                    f"batch of {self.view.space}{self._remedy()}"
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
        given = [part.clone() for part in parts]
        features = self(parts)
        if not all(map(torch.equal, parts, given)):
            raise ModelError(
                f"{self.name}: forward changes its input in place, and with it what was observed; "
                "let its first operations return new tensors"
            )
        if not torch.isfinite(features).all():
            raise ModelError(
                f"{self.name}: forward returned numbers that are not finite for a random "
                f"observation of {self.view.space}"
            )
        if not _close(self(parts), features):
            raise ModelError(
                f"{self.name}: forward returned other features for the same observation, and a "
                "decision must have the same probability when it is played and when it is learned"
                + (self._remedy() or "; leave out what is random in it")
            )
        for row in range(len(features)):
            if not _close(self([part[row : row + 1] for part in parts]), features[row : row + 1]):
                raise ModelError(
                    f"{self.name}: the features of an observation depend on the others of its "
                    f"batch; let each be by itself{self._remedy()}"
                )

    def _remedy(self) -> str:
        """Return what to do with layers that behave otherwise in training; "" without them."""
        kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
        found = [
            f"{name} ({type(each).__name__})"
            for name, each in self.module.named_modules()
            if isinstance(each, kinds) and each.training
        ]
        if not found:
            return ""
        return (
            f"; leave out {', '.join(found)}, or call .eval() on it in make: LayerNorm and "
            "GroupNorm are the same when it is played and when it is learned"
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
    """Return what ``make`` makes for ``view``; torch's global generator is ``rng``'s meanwhile.

    Raises ModelError where it fails, or makes no module with ``out_features``.
    """
    name = f"model {dotted_name(make)}, {role} of policy {policy}"
    if not callable(make):
        raise ModelError(f"{name}: give a function make(observation_space, *, role), or its name")
    space = view.space
    try:
        inspect.signature(make).bind(space, role=role)
    except TypeError as error:
        raise ModelError(
            f"{name}: it is called as make(observation_space, role={role!r}), and {error}. Write "
            "def make(observation_space, *, role)"
        ) from None
    except ValueError:
        pass  # it has no signature
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=rng)))
        try:
            module = make(space, role=role)
        except Exception as error:  # whatever a user's own code raises
            raise ModelError(
                f"{name}: it raised {type(error).__name__}: {error}. It was given {space}"
            ) from error
        if not isinstance(module, nn.Module):
            raise ModelError(f"{name}: it returned {type(module).__name__}; give a torch.nn.Module")
        model = Model(module, view, identities, inputs, name)
        if any(isinstance(each, nn.UninitializedParameter) for each in model.parameters()):
            model.try_out(torch.device("cpu"))  # its lazy layers take their sizes now
    return model


def require_apart(networks: Mapping[str, nn.Module]) -> None:
    """Raise ModelError, naming two of the networks, where they share weights."""
    owner: dict[int, str] = {}
    for name, network in networks.items():
        for values in network.parameters():
            if owner.setdefault(id(values), name) != name:
                raise ModelError(
                    f"the {name} and the {owner[id(values)]} share weights: each is trained by "
                    "itself; let make return a new module whenever it is called"
                )


def _close(some: torch.Tensor, others: torch.Tensor) -> bool:
    return torch.allclose(some, others, rtol=1e-3, atol=1e-4)


# --- Gradients -----------------------------------------------------------------------------------


class GradientCheck:
    """Whether all parameters of a network's model have had a gradient in an update.

    An update in which the network's head has had none says nothing: all advantages were equal, no
    decision had a choice, or the loss leaves the network out. The next one is looked at then.
    """

    def __init__(self, network: Network) -> None:
        assert isinstance(network.encoder, Model)
        self.name = network.encoder.name
        self.head = network.head.weight
        self.module = network.encoder.module
        self.begin()

    def begin(self) -> None:
        """Look at the next update."""
        self.learned = False
        self.missing = dict(self._trainable())

    def see(self) -> None:
        """Note which parameters have a finite gradient other than 0 now."""
        if self.missing:
            self.learned = self.learned or _has_gradient(self.head)
            self.missing = {k: v for k, v in self.missing.items() if not _has_gradient(v)}

    def require(self) -> None:
        """Raise ModelError, at an update's end, that names the parameters without a gradient."""
        if not self.missing:
            return
        if self.learned:
            raise ModelError(
                f"{self.name}: no gradient other than 0 has reached {', '.join(self.missing)} in "
                "the first update. Let forward use them, or leave them out; what is meant to "
                "stay as it is, is frozen in make: requires_grad_(False). Weights of an input that "
                "was 0 throughout need a longer rollout: n_steps"
            )
        self.begin()

    def _trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name, values in self.module.named_parameters():
            if values.requires_grad:
                yield name, values


def _has_gradient(values: torch.Tensor) -> bool:
    found = values.grad
    return found is not None and bool(found.isfinite().all()) and bool(found.any())
