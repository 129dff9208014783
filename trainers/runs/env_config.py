"""The configuration of an environment: its arguments, and the data held out for evaluation."""

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
from corral.envs.others.calls import accepts
from corral.envs.registry import REGISTERED, Api, NamedEnv, is_installed_id, make_rules, rules_class
from corral.errors import ConfigError, EnvNeededError, Fault, RunError, TraceError
from corral.files import read_file, require_no_links, write_file
from corral.named import NamedFunction
from corral.text import pasted
from corral.trainers.file_types import hints_of, require_argument

__all__ = [
    "SET_BY_TRAINING",
    "EnvConfig",
    "given_again",
    "is_remade_by_id",
    "require_arguments",
    "saved_value",
]

MAX_ARRAY = 2**30
"""Maximum bytes of an array argument."""

SUFFIXES = {"trace": ".csv.gz", "array": ".npy"}
"""File suffixes of arguments stored in separate files next to config.json, named by argument."""

SET_BY_TRAINING = {"illegal": "raise", "keep_flow": False}
"""Arguments set by training. A trainer that plays an illegal action ignores a mask, and this bug
must stop training instead of being counted."""


@dataclass(frozen=True)
class EnvConfig:
    """A built-in environment by name with its arguments, or a third-party environment.

    ``held_out`` and ``validation`` contain the arguments that differ in the final evaluation and in
    validation, if the data is split. A third-party environment is stored by its name, if it has
    one; loading a run never imports it.
    """

    env: str
    env_kwargs: dict[str, Any]
    held_out: dict[str, Any] = field(default_factory=dict)
    own_rules: Rules[Any] | None = None
    source: str | None = None  # name of a third-party environment, see ``corral.envs.registry``
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
        """Return the configuration for training in ``env`` with ``env_kwargs``; see
        ``corral.adapters.sources`` for possible values of ``env``.

        If the rules can split their data (see ``corral.envs.core.split_of``), ``held_out`` selects
        the rows for evaluation: a share of the last rows, or rows (low, high). ``validation``
        selects rows of the rest in the same way; 0: none. Default values are stored as well, so
        that a later change of a default does not change the run.

        Raises UnknownNameError, and the environment's errors for its arguments.
        """
        env_kwargs, held_out = plain_numbers(dict(env_kwargs or {})), plain_numbers(held_out)
        validation = plain_numbers(validation)
        requested = {"held_out": held_out, "validation": validation}
        source = resolve(env, env_kwargs, api=api)
        if source.rules is not None:
            return cls._of_rules(source, requested)
        name, kwargs = source.name, source.env_kwargs
        rules = make_rules(name, **{**kwargs, **_set_by_training(name)})
        parameters = inspect.signature(type(rules)).parameters.items()
        complete = {name: parameter.default for name, parameter in parameters} | kwargs
        complete = {k: value for k, value in complete.items() if k not in SET_BY_TRAINING}
        split = split_of(rules, kwargs.get("rows"), held_out, validation)
        if split is None:
            _refuse_rows(name, requested)
        loaded: dict[str, Any] = {}  # load files now, because they may change or disappear
        for argument, value in complete.items():
            attribute = getattr(rules, argument, None)
            if isinstance(attribute, NamedFunction):
                attribute.require_name()
                loaded[argument] = attribute
            elif isinstance(attribute, Trace):
                # not ``attribute``: the rules may have modified it
                loaded[argument] = data.load_trace(value)
            elif isinstance(attribute, np.ndarray) and value is not None:
                loaded[argument] = attribute
        if split is None:
            return cls(name, complete | loaded)
        # the split also has the arguments that follow from its rows
        divided = complete | loaded | split.train
        return cls(name, divided, split.held_out, validation=split.validation)

    @classmethod
    def _of_rules(cls, source: EnvSource, requested: Mapping[str, Any]) -> EnvConfig:
        _refuse_rows(source.name, requested)
        if source.name in REGISTERED:
            raise ValueError(
                f"rules of {source.name}: pass the name {source.name!r} and its arguments as "
                "env_kwargs=, so that the run can be loaded"
            )
        kwargs = {name: value for name, value in source.env_kwargs.items() if _is_json(value)}
        return cls(source.name, kwargs, {}, source.rules, source.text, source.api)

    def rules(self, **changes: Any) -> Rules[Any]:
        """Return the training rules, with illegal="raise"; ``changes`` override arguments."""
        if self.own_rules is not None:
            return self.own_rules
        return make_rules(self.env, **{**self.env_kwargs, **_set_by_training(self.env), **changes})

    def held_out_rules(self, **changes: Any) -> Rules[Any]:
        """Return the rules of the final evaluation: the training rules with held-out data."""
        return self.rules(**{**self.held_out, **changes})

    def validation_rules(self, **changes: Any) -> Rules[Any]:
        """Return the rules of validation: the training rules with validation data.

        Raises ValueError if the environment has data, but no validation rows.
        """
        if self.held_out and not self.validation:
            raise ValueError(
                f"this run has no validation rows of {self.env} (validation=0 disables them): "
                "train with validation=, a share or rows (low, high), and a max_cycles of at most "
                "half of the rows that are not held out"
            )
        return self.rules(**{**self.validation, **changes})

    def named(self, folder: Path) -> str:
        """Return a run's folder as command-line words, with --env and --arg if required."""
        again = self.own_rules is not None and self.source is not None
        again = again and not is_remade_by_id(self.source, self.env_kwargs)
        options = f" --env {self.source}" if again else ""
        for name, value in self.env_kwargs.items():
            if isinstance(value, NamedFunction):
                options += f" --arg {pasted(f'{name}={value}')}"
        return pasted(folder) + options

    @property
    def trace(self) -> Trace | None:
        """The trace, if the environment replays one."""
        return next((v for v in self.env_kwargs.values() if isinstance(v, Trace)), None)

    # --- As JSON ---------------------------------------------------------------------------------

    def write(self, folder: Path | None) -> dict[str, Any]:
        """Return JSON values from which ``read`` creates the same configuration.

        Traces and arrays are written to files in ``folder``, so that a run is self-contained; a
        bundled trace is stored by name. Without a folder no files are written, and the values
        contain only the digests.
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
        """Create a configuration from the result of ``write``; a third-party environment must be
        ``given``.

        Raises TraceError if the trace differs from the training data, and RunError if an array
        does.
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
    """Raise RunError if a file's arguments ``key`` of a built-in environment have a wrong type, or
    contain text that would be imported or opened."""
    hints = hints_of(rules_class(env).__init__)  # type: ignore[misc]
    for name, value in values.items():
        if name not in hints or name in SET_BY_TRAINING:
            raise RunError(f"{place}: {key}: {env} has no argument named {name!r:.60}")
        try:
            require_argument(f"{place}: {key}.{name}", value, hints[name])
        except ConfigError as error:
            raise RunError(str(error)) from error


