"""Running games in processes of their own: a copy of a game is a fork of its process.

One worker process loads the environment, and nothing else of this process: no torch, no threads.
Each game is a child of it, with one connection. A game ends when its connection closes.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from corral.adapters.snapshots.games import Game, SnapshotError, Way
from corral.adapters.zoo.batch import ZooRules
from corral.adapters.zoo.copies import Actions, CopyStep, Observed, ZooCopy, make_copy
from corral.clock import count_child

__all__ = ["Fork"]

PATIENCE = 5.0
"""Maximum seconds for an answer of a game. Then its process is killed."""

STARTING = 60.0
"""Maximum seconds to start the worker and to make the environment."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

PROGRAM = "from corral.adapters.snapshots.forks import serve; serve()"


class ForkedGame(Game):
    """A game in a process of its own."""

    def __init__(self, connection: Connection, pid: int) -> None:
        self._connection, self.pid = connection, pid

    def begin(self, rng: np.random.Generator) -> Observed:
        self.look, state = self.ask("begin", rng)
        rng.bit_generator.state = state  # the environment may have drawn from it
        return self.look

    def play(self, actions: Actions) -> CopyStep:
        moved: CopyStep = self.ask("play", actions)
        self.look = moved.look
        return moved

    def copy(self) -> Game:
        pid = self.ask("copy")
        with socket.socket(fileno=os.dup(self._connection.fileno())) as pipe:
            _, handles, _, _ = socket.recv_fds(pipe, 1, 1)
        os.set_inheritable(handles[0], False)
        twin = ForkedGame(Connection(handles[0]), pid)
        with suppress(AttributeError):  # before the first episode
            twin.look = self.look
        return twin

    def ask(self, order: str, argument: Any = None, patience: float = PATIENCE) -> Any:
        """Return the answer to an order. Raises SnapshotError, after killing a silent process."""
        asked = time.monotonic()
        try:
            self._connection.send((order, argument))
            if not self._connection.poll(patience):
                self.close()
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
                raise SnapshotError(f"no answer within {patience:g} s in {order}")
            failed, answer, seconds = self._connection.recv()
        except (EOFError, OSError) as error:
            raise SnapshotError(f"the process died in {order}") from error
        count_child(seconds, time.monotonic() - asked)
        if failed:
            raise SnapshotError(answer)
        return answer

    def close(self) -> None:
        self._connection.close()

    def __del__(self) -> None:
        self._connection.close()


class Fork(Way):
    """Copy a game by a fork of its process. Raises SnapshotError if the worker does not start."""

    name = "fork"
    max_games = 64
    _first: ForkedGame  # the worker

    def __init__(self, rules: ZooRules) -> None:
        if "fork" not in dir(os):
            raise SnapshotError(f"{sys.platform} cannot fork processes")
        near_end, far_end = socket.socketpair()
        try:
            payload = pickle.dumps(CloudpickleWrapper((rules.make_env, rules)))  # type: ignore[arg-type]
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise SnapshotError(f"make_env cannot be sent to a process: {error}") from error
        with far_end:
            self._worker = subprocess.Popen(  # nosec B603: this interpreter, a constant program
                [sys.executable, "-c", PROGRAM, str(far_end.fileno())],
                pass_fds=[far_end.fileno()],
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
            )
        self._first = ForkedGame(Connection(near_end.detach()), self._worker.pid)
        try:
            self._threads = self._first.ask("load", payload, STARTING)
            self.require(self._first)
        except BaseException:
            self.close()
            raise

    def make(self) -> Game:
        return self._first.copy()

    def require(self, game: Game) -> None:
        """Raise SnapshotError if the environment has loaded torch, or started threads."""
        assert isinstance(game, ForkedGame)
        torch, threads = game.ask("inspect")
        if torch:
            raise SnapshotError("the environment imports torch, which does not survive a fork")
        if threads > self._threads:
            raise SnapshotError(f"the environment has {threads - self._threads} threads of its own")

    def close(self) -> None:
        """End the worker. Games that are still in use end with their connections."""
        self._first.close()
        with suppress(subprocess.TimeoutExpired):
            self._worker.wait(PATIENCE)
        if self._worker.poll() is None:
            self._worker.kill()
            self._worker.wait()

    def __del__(self) -> None:
        if "_first" in vars(self):
            self.close()


# --- In the processes ----------------------------------------------------------------------------


def serve() -> None:
    """Answer orders until the connection closes, as the worker and then as each of its games."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends all
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended games leave no zombies
    connection = Connection(int(sys.argv[1]))
    env: ZooCopy | None = None
    answer: Any
    counted = 0.0  # CPU time that was sent
    while True:
        try:
            order, argument = connection.recv()
        except (EOFError, OSError):
            os._exit(0)
        signal.alarm(round(4 * PATIENCE if order != "load" else 2 * STARTING))  # a last resort
        handle, answer = -1, None
        try:
            if order == "copy":
                answer, handle, connection = _fork(connection)
                if not answer:
                    counted = 0.0
                    continue  # the new process waits for orders
            elif order == "load":
                before = _threads()
                make_env, rules = pickle.loads(argument).fn  # nosec B301: from the first process
                env = make_copy(make_env(), rules)
                gc.freeze()  # a collection in a game would copy all memory
                answer = before
            elif order == "inspect":
                answer = "torch" in sys.modules, _threads()
            elif order == "begin":
                assert env is not None
                _seed_global_generators(argument)
                answer = env.reset(argument), argument.bit_generator.state
            else:
                assert env is not None
                answer = env.play(argument)
            failed = False
        except Exception as error:
            failed, answer = True, f"{type(error).__name__}: {error}"
        signal.alarm(0)
        with suppress(OSError):
            now = time.process_time()
            connection.send((failed, answer, now - counted))
            counted = now
            if handle >= 0:
                with socket.socket(fileno=os.dup(connection.fileno())) as pipe:
                    socket.send_fds(pipe, [b"f"], [handle])
                os.close(handle)


def _fork(connection: Connection) -> tuple[int, int, Connection]:
    """Fork this process: pid of the new process (0 in it), the first process's end of the new
    connection (-1 in it), and the connection to use."""
    near_end, far_end = socket.socketpair()
    chance = random.getstate()
    pid = os.fork()
    if pid:
        far_end.close()
        return pid, near_end.detach(), connection
    random.setstate(chance)  # Python seeds it anew in a forked process
    near_end.close()
    connection.close()
    return 0, -1, Connection(far_end.detach())


def _seed_global_generators(rng: np.random.Generator) -> None:
    """Seed them, as all games begin with the worker's. Does not draw from ``rng``."""
    seeds = copy.deepcopy(rng).integers(2**32, size=2).tolist()
    random.seed(seeds[0])
    np.random.seed(seeds[1])  # noqa: NPY002  (environments may use it)


def _threads() -> int:
    """Return the number of threads of this process; of Python's threads outside Linux.

    The thread of jemalloc, which pandas starts if pyarrow is installed, does not count: the
    tests of forks pass with it.
    """
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        return threading.active_count()
    names = [(task / "comm").read_text().strip() for task in tasks.iterdir()]
    return len(names) - names.count("jemalloc_bg_thd")
