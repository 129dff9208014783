"""Differences between actions, against games worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.envs.batch import Batch
from corral.envs.registry import make_rules
from corral.trainers.policy_iteration.compared import Tried, candidates, gains
from corral.trainers.policy_iteration.record import PolicyIterationSettings
from corral.trainers.policy_iteration.trainer import PolicyIteration
from support.loads import small_trace
from support.turn_rules import PileRules

# --- What is tried -------------------------------------------------------------------------------


def test_candidates_are_legal_and_begin_with_what_was_taken() -> None:
    mask = np.zeros((500, 30), dtype=bool)
    mask[:, [0, 3, 4, 5, 20]] = True
    taken = np.full(500, 4)
    found = candidates(taken, mask, 6, np.random.default_rng(0))
    assert found.shape == (500, 6)
    assert (found[:, 0] == 4).all()
    assert set(found.ravel().tolist()) == {0, 3, 4, 5, 20}


@pytest.mark.parametrize("taken", [0, 15, 29])
def test_with_reach_the_second_half_is_near_what_was_taken(taken: int) -> None:
    mask = np.ones((400, 30), dtype=bool)
    found = candidates(np.full(400, taken), mask, 8, np.random.default_rng(0), reach=3)
    near = found[:, 5:]
    assert (np.abs(near - taken) <= 3).all()
    assert len(np.unique(near)) >= 4, "0 is left upwards alone, the last one downwards"
    assert np.abs(found[:, 1:5] - taken).max() > 10


def test_what_is_near_and_illegal_gives_way_to_what_was_taken() -> None:
    mask = np.zeros((200, 30), dtype=bool)
    mask[:, [10, 12]] = True
    found = candidates(np.full(200, 10), mask, 8, np.random.default_rng(0), reach=3)
    assert set(found.ravel().tolist()) == {10, 12}


OFFSETS = np.array([0, -1, 1, -2, 2, -3, 3, -4, 4])
"""Amounts of actions that are offsets to a rule."""


@pytest.mark.parametrize("taken", range(9))
def test_offsets_are_near_by_amount(taken: int) -> None:
    mask = np.ones((400, 9), dtype=bool)
    order = np.argsort(OFFSETS)
    rng = np.random.default_rng(0)
    found = candidates(np.full(400, taken), mask, 8, rng, reach=2, order=order)
    near = OFFSETS[found[:, 5:]]
    within = [each for each in range(-4, 5) if abs(each - OFFSETS[taken]) <= 2]
    assert sorted(set(near.ravel().tolist())) == within
    assert set(OFFSETS[found[:, 1:5]].ravel().tolist()) == set(OFFSETS.tolist())


def test_an_illegal_offset_gives_way_to_what_was_taken() -> None:
    mask = np.zeros((300, 9), dtype=bool)
    mask[:, [0, 1, 4, 8]] = True  # 0, -1, 2, 4
    rng, order = np.random.default_rng(0), np.argsort(OFFSETS)
    found = candidates(np.zeros(300, np.int64), mask, 8, rng, reach=3, order=order)
    assert set(OFFSETS[found[:, 5:]].ravel().tolist()) == {0, -1, 2}


@pytest.mark.parametrize(
    ("arguments", "reach", "order"),
    [
        ({"residual": "patient", "offsets": 3}, 4, [5, 3, 1, 0, 2, 4, 6]),
        ({"residual": "patient/least", "offsets": 1, "max_level": 3}, 4, [1, 0, 2]),
        ({}, 4, None),
        ({"amount": "keep"}, 4, None),
        ({"route": "choose"}, 0, None),
    ],
    ids=str,
)
def test_the_trainer_walks_by_amount(
    arguments: dict[str, Any], reach: int, order: list[int] | None
) -> None:
    settings = PolicyIterationSettings(reach=4, n_steps=8, num_envs=2)
    rules = make_rules("dfaas_v0", trace=small_trace(), max_cycles=8, **arguments)
    policies = dict.fromkeys(rules.agents, "team")
    trainer = PolicyIteration(
        rules, settings, seed=0, policies=policies, policies_to_train=["team"], steps=16
    )
    assert trainer.reach == reach
    assert (None if trainer.order is None else trainer.order.tolist()) == order


# --- What it earns -------------------------------------------------------------------------------


def takes_one(observations: Any, acting: Any) -> Any:
    """Play on by taking one stone."""
    return np.zeros(acting.shape, dtype=np.int64)


def of_pile(
    own: bool = True, lookahead: int = 50, gamma: float = 1.0, value: Any = None, **given: Any
) -> list[float]:
    """What agent_0 gains by taking two or three of five stones instead of one, who plays on by
    taking one, as the other does; it then wins, loses, wins after 5, 4, 3 steps in all."""
    batch = Batch(PileRules((5, 6), **given), 2, seed=0)
    batch.reset()
    tried = [Tried(0, np.arange(2), np.tile([0, 1, 2], (2, 1)))]
    plan: dict[str, Any] = {"gamma": gamma, "horizon": lookahead, "own": own, "value": value}
    taken = np.zeros((2, 2), dtype=np.int64)
    found = gains(batch.rules, batch.moments, taken, tried, takes_one, **plan)[0]
    assert found[0].tolist() == found[1].tolist()
    rows = np.arange(2)
    assert batch.moments(rows)[0].pile.tolist() == [5, 5], "the batch itself was played"
    return list(found[0].tolist())


def test_gains_are_those_worked_out_by_hand() -> None:
    assert of_pile() == [0, -2, 0]
    assert of_pile(gamma=0.5) == [0, -1 / 8 - 1 / 16, 1 / 4 - 1 / 16]


def test_the_sum_of_all_rewards_counts_unless_it_is_the_agents_own() -> None:
    assert of_pile(own=False) == [0, 0, 0]  # what one wins the other loses
    assert of_pile(own=False, gift=0.25) == [0, -0.25, -0.5]  # paid in each of 5, 4, 3 steps


def test_play_ends_with_the_lookahead_the_time_limit_and_the_episode() -> None:
    assert of_pile(lookahead=3) == of_pile(max_cycles=3) == [0, 0, 1]
    assert of_pile(lookahead=4) == [0, -1, 1]
    assert of_pile(lookahead=1) == [0, 0, 0]


def test_a_value_replaces_the_rewards_after_the_lookahead() -> None:
    def four(observations: Any, acting: Any) -> Any:
        return np.full(acting.shape, 4.0)

    assert of_pile(lookahead=3, gamma=0.5, value=four) == [0, 0, 1 / 4 - 4 / 8]


def test_who_is_over_earns_no_more_and_the_other_goes_on() -> None:
    # agent_1 moves once; agent_0 takes the rest one by one, and wins.
    assert of_pile(last_move=1) == [0, 0, 0]
    assert of_pile(last_move=1, gamma=0.5) == [0, 1 / 8 - 1 / 16, 1 / 4 - 1 / 16]


# --- Against play one by one ---------------------------------------------------------------------


def half(observations: Any, acting: Any) -> Any:
    """Forward half of what is legal."""
    masks = [each["action_mask"] for each in observations.values()]
    return np.stack([mask.sum(axis=1) // 2 for mask in masks], axis=1)


def test_many_at_once_are_what_each_is_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from corral.trainers.policy_iteration import compared

    kwargs: dict[str, Any] = {"trace": small_trace(), "queue": 3, "forward_cost": 0.3}
    rules: Any = make_rules("dfaas_v0", max_cycles=8, route="spare", **kwargs)
    batch, rng = Batch(rules, 5, seed=1), np.random.default_rng(0)
    batch.reset()
    for _ in range(4):  # four steps are left
        batch.step(batch.sample_actions(rng))
    taken = batch.sample_actions(rng)
    masks = rules.observe(batch.moments(np.arange(5))[0])
    tried = []
    for agent, rows in ((0, np.arange(5)), (2, np.array([1, 3]))):
        mask = masks[rules.agents[agent]]["action_mask"][rows]
        tried.append(Tried(agent, rows, candidates(taken[rows, agent], mask, 6, rng)))
    plan: dict[str, Any] = {"gamma": 0.9, "horizon": 6}
    found = gains(rules, batch.moments, taken, tried, half, **plan)
    snapshot = batch.snapshot()

    def alone(row: int, agent: int, action: int) -> float:
        other = Batch(rules, 5, seed=1)
        observations = other.restore(snapshot)
        actions = taken.copy()
        actions[row, agent] = action
        total = 0.0
        for step in range(4):
            if step:
                actions = half(observations, other.acting)
            result = other.step(actions)
            total += 0.9**step * float(result.reward[row].astype(np.float64).sum())
            observations = result.observations
        return total

    for each, gain in zip(tried, found, strict=True):
        assert len(np.unique(gain)) > 3, "too little differs to tell anything"
        for i, row in enumerate(each.rows):
            expected = [alone(row, each.agent, action) for action in each.actions[i]]
            np.testing.assert_allclose(gain[i], np.subtract(expected, expected[0]), atol=1e-12)
    monkeypatch.setattr(compared, "MAX_DECISIONS", 1)
    again = gains(rules, batch.moments, taken, tried, half, **plan)
    assert [each.tolist() for each in again] == [each.tolist() for each in found]


def test_an_action_that_is_drawn_twice_is_played_once(monkeypatch: pytest.MonkeyPatch) -> None:
    played = []

    def counted(rows: Any) -> Any:
        played.extend(rows.tolist())
        return batch.moments(rows)

    batch = Batch(make_rules("two_step_v0"), 2, seed=0)
    batch.reset()
    taken = np.zeros((2, 2), dtype=np.int64)
    tried = [Tried(i, np.arange(2), np.array([[0, 1, 1], [0, 0, 0]])) for i in range(2)]
    gains(batch.rules, counted, taken, tried, takes_one, gamma=1.0, horizon=2)
    assert played == [0, 0, 0, 1], "as taken, agent_0's other, agent_1's other; as taken"
