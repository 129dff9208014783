"""Rules with states that hold games: they play as the environment does, and as exact copies do."""

from __future__ import annotations

import functools
import gc
import os
from typing import Any

import numpy as np
import pytest

import corral
from corral.adapters.snapshots import SnapshotError, SnapshotRules, copyable, proof, snapshot_rules
from corral.adapters.snapshots.forks import Fork
from corral.adapters.snapshots.games import Pickled, Replay
from corral.adapters.zoo.batch import make_zoo_batch, zoo_rules
from corral.envs.batch import Batch
from corral.envs.core import Array, copy_rows
from corral.envs.masks import MASK
from corral.envs.policy import Decision, Memoryless
from corral.envs.registry import make_rules
from corral.trainers.policy_iteration.compared import earned
from corral.trainers.policy_iteration.forks import Moments, worth
from support.arena_scalar import PlainArena
from support.messages import refused
from support.zoo_envs import MixedEnv, RingEnv

WAYS = [Pickled, Replay, *([Fork] if hasattr(os, "fork") else [])]
GAMES: dict[str, dict[str, Any]] = {
    "arena_v0": {"width": 4, "height": 4, "max_cycles": 9},
    "tictactoe_v0": {},
    "rps_v0": {"max_cycles": 6},
    "tiles_v0": {"levels": 2},
}

by_each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)


