"""Runs trained side by side, each by a process of its own.

    jobs = [Job(Path(f"runs/seed{seed}"), ("arena_v0", "--seed", str(seed))) for seed in range(5)]
    for ended in play(jobs, processes=2): ...

A job is a command of ``corral train`` that anyone can type. What is in its folder is the truth: a
job whose run is finished is not played again, and one that was killed goes on from its checkpoint.
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
    "AGAIN",
    "Ended",
    "Job",
    "finished",
    "is_finished",
    "play",
    "require_room",
    "threads_of_each",
]

POLL_S = 0.1
OF_A_JOB = 2**10
"""Bytes of a run that is planned, at the least."""
MOST_LOG, MOST_PROGRESS = 2**26, 2**28
"""Bytes of what a process prints, and of progress.csv, that are read."""

AGAIN = (
    *("--model", "--arg", "--api", "--checkpoint-every", "--callback", "--metric", "--sink"),
    *("--stop", "--evaluate-every"),
)
"""Options that a run does not keep: who goes on with it gives them again."""


def require_room(**numbers: int) -> None:
    """Raise SizeError where so many runs, the product of ``numbers``, cannot even be listed."""
    words = " x ".join(f"{name}={number}" for name, number in numbers.items())
    require_memory({words: OF_A_JOB * math.prod(numbers.values())})


@dataclass(frozen=True)
class Job:
    """A run to be trained: its folder, and words of ``corral train``, the environment first."""

    folder: Path
    arguments: tuple[str, ...]

    @property
    def log(self) -> Path:
        """What its process prints, beside the run."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def words(self) -> list[str]:
        """Return the words after ``corral`` that begin the run, or go on with it."""
        if not is_run(self.folder):
            return ["train", *self.arguments, "--out", str(self.folder)]
        env, *options = self.arguments
        own = [] if registered_name(env) is not None else [env]  # nothing is imported unasked
        return ["train", *own, "--resume", str(self.folder), *_again(options)]

    def command(self, threads: int | None = None) -> str:
        """Return what to type to train the same run anew, but for where it is written."""
        before = [] if threads is None else [f"{THREADS}={threads}"]
        return shlex.join([*before, "corral", "train", *self.arguments])


def _again(options: list[str]) -> Iterator[str]:
    """Yield those of ``options`` that a run which goes on is given again, with their values."""
    for at, word in enumerate(options):
        name, equals, value = word.partition("=")
        value = value if equals else " ".join(options[at + 1 : at + 2])
        if name in AGAIN or (name == "--trainer" and ":" in value):
            yield from [word] if equals else [name, value]


@dataclass(frozen=True)
class Ended:
    """A job that ended: exit status of its process (0: all is well; None: it was done before)."""

    job: Job
    code: int | None

    @property
    def words(self) -> str:
        """The last line that its process printed: what went wrong, where something did."""
        try:
            text = read_file(self.job.log, MOST_LOG).decode("utf-8", errors="replace")
        except OSError:
            return ""
        return next((line for line in reversed(text.split("\n")) if line.strip()), "")


def finished(folder: Path) -> Run | None:
    """Return the run in ``folder``, where its training came to an end; None where it did not."""
    try:
        return load_run(folder) if is_finished(folder) else None
    except (CorralError, OSError):
        return None


def is_finished(folder: Path) -> bool:
    """Return whether the run in ``folder`` came to its end; it need not be one of corral's own
    environments.

    It did where a stop criterion ended it, or no further rollout fits into its steps.
    """
    try:
        planned = int(config_values(folder)["steps"])
        latest = latest_checkpoint(folder / CHECKPOINTS)
        saved = int(latest.name.split("_")[1])
        table = read_text(folder / PROGRESS, MOST_PROGRESS, folder=folder)
        steps = pd.read_csv(io.StringIO(table))["env_steps"]
        rollout = int(steps.diff().iloc[-1]) if len(steps) > 1 else int(steps.iloc[-1])
        if saved != int(steps.iloc[-1]):  # killed between a row and its checkpoint
            return False
        stopped = load_checkpoint(latest).documents["progress"].get("stopped")
    except (CorralError, OSError, ValueError, LookupError, TypeError, ArithmeticError):
        return False
    return stopped is not None or saved + rollout > planned


def threads_of_each(processes: int) -> int:
    """Return the threads of torch in each of so many processes: as many as there are cores for."""
    given = os.environ.get(THREADS, "")
    return int(given) if given.isdigit() else max(1, (os.cpu_count() or 1) // processes)


def play(
    jobs: Iterable[Job | None],
    processes: int = 1,
    *,
    watch: Callable[[Job], bool] | None = None,
    threads: int | None = None,
) -> Generator[Ended, None, None]:
    """Train the runs of ``jobs``, ``processes`` at a time, and yield each as it ends.

    ``jobs`` may be a generator: the next is asked for when there is room for it; None stands for
    "nothing yet". ``watch`` is asked about each that is being trained, several times a second;
    where it gives False, the process is asked to save and end (SIGTERM), and is yielded as others
    are. ``threads`` are those of torch in each process, see ``threads_of_each``.

    A run that a process of somebody else trains, such as one whose parent was killed, is waited
    for. Ctrl-C reaches all processes, which save and end; KeyboardInterrupt is raised after that.
    Where the generator is closed, or an error is raised, the processes are ended in the same way.
    """
    waiting, over = iter(jobs), Ended(Job(Path(), ()), None)
    running: dict[Job, subprocess.Popen[bytes] | None] = {}  # None: a process of somebody else
    threads = threads_of_each(processes) if threads is None else threads
    more = True
    try:
        while more or running:
            while more and len(running) < processes:
                job = next(waiting, over)
                if isinstance(job, Ended):
                    more = False
                elif job is None:
                    break
                elif is_locked(job.folder):
                    running[job] = None
                elif is_finished(job.folder):
                    yield Ended(job, None)
                else:
                    running[job] = _begun(job, threads)
            for job, process in [*running.items()]:
                if process is None:
                    if not is_locked(job.folder):
                        done = is_finished(job.folder)
                        running[job] = None if done else _begun(job, threads)
                        if done:
                            del running[job]
                            yield Ended(job, None)
                elif (code := process.poll()) is not None:
                    if code and is_locked(job.folder):  # somebody else was there first
                        running[job] = None
                    else:
                        del running[job]
                        yield Ended(job, code)
                elif watch is not None and not watch(job):
                    process.terminate()
            time.sleep(POLL_S)
    finally:
        begun = [process for process in running.values() if process is not None]
        for process in begun:
            process.terminate()
        for process in begun:
            process.wait()


def _begun(job: Job, threads: int) -> subprocess.Popen[bytes]:
    make_folder(job.folder.parent)
    if not (job.folder / PROGRESS).exists() and job.log.exists():
        job.log.unlink()  # of a start that failed
    with append_to(job.log, folder=job.folder.parent) as log:
        return subprocess.Popen(
            [sys.executable, "-m", "corral", *job.words()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, THREADS: str(threads), "COLUMNS": "200"},
        )
