"""All errors and warnings that corral raises on purpose.

CorralError
├── TraceError (ValueError)            a load trace violates its format
├── StepsError (ValueError)            recorded steps violate their format
├── ScaleError (ValueError)            a trace exceeds load_scale or capacity_scale
├── ActionError (ValueError)           an action is malformed: type, shape, range, agent
│   └── IllegalActionError             well formed, but masked out, with illegal="raise"
├── MaskError (ValueError)             a mask allows no action, or is malformed
├── ResetNeededError (RuntimeError)    step, observe or render before reset
├── FileError (OSError)                a file is not regular, is too large, or is behind a link
├── CheckpointError (ValueError)       a checkpoint is damaged, foreign, or could not be saved
├── OptimumError (RuntimeError)        the solver of a linear program found no optimum
├── InfeasibleError (ValueError)       an exact result is out of reach at this size
├── SizeError (ValueError)             a size needs more than the free memory
├── UnknownNameError (ValueError)      no environment, trace or policy has this name
├── ArgumentError (TypeError)          an argument, setting or field is unknown or of a wrong type
├── UnsupportedSpaceError (TypeError)  an adapter does not support a space
├── MissingExtraError (ImportError)    an optional dependency is not installed
├── RunError (ValueError)              a folder holds no run, or cannot hold a new one
│   ├── EnvNeededError                 a run needs its third-party environment to be passed
│   ├── ModelNeededError               a run needs its custom network to be passed
│   └── StudyError                     a folder holds a damaged or a different study
├── ModelError (ValueError)            a custom network cannot be created, played or trained
├── AlgorithmError (ValueError)        a loss or other function of an algorithm is invalid
├── ConfigError (ValueError)           a configuration file does not describe a valid run
├── NonFiniteError (RuntimeError)      training met a number that is not finite
├── EnvironmentFault (RuntimeError)    a third-party environment violates PettingZoo's API
├── ListenerError (TypeError)          a callback, metric or sink is invalid
├── CallbackError (RuntimeError)       a user's callback, metric or sink raised in training
├── ConformanceError (AssertionError)  check_env found errors in an environment
└── WorkerError (RuntimeError)         a worker process failed, died or hung

IllegalActionWarning (UserWarning)     a policy ignores its action mask
TraceWarning (UserWarning)             a trace file is usable, but not clean
"""

from __future__ import annotations

import functools
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from corral.hints import hint
from corral.text import shortened

__all__ = [
    "ActionError",
    "AlgorithmError",
    "ArgumentError",
    "CallbackError",
    "CheckpointError",
    "ConfigError",
    "ConformanceError",
    "CorralError",
    "EnvNeededError",
    "EnvironmentFault",
    "Fault",
    "FileError",
    "IllegalActionError",
    "IllegalActionWarning",
    "InfeasibleError",
    "ListenerError",
    "MaskError",
    "MissingExtraError",
    "ModelError",
    "ModelNeededError",
    "NonFiniteError",
    "OptimumError",
    "PoolError",
    "ResetNeededError",
    "RunError",
    "ScaleError",
    "SizeError",
    "StepFault",
    "StepsError",
    "StudyError",
    "TraceError",
    "TraceWarning",
    "UnknownNameError",
    "UnsupportedSpaceError",
    "WorkerError",
    "concise",
    "foreign_place",
    "show_tracebacks",
]


MANY = 12
"""Maximum number of names that a message lists next to the nearest one."""


class CorralError(Exception):
    """Base class of all errors that corral raises on purpose. Long values are shortened."""

    def __str__(self) -> str:
        return shortened(super().__str__())


@dataclass(frozen=True)
class Fault:
    """A fault in a trace file, with its remedy.

    ``line`` counts from 1 and includes the header. It is None if the fault concerns no single line.
    """

    file: str
    rule: str  # fault and remedy in one sentence
    line: int | None = None
    column: str | None = None
    value: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        column = "" if self.column is None else f" column {shortened(self.column, 200)!r}:"
        value = "" if self.value is None else f" {shortened(self.value, 200)!r}:"
        return f"{place}:{column}{value} {self.rule}"


class TraceError(CorralError, ValueError):
    """A load trace violates its format; ``faults`` holds the first few faults."""

    def __init__(self, faults: Sequence[Fault], *, more: bool = False) -> None:
        self.faults = tuple(faults)
        lines = [str(fault) for fault in self.faults]
        if more:
            lines.append("... and more faults after these")
        super().__init__("\n".join(lines))
        self._more = more

    def __reduce__(self) -> tuple[object, ...]:  # keyword-only arguments do not pickle by default
        return functools.partial(type(self), more=self._more), (self.faults,)


