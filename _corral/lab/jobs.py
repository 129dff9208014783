"""Train runs in parallel, each in a separate process.

    jobs = [Job(Path(f"runs/seed{seed}"), ("arena_v0", "--seed", str(seed))) for seed in range(5)]
    for ended in play(jobs, processes=2): ...

A job is a ``corral train`` command that a user could type. Its state is in its folder: a job with a
finished run is not trained again, and a killed one resumes from its checkpoint.
"""

from __future__ import annotations

import io
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from corral.envs.registry import registered_name
from corral.errors import CorralError
from corral.files import append_to, make_folder, read_file, read_text
from corral.memory import require_memory
from corral.trainers.planning import THREADS
from corral.trainers.runs.checkpoint import latest_checkpoint, load_checkpoint
from corral.trainers.runs.folders import is_locked
from corral.trainers.runs.run import CHECKPOINTS, PROGRESS, Run, is_run, load_run
from corral.trainers.runs.run_config import config_values

__all__ = [
    "REPEATED",
    "Ended",
    "Job",
    "finished",
    "is_finished",
    "play",
    "require_room",
    "threads_of_each",
]

POLL_S = 0.1
MIN_BYTES = 2**10
"""Minimum bytes that a planned run needs."""
MAX_LOG, MAX_PROGRESS = 2**26, 2**28
"""Maximum bytes to read of a process's output and of progress.csv."""

REPEATED = (
    *("--model", "--arg", "--api", "--checkpoint-every", "--callback", "--metric", "--sink"),
    *("--stop", "--evaluate-every"),
)
"""Options that a run does not store, so they must be repeated with --resume."""


def require_room(**numbers: int) -> None:
    """Raise SizeError if the list of runs, as many as the product of ``numbers``, is too large."""
    product = " x ".join(f"{name}={number}" for name, number in numbers.items())
    require_memory({product: MIN_BYTES * math.prod(numbers.values())})


