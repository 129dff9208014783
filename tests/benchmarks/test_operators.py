"""The twenty operators: made from their number alone, all of one law."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (BENCHMARKS / "core", BENCHMARKS / "loads", BENCHMARKS):
        monkeypatch.syspath_prepend(str(folder))


def module(name: str) -> Any:
    return importlib.import_module(name)


def short(number: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An operator with a few fresh days."""
    laws = module("operators_laws")
    monkeypatch.setattr(laws, "FRESH_DAYS", 7)
    return laws.operator(number)


def test_operators_are_drawn_from_their_number_alone() -> None:
    laws = module("operators_laws")
    drawn = [laws.operator(number) for number in range(laws.COUNT)]
    assert drawn[3] == laws.operator(3)
    assert len({each.spec.mean for each in drawn}) == laws.COUNT
    nodes = [each.spec.nodes for each in drawn]
    assert (min(nodes) >= 2, max(nodes)) == (True, 12)
    assert all(21 <= each.history_days <= 90 for each in drawn)
    assert {each.settings["report_delay"] for each in drawn} == {0, 1, 2, 5}
    assert min(each.spec.mean for each in drawn) < 50 < 3000 < max(e.spec.mean for e in drawn)


def test_fresh_days_follow_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    each = short(1, monkeypatch)
    history, fresh = each.days()
    per_day = 86400 // each.spec.step
    assert len(history) == each.history_days * per_day
    assert len(fresh) == 7 * per_day
    assert fresh.times[0] == history.times[-1] + each.spec.step
    # Servers are as large as they were.
    sizes = [trace.arrivals.mean(axis=0) for trace in (history, fresh)]
    assert np.corrcoef(sizes)[0, 1] > 0.9


def test_no_load_exceeds_the_scales_that_are_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 9):
        each = short(number, monkeypatch)
        history, fresh = each.days()
        scales = each.scales(history, fresh)
        assert fresh.arrivals.max() <= scales["load_scale"]
        assert fresh.capacity is not None
        assert fresh.capacity.max() <= scales["capacity_scale"]
