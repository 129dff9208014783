"""An environment with all its arguments, and the part of it that evaluation plays."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corral import data
from corral.adapters.sources import EnvLike, EnvSource, resolve
from corral.data import Trace
from corral.envs.arguments import plain_numbers
from corral.envs.core import Array, Rules, split_of
from corral.envs.registry import REGISTERED, Api, make_rules, rules_class
from corral.errors import ConfigError, EnvNeededError, Fault, RunError, TraceError
from corral.files import read_file, require_no_links, write_file
from corral.named import NamedFunction
from corral.text import pasted
from corral.trainers.file_types import hints_of, require_argument

__all__ = ["SET_BY_TRAINING", "EnvConfig", "given_again", "require_arguments", "saved_value"]

MOST_ARRAY = 2**30
"""Bytes of an array that is an argument."""

SUFFIXES = {"trace": ".csv.gz", "array": ".npy"}
"""Of the files beside config.json that hold an argument, which they are named after."""

SET_BY_TRAINING = {"illegal": "raise", "keep_flow": False}
"""Arguments that training sets: a trainer that plays an illegal action has lost a mask, and that
must end training, not be counted."""


@dataclass(frozen=True)
class EnvConfig:
    """An environment of corral by name with its arguments, or one of others.

    ``held_out`` and ``validation`` hold the arguments that differ in the final judgment and in
    validation, where its data are divided. One of others is remembered as the text that names it,
    where there is one; it is never imported because a file says so.
    """

    env: str
    env_kwargs: dict[str, Any]
    held_out: dict[str, Any] = field(default_factory=dict)
    own_rules: Rules[Any] | None = None
    source: str | None = None  # names an environment of others, see ``corral.envs.registry``
    api: Api | None = None
    validation: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        env: EnvLike,
        env_kwargs: Mapping[str, Any] | None = None,
        held_out: float | tuple[int, int] | None = None,
        api: Api | None = None,
        validation: float | tuple[int, int] | None = None,
    ) -> EnvConfig:
        """Return the configuration that trains in ``env`` with arguments ``env_kwargs``; see
        ``corral.adapters.sources`` for what may be given.

        Where the rules split their data (see ``corral.envs.core.split_of``), ``held_out`` says
        which of its rows are for evaluation: a share of the last, or rows (low, high);
        ``validation`` in the same way which of the rest are for validation; 0: none. Arguments
        left at their defaults are written down too: a later default must not change a run.

        Raises UnknownNameError, and what the environment raises for its arguments.
        """
        env_kwargs, held_out = plain_numbers(dict(env_kwargs or {})), plain_numbers(held_out)
        validation = plain_numbers(validation)
        asked = {"held_out": held_out, "validation": validation}
        found = resolve(env, env_kwargs, api=api)
        if found.rules is not None:
            return cls._of_rules(found, asked)
        name, kwargs = found.name, found.env_kwargs
        rules = make_rules(name, **{**kwargs, **_set_by_training(name)})
        parameters = inspect.signature(type(rules)).parameters.items()
        complete = {name: parameter.default for name, parameter in parameters} | kwargs
        complete = {k: value for k, value in complete.items() if k not in SET_BY_TRAINING}
        split = split_of(rules, kwargs.get("rows"), held_out, validation)
        if split is None:
            _refuse_rows(name, asked)
        loaded: dict[str, Any] = {}  # files that are named may change, or go
        for argument, value in complete.items():
            used = getattr(rules, argument, None)
            if isinstance(used, NamedFunction):
                used.require_name()
                loaded[argument] = used
            elif isinstance(used, Trace):
                loaded[argument] = data.load_trace(value)  # the rules may have completed theirs
            elif isinstance(used, np.ndarray) and value is not None:
                loaded[argument] = used
        if split is None:
            return cls(name, complete | loaded)
        divided = complete | loaded | split.train  # a split knows what follows from its rows alone
        return cls(name, divided, split.held_out, validation=split.validation)

    @classmethod
    def _of_rules(cls, found: EnvSource, asked: Mapping[str, Any]) -> EnvConfig:
        _refuse_rows(found.name, asked)
        if found.name in REGISTERED:
            raise ValueError(
                f"rules of {found.name}: give the name {found.name!r} and its arguments as "
                "env_kwargs=, so that the run can be read back"
            )
        kwargs = {name: value for name, value in found.env_kwargs.items() if _is_json(value)}
        return cls(found.name, kwargs, {}, found.rules, found.text, found.api)

    def rules(self, **changes: Any) -> Rules[Any]:
        """Return the rules of training, with illegal="raise"; ``changes`` replace arguments."""
        if self.own_rules is not None:
            return self.own_rules
        return make_rules(self.env, **{**self.env_kwargs, **_set_by_training(self.env), **changes})

    def held_out_rules(self, **changes: Any) -> Rules[Any]:
        """Return the rules of the final judgment: those of training, with the data held out."""
        return self.rules(**{**self.held_out, **changes})

    def validation_rules(self, **changes: Any) -> Rules[Any]:
        """Return the rules of validation: those of training, with the data kept for it.

        Raises ValueError where the environment has data, and none are kept for validation.
        """
        if self.held_out and not self.validation:
            raise ValueError(
                f"this run keeps no rows of {self.env} for validation (validation=0 keeps none): "
                "train with validation=, a share or rows (low, high), and with a max_cycles of "
                "which the rows before those held out hold two or more"
            )
        return self.rules(**{**self.validation, **changes})

    def named(self, folder: Path) -> str:
        """Return a run's folder as words of a command, with --env where that must be said."""
        again = f" --env {self.source}" if self.own_rules is not None and self.source else ""
        for name, value in self.env_kwargs.items():
            if isinstance(value, NamedFunction):
                again += f" --arg {pasted(f'{name}={value}')}"
        return pasted(folder) + again

    @property
    def trace(self) -> Trace | None:
        """The load, where the environment replays one."""
        return next((v for v in self.env_kwargs.values() if isinstance(v, Trace)), None)

    # --- As JSON ---------------------------------------------------------------------------------

    def write(self, folder: Path | None) -> dict[str, Any]:
        """Return JSON values from which ``read`` makes the same configuration.

        Traces and arrays go to files of ``folder``, so that a run needs no file elsewhere; a trace
        that comes with the package is named instead. Without a folder nothing is written, and the
        values hold their digests alone.
        """
        kwargs = {name: _write(name, value, folder) for name, value in self.env_kwargs.items()}
        saved = {"env": self.env, "env_kwargs": kwargs, "held_out": dict(self.held_out)}
        saved["validation"] = dict(self.validation)
        return (
            saved if self.own_rules is None else {**saved, "source": self.source, "api": self.api}
        )

    @classmethod
    def read(
        cls,
        saved: Mapping[str, Any],
        folder: Path,
        given: EnvSource | None = None,
    ) -> EnvConfig:
        """Make a configuration of what ``write`` returned; one of others needs it ``given`` again.

        Raises TraceError where the load is not the one that was trained on, RunError where an
        array is not.
        """
        name = saved["env"]
        if given is not None and given.rules is not None:
            kwargs = given.env_kwargs or dict(saved["env_kwargs"])
            return cls(name, kwargs, {}, given.rules, saved.get("source"), saved.get("api"))
        for key in ("env_kwargs", "held_out", "validation"):
            require_arguments(str(folder), name, saved.get(key, {}), key)
        kwargs = {
            name: saved_value(value, folder, name) for name, value in saved["env_kwargs"].items()
        }
        for argument, function in ({} if given is None else given.env_kwargs).items():
            kwargs[argument] = kwargs[argument].again(function)
        held_out, validation = dict(saved["held_out"]), dict(saved.get("validation", {}))
        for arguments in (kwargs, held_out, validation):
            for rows in ("rows", "capacity_rows"):
                if arguments.get(rows) is not None:
                    arguments[rows] = tuple(arguments[rows])
        return cls(name, kwargs, held_out, validation=validation)


