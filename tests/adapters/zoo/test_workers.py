"""Worker processes: the same trajectories; whatever fails is named, and nothing is left behind."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

psutil = pytest.importorskip("psutil", reason="finds worker processes that were left behind")

from corral.adapters.zoo.batch import make_zoo_batch  # noqa: E402
from corral.envs.core import generator  # noqa: E402
from corral.errors import ResetNeededError, WorkerError  # noqa: E402
from support.zoo_envs import (  # noqa: E402
    FaultyEnv,
    MeetingEnv,
    MixedEnv,
    RingEnv,
    SleepyEnv,
    dfaas,
    trajectory,
)

tests = Path(__file__).parents[2]


def children() -> list[Any]:
    """Workers of this process, zombies included; the resource tracker is multiprocessing's own."""
    found = psutil.Process().children(recursive=True)
    return [one for one in found if "resource_tracker" not in " ".join(one.cmdline())]


@pytest.mark.parametrize(
    ("env", "workers"), [(MixedEnv, 1), (MixedEnv, 2), (RingEnv, 4), (dfaas, 2)]
)
def test_trajectories_do_not_depend_on_the_workers(env: Any, workers: int) -> None:
    expected = trajectory(make_zoo_batch(env, 5, seed=3))
    assert trajectory(make_zoo_batch(env, 5, seed=3, workers=workers)) == expected
    assert children() == []


@pytest.mark.slow
def test_64_copies_in_fresh_processes() -> None:
    """The same bytes from processes that share nothing, with 0, 1, 2 and 4 workers."""
    code = (
        "import hashlib, sys\n"
        "from corral.adapters.zoo.batch import make_zoo_batch\n"
        "from support.zoo_envs import RingEnv, trajectory\n"
        "if __name__ == '__main__':\n"
        "    batch = make_zoo_batch(RingEnv, 64, seed=1, workers=int(sys.argv[1]))\n"
        "    print(hashlib.sha256(repr(trajectory(batch, 10)).encode()).hexdigest())\n"
    )
    hashes = set()
    for workers in (0, 1, 2, 4):
        done = subprocess.run(
            [sys.executable, "-c", code, str(workers)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tests)},
        )
        assert done.returncode == 0, done.stderr
        hashes.add(done.stdout.strip())
    assert len(hashes) == 1


# --- Failures ------------------------------------------------------------------------------------

DEADLINE = 3.0
"""Seconds for the answer of a copy that hangs. Copies with other faults get a minute."""

COPIES, BAD, SEED = 4, 2, 7

CASES = [
    *(
        (fault, where)
        for fault in ("raise", "kill", "hang", "exit")
        for where in ("reset", "first")
    ),
    *((fault, "later") for fault in ("raise", "kill", "hang", "exit")),
    # What raises or hangs in a thread of its own harms nobody: idle workers die, or fail to close.
    ("kill", "idle"),
    ("exit", "idle"),
    *((fault, "close") for fault in ("raise", "kill", "hang", "exit")),
]
ENDINGS = {
    "raise": "raised RuntimeError: the environment broke",
    "kill": r"was killed by signal 9 \(SIGKILL\)",
    "hang": r"\b3 s\b",
    "exit": "raised SystemExit: 3|exited with code 3",
}
PLACES = {
    "reset": r"in reset\(\)",
    "first": r"in step\(\)",
    "later": r"in step\(\)",
    "idle": r"\bidle\b",
    "close": r"in close\(\)",
}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "where"), CASES)
def test_a_worker_that_fails_is_named(fault: str, where: str) -> None:
    number = int(generator(SEED, "env", BAD).integers(2**31))
    make = functools.partial(FaultyEnv, fault, where, number)
    deadline = DEADLINE if fault == "hang" else 60.0
    batch = make_zoo_batch(make, COPIES, SEED, workers=2, deadline=deadline)
    actions = np.tile(np.arange(COPIES)[:, None] % 2, (1, 2))
    with pytest.raises(WorkerError) as caught:  # noqa: PT012  # wherever it comes
        batch.reset()
        for _ in range(4):
            batch.step(actions)
            if where == "idle":
                wait_for_an_end(batch)
        batch.close()
    error = caught.value
    assert error.copy == BAD
    assert error.seed == number
    shown(str(error), f"copy {BAD}", f"seed={number}")
    assert re.search(ENDINGS[fault], str(error))
    assert re.search(PLACES[where], str(error))
    if where == "reset":
        assert error.actions is None
    else:
        assert error.actions == {"a": BAD % 2, "b": BAD % 2}
        assert f"{{a: {BAD % 2}, b: {BAD % 2}}}" in str(error)
    if fault == "raise":
        assert error.traceback is not None
        assert "_reach" in error.traceback
        assert error.traceback in str(error)
    assert children() == []
    batch.close()  # nothing is left to close
    with pytest.raises(ResetNeededError, match="closed"):
        batch.step(actions)


def wait_for_an_end(batch: Any) -> None:
    """Return once one of the workers has ended."""
    assert wait([process.sentinel for process in batch._group._processes], timeout=60)


@pytest.mark.slow
def test_a_killed_idle_worker_is_reported_by_close_as_well() -> None:
    batch = make_zoo_batch(functools.partial(SleepyEnv, 0.0), 3, 0, workers=2)
    batch.reset()
    os.kill(batch._group.processes[1], signal.SIGKILL)  # type: ignore[attr-defined]
    wait_for_an_end(batch)
    with refused(WorkerError, "sleepy_v0", "copy 2", "signal 9 (SIGKILL)", "workers=0") as caught:
        batch.close()
    assert caught.value.copy == 2
    assert children() == []
    batch.close()


