"""Checkpoints that are killed while being saved, damaged, hostile, or met by a failing disk.

The tests run a few of each, benchmarks/core/checkpoint_trust.py many. What forks runs in a
process of one thread: see ``alone``.
"""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from corral import files
from corral.errors import CheckpointError
from corral.trainers.runs.checkpoint import (
    Content,
    best_checkpoint,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)

TESTS = Path(__file__).parents[1]


def content_of(step: int, size: int = 200) -> Content:
    """Content that its step determines; about 4 * size ** 2 bytes."""
    rng = np.random.default_rng(step)
    return Content(
        {
            "run": {"step": step, "rates": [0.1 * step, 1e-4], "note": f"step {step}"},
            "generators": {"pcg": 2**127 - step, "keys": list(range(50))},
        },
        {
            "networks": {
                "actor.weight": rng.standard_normal((size, size)).astype(np.float32),
                "actor.bias": rng.standard_normal(size),
                "updates": np.array(step),
            },
            "envs": {"mask": rng.integers(0, 2, (8, 5)).astype(np.int8), "over": np.zeros(8, bool)},
        },
    )


def same(one: Content, other: Content) -> bool:
    """Whether two contents are equal, dtypes and shapes included."""
    if one.documents != other.documents or one.arrays.keys() != other.arrays.keys():
        return False
    for file, arrays in one.arrays.items():
        if arrays.keys() != other.arrays[file].keys():
            return False
        for name, array in arrays.items():
            found = other.arrays[file][name]
            if found.dtype != array.dtype or found.shape != array.shape:
                return False
            if found.tobytes() != array.tobytes():
                return False
    return True


def step_of(path: Path) -> int:
    return int(path.name.split("_")[1])


def names(folder: Path) -> list[str]:
    """What stands in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def saved(folder: Path, *steps: int) -> Path:
    """The last of small checkpoints of these steps."""
    for step in steps:
        path = save_checkpoint(folder, step, content_of(step, 20))
    return path


def alone(call: str, module: str = "support.checkpoints", **arguments: Any) -> Any:
    """What ``<module>.<call>(**arguments)`` returns in a process of its own."""
    code = (
        f"import json, sys; from {module} import {call}; "
        f"print(json.dumps({call}(**json.loads(sys.argv[1]))))"
    )
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return json.loads(done.stdout)


# --- Kills ---------------------------------------------------------------------------------------


def kill_savers(folder: str, kills: int, seed: int, size: int) -> dict[str, int]:
    """SIGKILL a process that saves in a loop, ``kills`` times, at random moments of six saves.

    Counts what the kills left behind; ``faults`` is how often a promise was broken.
    """
    place = Path(folder)
    rng = random.Random(seed)
    announced = 0
    began = time.perf_counter()
    for step in range(4):
        announced = step_of(save_checkpoint(place, step, content_of(step, size)))
    longest = 6 * (time.perf_counter() - began) / 4
    seen = Counter(dict.fromkeys(["newest announced", "one newer", "faults"], 0))
    for kill in range(kills):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _save_forever(place, announced + 1, size, writing)
        os.close(writing)
        if kill % 2:  # after a whole save, however slow the machine has become
            select.select([reading], [], [], 60)
        time.sleep(rng.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        seen["faults"] += not os.WIFSIGNALED(status)  # it ended before, by an error
        with open(reading) as lines:
            announced = max([announced, *map(int, lines)])
        names = os.listdir(place)
        seen["left half written"] += any(name.startswith(".writing") for name in names)
        seen["left half removed"] += any(name.startswith(".removing") for name in names)
        try:
            latest = latest_checkpoint(place)
            found = step_of(latest)
            good = found in (announced, announced + 1)
            seen["newest announced" if found == announced else "one newer"] += 1
            best = best_checkpoint(place)
            for path in place.glob("step_*"):
                good &= same(load_checkpoint(path), content_of(step_of(path), size))
                seen["complete, not yet announced"] += step_of(path) > found
            good &= best is None or best.is_dir()
            announced = found
        except CheckpointError as error:
            print(error, file=sys.stderr)
            good = False
        seen["faults"] += not good
    save_checkpoint(place, announced + 1, content_of(announced + 1, size))
    seen["leftovers after the next save"] = sum(name[0] == "." for name in os.listdir(place))
    seen["steps saved"] = announced
    return dict(seen)


def _save_forever(folder: Path, step: int, size: int, writing: int) -> None:
    try:
        while True:
            save_checkpoint(folder, step, content_of(step, size), best=step % 5 == 0)
            os.write(writing, f"{step}\n".encode())
            step += 1
    finally:
        os._exit(1)


# --- Damage --------------------------------------------------------------------------------------


def damage(path: Path, kind: str, rng: random.Random) -> bytes:
    """Truncate a file, or flip one bit of it; what it held."""
    held = path.read_bytes()
    if kind == "truncation":
        path.write_bytes(held[: rng.randrange(len(held))])
    else:
        bit = rng.randrange(8 * len(held))
        changed = bytearray(held)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
    return held


def damaged_loads(folder: Path, file: str, kind: str, times: int, seed: int) -> dict[str, int]:
    """How often the newest of two checkpoints, damaged in ``file``, is refused or loaded.

    ``file`` may be "latest". A load that gives the content of neither is "wrong".
    """
    contents = {step: content_of(step, 40) for step in (1, 2)}
    for step, content in contents.items():
        save_checkpoint(folder, step, content)
    place = folder / "latest" if file == "latest" else latest_checkpoint(folder) / file
    rng = random.Random(seed)
    seen = {"refused": 0, "loaded an intact one": 0, "wrong": 0}
    for _ in range(times):
        held = damage(place, kind, rng)
        try:
            found = load_checkpoint(latest_checkpoint(folder) if file == "latest" else place.parent)
        except CheckpointError as error:
            known = "is intact: pass it by name" in str(error) and str(folder) in str(error)
            seen["refused" if known else "wrong"] += 1
        else:
            intact = file == "latest" and any(same(found, one) for one in contents.values())
            seen["loaded an intact one" if intact else "wrong"] += 1
        place.write_bytes(held)
    assert same(load_checkpoint(latest_checkpoint(folder)), contents[2])
    return seen


# --- Hostile checkpoints -------------------------------------------------------------------------

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CODE = {"exec", "compile", "import", "os.system", "os.exec", "os.posix_spawn", "os.fork"}
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod"}


def meet(path: Path, load: Callable[[Path], Any]) -> dict[str, Any]:
    """Load ``path`` in a forked process: what came, code run, writes, peak memory, seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _report(path, load, writing)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], 600)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open(reading) as answer:
        text = answer.read()
    if not text:
        return {"result": "died" if ready else "hung", "code": 0, "writes": 0}
    found: dict[str, Any] = json.loads(text)
    return found