def require_arguments(place: str, env: str, values: Mapping[str, Any], key: str) -> None:
    """Raise RunError where arguments of one of our environments, as a file holds them under
    ``key``, are of another type, or texts that would be imported or opened."""
    hints = hints_of(rules_class(env).__init__)  # type: ignore[misc]
    for name, value in values.items():
        if name not in hints or name in SET_BY_TRAINING:
            raise RunError(f"{place}: {key}: {env} has no argument named {name!r:.60}")
        try:
            require_argument(f"{place}: {key}.{name}", value, hints[name])
        except ConfigError as error:
            raise RunError(str(error)) from error


def _refuse_rows(name: str, asked: Mapping[str, Any]) -> None:
    """Raise ValueError where rows are asked for in an environment that has none."""
    what = {"held_out": "to hold out", "validation": "for validation; it is on seeds of its own"}
    for argument, value in asked.items():
        if value is not None:
            raise ValueError(f"{argument}={value}: {name} has no rows {what[argument]}")


def given_again(
    saved: Mapping[str, Any],
    folder: Path,
    env: EnvLike | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
) -> EnvSource | None:
    """Return the environment that is given for a run that is read, as ``EnvConfig.read`` takes it.

    The arguments and the interface of one of others are the run's, unless they are given.

    Raises RunError where it is missing or is another, ValueError for arguments of one of ours, and
    what ``resolve`` raises.
    """
    name = saved["env"]
    if name in REGISTERED:
        known = saved["env_kwargs"]
        functions = [each for each in known if _kind(known[each]) == "function"]
        others = {key: value for key, value in (env_kwargs or {}).items() if key not in functions}
        for argument, value in (("env_kwargs", others), ("api", api)):
            if value:
                raise ValueError(
                    f"{argument}={value!r}: {folder} keeps the arguments of {name} that it was "
                    "trained with; leave it out, or train anew"
                )
    if env is None:
        if name not in REGISTERED:
            raise EnvNeededError(_hint(saved, folder), name)
        return EnvSource(name, dict(env_kwargs)) if env_kwargs else None
    if (by_text := isinstance(env, str) and env == saved.get("source")) or callable(env):
        env_kwargs = saved["env_kwargs"] if env_kwargs is None else env_kwargs
        api = saved.get("api") if api is None and by_text else api
    given = resolve(env, env_kwargs, api=api)
    if given.name != name:
        raise RunError(f"{folder} was trained in {name}, and this is {given.name}")
    for argument, value in given.env_kwargs.items() if name in REGISTERED else ():
        own = saved["env_kwargs"].get(argument, value)
        if isinstance(value, bool | int | float | str) and own != value:
            raise ValueError(
                f"{argument}={value!r}: {folder} was trained with {argument}={own!r}, and plays so "
                "again; leave the environment out, or train anew"
            )
    return dataclasses.replace(given, env_kwargs=dict(env_kwargs or {}))


