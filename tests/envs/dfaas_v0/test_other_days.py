"""Redraws of dfaas_v0 with unknown arrivals: the present step is another day's as well."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from corral.data import load_trace
from corral.envs.batch import Batch
from corral.envs.core import Array, copy_rows, for_copies, hides_chance, redraw_of, redrawing
from corral.envs.dfaas_v0 import DfaasRules
from support.dfaas_configurations import residual_configuration, wider_configuration
from support.loads import DAY, days

NIGHT = 21


def varied(count: int = 9) -> Any:
    """Days of 24 hours in which the capacity varies as well, from row to row."""
    trace = days(count, seed=3)
    capacity = 10 + np.random.default_rng(1).integers(9, size=trace.arrivals.shape)
    return dataclasses.replace(trace, capacity=capacity)


def played(rules: Any, steps: int, num_envs: int = 32, seed: int = 0) -> Any:
    batch, rng = Batch(rules, num_envs, seed=seed), np.random.default_rng(seed)
    batch.reset()
    for _ in range(steps):
        batch.step(batch.sample_actions(rng))
    return batch.moments(np.arange(num_envs))[0]


def redrawn(rules: Any, state: Any, seed: int = 1, told: bool = False) -> Any:
    redraw = redraw_of(rules)
    assert redraw is not None
    rngs = np.random.default_rng(seed).spawn(len(state.t))
    return redraw(copy_rows(state, slice(None)), rngs, told)


def ahead(rules: Any, state: Any, steps: int) -> tuple[Array, Array]:
    """Arrivals and capacity of the steps that come: [steps, B, N] each."""
    arrivals, capacity = [], []
    for _ in range(steps):
        capacity.append(rules.load.at(state, rules._row(state))[1].copy())
        outcome = rules.step(state, np.zeros_like(state.queue))
        arrivals.append(outcome.info["arrivals"])
        state = outcome.state
    return np.array(arrivals), np.array(capacity)


def assert_seen_alike(rules: Any, state: Any, other: Any) -> None:
    ours, theirs = rules.observe(state), rules.observe(other)
    for agent, seen in ours.items():
        for key, values in seen.items():
            assert values.tobytes() == theirs[agent][key].tobytes(), (agent, key)


# --- What is shown stays -------------------------------------------------------------------------

AUGMENTS = (None, None, "shift=2,scale=0.3,noise=0.2,mix=0.5")


@pytest.mark.parametrize("configure", [wider_configuration, residual_configuration])
def test_no_configuration_sees_a_redraw(configure: Any) -> None:
    """Neither of the recorded day nor of one that was redrawn before; what follows differs."""
    found = differs = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        kwargs = configure(rng)
        kwargs |= {"arrivals": "unknown", "report_delay": max(1, kwargs["report_delay"])}
        if kwargs["rows"] and kwargs["rows"][1] - kwargs["rows"][0] < 2:
            kwargs |= {"rows": None, "start": 0}
        kwargs["max_cycles"] = 12  # more than are played
        kwargs["last_counts"] = int(rng.integers(1, 5))
        kwargs["augment"] = AUGMENTS[int(rng.integers(len(AUGMENTS)))]
        plain = DfaasRules(**kwargs)
        rules: Any = redrawing(plain)
        if rules is None:
            continue
        found += 1
        state = played(plain, int(rng.integers(4)), 3, seed)
        for again in range(3):
            new = redrawn(rules, state, again)
            assert_seen_alike(rules, new, state)
            now, later = ahead(plain if not again else rules, copy_rows(state, slice(None)), 2)[0]
            drawn, on = ahead(rules, copy_rows(new, slice(None)), 2)[0]
            differs += (now != drawn).any() and (later != on).any()
            state = new
            for _ in range(int(rng.integers(3))):
                state = rules.step(state, np.zeros_like(state.queue)).state
    assert found > 60
    assert differs > 60


@pytest.mark.parametrize("augment", [None, "shift=1,scale=0.2,noise=0.1"])
def test_who_is_told_the_global_state_keeps_this_step(augment: Any) -> None:
    plain = DfaasRules(varied(), arrivals="unknown", queue=5, augment=augment)
    rules: Any = redrawing(plain)
    state = played(plain, NIGHT)
    new = redrawn(rules, state, told=True)
    np.testing.assert_array_equal(rules.global_state(new), plain.global_state(state))
    assert_seen_alike(rules, new, state)
    own, other = ahead(plain, state, 3)[0], ahead(rules, new, 3)[0]
    np.testing.assert_array_equal(own[0], other[0])
    assert (own[1] != other[1]).mean() > 0.5
    hidden = redrawn(rules, played(plain, NIGHT))
    assert (rules.global_state(hidden) != plain.global_state(played(plain, NIGHT))).any()


# --- What comes is another day's -----------------------------------------------------------------


def test_the_rows_from_this_step_on_are_one_other_days() -> None:
    trace = varied()
    plain = DfaasRules(trace, arrivals="unknown", start=0, max_cycles=9 * DAY, queue=5)
    rules: Any = redrawing(plain)
    for t in (0, 1, NIGHT, 2 * DAY + 7):
        arrivals, capacity = ahead(rules, redrawn(rules, played(plain, t)), 4)
        for env in range(arrivals.shape[1]):
            (day,) = {
                d
                for d in range(9)
                for row in [d * DAY + t % DAY]
                if (trace.arrivals[row] == arrivals[0, env]).all()
            }
            assert day != t // DAY
            rows = (day * DAY + t % DAY + np.arange(4)) % len(trace)
            np.testing.assert_array_equal(arrivals[:, env], trace.arrivals[rows])
            assert trace.capacity is not None
            np.testing.assert_array_equal(capacity[1:, env], trace.capacity[rows[1:]])
            np.testing.assert_array_equal(capacity[0, env], trace.capacity[t])  # known, the own


def drawn_days(t: int, count: int = 900) -> dict[int, int]:
    """How often each day is drawn at step ``t`` of day 4."""
    trace = varied()
    plain = DfaasRules(trace, arrivals="unknown", start=4 * DAY, max_cycles=DAY)
    rules: Any = redrawing(plain)
    one = copy_rows(played(plain, t, 1), np.zeros(count, dtype=np.int64))
    row = rules._row(redrawn(rules, one))
    assert (row % DAY == t).all()
    return dict(zip(*np.unique(row // DAY, return_counts=True), strict=True))


def test_days_are_drawn_from_the_half_whose_last_row_is_nearest() -> None:
    arrivals = varied().arrivals
    found = drawn_days(NIGHT)
    before = np.arange(9) * DAY + NIGHT - 1
    far = np.abs(arrivals[before] - arrivals[before[4]]).sum(axis=1)
    near = sorted(set(range(9)) - {4}, key=lambda day: far[day])[:4]
    assert set(found) == set(near)
    assert all(abs(count - 225) < 5 * np.sqrt(225) for count in found.values())
    present = np.arange(9) * DAY + NIGHT
    other = np.abs(arrivals[present] - arrivals[present[4]]).sum(axis=1)
    assert set(near) != set(sorted(set(range(9)) - {4}, key=lambda day: other[day])[:4])


def test_as_an_episode_begins_any_other_day_may_come() -> None:
    found = drawn_days(0)
    assert set(found) == set(range(9)) - {4}
    assert all(abs(count - 112.5) < 5 * np.sqrt(112.5) for count in found.values())


def test_with_known_arrivals_this_step_stays() -> None:
    plain = DfaasRules(varied(), queue=5)
    rules: Any = redrawing(plain)
    state = played(plain, NIGHT)
    own, other = (
        ahead(plain, copy_rows(state, slice(None)), 2),
        ahead(rules, redrawn(rules, state), 2),
    )
    np.testing.assert_array_equal(own[0][0], other[0][0])
    assert (own[0][1] != other[0][1]).any()


# --- Chance --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrivals", ["known", "unknown"])
def test_two_choices_draws_its_numbers_anew(arrivals: Any) -> None:
    plain = DfaasRules(route="two-choices", arrivals=arrivals)
    rules: Any = redrawing(plain)
    state = played(plain, 5, 200)
    new = redrawn(rules, state)
    assert new.draws.dtype == np.int32
    assert new.draws.shape == (200, 1, 3, 2)
    assert (new.draws != state.draws).mean() > 0.99
    assert new.draws.min() >= 0
    assert abs(np.median(new.draws) / 2**30 - 1) < 0.1


def test_one_generator_may_serve_all_rows() -> None:
    rules: Any = redrawing(DfaasRules(varied(), arrivals="unknown"))
    state = played(rules, NIGHT)
    found = [
        rules.redraw(copy_rows(state, slice(None)), [np.random.default_rng(2)] * 32, False)
        for _ in range(2)
    ]
    rows = [rules._row(each) for each in found]
    np.testing.assert_array_equal(*rows)
    assert len(np.unique((rows[0] - rules._row(state)) // DAY)) > 3


# --- The hook ------------------------------------------------------------------------------------


def test_rules_with_unknown_arrivals_hide_their_chance() -> None:
    known, unknown = DfaasRules(), DfaasRules(arrivals="unknown")
    assert not hides_chance(known)
    assert hides_chance(unknown)
    assert for_copies(known) is known
    assert redraw_of(for_copies(unknown)) is not None


def test_where_there_is_but_one_day_copies_meet_what_was_recorded() -> None:
    without = dataclasses.replace(load_trace("edge3"), clock="integer")
    for given in ({"rows": (0, 500)}, {"trace": without}):
        rules: Any = DfaasRules(arrivals="unknown", **given)  # type: ignore[arg-type]
        assert hides_chance(rules)
        assert for_copies(rules) is rules
