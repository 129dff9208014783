"""Settings that change while training goes on.

A setting whose type is ``float | str`` takes

| value | meaning |
|---|---|
| ``3e-4`` | this number |
| ``"linear"`` | from the setting's default to 0, where the plan (``horizon``) ends |
| ``"linear:3e-4"`` | from this number to 0 |
| ``"0:2e-5,1e6:1e-8"`` | points, env steps : value; linear between them, constant outside |

A number falls, too, where a setting beside it says so: ``learning_rate`` to 0 with ``anneal``,
``ent_coef`` to ``ent_coef_end``. ``scheduled`` is the one place that tells what holds now.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_right
from typing import Any

__all__ = ["changes", "linear", "parse_schedule", "scheduled", "values_of"]

FORMS = (
    "give a number, linear, linear:NUMBER (both fall to 0), or points of env steps and values, "
    "such as 0:2e-5,1e6:1e-8"
)

Points = tuple[tuple[float, float], ...]


def scheduled(settings: Any, name: str, *, env_steps: int, progress: float) -> float:
    """Return the value that the setting ``name`` has after ``env_steps`` env steps.

    ``progress`` tells how much of the plan that is: 0 at its beginning, 1 at its end.
    """
    value = getattr(settings, name)
    if isinstance(value, str):
        begin, points = parse_schedule(value)
        if points:
            return _between(points, env_steps)
        return linear(_default(settings, name) if begin is None else begin, 0.0, progress)
    return linear(value, _end(settings, name, value), progress)


def changes(settings: Any, name: str) -> bool:
    """Return whether a setting is other than a number that stays."""
    value = getattr(settings, name)
    return isinstance(value, str) or _end(settings, name, value) != value


@functools.lru_cache(maxsize=256)
def parse_schedule(text: str) -> tuple[float | None, Points]:
    """Return the number that a "linear" text begins with, None for the default, and the points of
    another text. Raises ValueError that names the right form."""
    word, colon, number = text.strip().partition(":")
    if word == "linear":
        return (_number(number) if colon else None), ()
    points = []
    for part in text.split(","):
        at, colon, value = part.partition(":")
        if ":" not in text:
            raise ValueError(FORMS)
        if not colon:
            raise ValueError(f"{part.strip()!r} is no point; {FORMS}")
        points.append((_number(at), _number(value)))
    steps = [at for at, _ in points]
    if steps[0] < 0 or any(b <= a for a, b in itertools.pairwise(steps)):
        raise ValueError("env steps must increase, from 0 or more")
    return None, tuple(points)


def values_of(settings: Any, name: str) -> list[float]:
    """Return the numbers between which the schedule of a setting moves, to check their bounds.

    Raises ValueError that names setting, value and the right form.
    """
    value = getattr(settings, name)
    try:
        begin, points = parse_schedule(value)
        if points:
            return [each for _, each in points]
        begin = _default(settings, name) if begin is None else begin
        if not begin:
            raise ValueError("it would stay at the default, 0; give linear:0.01 or another number")
    except ValueError as error:
        raise ValueError(f"{name}={value!r}: {error}") from None
    if getattr(settings, f"{name}_end", None) is not None:
        raise ValueError(
            f"{name}={value!r} says itself where it ends: leave {name}_end out, or give a number"
        )
    return [begin]


def linear(begin: float, end: float, progress: float) -> float:
    """Return what goes from ``begin`` at ``progress`` 0 to ``end`` at 1, and no further."""
    return begin + (end - begin) * min(max(progress, 0.0), 1.0)


def _between(points: Points, env_steps: float) -> float:
    after = bisect_right([at for at, _ in points], env_steps)
    if after in (0, len(points)):
        return points[max(after - 1, 0)][1]
    (low, begin), (high, end) = points[after - 1 : after + 1]
    return linear(begin, end, (env_steps - low) / (high - low))


def _end(settings: Any, name: str, value: float) -> float:
    """Return where a number is by the end of the plan."""
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
        raise ValueError(f"{text.strip()!r} is no number; {FORMS}") from None
    if not math.isfinite(value):
        raise ValueError(f"{text.strip()!r} is not finite; {FORMS}")
    return value
