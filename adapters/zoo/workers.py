"""The copies of a ZooBatch in worker processes.

Workers are spawned, and each communicates through one pipe. They answer copy by copy, so errors
name the copy that raises, dies or hangs. No process is left behind: workers end when the pipe
closes or the parent process ends. Only the parent process handles Ctrl-C.
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

from corral.adapters.zoo.copies import Actions, CopyStep, Observed, ZooCopy, make_copy
from corral.adapters.zoo.group import generators, name_copy, reset_seed
from corral.adapters.zoo.spec import ZooSpec
from corral.errors import WorkerError

__all__ = ["WorkerCopies", "close_at_exit"]

STARTING = 60.0
"""Minimum deadline, in seconds, for starting a worker and making an environment."""

CLOSING = 3.0
"""Seconds for workers to close their environments. Then they are killed."""

ABORTING = 0.5
"""Seconds for workers to close their environments after one of them has failed."""

ORPHANED = 2.0
"""Seconds for a worker to close its environments after its parent has died."""


class WorkerCopies:
    """Copies in worker processes, with a block of copies per worker."""

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
        """The process ids of the workers."""
        return tuple(process.pid for process in self._processes)

    def reset(self, seed: int | None) -> list[Observed]:
        """Begin an episode in every copy. ``seed`` seeds all; None continues their streams."""
        self._seed = self._seed if seed is None else seed
        self._played = [None] * len(self._played)
        with self._aborting():
            if not self._processes:
                self._start()
            return self._exchange("reset", generators(seed, len(self._played)), self._deadline)

    def step(self, actions: Sequence[Actions | None]) -> list[CopyStep | None]:
        """Play the actions of each copy; None: do not step the copy."""
        self._played = actions
        with self._aborting():
            return self._exchange("step", actions, self._deadline)

    def _start(self) -> None:
        self._owner = os.getpid()
        self._at_exit = close_at_exit(self, quiet=True)
        context = multiprocessing.get_context("spawn")
        payload = CloudpickleWrapper((self._make_env, self._spec))  # type: ignore[arg-type]
        for number in range(len(self._blocks)):
            parent_end, worker_end = context.Pipe()
            process = context.Process(
                target=_run_worker, args=(worker_end, payload), name=f"corral-zoo-{number}"
            )
            self._pipes.append(parent_end)
            try:
                process.start()
            except (AttributeError, TypeError, pickle.PicklingError) as error:
                raise ValueError(
                    f"make_env={self._make_env!r} cannot be sent to a worker process: {error}. "
                    "Create all required objects inside make_env, or pass workers=0"
                ) from error
            finally:
                worker_end.close()  # otherwise the pipe would outlive the worker
            self._processes.append(process)
        self._exchange("make", self._played, max(self._deadline, STARTING))

    # --- Requests and answers --------------------------------------------------------------------

    def _exchange(self, order: str, parts: Sequence[Any], deadline: float) -> list[Any]:
        """Send each worker the parts of its copies. Return the answers, copy by copy."""
        for worker, block in enumerate(self._blocks):
            if wait([self._processes[worker].sentinel], timeout=0):
                self._died(worker, block[0], "while it was idle")
            with suppress(OSError):  # a dead worker is detected below
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
                    raise self._error(copy, f"gave no answer for {deadline:g} s {_phase(order)}")
        return answers

    def _ready(self, workers: Mapping[int, Any], until: float) -> set[int]:
        """Return the workers that have answered or died."""
        worker_of: dict[Any, int] = {}
        for worker in workers:
            worker_of[self._pipes[worker]] = worker
            worker_of[self._processes[worker].sentinel] = worker
        return {
            worker_of[handle]
            for handle in wait(list(worker_of), max(0.0, until - time.monotonic()))
        }

    def _answer(self, worker: int, copy: int, order: str) -> Any:
        try:
            # A dead worker may have answered before it died, which poll shows.
            failed, answer = self._pipes[worker].recv() if self._pipes[worker].poll() else (1, None)
        except (EOFError, OSError):
            failed, answer = True, None
        if not failed:
            return answer
        if answer is None:
            self._died(worker, copy, _phase(order))
        what, trace = answer
        raise self._error(copy, f"raised {what} {_phase(order)}", trace)

    def _died(self, worker: int, copy: int, when: str) -> NoReturn:
        process = self._processes[worker]
        process.join(1.0)
        what = f"{_exit_text(process.exitcode)} {when}"
        if "started" in when and process.exitcode == 1:
            what += (
                ' (a script with workers needs `if __name__ == "__main__":` around its main code)'
            )
        raise self._error(copy, what)

    def _error(self, copy: int, what: str, trace: str | None = None) -> WorkerError:
        played = self._played[copy]
        block = next(block for block in self._blocks if copy in block)
        block_text = f" (it ran copies {block[0]}..{block[-1]})" if len(block) > 1 else ""
        name = name_copy(copy, self._seed, played)
        message = (
            f"{self._spec.name}: the worker process of {name}, {what}"
            f"{block_text}. All workers have been stopped; to debug the environment, pass workers=0"
        )
        if trace is not None:
            message += f"\n\nIn the worker:\n{trace}"
        seed = reset_seed(self._seed, copy)
        return WorkerError(message, copy=copy, seed=seed, actions=played, traceback=trace)

    # --- Closing ---------------------------------------------------------------------------------

    def close(self, quiet: bool = False) -> None:
        """End the workers within 5 s.

        Afterwards, raises WorkerError if a worker had died, or if its environments raised or took
        too long in ``close()``.
        """
        failure = self._end(CLOSING)
        if failure is not None and not quiet:
            raise failure

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """End the workers after any exception, including Ctrl-C, as they would be out of step."""
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
        if not processes or self._owner != os.getpid():  # a forked process must not close them
            return None
        failure: WorkerError | None = None
        closing: dict[Any, int] = {}  # pipe -> worker
        for worker, (process, pipe) in enumerate(zip(processes, pipes, strict=False)):
            if wait([process.sentinel], timeout=0):
                process.join()
                what = f"{_exit_text(process.exitcode)} while it was idle"
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
                    # Answers before "closed" belong to an interrupted request.
                    answer = pipes[worker].recv()
                except (EOFError, OSError):
                    del closing[end]
                    processes[worker].join(1.0)
                    what = f"{_exit_text(processes[worker].exitcode)} {_phase('close')}"
                    failure = failure or self._error(self._blocks[worker][0], what)
                    continue
                if answer[0] == "closed":
                    del closing[end]
                    for number, (what, trace) in answer[1]:
                        copy = self._blocks[worker][number]
                        what = f"raised {what} {_phase('close')}"
                        failure = failure or self._error(copy, what, trace)
        for worker in closing.values():
            what = f"did not end within {patience:g} s {_phase('close')}"
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


def _phase(order: str) -> str:
    return {
        "make": "while it started and made its environments",
        "reset": "in reset()",
        "step": "in step()",
        "close": "in close()",
    }[order]


def _exit_text(code: int | None) -> str:
    if code is None:
        return "closed its pipe"
    if code < 0:
        with suppress(ValueError):
            return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"exited with code {code}"


def close_at_exit(target: Any, **options: Any) -> Callable[[], None]:
    """Run ``target.close(**options)`` at exit, if ``target`` still exists.

    Return the function to unregister from atexit. At exit, multiprocessing would wait for idle
    workers. Its exit function was registered earlier, so it runs later than this one.
    """
    method = weakref.WeakMethod(target.close)

    def close() -> None:
        if alive := method():
            alive(**options)

    atexit.register(close)
    return close


# --- The worker ----------------------------------------------------------------------------------


def _run_worker(pipe: Connection, payload: Any) -> None:
    """Make copies and step them until a request to close, or until the parent has died."""
    make_env, spec = payload.fn
    # Handlers instead of SIG_IGN, which child processes of the environment would inherit. The
    # parent handles signals to the process group, and ends its workers itself.
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
                    copies.append(make_copy(make_env(), spec, checked=True))
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
                break  # the next recv shows that the parent is gone
            if failed:
                break


def _close_all(copies: list[ZooCopy]) -> list[tuple[int, tuple[str, str]]]:
    """Close the environments. Return their errors, with the index of the copy."""
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
    """End this process soon after its parent ends, even if the environment is busy."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        time.sleep(ORPHANED)
        os._exit(1)
