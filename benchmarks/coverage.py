"""How often the 95 % intervals of a replay hold the true figure, on loads made for it.

    python benchmarks/coverage.py [--repetitions N]

A repetition makes so many days of load and of two policies' costs, and asks for the interval of the
cost as a share of the load, and of the paired difference. Both are ``share_interval`` and
``difference_interval`` of corral.trainers.evaluation.intervals, which all tables of replays use.
Days are independent in the first cases, as the intervals take them to be; in the last two they are
not what an interval can know, and the coverage says what its 95 % is then worth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from common import machine, save

from corral.envs.core import Array
from corral.trainers.evaluation.intervals import difference_interval, share_interval

DAYS = (6, 14, 30, 60)
WEEK = np.array([1.1, 1.05, 1.05, 1.05, 1.1, 0.8, 0.85])
COST, SAVED = 0.1, 0.05  # of the load; of the cost, by the other policy

Level = Callable[[np.random.Generator, int], Array]


def lognormal(spread: float) -> Level:
    """Independent days, of mean 1."""
    return lambda rng, days: np.exp(rng.normal(0, spread, days) - spread**2 / 2)


def weekdays(rng: np.random.Generator, days: int) -> Array:
    """A week's shape from any day on, beside what is drawn."""
    return WEEK[(rng.integers(7) + np.arange(days)) % 7] * lognormal(0.2)(rng, days)


def autoregressive(rng: np.random.Generator, days: int) -> Array:
    """Each day remembers 0.6 of the one before."""
    spread, memory = 0.4, 0.6
    noise = rng.normal(0, spread * np.sqrt(1 - memory**2), days)
    noise[0] = rng.normal(0, spread)
    for day in range(1, days):
        noise[day] += memory * noise[day - 1]
    return np.asarray(np.exp(noise - spread**2 / 2))


def bursts(rng: np.random.Generator, days: int) -> Array:
    """One day in ten is four times as large."""
    return np.where(rng.random(days) < 0.1, 4.0, 1.0) * lognormal(0.2)(rng, days)


CASES: dict[str, Level] = {
    "independent, sd 0.2": lognormal(0.2),
    "independent, sd 0.4": lognormal(0.4),
    "weekdays": weekdays,
    "AR(0.6), sd 0.4": autoregressive,
    "one day in ten four times": bursts,
}


def covered(level: Level, days: int, repetitions: int) -> tuple[float, float]:
    """Return how often the intervals of the share and of the difference hold the truth."""
    rng = np.random.default_rng(0)
    load = np.array([1000 * lognormal(0.1)(rng, days) for _ in range(repetitions)])  # [R, W]
    cost = COST * 1000 * np.array([level(rng, days) for _ in range(repetitions)])
    other = cost * (1 - SAVED + rng.normal(0, 0.1, cost.shape))
    mean = {weekdays: WEEK.mean(), bursts: 1.3}.get(level, 1.0)
    share, difference = COST * mean, -SAVED * COST * mean
    held = np.zeros(2)
    for k in range(repetitions):
        low, high = share_interval(cost[k], load[k])
        held[0] += low is not None and high is not None and low <= share <= high
        low, high = difference_interval(other[k] - cost[k], load[k])
        held[1] += low is not None and high is not None and low <= difference <= high
    return tuple((100 * held / repetitions).tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=4000)
    repetitions = parser.parse_args().repetitions
    rows = []
    for case, level in CASES.items():
        held = [covered(level, days, repetitions) for days in DAYS]
        for what, own in zip(("share", "difference"), zip(*held, strict=True), strict=True):
            rows.append([case, what, *(f"{each:.1f}" for each in own)])
            print(*rows[-1], flush=True)
    lines = ["| days | of | " + " | ".join(map(str, DAYS)) + " |", "|---|---|" + "---|" * len(DAYS)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    text = "\n".join(["# How often 95 % intervals hold the truth, in %", "", *lines])
    save("coverage", text, {"repetitions": repetitions, "rows": rows}, machine())


if __name__ == "__main__":
    main()
