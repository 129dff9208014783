"""Whether a training was long enough, by invented costs of validation."""

from __future__ import annotations

import numpy as np
import pytest

from corral.loads.advise.enough import FEWEST_UPDATES, Training, fall_of

LOAD = 1_000.0


def by_steps(totals: list[float]) -> dict[int, list[float]]:
    """Costs of two windows at checkpoints 100 env steps apart."""
    return {100 * k: [total / 4, 3 * total / 4] for k, total in enumerate(totals)}


def test_a_fall_over_the_last_third_is_measured_along_a_line() -> None:
    fall, falls = fall_of(by_steps([90, 80, 70, 60, 50, 45, 40, 35, 30, 25]), LOAD)
    assert fall == pytest.approx(0.015)  # checkpoints of 600 to 900 steps
    assert falls
    fall, falls = fall_of(by_steps([90, 80, 70, 60, 50, 45, 40, 40, 40, 40]), LOAD)
    assert fall == pytest.approx(0, abs=1e-12)
    assert not falls


def test_what_rises_or_may_be_chance_is_no_fall() -> None:
    fall, falls = fall_of(by_steps([9, 8, 7, 6, 5, 5, 1, 2, 3, 4]), LOAD)
    assert fall == pytest.approx(-0.003)
    assert not falls
    rng = np.random.default_rng(0)
    found = [fall_of(by_steps(list(50 + rng.standard_normal(20))), LOAD)[1] for _ in range(400)]
    assert sum(found) / len(found) == pytest.approx(0.05, abs=0.03)


def test_few_checkpoints_tell_nothing() -> None:
    assert fall_of({}, LOAD) == (None, False)
    assert fall_of(by_steps([5, 4, 3]), LOAD) == (None, False)
    assert fall_of(by_steps([9, 8, 7, 6, 5, 4, 3]), 0.0) == (None, False)


@pytest.mark.parametrize(
    ("training", "missing", "reason"),
    [
        (Training(FEWEST_UPDATES - 1, 1_000, None, False), 0.001, "updates"),
        (Training(FEWEST_UPDATES, 1_000, None, False), 0.001, None),
        (Training(FEWEST_UPDATES, 1_000, 0.002, True), 0.001, "falling"),
        (Training(FEWEST_UPDATES, 1_000, 0.002, False), 0.001, None),
        (Training(FEWEST_UPDATES, 1_000, 0.002, True), 0.03, None),  # far too slow
        (Training(FEWEST_UPDATES, 1_000, 0.002, True), -0.001, "falling"),
        (Training(FEWEST_UPDATES, 1_000, None, False, 1_001), 0.001, "minutes"),
        (Training(FEWEST_UPDATES, 1_000, None, False, 1_000), 0.001, None),
    ],
)
def test_why_a_training_was_too_short(
    training: Training, missing: float, reason: str | None
) -> None:
    assert training.too_short(missing) == reason