@pytest.fixture
def rules_by(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes rules of an environment with one way to copy."""

    def rules(make: Any, way: Any) -> SnapshotRules:
        monkeypatch.setattr(proof, "WAYS", (way,))
        return snapshot_rules(zoo_rules(make))

    return rules


def legal_by_number(observations: Any, acting: Array, number: int) -> Array:
    """A legal action of every agent that depends on its mask and on ``number``: int64 [B, N]."""
    actions = np.zeros(acting.shape, dtype=np.int64)
    for i, observation in enumerate(observations.values()):
        for row, mask in enumerate(np.asarray(observation[MASK])):
            if acting[row, i]:
                legal = np.flatnonzero(mask)
                actions[row, i] = legal[(number + row + i) % len(legal)]
    return actions


# --- Exact copies --------------------------------------------------------------------------------


@by_each_way
@pytest.mark.parametrize("name", GAMES)
def test_copies_play_as_exact_copies_of_the_arrays_do(name: str, way: Any, rules_by: Any) -> None:
    exact: Any = make_rules(name, **GAMES[name])
    copied = rules_by(functools.partial(corral.make, name, **GAMES[name]), way)
    batches = [Batch(rules, 3, 5) for rules in (exact, copied)]
    for batch in batches:
        batch.reset()
    for t in range(3):
        actions = legal_by_number(batches[0]._observations, batches[0].acting, t)
        steps = [batch.step(actions) for batch in batches]
        assert (steps[0].reward == steps[1].reward).all()
    rows = np.repeat(np.arange(3), 2)
    totals = []
    for rules, batch in zip((exact, copied), batches, strict=True):
        moments = batch.moments(rows)
        first = legal_by_number(rules.observe(moments[0]), rules.acting(moments[0]), 1)
        decide = functools.partial(legal_by_number, number=2)
        totals.append(earned(rules, moments, first, decide, gamma=0.9, horizon=20))
    assert totals[0].any()
    assert (totals[0] == totals[1]).all()
    # The batch plays on as if nothing had been copied.
    for t in range(12):
        actions = legal_by_number(batches[0]._observations, batches[0].acting, t)
        steps = [batch.step(actions) for batch in batches]
        assert (steps[0].reward == steps[1].reward).all()
        assert (steps[0].over == steps[1].over).all()


class Stubborn(Memoryless):
    """Plays the lowest legal action in half of the decisions, and the highest in the others."""

    def act(
        self,
        observation: Any,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        assert rng is not None
        mask = np.asarray(observation[MASK]) != 0
        high = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
        return Decision(np.where(rng.random(len(mask)) < 0.5, mask.argmax(axis=1), high))


@by_each_way
def test_true_values_are_those_of_exact_copies(way: Any, rules_by: Any) -> None:
    exact: Any = make_rules("tictactoe_v0")
    copied = rules_by(functools.partial(corral.make, "tictactoe_v0"), way)
    values = []
    for rules in (exact, copied):
        batch = Batch(rules, 4, 1)
        batch.reset()
        batch.step(np.full((4, 2), 4))
        state = batch.moments(np.arange(4))
        moments = Moments(rules, 1, *state, dict.fromkeys(rules.agents))
        team = dict.fromkeys(rules.agents, Stubborn())
        rng = np.random.default_rng(3)
        values.append(worth(moments, team, gamma=0.9, forks=8, rng=rng))
    assert values[0].returns.std() > 0
    assert (values[0].returns == values[1].returns).all()
    assert values[0].steps == values[1].steps


def test_few_rows_at_a_time_give_the_same_mean(rules_by: Any) -> None:
    rules = rules_by(functools.partial(corral.make, "tictactoe_v0"), Pickled)
    batch = Batch(rules, 6, 1)
    batch.reset()
    moments = Moments(rules, 0, *batch.moments(np.arange(6)), dict.fromkeys(rules.agents))
    means = []
    for limit in (10_000, 100):
        rules.max_rows = limit
        team = dict.fromkeys(rules.agents, Stubborn())
        value = worth(moments, team, gamma=1.0, forks=50, rng=np.random.default_rng(0))
        assert value.returns.shape == (6, 50)
        means.append((value.returns.mean(), value.returns.std() / np.sqrt(300)))
    assert abs(means[0][0] - means[1][0]) < 4 * np.hypot(means[0][1], means[1][1])


# --- As the environment --------------------------------------------------------------------------


@by_each_way
@pytest.mark.parametrize("make", [PlainArena, RingEnv])
def test_episodes_end_as_in_a_zoo_batch(make: Any, way: Any, rules_by: Any) -> None:
    if make is PlainArena:
        make = functools.partial(PlainArena, width=4, height=4, max_cycles=10)
    rules = rules_by(make, way)
    ours = Batch(rules, 2, 4)
    with make_zoo_batch(make, 2, 4) as theirs:
        shown = ours.reset(), theirs.reset()
        rows = np.arange(2)
        for t in range(60):
            actions = legal_by_number(shown[1], theirs.acting, t)
            one, two = ours.step(actions), theirs.step(actions)
            for name in ("reward", "terminated", "truncated"):
                assert (getattr(one, name)[rows] == getattr(two, name)[rows]).all(), (t, name)
            rows = rows[~two.over[rows]]  # later episodes have other seeds
            if not len(rows):
                break
            assert (one.acting[rows] == two.acting[rows]).all()
            shown = one.observations, two.observations
        assert not len(rows)
    if way is Fork:
        rules._way.close()


def test_the_value_bootstraps_at_the_time_limit_of_the_environment(rules_by: Any) -> None:
    rules = rules_by(functools.partial(PlainArena, max_cycles=3), Pickled)
    batch = Batch(rules, 1, 0)
    batch.reset()
    moments = Moments(rules, 0, *batch.moments(np.arange(1)), dict.fromkeys(rules.agents))
    team = dict.fromkeys(rules.agents, Stubborn())

    def value(observations: Any, state: Array) -> Array:
        return np.full(len(state), 100.0)

    rng = np.random.default_rng(0)
    plain = worth(moments, team, gamma=0.5, forks=4, rng=rng)
    rng = np.random.default_rng(0)
    bootstrapped = worth(moments, team, gamma=0.5, forks=4, rng=rng, value=value)
    assert bootstrapped.returns - plain.returns == pytest.approx(0.5**3 * 100)


# --- Moments -------------------------------------------------------------------------------------


def test_a_state_can_be_stepped_twice_and_after_others(rules_by: Any) -> None:
    rules = rules_by(functools.partial(PlainArena, max_cycles=9), Pickled)
    state = rules.start([np.random.default_rng(0)])
    played = [state]
    for t in range(4):
        actions = legal_by_number(rules.observe(state), rules.acting(state), t)
        state = rules.step(state, actions).state
        played.append(state)
    again = copy_rows(played[2], np.array([0, 0]))
    actions = legal_by_number(rules.observe(again), rules.acting(again), 2)
    actions[1] = actions[0]
    outcome = rules.step(again, actions)
    for row in range(2):
        for agent in rules.agents:
            expected = rules.observe(played[3])[agent]["observation"][0]
            assert (rules.observe(outcome.state)[agent]["observation"][row] == expected).all()


def test_games_that_no_state_needs_are_released() -> None:
    rules = snapshot_rules(zoo_rules(functools.partial(PlainArena, max_cycles=30)))
    state = rules.start([np.random.default_rng(0)])
    for t in range(20):
        actions = legal_by_number(rules.observe(state), rules.acting(state), t)
        state = rules.step(state, actions).state
    gc.collect()
    chain, moment = 0, state.moment[0]
    while moment is not None:
        chain += (moment.game is not None) + (moment.kept is not None)
        moment = moment.before
    assert chain == 1


# --- Refused -------------------------------------------------------------------------------------


def test_only_discrete_actions_are_copied() -> None:
    with refused(SnapshotError, "walker"):
        snapshot_rules(zoo_rules(MixedEnv))


def test_rules_of_arrays_stay_as_they_are() -> None:
    rules = make_rules("rps_v0")
    assert copyable(rules) is rules
