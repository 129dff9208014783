"""Odd values of every argument of every environment are refused by the package's own errors."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import pytest

from corral.envs.registry import ENVIRONMENTS, rules_class
from corral.errors import CorralError

ODD: tuple[Any, ...] = (10, -1, "x", [], {}, object(), float("inf"), (1,), [1, 2, 3], True)
ARGUMENTS = [
    (name, argument)
    for name in ENVIRONMENTS
    for argument in inspect.signature(rules_class(name)).parameters
]
PATHS = ("trace", "templates")
"""Of other things than paths Python says itself that they are none."""


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_odd_values_are_taken_or_refused_plainly(name: str, argument: str) -> None:
    kind: Any = rules_class(name)
    own: tuple[type[Exception], ...] = (CorralError, ValueError)
    for value in ODD:
        with contextlib.suppress(*own, *((OSError, TypeError) if argument in PATHS else ())):
            kind(**{argument: value})
