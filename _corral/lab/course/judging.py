"""The judge: runs an answer on the probes of an exercise and compares the outputs.

    verdict = judge(4, "my_answer.py")

An answer is right if its outputs equal the solution's on all probes. A wrong answer resembles the
known mistake with equal outputs. An unusable answer gets a finding with the line of its file.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import linecache
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from corral.errors import FileError, UnknownNameError
from corral.extras import require
from corral.lab.course.exercise import Answer, Exercise, FindingName, Mistake, Probe, Unusable
from corral.lab.course.exercises import EXERCISES
from corral.named import named_object
from corral.results import Result, filled
from corral.text import one_line

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Finding",
    "Outcome",
    "Verdict",
    "equal",
    "exercise_of",
    "judge",
    "known_mistakes",
    "outputs_of",
]

LIMIT_S = 10.0
"""Seconds that an answer may take for all probes, its imports included."""


@dataclass(frozen=True)
class Finding:
    """The reason why an answer is unusable, and its line."""

    name: FindingName
    message: str
    line: int | None  # in the file of the answer; None: no line is known
    code: str  # the text of that line


@dataclass(frozen=True)
class Outcome:
    """The outputs for one probe, as text."""

    given: dict[str, str]  # argument -> value
    note: str  # what is special about this probe; may be empty
    expected: str
    returned: str
    right: bool


@dataclass(frozen=True, repr=False)
class Verdict(Result):
    """The result of judging one answer."""

    json_file, csv_file = "verdict.json", "verdict.csv"

    number: int  # of the exercise
    title: str
    outcomes: tuple[Outcome, ...]  # one for each probe; empty for an unusable answer
    mistakes: tuple[Mistake, ...] = ()  # that the answer resembles
    partly: bool = False  # the mistakes explain some of the wrong outputs, not all
    finding: Finding | None = None

    @property
    def status(self) -> Literal["right", "wrong", "unusable"]:
        if self.finding is not None:
            return "unusable"
        return "right" if all(each.right for each in self.outcomes) else "wrong"

    def text(self, width: int = 80) -> str:
        """Return the status and the finding, or the mistakes that the answer resembles, and the
        outputs."""
        head = f"Exercise {self.number}, {self.title.lower()}: {self.status}"
        if self.finding is not None:
            found = self.finding
            code = [] if found.line is None else [f"line {found.line}: {found.code}"]
            return filled([f"{head}, {found.name}: {found.message}", *code], width)
        right = sum(each.right for each in self.outcomes)
        lines = [f"{head}, {right} of {len(self.outcomes)} tests have the expected output."]
        relation = "It partly resembles" if self.partly else "It resembles"
        for mistake in self.mistakes:
            lines += [f"{relation} the known mistake {mistake.name}.", mistake.explanation]
        return f"{filled(lines, width)}\n{super().text(width)}"

    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each hidden test."""
        import pandas as pd

        rows = [vars(each) for each in self.outcomes]
        table = pd.DataFrame(rows, columns=["expected", "returned", "right"])
        return table.rename_axis("test").reset_index()

    def to_json(self) -> dict[str, Any]:
        values = {**super().to_json(), "status": self.status}
        for mistake in values["mistakes"]:
            del mistake["ways"]  # functions
        return values


def exercise_of(number: int) -> Exercise:
    """Return an exercise by its number. Raises ValueError."""
    if not 1 <= number <= len(EXERCISES):
        raise ValueError(f"exercise {number}: give a number from 1 to {len(EXERCISES)}")
    return EXERCISES[number - 1]


