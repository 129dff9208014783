"""Hear the calls of a method of one object, without a trace in the object.

The method is replaced in the class, for calls of this object alone. So copies of the object, and
what is saved of it, are as without listening.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["on_call"]

Heard = Callable[[tuple[Any, ...], dict[str, Any], Any], None]
"""Called after a call with its arguments, without self, and its result."""


def on_call(instance: Any, name: str, heard: Heard) -> Callable[[], None]:
    """Call ``heard`` after each call of the method ``name`` of ``instance``; return the undo."""
    if name in vars(instance):  # the user's own function in this object
        return _on_attribute(instance, name, heard)
    kind = type(instance)
    dispatch = vars(kind).get(name)
    listeners: list[tuple[Any, Heard]] | None = getattr(dispatch, _LISTENERS, None)
    if listeners is None:
        listeners = []
        _dispatch(kind, name, listeners)
    entry = (instance, heard)
    listeners.append(entry)

    def undo() -> None:
        if entry in listeners:
            listeners.remove(entry)
        if not listeners:
            _restore(kind, name)

    return undo


_LISTENERS, _BEFORE = "_corral_listeners", "_corral_before"


def _dispatch(kind: type, name: str, listeners: list[tuple[Any, Heard]]) -> None:
    """Replace the method of a class by one that tells ``listeners``."""
    before = vars(kind).get(name)
    original = getattr(kind, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        for instance, heard in list(listeners):
            if instance is self:
                heard(args, kwargs, result)
        return result

    setattr(method, _LISTENERS, listeners)
    setattr(method, _BEFORE, before)
    setattr(kind, name, method)


def _restore(kind: type, name: str) -> None:
    before = getattr(vars(kind).get(name), _BEFORE, None)
    if before is not None:
        setattr(kind, name, before)
    elif name in vars(kind):
        delattr(kind, name)


def _on_attribute(instance: Any, name: str, heard: Heard) -> Callable[[], None]:
    original = vars(instance)[name]

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        heard(args, kwargs, result)
        return result

    setattr(instance, name, function)

    def undo() -> None:
        setattr(instance, name, original)

    return undo
