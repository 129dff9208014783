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

import os
import re
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from corral.adapters.sources import EnvLike
from corral.envs.policy import Policy
from corral.envs.registry import Api
from corral.errors import CheckpointError, CorralError, RunError
from corral.trainers.base import Trainer
from corral.trainers.runs.checkpoint import load_checkpoint, named_checkpoint
from corral.trainers.runs.run_config import CONFIG, DAMAGE, RunConfig

__all__ = ["CHECKPOINTS", "PROGRESS", "Run", "is_run", "load_run"]

PROGRESS, CHECKPOINTS = "progress.csv", "checkpoints"

CHECKPOINT_NAME = re.compile(r"best|latest|[0-9]{1,12}", flags=re.ASCII)
"""What may follow RUN@."""


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
        if self.at is not None and not self.at.strip("0") and self.config.init is None:
            return "as it began, before any update"
        path = self.checkpoint()
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
        if self.at is None or self.at.strip("0") or self.config.init is not None:
            trainer.load(load_checkpoint(self.checkpoint()))
        return trainer

    def checkpoint(self) -> Path:
        """Return the directory of the checkpoint that it plays by. Raises CheckpointError."""
        try:
            return named_checkpoint(self.folder / CHECKPOINTS, self.at or "latest")
        except CheckpointError:
            if self.config.init is None or self.at is None or self.at.strip("0"):
                raise
            raise CheckpointError(
                f"{self.name}: its first checkpoint is kept no longer; it started from "
                f"{self.config.init['run']}, {self.config.init['checkpoint']}"
            ) from None


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


def is_run(folder: str | Path) -> bool:
    """Return whether ``folder`` looks like a run, or names a checkpoint of one: RUN@best."""
    return (_place(folder)[0] / CONFIG).is_file()
