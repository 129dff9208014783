"""Run tasks in several processes at once, for policies that are rehearsed side by side."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeVar

from corral.errors import WorkerError
from corral.progress import Progress

__all__ = ["Task", "in_processes"]

Result = TypeVar("Result", covariant=True)

PROGRESS, RESULT, ERROR = range(3)
"""Kinds of messages from a process."""


class Task(Protocol[Result]):
    """A picklable function of a task; it reports its progress."""

    def __call__(self, *, progress: Progress) -> Result: ...


def in_processes(tasks: Sequence[Task[Result]], jobs: int, progress: Progress) -> list[Result]:
    """Run all tasks, ``jobs`` at a time, and return their results in order.

    ``progress`` receives the progress of each task. An error of a task is raised here. All
    processes have ended on return, also after an error or KeyboardInterrupt. Raises WorkerError if
    a process ends without a result.
    """
    results: dict[int, Result] = {}
    running: dict[Connection, tuple[int, Any]] = {}
    waiting = list(enumerate(tasks))[::-1]
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                place, task = waiting.pop()
                pipe, process = _started(task)
                running[pipe] = place, process
            ready = wait(list(running))
            for pipe in [pipe for pipe in running if pipe in ready]:
                place, process = running[pipe]
                kind, value = _received(pipe, process)
                if kind == PROGRESS:
                    progress(*value)
                elif kind == ERROR:
                    raise value
                else:
                    results[place] = value
                    del running[pipe]
                    pipe.close()
                    process.join()
    finally:
        for _, process in running.values():
            process.terminate()
        for pipe, (_, process) in running.items():
            process.join()
            pipe.close()
    return [results[place] for place in range(len(tasks))]


def _started(task: Task[Any]) -> tuple[Connection, Any]:
    context = multiprocessing.get_context("spawn")
    pipe, other_end = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(other_end, task), daemon=True)
    with _interrupts_delayed():
        process.start()
    other_end.close()  # otherwise the pipe would outlive the process
    return pipe, process


@contextmanager
def _interrupts_delayed() -> Iterator[None]:
    """Block SIGINT in this block. Processes that start in it never receive one."""
    resource_tracker.ensure_running()  # its start would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _received(pipe: Connection, process: Any) -> tuple[int, Any]:
    try:
        kind, value = pipe.recv()
        return kind, value
    except EOFError:
        process.join()
        raise WorkerError(
            f"a process of jobs= ended without a result, exit code {process.exitcode}. In a "
            "script, call rehearse below if __name__ == '__main__'"
        ) from None


def _work(pipe: Connection, task: Task[Any]) -> None:
    """Run a task in this process, and send its progress and its result."""
    threading.Thread(target=_follow_parent, daemon=True).start()

    def show(label: str, done: int, total: int) -> None:
        pipe.send((PROGRESS, (label, done, total)))

    try:
        message: tuple[int, Any] = RESULT, task(progress=show)
    except Exception as error:
        message = ERROR, _sendable(error)
    pipe.send(message)


def _sendable(error: Exception) -> Exception:
    """Return the error, or a WorkerError with its text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return WorkerError(f"{type(error).__name__}: {error}")
    return error


def _follow_parent() -> None:
    """End this process when its parent has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
