"""Criteria on named figures, such as "served>=0.95": for ``corral evaluate --require`` and others.

criterion = Criterion.parse("served>=0.95")
criterion.require_known(values)
criterion.holds(values)
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from corral.errors import UnknownNameError

__all__ = ["Criterion"]

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Criterion:
    """A bound on one named figure."""

    name: str
    operator: str  # one of OPERATORS
    bound: float

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{self.bound:.12g}"

    @classmethod
    def parse(cls, text: str) -> Criterion:
        """Parse a criterion such as "served>=0.95". Raises ValueError for an invalid text."""
        match = re.fullmatch(r"([^<>=]+)(>=|<=|>|<)([^<>=]+)", str(text))
        bound = _number(match[3]) if match else None
        if match is None or bound is None or not match[1].strip():
            raise ValueError(
                f"criterion {text!r}: pass a name, one of {' '.join(OPERATORS)}, and a number, "
                "such as 'return_team>=15'. Quote it, because the shell interprets > and <"
            )
        return cls(match[1].strip(), match[2], bound)

    def value(self, values: Mapping[str, Any]) -> float | None:
        """Return the bounded figure; None if it is missing, not a number or not finite."""
        value = values.get(self.name)
        if isinstance(value, str) or value is None or not math.isfinite(value):
            return None
        return float(value)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return True if ``values`` (name -> number) meet the criterion; a missing figure fails."""
        value = self.value(values)
        return value is not None and OPERATORS[self.operator](value, self.bound)

    def require_known(self, known: Iterable[str]) -> None:
        """Raise UnknownNameError, with the closest name, if ``known`` lacks the figure."""
        names = list(known)
        if self.name not in names:
            raise UnknownNameError.of("figure", self.name, names)


def _number(text: str) -> float | None:
    """Return a finite number; None if ``text`` is not one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
