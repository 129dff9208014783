"""Play the same episodes in separate processes with different string hashes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from corral.envs.conformance.play import Make, Trace
from corral.envs.conformance.session import Session, record

__all__ = ["Processes", "child"]

HASH_SEEDS = ("1", "2")
DEADLINE, GRACE = 300.0, 15.0  # maximum and minimum seconds for one process
CODE = "import sys; from corral.envs.conformance.processes import child; child(sys.argv[1])"

TEXTS = {
    "processes": (
        "another process, the same seed and actions",
        "remove the dependence on the process: process ids, times, files, global generators, and "
        "modules imported or episodes played before",
    ),
    "hashing": (
        "processes with different PYTHONHASHSEED, the same seed and actions",
        "sort sets before iterating over them, and do not use hash(): hashes of strings differ "
        "between processes",
    ),
}
"""The difference and the remedy, by check."""


class Processes:
    """Two processes that play in the background; ``judge`` waits for them.

    ``make`` is sent as a pickle: it must be a module-level function that the processes can import.
    """

    def __init__(self, make: Make, seeds: Sequence[int], limit: int) -> None:
        self.reason: str | None = None  # why the processes could not be run
        self._deadline = DEADLINE
        self._folder = tempfile.TemporaryDirectory(prefix="corral-check-")
        self._children: list[tuple[subprocess.Popen[bytes], Path]] = []
        try:
            packed = pickle.dumps(make)
        except Exception as error:  # pickling may raise any exception
            self.reason = (
                f"make cannot be pickled ({type(error).__name__}: {error}). Pass a module-level "
                "function, or functools.partial of one; not a lambda or a local function"
            )
            return
        self._task = Path(self._folder.name) / "task"
        path = [os.getcwd() if entry == "" else entry for entry in sys.path]
        self._task.write_bytes(pickle.dumps((path, packed, tuple(seeds), limit)))
        for hash_seed in HASH_SEEDS:
            self._start(hash_seed)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process, _path in self._children:
            if process.poll() is None:
                process.kill()
            process.wait()
        self._folder.cleanup()

    def judge(self, session: Session) -> None:
        """Compare the episodes of the processes with those of this process."""
        if session.findings.has("seed"):
            return  # already reported
        self._deadline = min(DEADLINE, max(GRACE, session.remaining()))
        played = [self._traces(index) for index in range(len(self._children))]
        if self.reason is None:
            one, two = played
            if one != two:
                self._start(HASH_SEEDS[0])  # repeat, to distinguish randomness from hashes
                again = self._traces(len(self._children) - 1)
        if self.reason is not None:
            session.findings.skip(["processes", "hashing"], self.reason)
        elif one == two or one != again:
            _compare(session, one, "processes")
        else:
            _compare(session, one, "hashing", two)

    def _start(self, hash_seed: str) -> None:
        answer = Path(self._folder.name) / f"answer{len(self._children)}"
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, str(self._task)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "CORRAL_ANSWER": str(answer)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._children.append((process, answer))

    def _traces(self, index: int) -> list[Trace]:
        """Return the traces of a process; if it failed, set ``reason`` and return []."""
        process, path = self._children[index]
        try:
            _, stderr = process.communicate(timeout=self._deadline)
        except subprocess.TimeoutExpired:
            self.reason = f"a process took longer than {self._deadline:.0f} s"
            return []
        if process.returncode != 0 or not path.exists():
            lines = stderr.decode(errors="replace").strip().splitlines() or ["no message"]
            self.reason = (
                f"a process ended with status {process.returncode}: {lines[-1]}. make must be "
                "importable there, as a module-level function on sys.path"
            )
            return []
        traces: list[Trace] = pickle.loads(path.read_bytes())  # nosec B301: from our process, in a private folder
        return traces


def _compare(
    session: Session, played: list[Trace], check: str, other: list[Trace] | None = None
) -> None:
    """Add the first difference of each seed: to this process, or between two others (hashes)."""
    seen, advice = TEXTS[check]
    reference = session.traces if other is None else other
    for seed, one, two in zip(session.seeds, reference, played, strict=True):
        length = min(len(one), len(two)) if session.shortened else None
        session.require_equal(
            one[:length],
            two[:length],
            f"{check}: differs",
            seed,
            seen=seen,
            expected="the same episode in every process",
            advice=advice,
        )


def child(task: str) -> None:
    """Play the task in that file and write the traces to the file CORRAL_ANSWER (child process)."""
    path, packed, seeds, limit = pickle.loads(Path(task).read_bytes())  # nosec B301
    sys.path[:] = path
    warnings.simplefilter("ignore")
    traces = record(pickle.loads(packed), seeds, limit)  # nosec B301
    Path(os.environ["CORRAL_ANSWER"]).write_bytes(pickle.dumps(traces))
