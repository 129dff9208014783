"""Calls of classes and functions that users wrote: by keywords, or with one config, as in RLlib."""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["EnvContext", "called", "lacking", "short_name", "takes"]


class EnvContext(dict[str, Any]):
    """The dict that RLlib gives a constructor, with the attributes that some classes read."""

    worker_index = 0
    vector_index = 0
    num_workers = 0
    remote = False


def called(make: Callable[..., Any], kwargs: Mapping[str, Any], *, config: bool = False) -> Any:
    """Return ``make(**kwargs)``, or ``make(EnvContext(kwargs))`` where that is what it takes.

    It takes a config where its first parameter is one by name or annotation; with ``config`` also
    where that may be left out, or is a mere ``*args``. Keywords go before where it has them all.
    """
    try:
        parameters = list(inspect.signature(make).parameters.values())
    except (TypeError, ValueError):  # it does not say what it takes
        return make(**kwargs)
    if kwargs and takes(make, *kwargs):
        return make(**kwargs)
    positional = [each for each in parameters if each.kind <= each.VAR_POSITIONAL]
    first, others = next(iter(positional), None), positional[1:]
    if first is not None and (
        _is_config(first) or (config and _may_be_config(first) and not any(map(_is_due, others)))
    ):
        return make(EnvContext(kwargs))
    return make(**kwargs)


def lacking(error: KeyError | TypeError) -> tuple[str, list[str]] | None:
    """Return where ``called`` failed for want of arguments, and their names; None: for another
    reason.

    Of a config only a key counts that the line of the error spells out: config["length"].
    """
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    if isinstance(error, TypeError):
        found = re.match(r"(.*\)) missing \d+ required .*arguments?: (.*)", str(error))
        if found is None or frame.f_globals.get("__name__") != __name__:  # of another call
            return None
        return found[1], re.findall(r"'(\w+)'", found[2])
    key, file = error.args[0] if error.args else None, frame.f_code.co_filename
    spelled = rf"\[[\"']{re.escape(str(key))}[\"']\]"
    if not isinstance(key, str) or not re.search(spelled, linecache.getline(file, line)):
        return None
    return f"{Path(file).name}:{line}", [key]


def takes(make: Callable[..., Any], *names: str) -> bool:
    """Return whether a function has all these keywords, or takes any."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False
    every = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    positional_only = inspect.Parameter.POSITIONAL_ONLY
    return all(
        parameters[name].kind is not positional_only if name in parameters else every
        for name in names
    )


def _is_config(first: inspect.Parameter) -> bool:
    named = re.search(r"config|cfg|conf$|context|ctx", first.name) is not None
    annotated = re.search(r"\b(dict|Dict|Mapping|EnvContext)\b", str(first.annotation)) is not None
    return first.kind is not first.VAR_POSITIONAL and (named or annotated)


def _may_be_config(first: inspect.Parameter) -> bool:
    return first.default is first.empty or first.default in (None, {})


def _is_due(parameter: inspect.Parameter) -> bool:
    """Return whether a call must give a parameter."""
    return parameter.default is parameter.empty and parameter.kind < parameter.VAR_POSITIONAL


def short_name(thing: Any) -> str:
    """Return the name of a class, of a function, or of an object's class."""
    return str(getattr(thing, "__name__", type(thing).__name__))
