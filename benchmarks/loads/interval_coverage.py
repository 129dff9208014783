"""How often the 95 % intervals of a replay hold the true figure, on loads made for it.

    python benchmarks/loads/interval_coverage.py [--repetitions N]

A repetition makes so many days of load, of a policy's cost, and of what another policy saves; it
asks for the intervals of the cost as a share of the load, and of the paired difference. These are
``share_interval`` and ``difference_interval`` of corral.trainers.evaluation.intervals, which all
tables of replays use, told that the windows are days. Costs and savings are days of the same kind,
drawn apart. Days are independent in the first cases, as the intervals take them to be; in the last
two there is what no interval can know, and the coverage says what its 95 % is then worth. "told" is
how often a replay would say of such costs that its intervals are too narrow.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

from corral.envs.core import Array
from corral.loads.best_rule import BestRule, correlated
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


def covered(level: Level, days: int, repetitions: int) -> tuple[float, float, float]:
    """Return how often the intervals of the share and of the difference hold the truth, and how
    often they are called too narrow, in %."""
    rng = np.random.default_rng(0)
    mean = {weekdays: WEEK.mean(), bursts: 1.3}.get(level, 1.0)
    share, difference = COST * mean, -SAVED * COST * mean
    counts = np.zeros(3)
    for _ in range(repetitions):
        load = 1000 * lognormal(0.1)(rng, days)  # [W]
        cost = COST * 1000 * level(rng, days)
        more = -SAVED * COST * 1000 * level(rng, days)
        low, high = share_interval(cost, load, season=7)
        counts[0] += low is not None and high is not None and low <= share <= high
        low, high = difference_interval(more, load, season=7)
        counts[1] += low is not None and high is not None and low <= difference <= high
        rule = BestRule(("rule",) * days, cost, "", season=7)
        counts[2] += correlated(rule.lag_1) or rule.dominated
    return tuple((100 * counts / repetitions).tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=4000)
    repetitions = parser.parse_args().repetitions
    rows = []
    for case, level in CASES.items():
        found = [covered(level, days, repetitions) for days in DAYS]
        columns = zip(*found, strict=True)
        for what, own in zip(("share", "difference", "told"), columns, strict=True):
            rows.append([case, what, *(f"{each:.1f}" for each in own)])
            print(*rows[-1], flush=True)
    lines = ["| days | of | " + " | ".join(map(str, DAYS)) + " |", "|---|---|" + "---|" * len(DAYS)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    about = f"{repetitions:,} repetitions each; told: called too narrow."
    text = "\n".join(["# How often 95 % intervals hold the truth, in %", "", about, "", *lines])
    save("interval_coverage", text, {"repetitions": repetitions, "rows": rows}, machine())


if __name__ == "__main__":
    main()