class AlgorithmError(CorralError, ValueError):
    """A function of an algorithm returns an invalid value."""


class ArgumentError(CorralError, TypeError):
    """An argument, setting or field is unknown or of a wrong type."""


@dataclass(frozen=True)
class StepFault:
    """A fault in recorded steps: its place, the violated rule and the remedy."""

    file: str
    entry: str
    rule: str
    index: int | None = None  # of the first invalid row, from 0; None: the whole entry

    def __str__(self) -> str:
        at = "" if self.index is None else f"[{self.index}]"
        return f"{self.file}: {shortened(self.entry, 200)}{at}: {self.rule}"


class StepsError(CorralError, ValueError):
    """Recorded steps violate their format; ``faults`` holds all faults."""

    def __init__(self, faults: Sequence[StepFault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.faults,)


class ScaleError(CorralError, ValueError):
    """A trace exceeds the environment's load_scale or capacity_scale."""


class ActionError(CorralError, ValueError):
    """An action is malformed: wrong type, shape, range or agent. The state has not changed."""


class IllegalActionError(ActionError):
    """A well-formed action is masked out, with ``illegal="raise"``. The state has not changed."""


class MaskError(CorralError, ValueError):
    """An action mask allows no action, or does not fit the logits that it masks."""


class ResetNeededError(CorralError, RuntimeError):
    """The environment was used before ``reset``, or after its episode ended."""


class FileError(CorralError, OSError):
    """A file is refused: it is a pipe or a device, is too large, or is behind a link."""


class CheckpointError(CorralError, ValueError):
    """A checkpoint is damaged or foreign, or was not saved. Earlier checkpoints are unchanged."""


class PoolError(CorralError, ValueError):
    """A pool of frozen snapshots is empty, damaged or modified."""


class OptimumError(CorralError, RuntimeError):
    """The solver found no optimum; the message contains its status."""


class InfeasibleError(CorralError, ValueError):
    """An exact result needs too much time or memory; the message states the limit."""


class SizeError(CorralError, ValueError):
    """A size needs more memory than is free; the message names it. Nothing was allocated."""


class UnknownNameError(CorralError, ValueError):
    """No environment, trace or policy has this name; the message suggests close matches."""

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
        """Return the error for the unknown ``name`` of a ``kind``, with the nearest of ``known``.

        If there is a near match, a long list of known names is left out.
        """
        names = sorted(known)
        near = hint(name, names)
        rest = f"There are {len(names)} names." if near != "." and len(names) > MANY else ""
        rest = rest or f"Known: {', '.join(names)}"
        return cls(f"no {kind} named {shortened(name, 200)!r}{near} {rest}")


class UnsupportedSpaceError(CorralError, TypeError):
    """An adapter does not support an observation or action space.

    ``reason`` is the part of the message that explains the error, without the alternatives.
    """

    reason = ""

    @classmethod
    def of(cls, reason: str, otherwise: str) -> UnsupportedSpaceError:
        """Return the error with the reason, followed by sentences about alternatives."""
        error = cls(f"{reason}. {otherwise}")
        error.reason = reason
        return error


class MissingExtraError(CorralError, ImportError):
    """An optional dependency is not installed; the message names the extra that installs it."""


class MissingPartError(CorralError, ImportError):
    """A part of corral is not installed: ``corral.loads`` and ``corral.lab`` are optional."""


class RunError(CorralError, ValueError):
    """A folder holds no readable run, or is not empty although a new run needs it."""


class ConfigError(CorralError, ValueError):
    """A configuration file cannot be read, or does not describe a valid run."""


class EnvNeededError(RunError):
    """A run was trained in a third-party environment, which must be passed to read the run.

    ``env`` is the environment's name for itself.
    """

    def __init__(self, message: str, env: str) -> None:
        super().__init__(message)
        self.env = env


class ModelNeededError(RunError):
    """A run was trained with a custom network, which must be passed to read the run."""


class StudyError(RunError):
    """A folder holds a damaged study, or a study of something else."""


class ModelError(CorralError, ValueError):
    """A custom network cannot be created, returns invalid values, or loses gradients."""


class NonFiniteError(CorralError, RuntimeError):
    """Training met a NaN or an infinity. Training stops without saving."""


class EnvironmentFault(CorralError, RuntimeError):
    """A third-party environment violates PettingZoo's API or its own spaces.

    ``seen`` and ``advice`` are parts of the message if the environment belongs to
    ``corral.envs.others``, else they are empty.
    """

    seen = advice = ""

    @classmethod
    def of(cls, name: str, seen: str, advice: str) -> EnvironmentFault:
        """Return the error of the environment ``name``: what happened, and the remedy."""
        fault = cls(f"{name}: {seen}; {advice}")
        fault.seen, fault.advice = seen, advice
        return fault


class ListenerError(CorralError, TypeError):
    """A callback, metric or sink has the wrong type, or a misspelled method."""


class CallbackError(CorralError, RuntimeError):
    """A user's callback, metric or sink raised; the message names it and the update."""


class ConformanceError(CorralError, AssertionError):
    """``check_env`` found errors in an environment; the message is the full report."""


class WorkerError(CorralError, RuntimeError):
    """A worker process raised, died or hung. All workers have been terminated.

    ``copy`` is the index of the failed environment copy, or the worker's first copy if the failed
    one is unknown. ``seed`` is the seed of the copy's first ``reset``. ``actions`` holds the last
    action of each agent in the copy. ``traceback`` is the worker's traceback. All may be None.
    """

    def __init__(
        self,
        message: str,
        *,
        copy: int | None = None,
        seed: int | None = None,
        actions: Mapping[str, object] | None = None,
        traceback: str | None = None,
    ) -> None:
        super().__init__(message)
        self.copy = copy
        self.seed = seed
        self.actions = actions
        self.traceback = traceback


class IllegalActionWarning(UserWarning):
    """A policy played a masked action, so it ignores ``observation["action_mask"]``."""


class TraceWarning(UserWarning):
    """A trace file was read in full, but it has oddities such as unsorted rows."""


# --- Tracebacks ----------------------------------------------------------------------------------

show_tracebacks = ContextVar("show_tracebacks", default=False)
"""Set to True, as by --traceback, it keeps all lines of every traceback in this thread."""

P = ParamSpec("P")
T = TypeVar("T")


def concise(function: Callable[P, T]) -> Callable[P, T]:
    """Return ``function`` with short tracebacks: those of refusals end at the user's call.

    A refusal is an error of a ``raise`` statement of corral: its message names the mistake and the
    remedy. So is a KeyboardInterrupt that corral raises after saving. Errors from third-party code
    on the way, and faults of corral itself, keep all lines. A cause, such as an error in the user's
    network, is kept. A call in an ``except`` or ``finally`` block keeps all lines too, because a
    shorter traceback would hide the error before it.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        handled = sys.exception()
        try:
            return function(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            if handled is not None or show_tracebacks.get() or not _is_refusal(error):
                raise
            raise error.with_traceback(None) from error.__cause__

    return call


def _is_refusal(error: BaseException) -> bool:
    """Return True if a ``raise`` statement of corral raised ``error`` without third-party code."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    statement = linecache.getline(frame.f_code.co_filename, line).strip()
    module = str(frame.f_globals.get("__name__", ""))
    refused = module.startswith("corral.") and statement.startswith("raise ")
    return refused and foreign_place(error) is None


def foreign_place(error: BaseException) -> str | None:
    """Return file and line of the innermost third-party code in an error's traceback, or None.

    Third-party code is outside corral, Python and the libraries that corral calls. The cause of
    the error is not examined, because an error that corral raises from it repeats its message.
    """
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        module = str(frame.f_globals.get("__name__", ""))
        typed = module == "__main__"  # in a console or a notebook, also with a file such as <stdin>
        if not (f"{module}.".startswith(OWN) or file.startswith("<")) or typed:
            place = f"{file}:{line}"
    if isinstance(error, SyntaxError) and error.filename:  # no frame: the file was not executed
        place = f"{error.filename}:{error.lineno}"
    return place


CALLED = (
    *("PIL", "gymnasium", "imageio_ffmpeg", "numpy", "pandas", "pettingzoo.utils", "pygame"),
    *("ray", "rich", "safetensors", "sb3_contrib", "scipy", "stable_baselines3", "supersuit"),
    *("tensorboard", "torch", "typer"),
)
OWN = ("corral.", *(f"{name}." for name in (*CALLED, *sys.stdlib_module_names)))
"""Packages that raise errors for invalid values which a user passed to corral."""
