"""A run: the directory that training leaves behind.

| file | what it holds |
|---|---|
| ``config.json`` | what defines the run: environment, trainer, settings, seed, policies, versions |
| ``<argument>.csv.gz``, ``.npy`` | traces and arrays that do not come with the package |
| ``progress.csv`` | one row per update, see ``corral.trainers.runs.log`` |
| ``checkpoints/`` | the state to go on from, see ``corral.trainers.runs.checkpoint`` |
| ``tensorboard/`` | the same as ``progress.csv``, for ``tensorboard --logdir`` |
| ``results.json``, ``report.html`` | the results of ``corral evaluate`` |
| ``evaluation@<name>/`` | the same of an earlier checkpoint, such as ``RUN@best`` |
| ``.lock``, ``.lock.pid`` | of the process that trains it: ``corral.trainers.runs.folders`` |
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from corral.adapters.sources import EnvLike
from corral.envs.policy import Policy
from corral.envs.registry import Api
from corral.errors import CheckpointError, CorralError, RunError, UnknownNameError
from corral.trainers.base import Trainer, trainer_class, trainer_name
from corral.trainers.runs.checkpoint import load_checkpoint, named_checkpoint
from corral.trainers.runs.env_config import EnvConfig, given_again
from corral.trainers.runs.files import replace_text
from corral.trainers.settings import make_settings

__all__ = ["FORMAT", "Run", "RunConfig", "is_run", "load_run", "versions"]

FORMAT = 2
DAMAGE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
"""Errors that values of the wrong kind cause."""

CONFIG, PROGRESS, CHECKPOINTS = "config.json", "progress.csv", "checkpoints"

CHECKPOINT_NAME = re.compile(r"best|latest|[0-9]{1,12}", flags=re.ASCII)
"""What may follow RUN@."""


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
            values = {"horizon": values.get("steps"), "keep": 3, **values}
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


class _ByAgent(dict[str, Policy]):
    """Policies by agent; a name that is none says which there are."""

    def __missing__(self, name: Any) -> Policy:
        raise KeyError(f"no agent named {name!r}; policies are by agent: {', '.join(self)}")


class Run:
    """A run on disk. ``policies`` are those of its latest checkpoint, or of the one ``at``."""

    def __init__(self, folder: Path, config: RunConfig, at: str | None = None) -> None:
        """``at``: "best", "latest", or a number of env steps, as in RUN@best; "0": as it began."""
        self.folder = folder
        self.config = config
        self.at = at

    def __repr__(self) -> str:
        return f"<Run {self.name!r}: {self.config.trainer} on {self.config.env_config.env}>"

    @property
    def suffix(self) -> str:
        """ "@best" of RUN@best; "" where no checkpoint was named."""
        return "" if self.at is None else f"@{self.at}"

    @property
    def name(self) -> str:
        """Its folder, and the checkpoint that was named: what ``load_run`` takes."""
        return f"{self.folder}{self.suffix}"

    @property
    def results(self) -> Path:
        """The folder of its evaluation: its own, or one in it for an earlier checkpoint."""
        if self.at in (None, "latest"):
            return self.folder
        return self.folder / f"evaluation{self.suffix}"

    @property
    def best_by(self) -> dict[str, Any] | None:
        """What its best checkpoint is best by: "env_steps", "compared" in words, and "value".

        None where no checkpoint is the best (yet), or it does not say.
        """
        try:
            content = load_checkpoint(named_checkpoint(self.folder / CHECKPOINTS, "best"))
            return dict(content.documents["progress"]["best_by"])
        except (CheckpointError, *DAMAGE):
            return None

    def source(self) -> str:
        """Return in words which checkpoint its policies come from. Raises CheckpointError."""
        if self.at is not None and not self.at.strip("0"):
            return "as it began, before any update"
        path = named_checkpoint(self.folder / CHECKPOINTS, self.at or "latest")
        text = f"the checkpoint of {int(path.name.split('_')[1]):,} env steps"
        if self.at == "best" and (best := self.best_by) is not None:
            value = "" if best["value"] is None else f", {best['value']:.4g}"
            text += f", the best by {best['compared']}{value}"
        return text

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        """agent -> Policy, rebuilt from the checkpoint.

        Raises CheckpointError where there is none, or where it is damaged.
        """
        return _ByAgent(self._trained().policies)

    @property
    def progress(self) -> pd.DataFrame:
        """progress.csv: one row per update."""
        return pd.read_csv(self.folder / PROGRESS)

    def export(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write the policies in the format of the library that trained them.

        For Stable-Baselines3 one zip per policy, for ``PPO.load``. Such files can run code when
        they are loaded; corral itself never reads them. Raises FileExistsError, before it changes
        anything, where a file is there and ``overwrite`` is not set.
        """
        target = Path(folder)
        if target.exists() and not target.is_dir():
            raise NotADirectoryError(f"{target} is a file: give a folder")
        trained = self._trained()
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".exporting-") as place:
            written = {
                target / path.relative_to(place): path for path in trained.export(Path(place))
            }
            if taken := [str(path) for path in written if path.exists() and not overwrite]:
                raise FileExistsError(
                    f"{', '.join(taken)} exists; pass overwrite=True to replace it"
                )
            for path, new in written.items():
                os.replace(new, path)
        return list(written)

    def begun(self) -> Trainer:
        """Return its trainer, as it began. Raises RunError where the config is damaged."""
        try:
            if set(self.config.policies) != set(self.config.env_config.rules().agents):
                raise ValueError(f"the agents of its policies are {list(self.config.policies)}")
            return self.config.make_trainer()
        except CorralError:
            raise
        except DAMAGE as error:
            raise RunError(f"{self.folder / CONFIG} is damaged: {error}") from error

    def _trained(self) -> Trainer:
        trainer = self.begun()
        if self.at is None or self.at.strip("0"):
            path = named_checkpoint(self.folder / CHECKPOINTS, self.at or "latest")
            trainer.load(load_checkpoint(path))
        return trainer