@dataclass(frozen=True)
class Job:
    """A run to train: its folder, and the arguments of ``corral train``, environment first."""

    folder: Path
    arguments: tuple[str, ...]

    @property
    def log(self) -> Path:
        """File with the output of the process, next to the run."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def cli_arguments(self) -> list[str]:
        """Return the arguments of ``corral`` that start or resume the run."""
        if not is_run(self.folder):
            return ["train", *self.arguments, "--out", str(self.folder)]
        env, *options = self.arguments
        # A third-party environment must be named again: a run's files import nothing.
        third_party = [] if registered_name(env) is not None else [env]
        return ["train", *third_party, "--resume", str(self.folder), *_again(options)]

    def command(self, threads: int | None = None) -> str:
        """Return the command that trains the same run again, except for its folder."""
        variables = [] if threads is None else [f"{THREADS}={threads}"]
        return shlex.join([*variables, "corral", "train", *self.arguments])


def _again(options: list[str]) -> Iterator[str]:
    """Yield the ``options`` that must be repeated with --resume, with their values."""
    for at, word in enumerate(options):
        name, equals, value = word.partition("=")
        value = value if equals else " ".join(options[at + 1 : at + 2])
        if name in REPEATED or (name == "--trainer" and ":" in value):
            yield from [word] if equals else [name, value]


@dataclass(frozen=True)
class Ended:
    """A finished job with the exit status of its process; None if the run was already finished."""

    job: Job
    code: int | None

    @property
    def last_line(self) -> str:
        """Last line that the process printed, which is the error message after a failure."""
        try:
            text = read_file(self.job.log, MAX_LOG).decode("utf-8", errors="replace")
        except OSError:
            return ""
        return next((line for line in reversed(text.split("\n")) if line.strip()), "")


def finished(folder: Path) -> Run | None:
    """Return the run in ``folder`` if its training is complete, else None."""
    try:
        return load_run(folder) if is_finished(folder) else None
    except (CorralError, OSError):
        return None


def is_finished(folder: Path) -> bool:
    """Whether the training of the run in ``folder`` is complete.

    It is complete if a stop criterion ended it, or if no further rollout fits into its steps. The
    run may be in a third-party environment.
    """
    try:
        planned = int(config_values(folder)["steps"])
        latest = latest_checkpoint(folder / CHECKPOINTS)
        saved = int(latest.name.split("_")[1])
        table = read_text(folder / PROGRESS, MAX_PROGRESS, folder=folder)
        steps = pd.read_csv(io.StringIO(table))["env_steps"]
        rollout = int(steps.diff().iloc[-1]) if len(steps) > 1 else int(steps.iloc[-1])
        if saved != int(steps.iloc[-1]):  # killed between writing a row and its checkpoint
            return False
        stopped = load_checkpoint(latest).documents["progress"].get("stopped")
    except (CorralError, OSError, ValueError, LookupError, TypeError, ArithmeticError):
        return False
    return stopped is not None or saved + rollout > planned


def threads_of_each(processes: int) -> int:
    """Return the number of torch threads per process: the cores divided by ``processes``."""
    threads = os.environ.get(THREADS, "")
    return int(threads) if threads.isdigit() else max(1, (os.cpu_count() or 1) // processes)


def play(
    jobs: Iterable[Job | None],
    processes: int = 1,
    *,
    watch: Callable[[Job], bool] | None = None,
    threads: int | None = None,
) -> Generator[Ended, None, None]:
    """Train the runs of ``jobs``, ``processes`` at a time, and yield each one when it ends.

    ``jobs`` may be a generator: its next job is requested when a process is free. A job of None
    means "no job is ready yet". ``watch`` is called with each running job several times a second.
    If it returns False, the process receives SIGTERM, saves and ends. ``threads`` is the number of
    torch threads per process, see ``threads_of_each``.

    If another process trains a run, for example a process that outlived its parent, ``play`` waits
    for it. Ctrl-C reaches all processes, which save and end; then KeyboardInterrupt is raised. The
    processes are ended in the same way if the generator is closed or an error is raised.
    """
    waiting, end = iter(jobs), Ended(Job(Path(), ()), None)
    running: dict[Job, subprocess.Popen[bytes] | None] = {}  # None: trained by another program
    threads = threads_of_each(processes) if threads is None else threads
    has_more = True
    try:
        while has_more or running:
            while has_more and len(running) < processes:
                job = next(waiting, end)
                if isinstance(job, Ended):
                    has_more = False
                elif job is None:
                    break
                elif is_locked(job.folder):
                    running[job] = None
                elif is_finished(job.folder):
                    yield Ended(job, None)
                else:
                    running[job] = _start(job, threads)
            for job, process in [*running.items()]:
                if process is None:
                    if not is_locked(job.folder):
                        done = is_finished(job.folder)
                        running[job] = None if done else _start(job, threads)
                        if done:
                            del running[job]
                            yield Ended(job, None)
                elif (code := process.poll()) is not None:
                    if code and is_locked(job.folder):  # another program trains the run
                        running[job] = None
                    else:
                        del running[job]
                        yield Ended(job, code)
                elif watch is not None and not watch(job):
                    process.terminate()
            time.sleep(POLL_S)
    finally:
        processes_left = [process for process in running.values() if process is not None]
        for process in processes_left:
            process.terminate()
        for process in processes_left:
            process.wait()


def _start(job: Job, threads: int) -> subprocess.Popen[bytes]:
    make_folder(job.folder.parent)
    if not (job.folder / PROGRESS).exists() and job.log.exists():
        job.log.unlink()  # the log of a failed start
    with append_to(job.log, folder=job.folder.parent) as log:
        return subprocess.Popen(
            [sys.executable, "-m", "corral", *job.cli_arguments()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, THREADS: str(threads), "COLUMNS": "200"},
        )
