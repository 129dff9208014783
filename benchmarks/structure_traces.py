"""Follow values and calls through corral's files while it trains; ``structure.py`` calls this.

    python benchmarks/structure_traces.py TRACE ROOT

runs one trace in the checkout ROOT, which must be the one that this Python imports corral from, and
prints a JSON object. ``sys.settrace`` reports every call into a file of the project; what other
packages do in between is passed through. Comprehensions count as part of their function.

| trace | runs | gives |
|---|---|---|
| ``gamma`` | ``corral train dfaas_v0 --trainer mappo --gamma 0.8713`` | files that hold the value |
| ``update`` | ``corral.train("arena_v0", trainer="mappo")`` | files that one PPO update enters |
| ``decision`` | the same, then ``policy.act`` | files from an observation to masked logits |
| ``imports`` | the same | the files of adapters/ that are imported afterwards |

**gamma.** When a function of the project returns (or yields), its local variables are searched for
the number or its text: the variables themselves, and two levels into dicts, lists, tuples and
objects of corral. The search ends when the function of GAMMA_USED that computes with it returns;
callers that are still running are searched then. Each file with a function that held the value
counts, in the order of calls. ``recording`` are those that held it only in, or below, a function of
RECORDING, which write the settings down: who follows the value to its use may leave them out.
``passed`` are files that hold nothing, but whose functions were running when it was used.

**update.** The first optimizer step and the last step of the environment before it have a
deepest caller in common. Counted are all functions that this caller enters after the call that
stepped the environment, up to and with the one that stepped the optimizer: no name is needed.

**decision.** ``trained``: from the call that makes an environment's first observation to the
one that makes the masked distribution. ``played``: from ``policy.act`` to there. A return is an
entry into a file that was entered before and left since.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

# Names in the sources that the traces look for: today's and earlier ones.
GAMMA_USED = ("gae",)
RECORDING = ("write", "save", "to_json", "encode_document", "write_json", "row", "log")
MASKED = ("MaskedCategorical.__init__", "Categorical.__init__")
ENV_STEP = ("Batch.step",)
OBSERVE = ("Batch.reset",)

GAMMA = 0.8713
TINY: dict[str, Any] = {"steps": 64, "n_steps": 4, "n_epochs": 1, "n_minibatches": 1}


@dataclasses.dataclass(frozen=True)
class Call:
    """A function of the project that was entered."""

    file: str  # below the root
    name: str  # qualified
    lines: int
    path: tuple[int, ...]  # numbers of the calls that were running, its own last


class Tracer:
    """Records the calls into files of the project while it is on."""

    def __init__(self, root: Path) -> None:
        self.root = str(root) + os.sep
        setup = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
        self.folders = tuple({Path(folder).parts[0] for folder in setup["package-dir"].values()})
        self.calls: list[Call] = []
        self.optimized: tuple[int, ...] | None = None  # the calls running at the first step
        self.on_leave: Callable[[FrameType], None] = lambda frame: None
        self._numbers: dict[FrameType, int] = {}

    def file_of(self, frame: FrameType) -> str | None:
        """The file of a function of the project, below the root; None for others."""
        name = frame.f_code.co_filename
        if not name.startswith(self.root):
            return None
        name = name[len(self.root) :]
        inside = name.split(os.sep)[0] in self.folders
        comprehension = frame.f_code.co_name in ("<listcomp>", "<dictcomp>", "<setcomp>")
        generator = frame.f_code.co_name in ("<genexpr>", "<module>")
        return name if inside and not comprehension and not generator else None

    def __enter__(self) -> Tracer:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *about: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = self.file_of(frame)
        if file is None:
            where = Path(frame.f_code.co_filename)
            optimizer = where.parts[-3:-1] == ("torch", "optim") and "scheduler" not in where.name
            if self.optimized is None and optimizer and frame.f_code.co_name == "step":
                self.optimized = self._path(frame)
            return None
        if frame not in self._numbers:  # a generator is entered again after each yield
            self._numbers[frame] = len(self._numbers)
            lines = {line for *_, line in frame.f_code.co_lines() if line is not None}
            self.calls.append(
                Call(
                    file,
                    frame.f_code.co_qualname,
                    max(lines) - frame.f_code.co_firstlineno + 1,
                    self._path(frame),
                )
            )
        frame.f_trace_lines = False
        return self._leave

    def _leave(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return":
            self.on_leave(frame)
        return self._leave

    def _path(self, frame: FrameType | None) -> tuple[int, ...]:
        numbers = (self._numbers.get(each) for each in callers(frame))
        return tuple(number for number in numbers if number is not None)[::-1]


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and all that called it, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


# --- The traces ----------------------------------------------------------------------------------


def gamma(root: Path) -> dict[str, Any]:
    """The files that hold the value of --gamma before it is used, in the order of their calls."""
    tracer, used = Tracer(root), False
    running: list[str] = []
    held: dict[str, dict[str, bool]] = {}  # file -> function -> whether it holds it to record it

    def look(frame: FrameType) -> None:
        file = tracer.file_of(frame)
        if file is None or not any(holds(value, 2) for value in frame.f_locals.values()):
            return
        recording = any(
            tracer.file_of(each) and each.f_code.co_name.strip("_") in RECORDING
            for each in callers(frame)
        )
        functions = held.setdefault(file, {})
        name = frame.f_code.co_qualname
        functions[name] = functions.get(name, True) and recording

    def leave(frame: FrameType) -> None:
        nonlocal used
        if used:
            return
        look(frame)
        if frame.f_code.co_name in GAMMA_USED and tracer.file_of(frame) in held:
            used = True
            for caller in callers(frame.f_back):
                look(caller)
                running.append(tracer.file_of(caller) or "")

    tracer.on_leave = leave
    from corral.cli import main

    sys.argv = ["corral", "train", "dfaas_v0", "--trainer", "mappo", "--gamma", str(GAMMA)]
    sys.argv += ["--steps", "64", "--n-steps", "4", "--n-epochs", "1", "--out", "run"]
    try:
        with tracer:
            main()
    except SystemExit as end:
        if end.code:
            raise
    if not used:
        raise RuntimeError(f"no function called {GAMMA_USED} held gamma: correct GAMMA_USED")
    calls = (call for call in tracer.calls if call.name in held.get(call.file, ()))
    files = list(dict.fromkeys(call.file for call in calls))
    return {
        "files": files,
        "recording": [file for file in files if all(held[file].values())],
        "passed": sorted(set(running) - {"", *files}),
        "functions": {file: list(held[file]) for file in files},
    }


def holds(value: Any, depth: int) -> bool:
    """Return whether ``value`` is gamma or its text, or contains it within ``depth`` levels."""
    if isinstance(value, float | str):
        return value == GAMMA or value == str(GAMMA)
    if depth == 0:
        return False
    inside: Any = ()
    if isinstance(value, Mapping):
        inside = list(value.values())
    elif isinstance(value, list | tuple):
        inside = value[:100]
    elif type(value).__module__.split(".")[0] == "corral":
        inside = list(getattr(value, "__dict__", {}).values())
    return any(holds(each, depth - 1) for each in inside)


def update(root: Path) -> dict[str, Any]:
    """The files that one update enters, with their lines and those of the functions entered."""
    calls, optimized = trained(root)
    stepped = [call for call in calls if call.name in ENV_STEP]
    before = [call for call in stepped if call.path[-1] < optimized[-1]]
    if not before:
        raise RuntimeError(f"no call of {ENV_STEP} before an update: correct ENV_STEP")
    rollout = before[-1].path
    shared = 0
    while rollout[shared] == optimized[shared]:
        shared += 1
    # Calls are numbered in the order in which they begin.
    after, last = rollout[shared], optimized[shared]
    inside = [
        call
        for call in calls
        if call.path[:shared] == rollout[:shared]
        and len(call.path) > shared
        and after < call.path[shared] <= last
    ]
    functions = {(call.file, call.name): call.lines for call in inside}
    files = list(dict.fromkeys(call.file for call in inside))
    lines = {file: len((root / file).read_text().splitlines()) for file in files}
    entered = {
        file: sum(n for (where, _), n in functions.items() if where == file) for file in files
    }
    return {
        "files": files,
        "lines": lines,
        "lines_of_functions": entered,
        "functions": [f"{file}: {name}" for file, name in functions],
    }


def decision(root: Path) -> dict[str, Any]:
    """The files from an observation to masked logits, in training and in play."""
    calls, _ = trained(root)
    found = {"trained": walk(calls, OBSERVE)}
    import corral
    from corral.adapters import make_batch

    run = corral.load_run("run")
    policies = run.policies
    observations = make_batch("arena_v0", 2).reset()
    agent = next(iter(observations))
    with Tracer(root) as tracer:
        policies[agent].act(observations[agent], deterministic=True)
    found["played"] = walk(tracer.calls, (tracer.calls[0].name,))
    return found


def walk(calls: list[Call], first: tuple[str, ...]) -> dict[str, Any]:
    """Return files in the order of their first entry, and how often one was returned to."""
    begin = next((i for i, call in enumerate(calls) if call.name in first), len(calls))
    end = next((i for i in range(begin, len(calls)) if calls[i].name in MASKED), None)
    if end is None:
        raise RuntimeError(f"no call of {MASKED} after {first}: correct MASKED or OBSERVE")
    order: list[str] = []
    for call in calls[begin : end + 1]:
        if not order or order[-1] != call.file:
            order.append(call.file)
    files = list(dict.fromkeys(order))
    return {"files": files, "returns": len(order) - len(files), "order": order}


def trained(root: Path) -> tuple[list[Call], tuple[int, ...]]:
    """Train a tiny team; the calls, and those that were running at the first optimizer step."""
    import corral

    with Tracer(root) as tracer:
        corral.train("arena_v0", trainer="mappo", out="run", progress=False, **TINY)
    if tracer.optimized is None:
        raise RuntimeError("no optimizer of torch was stepped")
    return tracer.calls, tracer.optimized


def imports(root: Path) -> dict[str, Any]:
    """The files of adapters/ that training a game of the suite imports, with their lines."""
    import corral

    corral.train("arena_v0", trainer="mappo", out="run", progress=False, **TINY)
    files = {
        Path(module.__file__).relative_to(root).as_posix()
        for name, module in list(sys.modules.items())
        if name.startswith("corral.adapters") and module.__file__
    }
    return {file: len((root / file).read_text().splitlines()) for file in sorted(files)}


TRACES = {"gamma": gamma, "update": update, "decision": decision, "imports": imports}


def main() -> None:
    name, root = sys.argv[1], Path(sys.argv[2]).resolve()
    import corral

    where = Path(str(corral.__file__)).resolve()
    if root not in where.parents:
        raise SystemExit(f"this Python imports corral from {where.parent}, not from {root}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with contextlib.redirect_stdout(sys.stderr):
            found = TRACES[name](root)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
