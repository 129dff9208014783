"""The engine and the naive simulator agree to the request, in any small world."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loads.rehearsal.both import (
    by_engine,
    by_naive,
    draws_of,
    plans_by_engine,
    plans_by_naive,
    random_case,
    require_conserved,
    require_equal,
)

BALANCERS = (
    "local",
    "random",
    "round-robin",
    "weighted-round-robin",
    "least-requests",
    "choices=2",
    "choices=4",
    "shortest-queue",
    "shortest-delay",
    "shortest-of=2",
    "shortest-of=3",
    "overflow",
    "room",
    "least-work",
    "work-of=2",
)
SEEDS = st.integers(0, 2**32)


def agree_with_balancer(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_case(rng)
    uniform = rng.random(draws_of(name, len(case.requests)))
    played, outcome = by_engine(case, name, uniform), by_naive(case, name, uniform)
    assert played.lost == outcome.step_lost
    assert played.spare == outcome.step_spare
    require_equal(played.result, outcome)


def agree_with_plans(seed: int) -> None:
    case = random_case(np.random.default_rng(seed))
    result, erratic = plans_by_engine(case, seed)
    outcome = plans_by_naive(case, seed)
    for t, views in enumerate(erratic.views):
        assert views[0].step == t
    require_conserved(result)
    require_equal(result, outcome)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(BALANCERS), SEEDS)
def test_balancers_agree(name: str, seed: int) -> None:
    agree_with_balancer(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", BALANCERS)
@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_each_balancer_agrees_in_many_worlds(name: str, seed: int) -> None:
    agree_with_balancer(name, seed)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_plans_agree(seed: int) -> None:
    agree_with_plans(seed)


@pytest.mark.slow
@settings(max_examples=75, deadline=None)
@given(SEEDS)
def test_plans_agree_in_many_worlds(seed: int) -> None:
    agree_with_plans(seed)
