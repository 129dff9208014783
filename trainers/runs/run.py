"""A run: the directory that training leaves behind.

| file | what it holds |
|---|---|
| ``config.json`` | what defines the run: environment, trainer, settings, seed, policies, versions |
| ``<argument>.csv.gz``, ``.npy`` | traces and arrays that do not come with the package |
| ``progress.csv`` | one row per update, see ``corral.trainers.runs.log`` |
| ``checkpoints/`` | the state to go on from, and the configuration that made it |
| ``tensorboard/`` | the same as ``progress.csv``, for ``tensorboard --logdir`` |
| ``results.json``, ``report.html`` | the results of ``corral evaluate`` |
| ``from_rule.json``, ``validation.json`` | of ``corral.from_rule``: its plan, costs in validation |
| ``recommendation.json`` | what to play, of a run that ``corral.from_rule`` made |
| ``export/`` | the policies for others: ``Run.export`` |
| ``evaluation@<name>/`` | the same of an earlier checkpoint, such as ``RUN@best`` |
| ``.lock``, ``.lock.pid`` | of the process that trains it: ``corral.trainers.runs.folders`` |
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from corral.adapters.sources import EnvLike
from corral.envs.core import any_number
from corral.envs.policy import Policy
from corral.envs.registry import Api
from corral.errors import CheckpointError, CorralError, RunError
from corral.extensions import required_extension
from corral.files import read_text, require_no_links
from corral.trainers.base import Trainer
from corral.trainers.content import Content
from corral.trainers.runs.checkpoint import load_checkpoint, named_checkpoint, save_checkpoint
from corral.trainers.runs.checkpoint_format import document
from corral.trainers.runs.run_config import (
    CONFIG,
    DAMAGE,
    RunConfig,
    canonical_values,
    config_values,
    require_same_values,
)

__all__ = [
    "CHECKPOINTS",
    "FROM_RULE",
    "PROGRESS",
    "Run",
    "asked_for",
    "but_logs",
    "has_own",
    "is_run",
    "load_each",
    "load_run",
    "models_for",
    "place_of",
    "with_checkpoint",
]

PROGRESS, CHECKPOINTS, FROM_RULE = "progress.csv", "checkpoints", "from_rule.json"

MOST_PROGRESS = 2**30
"""Bytes of progress.csv."""

CONFIGURATION = "configuration"
"""Document of every checkpoint: ``RunConfig.canonical()``. The manifest holds its digest."""

CHECKPOINT_NAME = re.compile(r"best|latest|[0-9]{1,12}", flags=re.ASCII)
"""What may follow RUN@."""


class _ByAgent(dict[str, Policy]):
    """Policies by agent; a name that is none says which there are. ``anybody`` plays any agent, of
    any number of them, where the game has such a policy."""

    anybody: Policy | None = None

    def __missing__(self, name: Any) -> Policy:
        if self.anybody is not None:
            return self.anybody
        raise KeyError(f"no agent named {name!r}; policies are by agent: {', '.join(self)}")


class Run:
    """A run on disk. ``policies`` are those of its latest checkpoint, or of the one ``at``."""

    def __init__(self, folder: Path, config: RunConfig, at: str | None = None) -> None:
        """``at``: "best", "latest", or a number of env steps, as in RUN@best; "0": as it began."""
        self.folder = folder
        self.config = config
        self.at = at
        self._told = False  # that a source has changed

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
        """The folder of its evaluation: its own, or one in it for an earlier checkpoint.

        Raises FileError where a link lies in its place.
        """
        if self.at in (None, "latest"):
            return self.folder
        folder = self.folder / f"evaluation{self.suffix}"
        require_no_links(folder, self.folder)
        return folder

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

    @property
    def stopped(self) -> str | None:
        """Why a callback or a stop criterion ended its training; None where none did."""
        try:
            content = load_checkpoint(named_checkpoint(self.folder / CHECKPOINTS, "latest"))
            return str(content.documents["progress"]["stopped"])
        except (CheckpointError, *DAMAGE):
            return None

    @property
    def recommendation(self) -> Any:
        """What ``corral.from_rule`` recommends to play, a ``Recommendation``; None where the run is
        no such one."""
        if not (self.folder / "recommendation.json").is_file():
            return None
        return required_extension("run.recommendation")(self)

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
        """agent -> Policy, rebuilt from the checkpoint; also for agents that it was not trained
        with, where one policy plays any number of them.

        Raises CheckpointError where there is none, or where it is damaged.
        """
        found = _ByAgent(self._trained().policies)
        if any_number(self.config.env_config.rules()):
            learners = (agent for agent in found if agent not in self.config.opponents)
            found.anybody = found[next(learners)]
        return found

    @property
    def progress(self) -> pd.DataFrame:
        """progress.csv: one row per update."""
        text = read_text(self.folder / PROGRESS, MOST_PROGRESS, folder=self.folder)
        return pd.read_csv(io.StringIO(text))

    def export(
        self, format: str, folder: str | Path | None = None, *, overwrite: bool = False
    ) -> list[Path]:
        """Write the policies to files, and return which; ``folder``: default export/<format>.

        | format | |
        |---|---|
        | ``numpy`` | policy.py and weights.npz: ``decide`` with NumPy alone; of dfaas_v0 |
        | ``onnx`` | a graph for each policy; of dfaas_v0 |
        | ``weights`` | of any environment: Stable-Baselines3's zip, or safetensors |

        The last path is that of manifest.json, with size and SHA-256 of each file. Zips of
        Stable-Baselines3 can run code when they are loaded; corral itself never reads them. Raises
        FileExistsError, before it changes anything, where a file is there and ``overwrite`` is not
        set, and ArgumentError for another format.
        """
        export_run = required_extension("run.export")
        return list(export_run(self, format, folder, overwrite=overwrite))

    @cached_property
    def decider(self) -> Any:
        """What decides in production, a ``Decider`` of ``corral.loads.export.decider``.
        Raises RunError where it is no run of dfaas_v0."""
        return required_extension("run.decider")(self)

    def start(self, seed: int = 0) -> Any:
        """Return the state before the first ``decide``; ``seed`` is of what route "two" draws."""
        return self.decider.start(seed)

    def decide(
        self,
        nodes: Mapping[str, Mapping[str, Any]],
        previous: Mapping[str, Mapping[str, Any]] | None = None,
        state: Any = None,
        time: Any = None,
    ) -> dict[str, dict[str, Any]]:
        """Return name -> other -> the requests that a node offers it, as its policy plays greedily;
        of dfaas_v0. A run with unknown arrivals returns name -> plan: the arguments of
        ``corral.envs.dfaas_v0.Plan``.

        Args:
            nodes: name in the trace -> arrivals, capacity, and queue (default 0): of all nodes.
                With unknown arrivals last_arrivals in place of arrivals: the count of the last
                step, or a list of counts, newest first.
            previous: name -> spare and lost, with which they ended the last step; None: a start.
            state: of ``start()``, the same at every step; recurrent networks and a report_delay of
                2 and more raise ValueError where they would miss it.
            time: of the step, ISO-8601 or a datetime, UTC without a zone; for runs that observe
                daily_mean.

        Raises ``DecisionError``, a ValueError: see ``NodeDecider.decide`` in
        ``corral.loads.export.core``.
        """
        found: dict[str, dict[str, Any]] = self.decider.decide(nodes, previous, state, time)
        return found

    def begun(self) -> Trainer:
        """Return its trainer, as it began. Raises RunError where the config is damaged."""
        try:
            if set(self.config.policies) != set(self.config.env_config.rules().agents):
                raise ValueError(f"the agents of its policies are {list(self.config.policies)}")
            if not self._told:
                self.config.tell_of_changes(self.folder)
                self._told = True
            return self.config.make_trainer()
        except CorralError:
            raise
        except DAMAGE as error:
            raise RunError(f"{self.folder / CONFIG} is damaged: {error}") from error

    def content(self, at: str, *, but: Collection[str] = ("horizon",)) -> Content:
        """Return the content of a checkpoint of this run: "best", "latest", or of N env steps.

        Raises CheckpointError where there is none, where it is damaged, and where another
        configuration made it than that of this run: keys in ``but`` may differ. What was planned
        (the horizon) matters to a run that goes on, not to policies that only play.
        """
        path = self.checkpoint(at)
        content = load_checkpoint(path)
        self.config.require_same(path, content.documents.pop(CONFIGURATION, None), but=but)
        return content

    def save(
        self, env_steps: int, content: Content, progress: Mapping[str, Any], *, best: bool = False
    ) -> None:
        """Save a checkpoint: the trainer's ``content``, the statistics, the configuration."""
        own = {"progress": progress, CONFIGURATION: self.config.canonical()}
        if taken := own.keys() & content.documents.keys():
            raise CheckpointError(
                f"{self.folder}: the trainer saves a document named {', '.join(taken)}, which is "
                "a name of the run's own; call it something else"
            )
        save_checkpoint(
            self.folder / CHECKPOINTS,
            env_steps,
            Content({**content.documents, **own}, content.arrays),
            keep=self.config.keep,
            best=best,
        )

    def save_again(self, env_steps: int) -> None:
        """Save the latest checkpoint, of ``env_steps``, with the configuration as it is now."""
        content = self.content("latest")
        self.save(env_steps, content, content.documents.pop("progress"))

    def _trained(self) -> Trainer:
        trainer = self.begun()
        if self.at is None or self.at.strip("0") or self.config.init is not None:
            trainer.load(self.content(self.at or "latest"))
        elif any((self.folder / CHECKPOINTS).glob("[!.]*")):
            self.content("latest")  # nothing is taken from it: it knows what the run is
        return trainer

    def checkpoint(self, at: str | None = None) -> Path:
        """Return the directory of the checkpoint that it plays by. Raises CheckpointError."""
        try:
            return named_checkpoint(self.folder / CHECKPOINTS, at or self.at or "latest")
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
    trainer: Any = None,
    model: Any = None,
) -> Run:
    """Return the run in ``folder``.

    A run of an environment of others needs ``env`` again, one of a trainer of one's own that
    trainer, one with a network of one's own its ``model``: nothing is imported because a file names
    it.

    Args:
        folder: the run's.
        env: see ``corral.adapters.sources``.
        env_kwargs, api: of ``env``, one of others; default: those of the run. A run of an
            environment of corral keeps its own.
        trainer: the class, the record of ``corral.algorithms``, or file.py:name.
        model: the function, or text that names it: see ``corral.train``.

    ``folder`` may name a checkpoint: RUN@best, RUN@latest, RUN@N (of N env steps, where it was
    kept), RUN@0 (as the run began). A folder whose name contains "@" goes first.

    Raises RunError where there is no run, ValueError for arguments that the run keeps,
    CheckpointError where that checkpoint is not there, and TraceError where its load has changed.
    """
    path, at = _place_of(folder)
    _require_agreement(path, at or "latest")
    config = RunConfig.read(path, trainer, model, env=env, env_kwargs=env_kwargs, api=api)
    run = Run(path, config, at)
    if at is not None and at.strip("0"):
        named_checkpoint(path / CHECKPOINTS, at)
    return run


