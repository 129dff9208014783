"""Convert arguments of ``corral.train`` to command-line words, because trials are processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from corral.envs.registry import registered_name
from corral.errors import ArgumentError
from corral.lab.tuning.space import text_of

__all__ = ["option", "words_of"]

PER_CALL = ("out", "overwrite", "seed", "dry_run", "progress")
"""Arguments of ``corral.train`` that differ between trials or calls."""


def words_of(env: str, trainer: str, kind: Any, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words after ``corral train`` for the arguments ``given``.

    ``kind`` is the trainer class. Raises ArgumentError for a value without a text form: an object
    instead of a text that names it.
    """
    settings = {field.name for field in fields(kind.Settings)}
    words = [env, "--trainer", trainer]
    for name, value in given.items():
        if name in PER_CALL:
            raise ArgumentError(f"{name}= cannot be set for a study; leave it out")
        if value is None and name not in settings:
            continue
        words += option(name, value) if name in settings else _train_words(name, value, env)
    return tuple(words)


def option(name: str, value: Any) -> list[str]:
    """Return the option --name and the text of a value."""
    return [_dashed(name), text_of(value)]


def _dashed(name: str) -> str:
    return "--" + name.replace("_", "-")


def _train_words(name: str, value: Any, env: str) -> Iterator[str]:
    """Yield the words of an argument of ``corral.train`` that is not a setting."""
    if name == "env_kwargs":
        yield from _arguments(value, env)
    elif name == "settings_of":
        for policy, settings in value.items():
            for key, item in settings.items():
                yield from ("--set", f"{policy}.{key}={text_of(item)}")
    elif name == "opponents":
        for agent, players in value.items():
            yield from ("--opponent", f"{agent}={_mix(players)}")
    elif name in ("callbacks", "sinks", "stop"):
        for item in [value] if isinstance(value, str) else value:
            yield from (_dashed(name.rstrip("s")), _text(name, item))
    elif name == "metrics":
        for key, item in value.items():
            yield from ("--metric", f"{key}={_text(name, item)}")
    elif name == "init_critic":
        yield "--init-critic" if value else "--no-init-critic"
    elif name in ("held_out", "validation") and isinstance(value, tuple | list):
        yield from (_dashed(name), "{}:{}".format(*value))
    elif name == "policies" and isinstance(value, Mapping):
        yield from ("--policies", ",".join(f"{agent}={item}" for agent, item in value.items()))
    else:
        yield from (_dashed(name), _text(name, value))


def _arguments(kwargs: Mapping[str, Any], env: str) -> Iterator[str]:
    """Yield the words of environment arguments: --name value if built in, else --arg name=value."""
    for name, value in kwargs.items():
        plain = isinstance(value, bool | int | float | str | None)
        if isinstance(value, tuple | list) and all(isinstance(item, int) for item in value):
            text = text_of(tuple(value))
        elif plain:
            text = text_of(value)
        else:
            try:
                text = json.dumps(value)
            except (TypeError, ValueError):
                text = _text(f"env_kwargs[{name!r}]", value)
        is_built_in = registered_name(env) is not None
        yield from ([_dashed(name), text] if is_built_in else ["--arg", f"{name}={text}"])


def _mix(players: Any) -> str:
    if isinstance(players, Mapping):
        return ",".join(f"{name}:{text_of(share)}" for name, share in players.items())
    return _text("opponents", players)


def _text(name: str, value: Any) -> str:
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if not isinstance(value, bool | int | float | str):
        raise ArgumentError(
            f"{name}={value!r:.60}: trials run in separate processes, so give text that names the "
            "object, such as file.py:name"
        )
    return text_of(value)
