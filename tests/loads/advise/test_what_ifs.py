"""What-ifs: the same days under one change, paired with the days as they were."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from corral.data import Trace
from corral.data.trace import MAX_VALUE
from corral.loads.advise.what_ifs import CAPACITY, WhatIf, capacity_saving, what_ifs
from corral.loads.replay import replay
from support.loads import days

FRESH = "Spare capacity reported of this step"
RULES = ["local/equal", "overflow/equal", "margin/shortest"]


@pytest.fixture(scope="module")
def load() -> Trace:
    load = days(7)
    capacity = load.capacity.copy()
    capacity[:, 1] += 5
    return dataclasses.replace(load, capacity=capacity)


@pytest.fixture(scope="module")
def asked(load: Trace) -> dict[str, WhatIf]:
    base = replay(load, RULES, optimum_windows=0)
    found, left_out = what_ifs(base, "overflow/equal")
    assert left_out == []
    return {each.name: each for each in found}


def test_the_four_changes(asked: dict[str, WhatIf], load: Trace) -> None:
    assert [*asked] == [
        "site-1 down, the largest server",
        "Load x 1.5",
        "Capacity +20 %",
        FRESH,
    ]
    assert load.capacity is not None
    down = load.capacity.copy()
    down[:, 1] = 0
    changed = {
        "site-1 down, the largest server": (dataclasses.replace(load, capacity=down), {}),
        "Load x 1.5": (
            dataclasses.replace(load, arrivals=np.rint(1.5 * load.arrivals).astype(int)),
            {},
        ),
        FRESH: (load, {"report_delay": 0}),
    }
    before = replay(load, RULES, optimum_windows=0).sums["overflow/equal"]
    for name, (trace, settings) in changed.items():
        after = replay(trace, RULES, optimum_windows=0, **settings).sums["overflow/equal"]
        it = asked[name]
        assert it.lost == pytest.approx(after.lost.sum() / after.arrivals.sum())
        assert it.change.requests == pytest.approx((before.lost - after.lost).mean())


def test_a_change_has_an_interval(asked: dict[str, WhatIf]) -> None:
    down = asked["site-1 down, the largest server"].change
    assert down.low is not None
    assert down.high is not None
    assert down.high < 0
    assert asked[CAPACITY].change.share > 0
    assert capacity_saving([*asked.values()]) == asked[CAPACITY].change
    assert asked[FRESH].change.same  # overflow/equal asks for no reports
    assert capacity_saving([]) is None


@pytest.mark.parametrize(
    ("arrivals", "delay", "played"),
    [("known", 2, [0]), ("known", 0, []), ("unknown", 1, []), ("unknown", 3, [1])],
)
def test_fresh_reports_are_as_fresh_as_they_can_be(
    load: Trace, arrivals: str, delay: int, played: list[int]
) -> None:
    settings = {"arrivals": arrivals, "report_delay": delay}
    base = replay(load, ["overflow/least"], optimum_windows=0, **settings)
    found, left_out = what_ifs(base, "overflow/least")
    assert left_out == []
    fresh = [each for each in found if each.name.startswith("Spare")]
    assert len(fresh) == len(played)
    for each, fresher in zip(fresh, played, strict=True):
        again = replay(
            load, ["overflow/least"], optimum_windows=0, arrivals=arrivals, report_delay=fresher
        )
        after = again.sums["overflow/least"]
        assert each.lost == pytest.approx(after.lost.sum() / after.arrivals.sum())


def test_another_rule_is_named_where_it_is_better_there(load: Trace) -> None:
    base = replay(load, RULES, optimum_windows=0)
    found, _ = what_ifs(base, "local/equal")
    more = next(each for each in found if each.name == "Load x 1.5")
    assert more.other == "overflow/equal"
    assert more.instead is not None
    assert more.instead.low is not None
    assert more.instead.low > 0
    assert more.to_json()["instead"]["share"] == more.instead.share


def test_what_cannot_be_asked_is_said(load: Trace) -> None:
    settings = {"report_delay": 0}
    huge = load.arrivals.copy()
    huge[0, 0] = MAX_VALUE
    large = dataclasses.replace(load, arrivals=huge)
    base = replay(large, RULES, optimum_windows=0, **settings)
    found, left_out = what_ifs(base, "overflow/equal")
    assert (len(found), len(left_out)) == (2, 1)
    assert f"{MAX_VALUE:,}" in left_out[0]


def test_a_larger_load_than_a_team_is_trained_for_can_be_asked_about(load: Trace) -> None:
    scales = {"load_scale": int(load.arrivals.max()), "capacity_scale": int(load.capacity.max())}
    base = replay(load, RULES, optimum_windows=0, **scales)
    found, left_out = what_ifs(base, "overflow/equal")
    assert (len(found), left_out) == (4, [])