def load_run(
    folder: str | Path,
    env: EnvLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    trainer: type[Trainer] | None = None,
) -> Run:
    """Return the run in ``folder``.

    A run of an environment of others needs ``env`` again, one of a trainer of one's own its class:
    nothing is imported because a file names it.

    Args:
        folder: the run's.
        env: see ``corral.adapters.sources``.
        env_kwargs, api: of ``env``, one of others; default: those of the run. A run of an
            environment of corral keeps its own.
        trainer: the class.

    ``folder`` may name a checkpoint: RUN@best, RUN@latest, RUN@N (of N env steps, where it was
    kept), RUN@0 (as the run began). A folder whose name contains "@" goes first.

    Raises RunError where there is no run, ValueError for arguments that the run keeps,
    CheckpointError where that checkpoint is not there, and TraceError where its load has changed.
    """
    path, at = _place(folder)
    if at is not None and not CHECKPOINT_NAME.fullmatch(at):
        raise RunError(f"{folder}: give {path}@best, @latest, @N for N env steps, or @0")
    config = RunConfig.read(path, trainer, env=env, env_kwargs=env_kwargs, api=api)
    run = Run(path, config, at)
    if at is not None and at.strip("0"):
        named_checkpoint(path / CHECKPOINTS, at)
    return run


def _place(name: str | Path) -> tuple[Path, str | None]:
    """Return the folder of a run, and which of its checkpoints is named, if one is."""
    path = Path(name)
    base, at, checkpoint = path.name.rpartition("@")
    if not at or not base or path.exists() or not (path.with_name(base) / CONFIG).is_file():
        return path, None
    return path.with_name(base), checkpoint


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


def is_run(folder: str | Path) -> bool:
    """Return whether ``folder`` looks like a run, or names a checkpoint of one: RUN@best."""
    return (_place(folder)[0] / CONFIG).is_file()


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
