"""Rules about rows in order of time: whole episodes, one after the other, in one batch.

Loops of REINFORCE give such batches without rollouts. The order is known if a formula over
neighboring rows reproduces their returns exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.fits import ROUNDING
from corral.lab.listening.formula_faults import GAMMAS
from corral.lab.listening.heard import Heard, Minibatch
from corral.lab.listening.minibatches import flat, vary

__all__ = ["RULES", "returns_of_rows"]

EPISODES, ROWS = 4, 32
"""Minimum numbers of whole episodes and of rows."""

Sums = Callable[[Array, float], Array]


def returns_of_rows(heard: Heard) -> Finding | None:
    """Report returns of the past, and returns that are normalized within each episode."""
    if heard.rollouts:
        return None
    findings: list[Finding] = []
    for item in heard.minibatches:
        episodes, rewards = _episodes(item), flat(item.rewards)
        for name in ("returns", "advantages"):
            numbers = flat(getattr(item, name))
            if not episodes or rewards is None or numbers is None or not vary(numbers):
                continue
            sums = [rewards[part].sum() for part in episodes]
            if len(numbers) != len(rewards) or np.ptp(sums) <= 1e-6:
                continue  # equal episodes tell nothing
            if any(_fits(numbers, rewards, episodes, gamma, _to_go) for gamma in _gammas(heard)):
                return None
            finding = _of_numbers(numbers, rewards, episodes, heard)
            findings += [] if finding is None else [finding]
            break
    return findings[0] if len(findings) > 1 else None


def _gammas(heard: Heard) -> list[float]:
    return list(dict.fromkeys(GAMMAS if heard.gamma is None else (heard.gamma, *GAMMAS)))


def _of_numbers(
    numbers: Array, rewards: Array, episodes: list[slice], heard: Heard
) -> Finding | None:
    """Return the fault of numbers that are not sums of later rewards; None if it is not known."""
    long = [part for part in episodes if part.stop - part.start >= EPISODES]
    if not long:
        return None
    for gamma in _gammas(heard):
        if _fits(numbers, rewards, episodes, gamma, _so_far):
            measured = (
                f"in {len(episodes)} episodes each number is the sum of the rewards so far; none "
                "contains a later reward"
            )
            return finding_of("advantage-elsewhere", measured, 3, heard.policy)
    size = float(numbers.std())
    means = [abs(float(numbers[part].mean())) for part in long]
    spreads = [numbers[part].std(ddof=ddof) for ddof in (0, 1) for part in long]
    if len(long) < EPISODES or max(means) > 1e-3 * size:
        return None
    scaled = any(
        np.ptp(group) < 1e-3 * max(group) for group in (spreads[: len(long)], spreads[len(long) :])
    )
    sums = [float(rewards[part].sum()) for part in long]
    text = "mean 0 and the same standard deviation" if scaled else "mean 0"
    measured = f"they have {text} in each of {len(long)} episodes, which return {min(sums):.3g} to "
    measured += f"{max(sums):.3g}: good and bad episodes look the same"
    return finding_of("advantages-mixed", measured, 3 if scaled else 2, heard.policy)


def _episodes(item: Minibatch) -> list[slice]:
    """Return the rows of each episode; empty if the last row is not an end."""
    flags = [part.reshape(-1) for part in (item.terminated, item.truncated) if part is not None]
    if not flags or len({len(part) for part in flags}) > 1:
        return []
    ends = np.flatnonzero(np.logical_or.reduce(flags))
    count = len(flags[0])
    if len(ends) < EPISODES or count < ROWS or ends[-1] != count - 1 or len(ends) == count:
        return []
    starts = np.concatenate([[0], ends[:-1] + 1])
    return [slice(int(start), int(end) + 1) for start, end in zip(starts, ends, strict=True)]


def _fits(numbers: Array, rewards: Array, episodes: list[slice], gamma: float, sums: Sums) -> bool:
    """Return True if the numbers are sums of each episode, up to a normalization of all rows."""
    made = np.concatenate([sums(rewards[part], gamma) for part in episodes])
    if not vary(made):
        return False
    slope, shift = np.polyfit(made, numbers, 1)
    off = np.abs(numbers - slope * made - shift).max()
    return bool(slope > 0 and off < 1e-4 * numbers.std() + ROUNDING * np.abs(numbers).max())


def _to_go(rewards: Array, gamma: float) -> Array:
    result, later = np.zeros(len(rewards)), 0.0
    for t in range(len(rewards) - 1, -1, -1):
        later = result[t] = rewards[t] + gamma * later
    return result


def _so_far(rewards: Array, gamma: float) -> Array:
    return _to_go(rewards[::-1], gamma)[::-1]


RULES = (returns_of_rows,)
