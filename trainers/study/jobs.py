"""Runs trained side by side, each by a process of its own.

    jobs = [Job(Path(f"runs/seed{seed}"), ("arena_v0", "--seed", str(seed))) for seed in range(5)]
    for ended in play(jobs, processes=2): ...

A job is a command of ``corral train`` that anyone can type. What is in its folder is the truth: a
job whose run is finished is not played again, and one that was killed goes on from its checkpoint.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from corral.errors import CorralError
from corral.trainers.runs.run import CHECKPOINTS, PROGRESS, Run, is_run, load_run

__all__ = ["Ended", "Job", "finished", "play", "threads_of_each"]

POLL_S = 0.1
THREADS = "OMP_NUM_THREADS"


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
        if is_run(self.folder) and any((self.folder / CHECKPOINTS).glob("[!.]*")):
            return ["train", "--resume", str(self.folder)]
        return ["train", *self.arguments, "--out", str(self.folder)]

    def command(self, threads: int | None = None) -> str:
        """Return what to type to train the same run anew, but for where it is written."""
        before = [] if threads is None else [f"{THREADS}={threads}"]
        return shlex.join([*before, "corral", "train", *self.arguments])


@dataclass(frozen=True)
class Ended:
    """A job that ended: exit status of its process (0: all is well; None: it was done before)."""

    job: Job
    code: int | None

    @property
    def words(self) -> str:
        """The last line that its process printed: what went wrong, where something did."""
        if not self.job.log.exists():
            return ""
        lines = self.job.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")


def finished(folder: Path) -> Run | None:
    """Return the run in ``folder``, where its training came to an end; None where it did not.

    It did where a stop criterion ended it, or no further rollout fits into its steps.
    """
    try:
        run = load_run(folder)
        run.checkpoint()
        steps = run.progress["env_steps"]
    except (CorralError, OSError, ValueError, KeyError):
        return None
    rollout = int(steps.diff().iloc[-1]) if len(steps) > 1 else int(steps.iloc[-1])
    done = run.stopped is not None or int(steps.iloc[-1]) + rollout > run.config.steps
    return run if done else None


def threads_of_each(processes: int) -> int:
    """Return the threads of torch in each of so many processes: as many as there are cores for."""
    given = os.environ.get(THREADS, "")
    return int(given) if given.isdigit() else max(1, (os.cpu_count() or 1) // processes)


def play(
    jobs: Iterable[Job],
    processes: int = 1,
    *,
    watch: Callable[[Job], bool] | None = None,
) -> Iterator[Ended]:
    """Train the runs of ``jobs``, ``processes`` at a time, and yield each as it ends.

    ``jobs`` may be a generator: the next is asked for when there is room for it. ``watch`` is asked
    about each that is being trained, several times a second; where it gives False, the process is
    asked to save and end (SIGTERM), and is yielded as others are.

    Ctrl-C reaches all processes, which save and end; KeyboardInterrupt is raised after that. Where
    the generator is closed, or an error is raised, the processes are ended in the same way.
    """
    waiting, running = iter(jobs), dict[Job, subprocess.Popen[bytes]]()
    more = True
    try:
        while more or running:
            while more and len(running) < processes:
                job = next(waiting, None)
                if job is None:
                    more = False
                elif finished(job.folder) is not None:
                    yield Ended(job, None)
                else:
                    running[job] = _begun(job, threads_of_each(processes))
            for job, process in [*running.items()]:
                if (code := process.poll()) is not None:
                    del running[job]
                    yield Ended(job, code)
                elif watch is not None and not watch(job):
                    process.terminate()
            time.sleep(POLL_S)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()


def _begun(job: Job, threads: int) -> subprocess.Popen[bytes]:
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    if not (job.folder / PROGRESS).exists() and job.log.exists():
        job.log.unlink()  # of a start that failed
    with job.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "corral", *job.words()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, THREADS: str(threads), "COLUMNS": "200"},
        )
