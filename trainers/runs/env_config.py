"""What is learned: an environment with all its arguments, and the part that is held out."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corral.data import Trace, bundled, load_trace, read_trace, write_trace
from corral.envs.core import Array, Rules
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.registry import REGISTERED, env_spec, make_rules, rules_class
from corral.errors import Fault, RunError, TraceError

__all__ = ["HELD_OUT", "Task"]

HELD_OUT = 0.3
"""The share of a trace's rows, its last ones, that training does not see."""

TRACE_FILE = "trace.csv.gz"

ARRAYS = frozenset({"templates"})
"""Arguments that are arrays, as the rules hold them: a run keeps them in files of their own."""

GIVEN_BY_TRAINING = {"illegal": "raise", "keep_flow": False}
"""A trainer that plays an illegal action has lost a mask: that must end it, not be counted."""


@dataclass(frozen=True)
class Task:
    """An environment by name with its arguments, or rules of one's own.

    ``held_out`` holds the arguments that differ where what was learned is judged.
    """

    environment: str
    arguments: dict[str, Any]
    held_out: dict[str, Any] = field(default_factory=dict)
    own_rules: Rules[Any] | None = None

    @classmethod
    def of(
        cls,
        environment: str | Rules[Any],
        env: Mapping[str, Any] | None = None,
        held_out: float | tuple[int, int] | None = None,
    ) -> Task:
        """The task of training in ``environment`` with arguments ``env``.

        In dfaas_v0 training sees the first rows of the trace and is judged on the others:
        ``held_out`` is their share (default 0.3, of the last), or the rows themselves (low, high).
        Where ``env`` has ``rows``, those are trained on, and what follows them is held out. Scales
        are fixed here, from the whole trace, so that no later load changes a space.

        Raises UnknownNameError, and what the environment raises for its arguments.
        """
        given = dict(env or {})
        if not isinstance(environment, str):
            if given or held_out is not None:
                raise ValueError("env and held_out need an environment's name, not rules")
            if environment.name in REGISTERED:
                raise ValueError(
                    f"rules of {environment.name}: give the name {environment.name!r} and its "
                    "arguments as env=, so that the run can be read back"
                )
            return cls(environment.name, {}, {}, environment)
        env_spec(environment)  # an unknown name is answered with the nearest
        rules = make_rules(environment, **{**given, **_given_by_training(environment)})
        arguments = _all_arguments(type(rules), given)
        if not isinstance(rules, DfaasRules):
            if held_out is not None:
                raise ValueError(f"held_out={held_out}: {environment} has no rows to hold out")
            for name in ARRAYS & set(given):
                if given[name] is not None:  # a file of them may change, or go
                    arguments[name] = getattr(rules, name)
            return cls(environment, arguments)
        train, test = _split(rules, given.get("rows"), held_out)
        arguments |= {
            "trace": load_trace(given.get("trace", arguments["trace"])),
            "rows": train,
            "load_scale": rules.load_scale,
            "capacity_scale": rules.capacity_scale,
        }
        return cls(environment, arguments, {"rows": test})

    def rules(self, **changes: Any) -> Rules[Any]:
        """The rules as trained on, with illegal="raise"; ``changes`` replace arguments."""
        if self.own_rules is not None:
            return self.own_rules
        fixed = _given_by_training(self.environment)
        return make_rules(self.environment, **{**self.arguments, **fixed, **changes})

    @property
    def trace(self) -> Trace | None:
        """The load, where the environment replays one."""
        trace = self.arguments.get("trace")
        return trace if isinstance(trace, Trace) else None

    # --- As JSON ---------------------------------------------------------------------------------

    def write(self, folder: Path) -> dict[str, Any]:
        """JSON values from which ``read`` makes the same task; ``folder`` gets a copy of a trace
        that does not come with the package, so that a run needs no other file."""
        arguments = dict(self.arguments)
        if self.trace is not None:
            named = {"name": self.trace.name, "digest": self.trace.digest}
            if self.trace.name not in bundled() or load_trace(self.trace.name) != self.trace:
                if not (folder / TRACE_FILE).exists():
                    write_trace(self.trace, folder / TRACE_FILE)
                named["file"] = TRACE_FILE
            arguments["trace"] = named
        for name in ARRAYS & set(arguments):
            if arguments[name] is not None:
                array = np.ascontiguousarray(arguments[name])
                file = f"{name}.npy"
                if not (folder / file).exists():
                    np.save(folder / file, array, allow_pickle=False)
                arguments[name] = {"file": file, "digest": _digest(array)}
        return {
            "environment": self.environment,
            "arguments": arguments,
            "held_out": dict(self.held_out),
        }

    @classmethod
    def read(cls, saved: Mapping[str, Any], folder: Path, rules: Rules[Any] | None = None) -> Task:
        """What ``write`` wrote. ``rules`` are needed where training was given rules.

        Raises TraceError where the load is not the one that was trained on, RunError where rules
        are missing, or are others.
        """
        environment, arguments = saved["environment"], dict(saved["arguments"])
        if rules is not None and rules.name != environment:
            raise RunError(
                f"{folder} was trained on {environment}, the rules given are {rules.name}"
            )
        if environment not in REGISTERED:
            if rules is None:
                raise RunError(
                    f"{folder} was trained on rules of one's own, {environment}: make them again, "
                    "and give them to corral.load_run(folder, rules)"
                )
            return cls(environment, {}, {}, rules)
        if isinstance(named := arguments.get("trace"), dict):
            trace = (
                read_trace(folder / named["file"]) if "file" in named else load_trace(named["name"])
            )
            if trace.digest != named["digest"]:
                file = str(folder / named["file"]) if "file" in named else named["name"]
                rule = (
                    f"this is not the load that the run was trained on: its digest is "
                    f"{trace.digest[:12]}..., the run's {named['digest'][:12]}..."
                )
                raise TraceError([Fault(file=file, rule=rule)])
            arguments["trace"] = dataclasses.replace(trace, name=named["name"])
        for name in ARRAYS & set(arguments):
            if isinstance(named := arguments[name], dict):
                arguments[name] = _read_array(folder / named["file"], named["digest"])
        for place in (arguments, held_out := dict(saved["held_out"])):
            if place.get("rows") is not None:
                place["rows"] = tuple(place["rows"])
        return cls(environment, arguments, held_out)