def _require_agreement(folder: Path, at: str) -> None:
    """Raise CheckpointError where config.json says another thing than the checkpoint that is asked
    for, before anything is made of it. Where there is none, or a damaged one, nothing is compared:
    what needs it says so."""
    values = config_values(folder)
    try:
        checkpoint = named_checkpoint(folder / CHECKPOINTS, at)
        made_with = document(checkpoint, CONFIGURATION)
    except CheckpointError:
        return
    require_same_values(checkpoint, canonical_values(values), made_with, but=("horizon",))


def but_logs(given: Iterable[Any]) -> list[Any]:
    """Return what is given, but for the logs that lie beside runs: runs/a-* names these, too."""
    return [
        each
        for each in given
        if not (
            isinstance(each, str | Path) and str(each).endswith(".log") and Path(each).is_file()
        )
    ]


def load_each(
    runs: Sequence[str | Path | Run],
    env: EnvLike | None = None,
    *,
    trainer: Any = None,
    model: Any = None,
    **named: Any,
) -> list[Run]:
    """Return several runs that are compared, or their folders' runs: see ``load_run``.

    ``trainer`` and ``model`` are for those that ask for one of a user's own.
    """
    trainers, models = asked_for(runs, "trainer_source", trainer), models_for(runs, model)
    return [
        run if isinstance(run, Run) else load_run(run, env, trainer=own, model=made, **named)
        for run, own, made in zip(runs, trainers, models, strict=True)
    ]


