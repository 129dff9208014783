"""Read configuration files: arguments of ``corral.train`` as TOML, JSON or a run's config.json.

    corral.train(**corral.read_config("run.toml", seed=2))

Keys at the top are arguments of ``train``, ``[env_kwargs]`` holds arguments of the environment and
``[settings]`` those of the trainer. The valid keys and types come from the signatures of these
functions and dataclasses. TOML has no null; the text "none" stands for it.

A file never causes an import. Custom code (a third-party environment, file.py:name) must be passed
separately from the file.
"""

from __future__ import annotations

import errno
import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from corral.data import bundled
from corral.envs.registry import registered_name, rules_class
from corral.errors import ConfigError, FileError, UnknownNameError
from corral.files import read_file, require_no_links, strict_json
from corral.hints import answer, spelled_otherwise
from corral.named import is_named
from corral.trainers.base import trainer_class
from corral.trainers.driver import train
from corral.trainers.file_types import (
    hints_of,
    is_record,
    require_argument,
    require_plain,
    require_type,
    shown,
    takes_path,
)
from corral.trainers.runs.env_config import SET_BY_TRAINING, SUFFIXES, saved_value
from corral.trainers.runs.run_config import CONFIG, RunConfig, require_format
from corral.trainers.settings import unknown_setting

__all__ = ["TABLES", "decoded", "load_config", "read_config", "top_keys"]

MAX_BYTES = 4 * 2**20  # maximum size of a file
TABLES = ("env_kwargs", "settings")
HERE = ("dry_run", "overwrite", "progress")  # arguments of a call, not of a configuration


def read_config(path: str | Path, **given: Any) -> dict[str, Any]:
    """Return the arguments of ``corral.train`` in a file, overridden by ``given``.

    ``given``: arguments of ``corral.train``; ``env_kwargs`` override the file's one by one. The
    file is TOML, JSON with the same layout, or a run's config.json. A config.json repeats the run;
    its traces and arrays are in the same folder.

    Raises ConfigError for an invalid file: unknown keys, values of a wrong type, or names of custom
    code that is not ``given``.
    """
    return decoded(load_config(path, **given))


def load_config(path: str | Path, **given: Any) -> dict[str, Any]:
    """Return the arguments of ``read_config``, with traces and arrays as plain values."""
    path = Path(path)
    if path.is_dir() and (path / CONFIG).exists():  # the folder of a run
        path /= CONFIG
    values = _read(path)
    is_run = path.suffix.lower() != ".toml" and "format" in values
    values = _of_run(path, values) if is_run else _without_none(path, values)
    if values.get("preset", "") is None:  # "none" is the name of a preset
        values["preset"] = "none"
    file_env = values.get("env")
    if "steps" in given and values.get("horizon") == values.get("steps"):
        values.pop("horizon", None)  # it followed from the old --steps
    values = {key: value for key, value in values.items() if key not in given} | {
        table: values[table] for table in TABLES if table in values
    }
    _require_top(path, values)
    _require_no_code(path, values)
    env, trainer = (given.get(key, values.get(key)) for key in ("env", "trainer"))
    if env is None:
        raise ConfigError(f'{path} has no environment: add env = "dfaas_v0" at its top')
    try:
        _require_arguments(path, values.get("env_kwargs", {}), env, is_run)
    except ConfigError as error:
        if file_env in (None, env):
            raise
        raise ConfigError(f"{error} The file is for {file_env}, not for {env}") from None
    _require_settings(path, values.get("settings", {}), trainer or "mappo")
    merged = {**values.pop("settings", {}), **values, **given}
    kwargs = _placed(path, values.get("env_kwargs", {}), env) | dict(given.get("env_kwargs") or {})
    return merged | ({"env_kwargs": kwargs} if kwargs else {})


def decoded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with loaded traces and arrays instead of their names and digests."""
    kwargs = values.get("env_kwargs")
    decoded_kwargs = {
        name: saved_value(value.record, value.path.parent, name)
        if isinstance(value, Beside)
        else value
        for name, value in (kwargs or {}).items()
    }
    return {**values, "env_kwargs": decoded_kwargs} if kwargs else dict(values)


@dataclass(frozen=True)
class Beside:
    """A trace or an array as recorded in a run's config.json, and the path of its file."""

    record: dict[str, Any]
    path: Path


# --- The file ------------------------------------------------------------------------------------


