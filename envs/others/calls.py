"""Calls of classes and functions that users wrote: by keywords, or with one config, as in RLlib."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["EnvContext", "called", "short_name", "takes"]


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
    first, *others = [each for each in parameters if each.kind <= each.VAR_POSITIONAL] or [None]
    if first is not None and (
        _is_config(first) or (config and _may_be_config(first) and not any(map(_is_due, others)))
    ):
        return make(EnvContext(kwargs))
    return make(**kwargs)


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
