"""Custom networks: how a run stores their name, and how they are passed again to load it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.envs.masks import split_space
from corral.errors import ModelError, ModelNeededError, RunError
from corral.named import named_object, source_digest
from corral.text import dotted_name, pasted, visible

__all__ = [
    "LAYERS",
    "OwnModel",
    "given_again",
    "integers_of",
    "named_again",
    "refusal",
    "require_no_layers",
    "tell_of_source",
]

LAYERS = ("net_arch", "cnn_arch", "cnn_patch", "grid_arch", "activation")
"""Layer settings that do not apply to a custom model."""


@dataclass(frozen=True)
class OwnModel:
    """A function that builds networks, see ``corral.adapters.models``, and its name."""

    make: Callable[..., Any]
    name: str  # module:name, or file.py:name
    sha256: str | None  # of the source file; None: no source file
    by_text: bool  # the user passed ``name`` as text, so a command can repeat it
    begun_with: str | None = None  # for a loaded run: the SHA-256 at its start

    @classmethod
    def of(cls, model: Any) -> OwnModel:
        """Resolve a model from a function or its name. Raises ModelError, and the errors of
        ``named_object``."""
        make = named_object(model, "model") if isinstance(model, str) else model
        if not callable(make):
            raise ModelError(
                f"model={model!r}: pass a function make(observation_space, *, role), or its name, "
                "such as 'my_nets:make' or 'my_file.py:make'"
            )
        name = model if isinstance(model, str) else dotted_name(make)
        return cls(make, name, source_digest(make), isinstance(model, str))

    def as_json(self) -> dict[str, str | None]:
        """Return the entry of config.json."""
        return {"name": self.name, "sha256": self.begun_with or self.sha256}

    def warn_of_changes(self, folder: Path) -> None:
        """Print a warning if the source has changed since the start of the run."""
        if self.begun_with not in (None, self.sha256):
            tell_of_source(folder, f"model {self.name}", "; weights that fit are loaded")


def tell_of_source(folder: Path, source: str, suffix: str = "") -> None:
    """Print a warning that a source has changed since the start of the run."""
    changed = f"{folder}: the source of {source} has changed since the start of the run"
    print(f"corral: {visible(changed)}{suffix}", file=sys.stderr)


def given_again(saved: Any, folder: Path, model: Any) -> OwnModel | None:
    """Return the ``model`` of a run that is loaded; ``saved`` is the entry of its config.json.

    Raises ModelNeededError if it is missing, RunError if the run has no custom model, and the
    errors of ``OwnModel.of``.
    """
    if saved is None:
        if model is None:
            return None
        raise RunError(f"{folder} was trained with corral's network; omit model")
    name = str(saved["name"])
    if model is None:
        raise ModelNeededError(
            f"{folder} was trained with the network of {name}. For safety, the run does not import "
            f"it. Pass it again: --model {name}; in Python the argument model of load_run, resume, "
            "evaluate or watch"
        )
    current = OwnModel.of(model)
    if current.by_text:
        name = current.name
    return OwnModel(current.make, name, current.sha256, current.by_text, saved["sha256"])


def named_again(model: OwnModel | None) -> str:
    """Return the command-line option that passes the model again; "" if it has no name."""
    return f" --model {pasted(model.name)}" if model is not None and model.by_text else ""


def integers_of(model: OwnModel | None, rules: Any, agents: Iterable[str]) -> str:
    """Return the remark about integers that a model gets; "" for the default layers."""
    if model is None:
        return ""
    from corral.adapters.models import integers_note  # imported late: needs torch

    observed = [split_space(rules.observation_space(agent))[0] for agent in agents]
    return next(filter(None, map(integers_note, observed)), "")


def require_no_layers(settings: Mapping[str, Any]) -> None:
    """Raise ValueError if settings define layers in addition to a model."""
    for name, value in settings.items():
        if name.rpartition(".")[2] in LAYERS:
            raise ValueError(
                f"{name}={value!r}: the model defines the layers, so this setting has no effect; "
                "omit the setting or the model"
            )


def refusal(trainer: str) -> str:
    """Return the error message for a trainer that does not support a custom model."""
    instead: Mapping[str, str] = {
        "sb3": " In Stable-Baselines3 itself, pass the network as features_extractor_class: "
        "policy_kwargs={'features_extractor_class': ...} of corral.adapters.MaskedPolicy, see "
        "docs/networks.md",
        "rllib": " In RLlib itself, use an RLModule such as the one of corral.adapters.rllib",
    }
    hint = next((text for name, text in instead.items() if trainer.startswith(name)), "")
    return (
        f"trainer {trainer} does not support model=; its layers are set with net_arch. Use mappo "
        f"or ippo.{hint}"
    )
