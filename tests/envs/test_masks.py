"""Masks as NumPy arrays: what is drawn is legal, uniform, and the stream of earlier versions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.envs import masks
from corral.errors import IllegalActionError, MaskError
from support.messages import refused


def every_mask(actions: int) -> Any:
    """All non-empty masks: int8 [2**actions - 1, actions]."""
    return np.array(list(itertools.product([0, 1], repeat=actions)), np.int8)[1:]


def legal(mask: Any, actions: Any) -> Any:
    return np.take_along_axis(np.asarray(mask), actions[:, None], axis=1)[:, 0] != 0


@st.composite
def masks_of_rows(draw: Any) -> Any:
    rows, actions = draw(st.integers(1, 20)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return (rng.random((rows, actions)) < draw(st.sampled_from([0.0, 0.2, 0.7, 1.0]))).astype(
        draw(st.sampled_from([np.int8, np.bool_]))
    )


# --- Draws ---------------------------------------------------------------------------------------


def test_a_million_draws_and_none_illegal() -> None:
    mask = np.tile(every_mask(8), (1500, 1))  # 382,500 rows
    rng = np.random.default_rng(0)
    probabilities = rng.random(mask.shape) ** 8
    probabilities[rng.random(mask.shape) < 0.3] = 0.0
    probabilities[np.arange(len(mask)), mask.argmax(axis=1)] += 1e-300  # never all of them
    exact = probabilities * mask
    drawn = {
        "uniform": masks.sample_legal(mask, rng),
        "by probabilities": masks.draw(probabilities, rng, mask),
        "by exact ones": masks.draw(exact, rng),
        "greedy": masks.greedy(rng.normal(size=mask.shape), mask),
    }
    assert sum(map(len, drawn.values())) > 1_000_000
    for name, actions in drawn.items():
        assert actions.dtype == np.int64, name
        assert legal(mask, actions).all(), name
    for name in ("by probabilities", "by exact ones"):  # what has probability 0 is never drawn
        assert (exact[np.arange(len(mask)), drawn[name]] > 0).all(), name


def test_draws_without_a_mask_are_of_all_actions() -> None:
    drawn = masks.sample_legal(np.ones((30_000, 3), np.int8), np.random.default_rng(1))
    assert np.bincount(drawn) / len(drawn) == pytest.approx([1 / 3] * 3, abs=0.01)


@pytest.mark.parametrize("mask", [[1, 1, 1, 0], [0, 1, 0, 1], [1, 0, 1, 1]])
def test_legal_actions_are_drawn_equally_often(mask: list[int]) -> None:
    rows = np.tile(np.array(mask, np.int8), (40_000, 1))
    drawn = masks.sample_legal(rows, np.random.default_rng(2))
    expected = np.array(mask) / sum(mask)
    assert np.bincount(drawn, minlength=4) / len(drawn) == pytest.approx(expected, abs=0.015)


def test_draws_follow_the_probabilities() -> None:
    rows = np.tile([0.5, 0.2, 0.0, 0.3], (100_000, 1))
    rng = np.random.default_rng(3)
    shares = np.bincount(masks.draw(rows, rng), minlength=4) / len(rows)
    assert shares == pytest.approx([0.5, 0.2, 0.0, 0.3], abs=0.01)
    mask = np.tile(np.array([0, 1, 1, 1], np.int8), (100_000, 1))
    shares = np.bincount(masks.draw(rows, rng, mask), minlength=4) / len(rows)
    assert shares == pytest.approx([0.0, 0.4, 0.0, 0.6], abs=0.01)


@settings(max_examples=200, deadline=None)
@given(masks_of_rows(), st.integers(0, 2**32))
def test_draws_are_those_of_a_plain_loop(mask: Any, seed: int) -> None:
    """One uniform number a row, in order; the same stream for ever."""
    uniform = np.random.default_rng(seed).random(len(mask))
    drawn = masks.sample_legal(mask, np.random.default_rng(seed))
    weights = np.random.default_rng(seed + 1).random(mask.shape)
    chosen = masks.draw(weights, np.random.default_rng(seed), mask)
    for row, u in enumerate(uniform):
        actions = np.flatnonzero(mask[row])
        if not len(actions):
            assert drawn[row] == 0
            continue
        assert drawn[row] == actions[int(u * len(actions))]
        total = 0.0
        for action in range(mask.shape[1]):
            total += weights[row, action] if mask[row, action] else 0.0
            if action == chosen[row]:
                break
            assert total <= u * weights[row][mask[row] != 0].sum() * (1 + 1e-12)
        assert mask[row, chosen[row]]
        assert total >= u * weights[row][mask[row] != 0].sum() * (1 - 1e-12)


def test_the_streams_are_pinned() -> None:
    """Numbers of an earlier version: recorded runs draw them again."""
    rng = np.random.default_rng(7)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]], np.int8)
    assert [masks.sample_legal(mask, rng).tolist() for _ in range(3)] == [
        [2, 1, 3, 0, 3],
        [3, 0, 3, 0, 3],
        [1, 0, 1, 0, 3],
    ]
    full = np.ones((6, 5), np.int8)
    assert masks.sample_legal(full, rng).tolist() == [2, 4, 3, 3, 4, 1]
    weights = np.array([[0.1, 0.2, 0.7], [0.0, 1.0, 0.0], [0.3, 0.3, 0.4]])
    assert [masks.draw(weights, rng).tolist() for _ in range(3)] == [
        [1, 1, 0],
        [0, 1, 1],
        [2, 1, 1],
    ]
    assert rng.random() == 0.49687343539350426


# --- Greedy --------------------------------------------------------------------------------------


def test_the_first_of_equal_scores_is_taken() -> None:
    scores = np.array([[1.0, 3.0, 3.0, 9.0], [0.0, 0.0, 0.0, 0.0], [-5.0, -5.0, -9.0, 1.0]])
    mask = np.array([[1, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 0]], np.int8)
    assert masks.greedy(scores, mask).tolist() == [1, 2, 0]
    assert masks.greedy(scores[0], mask[0]) == 1


def test_an_illegal_action_never_wins_however_high_its_score() -> None:
    scores = np.array([np.inf, -1.7e308, np.finfo(float).max])
    assert masks.greedy(scores, np.array([0, 1, 0], np.int8)) == 1
    assert masks.greedy(scores, np.array([False, True, False])) == 1


# --- Checks, spaces, splitting -------------------------------------------------------------------


def test_masks_hold_zero_and_one() -> None:
    for given_mask in (np.array([0, 1], np.int8), np.array([0.0, 1.0]), np.array([False, True])):
        found = masks.as_legal("a", given_mask)
        assert found.dtype == np.bool_
        assert found.tolist() == [False, True]
    assert masks.as_legal("a", np.zeros((0, 3), np.int8)).shape == (0, 3)
    for wrong in (np.array([0, 2], np.int8), np.array([-1, 1], np.int8), np.array([0.5, np.nan])):
        with refused(MaskError, "a: action_mask", "0 and 1"):
            masks.as_legal("a", wrong)


def test_an_illegal_action_is_told_what_is_legal() -> None:
    mask = np.array([1, 1, 1, 0, 0, 1, 0], np.int8)
    masks.require_legal("node_0", 5, mask)
    with refused(IllegalActionError, "node_0", "action 3", "0..2, 5"):
        masks.require_legal("node_0", 3, mask)
    with refused(IllegalActionError, "node_0", "action 0", "none"):
        masks.require_legal("node_0", 0, np.zeros(3, np.int8))


def test_observations_and_spaces_split_alike() -> None:
    box = spaces.Box(0, 1, (2,))
    mask = np.array([1, 0, 1], np.int8)
    whole = masks.masked_space(box, 3)
    assert masks.split_space(whole) == (box, masks.mask_space(3))
    inner, found = masks.split({"observation": 5, "action_mask": mask})
    assert inner == 5
    assert found is mask
    beside = spaces.Dict({"a": box, "b": box, "action_mask": masks.mask_space(3)})
    assert masks.split_space(beside)[0] == spaces.Dict({"a": box, "b": box})
    assert masks.split({"a": 1, "b": 2, "action_mask": mask})[0] == {"a": 1, "b": 2}
    for space, observation in ((box, np.zeros(2)), (spaces.Dict({"a": box}), {"a": 1})):
        assert masks.split_space(space) == (space, None)
        inner, found = masks.split(observation)
        assert inner is observation
        assert found is None
        assert not masks.has_mask(space)


def test_splitting_leaves_the_observation_alone() -> None:
    observation = {"observation": np.zeros(2), "action_mask": np.ones(3, np.int8)}
    inner, _ = masks.split(observation)
    assert set(observation) == {"observation", "action_mask"}
    assert inner is observation["observation"]
