"""How long a run is planned to be: in env steps, or in minutes, which become env steps; and how
many threads torch has meanwhile."""

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
    "tell_of_versions",
    "threads_set",
]

THREADS = "OMP_NUM_THREADS"
"""With this variable users say how many threads torch has."""

MEASURED, SHARE = 3, 0.03
"""Rollouts that are timed, after one that is not; fewer where they take more than this share."""

SLACK = 1.05
"""Times the minutes after which training ends, whatever was planned."""

ENDLESS = 10**12


@dataclass(frozen=True)
class Minutes:
    """The time that a run may take, when it began, and the env steps that it has at most."""

    minutes: float
    began: float  # of time.monotonic
    most: int = ENDLESS

    @classmethod
    def of(cls, minutes: float | Minutes | None, *, steps: bool) -> Minutes | None:
        """Return it; None where no ``minutes`` are given. Raises ValueError where they are not
        above 0, or ``steps`` are given as well."""
        if minutes is None or isinstance(minutes, Minutes):
            return minutes
        if nonnegative_float("minutes", minutes) == 0:
            raise ValueError("minutes=0: give more than 0")
        if steps:
            raise ValueError(f"minutes={minutes:g}: give minutes, or steps, not both")
        return cls(float(minutes), time.monotonic())

    @property
    def left(self) -> float:
        """Seconds that are left, 0 or more."""
        return max(0.0, self.began + 60 * self.minutes - time.monotonic())

    def planned(
        self, config: RunConfig, learner: Trainer, evaluate_every: int | None = None
    ) -> tuple[RunConfig, str]:
        """Return ``config`` with the steps that fit into what is left, and how to say so.

        ``learner`` is a trainer of it that plays the rollouts which are timed; it is closed.
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
        left, speed = (
            max(1.0, self.left),
            f"at {1 / per_step:,.0f}/s as the first rollouts were played",
        )
        told = f"{steps:,} env steps are planned for {left:,.0f} s, {speed}"
        if fit < steps:  # nothing may be left at all
            told = f"{steps:,} env steps are planned, one rollout, which is all that fits: {speed}"
        return dataclasses.replace(config, steps=steps, horizon=steps), told

    def watched(self, listeners: Listeners) -> Listeners:
        """Return ``listeners`` with one that ends training where it takes much longer."""
        late = Deadline(SLACK * self.left, f"{self.minutes:.3g} minutes are over")
        listeners.callbacks = callbacks_of([*listeners.callbacks, late])
        return listeners


def _timed(learner: Trainer, most: float) -> tuple[float, int]:
    """Return the seconds of some rollouts that ``learner`` plays and learns from, and their env
    steps: of about ``most`` seconds at the most. The first, which warms up, does not count."""
    updates, start = learner.learn(ENDLESS), learner.env_steps
    began = clock = time.perf_counter()
    before = next(updates).env_steps
    done, first = before, time.perf_counter() - clock
    clock = time.perf_counter()
    for _ in range(MEASURED):
        if time.perf_counter() - began > most:
            break
        done = next(updates).env_steps
    if done == before:
        return first, before - start
    return time.perf_counter() - clock, done - before


class Deadline(Callback):
    """Ends training after so many seconds of it: what others do between updates does not count."""

    order = 1

    def __init__(self, seconds: float, why: str) -> None:
        self.seconds, self.why = seconds, why

    def on_update(self, session: Session, row: dict[str, Any]) -> None:
        if row["wall_s"] > self.seconds and not session.over:
            session.stop(self.why)


# --- Runs that go on -----------------------------------------------------------------------------


def require_its_plan(folder: Path, callbacks: Sequence[Any]) -> None:
    """Raise RunError where a run is part of a plan that would not be kept."""
    if (folder / FROM_RULE).is_file() and not any(
        isinstance(each, Callback) and each.keeps_plan for each in callbacks
    ):
        raise RunError(
            f"{folder} is part of a run that began with a rule, and is validated beside it: go on "
            "with corral.resume_from_rule (corral train --resume, and no other option), or begin "
            "another run from this one: --init (init=)"
        )


def beyond_the_plan(config: RunConfig) -> str:
    """Return what to say where a run is longer than its ``horizon`` and anneals, else ""."""
    settings = config.settings
    falls = [name for name, value in settings.items() if str(value).startswith("linear")]
    at_0 = settings.get("anneal") and not isinstance(settings.get("learning_rate"), str)
    if at_0 or "learning_rate" in falls:
        falls.append("anneal")
    if config.steps <= config.horizon or not (falls or settings.get("ent_coef_end") is not None):
        return ""
    rate = ", a learning rate at 0" if "anneal" in falls else ""
    return (
        f"planned for {config.horizon:,} env steps; beyond them what is annealed stays at its "
        f"end{rate}"
    )


def tell_of_versions(folder: Path, config: RunConfig) -> None:
    """Say which versions make a resumed run another than one that never stopped."""
    now = versions(learning=True)
    both = [
        name for name in config.versions if now.get(name, "") not in ("", config.versions[name])
    ]
    if both:
        before = ", ".join(f"{name} {config.versions[name]}" for name in both)
        after = ", ".join(f"{name} {now[name]}" for name in both)
        say(folder, f"begun with {before}; it goes on with {after}: numbers may differ")


# --- Threads -------------------------------------------------------------------------------------


@contextlib.contextmanager
def threads_set(threads: int) -> Iterator[None]:
    """Let torch use so many threads in a block: figures depend on them, and so does the time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> contextlib.AbstractContextManager[None]:
    """Let torch use one thread in a block, unless the user has said how many.

    For small networks: their threads wait for each other, and where others want the processor, for
    several times as long as they work (benchmarks/LOG.md).
    """
    return contextlib.nullcontext() if os.environ.get(THREADS) else threads_set(1)