def is_remade_by_id(source: Any, env_kwargs: Any) -> bool:
    """Return True if a run's third-party environment need not be passed again.

    It is the only text of a run that is resolved: an id in the tables of PettingZoo or Gymnasium as
    installed, never with a module in front, and with arguments that are numbers. Texts could name
    code or files.
    """
    plain = isinstance(env_kwargs, Mapping) and all(
        value is None or isinstance(value, bool | int | float) for value in env_kwargs.values()
    )
    return plain and is_installed_id(source)


def _refuse_rows(name: str, requested: Mapping[str, Any]) -> None:
    """Raise ValueError if rows are requested in an environment without rows."""
    purpose = {"held_out": "to hold out", "validation": "for validation; it uses separate seeds"}
    for argument, value in requested.items():
        if value is not None:
            raise ValueError(f"{argument}={value}: {name} has no rows {purpose[argument]}")


def given_again(
    saved: Mapping[str, Any],
    folder: Path,
    env: EnvLike | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
) -> EnvSource | None:
    """Return the environment passed to load a run, for ``EnvConfig.read``.

    Unset arguments and the unset API of a third-party environment are taken from the run, and the
    environment itself if ``is_remade_by_id``.

    Raises RunError if the environment is missing or differs, ValueError for arguments of a built-in
    environment, and the errors of ``resolve``.
    """
    name = saved["env"]
    if name in REGISTERED:
        saved_kwargs = saved["env_kwargs"]
        functions = [
            argument for argument in saved_kwargs if _kind(saved_kwargs[argument]) == "function"
        ]
        rejected = {key: value for key, value in (env_kwargs or {}).items() if key not in functions}
        for argument, value in (("env_kwargs", rejected), ("api", api)):
            if value:
                raise ValueError(
                    f"{argument}={value!r}: {folder} keeps the arguments of {name} from training; "
                    "omit it, or train a new run"
                )
    if env is None and name not in REGISTERED:
        if not is_remade_by_id(saved.get("source"), saved["env_kwargs"]):
            raise EnvNeededError(_hint(saved, folder), name)
        env = str(saved["source"])
    if env is None:
        return EnvSource(name, dict(env_kwargs)) if env_kwargs else None
    if (by_text := isinstance(env, str) and env == saved.get("source")) or callable(env):
        env_kwargs = saved["env_kwargs"] if env_kwargs is None else env_kwargs
        api = saved.get("api") if api is None and by_text else api
    given = resolve(env, env_kwargs, api=api)
    if given.name != name:
        raise RunError(f"{folder} was trained in {name}, not in {given.name}")
    for argument, value in given.env_kwargs.items() if name in REGISTERED else ():
        original = saved["env_kwargs"].get(argument, value)
        if isinstance(value, bool | int | float | str) and original != value:
            raise ValueError(
                f"{argument}={value!r}: {folder} was trained with {argument}={original!r}; omit "
                "the environment, or train a new run"
            )
    for argument, value in (env_kwargs or {}).items() if name not in REGISTERED else ():
        if argument in saved["env_kwargs"]:
            trained = saved["env_kwargs"][argument]
        else:
            trained = _default_of(env, argument, api)
        if trained is not inspect.Parameter.empty and not _equal_in_json(value, trained):
            raise ValueError(
                f"{argument}={value!r}: {folder} was trained with {argument}={trained!r}; omit "
                "it, or train a new run"
            )
    return dataclasses.replace(given, env_kwargs=dict(env_kwargs or {}))


