"""Contenders in processes of their own, timed in turn.

A contender is a script run as ``python script.py --worker NAME``, by any interpreter: so two
versions of corral, each installed for an interpreter of its own, are timed by the same script at
the same time. It imports and warms up, then waits; ``alternate`` lets one at a time play.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Rounds = dict[str, dict[str, list[Any]]]
"""contender -> task -> what it answered, round by round."""


def serve(tasks: Mapping[str, Callable[[], Any]]) -> None:
    """Run each task once, unmeasured; then answer every task named on stdin by a line of JSON."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever prints must not answer
    for run in tasks.values():
        run()
    print(json.dumps(checkout()), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(tasks[line.strip()]()), file=answers, flush=True)


def checkout() -> str:
    """Return the commit that corral is imported from, else its version."""
    import corral

    assert corral.__file__ is not None
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    folder = Path(corral.__file__).parent
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return found.stdout.strip() or corral.__version__


class Contender:
    """A worker process on one thread, and what it is asked."""

    def __init__(self, python: str, script: str, worker: str) -> None:
        self.worker = worker
        self.process = subprocess.Popen(
            [python, script, "--worker", worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.worker}: its process ended early, for the reason given above")
        return json.loads(line)

    def ask(self, task: str) -> Any:
        assert self.process.stdin is not None
        print(task, file=self.process.stdin, flush=True)
        return self.answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def alternate(
    workers: Mapping[str, tuple[str, str]], script: str, tasks: Sequence[str], rounds: int
) -> tuple[Rounds, dict[str, str]]:
    """Ask every contender for every task, in turn, in each round; and tell their checkouts.

    ``workers`` maps a contender's name to its interpreter and the worker's name.
    """
    contenders = {
        name: Contender(python, script, worker) for name, (python, worker) in workers.items()
    }
    try:
        checkouts = {name: str(each.answer()) for name, each in contenders.items()}
        answers: Rounds = {name: {task: [] for task in tasks} for name in contenders}
        for i in range(rounds):
            print(f"round {i + 1} of {rounds}", file=sys.stderr)
            for task in tasks:
                for name, each in contenders.items():
                    answers[name][task].append(each.ask(task))
    finally:
        for each in contenders.values():
            each.close()
    return answers, checkouts


def spread(numbers: Sequence[float], form: str) -> str:
    """Return the median, minimum and maximum as three cells of a Markdown table."""
    cells = (statistics.median(numbers), min(numbers), max(numbers))
    return " | ".join(format(cell, form) for cell in cells)


def quotients(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return one over the other, round by round."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]
