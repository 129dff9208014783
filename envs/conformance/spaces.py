"""Whether spaces stay what they are, and whether what is observed lies in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.conformance.play import MASK, BadAnswer, Game
from corral.envs.conformance.report import Findings, Severity
from corral.envs.conformance.trace import brief

__all__ = ["Misfit", "look_at_spaces", "misfits"]


def look_at_spaces(game: Game, agent: Any, findings: Findings, when: str) -> bool:
    """See that an agent's spaces are the objects that they were at first; whether it has any."""
    for kind in ("observation", "action"):
        ask: Callable[[Any], Any] = getattr(game.env, f"{kind}_space")
        try:
            first, now = game.space(kind, agent), ask(agent)
            if not isinstance(first, spaces.Space):
                raise BadAnswer(f"{brief(first)} is no gymnasium space")
        except Exception as error:  # whatever the environment raises
            findings.add(
                "spaces",
                f"{kind} raises",
                agent=agent,
                seen=f"{kind}_space({agent!r}) {when}: {type(error).__name__}: {error}",
                expected="a space, for every one of possible_agents, at any time",
                advice="build the spaces in the constructor",
            )
            return False
        if now is first:
            continue
        equal = now == first
        findings.add(
            "spaces",
            f"{kind} {'object' if equal else 'changed'}",
            agent=agent,
            seen=f"{kind}_space({agent!r}) is "
            + ("another object at each call" if equal else f"{now} {when}, at first {first}"),
            expected="the same object at every call"
            + (": seeding a space that is made anew has no effect" if equal else ""),
            advice="build spaces once, in the constructor, or cache the method with lru_cache",
        )
    return True


@dataclass(frozen=True)
class Misfit:
    """One way in which a value is not of its space."""

    cause: str
    seen: str
    expected: str
    advice: str
    path: str = ""
    severity: Severity = "error"


def misfits(space: Any, value: Any, path: str = "", top: bool = False) -> Iterator[Misfit]:
    """How ``value`` is not of ``space``; the mask, at the ``top`` of a Dict, is left out."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            yield _misfit("type", f"a {type(value).__name__}", "a dict", path)
            return
        if set(value) != set(space.spaces):
            keys = [sorted(map(str, keys)) for keys in (value, space.spaces)]
            yield _misfit("keys", f"keys {keys[0]}", f"keys {keys[1]}", path)
        for key, part in space.spaces.items():
            if key in value and not (top and key == MASK):
                yield from misfits(part, value[key], f"{path}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            yield _misfit("type", brief(value), f"a tuple of {len(space.spaces)}", path)
            return
        for i, part in enumerate(space.spaces):
            yield from misfits(part, value[i], f"{path}[{i}]")
    elif isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        yield from _array_misfits(space, value, path)
    elif not space.contains(value):
        yield _misfit("outside", brief(value), f"a value of {space}", path)


def _array_misfits(space: Any, value: Any, path: str) -> Iterator[Misfit]:
    if not isinstance(value, np.ndarray | np.generic):
        yield _misfit("type", f"a {type(value).__name__}, {brief(value)}", "an array", path)
    elif value.shape != space.shape:
        yield _misfit("shape", f"shape {value.shape}", f"shape {space.shape}", path)
    elif not np.can_cast(value.dtype, space.dtype):
        yield _misfit("dtype", f"dtype {value.dtype}", f"dtype {space.dtype}", path)
    else:
        if value.dtype != space.dtype:
            advice = f"make it with dtype np.{space.dtype}: buffers have the space's dtype"
            seen, expected = f"dtype {value.dtype}", f"dtype {space.dtype}"
            yield Misfit("other dtype", seen, expected, advice, path, "warning")
        array = np.asarray(value)
        if array.dtype.kind == "f" and np.isnan(array).any():
            yield _misfit("NaN", f"NaN in {brief(array)}", "numbers", path)
        elif isinstance(space, spaces.Box):
            outside = (array < space.low) | (array > space.high)
            if outside.any():
                place = tuple(int(i) for i in np.argwhere(outside)[0])
                low, high = space.low[place], space.high[place]
                at = f" at index {', '.join(map(str, place))}" if place else ""
                yield _misfit("outside", f"{array[place]}{at}", f"{low} to {high}", path)
        elif not space.contains(array.astype(space.dtype)):
            yield _misfit("outside", brief(value), f"a value of {space}", path)


def _misfit(cause: str, seen: str, expected: str, path: str) -> Misfit:
    advice = {
        "outside": "widen the space, or clip or scale what is observed",
        "dtype": "make it with the space's dtype, or declare the dtype that it has",
        "NaN": "look for a division by 0, or for an array that was never filled",
    }.get(cause, "make the space and what is observed agree")
    return Misfit(cause, f"an observation: {seen}", f"in the space: {expected}", advice, path)
