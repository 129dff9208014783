"""Folders of runs, settings files and exports made by an enemy, and a child that opens them.

Each case is a function (world) that changes a copy of ``world``: the folder ``run``, of dfaas_v0,
and ``outside``, which nothing may read or touch. ``meet`` opens it with every command of its kind,
in a process of its own, and says what happened.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from corral.data import write_trace
from corral.trainers.driver import train
from support.command import ENVIRONMENT
from support.loads import small_trace

Case = Callable[[Path], None]
CASES: dict[str, Case] = {}

SECRET = "the-secret-of-outside"
SECONDS = 5
"""CPU seconds that a command may take on top of what it takes for the sound run."""
WAITING = 60
"""Seconds that a command may take by the clock, where other processes are busy."""
MEMORY = 2**30

RUN = (
    ("evaluate", "run", "--policies", "random"),
    ("train", "--resume", "run", "--steps", "192"),
    ("export", "run", "--format", "numpy", "--out", "exported", "--overwrite"),
    ("train", "--config", "run/config.json", "--print-config"),
    ("doctor", "run", "--no-audit", "--no-clone"),
)
SETTINGS = (("train", "--config", "settings.toml", "--print-config"),)


def commands(name: str) -> tuple[tuple[str, ...], ...]:
    """The commands that open what a case changes."""
    return SETTINGS if name.startswith("settings") else RUN


def case(name: str) -> Callable[[Case], Case]:
    def keep(build: Case) -> Case:
        CASES[name] = build
        return build

    return keep


def world(folder: Path) -> Path:
    """A small run, and beside it code and a secret of somebody else."""
    (folder / "outside").mkdir(parents=True)
    (folder / "outside" / "secret.csv").write_text(f"{SECRET}:x:0:0\n" * 3)
    (folder / "outside" / "kept.txt").write_text(SECRET)
    code = "from pathlib import Path\nPath('zq_ran').touch()\ndef boom(*_, **__): ...\n"
    (folder / "zq_module.py").write_text(code)
    write_trace(small_trace(), folder / "load.csv")
    small: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (16,)}
    load = {"trace": str(folder / "load.csv"), "max_cycles": 5}
    train("dfaas_v0", steps=128, env_kwargs=load, out=folder / "run", progress=False, **small)
    return folder


# --- config.json ---------------------------------------------------------------------------------


def change(folder: Path, *path: Any, to: Any) -> None:
    """Set a value of config.json."""
    file = folder / "run" / "config.json"
    values = json.loads(file.read_text())
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    file.write_text(json.dumps(values))


def link(folder: Path, name: str, target: str = "outside/kept.txt") -> None:
    """Put a link in the place of a file of the run."""
    place = folder / "run" / name
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(folder / target)


def pipe(path: Path) -> None:
    """Put a pipe, which nobody writes to, in the place of a file."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def sparse(path: Path, size: int = 4 * 2**30) -> None:
    """Put a file in the place of another that claims ``size`` bytes and takes none."""
    with path.open("wb") as file:
        file.truncate(size)


def changed(name: str, *path: Any, to: Any) -> None:
    CASES[name] = lambda folder: change(folder, *path, to=to)


def linked(name: str, target: str = "outside/kept.txt") -> None:
    CASES[f"a link in the place of {name}"] = lambda folder: link(folder, name, target)


NAMED = "zq_module:boom"
FUNCTION = {"type": "function", "name": NAMED, "sha256": None}
changed("a reward that a text names", "env_kwargs", "reward_fn", to=NAMED)
changed("a reward in a record", "env_kwargs", "reward_fn", to=FUNCTION)
changed("a reward in a file", "env_kwargs", "reward_fn", to="zq_module.py:boom")
changed("a reward held out", "held_out", "reward_fn", to=NAMED)
changed("a reward for validation", "validation", "reward_fn", to=NAMED)
changed("a trainer", "trainer", to=NAMED)
changed("the source of a trainer", "trainer_source", to={"text": NAMED, "sha256": None})
changed("a network", "model", to={"name": NAMED, "sha256": None})
changed("an environment", "env", to=NAMED)
changed("the source of an environment", "source", to=NAMED)
changed("a trace by its path", "env_kwargs", "trace", to="outside/secret.csv")
changed("/etc/passwd as the trace", "env_kwargs", "trace", to="/etc/passwd")
changed("a device as the trace", "env_kwargs", "trace", to="/dev/zero")
changed("the name of a trace is a path", "env_kwargs", "trace", "name", to="/etc/passwd")
changed(
    "the file of a trace is elsewhere", "env_kwargs", "trace", "file", to="../outside/secret.csv"
)
changed(
    "a record of a path",
    *("env_kwargs", "trace"),
    to={"type": "trace", "name": "/etc/passwd", "digest": "0" * 64},
)
changed("10**9 environments", "settings", "num_envs", to=10**9)
changed("layers of 10**6 units", "settings", "net_arch", to=[10**6, 10**6])
changed("20,000 layers", "settings", "net_arch", to=[16] * 20_000)
changed("a rollout of 10**12 steps", "settings", "n_steps", to=10**12)
changed("10**18 steps of an episode", "env_kwargs", "max_cycles", to=10**18)
changed("a number beyond float", "settings", "gamma", to=10**400)
changed("a list in place of settings", "settings", to=["gamma"])
changed("10,000 policies", "policies", to={f"node_{i}": f"p{i}" for i in range(10_000)})
changed("an opponent that is a pipe", "opponents", to={"node_0": "outside/pipe"})
changed("started from /", "init", to={"run": "/", "checkpoint": "step_000000000128"})
NESTED: Any = functools.reduce(lambda below, _: [below], range(900))
changed("900 brackets in brackets", "versions", to=NESTED)
changed("900 brackets in a setting", "settings", "gamma", to=NESTED)
changed("escapes of a terminal", "versions", to={"corral": "\x1b]0;zq\x07\x1b[2J"})


