"""Faults that an environment's numbers show: wrapped integers, totals, masks, codes, bonuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.lab.doctor.evidence.environment import Twins
from corral.lab.doctor.evidence.record import EnvRecord, Evidence, PolicyEvidence
from corral.lab.doctor.findings import effects, signals

STEPS, COPIES, LENGTH = 300, 4, 10


def recorded(**parts: Any) -> tuple[PolicyEvidence, Evidence]:
    """One policy in one rollout of ``COPIES`` copies with episodes of ``LENGTH`` steps."""
    record = PolicyEvidence("shared", ("agent",), **parts)
    begins = np.zeros((STEPS + 1, COPIES), dtype=bool)
    begins[LENGTH::LENGTH] = True
    return record, Evidence(None, {"shared": record}, [], env=EnvRecord(begins=[begins]))


def both(values: Any) -> list[Any]:
    return [(values, values)]


# --- Masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("legal", "cause"), [((1, 1, 0), "action-never-legal"), ((1, 1, 1), None)])
def test_an_action_that_no_mask_allows(legal: tuple[int, ...], cause: str | None) -> None:
    masks = np.broadcast_to(np.array(legal) != 0, (STEPS, COPIES, 3))
    acted = [np.ones((STEPS, COPIES), dtype=bool)]
    finding = signals.never_allowed(*recorded(masks=both(masks), acted=acted))
    assert (None if finding is None else finding.cause) == cause


def test_moves_of_a_large_game_may_never_be_possible() -> None:
    masks = np.zeros((STEPS, COPIES, 60), dtype=bool)
    masks[..., :20] = True
    masks[0, 0, :50] = True
    acted = [np.ones((STEPS, COPIES), dtype=bool)]
    assert signals.never_allowed(*recorded(masks=both(masks), acted=acted)) is None


# --- Rewards and observations --------------------------------------------------------------------


def distances(wraps: bool) -> Any:
    rng = np.random.default_rng(0)
    here, goal = rng.integers(0, 31, (2, STEPS, COPIES), dtype=np.uint8)
    if wraps:
        return -(here - goal).astype(np.float64) / 30
    return -np.abs(here.astype(int) - goal) / 30


@pytest.mark.parametrize("where", ["rewards", "obs"])
def test_a_difference_of_bytes_wraps_around(where: str) -> None:
    values = {name: distances(wraps=name == where) for name in ("rewards", "obs")}
    parts = {"rewards": both(values["rewards"]), "obs": both(values["obs"][..., None])}
    finding = signals.wrapped(*recorded(**parts))
    assert finding is not None
    assert finding.cause == "number-wraps"
    assert ("observation[0]" in finding.measured) is (where == "obs")


def test_distances_and_two_levels_do_not_wrap() -> None:
    rewards = distances(wraps=False)
    rewards[::50] = 255 / 30
    parts = {"rewards": both(rewards), "obs": both(np.zeros((STEPS, COPIES, 1)))}
    assert signals.wrapped(*recorded(**parts)) is None


def gains() -> Any:
    return np.random.default_rng(0).choice([1.0, -0.05, 0.0], (STEPS, COPIES))


def per_episode(rewards: Any) -> Any:
    total = rewards.reshape(-1, LENGTH, COPIES).cumsum(axis=1)
    return total.reshape(STEPS, COPIES)


def test_a_reward_that_is_the_total_so_far() -> None:
    finding = signals.running_total(*recorded(rewards=both(per_episode(gains()))))
    assert finding is not None
    assert finding.cause == "reward-running-total"
    assert signals.running_total(*recorded(rewards=both(gains()))) is None


def test_a_distance_is_no_running_total() -> None:
    starts = np.repeat(np.random.default_rng(1).integers(5, 25, (STEPS // LENGTH, COPIES)), 10, 0)
    walked = per_episode(np.random.default_rng(0).choice([-1.0, 1.0], (STEPS, COPIES)))
    assert signals.running_total(*recorded(rewards=both(-np.abs(starts + walked)))) is None


# --- Actions -------------------------------------------------------------------------------------

RIGHT, UP, LEFT, DOWN = np.eye(2)[0], np.eye(2)[1], -np.eye(2)[0], -np.eye(2)[1]
STAY = np.zeros(2)


def walk(moves: tuple[Any, ...]) -> dict[str, Any]:
    """Random steps on an endless board, from the origin in each episode."""
    actions = np.random.default_rng(0).integers(0, len(moves), (STEPS, COPIES))
    steps = np.array(moves)[actions].reshape(-1, LENGTH, COPIES, 2)
    places = np.concatenate([np.zeros_like(steps[:, :1]), steps[:, :-1].cumsum(axis=1)], axis=1)
    return {"obs": both(places.reshape(STEPS, COPIES, 2)), "actions": [actions]}


@pytest.mark.parametrize(
    ("moves", "cause"),
    [
        ((STAY, RIGHT, UP, DOWN), "action-codes-shifted"),
        ((UP, DOWN, RIGHT, STAY), "action-codes-shifted"),
        ((STAY, RIGHT, UP, LEFT, DOWN), None),  # a move that is meant to do nothing
        ((RIGHT, UP, DOWN), None),  # a game that goes on to the right
    ],
)
def test_codes_of_actions_that_are_shifted_by_one(moves: Any, cause: str | None) -> None:
    finding = signals.shifted_codes(*recorded(**walk(moves)))
    assert (None if finding is None else finding.cause) == cause


@pytest.mark.parametrize("shown", [False, True])
def test_rewards_and_actions_of_another_agent_are_told_apart(shown: bool) -> None:
    """Rewards alone reach the wrong agent, or the observation does too."""
    record, evidence = recorded()
    paid = 40.0 * (1 - np.eye(2))
    evidence.env.twins = Twins(
        ("first", "second"),
        reached=paid,
        paid=paid,
        shown=paid * shown,
        moments=np.array([50.0, 50.0]),
        soon=50,
        late=0,
        idle=np.zeros(2),
        earned=50,
        cases=50,
    )
    permuted = effects.permuted_actions(record, evidence)
    misdirected = effects.misdirected_rewards(record, evidence)
    assert (None if permuted is None else permuted.cause) == ("actions-permuted" if shown else None)
    assert misdirected is not None
    assert misdirected.cause == "reward-of-another"


# --- Ends ----------------------------------------------------------------------------------------


def reached(share: float, last: float) -> PolicyEvidence:
    """Episodes of which ``share`` end by a reward ``last``, and the others at the time limit."""
    rng = np.random.default_rng(0)
    over = np.zeros((STEPS, COPIES), dtype=bool)
    over[LENGTH - 1 :: LENGTH] = True
    terminated = over & (rng.random(over.shape) < share)
    rewards = np.where(terminated, last, rng.uniform(-0.1, 0.3, over.shape))
    record, _ = recorded(rewards=both(rewards))
    record.terminated, record.truncated = [terminated], [over & ~terminated]
    return record


def test_a_goal_that_the_policy_learns_to_avoid() -> None:
    finding = signals.avoided_goal(reached(0.5, last=1.0), reached(0.05, last=1.0))
    assert finding is not None
    assert finding.cause == "goal-avoided"


def test_falls_are_avoided_and_goals_are_reached() -> None:
    assert signals.avoided_goal(reached(0.5, last=-1.0), reached(0.0, last=-1.0)) is None
    assert signals.avoided_goal(reached(0.5, last=0.2), reached(0.0, last=0.2)) is None
    assert signals.avoided_goal(reached(0.3, last=1.0), reached(0.9, last=1.0)) is None
