"""Rules played once more, side by side in one window, for the cost of each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.data import Trace
from corral.loads.advise.hindsight import costs_of_rules, reads_reports
from corral.loads.replay import replay

RULES = [
    *("local/equal", "patient/two", "patient-margin/least", "overflow/all-to-two", "static/equal"),
    *("backlog=0.5/least", "backlog=1+margin=0.5/least", "capacity=0.9/two-choices"),
    *("share=0.3/two-choices", "threshold/weighted"),
]


@pytest.mark.parametrize("arrivals", ["known", "unknown"])
def test_any_rule_costs_what_it_cost_in_the_replay(arrivals: str) -> None:
    rng = np.random.default_rng(0)
    trace = Trace(
        nodes=("a", "b", "c"),
        arrivals=rng.integers(0, 21, (70, 3)),
        capacity=rng.integers(0, 21, (70, 3)),
        times=np.arange(70),
        clock="integer",
    )
    game: dict[str, Any] = {"queue": 7, "link_limit": 4, "forward_cost": 0.2, "wait_cost": 0.05}
    result = replay(trace, RULES, window=30, seed=3, arrivals=arrivals, optimum_windows=0, **game)
    for window, rows in enumerate([(0, 30), (30, 60), (60, 70)]):
        episode = (3, window) if window < 2 else (4, 0)
        costs = costs_of_rules(result, RULES, episode, lambda *told: None, rows=rows)
        for rule in RULES:
            assert costs[rule].shape == (rows[1] - rows[0],)
            np.testing.assert_allclose(costs[rule].sum(), result.sums[rule].cost[window])


def test_which_rules_read_reports() -> None:
    reads = ["overflow/least", "margin/equal", "backlog=1+margin=1/weighted", "share=0.1/fill"]
    blind = ["local/equal", "static/capacity", "backlog=0.5/weighted", "capacity=1/equal"]
    assert all(map(reads_reports, reads))
    assert not any(map(reads_reports, blind))


def test_random_is_no_rule() -> None:
    with pytest.raises(ValueError, match="random"):
        costs_of_rules(None, ["random/equal"], (0, 0), lambda *told: None)  # type: ignore[arg-type]
