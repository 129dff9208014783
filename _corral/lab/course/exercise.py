"""The record of an exercise: the texts of exercises.toml, probes, a solution, known mistakes."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Answer", "Exercise", "FindingName", "Mistake", "Probe", "Unusable", "exercise"]

Probe = dict[str, Any]
"""Argument -> value, in the order of the answer's parameters."""

Answer = Callable[..., Any]
"""A user's answer: the function or class that an exercise asks for."""

FindingName = Literal[
    "no-function", "not-imported", "signature", "raised", "wrong-type", "wrong-shape", "too-slow"
]

Outputs = Callable[[Probe], Any]
"""The course's own answers: functions of a whole probe. Outputs are numbers, arrays, or dicts of
these."""


class Unusable(Exception):
    """An answer returned an output that cannot be compared."""

    def __init__(self, name: FindingName, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Mistake:
    """A known mistake, and the ways to make it."""

    name: str
    explanation: str  # the effect of the mistake
    hint: str  # a direction, without the solution
    ways: tuple[Outputs, ...] = field(repr=False)


@dataclass(frozen=True)
class Exercise:
    """An exercise. ``probes`` makes equal inputs in every call, since an answer may change them."""

    number: int
    title: str
    practice: str  # the subject that is practiced
    page: str  # the page in docs/ that teaches it
    function: str  # the name of the answer
    task: str
    starter: str
    probes: Callable[[], list[Probe]]
    solution: Outputs
    mistakes: tuple[Mistake, ...]
    use: Callable[[Answer, Probe], Any]  # the output of a user's answer on a probe
    show: Callable[[Answer, Probe], Probe]  # the values of a probe that a user sees
    notes: tuple[str, ...] = ()  # what is special about each probe
    extra: str = ""  # the extra of corral that it needs
    ours: str = ""  # the function of corral that does the same

    @property
    def file(self) -> str:
        """The task and the starter, as the text of a Python file."""
        head = f"Exercise {self.number}: {self.title}"
        checking = f"Check your file: corral course {self.number} answer{self.number}.py"
        return f'"""{head}\n\n{self.task.strip()}\n\n{checking}\n"""\n\n{self.starter.strip()}\n'


@functools.cache
def _texts() -> list[dict[str, Any]]:
    path = Path(__file__).with_name("exercises.toml")
    texts: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["exercise"]
    return texts


def exercise(
    number: int,
    probes: Callable[[], list[Probe]],
    solution: Outputs,
    mistakes: Mapping[str, Outputs | tuple[Outputs, ...]],
    use: Callable[[Answer, Probe], Any] = lambda answer, probe: answer(*probe.values()),
    show: Callable[[Answer, Probe], Probe] = lambda answer, probe: probe,
) -> Exercise:
    """Return the exercise with the texts of that number; ``mistakes`` are by name."""
    texts = dict(_texts()[number - 1])
    described, notes = texts.pop("mistakes"), tuple(texts.pop("notes", ()))
    assert described.keys() == mistakes.keys()
    known = tuple(
        Mistake(name, **described[name], ways=ways if isinstance(ways, tuple) else (ways,))
        for name, ways in mistakes.items()
    )
    return Exercise(
        number,
        **texts,
        probes=probes,
        solution=solution,
        mistakes=known,
        use=use,
        show=show,
        notes=notes,
    )
