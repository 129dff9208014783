"""Comparisons where agents choose before a step's chance: on a future that nobody can look up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.envs.core import Array, for_copies, redraw_of
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.registry import make_rules
from corral.lab.doctor.audit.truth import Asked, _same_forks
from corral.trainers.policy_iteration.forks import Moments, worth
from corral.trainers.policy_iteration.record import GAIN, TRIED
from corral.trainers.policy_iteration.trainer import PolicyIteration
from support.bets import LINE, STEPS, bets, earned_on
from support.loads import days, small_trace
from support.mappo_teams import content, make

BETS: dict[str, Any] = {
    **{"num_envs": 64, "n_steps": 4, "candidates": 3, "lookahead": 1, "reach": 0, "n_epochs": 8},
    **{"learning_rate": 1e-2, "net_arch": (64, 64)},
}
"""Enough to learn 80 rows by heart in 80 updates."""


def learned(rules: DfaasRules, updates: int = 80, **given: Any) -> Any:
    trainer = make(rules, PolicyIteration, updates, **{**BETS, **given})
    list(trainer.learn())
    return trainer


def on_fresh_rows(trainer: Any) -> tuple[float, float, float]:
    return earned_on(bets(days=400, seed=99), trainer.decide)


# --- A bet that nobody can win -------------------------------------------------------------------


def test_a_policy_that_cannot_know_the_count_is_worth_nothing_and_loses_nothing() -> None:
    worth, half, bet = on_fresh_rows(learned(bets(days=10)))
    assert abs(worth) <= half
    assert bet < 0.01


@pytest.mark.slow
def test_recorded_futures_are_learned_by_heart() -> None:
    worth, half, bet = on_fresh_rows(learned(bets(days=10), futures="recorded"))
    assert worth + half < 0
    assert bet > 0.03


@pytest.mark.slow
def test_a_count_that_leaks_into_the_observation_is_found_out_on_fresh_rows() -> None:
    trained_on = bets(days=40, arrivals="known")
    trainer = learned(trained_on, 40)
    assert earned_on(trained_on, trainer.decide)[0] > 0.3
    worth, half, bet = on_fresh_rows(trainer)
    assert worth + half < 0
    assert bet > 0.2


# --- What is compared ----------------------------------------------------------------------------


def compared(**given: Any) -> tuple[Array, Array, Any]:
    """Gains of a bet over none at the first rollout's decisions, [M, 2], and what the recorded rows
    would pay for it, where both nodes tried both."""
    rules = bets(days=20)
    trainer = make(rules, PolicyIteration, 1, **{**BETS, "candidates": 8, **given})
    seen = []
    compare = trainer.compare

    def watched(t: int) -> None:
        state = trainer.batch.moments(np.arange(64))[0]
        seen.append(rules.trace.arrivals[rules._row(state)])
        compare(t)

    trainer.compare = watched
    trainer.begin()
    trainer.collect()
    (buffer,) = trainer.rollout.groups
    tried, gain = buffer.extras[TRIED], buffer.extras[GAIN]  # [T, B, N, C]
    sign = np.where(tried[..., :1] > 0, -1, 1)  # the first is what was taken
    differs = tried != tried[..., :1]
    both = differs.any(axis=-1).all(axis=-1)
    of_bet = (gain * differs).sum(axis=-1) / np.maximum(differs.sum(axis=-1), 1) * sign[..., 0]
    counts = np.array(seen)[: len(gain)]
    return of_bet[both], np.where(counts > LINE, 1, -1)[both], (differs, gain)


def test_recorded_futures_tell_what_the_step_itself_pays() -> None:
    of_bet, paid, _ = compared(futures="recorded")
    assert len(of_bet) > 100
    np.testing.assert_array_equal(of_bet, paid)


def test_redrawn_futures_do_not_and_are_one_for_all_that_is_compared_at_a_moment() -> None:
    of_bet, paid, (differs, gain) = compared()
    assert set(np.unique(of_bet)) == {-1, 1}  # so all copies of a decision met the same
    assert abs(of_bet.mean() + 0.2) < 0.15
    assert abs(np.mean((of_bet + 0.2) * (paid + 0.2))) < 0.15  # 1 where it is recorded
    for _, values in zip(*(each.reshape(-1, 8) for each in (differs, gain)), strict=True):
        assert len(set(np.abs(values[values != 0]).tolist())) <= 1


def test_all_agents_of_a_moment_meet_the_same_day() -> None:
    rules: Any = bets(days=20)
    trainer = make(rules, PolicyIteration, 1, **BETS)
    trainer.begin()
    for _ in range(3):
        trainer.batch.step(np.zeros((64, 2), dtype=np.int64))
    moments = trainer._moments()
    rows = np.arange(64).repeat(2)
    state = moments(rows)[0]
    row = trainer.copied._row(state)
    np.testing.assert_array_equal(row[::2], row[1::2])
    own = rules._row(trainer.batch.moments(rows)[0])
    assert ((row - own) % STEPS == 0).all()
    assert (row != own).all()
    outcome = trainer.copied.step(state, np.zeros((128, 2), dtype=np.int64))
    np.testing.assert_array_equal(outcome.info["arrivals"], rules.trace.arrivals[row])


def test_games_that_hide_no_chance_play_what_is_to_come() -> None:
    for rules in (DfaasRules(days(4)), make_rules("arena_v0"), make_rules("two_step_v0")):
        trainer = make(rules, PolicyIteration, 1, own_reward=True)
        trainer.begin()
        assert trainer.copied is rules
        assert trainer._moments() == trainer.batch.moments


# --- Going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("augment", [None, "shift=2,scale=0.2,noise=0.1,mix=0.3"])
@pytest.mark.parametrize("stop", [1, 3], ids=["taught", "by itself"])
def test_it_goes_on_bit_for_bit(stop: int, augment: Any) -> None:
    rules = DfaasRules(
        days(5), max_cycles=10, arrivals="unknown", amount="keep", route="two-choices", queue=5,
        link_limit=3, augment=augment,
    )  # fmt: skip

    def begun() -> Any:
        return make(rules, PolicyIteration, 5, teacher="backlog=0.75", taught=0.4, n_steps=4)

    whole, part, after = begun(), begun(), begun()
    list(whole.learn())
    list(part.learn(stop * part.rollout_steps))
    after.load(part.save())
    list(after.learn())
    assert content(after) == content(whole)


@pytest.mark.parametrize("trace", [days(1), small_trace()], ids=["one day", "no clock"])
def test_without_two_days_it_says_once_that_rows_are_recorded(
    trace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = DfaasRules(trace, max_cycles=10, arrivals="unknown")
    trainer = make(rules, PolicyIteration, 2)
    trainer.check()
    list(trainer.learn())
    assert capsys.readouterr().err.count("recorded") == 1
    list(make(rules, PolicyIteration, 1, futures="recorded").learn())
    assert capsys.readouterr().err == ""


# --- The truth -----------------------------------------------------------------------------------


def truth_of_bets(told: bool, **given: Any) -> tuple[Array, Array]:
    """What either action is worth at once in forks of 12 moments: [12, F] each, by same forks."""
    rules: Any = for_copies(bets(days=20, **given))
    trainer = make(bets(days=20, **given), PolicyIteration, 1, **BETS)
    trainer.begin()
    for _ in range(3):
        trainer.batch.step(np.zeros((64, 2), dtype=np.int64))
    rows = np.arange(12)
    moments = Moments(rules, 0, *trainer.batch.moments(rows), dict.fromkeys(rules.agents))
    taken = np.zeros(12, dtype=np.int64)
    asked = Asked("node_0", moments, taken, rows, taken, None, told)
    after = _same_forks(asked, trainer.policies, 0.0, 40, 7)
    kept, bet = after(taken, told), after(taken + 1, told)
    assert not kept.returns.any()
    counts = rules.trace.arrivals[rules._row(moments.state), 0]
    return bet.returns, np.where(counts > LINE, 1, -1)


def test_all_first_actions_of_a_fork_meet_the_same_day() -> None:
    """Neither V nor actions change what was drawn: a fork pays by its own day alone."""
    rules: Any = for_copies(bets(days=20, augment="noise=0.3"))
    trainer = make(bets(days=20, augment="noise=0.3"), PolicyIteration, 1, **BETS)
    trainer.begin()
    met: list[Any] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(rules, name)

        def redraw(self, *given: Any) -> Any:
            state = rules.redraw(*given)
            met.append(state.load.copy())
            return state

        def redrawing(self) -> Any:
            return self

    moments = Moments(
        Watched(),
        0,
        *trainer.batch.moments(np.arange(6)),
        dict.fromkeys(rules.agents),  # type: ignore[arg-type]
    )
    asked = Asked("node_0", moments, *[np.zeros(6, dtype=np.int64)] * 3, None)
    after = _same_forks(asked, trainer.policies, 0.5, 8, 7)
    for first in (None, np.zeros(6, dtype=np.int64), np.ones(6, dtype=np.int64)):
        after(first)
    for load in met[1:]:
        np.testing.assert_array_equal(load, met[0])
    assert len({each.tobytes() for each in met[0]}) == 48


def test_who_is_told_the_state_keeps_this_step_and_who_is_not_does_not() -> None:
    told, paid = truth_of_bets(told=True)
    np.testing.assert_array_equal(told, np.repeat(paid[:, None], 40, axis=1))
    hidden, paid = truth_of_bets(told=False)
    assert (np.abs(hidden.mean(axis=1)) < 1).all()
    assert abs(hidden.mean() + 0.2) < 0.2


def test_the_worth_of_a_moment_is_never_that_of_a_step_that_is_hidden() -> None:
    """Whoever forks plain rules gets rules that redraw, if they hide their chance."""
    rules: Any = bets(days=20)
    assert redraw_of(rules) is None
    trainer = make(rules, PolicyIteration, 1, **BETS)
    trainer.begin()
    rows = np.arange(8)
    moments = Moments(rules, 0, *trainer.batch.moments(rows), dict.fromkeys(rules.agents))
    found = worth(
        moments, trainer.policies, gamma=0.0, forks=60, rng=np.random.default_rng(0),
        first=np.ones(8, dtype=np.int64),
    )  # fmt: skip
    assert (np.abs(found.mean) < 0.9).all()
