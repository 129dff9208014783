"""The copies of a ZooBatch, spread over worker processes.

Workers are spawned, and talk through one pipe each. They answer copy by copy, so that one that
raises, dies or hangs can be named. Whatever goes wrong, no process is left behind: workers end when
the pipe or the process at its other end does, and Ctrl-C is left to that process.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from corral.adapters.zoo.copies import Actions, Look, Moved, ZooCopy, make_copy
from corral.adapters.zoo.group import generators, name_copy, reset_seed
from corral.adapters.zoo.spec import ZooSpec
from corral.errors import WorkerError

__all__ = ["WorkerCopies", "close_at_exit"]

STARTING = 60.0
"""Seconds that a worker has to start and to make an environment, if the deadline is not longer."""

CLOSING = 3.0
"""Seconds that workers have to close their environments; then they are killed."""

ABORTING = 0.5
"""The same after one of them has failed."""

ORPHANED = 2.0
"""Seconds that a worker whose parent has died has to close its environments."""


class WorkerCopies:
    """Copies that are moved by worker processes, each with a block of them."""

    def __init__(
        self,
        spec: ZooSpec,
        make_env: Callable[[], Any],
        num_envs: int,
        workers: int,
        deadline: float,
    ) -> None:
        self._spec, self._make_env, self._deadline = spec, make_env, deadline
        blocks = np.array_split(np.arange(num_envs), min(workers, num_envs))
        self._blocks = [block.tolist() for block in blocks]
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._seed = 0
        self._played: Sequence[Actions | None] = [None] * num_envs
        self._at_exit: Callable[[], None] | None = None
        self._owner = 0

    @property
    def processes(self) -> tuple[int, ...]:
        """The workers' process ids."""
        return tuple(process.pid for process in self._processes)

    def reset(self, seed: int | None) -> list[Look]:
        """Begin anew in every copy; ``seed`` seeds them all, None: they go on."""
        self._seed = self._seed if seed is None else seed
        self._played = [None] * len(self._played)
        with self._aborting():
            if not self._processes:
                self._start()
            return self._exchange("reset", generators(seed, len(self._played)), self._deadline)

    def step(self, actions: Sequence[Actions | None]) -> list[Moved | None]:
        """Play each copy's actions; None: it rests."""
        self._played = actions
        with self._aborting():
            return self._exchange("step", actions, self._deadline)

    def _start(self) -> None:
        self._owner = os.getpid()
        self._at_exit = close_at_exit(self, quiet=True)
        context = multiprocessing.get_context("spawn")
        made = CloudpickleWrapper((self._make_env, self._spec))  # type: ignore[arg-type]
        for number in range(len(self._blocks)):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there, made), name=f"corral-zoo-{number}")
            self._pipes.append(here)
            try:
                process.start()
            except (AttributeError, TypeError, pickle.PicklingError) as error:
                raise ValueError(
                    f"make_env={self._make_env!r} cannot be sent to a worker process: {error}; "
                    "make all that it needs inside it, or give workers=0"
                ) from error
            finally:
                there.close()  # else the pipe would outlive the worker
            self._processes.append(process)
        self._exchange("make", self._played, max(self._deadline, STARTING))

    # --- Orders and answers ----------------------------------------------------------------------

    def _exchange(self, order: str, parts: Sequence[Any], deadline: float) -> list[Any]:
        """Give every worker its copies' parts; the answers, copy by copy."""
        for worker, block in enumerate(self._blocks):
            if wait([self._processes[worker].sentinel], timeout=0):
                self._died(worker, block[0], "while it waited for orders")
            with suppress(OSError):  # it has died: found out below
                self._pipes[worker].send((order, [parts[copy] for copy in block]))
        answers: list[Any] = [None] * len(parts)
        waiting = {worker: list(block) for worker, block in enumerate(self._blocks)}
        due = dict.fromkeys(waiting, time.monotonic() + deadline)
        while waiting:
            ready = self._ready(waiting, min(due[worker] for worker in waiting))
            for worker in list(waiting):
                copy = waiting[worker][0]
                if worker in ready:
                    answers[copy] = self._answer(worker, copy, order)
                    waiting[worker].pop(0)
                    due[worker] = time.monotonic() + deadline
                    if not waiting[worker]:
                        del waiting[worker]
                elif time.monotonic() >= due[worker]:
                    raise self._error(copy, f"gave no answer for {deadline:g} s {_during(order)}")
        return answers

    def _ready(self, workers: Mapping[int, Any], until: float) -> set[int]:
        """Which of them have answered, or died."""
        things: dict[Any, int] = {}
        for worker in workers:
            things[self._pipes[worker]] = worker
            things[self._processes[worker].sentinel] = worker
        return {things[thing] for thing in wait(list(things), max(0.0, until - time.monotonic()))}

    def _answer(self, worker: int, copy: int, order: str) -> Any:
        try:
            # A worker that has died may have answered before: poll says so.
            failed, answer = self._pipes[worker].recv() if self._pipes[worker].poll() else (1, None)
        except (EOFError, OSError):
            failed, answer = True, None
        if not failed:
            return answer
        if answer is None:
            self._died(worker, copy, _during(order))
        what, trace = answer
        raise self._error(copy, f"raised {what} {_during(order)}", trace)

    def _died(self, worker: int, copy: int, when: str) -> NoReturn:
        process = self._processes[worker]
        process.join(1.0)
        what = f"{_ending(process.exitcode)} {when}"
        if "started" in when and process.exitcode == 1:
            what += (
                ' (a script that uses workers needs `if __name__ == "__main__":` around its work)'
            )
        raise self._error(copy, what)

    def _error(self, copy: int, what: str, trace: str | None = None) -> WorkerError:
        played = self._played[copy]
        block = next(block for block in self._blocks if copy in block)
        others = f" (it ran copies {block[0]}..{block[-1]})" if len(block) > 1 else ""
        name = name_copy(copy, self._seed, played)
        message = (
            f"{self._spec.name}: the worker process of {name}, {what}"
            f"{others}. All workers have been ended; to look into it, run with workers=0"
        )
        if trace is not None:
            message += f"\n\nIn the worker:\n{trace}"
        seed = reset_seed(self._seed, copy)
        return WorkerError(message, copy=copy, seed=seed, actions=played, traceback=trace)

    # --- The end ---------------------------------------------------------------------------------

    def close(self, quiet: bool = False) -> None:
        """End the workers, within 5 s. Raises WorkerError, afterwards, where one did not end well:
        it had died, its environments raised in ``close()``, or took too long for it."""
        failure = self._end(CLOSING)
        if failure is not None and not quiet:
            raise failure

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """End the workers where anything is raised, Ctrl-C included: they would be out of step."""
        try:
            yield
        except BaseException:
            self._end(ABORTING)
            raise

    def _end(self, patience: float) -> WorkerError | None:
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
            self._at_exit = None
        processes, pipes = self._processes, self._pipes
        self._processes, self._pipes = [], []
        if not processes or self._owner != os.getpid():  # a fork has no say
            return None
        failure: WorkerError | None = None
        closing: dict[Any, int] = {}  # pipe -> worker
        for worker, (process, pipe) in enumerate(zip(processes, pipes, strict=False)):
            if wait([process.sentinel], timeout=0):
                process.join()
                what = f"{_ending(process.exitcode)} while it waited for orders"
                failure = failure or self._error(self._blocks[worker][0], what)
                continue
            with suppress(OSError):
                pipe.send(("close", None))
            closing[pipe] = worker
        until = time.monotonic() + patience
        while closing and (ready := wait(list(closing), max(0.0, until - time.monotonic()))):
            for end in ready:
                worker = closing[end]
                try:
                    # What comes before "closed" are answers that nobody waits for any more.
                    answer = pipes[worker].recv()
                except (EOFError, OSError):
                    del closing[end]
                    processes[worker].join(1.0)
                    what = f"{_ending(processes[worker].exitcode)} {_during('close')}"
                    failure = failure or self._error(self._blocks[worker][0], what)
                    continue
                if answer[0] == "closed":
                    del closing[end]
                    for number, (what, trace) in answer[1]:
                        copy = self._blocks[worker][number]
                        what = f"raised {what} {_during('close')}"
                        failure = failure or self._error(copy, what, trace)
        for worker in closing.values():
            what = f"had not ended {patience:g} s after it was told to, {_during('close')}"
            failure = failure or self._error(self._blocks[worker][0], what)
            processes[worker].kill()
        for process in processes:
            process.join(0.5)
            if process.exitcode is None:
                process.kill()
                process.join(1.0)
        for pipe in pipes:
            pipe.close()
        return failure


