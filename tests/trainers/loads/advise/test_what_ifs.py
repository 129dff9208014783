"""What-ifs: the same days otherwise, paired with the days as they were."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from corral.data import Trace
from corral.data.trace import MAX_VALUE
from corral.trainers.loads.advise.what_ifs import WhatIf, what_ifs
from corral.trainers.loads.replay import replay
from support.loads import days

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
    found, left_out = what_ifs(base, RULES, "overflow/equal", {})
    assert left_out == []
    return {each.name: each for each in found}


def test_the_four_changes(asked: dict[str, WhatIf], load: Trace) -> None:
    assert [*asked] == [
        "site-1 down, the largest server",
        "Load x 1.5",
        "Capacity +20 %",
        "Reports of spare capacity fresh, not late",
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
        "Reports of spare capacity fresh, not late": (load, {"report_delay": 0}),
    }
    before = replay(load, RULES, optimum_windows=0).sums["overflow/equal"]
    for name, (trace, settings) in changed.items():
        after = replay(trace, RULES, optimum_windows=0, **settings).sums["overflow/equal"]
        it = asked[name]
        assert it.lost == pytest.approx(after.lost.sum() / after.arrivals.sum())
        assert it.change.requests == pytest.approx((before.lost - after.lost).mean())


def test_a_change_is_told_with_its_interval(asked: dict[str, WhatIf]) -> None:
    (said,) = asked["site-1 down, the largest server"].lines()
    assert "overflow/equal loses" in said
    assert "a day more (95 %: " in said
    assert asked["Capacity +20 %"].change.share > 0
    (fresh,) = asked["Reports of spare capacity fresh, not late"].lines()
    assert "that changes nothing" in fresh  # overflow/equal asks for no reports


def test_another_rule_is_named_where_it_is_better_there(load: Trace) -> None:
    base = replay(load, RULES, optimum_windows=0)
    found, _ = what_ifs(base, RULES, "local/equal", {})
    more = next(each for each in found if each.name == "Load x 1.5")
    assert more.other == "overflow/equal"
    assert more.instead is not None
    assert more.instead.low is not None
    assert more.instead.low > 0
    assert "There overflow/equal would save " in more.lines()[0]
    assert more.to_json()["instead"]["share"] == more.instead.share


def test_what_cannot_be_asked_is_said(load: Trace) -> None:
    settings = {"report_delay": 0}
    huge = load.arrivals.copy()
    huge[0, 0] = MAX_VALUE
    large = dataclasses.replace(load, arrivals=huge)
    base = replay(large, RULES, optimum_windows=0, **settings)
    found, left_out = what_ifs(base, RULES, "overflow/equal", settings)
    assert len(found) == 2
    assert "fresh already" in " ".join(left_out)
    assert f"would exceed {MAX_VALUE:,} requests" in " ".join(left_out)


def test_a_larger_load_than_a_team_is_trained_for_can_be_asked_about(load: Trace) -> None:
    scales = {"load_scale": int(load.arrivals.max()), "capacity_scale": int(load.capacity.max())}
    base = replay(load, RULES, optimum_windows=0, **scales)
    found, left_out = what_ifs(base, RULES, "overflow/equal", scales)
    assert (len(found), left_out) == (4, [])