@case("config.json is a pipe")
def _(folder: Path) -> None:
    pipe(folder / "run" / "config.json")


@case("config.json of 4 GB")
def _(folder: Path) -> None:
    sparse(folder / "run" / "config.json")


@case("config.json is a million brackets")
def _(folder: Path) -> None:
    (folder / "run" / "config.json").write_text("[" * 10**6)


@case("config.json is a pickle")
def _(folder: Path) -> None:
    (folder / "run" / "config.json").write_bytes(pickle.dumps(Boom()))


class Boom:
    """Its pickle runs code when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch zq_ran",)


# --- Files beside it -----------------------------------------------------------------------------


@case("the trace is a pipe")
def _(folder: Path) -> None:
    pipe(folder / "run" / "trace.csv.gz")


@case("the trace has 4 GB")
def _(folder: Path) -> None:
    sparse(folder / "run" / "trace.csv.gz")


@case("the trace expands to 2 GB")
def _(folder: Path) -> None:
    with gzip.open(folder / "run" / "trace.csv.gz", "wb", compresslevel=9) as file:
        file.write(b"time,node,arrivals,capacity\n")
        for _ in range(2**11):
            file.write(b"0,a,1,1\n" * 2**17)


@case("progress.csv is a pipe")
def _(folder: Path) -> None:
    pipe(folder / "run" / "progress.csv")


@case("progress.csv of 4 GB")
def _(folder: Path) -> None:
    sparse(folder / "run" / "progress.csv")


for name in (
    *("config.json", "trace.csv.gz", "progress.csv", "results.json", "results.csv", "report.html"),
    *(".results.json", ".results.csv", ".report.html", ".config.json", ".progress.csv"),
    *(".lock", ".lock.pid"),
):
    linked(name)
for name in ("checkpoints", "tensorboard", "evaluation@best", "export"):
    linked(name, "outside")


def _checkpoint(folder: Path) -> Path:
    return max((folder / "run" / "checkpoints").glob("step_*"))


@case("the manifest of a checkpoint is a pipe")
def _(folder: Path) -> None:
    pipe(_checkpoint(folder) / "manifest.json")


@case("the arrays of a checkpoint have 4 GB")
def _(folder: Path) -> None:
    sparse(next(_checkpoint(folder).glob("*.safetensors")))


@case("the arrays of a checkpoint are a pickle")
def _(folder: Path) -> None:
    next(_checkpoint(folder).glob("*.safetensors")).write_bytes(pickle.dumps(Boom()))


@case("latest is a pipe")
def _(folder: Path) -> None:
    pipe(folder / "run" / "checkpoints" / "latest")


@case("a plan of from_rule names callbacks")
def _(folder: Path) -> None:
    plan = {"settings": {"callbacks": [NAMED], "model": NAMED}, "rule": "local/equal"}
    (folder / "run" / "from_rule.json").write_text(json.dumps(plan))


@case("a plan of from_rule is a pipe")
def _(folder: Path) -> None:
    pipe(folder / "run" / "from_rule.json")


@case("a recommendation of a million brackets")
def _(folder: Path) -> None:
    (folder / "run" / "recommendation.json").write_text("[" * 10**6)


# --- Settings files ------------------------------------------------------------------------------

for name, line in {
    "a reward": f'[env_kwargs]\nreward_fn = "{NAMED}"',
    "a callback": f'callbacks = ["{NAMED}"]',
    "a sink": f'sinks = ["{NAMED}"]',
    "a metric": f'metrics = {{zq = "{NAMED}"}}',
    "a network": f'model = "{NAMED}"',
    "a trainer": f'trainer = "{NAMED}"',
    "a trace outside": '[env_kwargs]\ntrace = "/etc/passwd"',
    "a trace above": '[env_kwargs]\ntrace = "../x.csv"',
    "a trace behind a link": '[env_kwargs]\ntrace = "linked/secret.csv"',
    "a device": '[env_kwargs]\ntrace = "/dev/zero"',
    "a record": f'[env_kwargs]\nreward_fn = {{type = "function", name = "{NAMED}", sha256 = ""}}',
    "10**9 environments": "[settings]\nnum_envs = 1000000000",
    "layers of 10**6 units": "[settings]\nnet_arch = [1000000, 1000000]",
    "tables in tables": "a" + ".a" * 5000 + " = 1",
}.items():

    def build(folder: Path, line: str = line) -> None:
        (folder / "linked").symlink_to(folder / "outside")
        (folder / "settings.toml").write_text(f'env = "dfaas_v0"\n{line}\n')

    CASES[f"settings: {name}"] = build


@case("settings: a pipe")
def _(folder: Path) -> None:
    pipe(folder / "settings.toml")


@case("settings: 4 GB")
def _(folder: Path) -> None:
    sparse(folder / "settings.toml")


# --- Meeting them --------------------------------------------------------------------------------


class Met(NamedTuple):
    """What happened."""

    faults: list[str]  # empty: it held
    refused: int  # commands that ended with an error of corral's own
    commands: int


CHILD = """
import contextlib, io, json, os, sys, time
from corral.cli.app import app
from corral.errors import CorralError

