"""A run: the folder that training writes.

| file | content |
|---|---|
| ``config.json`` | definition: environment, trainer, settings, seed, policies, versions |
| ``<argument>.csv.gz``, ``.npy`` | traces and arrays that are not part of the package |
| ``progress.csv`` | one row per update, see ``corral.trainers.runs.log`` |
| ``checkpoints/`` | the training states for resuming, with their configuration |
| ``mode.json`` | greedy and sampled play at the end of training: ``ModeRecord`` |
| ``tensorboard/`` | the same as ``progress.csv``, for ``tensorboard --logdir`` |
| ``results.json``, ``report.html`` | the results of ``corral evaluate`` |
| ``from_rule.json``, ``validation.json`` | ``corral.from_rule``: its plan, its validation costs |
| ``recommendation.json`` | ``corral.from_rule``: the recommended team or rule |
| ``export/`` | exported policies: ``Run.export`` |
| ``evaluation@<name>/`` | results of an earlier checkpoint, such as ``RUN@best`` |
| ``.lock``, ``.lock.pid`` | lock of the training process: ``corral.trainers.runs.folders`` |
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from corral.adapters.sources import EnvLike
from corral.envs.core import any_number
from corral.envs.policy import Policy
from corral.envs.registry import Api
from corral.errors import CheckpointError, CorralError, RunError, concise
from corral.extensions import required_extension
from corral.files import read_json, read_text, reason, require_no_links, write_file
from corral.hints import no_attribute
from corral.results import json_text
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
    "MODE",
    "PROGRESS",
    "ModeRecord",
    "Run",
    "RunPolicies",
    "asked_for",
    "has_custom",
    "is_run",
    "load_each",
    "load_run",
    "models_for",
    "place_of",
    "with_checkpoint",
    "without_logs",
]

PROGRESS, CHECKPOINTS, FROM_RULE = "progress.csv", "checkpoints", "from_rule.json"
MODE = "mode.json"

MAX_PROGRESS = 2**30
"""Maximum bytes of progress.csv."""

MAX_MODE = 10_000
"""Maximum bytes of mode.json."""

CONFIGURATION = "configuration"
"""Document of every checkpoint: ``RunConfig.canonical()``. The manifest has its digest."""

CHECKPOINT_NAME = re.compile(r"best|latest|[0-9]{1,12}", flags=re.ASCII)
"""Valid checkpoint names after RUN@."""


@dataclass(frozen=True)
class ModeRecord:
    """Greedy and sampled play at the end of training, in the same episodes; see
    ``corral.trainers.evaluation.greedy.measured_mode``."""

    mode: str  # "greedy", or "sampled" if greedy play is far below; the run plays in this mode
    greedy: float  # mean return of the learning agents
    sampled: float
    episodes: int

    def __post_init__(self) -> None:
        """Raises ValueError for values of a wrong type, because a file may contain them."""
        numbers = (type(self.greedy), type(self.sampled), type(self.episodes))
        if self.mode not in ("greedy", "sampled") or numbers != (float, float, int):
            raise ValueError(f"{self!r:.200} has invalid values")

    def write(self, folder: Path) -> None:
        """Write mode.json in a run's folder."""
        write_file(folder / MODE, json_text(dataclasses.asdict(self)), folder=folder)


INSTEAD = {
    "predict act forward policy compute_single_action compute_actions get_policy get_module": "a "
    "run has a policy per agent: run.policies[agent].predict(observation)",
    "save save_model save_to_path": 'a run is saved in its folder; run.export("weights") writes '
    "its policies",
    "learn train fit": "corral.resume(run.folder, steps=...) trains it further",
    "test evaluate_policy": "use corral.evaluate(run)",
}
"""Attributes that a run does not have, and what to use instead."""


class RunPolicies(dict[str, Policy]):
    """Policies by agent; an unknown name raises KeyError with the valid names. ``anybody`` plays
    any other agent, in games with one policy for any number of agents. ``deterministic`` is that of
    the run."""

    anybody: Policy | None = None
    deterministic: bool = True

    def __missing__(self, name: Any) -> Policy:
        if self.anybody is not None:
            return self.anybody
        raise KeyError(f"no agent named {name!r}; the agents are {', '.join(self)}")

    def __or__(self, other: Mapping[str, Policy]) -> RunPolicies:  # type: ignore[override]
        """Return these policies with those of ``other`` in their places; the mode is kept."""
        joined = RunPolicies({**self, **other})
        joined.anybody, joined.deterministic = self.anybody, self.deterministic
        return joined

    def copy(self) -> RunPolicies:
        """Return the same policies, with the mode."""
        return self | {}