def place_of(name: str | Path) -> tuple[Path, str | None]:
    """Return the folder of a run, and which of its checkpoints is named, if one is."""
    path = Path(name)
    base, at, checkpoint = path.name.rpartition("@")
    if not at or not base or path.exists() or not (path.with_name(base) / CONFIG).is_file():
        return path, None
    return path.with_name(base), checkpoint


def _place_of(name: str | Path) -> tuple[Path, str | None]:
    """Return the same. Raises RunError for what can name no checkpoint."""
    path, at = place_of(name)
    if at is not None and not CHECKPOINT_NAME.fullmatch(at):
        raise RunError(f"{name}: give {path}@best, @latest, @N for N env steps, or @0")
    return path, at


def with_checkpoint(name: str | Path) -> str:
    """Return RUN@N of RUN or RUN@best: the checkpoint that it names now, by its env steps.

    Raises CheckpointError where there is none, and RunError for a name that none can have.
    """
    folder, at = _place_of(name)
    if at is not None and not at.strip("0"):
        return str(name)
    found = named_checkpoint(folder / CHECKPOINTS, at or "latest")
    return f"{folder}@{int(found.name.split('_')[1])}"


def models_for(runs: Sequence[Any], model: Any) -> list[Any]:
    """Return for each of several runs, or their folders, the ``model`` to load it with."""
    return asked_for(runs, "model", model)


def asked_for(runs: Sequence[Any], key: str, given: Any) -> list[Any]:
    """Return for each of several runs, or their folders, what is ``given`` where its config.json
    has ``key``, else None; the first gets it where none has, and says so."""
    wanted = [has_own(run, key) for run in runs]
    if runs and not any(wanted):
        wanted[0] = True
    return [given if each else None for each in wanted]


def has_own(run: Any, key: str) -> bool:
    """Return whether the config.json of a run, or of its folder, has ``key``."""
    if isinstance(run, Run):
        return getattr(run.config, {"model": "own_model"}.get(key, key)) is not None
    try:
        return config_values(place_of(run)[0]).get(key) is not None
    except RunError:
        return False  # ``load_run`` says what is wrong


def is_run(folder: str | Path) -> bool:
    """Return whether ``folder`` looks like a run, or names a checkpoint of one: RUN@best."""
    return (place_of(folder)[0] / CONFIG).is_file()