def test_an_error_is_not_hidden_by_that_of_closing() -> None:
    make = functools.partial(
        FaultyEnv, "raise", "close", int(generator(0, "env", 0).integers(2**31))
    )
    for workers in (0, 1):
        batch = make_zoo_batch(make, 1, 0, workers=workers)
        with pytest.raises(ZeroDivisionError), batch:
            print(batch.reset(), 1 / 0)
    assert children() == []


def test_wrong_actions_leave_workers_alone() -> None:
    with make_zoo_batch(RingEnv, 2, 0, workers=2) as batch:
        batch.reset()
        pids = batch._group.processes  # type: ignore[attr-defined]
        with refused(ValueError, "copy 0", "agent_0", "action 9", "0..2"):
            batch.step(np.full((2, 4), 9))
        batch.step(np.ones((2, 4), int))
        assert batch._group.processes == pids  # type: ignore[attr-defined]
        assert len(set(pids)) == 2


def test_functions_that_cannot_be_found_by_name_travel_too() -> None:
    length = 3
    with make_zoo_batch(lambda: MixedEnv(length), 1, 0, workers=1) as batch:
        batch.reset()


def test_what_cannot_be_sent_is_refused() -> None:
    lock = threading.Lock()
    batch = make_zoo_batch(lambda: (lock, RingEnv())[1], 1, 0, workers=1)
    with refused(ValueError, "make_env=", "'_thread.lock'", "workers=0"):
        batch.reset()
    assert children() == []


@pytest.mark.slow
def test_workers_step_at_the_same_time(tmp_path: Path) -> None:
    with make_zoo_batch(functools.partial(MeetingEnv, tmp_path, 4), 4, 0, workers=4) as batch:
        batch.reset()
        batch.step(np.zeros((4, 2), int))
    assert len(list(tmp_path.iterdir())) == 4


# --- Nothing is left -----------------------------------------------------------------------------

SCRIPT = """
import functools, os, sys, time
import numpy as np
from corral.adapters.zoo.batch import make_zoo_batch
from support.zoo_envs import SleepyEnv
if __name__ == "__main__":
    seconds = float(sys.argv[2])
    make = functools.partial(SleepyEnv, seconds)
    batch = make_zoo_batch(make, 4, 0, workers=2, deadline=2000)
    batch.reset()
    print(*batch._group.processes, flush=True)
    if sys.argv[1] == "end":
        sys.exit()
    if sys.argv[1] == "idle":
        time.sleep(1000)
    while True:
        batch.step(np.zeros((4, 2), int))
"""


def script(what: str, seconds: float) -> tuple[subprocess.Popen[str], list[int]]:
    """A program that uses two workers, in a process group of its own, and their ids."""
    running = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, what, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tests)},
        start_new_session=True,
    )
    assert running.stdout is not None
    pids = [int(word) for word in running.stdout.readline().split()]
    if len(pids) != 2:
        raise AssertionError(running.communicate()[1])
    return running, pids


def gone(pids: list[int]) -> bool:
    """Return True once none is left, and False after a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if not any(psutil.pid_exists(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("what", "seconds"), [("idle", 0), ("step", 0.01), ("step", 1000)])
def test_no_worker_outlives_a_killed_parent(what: str, seconds: float) -> None:
    """Idle, busy, or stuck in a step."""
    running, pids = script(what, seconds)
    time.sleep(0.3)
    running.kill()
    running.communicate()
    assert gone(pids)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_to_the_group_ends_all(number: signal.Signals, code: int) -> None:
    """Ctrl-C reaches workers as well: they leave it to their parent, without a traceback."""
    memory = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    running, pids = script("step", 0.01)
    time.sleep(0.3)
    os.killpg(running.pid, number)
    errors = running.communicate(timeout=60)[1]
    assert gone(pids)
    assert running.returncode == code
    assert errors.count("KeyboardInterrupt") == (number == signal.SIGINT)
    if os.path.isdir("/dev/shm"):
        left = [name for name in set(os.listdir("/dev/shm")) - memory if name.startswith("psm_")]
        assert left == []


@pytest.mark.slow
def test_a_program_that_does_not_close_ends_all_the_same() -> None:
    running, pids = script("end", 0)
    errors = running.communicate(timeout=60)[1]
    assert (running.returncode, errors) == (0, "")
    assert gone(pids)


@pytest.mark.slow
def test_closing_does_not_wait_for_steps_without_end() -> None:
    """Ctrl-C while a step hangs: the deadline is far, but closing takes seconds."""
    running, pids = script("step", 1000)
    time.sleep(0.3)
    os.kill(running.pid, signal.SIGINT)
    running.communicate(timeout=60)
    assert gone(pids)


@pytest.mark.slow
def test_a_program_without_a_guard_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "unguarded.py").write_text(
        "from corral.adapters.zoo.batch import make_zoo_batch\n"
        "from support.zoo_envs import RingEnv\n"
        "make_zoo_batch(RingEnv, 2, 0, workers=1).reset()\n"
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "unguarded.py")],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(tests)},
    )
    assert done.returncode == 1
    shown(done.stderr.splitlines()[-1], 'if __name__ == "__main__":')
