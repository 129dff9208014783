"""Values that a run with ``--init`` inherits from the initial run if they are unset: arguments of
the environment, and settings of the networks."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corral.data import Trace
from corral.envs.core import Rules, any_number, split_of
from corral.envs.registry import registered_name, rules_class
from corral.errors import CorralError, EnvNeededError
from corral.trainers.runs.own_model import LAYERS
from corral.trainers.runs.run import Run, place_of
from corral.trainers.runs.run_config import RunConfig, config_values

__all__ = ["Inherited", "inherit"]


@dataclass(frozen=True)
class Inherited:
    """Arguments and settings of a new run, names that presets must not set, and messages."""

    env_kwargs: dict[str, Any]
    settings: dict[str, Any]
    without: tuple[str, ...] = ()
    lines: list[str] = field(default_factory=list)


def inherit(
    init: str | Path | Run,
    env: Any,
    kind: Any,
    env_kwargs: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    *,
    model: bool = False,
) -> Inherited:
    """Return arguments and settings for a trainer of class ``kind``, completed from ``init``.

    Explicit values take precedence. ``rows`` are not inherited, because they follow from
    ``held_out``. Layer settings are not inherited with a custom ``model``. A run that cannot be
    read adds no values; loading it raises the error.
    """
    explicit, chosen = dict(env_kwargs or {}), dict(settings)
    name = str(init.folder if isinstance(init, Run) else init)
    origin = _config_of(init)
    if origin is None:
        return Inherited(explicit, chosen)
    origin_settings, arguments, trainer = (
        origin["settings"],
        _arguments(origin, env),
        origin["trainer"],
    )
    fields = {entry.name: entry.default for entry in dataclasses.fields(kind.Settings)}
    network = {  # a run of an earlier version may lack a setting, which then had no effect
        key: tuple(value) if isinstance(value, list) else value
        for key in ("memory", "agent_id", *(() if model else LAYERS))
        if key in fields and key not in chosen
        for value in [origin_settings.get(key, fields[key])]
    }
    other_data = any(isinstance(arguments.get(key), Trace) for key in explicit)
    fixed = origin.get("of_data", ()) if other_data else ()
    inherited = {k: value for k, value in arguments.items() if k not in explicit and k not in fixed}
    changed = {key: value for key, value in network.items() if value != fields[key]}
    lines = []
    if changes := [f"{key}={_short(value)}" for key, value in {**inherited, **changed}.items()]:
        lines.append(f"inherited from {name}, because they are unset: {', '.join(changes)}")
    without: tuple[str, ...] = ()
    if trainer == "clone" and "ent_coef" not in chosen:
        without = ("ent_coef", "ent_coef_end")
    return Inherited({**explicit, **inherited}, {**chosen, **network}, without, lines)


def _config_of(init: str | Path | Run) -> dict[str, Any] | None:
    """Return env, source, env_kwargs, settings and trainer of a run; None if it is unreadable."""
    values: dict[str, Any] = {}
    config: Any = None
    if isinstance(init, Run):
        config = init.config
    else:
        folder, _ = place_of(init)
        try:
            values = config_values(folder)
            with contextlib.suppress(EnvNeededError):  # config.json is enough here
                config = RunConfig.read(folder)
        except CorralError:
            return None
    if config is not None:
        of_env = config.env_config
        values = {"env": of_env.env, "source": of_env.source, "env_kwargs": of_env.env_kwargs}
        values |= {"settings": config.settings, "trainer": config.trainer}
        try:
            values["of_data"] = _of_data(of_env.rules())
        except ValueError:
            return None
    kinds = {"env_kwargs": dict, "settings": dict, "trainer": str}
    if any(not isinstance(values.get(key), kind) for key, kind in kinds.items()):
        return None
    return values


def _arguments(origin: Mapping[str, Any], env: Any) -> dict[str, Any]:
    """Return the non-default arguments of a run; {} if it has another environment than ``env``."""
    if not isinstance(env, str):
        return {}
    kwargs = {k: v for k, v in origin["env_kwargs"].items() if k != "rows"}
    name = registered_name(env)
    if name is None:
        return kwargs if origin.get("source") == env else {}
    if name != origin["env"]:
        return {}
    defaults = inspect.signature(rules_class(name)).parameters
    return {k: v for k, v in kwargs.items() if k in defaults and _differ(v, defaults[k].default)}


def _of_data(rules: Rules[Any]) -> Collection[str]:
    """Return the arguments that follow from the data, if one policy plays any number of agents:
    with other data they are not needed."""
    with contextlib.suppress(ValueError):  # data that cannot be split
        if any_number(rules) and (split := split_of(rules, None, None)) is not None:
            return split.train.keys()
    return ()


def _differ(value: Any, default: Any) -> bool:
    if isinstance(value, Trace):
        return bool(value.name != default)
    return not np.array_equal(value, default) if value is not None else default is not None


def _short(value: Any) -> str:
    if isinstance(value, Trace):
        return value.name
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)[:80]
