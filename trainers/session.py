"""The loop of training: let the trainer learn, log every update, save every so often."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from corral.errors import CheckpointError
from corral.text import visible
from corral.trainers.base import Content, Trainer
from corral.trainers.evaluation.zero_sum import is_zero_sum
from corral.trainers.runs.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from corral.trainers.runs.log import Bar, Log, Statistics
from corral.trainers.runs.run import CHECKPOINTS, PROGRESS, Run
from corral.trainers.runs.signals import stop_signals

__all__ = ["drive", "load", "save", "say", "statistics_of"]

CHECKPOINTS_PER_RUN = 10


def drive(
    run: Run,
    learner: Trainer,
    statistics: Statistics,
    checkpoint_every: int | None,
    progress: bool | None,
) -> Run:
    """Let the trainer learn; log every update, save every so often, and end at a signal."""
    every = checkpoint_every or max(1, run.config.steps // CHECKPOINTS_PER_RUN)
    log = Log(run.folder / PROGRESS, run.folder / "tensorboard", updates=statistics.updates)
    bar = Bar(run.config.steps, visible=sys.stderr.isatty() if progress is None else progress)
    begun = done = saved = learner.env_steps
    _tell_of_rollouts(run, learner)
    try:
        with stop_signals() as stop:
            clock = time.perf_counter()
            for update in learner.learn(run.config.steps):
                now = time.perf_counter()
                row = statistics.row(update, update.env_steps - done, now - clock)
                clock, done = now, update.env_steps
                log.write(row)
                bar.show(row, statistics.headline)
                if stop.is_set() or done // every > saved // every:
                    save(run, learner, statistics)
                    saved = done
                if stop.is_set():
                    break
            if saved != done:
                save(run, learner, statistics)
    finally:
        bar.close()
        log.close()
        learner.close()
    if not stop.is_set() and learner.env_steps == begun:
        say(
            run.folder,
            f"has played {begun:,} of its {run.config.steps:,} env steps already, and no whole "
            "rollout is left; --steps (steps=) goes on to more"
            if begun < run.config.steps
            else f"has played its {begun:,} env steps already; --steps (steps=) goes on to more",
        )
    if stop.is_set():
        again = run.config.env_config.named(run.folder)
        where = f"stopped at {done:,} of {run.config.steps:,} env steps, and saved"
        say(run.folder, f"{where}. Go on with: corral train --resume {again}")
    if stop.number == signal.SIGTERM:
        raise SystemExit(128 + stop.number)
    if stop.is_set():
        raise KeyboardInterrupt
    run.__dict__.pop("policies", None)  # those of an earlier checkpoint
    return run


def save(run: Run, learner: Trainer, statistics: Statistics) -> None:
    """Save a checkpoint of the trainer and of the statistics; the best stays besides."""
    content = learner.save()
    better = statistics.improved()
    save_checkpoint(
        run.folder / CHECKPOINTS,
        learner.env_steps,
        Content({**content.documents, "progress": statistics.save()}, content.arrays),
        keep=run.config.keep,
        best=better,
    )


def load(run: Run, learner: Trainer, statistics: Statistics) -> None:
    """Go on from the latest checkpoint."""
    content = load_checkpoint(latest_checkpoint(run.folder / CHECKPOINTS))
    learner.load(content)
    try:
        statistics.load(content.documents["progress"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{run.folder}: its checkpoint is damaged: {error!r}") from error
    if not learner.resumes_exactly:
        say(run.folder, "environments without a saved state begin new episodes")


def statistics_of(run: Run) -> Statistics:
    """Return the statistics of a run, before anything is played."""
    config = run.config
    idle = [
        agent
        for agent, name in config.policies.items()
        if agent in config.opponents or name not in config.policies_to_train
    ]
    self_play = not idle and is_zero_sum(config.env_config.rules())
    best_by = getattr(config.trainer_class(), "best_by", None)
    return Statistics(config.policies, idle, self_play=self_play, best_by=best_by)


def _tell_of_rollouts(run: Run, learner: Trainer) -> None:
    """Say how many env steps are played, where whole rollouts are others than were asked for."""
    size, steps = getattr(learner, "rollout_steps", None), run.config.steps
    count = max(1, steps // size) if size else 0
    if not size or count * size == steps or count * size <= learner.env_steps:
        return
    what = "num_envs x n_steps" if "n_steps" in run.config.settings else "train_batch_size"
    played = f"{count * size:,} env steps are played, not {steps:,}"
    say(run.folder, f"{played}: whole rollouts of {size:,}, {what}")


def say(folder: Path, message: str) -> None:
    print(f"corral: {visible(f'{folder}: {message}')}", file=sys.stderr)
