"""Measure how far a reader of the sources has to go; prints a table with its aims.

    python benchmarks/journeys.py                      # this checkout
    python benchmarks/journeys.py --before DIR         # beside an older checkout, DIR/.venv in it
    python benchmarks/journeys.py --before DIR --record    # kept in results/journeys.*

The rows above the line are read off the sources by tests/support/journeys.py, which
tests/packaging/test_journeys.py holds. The rows below it are counted while a tiny team trains:
``sys.settrace`` reports every call into a file of the project.

- **Before the first gae**: files with a function that is entered from ``corral.train`` to the first
  advantages.
- **One PPO update**: files entered after the last step of the environment before the first step of
  the optimizer, up to that step.
- **One decision**: files entered from ``policy.act`` to masked logits.
- **An argument of the environment**: ``max_cycles=1237`` on its way from ``corral.train`` to the
  constructor of the rules that are trained on. A stay is a file that holds the number, entered from
  another file; a return is a stay in a file that held it before.

A team is trained once before, so that what runs when a module is imported does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1237
"""Of the episodes' length: a number that nothing else has."""
SETTINGS: dict[str, Any] = {"steps": 64, "n_steps": 4, "n_epochs": 1, "n_minibatches": 1}
ADVANTAGES = ("gae",)
ENV_STEP = ("Batch.step",)
MADE = ("ArenaRules.__init__",)
OBSERVE = ("Batch.reset",)
MASKED = ("MaskedCategorical.__init__", "Categorical.__init__")

AIMS = {
    "circles of modules in the core": 0,
    "modules imported by a text, outside tables": 0,
    "modules loaded by corral.train('arena_v0')": 100,
    "most parameters of a function": 12,
    "getattr and hasattr with a literal name": None,
    "  of members that nobody declares": 20,
    "members of a trainer or learner set from outside": 0,
    "arguments packed to be splatted": 20,
    "share of tests that assert sentences, %": 3,
    "files entered before the first gae": 35,
    "files entered by one PPO update": 10,
    "files entered by one decision": 8,
    "argument of the environment: stays": 20,
    "argument of the environment: returns": 8,
    "modules": None,
    "  of more than 400 lines": None,
    "lines": None,
}


# --- While it trains -----------------------------------------------------------------------------


@dataclass
class Call:
    """A function of the project that was entered."""

    file: str  # below the root
    name: str  # qualified
    path: tuple[int, ...]  # numbers of the calls that were running, its own last
    holds: bool = False  # when it was left, a variable was LIMIT, or held it


