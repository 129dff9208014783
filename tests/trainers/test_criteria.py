"""Criteria on figures, as text states them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from corral.errors import UnknownNameError
from corral.trainers.criteria import Criterion
from support.messages import refused


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("served>=0.95", 0.95, True),
        ("served>=0.95", 0.9499, False),
        ("served>0.95", 0.95, False),
        ("served <= 1e-3", 1e-3, True),
        ("served<=0.001", 2e-3, False),
        ("served<0.1", 0.1, False),
        (" served < .1 ", -4, True),
        ("served>-2", -1.5, True),
    ],
)
def test_bounds(text: str, value: float, holds: bool) -> None:
    criterion = Criterion.parse(text)
    assert criterion.name == "served"
    assert criterion.holds({"served": value, "lost": 1e9}) is holds


@pytest.mark.parametrize("missing", [{}, {"served": None}, {"served": math.nan}, {"served": "all"}])
def test_a_figure_that_is_missing_meets_nothing(missing: dict[str, Any]) -> None:
    assert not Criterion.parse("served>=0").holds(missing)
    assert not Criterion.parse("served<=0").holds(missing)


@pytest.mark.parametrize(
    "text",
    [
        *("", "served", "served>=", ">=0.95", "served=0.95", "served==0.95", "served=>0.95"),
        *("served>=nan", "served>=inf", "served>=much", "0.9<=served<=1", "served>=0.95%", " >=1"),
    ],
)
def test_what_states_no_criterion_is_refused(text: str) -> None:
    with refused(ValueError, repr(text), "'return_team>=15'"):
        Criterion.parse(text)


def test_a_name_may_have_parts() -> None:
    assert Criterion.parse("returns.agent_0>=1") == Criterion("returns.agent_0", ">=", 1.0)
    assert Criterion.parse("return_player one < 1").name == "return_player one"
    assert str(Criterion.parse(" return_team >= 1e6")) == "return_team>=1000000"
    assert str(Criterion.parse("served>=0.95")) == "served>=0.95"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    criterion = Criterion.parse("servd>=0.95")
    with refused(UnknownNameError, "'servd'", "'served'"):
        criterion.require_known(["served", "lost"])
    Criterion.parse("lost<1").require_known(["served", "lost"])
