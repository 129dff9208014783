"""The twenty operators: made from their number alone, all of one law."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest


def short(number: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An operator with a few fresh days."""
    laws = import_module("operators_laws")
    monkeypatch.setattr(laws, "FRESH_DAYS", 7)
    return laws.operator(number)


def test_operators_are_drawn_from_their_number_alone() -> None:
    laws = import_module("operators_laws")
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


def test_loads_do_not_exceed_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 9):
        each = short(number, monkeypatch)
        for trace in each.days():
            assert trace.arrivals.max() <= each.spec.largest
