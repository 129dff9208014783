"""Settings that change during training.

A setting of type ``float | str`` accepts

| value | meaning |
|---|---|
| ``3e-4`` | constant value |
| ``"linear"`` | from the setting's default to 0 at the end of the plan (``horizon``) |
| ``"linear:3e-4"`` | from this number to 0 |
| ``"0:2e-5,1e6:1e-8"`` | points, env steps : value; linear between them, constant outside |

A number also changes if a second setting says so: ``learning_rate`` falls to 0 with ``anneal``, and
``ent_coef`` moves to ``ent_coef_end``. Only ``scheduled`` computes the current value.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_right
from typing import Any

__all__ = ["changes", "linear", "parse_schedule", "scheduled", "values_of"]

FORMS = (
    "pass a number, linear, linear:NUMBER (both fall to 0), or points of env steps and values, "
    "such as 0:2e-5,1e6:1e-8"
)

Points = tuple[tuple[float, float], ...]


def scheduled(settings: Any, name: str, *, env_steps: int, progress: float) -> float:
    """Return the value of the setting ``name`` after ``env_steps`` env steps.

    ``progress`` is the completed share of the plan: 0 at its beginning, 1 at its end.
    """
    value = getattr(settings, name)
    if isinstance(value, str):
        begin, points = parse_schedule(value)
        if points:
            return _between(points, env_steps)
        return linear(_default(settings, name) if begin is None else begin, 0.0, progress)
    return linear(value, _end(settings, name, value), progress)


def changes(settings: Any, name: str) -> bool:
    """Return True if the value of a setting changes during training."""
    value = getattr(settings, name)
    return isinstance(value, str) or _end(settings, name, value) != value


@functools.lru_cache(maxsize=256)
def parse_schedule(text: str) -> tuple[float | None, Points]:
    """Return (start, ()) for a "linear" text, start None for the default; else (None, points).

    Raises ValueError that names the valid forms."""
    word, colon, number = text.strip().partition(":")
    if word == "linear":
        return (_number(number) if colon else None), ()
    points = []
    for part in text.split(","):
        at, colon, value = part.partition(":")
        if ":" not in text:
            raise ValueError(FORMS)
        if not colon:
            raise ValueError(f"{part.strip()!r} is not a point (env steps:value); {FORMS}")
        points.append((_number(at), _number(value)))
    steps = [at for at, _ in points]
    if steps[0] < 0 or any(b <= a for a, b in itertools.pairwise(steps)):
        raise ValueError("env steps must be increasing and 0 or more")
    return None, tuple(points)


def values_of(settings: Any, name: str) -> list[float]:
    """Return the values that bound the schedule of a setting, to check them.

    Raises ValueError with the setting, its value and the valid forms.
    """
    value = getattr(settings, name)
    try:
        begin, points = parse_schedule(value)
        if points:
            return [number for _, number in points]
        begin = _default(settings, name) if begin is None else begin
        if not begin:
            raise ValueError(
                "the default is 0, so it would stay 0; pass linear:0.01 or another number"
            )
    except ValueError as error:
        raise ValueError(f"{name}={value!r}: {error}") from None
    if getattr(settings, f"{name}_end", None) is not None:
        raise ValueError(
            f"{name}={value!r} already defines its end: omit {name}_end, or pass a number"
        )
    return [begin]


def linear(begin: float, end: float, progress: float) -> float:
    """Interpolate from ``begin`` at ``progress`` 0 to ``end`` at 1, clamped outside this range."""
    return begin + (end - begin) * min(max(progress, 0.0), 1.0)


def _between(points: Points, env_steps: float) -> float:
    after = bisect_right([at for at, _ in points], env_steps)
    if after in (0, len(points)):
        return points[max(after - 1, 0)][1]
    (low, begin), (high, end) = points[after - 1 : after + 1]
    return linear(begin, end, (env_steps - low) / (high - low))


def _end(settings: Any, name: str, value: float) -> float:
    """Return the value of a constant setting at the end of the plan."""
    if name == "learning_rate":
        return 0.0 if getattr(settings, "anneal", False) else value
    end = getattr(settings, f"{name}_end", None)
    return value if end is None else float(end)


def _default(settings: Any, name: str) -> float:
    return float(type(settings).__dataclass_fields__[name].default)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text.strip()!r} is not a number; {FORMS}") from None
    if not math.isfinite(value):
        raise ValueError(f"{text.strip()!r} is not finite; {FORMS}")
    return value