def _digest(array: Array) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def _read_array(path: Path, digest: str) -> Array:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}. The run needs it") from error
    found = _digest(np.ascontiguousarray(array))
    if found != digest:
        raise RunError(
            f"{path} is not what the run was trained on: its digest is {found[:12]}..., the run's "
            f"{digest[:12]}..."
        )
    return np.asarray(array)


def _given_by_training(environment: str) -> dict[str, Any]:
    """Those that the environment's rules take."""
    taken = inspect.signature(rules_class(environment)).parameters
    return {name: value for name, value in GIVEN_BY_TRAINING.items() if name in taken}


def _all_arguments(rules: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Also those left at their defaults: a later default must not change what a run is."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(rules).parameters.items()
        if name not in GIVEN_BY_TRAINING
    }
    return {**defaults, **{k: v for k, v in given.items() if k not in GIVEN_BY_TRAINING}}


def _split(
    rules: DfaasRules, rows: Any, held_out: float | tuple[int, int] | None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """The rows to train on, and those to be judged on."""
    length = len(rules.trace)
    if isinstance(held_out, tuple | list):
        low, high = held_out if len(held_out) == 2 else (0, 0)
        if not 0 <= low < high <= length:
            raise ValueError(f"held_out={held_out}: give rows (low, high) within 0..{length}")
        if rows is None:
            if low == 0:
                raise ValueError(f"held_out={held_out} leaves no rows before it; give rows as well")
            return (0, low), (low, high)
        return rules.rows, (low, high)
    if rows is not None:
        if held_out is not None:
            raise ValueError("give rows, or a share that is held_out, not both")
        # With nothing after them, they are judged on themselves; evaluation says so.
        return rules.rows, (rules.rows[1], length) if rules.rows[1] < length else rules.rows
    share = HELD_OUT if held_out is None else float(held_out)
    if not 0 <= share < 1:
        raise ValueError(f"held_out={held_out}: give a share of 0 or more, below 1, or rows")
    first = max(1, int((1 - share) * length + 1e-9))
    return (0, first), (first, length) if first < length else (0, length)
