"""Criteria on figures: "served>=0.95", as ``corral evaluate --require`` and others take them.

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
    """A bound on one figure of several that have names."""

    name: str
    operator: str  # one of OPERATORS
    bound: float

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{self.bound:.12g}"

    @classmethod
    def parse(cls, text: str) -> Criterion:
        """Return the criterion that ``text`` states. Raises ValueError where it states none."""
        found = re.fullmatch(r"([^<>=]+)(>=|<=|>|<)([^<>=]+)", str(text))
        bound = _number(found[3]) if found else None
        if found is None or bound is None or not found[1].strip():
            raise ValueError(
                f"criterion {text!r}: give name, one of {' '.join(OPERATORS)}, and a number, "
                "such as 'return_team>=15', in quotation marks: a shell reads > otherwise"
            )
        return cls(found[1].strip(), found[2], bound)

    def value(self, values: Mapping[str, Any]) -> float | None:
        """Return the figure that is bounded; None where it is missing, or not a number (yet)."""
        value = values.get(self.name)
        if isinstance(value, str) or value is None or not math.isfinite(value):
            return None
        return float(value)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether ``values`` (name -> number) meet it; a figure that is missing does not."""
        value = self.value(values)
        return value is not None and OPERATORS[self.operator](value, self.bound)

    def require_known(self, known: Iterable[str]) -> None:
        """Raise UnknownNameError, with the nearest name, where ``known`` lacks the figure."""
        names = list(known)
        if self.name not in names:
            raise UnknownNameError.of("figure", self.name, names)


def _number(text: str) -> float | None:
    """Return a finite number; None where ``text`` is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
