"""Hear the calls of a method of one object, without a trace in the object.

The method is replaced in the class, for calls of this object alone. So copies of the object, and
its saved state, are as without listening. A class that is pickled by value, as Ray does with
classes of a script, is pickled with its own method.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType, SimpleNamespace
from typing import Any

__all__ = ["has_method", "on_call", "on_call_of_any"]

Heard = Callable[[tuple[Any, ...], dict[str, Any], Any], None]
"""Called after a call with its arguments, without self, and its result."""

Before = Callable[[tuple[Any, ...], dict[str, Any]], None]
"""Called before a call with its arguments, without self."""


def on_call(
    instance: Any, name: str, heard: Heard, before: Before | None = None
) -> Callable[[], None]:
    """Call ``heard`` after each call of the method ``name`` of ``instance``; return the undo.

    ``before`` is called before each call.
    """
    if name in vars(instance):  # the user's own function in this object
        return _on_attribute(instance, name, heard, before)
    return _listen(type(instance), name, (instance, heard, before))


def on_call_of_any(kind: type, name: str, heard: Heard) -> Callable[[], None]:
    """Call ``heard`` after each call of a method of any instance of a class; return the undo."""
    owner = next(base for base in kind.__mro__ if name in vars(base))
    return _listen(owner, name, (None, heard, None))


def has_method(instance: Any, name: str) -> bool:
    """Return True if an object or its class has a method.

    A check by a Protocol would leave a trace: Python 3.11 adds ``__annotations__`` to the class.
    """
    return name in vars(instance) or any(name in vars(base) for base in type(instance).__mro__)


Entry = tuple[Any, Heard, Before | None]
"""Instance, or None for any; functions that are called after and before its calls."""


class _Method:
    """A method of a class that tells its listeners, in place of the original."""

    def __init__(self, kind: type, name: str) -> None:
        self.inherited = name not in vars(kind)
        self.original = getattr(kind, name)
        self.listeners: list[Entry] = []
        functools.update_wrapper(self, self.original)

    def __get__(self, instance: Any, kind: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, instance: Any, *args: Any, **kwargs: Any) -> Any:
        entries = [item for item in self.listeners if item[0] is None or item[0] is instance]
        for _, _, before in entries:
            if before is not None:
                before(args, kwargs)
        result = self.original(instance, *args, **kwargs)
        for _, heard, _ in entries:
            heard(args, kwargs, result)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (SimpleNamespace(original=self.original), "original")


def _listen(kind: type, name: str, entry: Entry) -> Callable[[], None]:
    """Add a listener to a method of a class; return the undo."""
    member = vars(kind).get(name)
    method = member if isinstance(member, _Method) else _Method(kind, name)
    setattr(kind, name, method)
    method.listeners.append(entry)

    def undo() -> None:
        method.listeners[:] = [item for item in method.listeners if item is not entry]
        if method.listeners or vars(kind).get(name) is not method:
            return
        if method.inherited:
            delattr(kind, name)
        else:
            setattr(kind, name, method.original)

    return undo


def _on_attribute(
    instance: Any, name: str, heard: Heard, before: Before | None
) -> Callable[[], None]:
    original = vars(instance)[name]

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(args, kwargs)
        result = original(*args, **kwargs)
        heard(args, kwargs, result)
        return result

    setattr(instance, name, function)

    def undo() -> None:
        setattr(instance, name, original)

    return undo
