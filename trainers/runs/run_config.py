"""What defines a run: config.json, and the versions it was made with."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from corral.errors import CorralError, RunError, UnknownNameError
from corral.trainers.base import Trainer, trainer_class, trainer_name
from corral.trainers.runs.env_config import EnvConfig, given_again
from corral.trainers.runs.files import replace_text
from corral.trainers.settings import make_settings

__all__ = ["CONFIG", "DAMAGE", "FORMAT", "RunConfig", "versions"]

CONFIG = "config.json"

FORMAT = 2
DAMAGE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
"""Errors that values of the wrong kind cause."""

NOT_WRITTEN = ("env_config", "own_trainer")
"""Fields of RunConfig that config.json does not hold by these names."""


@dataclass(frozen=True)
class RunConfig:
    """All that defines a run; with the versions it was made with, equal configs learn the same."""

    env_config: EnvConfig
    trainer: str
    settings: dict[str, Any]
    seed: int
    steps: int  # env steps asked for
    policies: dict[str, str]  # agent -> name of its policy, or of its reference player
    policies_to_train: tuple[str, ...]
    versions: dict[str, str]
    horizon: int  # env steps planned: where what is annealed ends
    keep: int | Literal["all"] = 3  # checkpoints that stay, besides the best
    opponents: dict[str, str] = field(default_factory=dict)  # agent -> name of a reference player
    init: dict[str, Any] | None = None  # the run whose weights it started from, and its digest
    own_trainer: type[Trainer] | None = None  # of that name, where it is not registered

    def write(self, folder: Path) -> None:
        """Write config.json, whole or not at all."""
        own = {name: value for name, value in vars(self).items() if name not in NOT_WRITTEN}
        values = {"format": FORMAT, **self.env_config.write(folder), **own}
        text = json.dumps(values, indent=2, allow_nan=False)
        replace_text(folder / CONFIG, text + "\n")

    @classmethod
    def read(
        cls, folder: Path, trainer: type[Trainer] | None = None, **env_source: Any
    ) -> RunConfig:
        """Read config.json. ``env_source`` is what ``given_again`` takes.

        Raises RunError where there is none, or one of another format, and what ``given_again``
        raises.
        """
        path = folder / CONFIG
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(f"{folder} is no run: it has no {CONFIG}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{path} cannot be read: {error}") from error
        if not isinstance(values, dict) or not isinstance(values.get("format"), int):
            raise RunError(f"{path} is not of corral: it names no format")
        if values["format"] > FORMAT:
            raise RunError(
                f"{path} is of format {values['format']}, this corral reads up to {FORMAT}: "
                "install a newer one"
            )
        if values["format"] < FORMAT:
            raise RunError(
                f"{path} is of format {values['format']}: an earlier, unreleased version of corral "
                f"made this run, and this corral reads format {FORMAT}. Train it again"
            )
        try:
            values = {"horizon": values.get("steps"), "keep": 3, "init": None, **values}
            _require_kinds(values)
            names = {field.name for field in dataclasses.fields(cls)} - set(NOT_WRITTEN)
            read = {name: values[name] for name in names}
            read["policies_to_train"] = tuple(read["policies_to_train"])
        except DAMAGE as error:
            raise RunError(f"{path} is damaged: {error!r}") from error
        # Outside of what takes errors for damage: here they are of what the caller gave.
        given = given_again(values, folder, **env_source)
        try:
            if trainer is not None and trainer_name(trainer) != values["trainer"]:
                raise RunError(
                    f"{folder} was trained by {values['trainer']}, and this is {trainer.name}"
                )
            env_config = EnvConfig.read(values, folder, given)
            return cls(env_config, **read, own_trainer=trainer)
        except CorralError:
            raise
        except DAMAGE as error:
            raise RunError(f"{path} is damaged: {error!r}") from error

    def trainer_class(self) -> type[Trainer]:
        """Return the class of its trainer. Raises UnknownNameError, MissingExtraError."""
        try:
            return self.own_trainer or trainer_class(self.trainer)
        except UnknownNameError as error:
            raise UnknownNameError(
                f"{error}. A trainer of one's own is given as trainer=, its class, as in "
                "corral.load_run(folder, trainer=...)"
            ) from None

    def make_trainer(self) -> Trainer:
        """Return the trainer as it begins. Raises what its class, settings and rules raise."""
        kind = self.trainer_class()
        more: dict[str, Any] = {"opponents": self.opponents} if self.opponents else {}
        if more and not getattr(kind, "plays_opponents", False):
            raise ValueError(
                f"trainer {self.trainer} plays no opponents={self.opponents}; give mappo or ippo"
            )
        learned = {a: name for a, name in self.policies.items() if a not in self.opponents}
        return kind(
            self.env_config.rules(),
            make_settings(kind, self.settings),
            seed=self.seed,
            policies=learned,
            policies_to_train=self.policies_to_train,
            steps=self.horizon,
            **more,
        )


def _require_kinds(values: Mapping[str, Any]) -> None:
    """Raise TypeError, or KeyError, where a value of config.json is of the wrong kind."""
    kinds: dict[type, tuple[str, ...]] = {
        str: ("env", "trainer"),
        int: ("seed", "steps", "horizon"),
        dict: ("env_kwargs", "held_out", "settings", "policies", "versions", "opponents"),
        list: ("policies_to_train",),
    }
    for kind, names in kinds.items():
        for name in names:
            if not isinstance(values[name], kind) or isinstance(values[name], bool):
                raise TypeError(f"{name} is {values[name]!r:.40}")
    if values["keep"] != "all" and not isinstance(values["keep"], int):
        raise TypeError(f"keep is {values['keep']!r:.40}")
    if values.get("api") not in (None, "parallel", "aec"):
        raise TypeError(f"api is {values['api']!r:.40}")
    played = values["opponents"].values()
    for name in [*values["policies"].values(), *values["policies_to_train"], *played]:
        if not isinstance(name, str):
            raise TypeError(f"a policy is called {name!r:.40}")


# --- Versions ------------------------------------------------------------------------------------

PACKAGES = ("corral", "numpy", "pandas", "gymnasium", "pettingzoo", "scipy")
LEARNING_PACKAGES = ("torch", "stable-baselines3", "sb3-contrib", "supersuit", "ray")


def versions(*, learning: bool = False) -> dict[str, str]:
    """Return the versions of Python and packages, those that learn among them if ``learning``."""
    found = {"python": platform.python_version()}
    for package in PACKAGES + LEARNING_PACKAGES * learning:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if learning and "torch" in sys.modules:
        threads = sys.modules["torch"].get_num_threads()
        found["torch threads"] = str(threads)  # results depend on them
    return found
