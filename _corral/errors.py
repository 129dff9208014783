"""Every error and warning that corral raises on purpose.

CorralError
├── TraceError (ValueError)            a load trace breaks the rules of its format
├── StepsError (ValueError)            recorded steps break the rules of their format
├── ScaleError (ValueError)            a trace exceeds load_scale or capacity_scale
├── ActionError (ValueError)           an action is malformed: type, shape, range, agent
│   └── IllegalActionError             well formed, but masked out, under illegal="raise"
├── MaskError (ValueError)             a mask leaves no action to choose, or is no mask
├── ResetNeededError (RuntimeError)    step, observe or render before reset
├── FileError (OSError)                a file that is none, is too large, or lies behind a link
├── CheckpointError (ValueError)       a checkpoint is damaged, foreign, or could not be saved
├── OptimumError (RuntimeError)        the solver of a linear program found no optimum
├── InfeasibleError (ValueError)       an exact answer is out of reach at this size
├── SizeError (ValueError)             a size takes more memory than is free
├── UnknownNameError (ValueError)      no environment, trace or policy of that name
├── ArgumentError (TypeError)          an argument, setting or field that is not known, or none
├── UnsupportedSpaceError (TypeError)  an adapter met a space that it does not handle
├── MissingExtraError (ImportError)    an optional dependency is not installed
├── RunError (ValueError)              a folder holds no run, or cannot take one
│   ├── EnvNeededError                 a run of an environment of others, which must be given
│   ├── ModelNeededError               a run with a network of one's own, which must be given
│   └── StudyError                     a folder holds a damaged study, or another one
├── ModelError (ValueError)            a network of one's own cannot be made, played or learned
├── AlgorithmError (ValueError)        a loss, or another function of an algorithm, is none
├── ConfigError (ValueError)           a configuration file holds what no run can be made of
├── NonFiniteError (RuntimeError)      training met a number that is not finite
├── EnvironmentFault (RuntimeError)    a third-party environment breaks PettingZoo's rules
├── ListenerError (TypeError)          what is given as a callback, metric or sink is none
├── CallbackError (RuntimeError)       a callback, metric or sink of the user's raised in training
├── ConformanceError (AssertionError)  check_env found errors in an environment
└── WorkerError (RuntimeError)         a worker process failed, died or hung

IllegalActionWarning (UserWarning)     a policy ignores its action mask
TraceWarning (UserWarning)             a trace file is usable, but not as tidy as it should be
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
]


MANY = 12
"""Names that a message lists beside the nearest one."""


class CorralError(Exception):
    """Root of every error that corral raises on purpose; giant values in it are cut."""

    def __str__(self) -> str:
        return shortened(super().__str__())


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a trace file, and what to do about it.

    ``line`` counts from 1 and includes the header; None where no single line is to blame.
    """

    file: str
    rule: str  # what is wrong and what to do, in one sentence
    line: int | None = None
    column: str | None = None
    value: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        column = "" if self.column is None else f" column {shortened(self.column, 200)!r}:"
        value = "" if self.value is None else f" {shortened(self.value, 200)!r}:"
        return f"{place}:{column}{value} {self.rule}"


class TraceError(CorralError, ValueError):
    """A load trace breaks the rules of its format; ``faults`` holds the first few faults."""

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
    """A function of an algorithm returns what nothing can be learned from."""


class ArgumentError(CorralError, TypeError):
    """An argument, a setting or a field that is not known, or of a type that is not taken."""


@dataclass(frozen=True)
class StepFault:
    """One thing that is wrong with recorded steps: where, what it is, and what to do about it."""

    file: str
    entry: str
    rule: str
    index: int | None = None  # of the first wrong row, from 0; None: the whole entry

    def __str__(self) -> str:
        at = "" if self.index is None else f"[{self.index}]"
        return f"{self.file}: {shortened(self.entry, 200)}{at}: {self.rule}"


