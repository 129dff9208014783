"""Train a team and leave a run behind; go on with one that stopped.

run = corral.train("dfaas_v0", trainer="sb3_ppo", steps=60_000, seed=1)
decision = run.policies["node_0"].act(observation, deterministic=True)
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from corral.envs.arguments import nonnegative_int
from corral.envs.core import Rules
from corral.envs.registry import REGISTERED, rules_class
from corral.errors import CheckpointError, RunError
from corral.text import visible
from corral.trainers.base import Content, Trainer, trainer_class
from corral.trainers.runs.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.files import locked, new_folder
from corral.trainers.runs.log import Bar, Log, Statistics
from corral.trainers.runs.run import (
    CHECKPOINTS,
    CONFIG,
    PROGRESS,
    Run,
    RunConfig,
    load_run,
    versions,
)
from corral.trainers.settings import make_settings, require_known

__all__ = ["resume", "train"]

CHECKPOINTS_PER_RUN = 10

POLICY_NAME = re.compile(r"[a-z0-9_]{1,80}", flags=re.ASCII)
"""Policies give files of a checkpoint their names."""


def train(
    env: str | Rules[Any],
    *,
    trainer: str = "sb3_ppo",
    steps: int = 100_000,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
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
        env: the name of a registered environment, or rules of one's own.
        trainer: a name of ``corral.trainers.trainers()``.
        steps: env steps, over all environments together. They are played in whole rollouts: as many
            as fit, at least one.
        seed: of everything that is drawn; the same seed gives the same weights.
        env_kwargs: arguments of the environment.
        held_out: the rows of its data that are kept for evaluation, where the environment has
            some: a share of the last, or rows (low, high).
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
        settings: of the trainer; those left out come from the environment's entry in
            ``corral.envs.registry``, else from the trainer.

    Raises UnknownNameError, MissingExtraError, TypeError for unknown settings, ValueError for
    values out of range, RunError for a folder in use, and what the environment raises.
    """
    nonnegative_int("steps", steps, least=1)
    nonnegative_int("seed", seed)
    _check_saving(checkpoint_every, keep)
    kind = trainer_class(trainer)
    arguments = _arguments_of(env) if isinstance(env, str) else ()
    require_known(train, trainer, arguments, env_kwargs or {}, settings)
    env_config = EnvConfig.of(env, env_kwargs, held_out)
    suited = REGISTERED[env_config.env].settings if env_config.env in REGISTERED else {}
    names = {field.name for field in dataclasses.fields(kind.Settings)}
    suited = {name: value for name, value in suited.items() if name in names}
    agents = env_config.rules().agents
    played = _played_by_references(opponents, agents)
    learned = _policy_of_each(policies, [agent for agent in agents if agent not in played])
    if both := set(learned.values()) & set(played.values()):
        raise ValueError(
            f"{', '.join(sorted(both))} is a policy and a reference player; call the policy "
            "something else"
        )
    everybody = {**learned, **played}
    config = RunConfig(
        env_config=env_config,
        trainer=trainer,
        settings=vars(make_settings(kind, {**suited, **settings})),
        seed=seed,
        steps=steps,
        policies={agent: everybody[agent] for agent in agents},
        policies_to_train=_learning(policies_to_train, learned),
        versions=versions(learning=True),
        opponents=played,
    )
    learner = config.make_trainer()  # wrong settings are refused before a folder is made
    getattr(learner, "check", lambda: None)()
    run = Run(_empty_folder(out, f"{env_config.env}-{trainer}-seed{seed}"), config)
    config.write(run.folder)
    with locked(run.folder):
        statistics = Statistics(config.policies, played)
        return _drive(run, learner, statistics, checkpoint_every, keep, progress)


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
        learner = run.begun()
        statistics = Statistics(run.config.policies, run.config.opponents)
        # What a kill left half written is hidden, and no checkpoint.
        if any((run.folder / CHECKPOINTS).glob("[!.]*")):
            _load(run, learner, statistics)
        else:
            _say(f"{run.folder}: no checkpoint yet; it begins anew")
        if steps is not None:
            if steps < learner.env_steps:
                raise RunError(
                    f"steps={steps}: {run.folder} is at {learner.env_steps:,} env steps already; "
                    "give more than that, or leave it out"
                )
            run.config.write(run.folder)
        return _drive(run, learner, statistics, checkpoint_every, keep, progress)


def _load(run: Run, learner: Trainer, statistics: Statistics) -> None:
    """Go on from the latest checkpoint."""
    content = load_checkpoint(latest_checkpoint(run.folder / CHECKPOINTS))
    learner.load(content)
    try:
        statistics.load(content.documents["progress"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{run.folder}: its checkpoint is damaged: {error!r}") from error
    if not learner.resumes_exactly:
        _say(f"{run.folder}: environments without a saved state begin new episodes")


# --- The loop ------------------------------------------------------------------------------------


def _drive(
    run: Run,
    learner: Trainer,
    statistics: Statistics,
    checkpoint_every: int | None,
    keep: int,
    progress: bool | None,
) -> Run:
    """Let the trainer learn; log every update, save every so often, and end at a signal."""
    every = checkpoint_every or max(1, run.config.steps // CHECKPOINTS_PER_RUN)
    log = Log(run.folder / PROGRESS, run.folder / "tensorboard", updates=statistics.updates)
    bar = Bar(run.config.steps, visible=sys.stderr.isatty() if progress is None else progress)
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
        _say(
            f"stopped at {done:,} of {run.config.steps:,} env steps; saved in {run.folder}. "
            f"Go on with: corral train --resume {run.folder}"
        )
    if stop.number == signal.SIGTERM:
        raise SystemExit(128 + stop.number)  # the whole process was told to end, not this run
    run.stopped_by = stop.number
    run.__dict__.pop("policies", None)  # those of an earlier checkpoint
    return run


def _save(run: Run, learner: Trainer, statistics: Statistics, keep: int) -> None:
    """Save a checkpoint of the trainer and of the statistics; the best stays besides."""
    content = learner.save()
    better = statistics.improved()
    save_checkpoint(
        run.folder / CHECKPOINTS,
        learner.env_steps,
        Content({**content.documents, "progress": statistics.save()}, content.arrays),
        keep=keep,
        best=better,
    )


def _say(message: str) -> None:
    print(f"corral: {visible(message)}", file=sys.stderr)


class _Stop:
    """The signal that asked to stop, if one did."""

    number: int | None = None

    def is_set(self) -> bool:
        return self.number is not None


@contextlib.contextmanager
def _signals() -> Iterator[_Stop]:
    """Yield what SIGINT and SIGTERM set; a second SIGINT interrupts at once.

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


def _arguments_of(env: str) -> Collection[str]:
    return inspect.signature(rules_class(env)).parameters if env in REGISTERED else ()


def _played_by_references(
    opponents: Mapping[str, str] | None, agents: Sequence[str]
) -> dict[str, str]:
    players = dict(opponents or {})
    for agent in players:
        if agent not in agents:
            raise ValueError(f"opponents name {agent!r}; the agents are {list(agents)}")
    if len(players) == len(agents):
        raise ValueError(f"opponents={players} play all agents; leave one of them out, to learn")
    return {agent: players[agent] for agent in agents if agent in players}


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
    every = tuple(dict.fromkeys(policies.values()))
    if names is None:
        return every
    if isinstance(names, str):
        raise ValueError(f"policies_to_train={names!r}: give a list of some of {list(every)}")
    if not names or set(names) - set(every):
        raise ValueError(f"policies_to_train={list(names)}: give some of {list(every)}")
    return tuple(name for name in every if name in names)


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