def judge(number: int, answer: str | Path | Answer, *, limit_s: float = LIMIT_S) -> Verdict:
    """Return the verdict on an answer to an exercise.

    Args:
        number: of the exercise, 1 to 12.
        answer: a file with the function, or the function itself.
        limit_s: seconds that the answer may take.

    Raises ValueError for an unknown number, FileError for a missing file, and MissingExtraError if
    the exercise needs an extra that is not installed.
    """
    exercise = exercise_of(number)
    if not callable(answer) and not (str(answer).endswith(".py") and Path(answer).is_file()):
        raise FileError(f"{answer}: give a Python file, such as my_answer.py")
    if exercise.extra:
        require("torch", extra=exercise.extra, purpose=f"judge exercise {number}")
    expected = outputs_of(exercise, exercise.solution)
    source = _Source(answer, exercise.function)
    runs = _run(exercise, source, expected, limit_s)
    if isinstance(runs, Finding):
        return Verdict(number, exercise.title, (), finding=runs)
    returned = [output for output, _ in runs]
    notes = exercise.notes or ("",) * len(runs)
    outcomes = tuple(
        Outcome(given, note, _text(right), _text(output), equal(right, output))
        for (output, given), note, right in zip(runs, notes, expected, strict=True)
    )
    if all(each.right for each in outcomes):
        return Verdict(number, exercise.title, outcomes)
    full, part = known_mistakes(exercise, expected, returned)
    return Verdict(number, exercise.title, outcomes, full or part, partly=not full and bool(part))


# --- Outputs -------------------------------------------------------------------------------------


def outputs_of(exercise: Exercise, own: Callable[[Probe], Any]) -> list[Any]:
    """Return the outputs of one of the course's own answers, on all probes."""
    with np.errstate(all="ignore"):
        return [_numbers(own(probe)) for probe in exercise.probes()]


def known_mistakes(
    exercise: Exercise, expected: Sequence[Any], returned: Sequence[Any]
) -> tuple[tuple[Mistake, ...], tuple[Mistake, ...]]:
    """Return the mistakes that explain all outputs, and those that explain some.

    The latter have the returned outputs on all probes that distinguish them from the solution.
    """
    full, part = [], []
    for mistake in exercise.mistakes:
        for way in mistake.ways:
            outputs = outputs_of(exercise, way)
            same = [equal(a, b) for a, b in zip(outputs, returned, strict=True)]
            telling = [not equal(a, b) for a, b in zip(outputs, expected, strict=True)]
            full += [mistake] * all(same)
            part += [mistake] * all(s for s, t in zip(same, telling, strict=True) if t)
    return tuple(dict.fromkeys(full)), tuple(dict.fromkeys(part))


def _numbers(value: Any) -> Any:
    """Return an array, or a dict of arrays. Raises TypeError and ValueError for other values."""
    if isinstance(value, Mapping):
        return {key: _numbers(each) for key, each in value.items()}
    torch = sys.modules.get("torch")  # an answer without torch does not import it
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    found = np.asarray(value)
    if found.dtype.kind not in "biuf":
        raise TypeError("not numbers")
    return found


def _in_form_of(expected: Any, value: Any) -> Any:
    """Return ``value`` as numbers. Raises Unusable for another type or shape than expected."""
    if isinstance(expected, Mapping):
        if not isinstance(value, Mapping):
            raise Unusable("wrong-type", f"returned {_kind(value)}; return a dict")
        if value.keys() != expected.keys():
            keys, wanted = ", ".join(map(str, value)), ", ".join(map(str, expected))
            raise Unusable("wrong-shape", f"returned a dict with keys {keys}; return {wanted}")
        return {key: _in_form_of(expected[key], value[key]) for key in expected}
    form = f"an array of shape {expected.shape}" if expected.shape else "a number"
    try:
        found = np.asarray(_numbers([value] if isinstance(value, Mapping) else value))
    except (TypeError, ValueError):
        raise Unusable("wrong-type", f"returned {_kind(value)}; return {form}") from None
    if found.shape != expected.shape:
        raise Unusable("wrong-shape", f"returned an array of shape {found.shape}; return {form}")
    return found


def equal(one: Any, other: Any) -> bool:
    """Return whether two outputs are equal, up to rounding."""
    if isinstance(one, Mapping):
        return all(equal(one[key], other[key]) for key in one)
    return bool(np.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True))


