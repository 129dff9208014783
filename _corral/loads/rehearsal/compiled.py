"""Compile functions of this package with numba, where the extra ``rehearse`` is installed.

The functions stay plain Python: ``compiled`` makes a second version of a function, and of the
functions of this package that it calls. Both versions give the same results.
"""

from __future__ import annotations

import dis
import functools
import importlib.util
from collections.abc import Callable
from types import FunctionType
from typing import Any

__all__ = ["compiled", "compiled_class", "is_available"]

PACKAGE = __name__.rpartition(".")[0]


def is_available() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function, compiled with the functions of this package that it calls."""
    import numba

    assert isinstance(function, FunctionType)
    scope = dict(function.__globals__)
    for name in global_names(function):
        callee = scope.get(name)
        if isinstance(callee, FunctionType) and callee.__module__.startswith(PACKAGE):
            scope[name] = compiled(callee)
    copy = FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    result: Callable[..., Any] = numba.njit(copy)
    return result


@functools.cache
def compiled_class(kind: type[Any], *example: Any) -> Any:
    """Return a class, compiled, with the types of the members of ``kind(*example)``."""
    import numba
    from numba.experimental import jitclass

    members = vars(kind(*example))
    spec = {name: numba.typeof(value) for name, value in members.items()}
    return jitclass(spec)(kind)


def global_names(function: FunctionType) -> set[str]:
    """Return the global names that a function reads."""
    return {code.argval for code in dis.get_instructions(function) if code.opname == "LOAD_GLOBAL"}
