"""Tasks in processes: a process for each task, a limit of time, and a line for each result."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

__all__ = ["Task", "cpu_seconds", "play"]

LAST = 0.1
"""No task begins in this share of the time, the last of it: it would seldom end."""


class Task(Protocol):
    """A task is written as its name."""

    def __str__(self) -> str: ...


def play(
    tasks: Sequence[Task],
    row_of: Callable[[Any], dict[str, Any]],
    keep: Callable[[dict[str, Any]], None],
    *,
    parallel: int = 1,
    minutes: float | None = None,
) -> list[str]:
    """Play tasks in their order; return the names of those that failed.

    Processes are forks of this one: what it imported is there.

    Args:
        row_of: plays a task in a process of its own, and returns its row.
        keep: called here with each row.
        parallel: number of processes at the same time.
        minutes: tasks that still run after this time are dropped; None: no limit.
    """
    context = multiprocessing.get_context("fork")
    began, waiting, failed = time.monotonic(), list(tasks), []
    running: dict[Connection, tuple[Any, Task]] = {}
    limit = float("inf") if minutes is None else 60 * minutes
    while waiting or running:
        spent = time.monotonic() - began
        if spent > (1 - LAST) * limit and waiting:
            _say(f"{len(waiting)} tasks do not begin: the time is over")
            waiting = []
        if spent > limit:
            break
        while waiting and len(running) < parallel:
            task = waiting.pop(0)
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_played, args=(row_of, task, theirs))
            process.start()
            theirs.close()
            running[ours] = (process, task)
        for connection in wait(list(running), timeout=1.0):
            process, task = running.pop(connection)
            row = _received(connection)
            process.join()
            if row is None:
                failed.append(str(task))
            else:
                keep(row)
            seconds = time.monotonic() - began
            _say(f"{seconds:6.0f} s  {task}: {'failed' if row is None else 'kept'}")
    for process, task in running.values():
        process.kill()  # a training would end its update at SIGTERM
        process.join()
        _say(f"{task}: dropped")
    return failed


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it has started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(sum(each.ru_utime + each.ru_stime for each in used), 1)


def _played(row_of: Callable[[Any], dict[str, Any]], task: Task, result: Connection) -> None:
    """Play a task in this process, and send its row; None if it failed."""
    try:
        row: dict[str, Any] | None = row_of(task)
    except Exception:
        _say(f"{task}:\n{traceback.format_exc()}")
        row = None
    result.send(row)
    result.close()
    sys.stderr.flush()
    os._exit(0)  # without the parent's buffers and handlers


def _received(connection: Connection) -> dict[str, Any] | None:
    """Return the row of a process that is over; None if it failed, or was killed."""
    try:
        row: dict[str, Any] | None = connection.recv()
    except EOFError:
        row = None
    connection.close()
    return row


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
