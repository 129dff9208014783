"""Write a complete configuration as a TOML file, including all defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corral.data import Trace, bundled
from corral.envs.arguments import plain_numbers
from corral.errors import ConfigError, CorralError
from corral.named import NamedFunction
from corral.trainers.config_files.read import TABLES, Beside, load_config, top_keys
from corral.trainers.runs.run import Run, place_of
from corral.trainers.runs.run_config import RunConfig

__all__ = ["config_text", "resolved"]


def resolved(config: RunConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a complete configuration as values of a file that ``load_config`` reads.

    ``given`` are the arguments of ``train``, with traces and arrays as plain values; texts stay
    texts. Defaults are included.
    """
    both = {**vars(config.env_config), **vars(config)}
    values = {key: both[key] for key in top_keys() if key in both}
    for key in ("held_out", "validation"):
        if values.get(key) is not None:
            values[key] = values[key].get("rows")
    values["policies"] = {
        agent: name for agent, name in config.policies.items() if agent not in config.opponents
    }
    more = {key: given[key] for key in top_keys() if key in given and key != "out"}
    values = {**more, **values} | {k: v for k, v in more.items() if isinstance(v, str)}
    named = _taken_over(given.get("init")) | dict(given.get("env_kwargs") or {})
    values["env_kwargs"] = {
        name: _plain(value, named.get(name)) for name, value in config.env_config.env_kwargs.items()
    }
    values["settings"] = dict(config.settings)
    order = [*top_keys(), *TABLES]
    return {key: values[key] for key in order if values.get(key) not in (None, {})}


def _taken_over(init: Any) -> dict[str, Any]:
    """Return the environment arguments that a new run inherits from its initial run.

    ``init``: the run, or the name of it and its checkpoint. Return {} if its config.json is
    unreadable, because nothing was inherited then.
    """
    if init is None:
        return {}
    folder = init.folder if isinstance(init, Run) else place_of(init)[0]
    try:
        return dict(load_config(folder).get("env_kwargs") or {})
    except CorralError:
        return {}


def _plain(value: Any, given: Any) -> Any:
    """Return an argument of an environment in a form that a file can hold."""
    if isinstance(value, Trace) and given is None and value.name in bundled():
        return value.name
    if isinstance(given, Beside):
        return str(given.path) if "file" in given.record else given.record["name"]
    if isinstance(value, Trace | np.ndarray) and given is not None:
        return plain_numbers(given)
    return value.tolist() if isinstance(value, np.ndarray) else value


def config_text(values: Mapping[str, Any]) -> str:
    """Format values as TOML; None becomes "none"."""
    top = {key: value for key, value in values.items() if key not in TABLES}
    lines = [f"{_key(key)} = {_toml(key, value)}" for key, value in top.items()]
    for table in TABLES:
        if rows := values.get(table):
            lines += ["", f"[{table}]"]
            lines += [f"{_key(key)} = {_toml(key, value)}" for key, value in rows.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _toml(key: str, value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str | NamedFunction):
        return _text(str(value))
    if isinstance(value, Mapping):
        pairs = (f"{_key(name)} = {_toml(key, below)}" for name, below in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_toml(key, each) for each in value)}]"
    raise ConfigError(f"{key}={value!r:.60}: a file cannot hold this value; pass a name as text")


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
