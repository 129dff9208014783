"""What an environment showed, as texts that any process can compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "EXCEPTION",
    "Difference",
    "Frame",
    "Trace",
    "brief",
    "fingerprint",
    "first_difference",
]

EXCEPTION = ("exception", "")  # the only part of a frame in which the environment raised
PLAIN = frozenset({bool, int, float, str, bytes, type(None)})


@dataclass
class Frame:
    """Everything that one call showed, as fingerprints by (what, agent or "")."""

    step: int  # calls of step so far; 0 is the reset
    parts: dict[tuple[str, str], str]


Trace = list[Frame]


@dataclass(frozen=True)
class Difference:
    """Where two traces part."""

    step: int
    what: str
    agent: str | None
    one: str
    two: str

    def __str__(self) -> str:
        """Such as: another reward of a: 0.5 against 0.25; with values that are short enough."""
        whose = f" of {self.agent}" if self.agent else ""
        values = f": {self.one} against {self.two}" if len(self.one + self.two) < 100 else ""
        return f"another {self.what}{whose}{values}"


def first_difference(one: Trace, two: Trace, ignore: Iterable[str] = ()) -> Difference | None:
    """Where ``two`` first differs from ``one``; None where it does not.

    ``ignore``: kinds of parts that may differ.
    """
    for a, b in zip(one, two, strict=False):
        if (EXCEPTION in a.parts) != (EXCEPTION in b.parts):
            seen = a.parts.get(EXCEPTION, "none"), b.parts.get(EXCEPTION, "none")
            return Difference(a.step, "end by an exception", None, *seen)
        for key in [*a.parts, *(key for key in b.parts if key not in a.parts)]:
            seen = a.parts.get(key, "nothing"), b.parts.get(key, "nothing")
            if key[0] not in ignore and seen[0] != seen[1]:
                return Difference(a.step, key[0], key[1] or None, *seen)
    if len(one) != len(two):
        shorter = min(one, two, key=len)
        step = shorter[-1].step if shorter else 0
        ends = [str(trace[-1].step) if trace else "none" for trace in (one, two)]
        return Difference(step, "last step", None, *ends)
    return None


def fingerprint(value: Any) -> str:
    """A text that is equal for equal values, in every process. The keys of dicts have no order."""
    if type(value) in PLAIN:
        return repr(value)
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return f"object{value.shape}{fingerprint(value.tolist())}"
        if value.size <= 4:
            return f"{value.dtype.str}{value.tolist()}"
        digest = hashlib.blake2b(value.tobytes(), digest_size=8)
        return f"{value.dtype.str}{value.shape}#{digest.hexdigest()}"
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, Mapping):
        keys = sorted(value, key=str)
        return "{" + ", ".join([f"{key}: {fingerprint(value[key])}" for key in keys]) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(fingerprint, value))) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(fingerprint, value)) + "]"
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text  # an address says nothing


def brief(value: Any, most: int = 60) -> str:
    """A value in a few words, for a report."""
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"{value.dtype} array of shape {value.shape}"
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 3] + "..."
