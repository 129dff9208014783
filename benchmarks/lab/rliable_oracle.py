"""What rliable computes for the same scores: golden values for
tests/lab/comparing/test_rliable.py.

    python -m venv /tmp/rliable
    /tmp/rliable/bin/pip install "pandas<2.2" "numpy<2" scipy arch==5.5.0 absl-py
    /tmp/rliable/bin/pip install --no-deps rliable==1.2.0
    /tmp/rliable/bin/python benchmarks/lab/rliable_oracle.py

In an environment of its own: rliable does not import beside today's pandas, and corral needs none
of it. Random score matrices of a fixed seed, some with ties, and what rliable finds in them are
written to tests/lab/comparing/rliable_golden.json. Its bootstrap is drawn many times,
so that the ends of intervals can be compared within their own Monte Carlo error.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from rliable import library, metrics

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "trainers" / "study" / "comparing" / "rliable_golden.json"

REPS = 2_000
REPEATS = 4  # bootstraps of each interval; what is written is their mean, and how they scatter

CASES = {
    # name: (runs of x, runs of y, tasks, decimals that scores are rounded to: few make ties)
    "one task, 5 runs": (5, 5, 1, None),
    "one task, 10 and 7 runs": (10, 7, 1, None),
    "3 tasks, 4 runs": (4, 4, 3, None),
    "6 tasks, 10 runs": (10, 10, 6, None),
    "2 tasks, 6 runs, ties": (6, 6, 2, 0),
    "one task, 8 runs, ties": (8, 8, 1, 1),
}


def main() -> None:
    """Write the file."""
    rng = np.random.default_rng(7)
    np.random.seed(11)  # noqa: NPY002 - rliable draws from the global state
    cases = {}
    for name, (n_x, n_y, tasks, decimals) in CASES.items():
        x, y = rng.normal(1.0, 1.0, (n_x, tasks)), rng.normal(0.5, 1.5, (n_y, tasks))
        if decimals is not None:
            x, y = x.round(decimals), y.round(decimals)
        cases[name] = case(x, y)
    about = {name: metadata.version(name) for name in ("rliable", "arch", "numpy", "scipy")}
    found = {"about": about, "reps": REPS, "cases": cases}
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{GOLDEN.relative_to(ROOT)}: {len(cases)} cases, {about}")


def case(x: Any, y: Any) -> dict[str, Any]:
    """Return scores [runs, tasks] of both, and what rliable says of them."""
    thresholds = np.linspace(-1.5, 2.5, 9)
    return {
        "x": x.tolist(),
        "y": y.tolist(),
        "iqm": metrics.aggregate_iqm(x),
        "mean": metrics.aggregate_mean(x),
        "iqm_interval": interval(x, lambda a: np.array([metrics.aggregate_iqm(a)])),
        "improvement": metrics.probability_of_improvement(x, y),
        "improvement_interval": interval(
            (x, y), lambda a, b: np.array([metrics.probability_of_improvement(a, b)])
        ),
        "thresholds": thresholds.tolist(),
        "profile": library.score_distributions(x, thresholds).tolist(),
        "profile_interval": interval(x, lambda a: library.score_distributions(a, thresholds)),
    }


def interval(scores: Any, func: Any) -> dict[str, Any]:
    """Return the mean of the ends [2, ...] over the repeats, and their standard deviation."""
    ends = []
    for _ in range(REPEATS):
        _, found = library.get_interval_estimates({"it": scores}, func, reps=REPS)
        ends.append(found["it"])
    return {"ends": np.mean(ends, axis=0).tolist(), "sd": np.std(ends, axis=0, ddof=1).tolist()}


if __name__ == "__main__":
    main()
