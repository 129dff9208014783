"""The network of a user's own, as a run names it; a run that is read asks for it again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.errors import ModelError, ModelNeededError, RunError
from corral.named import named_object, source_digest
from corral.text import dotted_name, pasted, visible

__all__ = [
    "LAYERS",
    "OwnModel",
    "given_again",
    "named_again",
    "refusal",
    "require_no_layers",
    "tell_of_source",
]

LAYERS = ("net_arch", "cnn_arch", "cnn_patch", "activation")
"""Settings of the layers that a model of one's own takes the place of."""


@dataclass(frozen=True)
class OwnModel:
    """A function that makes networks, see ``corral.adapters.models``, and what it was called."""

    make: Callable[..., Any]
    name: str  # module:name, or file.py:name
    sha256: str | None  # of the source file; None: there is none
    by_text: bool  # whether ``name`` was typed, and names it again
    begun_with: str | None = None  # the SHA-256 when the run began, of a run that is read

    @classmethod
    def of(cls, model: Any) -> OwnModel:
        """Return the model that a function or a text names. Raises ModelError, and what
        ``named_object`` raises."""
        make = named_object(model, "model") if isinstance(model, str) else model
        if not callable(make):
            raise ModelError(
                f"model={model!r}: give a function make(observation_space, *, role), or text that "
                "names one, such as 'my_nets:make' or 'my_file.py:make'"
            )
        name = model if isinstance(model, str) else dotted_name(make)
        return cls(make, name, source_digest(make), isinstance(model, str))

    def as_json(self) -> dict[str, str | None]:
        """Return what config.json holds."""
        return {"name": self.name, "sha256": self.begun_with or self.sha256}

    def tell_of_changes(self, folder: Path) -> None:
        """Say on stderr where the source is another than the one that the run began with."""
        if self.begun_with not in (None, self.sha256):
            tell_of_source(folder, f"model {self.name}", "; what fits is loaded")


def tell_of_source(folder: Path, what: str, then: str = "") -> None:
    """Say on stderr that a source is another than the one that the run began with."""
    changed = f"{folder}: the source of {what} has changed since the run began"
    print(f"corral: {visible(changed)}{then}", file=sys.stderr)


def given_again(saved: Any, folder: Path, model: Any) -> OwnModel | None:
    """Return the ``model`` of a run that is read, whose config.json holds ``saved``.

    Raises ModelNeededError where it is missing, RunError where the run has none, and what
    ``OwnModel.of`` raises.
    """
    if saved is None:
        if model is None:
            return None
        raise RunError(f"{folder} was trained with corral's own network; leave out model")
    name = str(saved["name"])
    if model is None:
        raise ModelNeededError(
            f"{folder} was trained with the network of {name}, and nothing is imported because a "
            f"file names it. Say so yourself: --model {name}; in Python load_run, resume, evaluate "
            "and watch have the argument model"
        )
    own = OwnModel.of(model)
    if own.by_text:
        name = own.name
    return OwnModel(own.make, name, own.sha256, own.by_text, saved["sha256"])


def named_again(model: OwnModel | None) -> str:
    """Return the words of a command that name it again."""
    return f" --model {pasted(model.name)}" if model is not None and model.by_text else ""


def require_no_layers(settings: Mapping[str, Any]) -> None:
    """Raise ValueError where settings name layers beside a model."""
    for name, value in settings.items():
        if name.rpartition(".")[2] in LAYERS:
            raise ValueError(
                f"{name}={value!r} and a model: the layers are those of the model, and the setting "
                "would be ignored; leave one of them out"
            )


def refusal(trainer: str) -> str:
    """Return what to say of a model for a trainer that takes none."""
    instead: Mapping[str, str] = {
        "sb3": " With Stable-Baselines3 itself a network is its features_extractor_class: "
        "policy_kwargs={'features_extractor_class': ...} of corral.adapters.MaskedPolicy, see "
        "docs/networks.md",
        "rllib": " With RLlib itself it is an RLModule, such as corral.adapters.rllib has one",
    }
    other = next((text for name, text in instead.items() if trainer.startswith(name)), "")
    return f"trainer {trainer} takes no model; its layers are net_arch. Give mappo or ippo.{other}"
