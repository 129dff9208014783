"""Programs in processes of their own, without the seconds that their imports take.

One process for each PYTHONPATH has imported packages that corral needs, and forks for each program:
``python -m corral ...`` or ``python -c ...``. The command line of corral it has not imported:
consoles read the environment when they are made. Where imports or a start are what is tested,
start Python.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import math
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from corral import progress
from corral.trainers.runs import log

__all__ = ["ENVIRONMENT", "run"]

TESTS = str(Path(__file__).parents[1])

ENVIRONMENT = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1"}

IMPORTED = (
    *("gymnasium", "pettingzoo", "pandas", "rich.markdown", "typer"),
    *("torch._dynamo", "torch.utils.tensorboard"),  # an optimizer imports the former
    *("stable_baselines3", "sb3_contrib", "supersuit"),
    *("corral.trainers.driver", "corral.trainers.on_policy.trainer", "corral.trainers.report"),
)


def run(
    words: Sequence[str | Path],
    *,
    folder: Path | None = None,
    env: Mapping[str, str] = ENVIRONMENT,
    timeout: float = 600,
    path: str = TESTS,
    imports: tuple[str, ...] = IMPORTED,
) -> subprocess.CompletedProcess[str]:
    """What ``python WORDS`` does in ``folder``; ``words`` begin with -m and a module, or -c.

    ``path`` is the PYTHONPATH of the process that forks, and ``imports`` are its modules.
    """
    with tempfile.TemporaryDirectory() as place:
        paths = [Path(place, name) for name in ("out", "err")]
        order = {
            "words": [*map(str, words)],
            "folder": str(folder or Path.cwd()),
            "env": dict(env),
            "timeout": timeout,
            "paths": [*map(str, paths)],
        }
        server = _server(path, imports)
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        code = json.loads(server.stdout.readline())
        told = [path.read_text(encoding="utf-8") for path in paths]
        if code == -signal.SIGALRM:
            raise subprocess.TimeoutExpired([*words], timeout, *told)
        return subprocess.CompletedProcess([*words], code, *told)


@functools.cache
def _server(path: str, imports: tuple[str, ...]) -> subprocess.Popen[str]:
    code = "import sys; from support.forked import serve; serve(sys.argv[1:])"
    server = subprocess.Popen(
        [sys.executable, "-c", code, *imports],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            "OMP_NUM_THREADS": "1",  # a fork loses threads
            **ENVIRONMENT,
            "PYTHONPATH": path,
            "MPLBACKEND": "agg",
        },
    )
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    for pipe in (server.stdin, server.stdout):
        assert pipe is not None
        pipe.close()
    server.wait()


# --- In the process that forks -------------------------------------------------------------------


def serve(imports: Sequence[str]) -> None:
    """Fork for each order of stdin, and write how it ended."""
    for name in imports:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    progress.INTERVAL_S = log.INTERVAL_S = math.inf  # a slow machine prints what a fast one prints
    gc.freeze()
    orders, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in orders:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            orders.close()
            answers.close()
            _play(**order)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    os._exit(0)


def _play(
    words: list[str], folder: str, env: dict[str, str], timeout: float, paths: list[str]
) -> NoReturn:
    signal.setitimer(signal.ITIMER_REAL, timeout)  # ends the process
    for number, path in enumerate((os.devnull, *paths)):
        with open(path, "w" if number else "r") as file:
            os.dup2(file.fileno(), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[1:1] = [place for place in env.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.argv = ["-c", *words[2:]]
    sys.modules["__main__"] = types.ModuleType("__main__")
    code = 1
    try:
        _run(*words[:2])
        code = 0
    except SystemExit as end:
        if not isinstance(end.code, str):
            code = int(end.code or 0)
        else:
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:  # an interpreter takes a second to take torch down
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(kind: str, what: str) -> None:
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        assert kind == "-c", kind
        exec(compile(what, "<string>", "exec"), sys.modules["__main__"].__dict__)
