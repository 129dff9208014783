"""What ``redraw`` draws anew: what nobody observed, by the right chances, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.envs import make_rules
from corral.envs.batch import Batch
from corral.envs.core import Array, copy_rows, redraw_of, redrawing, state_arrays
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.tiles_v0 import TilesRules

ENVS: dict[str, dict[str, Any]] = {
    "arena_v0": {"observation": "visited"},
    "tictactoe_v0": {},
    "tiles_v0": {},
    "rps_v0": {},
    "two_step_v0": {},
    "dfaas_v0": {"queue": 5, "route": "two"},
}
SURE = {"tictactoe_v0", "rps_v0", "two_step_v0"}


def generators(rows: int, seed: int = 1) -> list[np.random.Generator]:
    return np.random.default_rng(seed).spawn(rows)


def played(rules: Any, steps: int, num_envs: int = 16) -> Any:
    """States after ``steps`` random steps."""
    batch, rng = Batch(rules, num_envs, seed=0), np.random.default_rng(0)
    batch.reset()
    for _ in range(steps):
        batch.step(batch.sample_actions(rng))
    return batch.moments(np.arange(num_envs))[0]


def assert_same(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    else:
        np.testing.assert_array_equal(a, b)


def redrawn(rules: Any, state: Any, seed: int = 1, **given: Any) -> Any:
    redraw = redraw_of(rules)
    assert redraw is not None
    rows = len(next(iter(state_arrays(state).values())))
    return redraw(copy_rows(state, slice(None)), generators(rows, seed), **given)


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("name", sorted(ENVS))
def test_what_was_observed_stays(name: str, steps: int) -> None:
    rules = redrawing(make_rules(name, **ENVS[name]))
    assert rules is not None
    state = played(rules, steps)
    for told in (False, True):
        new = rules.redraw(copy_rows(state, slice(None)), generators(16), told)  # type: ignore[attr-defined]
        assert_same(rules.observe(new), rules.observe(state))
        np.testing.assert_array_equal(rules.acting(new), rules.acting(state))
        if told or name != "tiles_v0":
            np.testing.assert_array_equal(rules.global_state(new), rules.global_state(state))


@pytest.mark.parametrize("name", sorted(SURE))
def test_games_without_chance_stay_as_they_are(name: str) -> None:
    rules = make_rules(name)
    state = played(rules, 1)
    assert_same(state_arrays(redraw_of(rules)(state, generators(16), False)), state_arrays(state))  # type: ignore[misc]


def test_arena_draws_who_moves_first_from_here_on() -> None:
    rules = make_rules("arena_v0")
    state = played(rules, 40, 64)
    new = rules.redraw(copy_rows(state, slice(None)), generators(64), False)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(new.first[:, :40], state.first[:, :40])
    assert abs(np.mean(new.first[:, 40:]) - 0.5) < 0.03
    assert abs(np.mean(new.first[:, 40:] == state.first[:, 40:]) - 0.5) < 0.03
    others = {name: a for name, a in state_arrays(new).items() if name != "first"}
    assert_same(others, {name: getattr(state, name) for name in others})


# --- tiles_v0 -------------------------------------------------------------------------------------


def tiles() -> Any:
    """Three classes that the first tiles hardly tell apart."""
    rng = np.random.default_rng(5)
    return TilesRules(np.clip(0.5 + 0.03 * rng.standard_normal((3, 3, 32, 32)), 0, 1), noise=0.4)


def test_tiles_draws_the_class_from_what_was_seen() -> None:
    rules = tiles()
    state = copy_rows(played(rules, 6, 4), np.repeat(np.arange(4), 2000))
    new = rules.redraw(copy_rows(state, slice(None)), generators(8000), False)
    chances = np.exp(state.log_posterior[::2000])
    assert (chances > 0.05).sum() > 6  # it is not plain already
    for i in range(4):
        share = np.bincount(new.truth[2000 * i : 2000 * (i + 1)], minlength=3) / 2000
        np.testing.assert_allclose(share, chances[i], atol=4 * np.sqrt(0.25 / 2000))


def test_tiles_draws_what_was_not_sent_from_the_class() -> None:
    rules = tiles()
    state = copy_rows(played(rules, 6, 2), np.repeat(np.arange(2), 1500))
    new = rules.redraw(copy_rows(state, slice(None)), generators(3000), False)
    sent = state.sent >= 0
    np.testing.assert_array_equal(new.image[sent], state.image[sent])
    templates = rules.templates.reshape(3, 3, 4, 8, 4, 8).transpose(0, 2, 4, 1, 3, 5)
    expected = templates.reshape(3, 16, 3, 8, 8)[new.truth]
    noise = (new.image - expected)[~sent]
    assert abs(noise.mean()) < 0.001
    assert abs(noise.std() - rules.noise) < 0.001
    wrong = templates.reshape(3, 16, 3, 8, 8)[(new.truth + 1) % 3]
    assert ((new.image - wrong)[~sent]).std() > rules.noise + 0.001


def test_the_posterior_of_tiles_is_the_chance_of_the_class() -> None:
    """The class is drawn by ``log_posterior``: that it tells the truth is what makes it right."""
    rules = tiles()
    state = played(rules, 10, 4000)
    chances = np.exp(state.log_posterior)
    right = np.eye(3)[state.truth]
    for low in (0.0, 0.2, 0.4, 0.6):
        at = (chances >= low) & (chances < low + 0.2)
        assert at.sum() > 300
        error = np.sqrt(0.25 / at.sum())
        assert abs(right[at].mean() - chances[at].mean()) < 4 * error


def test_tiles_keeps_the_class_where_it_is_told() -> None:
    rules = tiles()
    state = played(rules, 4, 64)
    told = redrawn(rules, state, told=True)
    np.testing.assert_array_equal(told.truth, state.truth)
    assert (redrawn(rules, state).truth != state.truth).any()
    unsent = state.sent < 0
    assert (told.image[unsent] != state.image[unsent]).mean() > 0.99


# --- dfaas_v0: other days -------------------------------------------------------------------------


def days(**given: Any) -> tuple[DfaasRules, Any]:
    rules = DfaasRules(**given)
    found = redrawing(rules)
    assert found is not None
    return rules, found


def test_dfaas_replays_its_data_unless_it_is_asked_for_other_days() -> None:
    rules = DfaasRules()
    assert redraw_of(rules) is None
    assert redraw_of(days()[1]) is not None


def test_dfaas_has_no_other_days_where_there_is_but_one() -> None:
    assert redrawing(DfaasRules(rows=(100, 500))) is None
    assert redrawing(DfaasRules(rows=(100, 676))) is not None


def rows_ahead(rules: Any, state: Any, steps: int) -> Array:
    """The rows of the section that come next, [steps, B]."""
    found = []
    for _ in range(steps):
        found.append(rules._row(state))
        state = rules.step(state, np.zeros_like(state.queue)).state
    return np.array(found)


def test_other_days_begin_after_the_row_that_is_observed() -> None:
    plain, rules = days(rows=(288, 288 * 9 + 17))
    state = played(rules, 30, 64)
    own = rows_ahead(plain, copy_rows(state, slice(None)), 5)
    new = rows_ahead(rules, redrawn(rules, state), 5)
    length = 288 * 8 + 17
    np.testing.assert_array_equal(new[0], own[0])
    shift = new[1] - own[1]
    inside = (own[1] > 5) & (new[1] > 5) & (new[1:] < length).all(axis=0)
    away = ((new[1] - own[0] - 1) % length)[inside]
    assert inside.sum() > 40
    assert (shift[inside] != 0).all()
    assert np.isin(away % 288, [0, 17]).all()  # whole days; one that wraps is 17 rows longer
    np.testing.assert_array_equal(np.diff(new[1:], axis=0)[:, inside], 1)


def test_other_days_are_those_with_a_load_like_this_one() -> None:
    plain, rules = days()
    one = copy_rows(played(rules, 30, 1), np.zeros(600, dtype=np.int64))
    here = int(plain._row(one)[0])
    load = plain.trace.arrivals
    all_days = np.setdiff1d(np.arange(here % 288, len(load), 288), [here])
    new = rows_ahead(rules, redrawn(rules, one), 2)[1] - 1
    drawn, count = np.unique(new % len(load), return_counts=True)
    assert set(drawn) <= set(all_days.tolist())
    far = np.abs(load[all_days] - load[here]).sum(axis=1)
    near = np.abs(load[drawn] - load[here]).sum(axis=1)
    assert len(drawn) == -(-len(all_days) // 2)
    assert near.max() <= np.sort(far)[len(drawn) - 1]
    assert (np.abs(count - 600 / len(drawn)) < 5 * np.sqrt(600 / len(drawn))).all()


def test_a_redrawn_day_can_be_drawn_anew() -> None:
    _, rules = days()
    state = redrawn(rules, played(rules, 5))
    on = rules.step(state, np.zeros_like(state.queue)).state
    again = redrawn(rules, on, seed=2)
    np.testing.assert_array_equal(rules._row(again), rules._row(on))
    assert_same(rules.observe(again), rules.observe(on))


def test_route_two_draws_its_neighbours_anew_from_here_on() -> None:
    _, rules = days(route="two")
    state = played(rules, 10)
    new = redrawn(rules, state)
    np.testing.assert_array_equal(new.draws[:, :10], state.draws[:, :10])
    share = np.mean(new.draws[:, 10:] == state.draws[:, 10:])
    assert abs(share - 0.5) < 0.02


def test_other_days_step_as_the_rules_do() -> None:
    """The same state, before anything is redrawn, plays as it always does."""
    plain, rules = days(queue=3)
    state = played(plain, 7)
    action = np.full(state.queue.shape, 2)
    a = plain.step(copy_rows(state, slice(None)), action)
    b = rules.step(copy_rows(state, slice(None)), action)
    np.testing.assert_array_equal(a.reward, b.reward)
    assert_same(plain.observe(a.state), rules.observe(b.state))
    assert plain.identity == rules.identity


def test_places_are_rows_of_the_trace() -> None:
    rules = DfaasRules(rows=(1000, 3000), start=204)
    state = played(rules, 0, 2)
    assert rules.places(state) == ["row 1,204"] * 2