def typed(words):
    text = io.StringIO()
    began = time.process_time()
    error = None
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            error = "exit" if app(list(words), standalone_mode=False) else None
        except SystemExit as raised:
            error = None if raised.code in (0, None) else "exit"
        except BaseException as raised:
            error = type(raised).__name__
    return text.getvalue(), error, time.process_time() - began

os.chdir(sys.argv[1])
for words in json.loads(sys.argv[2]):
    print(json.dumps({"begun": words}), file=sys.__stdout__, flush=True)
    text, error, spent = typed(words)
    row = {"words": words, "error": error, "seconds": spent, "text": text[-20000:]}
    print(json.dumps(row), file=sys.__stdout__, flush=True)
with open("/proc/self/status") as file:  # unlike ru_maxrss it knows nothing of the parent
    peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024
print(json.dumps({"peak": peak}), file=sys.__stdout__, flush=True)
"""


def usual_seconds(sound: Path, folder: Path) -> dict[str, float]:
    """CPU seconds of each command, by its words, on copies of the sound world."""
    found: dict[str, float] = {}
    for words in (RUN, SETTINGS):
        shutil.copytree(sound, folder)
        (folder / "settings.toml").write_text('env = "dfaas_v0"\n')
        rows = [row for row in _opened(folder, words)[0] if "words" in row]
        for row in rows:  # one that is refused anyway would meet nothing
            assert row["error"] is None, row
        found |= {" ".join(row["words"]): row["seconds"] for row in rows}
        shutil.rmtree(folder)
    return found


def _opened(folder: Path, words: Sequence[Sequence[str]]) -> tuple[list[dict[str, Any]], int]:
    """What a child prints that types these commands, and its exit status; 124: it was stopped."""
    env = {**ENVIRONMENT, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    command = [sys.executable, "-c", CHILD, str(folder), json.dumps(words)]
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        printed, _ = process.communicate(timeout=WAITING * len(words))
        status = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        printed, _ = process.communicate()
        status = 124
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")], status


def meet(name: str, sound: Path, folder: Path, usual: Mapping[str, float]) -> Met:
    """Open a case, in a copy ``folder`` of the world ``sound``, with the commands of its kind;
    ``usual`` is what ``usual_seconds`` gave."""
    shutil.copytree(sound, folder)
    CASES[name](folder)
    before = _listing(folder / "outside")
    rows, status = _opened(folder, commands(name))
    faults: list[str] = []
    if status == 124:
        faults.append("it hangs")
    done = [row for row in rows if "words" in row]
    for row in done:
        told = " ".join(row["words"])
        if (more := row["seconds"] - usual[told]) > SECONDS:
            faults.append(f"{told}: {more:.0f} CPU s more than usual")
        if SECRET in row["text"] or "root:x:0" in row["text"]:
            faults.append(f"{told}: quotes what is outside")
        if "Traceback (most recent" in row["text"] or row["error"] not in (None, "exit", "Exit"):
            faults.append(f"{told}: ends raw: {row['error']}")
        if "\x1b]0;zq" in row["text"]:
            faults.append(f"{told}: writes escapes to the terminal")
    if not rows or "peak" not in rows[-1]:
        faults.append(f"the process ended at {rows[-1:] or 'its start'} with {status}")
    elif rows[-1]["peak"] > MEMORY:
        faults.append(f"{rows[-1]['peak'] / 2**20:,.0f} MB of memory")
    if (folder / "zq_ran").exists():
        faults.append("code was run")
    if _listing(folder / "outside") != before:
        faults.append("what is outside was changed")
    shutil.rmtree(folder)
    return Met(faults, sum(row["error"] is not None for row in done), len(done))


def _listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