class StepsError(CorralError, ValueError):
    """Recorded steps break the rules of their format; ``faults`` holds all that were found."""

    def __init__(self, faults: Sequence[StepFault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.faults,)


class ScaleError(CorralError, ValueError):
    """A trace exceeds the environment's load_scale or capacity_scale."""


class ActionError(CorralError, ValueError):
    """An action is malformed: wrong type, shape, range or agent. Nothing was changed."""


class IllegalActionError(ActionError):
    """A well-formed action is masked out, under ``illegal="raise"``. Nothing was changed."""


class MaskError(CorralError, ValueError):
    """An action mask leaves nothing to choose from, or does not fit the logits that it masks."""


class ResetNeededError(CorralError, RuntimeError):
    """The environment was used before ``reset``, or after its episode ended."""


class FileError(CorralError, OSError):
    """A file is not opened: it is a pipe or a device, too large, or lies behind a link."""


class CheckpointError(CorralError, ValueError):
    """A checkpoint is damaged or foreign, or one could not be saved; earlier ones are untouched."""


class PoolError(CorralError, ValueError):
    """A pool of frozen snapshots is empty, damaged, or no longer what it was."""


class OptimumError(CorralError, RuntimeError):
    """The solver found no optimum; the message holds its status."""


class InfeasibleError(CorralError, ValueError):
    """An exact answer takes too long, or too much memory; the message says where the bound is."""


class SizeError(CorralError, ValueError):
    """A size takes more memory than is free; the message names it. Nothing was taken."""


class UnknownNameError(CorralError, ValueError):
    """No environment, trace or policy of that name; the message suggests close matches."""

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
        """An error for the unknown ``name`` of a ``kind``, with the nearest of ``known``.

        Where there is a nearest one, a long list of all the others is left out.
        """
        names = sorted(known)
        near = hint(name, names)
        rest = f"There are {len(names)}." if near != "." and len(names) > MANY else ""
        rest = rest or f"Known: {', '.join(names)}"
        return cls(f"no {kind} named {shortened(name, 200)!r}{near} {rest}")


class UnsupportedSpaceError(CorralError, TypeError):
    """An adapter met an observation or action space that it does not handle.

    ``reason`` is the part of the message that says why, where the rest tells of other ways.
    """

    reason = ""

    @classmethod
    def of(cls, reason: str, otherwise: str) -> UnsupportedSpaceError:
        """Return the error: why it is refused, and in further sentences what else can be done."""
        error = cls(f"{reason}. {otherwise}")
        error.reason = reason
        return error


class MissingExtraError(CorralError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class MissingPartError(CorralError, ImportError):
    """A part of corral is not installed: ``corral.loads`` and ``corral.lab`` may be left out."""


class RunError(CorralError, ValueError):
    """A folder holds no run that can be read, or holds something where a run should go."""


class ConfigError(CorralError, ValueError):
    """A configuration file cannot be read, or holds what no run can be made of."""


class EnvNeededError(RunError):
    """A run was trained in an environment of others: who reads it names that again.

    ``env`` is what the environment calls itself.
    """

    def __init__(self, message: str, env: str) -> None:
        super().__init__(message)
        self.env = env


class ModelNeededError(RunError):
    """A run was trained with a network of one's own: who reads it names that again."""


class StudyError(RunError):
    """A folder holds a study that is damaged, or one of something else."""


class ModelError(CorralError, ValueError):
    """A network of a user's own cannot be made, returns what does not fit, or loses gradients."""


class NonFiniteError(CorralError, RuntimeError):
    """Training met a NaN or an infinity; it stops before anything is saved."""


class EnvironmentFault(CorralError, RuntimeError):
    """A third-party environment breaks PettingZoo's rules, or its own spaces.

    ``seen`` and ``advice`` are parts of the message where the environment is one of
    ``corral.envs.others``, else empty.
    """

    seen = advice = ""

    @classmethod
    def of(cls, name: str, seen: str, advice: str) -> EnvironmentFault:
        """Return the fault of the environment ``name``: what was seen, and what to do."""
        fault = cls(f"{name}: {seen}; {advice}")
        fault.seen, fault.advice = seen, advice
        return fault


class ListenerError(CorralError, TypeError):
    """What is given as a callback, a metric or a sink is none, or has a method of a wrong name."""


class CallbackError(CorralError, RuntimeError):
    """A callback, metric or sink of the user's raised; the message names it, and the update."""


class ConformanceError(CorralError, AssertionError):
    """``check_env`` found errors in an environment; the message is the whole report."""


class WorkerError(CorralError, RuntimeError):
    """A worker process raised, died or hung; all of them have been ended.

    ``copy`` is the copy it was at (the first of its copies, where it was at none), ``seed`` what
    the copy's first ``reset`` was given, ``actions`` what each agent last played in it,
    ``traceback`` the worker's own; None where there is none.
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
    """A policy played a masked action: it ignores ``observation["action_mask"]``."""


class TraceWarning(UserWarning):
    """A trace file was read in full, but something in it deserves a look, such as unsorted rows."""
