"""Words and numbers of a study, as its screen and its pictures say them."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["counted", "in_numbers", "percents"]


def counted(trials: int) -> str:
    """Return "1 trial", "2 trials"."""
    return f"{trials} trial{'s' * (trials != 1)}"


def in_numbers(trials: Sequence[int]) -> str:
    """Return "trials 0, 1 and 2"."""
    *first, last = map(str, trials)
    return f"trials {', '.join(first)} and {last}" if first else f"trial {last}"


def percents(shares: Sequence[float]) -> list[int]:
    """Return shares in whole percent that sum to what they sum to: the largest remainders go up."""
    exact = [100 * share for share in shares]
    found = [math.floor(each) for each in exact]
    left = round(sum(exact)) - sum(found)
    for at in sorted(range(len(exact)), key=lambda i: found[i] - exact[i])[:left]:
        found[at] += 1
    return found