def _set_by_training(env: str) -> dict[str, Any]:
    """Return those of SET_BY_TRAINING that the environment's rules take."""
    parameters = inspect.signature(rules_class(env)).parameters
    return {name: value for name, value in SET_BY_TRAINING.items() if name in parameters}


def _hint(saved: Mapping[str, Any], folder: Path) -> str:
    """Return how to name the environment of others that a run was trained in."""
    where = f"{folder} was trained in {saved['env']}"
    if (text := saved.get("source")) is None:
        return (
            f"{where}, which no text names: give the function that makes it, or such an "
            f"environment, in Python: corral.load_run({str(folder)!r}, make_it)"
        )
    return (
        f"{where}, {text}, and nothing is imported because a file names it. Say so yourself: "
        f"--env {text}, or corral.load_run({str(folder)!r}, {text!r})"
    )


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


# --- Values with files of their own --------------------------------------------------------------


def _write(name: str, value: Any, folder: Path | None) -> Any:
    """Return a JSON value for argument ``name``; traces and arrays go to files of a folder."""
    if isinstance(value, Trace):
        saved = {"type": "trace", "name": value.name, "digest": value.digest}
        if folder is None or (
            value.name in data.bundled() and data.load_trace(value.name) == value
        ):
            return saved
        file = f"{name}.csv.gz"
        if not (folder / file).exists():
            data.write_trace(value, folder / file)
        return {**saved, "file": file}
    if isinstance(value, np.ndarray):
        array, file = np.ascontiguousarray(value), f"{name}.npy"
        saved = {"type": "array", "digest": _digest(array)}
        if folder is None:
            return saved
        if not (folder / file).exists():
            packed = io.BytesIO()
            np.save(packed, array, allow_pickle=False)
            write_file(folder / file, packed.getvalue(), folder=folder)
        return {**saved, "file": file}
    if isinstance(value, NamedFunction):
        return {"type": "function", "name": value.name, "sha256": value.sha256}
    return value


def _kind(saved: Any) -> str | None:
    """Return what ``saved`` stands for: "trace", "array", "function"; None for a plain value."""
    return saved.get("type") if isinstance(saved, dict) else None


def saved_value(saved: Any, folder: Path, name: str) -> Any:
    """Return the trace or array that ``saved`` stands for, or the function of argument ``name``,
    which is not looked up; another value as it is.

    A file lies in ``folder`` and is called after the argument. Raises RunError, TraceError.
    """
    kind = _kind(saved)
    if kind == "function":
        return NamedFunction(name, saved["name"], saved["sha256"])
    if kind not in SUFFIXES:
        return saved
    path = folder / (name + SUFFIXES[kind])
    if kind == "array" or "file" in saved:
        if saved["file"] != path.name:
            raise RunError(f"{name} lies in {saved['file']!r:.100}: only {path} is read")
        if kind == "array":
            return _read_array(path, saved["digest"])
        require_no_links(path, folder)
        trace = data.read_trace(path)
    elif saved["name"] not in data.bundled():
        raise RunError(f"{name} is {saved['name']!r:.100}, and no trace of that name is bundled")
    else:
        trace = data.load_trace(saved["name"])
    if trace.digest != saved["digest"]:
        rule = (
            f"this is not the load that the run was trained on: its digest is "
            f"{trace.digest[:12]}..., the run's {saved['digest'][:12]}..."
        )
        raise TraceError([Fault(file=str(path) if "file" in saved else trace.name, rule=rule)])
    return dataclasses.replace(trace, name=saved["name"])


def _read_array(path: Path, digest: str) -> Array:
    try:
        packed = read_file(path, MOST_ARRAY, folder=path.parent)
        array = np.load(io.BytesIO(packed), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
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