def _kind(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _text(value: Any) -> str:
    """Return a value as text for a reader."""
    if isinstance(value, Mapping):
        entries = [f"{key}: {_text(each)}" for key, each in value.items()]
        return "{" + (", " if sum(map(len, entries)) < 60 else ",\n ").join(entries) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, bool | int | float | np.ndarray | np.generic):
        array = np.asarray(value)
        if array.shape:
            return np.array2string(
                array, 60, precision=4, suppress_small=True, separator=", ", threshold=80
            )
        return str(bool(value)) if array.dtype.kind == "b" else f"{float(value):.6g}"
    return one_line(value.__name__ if inspect.isroutine(value) else value)


# --- The answer's own code -----------------------------------------------------------------------


def _run(
    exercise: Exercise, source: _Source, expected: Sequence[Any], limit_s: float
) -> list[tuple[Any, dict[str, str]]] | Finding:
    """Return output and shown values of an answer on each probe, or the reason for their absence.

    The answer runs in a thread, which is stopped after ``limit_s`` seconds.
    """
    runs: list[tuple[Any, dict[str, str]]] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = source.load()
                probes = zip(exercise.probes(), exercise.probes(), expected, strict=True)
                for probe, fresh, right in probes:
                    output = _in_form_of(right, exercise.use(answer, probe))
                    shown = exercise.show(answer, fresh)
                    runs.append((output, {name: _text(value) for name, value in shown.items()}))
        except BaseException as error:  # sys.exit() in the answer, too
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    with contextlib.redirect_stdout(sys.stderr):
        thread.start()
        thread.join(limit_s)
    if errors:
        return source.finding(errors[0])
    if not thread.is_alive():
        return runs
    assert thread.ident is not None
    frame = sys._current_frames().get(thread.ident)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
    )
    line = source.line_in(frame)
    return Finding("too-slow", f"no result after {limit_s:g} s", line, source.code(line))


class _Source:
    """A user's answer and its file."""

    def __init__(self, answer: str | Path | Answer, function: str) -> None:
        self.function = function
        self.loaded: Answer | None = None
        if callable(answer):
            self.loaded, code = answer, inspect.unwrap(answer)
            self.file = inspect.getsourcefile(code) or ""
        else:
            self.file = str(Path(answer).resolve())

    def load(self) -> Answer:
        """Return the function or class. Raises Unusable, and any error of the file."""
        if self.loaded is None:
            found = named_object(f"{self.file}:{self.function}", "answer")
            if not callable(found):
                raise Unusable("no-function", f"{self.function} is {_kind(found)}")
            self.loaded = found
        return self.loaded

    def finding(self, error: BaseException) -> Finding:
        """Return the finding for an error of the answer."""
        lines = [
            line
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename == self.file
        ]
        if isinstance(error, SyntaxError) and error.filename == self.file:
            lines.append(error.lineno or 1)
        message = one_line(
            f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        )
        message = " ".join([message, *vars(error).get("__notes__", ())])
        name: FindingName = "not-imported" if self.loaded is None else "raised"
        if isinstance(error, Unusable):
            name, message = error.name, str(error)
        elif isinstance(error, UnknownNameError) and self.loaded is None and not lines:
            name, message = "no-function", str(error)
        elif isinstance(error, TypeError) and not lines:
            name = "signature"
        line = lines[-1] if lines else self.line_of_answer()
        return Finding(name, message, line, self.code(line))

    def line_of_answer(self) -> int | None:
        try:
            return None if self.loaded is None else inspect.getsourcelines(self.loaded)[1]
        except (OSError, TypeError):  # no source, as in an interactive session
            return None

    def line_in(self, frame: FrameType | None) -> int | None:
        """Return the line of the file that a frame, or a caller of it, executes."""
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        return None if frame is None else frame.f_lineno

    def code(self, line: int | None) -> str:
        return "" if line is None else linecache.getline(self.file, line).strip()
