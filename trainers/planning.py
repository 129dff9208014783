"""Plan the length of a run in env steps or minutes, and set the number of torch threads."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.envs.arguments import nonnegative_float
from corral.errors import RunError
from corral.trainers.base import Trainer
from corral.trainers.callbacks.listeners import Listeners
from corral.trainers.callbacks.protocol import Callback, callbacks_of
from corral.trainers.evaluation.validate import validate
from corral.trainers.runs.run import FROM_RULE
from corral.trainers.runs.run_config import RunConfig, versions
from corral.trainers.session import Session, say

__all__ = [
    "THREADS",
    "Deadline",
    "Minutes",
    "beyond_the_plan",
    "one_thread",
    "require_its_plan",
    "threads_set",
    "warn_of_versions",
]

THREADS = "OMP_NUM_THREADS"
"""Environment variable with which users set the number of torch threads."""

MEASURED, SHARE = 3, 0.03
"""Timed rollouts after one warm-up rollout; fewer if they exceed this share of the budget."""

SLACK = 1.05
"""Factor on the time budget after which training ends, regardless of the plan."""

ENDLESS = 10**12


@dataclass(frozen=True)
class Minutes:
    """The time budget of a run in minutes, its start, and its maximum env steps."""

    minutes: float
    began: float  # time.monotonic() at the start
    most: int = ENDLESS

    @classmethod
    def of(cls, minutes: float | Minutes | None, *, steps: bool) -> Minutes | None:
        """Return a ``Minutes``; None for no ``minutes``. Raises ValueError if they are not above 0,
        or if ``steps`` are set as well."""
        if minutes is None or isinstance(minutes, Minutes):
            return minutes
        if nonnegative_float("minutes", minutes) == 0:
            raise ValueError("minutes=0: pass more than 0")
        if steps:
            raise ValueError(f"minutes={minutes:g}: pass either minutes or steps, not both")
        return cls(float(minutes), time.monotonic())

    @property
    def left(self) -> float:
        """Remaining seconds, 0 or more."""
        return max(0.0, self.began + 60 * self.minutes - time.monotonic())

    def planned(
        self, config: RunConfig, learner: Trainer, evaluate_every: int | None = None
    ) -> tuple[RunConfig, str]:
        """Return ``config`` with the steps that fit into the remaining time, and a message.

        ``learner`` is a trainer for ``config``; it plays the timed rollouts and is then closed.
        """
        learner.begin_timing()
        seconds, steps = _timed(learner, SHARE * 60 * self.minutes)
        per_step = seconds / steps
        rollout = learner.rollout_steps
        try:
            if evaluate_every is not None:
                clock = time.perf_counter()
                validate(config.env_config, learner.policies, learners=config.learners)
                per_step += (time.perf_counter() - clock) / max(evaluate_every, rollout)
        finally:
            learner.close()
        fit = min(int(self.left / per_step), self.most)
        steps = max(1, fit // rollout) * rollout
        remaining, speed = (
            max(1.0, self.left),
            f"based on the first rollouts, {1 / per_step:,.0f} steps/s",
        )
        message = f"{steps:,} env steps are planned for {remaining:,.0f} s, {speed}"
        if fit < steps:  # possibly no time remains
            message = f"{steps:,} env steps are planned, the minimum of one rollout: {speed}"
        return dataclasses.replace(config, steps=steps, horizon=steps), message

    def watched(self, listeners: Listeners) -> Listeners:
        """Return ``listeners`` with a deadline that ends training if it takes much longer."""
        deadline = Deadline(SLACK * self.left, f"{self.minutes:.3g} minutes are over")
        listeners.callbacks = callbacks_of([*listeners.callbacks, deadline])
        return listeners


def _timed(learner: Trainer, maximum: float) -> tuple[float, int]:
    """Return the seconds and env steps of rollouts that ``learner`` plays and learns from.

    Stops after ``maximum`` seconds. The first rollout is a warm-up and is not counted."""
    updates, start = learner.learn(ENDLESS), learner.env_steps
    began = clock = time.perf_counter()
    before = next(updates).env_steps
    done, first = before, time.perf_counter() - clock
    clock = time.perf_counter()
    for _ in range(MEASURED):
        if time.perf_counter() - began > maximum:
            break
        done = next(updates).env_steps
    if done == before:
        return first, before - start
    return time.perf_counter() - clock, done - before


class Deadline(Callback):
    """End training after ``seconds`` of training time, excluding code between updates."""

    order = 1

    def __init__(self, seconds: float, why: str) -> None:
        self.seconds, self.why = seconds, why

    def on_update(self, session: Session, row: dict[str, Any]) -> None:
        if row["wall_s"] > self.seconds and not session.over:
            session.stop(self.why)


# --- Resumed runs --------------------------------------------------------------------------------


def require_its_plan(folder: Path, callbacks: Sequence[Any]) -> None:
    """Raise RunError if a run was started by from_rule and resuming would ignore its plan."""
    if (folder / FROM_RULE).is_file() and not any(
        isinstance(callback, Callback) and callback.keeps_plan for callback in callbacks
    ):
        raise RunError(
            f"{folder} is part of a from-rule run, which also validates the rule: resume it with "
            "corral.resume_from_rule (corral train --resume without other options), or start a "
            "new run from this one: --init (init=)"
        )


FEW_PARTS = 10
"""A horizon below this part of the steps is probably meant as the length of an episode."""


def beyond_the_plan(config: RunConfig) -> str:
    """Return a warning if a run with annealing is longer than its ``horizon``; else ""."""
    settings = config.settings
    falls = [name for name, value in settings.items() if str(value).startswith("linear")]
    at_0 = settings.get("anneal") and not isinstance(settings.get("learning_rate"), str)
    if at_0 or "learning_rate" in falls:
        falls.append("anneal")
    if config.steps <= config.horizon or not (falls or settings.get("ent_coef_end") is not None):
        return ""
    rate = ", with a learning rate of 0" if "anneal" in falls else ""
    text = (
        f"planned for {config.horizon:,} env steps; after them annealed values stay constant{rate}"
    )
    if config.horizon < config.steps / FEW_PARTS:
        text += (
            ". The length of an episode is not horizon but max_cycles, an argument of the "
            "environment; corral check ENVIRONMENT --learnable tests whether its choices matter"
        )
    return text


def warn_of_versions(folder: Path, config: RunConfig) -> None:
    """Print version changes that can make a resumed run differ from an uninterrupted one."""
    now = versions(learning=True)
    changed = [
        name for name in config.versions if now.get(name, "") not in ("", config.versions[name])
    ]
    if changed:
        before = ", ".join(f"{name} {config.versions[name]}" for name in changed)
        after = ", ".join(f"{name} {now[name]}" for name in changed)
        say(folder, f"started with {before}; resumed with {after}: results may differ")


# --- Threads -------------------------------------------------------------------------------------


@contextlib.contextmanager
def threads_set(threads: int) -> Iterator[None]:
    """Set the number of torch threads in a block; it affects results and speed."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> contextlib.AbstractContextManager[None]:
    """Use one torch thread in a block, unless the user has set the number of threads.

    With small networks, threads mostly wait for each other. If other programs use the processor,
    waiting takes several times as long as computing (benchmarks/LOG.md).
    """
    return contextlib.nullcontext() if os.environ.get(THREADS) else threads_set(1)
