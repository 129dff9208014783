"""Words and numbers that the screen and the pictures of a study share."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["counted", "in_numbers", "percents"]


def counted(trials: int) -> str:
    """Return a count in words: "1 trial", "2 trials"."""
    return f"{trials} trial{'s' * (trials != 1)}"


def in_numbers(trials: Sequence[int]) -> str:
    """Return a list of trials in words: "trials 0, 1 and 2"."""
    *first, last = map(str, trials)
    return f"trials {', '.join(first)} and {last}" if first else f"trial {last}"


def percents(shares: Sequence[float]) -> list[int]:
    """Return shares as whole percentages with the same sum; the largest remainders round up."""
    exact = [100 * share for share in shares]
    rounded = [math.floor(value) for value in exact]
    missing = round(sum(exact)) - sum(rounded)
    for at in sorted(range(len(exact)), key=lambda i: rounded[i] - exact[i])[:missing]:
        rounded[at] += 1
    return rounded