def _read(path: Path) -> dict[str, Any]:
    try:
        data = read_file(path, MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        text = data.decode("utf-8")
        values = tomllib.loads(text) if path.suffix.lower() == ".toml" else strict_json(text)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix.lower() == ".toml" else "JSON (TOML files end in .toml)"
        message = str(error).replace("Cannot overwrite a value", "a key is duplicated")
        raise ConfigError(f"{path} is not valid {kind}: {message}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must contain a table of arguments, not {shown(values)}")
    require_plain(path, values)
    return values


def _without_none(path: Path, value: Any) -> Any:
    """Return the values of a TOML file, with None for "none"."""
    if path.suffix.lower() != ".toml":
        return value
    if isinstance(value, dict):
        return {key: _without_none(path, below) for key, below in value.items()}
    return None if value == "none" else value


def _of_run(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``train`` that repeat the run with this config.json."""
    require_format(path, values)
    if unknown := values.keys() - {*RunConfig.keys(), *top_keys()}:
        key = min(unknown)
        raise ConfigError(f"{path}: no key named {key!r}{answer(key, RunConfig.keys())}")
    arguments = {key: value for key, value in values.items() if key in top_keys()}
    arguments["env"] = values.get("source") or values["env"]
    arguments |= {table: values[table] for table in TABLES}
    for key in ("held_out", "validation"):  # stored as differing environment arguments
        if isinstance(arguments.get(key), dict):
            arguments[key] = arguments[key].get("rows")
    # Custom code must be named on the command line, as for any file.
    if values.get("trainer_source"):
        arguments["trainer"] = (
            values["trainer_source"].get("text") or f"your_file.py:{values['trainer']}"
        )
    if values.get("model"):
        arguments["model"] = values["model"]["name"]
    if isinstance(init := arguments.get("init"), dict):
        arguments["init"] = f"{init['run']}@{int(init['checkpoint'].split('_')[1])}"
    opponents = values.get("opponents") or {}
    learned = {a: name for a, name in values["policies"].items() if a not in opponents}
    arguments["policies"] = learned
    if arguments.get("api") is None:
        arguments.pop("api", None)
    return {key: value for key, value in arguments.items() if value is not None and value != {}}


# --- Names ---------------------------------------------------------------------------------------


def top_keys() -> list[str]:
    """Return the keys at the top of a file: the arguments of ``train`` that a file may contain."""
    parameters = [name for name in inspect.signature(train).parameters if name not in HERE]
    return [name for name in parameters if name not in TABLES]


def _require_top(path: Path, values: Mapping[str, Any]) -> None:
    hints = hints_of(train)
    for key, value in values.items():
        if key in TABLES:
            if not isinstance(value, dict):
                raise ConfigError(
                    f"{path}: {key} is a table: write [{key}], then lines name = value"
                )
        elif key not in top_keys():
            raise ConfigError(f"{path}: {_misplaced(key, values)}")
        else:
            is_name = key in ("env", "trainer")  # in Python they may also be objects
            require_type(path, key, value, str if is_name else hints.get(key, Any))


def _misplaced(key: str, values: Mapping[str, Any]) -> str:
    """Return the message for a key that does not belong at the top of a file."""
    env, trainer = str(values.get("env", "")), str(values.get("trainer", "mappo"))
    places = {"settings": _setting_names(trainer), "env_kwargs": list(_arguments(env) or ())}
    for table, keys in places.items():
        if key in keys:
            return f"{key} belongs in the table [{table}]"
    if not spelled_otherwise(key, top_keys()):
        for table, keys in places.items():
            if near := spelled_otherwise(key, keys):
                return f"no key named {key!r}; did you mean {near[0]!r}, in the table [{table}]?"
    message = answer(key, [*top_keys(), *TABLES, *places["settings"], *places["env_kwargs"]])
    for table, keys in places.items():
        if any(f"{name!r}?" in message for name in keys):
            message = message.rstrip("?") + f", in the table [{table}]?"
    return f"no key named {key!r}{message}"


def _arguments(env: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the arguments of a corral environment; None if they are unknown."""
    if not isinstance(env, str) or registered_name(env) is None:
        return None
    return inspect.signature(rules_class(env)).parameters


def _setting_names(trainer: Any) -> list[str]:
    try:
        kind = trainer_class(trainer) if isinstance(trainer, str) else trainer
    except (UnknownNameError, ImportError):
        return []
    settings: Any = getattr(kind, "Settings", None)
    return [field.name for field in fields(settings)] if settings else []


def _require_arguments(path: Path, kwargs: Mapping[str, Any], env: Any, is_run: bool) -> None:
    arguments = _arguments(env)
    if arguments is None:
        return
    hints = hints_of(rules_class(env).__init__)  # type: ignore[misc]
    for name, value in kwargs.items():
        if name not in arguments or name in SET_BY_TRAINING:
            raise ConfigError(f"{path}: [env_kwargs] {_elsewhere(name, arguments)}")
        place = f"{path}: [env_kwargs] {name}"
        if is_record(value) and not is_run:
            raise ConfigError(f"{place}: only the config.json of a run may contain a record")
        hint = hints.get(name, Any)
        if isinstance(value, str) and takes_path(hint) and not is_run and value not in bundled():
            _require_inside(place, path, value)
            continue
        try:
            require_argument(place, value, hint)
        except ConfigError as error:
            again = f"Pass it yourself: {_option(name)} {value} (env_kwargs=)"
            raise ConfigError(
                f"{error}. {again}" if isinstance(value, str) else str(error)
            ) from None


def _require_inside(place: str, path: Path, value: str) -> None:
    """Raise ConfigError if a named file is outside the folder of the configuration file."""
    folder = path.parent.absolute()
    file = folder / value
    try:
        if ".." in file.parts or not file.is_relative_to(folder):
            raise FileError(errno.EPERM, "is in another folder", value)
        require_no_links(file, folder)
    except FileError as error:
        raise ConfigError(
            f"{place} = {shown(value)}: a configuration file may only name files in its own "
            "folder, and "
            f"this {error.strerror}. Pass it yourself: {_option(place.rpartition(' ')[2])} {value} "
            "(env_kwargs=)"
        ) from error


def _placed(path: Path, kwargs: Mapping[str, Any], env: Any) -> dict[str, Any]:
    """Return arguments with file names relative to ``path`` turned into usable paths."""
    arguments = _arguments(env)
    hints = {} if arguments is None else hints_of(rules_class(env).__init__)  # type: ignore[misc]
    placed = dict(kwargs)
    for name, value in kwargs.items():
        if is_record(value):
            file = name + SUFFIXES.get(value["type"], "")
            placed[name] = Beside(value, path.parent / file)
        elif isinstance(value, str) and takes_path(hints.get(name)) and value not in bundled():
            placed[name] = str(path.parent / value)
    return placed


def _require_settings(path: Path, settings: Mapping[str, Any], trainer: Any) -> None:
    if isinstance(trainer, str) and is_named(trainer):
        return
    try:
        kind: Any = trainer_class(trainer) if isinstance(trainer, str) else trainer
    except UnknownNameError as error:
        again = "Pass a custom trainer separately: --trainer file.py:name (trainer=)"
        raise ConfigError(f"{path}: {error} {again}") from error
    of: Any = getattr(kind, "Settings", None)
    if of is None:
        return
    names, hints = [field.name for field in fields(of)], hints_of(of)
    for name, value in settings.items():
        if name not in names:
            text = _elsewhere(name, names)
            if name not in top_keys():
                text = unknown_setting(name, str(getattr(kind, "name", trainer)), names)
            raise ConfigError(f"{path}: [settings] {text}")
        require_type(path, f"[settings] {name}", value, hints.get(name, Any))


def _elsewhere(name: str, known: Iterable[str]) -> str:
    if name in top_keys():
        return f"{name} belongs at the top of the file, above all tables"
    return f"no key named {name!r}{answer(name, known)}"


def _require_no_code(path: Path, values: Mapping[str, Any]) -> None:
    """Raise ConfigError for names of code, because a file must not cause an import."""
    for key, text in _texts({k: v for k, v in values.items() if k not in TABLES}):
        if key == "env" and registered_name(text) is None and re.search(r"[/:.]", text):
            raise ConfigError(
                f"{path}: env = {shown(text)} is a third-party environment, and a file must not "
                "cause "
                f"an import. Pass it yourself: corral train {text} --config "
                f"{path} (env=)"
            )
        if re.fullmatch(r".*[\w.]:[A-Za-z_][\w.]*", text):
            raise ConfigError(
                f"{path}: {key} names {shown(text)}, and a file must not cause an import. "
                f"Pass it yourself: {_option(key)} {text} ({key}=)"
            )


def _option(key: str) -> str:
    return "--" + key.replace("_", "-")


def _texts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each text at the top, in its lists and in other tables, with its key."""
    for key, value in values.items():
        below = list(value.values()) if isinstance(value, dict) else value
        for text in below if isinstance(below, list) else [below]:
            if isinstance(text, str):
                yield key, text
