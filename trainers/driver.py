"""Train a team and leave a run behind; go on with one that stopped.

run = corral.train("dfaas_v0", trainer="sb3_ppo", steps=60_000, seed=1)
decision = run.policies["node_0"].act(observation, deterministic=True)
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from corral.envs.arguments import nonnegative_int
from corral.envs.core import Rules
from corral.errors import CheckpointError, RunError
from corral.trainers.base import Trainer, make_settings, trainer_class
from corral.trainers.presets import PRESETS
from corral.trainers.report.text import versions
from corral.trainers.runs.checkpoint import (
    Content,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from corral.trainers.runs.env_config import Task
from corral.trainers.runs.log import Bar, Log, Statistics
from corral.trainers.runs.run import (
    CHECKPOINTS,
    CONFIG,
    PROGRESS,
    Run,
    RunConfig,
    load_run,
    new_folder,
)
from corral.trainers.runs.run_lock import locked

__all__ = ["resume", "train"]

CHECKPOINTS_PER_RUN = 10

POLICY_NAME = re.compile(r"[a-z0-9_]{1,80}", flags=re.ASCII)
"""Policies give files of a checkpoint their names."""


def train(
    environment: str | Rules[Any],
    *,
    trainer: str = "sb3_ppo",
    steps: int = 100_000,
    seed: int = 0,
    env: Mapping[str, Any] | None = None,
    held_out: float | tuple[int, int] | None = None,
    policies: Literal["shared", "separate"] | Mapping[str, str] = "shared",
    policies_to_train: Sequence[str] | None = None,
    opponents: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    checkpoint_every: int | None = None,
    keep: int = 3,
    progress: bool | None = None,
    **settings: Any,
) -> Run:
    """Train the agents of an environment.

    SIGINT (Ctrl-C) ends training after the update under way, and SIGTERM the whole process; either
    way the run is saved first. ``Run.stopped_by`` tells a script that it was.

    Args:
        environment: a registered name, or rules of one's own.
        trainer: a name of ``corral.trainers.trainers()``.
        steps: env steps, over all copies together. They are played in whole rollouts: as many as
            fit, at least one.
        seed: of everything that is drawn; the same seed gives the same weights.
        env: arguments of the environment.
        held_out: what of a trace is kept for evaluation, see ``corral.trainers.runs.env_config``.
        policies: one policy "shared" by all agents, "separate" ones named like their agents, or
            agent -> name of its policy.
        policies_to_train: those that learn; the others only play. Default: all.
        opponents: agents that reference players play, agent -> name, such as
            {"player_1": "beat-last"}; see ``corral.envs.reference``. They have no policy and do not
            learn. For trainers mappo and ippo.
        out: the run's folder, empty or new; default: one in ``runs``.
        checkpoint_every: env steps between checkpoints; default: a tenth of ``steps``. There is
            always one at the end.
        keep: how many of the latest checkpoints to keep; the best is kept besides.
        progress: show it on stderr; default: where stderr is a terminal.
        settings: of the trainer; those that are left out come from
            ``corral.trainers.presets`` for this environment, else from the trainer.

    Raises UnknownNameError, MissingExtraError, TypeError for unknown settings, ValueError for
    values out of range, RunError for a folder in use, and what the environment raises.
    """
    nonnegative_int("steps", steps, least=1)
    nonnegative_int("seed", seed)
    _check_saving(checkpoint_every, keep)
    kind = trainer_class(trainer)
    task = Task.of(environment, env, held_out)
    preset = {
        name: value
        for name, value in PRESETS.get(task.environment, {}).items()
        if name in kind.Settings.__dataclass_fields__  # type: ignore[attr-defined]
    }
    agents = task.rules().agents
    played = _played_by_references(opponents, agents)
    learned = _policy_of_each(policies, [agent for agent in agents if agent not in played])
    if both := set(learned.values()) & set(played.values()):
        raise ValueError(
            f"{', '.join(sorted(both))} is a policy and a reference player; call the policy "
            "something else"
        )
    everybody = {**learned, **played}
    named = {agent: everybody[agent] for agent in agents}
    config = RunConfig(
        task=task,
        trainer=trainer,
        settings=vars(make_settings(kind, {**preset, **settings})),
        seed=seed,
        steps=steps,
        policies=named,
        policies_to_train=_learning(policies_to_train, learned),
        versions=_versions(),
        opponents=played,
    )
    learner = config.make_trainer()  # what is wrong with the settings shows before a folder is made
    getattr(learner, "check", lambda: None)()
    folder = _empty_folder(out, f"{task.environment}-{trainer}-seed{seed}")
    config.write(folder)
    run = Run(folder, config)
    with locked(folder):
        return _drive(run, learner, Statistics(named, played), checkpoint_every, keep, progress)


def resume(
    folder: str | Path,
    *,
    steps: int | None = None,
    rules: Rules[Any] | None = None,
    checkpoint_every: int | None = None,
    keep: int = 3,
    progress: bool | None = None,
) -> Run:
    """Go on with a run from its latest checkpoint, to ``steps`` env steps in all.

    Default: the steps it was begun with. Over Batch it then goes on bit for bit as if it had never
    stopped (more steps than planned stretch an annealed learning rate). Where episodes begin anew
    instead, a line on stderr says so; and also where the run was killed before its first
    checkpoint, and all begins anew.

    Raises RunError, where another process trains it too, and CheckpointError; see ``load_run``.
    """
    _check_saving(checkpoint_every, keep)
    run = load_run(folder, rules)
    if steps is not None:
        nonnegative_int("steps", steps, least=1)
        run.config = dataclasses.replace(run.config, steps=steps)
    with locked(run.folder):
        return _go_on(run, steps, checkpoint_every, keep, progress)


def _go_on(
    run: Run, steps: int | None, checkpoint_every: int | None, keep: int, progress: bool | None
) -> Run:
    learner = run.begun()
    statistics = Statistics(run.config.policies, run.config.opponents)
    # What a kill left half written is hidden, and no checkpoint.
    if any((run.folder / CHECKPOINTS).glob("[!.]*")):
        content = load_checkpoint(latest_checkpoint(run.folder / CHECKPOINTS))
        learner.load(content)
        try:
            statistics.load(content.documents["progress"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{run.folder}: its checkpoint is damaged: {error!r}") from error
        if not learner.resumes_exactly:
            told = "environments without a saved state begin new episodes"
            print(f"corral: {run.folder}: {told}", file=sys.stderr)
        if steps is not None and steps < learner.env_steps:
            raise RunError(
                f"steps={steps}: {run.folder} is at {learner.env_steps:,} env steps already; give "
                "more than that, or leave it out"
            )
    else:
        print(f"corral: {run.folder}: no checkpoint yet; it begins anew", file=sys.stderr)
    if steps is not None:
        run.config.write(run.folder)
    return _drive(run, learner, statistics, checkpoint_every, keep, progress)


# --- The loop ------------------------------------------------------------------------------------


def _drive(
    run: Run,
    learner: Trainer,
    statistics: Statistics,
    checkpoint_every: int | None,
    keep: int,
    progress: bool | None,
) -> Run:
    """Let the trainer learn; log every update, save every so often, and end when told to."""
    every = checkpoint_every or max(1, run.config.steps // CHECKPOINTS_PER_RUN)
    log = Log(run.folder / PROGRESS, run.folder / "tensorboard", updates=statistics.updates)
    bar = Bar(run.config.steps, shown=sys.stderr.isatty() if progress is None else progress)
    done = saved = learner.env_steps
    try:
        with _signals() as stop:
            clock = time.perf_counter()
            for update in learner.learn():
                now = time.perf_counter()
                row = statistics.row(update, update.env_steps - done, now - clock)
                clock, done = now, update.env_steps
                log.write(row)
                bar.show(row, statistics.return_learned)
                if stop.is_set() or done // every > saved // every:
                    _save(run, learner, statistics, keep)
                    saved = done
                if stop.is_set():
                    break
            if saved != done:
                _save(run, learner, statistics, keep)
    finally:
        bar.close()
        log.close()
        learner.close()
    if stop.is_set():
        print(
            f"corral: stopped at {done:,} of {run.config.steps:,} env steps; saved in {run.folder}."
            f" Go on with: corral train --resume {run.folder}",
            file=sys.stderr,
        )
    if stop.number == signal.SIGTERM:
        raise SystemExit(128 + stop.number)  # the whole process was told to end, not this run
    run.stopped_by = stop.number
    run.__dict__.pop("policies", None)  # those of an earlier checkpoint
    return run


def _save(run: Run, learner: Trainer, statistics: Statistics, keep: int) -> None:
    """A checkpoint of the trainer and of the statistics; the best of all is kept besides."""
    content = learner.save()
    better = statistics.improved()
    save_checkpoint(
        run.folder / CHECKPOINTS,
        learner.env_steps,
        Content({**content.documents, "progress": statistics.save()}, content.arrays),
        keep=keep,
        best=better,
    )


class _Stop:
    """Whether a signal asked to stop, and which."""

    number: int | None = None

    def is_set(self) -> bool:
        return self.number is not None


@contextlib.contextmanager
def _signals() -> Iterator[_Stop]:
    """What SIGINT and SIGTERM set; a second SIGINT interrupts at once.

    Signals reach the main thread alone: elsewhere they are left as they are.
    """
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.number = number

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- Parts ---------------------------------------------------------------------------------------


def _played_by_references(
    opponents: Mapping[str, str] | None, agents: Sequence[str]
) -> dict[str, str]:
    given = dict(opponents or {})
    for agent in given:
        if agent not in agents:
            raise ValueError(f"opponents name {agent!r}; the agents are {list(agents)}")
    if len(given) == len(agents):
        raise ValueError(f"opponents={given} play all agents; leave one of them out, to learn")
    return {agent: given[agent] for agent in agents if agent in given}


def _policy_of_each(policies: str | Mapping[str, str], agents: Sequence[str]) -> dict[str, str]:
    if policies == "shared":
        return dict.fromkeys(agents, "shared")
    if policies == "separate":
        policies = {agent: agent for agent in agents}
    if isinstance(policies, str):
        raise ValueError(f"policies={policies!r}: give 'shared', 'separate' or agent -> policy")
    if set(policies) != set(agents):
        raise ValueError(f"policies name {list(policies)}, the agents are {list(agents)}")
    for name in policies.values():
        if not (isinstance(name, str) and POLICY_NAME.fullmatch(name)):
            raise ValueError(
                f"policy name {name!r}: give 1 to 80 of a-z, 0-9 and _, as in "
                f"policies={{{agents[0]!r}: 'first', ...}}"
            )
    return {agent: policies[agent] for agent in agents}


def _learning(names: Sequence[str] | None, policies: Mapping[str, str]) -> tuple[str, ...]:
    known = tuple(dict.fromkeys(policies.values()))
    if names is None:
        return known
    if isinstance(names, str):
        raise ValueError(f"policies_to_train={names!r}: give a list of some of {list(known)}")
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"policies_to_train={list(names)}: give some of {list(known)}")
    return tuple(name for name in known if name in names)


def _check_saving(checkpoint_every: int | None, keep: int) -> None:
    nonnegative_int("keep", keep, least=1)
    if checkpoint_every is not None:
        nonnegative_int("checkpoint_every", checkpoint_every, least=1)


def _empty_folder(out: str | Path | None, name: str) -> Path:
    if out is None:
        return new_folder(name)
    folder = Path(out)
    if (folder / CONFIG).exists():
        raise RunError(f"{folder} holds a run; resume it, or give another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _versions() -> dict[str, str]:
    found = versions()
    for package in ("torch", "stable-baselines3", "sb3-contrib", "supersuit", "ray"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    if "torch" in sys.modules:
        threads = sys.modules["torch"].get_num_threads()
        found["torch threads"] = str(threads)  # results depend on them
    return found
