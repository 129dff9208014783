"""Validation of a team against its rule."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from corral.loads.from_rule.preset import FromRule
from corral.loads.from_rule.validation import History, Validated


def test_a_team_that_plays_as_its_rule_saves_0_points_and_not_minus_0() -> None:
    validated = Validated("local/equal", 24, lambda folder: None, FromRule(), None)
    validated.history = History(rule=[3.0], arrivals=[10.0], costs={0: [3.0], 64: [2.0]})
    values: list[float] = []
    statistics = SimpleNamespace(validate=lambda value, compared, mode: values.append(value))
    session: Any = SimpleNamespace(statistics=statistics)
    points = [validated._compare(session, steps) for steps in (0, 64)]
    assert (points, values) == ([0, -10], [0, 10])
    assert math.copysign(1, values[0]) == 1  # else a text says -0
