"""An environment with all its arguments, and the part of it that evaluation plays."""

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
from corral.envs.core import Array, Rules, split_of
from corral.envs.registry import REGISTERED, env_spec, make_rules, rules_class
from corral.errors import Fault, RunError, TraceError

__all__ = ["SET_BY_TRAINING", "EnvConfig"]

SET_BY_TRAINING = {"illegal": "raise", "keep_flow": False}
"""Arguments that training sets: a trainer that plays an illegal action has lost a mask, and that
must end training, not be counted."""


@dataclass(frozen=True)
class EnvConfig:
    """An environment by name with its arguments, or rules of one's own.

    ``held_out`` holds the arguments that differ in evaluation.
    """

    env: str
    env_kwargs: dict[str, Any]
    held_out: dict[str, Any] = field(default_factory=dict)
    own_rules: Rules[Any] | None = None

    @classmethod
    def of(
        cls,
        env: str | Rules[Any],
        env_kwargs: Mapping[str, Any] | None = None,
        held_out: float | tuple[int, int] | None = None,
    ) -> EnvConfig:
        """Return the configuration that trains in ``env`` with arguments ``env_kwargs``.

        Where the rules split their data (see ``corral.envs.core.split_of``), ``held_out`` says
        which of its rows are for evaluation: a share of the last, or rows (low, high). Arguments
        left at their defaults are written down too: a later default must not change a run.

        Raises UnknownNameError, and what the environment raises for its arguments.
        """
        kwargs = dict(env_kwargs or {})
        if not isinstance(env, str):
            if kwargs or held_out is not None:
                raise ValueError("env_kwargs and held_out need an environment's name, not rules")
            if env.name in REGISTERED:
                raise ValueError(
                    f"rules of {env.name}: give the name {env.name!r} and its arguments as "
                    "env_kwargs=, so that the run can be read back"
                )
            return cls(env.name, {}, {}, env)
        env_spec(env)  # an unknown name is answered with the nearest
        rules = make_rules(env, **{**kwargs, **_set_by_training(env)})
        parameters = inspect.signature(type(rules)).parameters.items()
        complete = {name: parameter.default for name, parameter in parameters} | kwargs
        complete = {k: value for k, value in complete.items() if k not in SET_BY_TRAINING}
        split = split_of(rules, kwargs.get("rows"), held_out)
        if split is None and held_out is not None:
            raise ValueError(f"held_out={held_out}: {env} has no rows to hold out")
        loaded: dict[str, Any] = {}  # files that are named may change, or go
        for name, value in complete.items():
            used = getattr(rules, name, None)
            if isinstance(used, Trace):
                loaded[name] = load_trace(value)  # the rules may have completed theirs
            elif isinstance(used, np.ndarray) and value is not None:
                loaded[name] = used
        if split is None:
            return cls(env, complete | loaded)
        return cls(env, complete | split.train | loaded, split.held_out)

    def rules(self, **changes: Any) -> Rules[Any]:
        """Return the rules of training, with illegal="raise"; ``changes`` replace arguments."""
        if self.own_rules is not None:
            return self.own_rules
        return make_rules(self.env, **{**self.env_kwargs, **_set_by_training(self.env), **changes})

    @property
    def trace(self) -> Trace | None:
        """The load, where the environment replays one."""
        return next((v for v in self.env_kwargs.values() if isinstance(v, Trace)), None)

    # --- As JSON ---------------------------------------------------------------------------------

    def write(self, folder: Path) -> dict[str, Any]:
        """Return JSON values from which ``read`` makes the same configuration.

        Traces and arrays go to files of ``folder``, so that a run needs no file elsewhere; a trace
        that comes with the package is named instead.
        """
        kwargs = {name: _write(name, value, folder) for name, value in self.env_kwargs.items()}
        return {"env": self.env, "env_kwargs": kwargs, "held_out": dict(self.held_out)}

    @classmethod
    def read(
        cls, saved: Mapping[str, Any], folder: Path, rules: Rules[Any] | None = None
    ) -> EnvConfig:
        """Make a configuration of what ``write`` returned, with ``rules`` where it had them.

        Raises TraceError where the load is not the one that was trained on, RunError where an
        array is not, and where rules are missing or are others.
        """
        env = saved["env"]
        if rules is not None and rules.name != env:
            raise RunError(f"{folder} was trained on {env}, the rules given are {rules.name}")
        if env not in REGISTERED:
            if rules is None:
                raise RunError(
                    f"{folder} was trained on rules of one's own, {env}: make them again, "
                    "and give them to corral.load_run(folder, rules)"
                )
            return cls(env, {}, {}, rules)
        kwargs = {name: _read(value, folder) for name, value in saved["env_kwargs"].items()}
        held_out = dict(saved["held_out"])
        for arguments in (kwargs, held_out):
            if arguments.get("rows") is not None:
                arguments["rows"] = tuple(arguments["rows"])
        return cls(env, kwargs, held_out)


def _set_by_training(env: str) -> dict[str, Any]:
    """Return those of SET_BY_TRAINING that the environment's rules take."""
    parameters = inspect.signature(rules_class(env)).parameters
    return {name: value for name, value in SET_BY_TRAINING.items() if name in parameters}


# --- Values with files of their own --------------------------------------------------------------


def _write(name: str, value: Any, folder: Path) -> Any:
    """Return a JSON value for argument ``name``; traces and arrays are written to files."""
    if isinstance(value, Trace):
        saved = {"type": "trace", "name": value.name, "digest": value.digest}
        if value.name in bundled() and load_trace(value.name) == value:
            return saved
        file = f"{name}.csv.gz"
        if not (folder / file).exists():
            write_trace(value, folder / file)
        return {**saved, "file": file}
    if isinstance(value, np.ndarray):
        array, file = np.ascontiguousarray(value), f"{name}.npy"
        if not (folder / file).exists():
            np.save(folder / file, array, allow_pickle=False)
        return {"type": "array", "digest": _digest(array), "file": file}
    return value


def _read(saved: Any, folder: Path) -> Any:
    """Return the value that ``_write`` turned into ``saved``."""
    kind = saved.get("type") if isinstance(saved, dict) else None
    if kind == "array":
        return _read_array(folder / saved["file"], saved["digest"])
    if kind != "trace":
        return saved
    path = folder / saved["file"] if "file" in saved else None
    trace = load_trace(saved["name"]) if path is None else read_trace(path)
    if trace.digest != saved["digest"]:
        rule = (
            f"this is not the load that the run was trained on: its digest is "
            f"{trace.digest[:12]}..., the run's {saved['digest'][:12]}..."
        )
        raise TraceError([Fault(file=saved["name"] if path is None else str(path), rule=rule)])
    return dataclasses.replace(trace, name=saved["name"])


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


def _digest(array: Array) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()