class Tracer:
    """Records the calls into files of the project while it is on."""

    def __init__(self, root: Path) -> None:
        self.root = str(root) + os.sep
        setup = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
        self.folders = {Path(folder).parts[0] for folder in setup["package-dir"].values()}
        self.calls: list[Call] = []
        self.optimized: tuple[int, ...] | None = None  # the calls running at the first step
        self._numbers: dict[FrameType, int] = {}

    def __enter__(self) -> Tracer:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *about: object) -> None:
        sys.settrace(None)

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if not name.startswith(self.root) or frame.f_code.co_name.startswith("<"):
            return None
        name = name[len(self.root) :]
        return name if name.split(os.sep)[0] in self.folders else None

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = self._file(frame)
        if file is None:
            where = Path(frame.f_code.co_filename)
            optimizer = where.parts[-3:-1] == ("torch", "optim") and "scheduler" not in where.name
            if self.optimized is None and optimizer and frame.f_code.co_name == "step":
                self.optimized = self._path(frame)
            return None
        if frame not in self._numbers:  # a generator is entered again after each yield
            self._numbers[frame] = len(self._numbers)
            self.calls.append(Call(file, frame.f_code.co_qualname, self._path(frame)))
        frame.f_trace_lines = False
        return self._leave

    def _leave(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return":
            call = self.calls[self._numbers[frame]]
            call.holds |= any(_holds(value, 2) for value in frame.f_locals.values())
        return self._leave

    def _path(self, frame: FrameType | None) -> tuple[int, ...]:
        numbers = (self._numbers.get(each) for each in _callers(frame))
        return tuple(number for number in numbers if number is not None)[::-1]


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _holds(value: Any, depth: int) -> bool:
    """Return whether ``value`` is the limit, or contains it within ``depth`` levels."""
    if type(value) is int:
        return value == LIMIT
    if depth == 0:
        return False
    inside: Any = ()
    if isinstance(value, Mapping):
        inside = list(value.values())
    elif isinstance(value, list | tuple):
        inside = value[:100]
    elif type(value).__module__.split(".")[0] == "corral":
        inside = list(getattr(value, "__dict__", {}).values())
    return any(_holds(each, depth - 1) for each in inside)


def traced(root: Path) -> dict[str, Any]:
    """Train a tiny team; return the files of each journey, in the order of their first entry."""
    import corral
    from corral.adapters import make_batch

    def train(out: str) -> None:
        corral.train(
            "arena_v0",
            trainer="mappo",
            env_kwargs={"max_cycles": LIMIT},
            out=out,
            progress=False,
            **SETTINGS,
        )

    train("before")
    with Tracer(root) as tracer:
        train("run")
    calls = tracer.calls
    before = calls[: _first(calls, OBSERVE)]
    made = max(number for number, call in enumerate(before) if call.name in MADE)
    stays: list[str] = []
    for call in before[: made + 1]:
        if call.holds and (not stays or stays[-1] != call.file):
            stays.append(call.file)

    policies = corral.load_run("run").policies
    observations = make_batch("arena_v0", 2).reset()
    agent = next(iter(observations))
    with Tracer(root) as played:
        policies[agent].act(observations[agent], deterministic=True)
    return {
        "first gae": _files(calls[: _first(calls, ADVANTAGES) + 1]),
        "update": _files(_update(calls, tracer.optimized)),
        "decision": _files(played.calls[: _first(played.calls, MASKED) + 1]),
        "argument": stays,
    }


def _first(calls: list[Call], names: tuple[str, ...]) -> int:
    for number, call in enumerate(calls):
        if call.name in names:
            return number
    raise RuntimeError(f"no call of {names}: correct the names at the top of this file")


def _update(calls: list[Call], optimized: tuple[int, ...] | None) -> list[Call]:
    """Return the calls from the last step of the environment to the first of the optimizer.

    Both have a deepest caller in common; what it calls in between is the update.
    """
    if optimized is None:
        raise RuntimeError("no optimizer of torch was stepped")
    steps = [call for call in calls if call.name in ENV_STEP and call.path[-1] < optimized[-1]]
    rollout = steps[-1].path
    shared = 0
    while rollout[shared] == optimized[shared]:
        shared += 1
    return [
        call
        for call in calls
        if call.path[:shared] == rollout[:shared]
        and len(call.path) > shared
        and rollout[shared] < call.path[shared] <= optimized[shared]
    ]


def _files(calls: list[Call]) -> list[str]:
    return list(dict.fromkeys(call.file for call in calls))


def loaded() -> list[str]:
    """Return the modules of corral that a training loads."""
    import corral

    corral.train("arena_v0", steps=64, num_envs=4, n_steps=16, progress=False, out="run")
    return sorted(name for name in sys.modules if name.split(".")[0] == "corral")


def in_checkout(root: Path, python: Path, what: str) -> Any:
    """Run ``what`` of this file by a Python that imports corral from ``root``."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, __file__, "--only", what, "--root", root],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
    if done.returncode:
        raise SystemExit(f"{what} in {root}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# --- All of it -----------------------------------------------------------------------------------


def measured(root: Path, python: Path) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the numbers of AIMS, and the lists behind them."""
    sys.path.insert(0, str(ROOT))
    from tests.support.journeys import TABLES, Sources, sentence_tests, test_functions

    sources = Sources(root)
    names, runs = in_checkout(root, python, "loaded"), in_checkout(root, python, "traced")
    texts = {name: sources.texts_imported(name) for name in sources.modules}
    stays = runs["argument"]
    lists = {
        "circles": sources.circles_of_core(),
        "by text": {name: found for name, found in texts.items() if found and name not in TABLES},
        "loaded": names,
        "parameters": {name: n for name, n in sources.parameters().items() if n > 12},
        "undeclared": sources.undeclared_members(),
        "set from outside": sources.set_from_outside(),
        "splats": sources.splats(),
        "long": {name: lines for name, lines in sources.lines.items() if lines > 400},
        **runs,
    }
    sentences = 100 * len(sentence_tests(root)) / len(list(test_functions(root)))
    numbers = [
        len(lists["circles"]),
        sum(map(len, lists["by text"].values())),
        len(names),
        max(sources.parameters().values()),
        len(sources.asked_members()),
        len(lists["undeclared"]),
        len(lists["set from outside"]),
        len(lists["splats"]),
        round(sentences, 1),
        len(runs["first gae"]),
        len(runs["update"]),
        len(runs["decision"]),
        len(stays),
        len(stays) - len(set(stays)),
        len(sources.lines),
        sum(lines > 400 for lines in sources.lines.values()),
        sum(sources.lines.values()),
    ]
    return dict(zip(AIMS, numbers, strict=True)), lists


def table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """Return the numbers as Markdown."""
    lines = [["journey", *columns, "aim"], ["---", *["--:"] * len(columns), "--:"]]
    for name, aim in AIMS.items():
        shown = [f"{numbers[name]:,}" for numbers in columns.values()]
        lines.append([name, *shown, "" if aim is None else f"<= {aim}" if aim else "0"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="an older checkout, with corral in its .venv")
    parser.add_argument("--record", action="store_true", help="write results/journeys.*")
    parser.add_argument("--only", choices=("loaded", "traced"), help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        with contextlib.redirect_stdout(sys.stderr):
            found = loaded() if given.only == "loaded" else traced(given.root)
        print(json.dumps(found))
        return
    columns, lists = {}, {}
    if given.before:
        before = given.before.resolve()
        columns["before"], lists["before"] = measured(before, before / ".venv/bin/python")
    columns["now"], lists["now"] = measured(ROOT, Path(sys.executable))
    print(table(columns))
    if given.record:
        results = ROOT / "benchmarks" / "results"
        (results / "journeys.md").write_text(
            "# Journeys through the sources\n\n" + table(columns), encoding="utf-8"
        )
        (results / "journeys.json").write_text(
            json.dumps({"numbers": columns, "lists": lists}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