class Run:
    """A run on disk. ``policies`` come from its latest checkpoint, or from the one ``at``."""

    def __init__(self, folder: Path, config: RunConfig, at: str | None = None) -> None:
        """``at``: "best", "latest", or env steps, as in RUN@best; "0": the start of the run."""
        self.folder = folder
        self.config = config
        self.at = at
        self._warned = False  # about a changed source

    def __repr__(self) -> str:
        return f"<Run {self.name!r}: {self.config.trainer} on {self.config.env_config.env}>"

    def _repr_html_(self) -> str:
        from corral.notebook import as_html  # late: only for notebooks

        config = self.config
        facts: dict[str, Any] = {
            "environment": config.env_config.env,
            "trainer": config.trainer,
            "seed": config.seed,
            "policies": ", ".join(dict.fromkeys(config.policies.values())),
        }
        with contextlib.suppress(OSError, ValueError, LookupError):
            row = self.progress.iloc[-1]
            facts["env steps"] = f"{row['env_steps']:,.0f} of {config.steps:,}"
            facts["return of the team"] = float(row["return_team"])
        with contextlib.suppress(RunError):
            facts["plays"] = "greedily" if self.deterministic else "with sampled actions"
        if (best := self.best_by) is not None:
            facts["best"] = f"{best['env_steps']:,} env steps, by {best['compared']}"
        return as_html(f"Run {self.name}", facts)

    @property
    def suffix(self) -> str:
        """The suffix "@best" of RUN@best; "" if no checkpoint was named."""
        return "" if self.at is None else f"@{self.at}"

    @property
    def name(self) -> str:
        """The folder with the named checkpoint, in the format of ``load_run``."""
        return f"{self.folder}{self.suffix}"

    @property
    def results(self) -> Path:
        """The folder of the evaluation results: the run's, or a subfolder for other checkpoints.

        Raises FileError if a link is in its place.
        """
        if self.at in (None, "latest"):
            return self.folder
        folder = self.folder / f"evaluation{self.suffix}"
        require_no_links(folder, self.folder)
        return folder

    @property
    def best_by(self) -> dict[str, Any] | None:
        """The criterion of the best checkpoint: "env_steps", "compared" as text, and "value".

        None if there is no best checkpoint yet, or it has no criterion.
        """
        try:
            content = load_checkpoint(named_checkpoint(self.folder / CHECKPOINTS, "best"))
            return dict(content.documents["progress"]["best_by"])
        except (CheckpointError, *DAMAGE):
            return None

    @property
    def stopped(self) -> str | None:
        """Reason why a callback or a stop criterion ended training; None if neither did."""
        try:
            content = load_checkpoint(named_checkpoint(self.folder / CHECKPOINTS, "latest"))
            reason = content.documents["progress"]["stopped"]
            return None if reason is None else str(reason)
        except (CheckpointError, *DAMAGE):
            return None

    @property
    def mode_record(self) -> ModeRecord | None:
        """Greedy and sampled play at the end of training; None if they were not compared.

        Raises RunError if the file is damaged.
        """
        path = self.folder / MODE
        try:
            return ModeRecord(**read_json(path, MAX_MODE, folder=self.folder))
        except FileNotFoundError:
            return None
        except (OSError, TypeError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {reason(error)}; delete it") from error

    @property
    def deterministic(self) -> bool:
        """Whether the run plays greedily by default: True, unless sampled play was far better at
        the end of training. The checkpoints of a run share this mode, except RUN@best, if
        evaluations selected it: it plays as in these evaluations."""
        if self.at == "best" and (mode := (self.best_by or {}).get("mode")) is not None:
            return bool(mode == "greedy")
        record = self.mode_record
        return record is None or record.mode == "greedy"

    @property
    def recommendation(self) -> Any:
        """The ``Recommendation`` of ``corral.from_rule``; None for any other run."""
        if not (self.folder / "recommendation.json").is_file():
            return None
        return required_extension("run.recommendation")(self)

    def source(self) -> str:
        """Return a description of the policies' checkpoint. Raises CheckpointError."""
        if self.at is not None and not self.at.strip("0") and self.config.init is None:
            return "the start of the run, before any update"
        path = self.checkpoint()
        text = f"the checkpoint of {int(path.name.split('_')[1]):,} env steps"
        if self.at == "best" and (best := self.best_by) is not None:
            value = "" if best["value"] is None else f", {best['value']:.4g}"
            text += f", the best by {best['compared']}{value}"
        return text

    @cached_property
    def policies(self) -> Mapping[str, Policy]:
        """agent -> Policy, restored from the checkpoint. If one policy plays any number of agents,
        agents that were not in training have a policy as well.

        Raises CheckpointError for a missing or damaged checkpoint.
        """
        policies = RunPolicies(self._trained().policies)
        policies.deterministic = self.deterministic
        if any_number(self.config.env_config.rules()):
            learners = (agent for agent in policies if agent not in self.config.opponents)
            policies.anybody = policies[next(learners)]
        return policies

    @property
    def progress(self) -> pd.DataFrame:
        """progress.csv as a DataFrame: one row per update."""
        text = read_text(self.folder / PROGRESS, MAX_PROGRESS, folder=self.folder)
        return pd.read_csv(io.StringIO(text))

    def export(
        self, format: str, folder: str | Path | None = None, *, overwrite: bool = False
    ) -> list[Path]:
        """Write the policies to files; return the paths. ``folder`` defaults to export/<format>.

        | format | |
        |---|---|
        | ``numpy`` | policy.py and weights.npz: ``decide`` needs only NumPy; for dfaas_v0 |
        | ``onnx`` | a graph for each policy; for dfaas_v0 |
        | ``weights`` | for any environment: Stable-Baselines3's zip, or safetensors |

        The last path is manifest.json, with size and SHA-256 of each file. Zip files of
        Stable-Baselines3 can execute code when they are loaded; corral never loads them. Raises
        FileExistsError, before any change, if a file exists and ``overwrite`` is False, and
        ArgumentError for an unknown format.
        """
        export_run = required_extension("run.export")
        return list(export_run(self, format, folder, overwrite=overwrite))

    @cached_property
    def decider(self) -> Any:
        """The ``Decider`` of ``corral.loads.export.decider`` for production.

        Raises RunError if the environment is not dfaas_v0."""
        return required_extension("run.decider")(self)

    def start(self, seed: int = 0) -> Any:
        """Return the state before the first ``decide``; ``seed`` is for route "two"."""
        return self.decider.start(seed)

    def decide(
        self,
        nodes: Mapping[str, Mapping[str, Any]],
        previous: Mapping[str, Mapping[str, Any]] | None = None,
        state: Any = None,
        time: Any = None,
    ) -> dict[str, dict[str, Any]]:
        """Return name -> other -> the requests that a node offers it, by its greedy policy; for
        dfaas_v0. A run with unknown arrivals returns name -> plan: the arguments of
        ``corral.envs.dfaas_v0.Plan``.

        Args:
            nodes: name in the trace -> arrivals, capacity, and queue (default 0), for all nodes.
                With unknown arrivals, last_arrivals instead of arrivals: the count of the last
                step, or a list of counts, newest first.
            previous: name -> spare and lost at the end of the last step; None: a start.
            state: the state from ``start()``, the same object at every step. Required by recurrent
                networks and by a report_delay of 2 or more, else ValueError.
            time: time of the step, ISO-8601 or a datetime, UTC without a zone; for runs that
                observe daily_mean.

        Raises ``DecisionError``, a ValueError: see ``NodeDecider.decide`` in
        ``corral.loads.export.core``.
        """
        plans: dict[str, dict[str, Any]] = self.decider.decide(nodes, previous, state, time)
        return plans

    def begun(self) -> Trainer:
        """Return the trainer at the start of the run. Raises RunError for a damaged config.json."""
        try:
            if set(self.config.policies) != set(self.config.env_config.rules().agents):
                raise ValueError(f"the policies are for other agents: {list(self.config.policies)}")
            if not self._warned:
                self.config.warn_of_changes(self.folder)
                self._warned = True
            return self.config.make_trainer()
        except CorralError:
            raise
        except DAMAGE as error:
            raise RunError(f"{self.folder / CONFIG} is damaged: {error}") from error

    def content(self, at: str, *, but: Collection[str] = ("horizon",)) -> Content:
        """Return the content of a checkpoint of this run: "best", "latest", or N env steps.

        Raises CheckpointError if it is missing, damaged, or made with another configuration. Keys
        in ``but`` may differ: the planned ``horizon`` matters for resuming, not for playing.
        """
        path = self.checkpoint(at)
        content = load_checkpoint(path)
        self.config.require_same(path, content.documents.pop(CONFIGURATION, None), but=but)
        return content

    if not TYPE_CHECKING:  # type checkers report unknown attributes themselves

        def __getattr__(self, name: str) -> Any:
            return no_attribute(self, name, INSTEAD)

    def save_checkpoint(
        self, env_steps: int, content: Content, progress: Mapping[str, Any], *, best: bool = False
    ) -> None:
        """Save a checkpoint: the trainer's ``content``, the statistics, the configuration."""
        run_documents = {"progress": progress, CONFIGURATION: self.config.canonical()}
        if clashes := run_documents.keys() & content.documents.keys():
            raise CheckpointError(
                f"{self.folder}: the trainer saves a document named {', '.join(clashes)}, which is "
                "a reserved name; rename it"
            )
        save_checkpoint(
            self.folder / CHECKPOINTS,
            env_steps,
            Content({**content.documents, **run_documents}, content.arrays),
            keep=self.config.keep,
            best=best,
        )

    def save_again(self, env_steps: int) -> None:
        """Save the latest checkpoint, of ``env_steps``, again with the current configuration."""
        content = self.content("latest")
        self.save_checkpoint(env_steps, content, content.documents.pop("progress"))

    def _trained(self) -> Trainer:
        trainer = self.begun()
        if self.at is None or self.at.strip("0") or self.config.init is not None:
            trainer.load(self.content(self.at or "latest"))
        elif any((self.folder / CHECKPOINTS).glob("[!.]*")):
            self.content("latest")  # only checks the configuration
        return trainer

    def checkpoint(self, at: str | None = None) -> Path:
        """Return the directory of the policies' checkpoint. Raises CheckpointError."""
        try:
            return named_checkpoint(self.folder / CHECKPOINTS, at or self.at or "latest")
        except CheckpointError:
            if self.config.init is None or self.at is None or self.at.strip("0"):
                raise
            raise CheckpointError(
                f"{self.name}: its first checkpoint has been removed; the run started from "
                f"{self.config.init['run']}, {self.config.init['checkpoint']}"
            ) from None


@concise
def load_run(
    folder: str | Path | Run,
    env: EnvLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    trainer: Any = None,
    model: Any = None,
) -> Run:
    """Return the run in ``folder``.

    Third-party environments, custom trainers and custom networks must be passed again, because
    loading a run does not import code that its files name. Ids of PettingZoo and Gymnasium are
    looked up in their installed tables.

    Args:
        folder: the run's folder, or a checkpoint (see below). A Run is read again, with its own
            environment, trainer and model.
        env: a third-party environment, see ``corral.adapters.sources``.
        env_kwargs, api: for a third-party ``env``; default: those of the run. With a built-in
            environment, the run's arguments are used.
        trainer: a custom trainer: its class, its record of ``corral.algorithms``, or file.py:name.
        model: a custom network: the function, or its name: see ``corral.train``.

    ``folder`` may name a checkpoint: RUN@best, RUN@latest, RUN@N (N env steps, if it was kept),
    RUN@0 (the start of the run). A folder with "@" in its name takes precedence.

    Raises RunError for a missing run, ValueError for arguments that the run defines,
    CheckpointError for a missing checkpoint, and TraceError if its trace has changed.
    """
    if isinstance(folder, Run):
        config, folder = folder.config, folder.name
        if env is None and env_kwargs is None and api is None:
            env = config.env_config.own_rules
        trainer = config.own_trainer if trainer is None else trainer
        if model is None and config.own_model is not None:
            model = config.own_model.make
    path, at = _place_of(folder)
    _require_agreement(path, at or "latest")
    config = RunConfig.read(path, trainer, model, env=env, env_kwargs=env_kwargs, api=api)
    run = Run(path, config, at)
    if at is not None and at.strip("0"):
        named_checkpoint(path / CHECKPOINTS, at)
    return run


def _require_agreement(folder: Path, at: str) -> None:
    """Raise CheckpointError if config.json differs from the requested checkpoint, before objects
    are created from it. Not checked for a missing or damaged checkpoint, which fails later."""
    values = config_values(folder)
    try:
        checkpoint = named_checkpoint(folder / CHECKPOINTS, at)
        made_with = document(checkpoint, CONFIGURATION)
    except CheckpointError:
        return
    require_same_values(checkpoint, canonical_values(values), made_with, but=("horizon",))


def without_logs(given: Iterable[Any]) -> list[Any]:
    """Return the runs without log files next to runs, which also match a pattern like runs/a-*."""
    return [
        run
        for run in given
        if not (isinstance(run, str | Path) and str(run).endswith(".log") and Path(run).is_file())
    ]


def load_each(
    runs: Sequence[str | Path | Run],
    env: EnvLike | None = None,
    *,
    trainer: Any = None,
    model: Any = None,
    **named: Any,
) -> list[Run]:
    """Load several runs; ``Run`` objects are returned unchanged. See ``load_run``.

    ``trainer`` and ``model`` are passed to the runs that need a custom one.
    """
    trainers, models = asked_for(runs, "trainer_source", trainer), models_for(runs, model)
    return [
        run
        if isinstance(run, Run)
        else load_run(run, env, trainer=custom_trainer, model=custom_model, **named)
        for run, custom_trainer, custom_model in zip(runs, trainers, models, strict=True)
    ]


def place_of(name: str | Path) -> tuple[Path, str | None]:
    """Split a run's name into its folder and the name of a checkpoint, or None."""
    path = Path(name)
    base, at, checkpoint = path.name.rpartition("@")
    if not at or not base or path.exists() or not (path.with_name(base) / CONFIG).is_file():
        return path, None
    return path.with_name(base), checkpoint


def _place_of(name: str | Path) -> tuple[Path, str | None]:
    """Return the result of ``place_of``. Raises RunError for an invalid checkpoint name."""
    path, at = place_of(name)
    if at is not None and not CHECKPOINT_NAME.fullmatch(at):
        raise RunError(f"{name}: pass {path}@best, @latest, @N for N env steps, or @0")
    return path, at


def with_checkpoint(name: str | Path) -> str:
    """Return RUN@N for RUN or RUN@best: the current checkpoint by its env steps.

    Raises CheckpointError for a missing checkpoint, and RunError for an invalid name.
    """
    folder, at = _place_of(name)
    if at is not None and not at.strip("0"):
        return str(name)
    path = named_checkpoint(folder / CHECKPOINTS, at or "latest")
    return f"{folder}@{int(path.name.split('_')[1])}"


def models_for(runs: Sequence[Any], model: Any) -> list[Any]:
    """Return for each run or folder the ``model`` to load it with, or None."""
    return asked_for(runs, "model", model)


def asked_for(runs: Sequence[Any], key: str, given: Any) -> list[Any]:
    """Return for each run or folder ``given`` if its config.json has ``key``, else None. If no run
    has it, the first run gets it and raises the error."""
    needed = [has_custom(run, key) for run in runs]
    if runs and not any(needed):
        needed[0] = True
    return [given if needs else None for needs in needed]


def has_custom(run: Any, key: str) -> bool:
    """Return True if ``key`` in the config.json of a run or folder is not null; False if the file
    cannot be read."""
    if isinstance(run, Run):
        return getattr(run.config, {"model": "own_model"}.get(key, key)) is not None
    try:
        return config_values(place_of(run)[0]).get(key) is not None
    except RunError:
        return False  # ``load_run`` raises the error


def is_run(folder: str | Path) -> bool:
    """Return True if ``folder`` looks like a run, or names a checkpoint of one: RUN@best."""
    return (place_of(folder)[0] / CONFIG).is_file()
