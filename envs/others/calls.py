"""Call user classes and functions with keywords, or with one config dict as RLlib does."""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["EnvContext", "accepts", "construct", "missing_arguments", "short_name"]


class EnvContext(dict[str, Any]):
    """The config dict that RLlib passes to a constructor, with its additional attributes."""

    worker_index = 0
    vector_index = 0
    num_workers = 0
    remote = False


def construct(make: Callable[..., Any], kwargs: Mapping[str, Any], *, config: bool = False) -> Any:
    """Return ``make(**kwargs)``, or ``make(EnvContext(kwargs))`` if ``make`` takes a config.

    Keywords are used if ``make`` accepts all of them. Otherwise a config is passed if the name or
    the annotation of the first parameter indicates a config. With ``config`` it is also passed if
    the first parameter is optional or is ``*args``.
    """
    try:
        parameters = list(inspect.signature(make).parameters.values())
    except (TypeError, ValueError):  # no signature is available
        return make(**kwargs)
    if kwargs and accepts(make, *kwargs):
        return make(**kwargs)
    positional = [one for one in parameters if one.kind <= one.VAR_POSITIONAL]
    first, rest = next(iter(positional), None), positional[1:]
    if first is not None and (
        _is_config(first) or (config and _may_be_config(first) and not any(map(_is_required, rest)))
    ):
        return make(EnvContext(kwargs))
    return make(**kwargs)


def missing_arguments(error: KeyError | TypeError) -> tuple[str, list[str]] | None:
    """Return the place of the call and its missing arguments; None if the error has another cause.

    A missing key of a config counts only if the failing line spells it out: config["length"].
    """
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    if isinstance(error, TypeError):
        match = re.match(r"(.*\)) missing \d+ required .*arguments?: (.*)", str(error))
        if match is None or frame.f_globals.get("__name__") != __name__:  # raised by another call
            return None
        return match[1], re.findall(r"'(\w+)'", match[2])
    key, file = error.args[0] if error.args else None, frame.f_code.co_filename
    spelled = rf"\[[\"']{re.escape(str(key))}[\"']\]"
    if not isinstance(key, str) or not re.search(spelled, linecache.getline(file, line)):
        return None
    return f"{Path(file).name}:{line}", [key]


def accepts(make: Callable[..., Any], *names: str) -> bool:
    """Return True if a function accepts all these keywords."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False
    any_keyword = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    positional_only = inspect.Parameter.POSITIONAL_ONLY
    return all(
        parameters[name].kind is not positional_only if name in parameters else any_keyword
        for name in names
    )


def _is_config(first: inspect.Parameter) -> bool:
    named = re.search(r"config|cfg|conf$|context|ctx", first.name) is not None
    annotated = re.search(r"\b(dict|Dict|Mapping|EnvContext)\b", str(first.annotation)) is not None
    return first.kind is not first.VAR_POSITIONAL and (named or annotated)


def _may_be_config(first: inspect.Parameter) -> bool:
    return first.default is first.empty or first.default in (None, {})


def _is_required(parameter: inspect.Parameter) -> bool:
    """Return True if a call must pass the parameter."""
    return parameter.default is parameter.empty and parameter.kind < parameter.VAR_POSITIONAL


def short_name(thing: Any) -> str:
    """Return the name of a class or function, or the name of an object's class."""
    return str(getattr(thing, "__name__", type(thing).__name__))