def _report(path: Path, load: Callable[[Path], Any], writing: int) -> None:
    code, writes = [], []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CODE or event.startswith(("pickle.", "subprocess.", "socket.", "marshal.")):
            code.append(event)
        elif event in CHANGES or (event == "open" and arguments[2] & WRITES):
            writes.append(event)

    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _peak()
    began = time.perf_counter()
    sys.addaudithook(watch)
    try:
        load(path)
        result, message = "loaded", ""
    except BaseException as error:
        result, message = type(error).__name__, str(error)
    counts = {"code": len(code), "writes": len(writes)}
    seconds = time.perf_counter() - began
    found = {"result": result, "message": message[:500], **counts}
    found |= {"seconds": round(seconds, 3), "growth": _peak() - before}
    os.write(writing, json.dumps(found).encode())
    os._exit(0)


def _peak() -> int:
    """The peak of this process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


# --- Failing file systems ------------------------------------------------------------------------

CALLS = ("open", "mkdir", "fsync", "rename", "replace", "scandir", "unlink", "rmdir", "lstat")


class Fault:
    """Lets the ``at``-th call of the file system fail, and every later one too if it ``stays``."""

    def __init__(self, at: int, number: int, *, stays: bool) -> None:
        self.at, self.number, self.stays = at, number, stays
        self.calls = 0

    def check(self, path: Any) -> None:
        self.calls += 1
        if self.calls == self.at or (self.stays and self.calls > self.at):
            raise OSError(self.number, os.strerror(self.number), str(path))

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def failing(path: Any, *arguments: Any, **named: Any) -> Any:
            self.check(path)
            return call(path, *arguments, **named)

        return failing

    def open(self, path: Any, *arguments: Any, **named: Any) -> Any:
        self.check(path)
        file = open(path, *arguments, **named)  # noqa: SIM115
        if "x" not in arguments[0]:
            return file
        failing = mock.MagicMock(wraps=file)
        failing.__enter__.return_value = failing
        failing.__exit__.side_effect = lambda *_: file.close()
        failing.write.side_effect = lambda data: (self.check(path), file.write(data))
        return failing

    @contextmanager
    def around(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name in CALLS:  # nothing waits for the disk: no power fails here
                call = (lambda handle: None) if name == "fsync" else getattr(os, name)
                stack.enter_context(mock.patch.object(os, name, self.wrap(call)))
            stack.enter_context(mock.patch.object(files, "open", self.open, create=True))
            yield


def fail_everywhere(folder: Path, number: int, *, stays: bool) -> dict[str, int]:
    """Save with a failure at the first call of the file system, at the second, and so on.

    ``faults`` counts silent failures, and lost or damaged checkpoints.
    """
    seen = {"failures": 0, "loud": 0, "faults": 0, "new one announced": 0}
    start = folder / "start"
    for step in (1, 2, 3):
        save_checkpoint(start, step, content_of(step, 20), best=step == 1)
    (start / ".writing-999999999-step_000000000004").mkdir()  # left by a killed process
    for at in range(1, 1000):
        place = folder / f"{errno.errorcode[number]}_{stays}_{at}"
        shutil.copytree(start, place)
        fault = Fault(at, number, stays=stays)
        raised = ""
        with fault.around():
            try:
                save_checkpoint(place, 4, content_of(4, 20), keep=2)
            except CheckpointError as error:
                raised = str(error)
        if fault.calls < at:
            return seen
        seen["failures"] += 1
        seen["loud"] += os.strerror(number) in raised and str(place) in raised
        found = step_of(latest_checkpoint(place))
        seen["new one announced"] += found == 4
        good = found in (3, 4) and (found == 4 or raised != "")
        good &= best_checkpoint(place) == place / "step_000000000001"
        for path in place.glob("step_*"):
            good &= same(load_checkpoint(path), content_of(step_of(path), 20))
        with Fault(10**9, number, stays=False).around():
            save_checkpoint(place, 5, content_of(5, 20))
        good &= step_of(latest_checkpoint(place)) == 5
        good &= not [name for name in os.listdir(place) if name[0] == "."]
        seen["faults"] += not good
    raise AssertionError("a save never came to its end")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Within it no file of this process grows beyond ``size`` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
