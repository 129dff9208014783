"""Our statistics of few runs beside rliable's.

benchmarks/lab/rliable_oracle.py wrote its numbers, in an environment of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.lab.comparing.statistics import (
    bootstrap_band,
    iqm,
    mean,
    performance_profile,
    probability_of_improvement,
)

FOUND = json.loads(Path(__file__).with_name("rliable_golden.json").read_text())
CASES: dict[str, dict[str, Any]] = FOUND["cases"]


def by_env(matrix: list[list[float]]) -> dict[str, list[float]]:
    """Return our form of scores [runs, tasks]."""
    return {f"task {i}": list(column) for i, column in enumerate(zip(*matrix, strict=True))}


def test_cases_hold_ties_several_tasks_and_groups_of_unlike_size() -> None:
    assert any(len(case["x"]) != len(case["y"]) for case in CASES.values())
    assert any(len(case["x"][0]) > 1 for case in CASES.values())
    assert any(np.intersect1d(case["x"], case["y"]).size for case in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str) -> None:
    case = CASES[name]
    x, y = by_env(case["x"]), by_env(case["y"])
    assert iqm(x) == pytest.approx(case["iqm"], abs=1e-12)
    assert mean(x) == pytest.approx(case["mean"], abs=1e-12)
    assert probability_of_improvement(x, y) == pytest.approx(case["improvement"], abs=1e-12)
    profile = performance_profile(x, case["thresholds"])
    np.testing.assert_allclose(profile, case["profile"], atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_intervals_within_the_error_of_drawing_them(name: str) -> None:
    case = CASES[name]
    x, y = by_env(case["x"]), by_env(case["y"])
    statistics = {
        "iqm_interval": ((x,), iqm, 0.01),
        "improvement_interval": ((x, y), probability_of_improvement, 0.01),
        "profile_interval": ((x,), lambda s: performance_profile(s, case["thresholds"]), 1e-9),
    }
    for what, (groups, statistic, least) in statistics.items():
        # A quantile of few values jumps from one to the next: many resamples say which it is.
        ends = bootstrap_band(*groups, statistic=statistic, resamples=40_000, seed=3)
        theirs, sd = (np.squeeze(case[what][key]) for key in ("ends", "sd"))
        assert (np.abs(np.array(ends) - theirs) <= np.maximum(4 * sd, least)).all(), what
