"""How far corral compare can be trusted with few seeds: intervals, false claims, what is found.

    python benchmarks/lab/comparing.py

Scores are drawn from distributions whose truth is known: normal; skewed (exponential); and failing
runs (8 of 10 runs end near 1, 2 of 10 near 0.3). Of many drawn comparisons it counts how often the
95 % bootstrap interval of an interquartile mean holds the true one, how often two groups of equals
are told apart, by the interval of their difference alone and by the rule of corral compare, and how
often that rule finds a true difference of 1, 2 or 3 standard deviations.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

from corral.lab.comparing.statistics import bootstrap_interval, difference, iqm
from corral.lab.comparing.verdict import compared

TRIALS = 1000
RESAMPLES = 1000
SEEDS = (3, 5, 10, 20)
APART = (1, 2, 3)  # standard deviations
KINDS = ("normal", "skewed", "failing runs")


def drawn(kind: str, n: int, rng: np.random.Generator) -> Any:
    """Return n scores."""
    if kind == "normal":
        return rng.normal(size=n)
    if kind == "skewed":
        return rng.exponential(size=n)
    return np.where(rng.random(n) < 0.8, 1.0, 0.3) + 0.05 * rng.normal(size=n)


def main() -> None:
    """Count, and save."""
    rng = np.random.default_rng(0)
    rows = []
    for kind in KINDS:
        many = drawn(kind, 4_000_000, rng)
        truth, sd = float(iqm(many)), float(many.std())
        rows += [counted(kind, n, truth, sd, rng) for n in SEEDS]
    save("comparing", table(rows), {"rows": rows}, machine())


def counted(kind: str, n: int, truth: float, sd: float, rng: np.random.Generator) -> dict[str, Any]:
    """Return shares of the trials."""
    held = by_interval = 0
    by_rule, found = 0, dict.fromkeys(APART, 0)
    for trial in range(TRIALS):
        plan: dict[str, Any] = {"resamples": RESAMPLES, "seed": trial}
        a, b = drawn(kind, n, rng), drawn(kind, n, rng)
        low, high = bootstrap_interval(a, **plan)
        held += low <= truth <= high
        low, high = bootstrap_interval(a, b, statistic=difference, **plan)
        by_interval += not low <= 0 <= high
        by_rule += compared(("a", "b"), a, b, **plan).found == "better"
        for apart in APART if trial < TRIALS // 4 else ():
            found[apart] += compared(("a", "b"), a + apart * sd, b, **plan).found == "better"
    return {
        "scores": kind,
        "seeds": n,
        "interval_holds_truth": held / TRIALS,
        "equals_told_apart_by_interval": by_interval / TRIALS,
        "equals_told_apart_by_rule": by_rule / TRIALS,
        "found": {apart: count / (TRIALS // 4) for apart, count in found.items()},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return Markdown."""
    lines = [
        "# How far corral compare can be trusted with few seeds",
        "",
        f"{TRIALS:,} drawn comparisons in each row ({TRIALS // 4} in the last three columns), "
        f"{RESAMPLES:,} resamples. Seeds are those of each group; equals are two groups of one "
        "distribution, which should be told apart in at most 5 of 100.",
        "",
        "| scores | seeds | 95 % interval of the IQM holds the truth | equals told apart by the "
        "interval of the difference alone | by the rule of corral compare | finds 1 sd | 2 sd | "
        "3 sd |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = [
            row[key]
            for key in (
                "interval_holds_truth",
                "equals_told_apart_by_interval",
                "equals_told_apart_by_rule",
            )
        ]
        shares = [*cells, *row["found"].values()]
        lines.append(
            f"| {row['scores']} | {row['seeds']} | "
            + " | ".join(f"{100 * share:.1f} %" for share in shares)
            + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