def _default_of(env: Any, argument: str, api: Api | None) -> Any:
    """Return an argument's default in a third-party environment; ``inspect.Parameter.empty`` if
    it is unknown."""
    from corral.envs.others.convert import OURS  # imported late: corral's own games do not need it

    try:
        make = NamedEnv(env, api=api).find() if isinstance(env, str) else env
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):  # no signature is available
        return inspect.Parameter.empty
    if argument in parameters:
        return parameters[argument].default
    return None if argument in OURS and not accepts(make, argument) else inspect.Parameter.empty


def _equal_in_json(value: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON. True if JSON cannot represent one of them."""
    value, other = plain_numbers([value, other])
    if not _is_json([value, other]):
        return True
    return bool(json.loads(json.dumps(value)) == json.loads(json.dumps(other)))


def _set_by_training(env: str) -> dict[str, Any]:
    """Return the arguments in SET_BY_TRAINING that the environment's rules have."""
    parameters = inspect.signature(rules_class(env)).parameters
    return {name: value for name, value in SET_BY_TRAINING.items() if name in parameters}


def _hint(saved: Mapping[str, Any], folder: Path) -> str:
    """Return how to pass the third-party environment of a run again."""
    origin = f"{folder} was trained in {saved['env']}"
    if (text := saved.get("source")) is None:
        return (
            f"{origin}, which has no importable name: pass the function that makes it, or the "
            f"environment, in Python: corral.load_run({str(folder)!r}, make_it)"
        )
    return (
        f"{origin}, {text}. For safety, the run does not import it. Pass it again: "
        f"--env {text}, or corral.load_run({str(folder)!r}, {text!r})"
    )


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


# --- Values in separate files --------------------------------------------------------------------


def _write(name: str, value: Any, folder: Path | None) -> Any:
    """Return the JSON value of argument ``name``; traces and arrays are written to files."""
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
    """Return the record type of ``saved``: "trace", "array", "function"; None: a plain value."""
    return saved.get("type") if isinstance(saved, dict) else None


def saved_value(saved: Any, folder: Path, name: str) -> Any:
    """Return the value of a saved argument: a trace, an array, a function that is not imported, or
    the plain value.

    Files must be in ``folder`` and named after the argument. Raises RunError, TraceError.
    """
    kind = _kind(saved)
    if kind == "function":
        return NamedFunction(name, saved["name"], saved["sha256"])
    if kind not in SUFFIXES:
        return saved
    path = folder / (name + SUFFIXES[kind])
    if kind == "array" or "file" in saved:
        if saved["file"] != path.name:
            raise RunError(
                f"{name} refers to the file {saved['file']!r:.100}: only {path} is allowed"
            )
        if kind == "array":
            return _read_array(path, saved["digest"])
        require_no_links(path, folder)
        trace = data.read_trace(path)
    elif saved["name"] not in data.bundled():
        raise RunError(f"{name} is {saved['name']!r:.100}, which is not a bundled trace")
    else:
        trace = data.load_trace(saved["name"])
    if trace.digest != saved["digest"]:
        rule = (
            f"this trace differs from the training trace of the run: its digest is "
            f"{trace.digest[:12]}..., the run's {saved['digest'][:12]}..."
        )
        raise TraceError([Fault(file=str(path) if "file" in saved else trace.name, rule=rule)])
    return dataclasses.replace(trace, name=saved["name"])


def _read_array(path: Path, digest: str) -> Array:
    try:
        packed = read_file(path, MAX_ARRAY, folder=path.parent)
        array = np.load(io.BytesIO(packed), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RunError(f"{path} cannot be read: {error}. The run requires it") from error
    actual = _digest(np.ascontiguousarray(array))
    if actual != digest:
        raise RunError(
            f"{path} differs from the training data of the run: its digest is {actual[:12]}..., "
            f"the run's {digest[:12]}..."
        )
    return np.asarray(array)


def _digest(array: Array) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()