def _during(order: str) -> str:
    return {
        "make": "while it was started and made its environments",
        "reset": "in reset()",
        "step": "in step()",
        "close": "in close()",
    }[order]


def _ending(code: int | None) -> str:
    if code is None:
        return "closed its pipe"
    if code < 0:
        with suppress(ValueError):
            return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"exited with code {code}"


def close_at_exit(target: Any, **options: Any) -> Callable[[], None]:
    """Let ``target.close(**options)`` run at exit, if it still lives; return what to unregister.

    multiprocessing waits, at exit, for workers that wait for orders. Its exit function was
    registered before this one, and runs after it.
    """
    method = weakref.WeakMethod(target.close)

    def close() -> None:
        if alive := method():
            alive(**options)

    atexit.register(close)
    return close


# --- The worker ----------------------------------------------------------------------------------


def _work(pipe: Connection, made: Any) -> None:
    """Make copies and move them until an order to close, or until the parent has died."""
    make_env, spec = made.fn
    # Handlers, not SIG_IGN, which the environment's own child processes would inherit. The parent
    # decides what a signal to the whole group means, and ends its workers in its own time.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, _ignore)
    threading.Thread(target=_follow_parent, daemon=True).start()
    copies: list[ZooCopy] = []
    while True:
        try:
            order, parts = pipe.recv()
        except (EOFError, OSError):
            _close_all(copies)
            return
        if order == "close":
            with suppress(OSError):
                pipe.send(("closed", _close_all(copies)))
            return
        for number, part in enumerate(parts):
            try:
                if order == "make":
                    copies.append(make_copy(make_env(), spec))
                    answer: Any = None
                else:
                    copy = copies[number]
                    answer = None
                    if order == "reset":
                        answer = copy.reset(part)
                    elif part is not None:
                        answer = copy.step(part)
                failed, data = False, pickle.dumps((False, answer))
            except BaseException as error:  # sys.exit() too
                failed, data = True, pickle.dumps((True, _describe(error)))
            try:
                pipe.send_bytes(data)
            except OSError:
                break  # the next order will tell that the parent is gone
            if failed:
                break


def _close_all(copies: list[ZooCopy]) -> list[tuple[int, tuple[str, str]]]:
    """Close the environments; what went wrong, with the copy's index."""
    failures = []
    for number, copy in enumerate(copies):
        try:
            copy.close()
        except BaseException as error:
            failures.append((number, _describe(error)))
    return failures


def _describe(error: BaseException) -> tuple[str, str]:
    return f"{type(error).__name__}: {error}", traceback.format_exc()


def _ignore(number: int, frame: object) -> None:
    """Do nothing."""


def _follow_parent() -> None:
    """End this process soon after its parent, whatever the environment is doing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        time.sleep(ORPHANED)
        os._exit(1)
