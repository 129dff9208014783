"""tiles_v0: worked examples, a plain re-statement played side by side, reference teams."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest

from corral.envs import tiles_v0
from corral.envs.batch import Batch
from corral.envs.core import copy_rows, generator, put_rows, state_arrays
from corral.envs.tiles_v0 import TilesRules, TilesState
from corral.envs.tiles_v0.templates import (
    PIXELS,
    block_means,
    split_tiles,
    spread,
    suite_classes,
)
from corral.errors import IllegalActionError
from support.contract import plain
from support.messages import refused
from support.tiles_scalar import INFO_KEYS, ScalarTiles

TILE, LEVEL = "tile_0", "level_0"


def two_classes(contrast: float = 0.01) -> np.ndarray:
    """Hard to tell apart: grey, and a little lighter in the right half."""
    templates = np.full((2, 3, 32, 32), 0.5)
    templates[1, :, :, 16:] += contrast
    return templates


def play(
    rules: TilesRules, state: TilesState, *actions: int
) -> tuple[TilesState, list[float], dict[str, Any], bool]:
    """Play one copy, whoever's turn it is; the last step's reward, info and end."""
    for action in actions:
        outcome = rules.step(state, np.array([[action, action]]))
        state = outcome.state
    info = {key: values[0].tolist() for key, values in outcome.info.items()}
    assert outcome.terminated[0, 0] == outcome.terminated[0, 1]
    return state, outcome.reward[0].tolist(), info, bool(outcome.terminated[0, 0])


def fresh(**kwargs: Any) -> tuple[TilesRules, TilesState]:
    rules = TilesRules(**kwargs)
    return rules, rules.start([np.random.default_rng(0)])


# --- Classes and blocks --------------------------------------------------------------------------


def test_the_classes_of_the_suite_never_change() -> None:
    templates = suite_classes().templates
    assert (templates.shape, templates.dtype) == ((100, 3, 32, 32), np.float64)
    assert templates.min() >= 0
    assert templates.max() <= 1
    digest = hashlib.sha256(templates.tobytes()).hexdigest()
    assert digest.startswith("24665ce1c1638b63")
    assert suite_classes().digest == digest[:16]
    with pytest.raises(ValueError, match="read-only"):
        templates[0, 0, 0, 0] = 0


def test_families_differ_in_two_tiles_alone_and_hardly_in_their_means() -> None:
    tiles = split_tiles(suite_classes().templates).reshape(10, 10, 16, 192)
    differs = np.abs(tiles - tiles[:, :1]).max(axis=(1, 3)) > 0  # [family, tile]
    assert (differs.sum(axis=1) == 2).all()
    assert len(np.unique(differs, axis=0)) > 5
    # Deviation within a family, in the tiles that tell, in units of a block mean's noise.
    visible = []
    for level, pixels in enumerate(PIXELS):
        means = block_means(tiles.reshape(-1, 3, 8, 8), level).reshape(10, 10, 16, -1)
        deviation = means.std(axis=1).mean(axis=2) / (0.3 / math.sqrt(pixels))  # [family, tile]
        visible.append([deviation[half::2][differs[half::2]].mean() for half in (0, 1)])
    coarse, fine = np.array(visible).T  # of even and of odd families, by level
    assert coarse[1] > 0.7  # half a tile's blocks show coarse details,
    assert fine[0] < 0.35  # and not even these show fine ones
    assert fine[1] < 0.6 * coarse[1]
    assert fine[2] > 1.3 * fine[0]


def test_classes_are_low_frequency_patterns_in_every_tile() -> None:
    """Most of a tile's variation is within 8 cycles per image; 32 pixels hold 16."""
    tiles = split_tiles(suite_classes().templates)
    power = np.abs(np.fft.fft2(tiles - tiles.mean(axis=(-2, -1), keepdims=True))) ** 2
    cycles = 4 * np.abs(np.fft.fftfreq(8, 1 / 8))  # per image
    low = np.hypot(cycles[:, None], cycles) <= 8
    assert power[..., low].sum() / power.sum() > 0.8


def test_block_means_of_a_tile() -> None:
    tile = np.arange(3 * 64, dtype=float).reshape(1, 3, 8, 8)
    assert block_means(tile, 0).tolist() == [[31.5, 95.5, 159.5]]
    quarters = [13.5, 17.5, 45.5, 49.5]
    assert block_means(tile, 1)[0].tolist() == [64 * c + q for c in range(3) for q in quarters]
    assert block_means(tile, 2)[0, :5].tolist() == [4.5, 6.5, 8.5, 10.5, 20.5]
    assert block_means(tile, 3)[0].tolist() == list(range(192))
    shown = spread(block_means(tile, 1), 1)
    assert shown[0, 1, 2:6, 3:5].tolist() == [[77.5, 81.5]] * 2 + [[109.5, 113.5]] * 2


# --- Worked examples -----------------------------------------------------------------------------


def test_a_turn_by_hand() -> None:
    """Two classes and a level-0 tile: three means, each with noise of variance 0.09 / 64."""
    rules, state = fresh(templates=two_classes(0.1))
    state.truth[0] = 1
    state.image[0, 2] = 0.58  # in the right half; the templates say 0.5 and 0.6
    seen = rules.observe(state)
    assert seen[TILE]["action_mask"][0].tolist() == [1] * 16
    assert seen[LEVEL]["action_mask"][0].tolist() == [0] * 4
    assert seen[TILE]["observation"]["vector"][0].tolist() == [0.5, 0.5, 1, 0] + [0] * 16

    state, reward, info, over = play(rules, state, 2)
    assert (reward, over) == ([0.0, 0.0], False)
    assert info == {key: [0, 0] for key in INFO_KEYS}
    seen = rules.observe(state)
    assert seen[TILE]["action_mask"][0].tolist() == [0] * 16
    assert seen[LEVEL]["action_mask"][0].tolist() == [1] * 4
    assert seen[LEVEL]["observation"]["vector"][0, 3] == np.float32(3 / 16)

    state, reward, info, over = play(rules, state, 0)
    # log odds: 3 ((0.08)^2 - (0.02)^2) / (2 * 0.09 / 64) = 6.4, from float32 pixels
    log_probability = -math.log1p(math.exp(-6.4))
    gain = log_probability + math.log(2)
    assert info["gain"] == [0, pytest.approx(gain, abs=1e-5)]
    assert reward == [pytest.approx((gain - 0.006) / 2, abs=1e-5)] * 2
    assert (info["values"], info["tiles"], info["correct"]) == ([0, 3], [0, 1], [0, 1])
    assert over  # 0.998 is more than 0.95
    seen = rules.observe(state)
    for agent in rules.agents:
        assert not seen[agent]["action_mask"].any()
        image = seen[agent]["observation"]["image"][0]
        assert (image[:, :8, 16:24] == 148).all()  # 0.58 * 255 = 147.9
        assert (image == 128).sum() == 3 * (1024 - 64)
        vector = seen[agent]["observation"]["vector"][0]
        assert vector[:2] == pytest.approx([1 - math.exp(log_probability), 0.99834], abs=1e-5)
        assert vector[2] == np.float32(381 / 384)
        assert np.flatnonzero(vector[4:]).tolist() == [2]
    assert seen[TILE]["observation"]["vector"][0, 3] == 0.25
    known = rules.global_state(state)[0]
    assert known[:2].tolist() == [0, 1]
    assert known[5:21].tolist() == [0, 0, 0.25] + [0] * 13
    assert known[21:].tolist() == [0] * 16


def test_what_was_learned_wrongly_is_corrected_in_the_sums() -> None:
    rules, state = fresh(templates=two_classes(0.1), confidence=1.0)
    state.truth[0] = 1
    state.image[0, 2], state.image[0, 3] = 0.5, 0.65  # the first speaks for class 0
    state, _, info, _ = play(rules, state, 2, 0)
    assert info["correct"] == [0, 0]
    state, _, info, _ = play(rules, state, 3, 0)
    assert info["correct"] == [0, 1]
    state.image[0, 6] = 0.3
    state, _, info, _ = play(rules, state, 6, 0)
    assert info["correct"] == [0, -1]


def test_the_budget_masks_levels_and_ends_the_episode() -> None:
    rules, state = fresh(templates=two_classes(), confidence=1.0, budget=64)
    state, _, _, over = play(rules, state, 0, 2)
    assert not over
    state, *_ = play(rules, state, 5)
    assert rules.observe(state)[LEVEL]["action_mask"][0].tolist() == [1, 1, 0, 0]  # 16 left
    state, _, _, over = play(rules, state, 1)
    assert not over
    state, _, info, over = play(rules, state, 7, 0)
    assert over  # 1 is left, and 3 is the least
    assert info["values"] == [0, 3]
    assert state.left[0] == 1


def test_an_episode_ends_when_all_is_sent() -> None:
    rules, state = fresh(templates=two_classes(1e-4), confidence=1.0)
    for tile in range(16):
        state, _, _, over = play(rules, state, tile, 0)
        assert over == (tile == 15)
    assert state.left[0] == 384 - 48


def test_illegal_actions_cost_one_and_end_the_turn() -> None:
    rules, state = fresh(templates=two_classes(), confidence=1.0, budget=60)
    state, *_ = play(rules, state, 4, 1)
    before = state.log_posterior.copy(), state.received.copy()
    state, reward, info, over = play(rules, state, 4)  # was sent
    assert (reward, info["illegal_actions"], over) == ([-0.5, -0.5], [1, 0], False)
    assert rules.acting(state).tolist() == [[True, False]]
    state, *_ = play(rules, state, 5)
    state, reward, info, over = play(rules, state, 3)  # 192 of 48
    assert (reward, info["illegal_actions"], over) == ([-0.5, -0.5], [0, 1], False)
    assert rules.acting(state).tolist() == [[True, False]]
    assert rules.observe(state)[TILE]["action_mask"][0, 5] == 1  # it was not sent
    assert state.left[0] == 48
    np.testing.assert_array_equal(state.log_posterior, before[0])
    np.testing.assert_array_equal(state.received, before[1])
    assert state.last.tolist() == [[5, 3]]


def test_who_never_plays_legally_is_stopped() -> None:
    batch = Batch(TilesRules(two_classes(), confidence=1.0), 1, 0)
    batch.reset()
    nothing = np.zeros((1, 2), dtype=np.int64)
    batch.step(nothing)
    batch.step(nothing)  # tile 0 is sent
    with pytest.warns(UserWarning, match="tile_0"):
        batch.step(nothing)
    for t in range(3, 32):
        step = batch.step(nothing)
        assert step.truncated.tolist() == [[t == 31] * 2]
    assert step.finished is not None
    assert step.finished.returns.sum() == pytest.approx(-30, abs=1)


def test_illegal_actions_can_raise() -> None:
    batch = Batch(TilesRules(illegal="raise"), 2, 0)
    batch.reset()
    batch.step(np.array([[3, 0], [4, 0]]))
    batch.step(np.array([[0, 0], [0, 0]]))
    before = plain(batch.snapshot()["arrays"])
    with refused(IllegalActionError, "copy 1", "tile_0", "action 4", "0..3, 5..15"):
        batch.step(np.array([[4, 0], [4, 0]]))
    assert plain(batch.snapshot()["arrays"]) == before


@pytest.mark.parametrize(("budget", "sent"), [(None, 12), (384, 48), (20, 18)])
def test_a_level_selector_with_nothing_to_choose(budget: int | None, sent: int) -> None:
    """By default four tiles can be sent; 48 values are all of them at the coarsest level."""
    env = tiles_v0.env(templates=two_classes(1e-4), levels=1, confidence=1.0, budget=budget)
    assert env.action_space(LEVEL).n == 1
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    values = 0
    for _ in env.agent_iter():
        seen, _reward, ended, cut, _info = env.last()
        done = ended or cut
        env.step(None if done else int(rng.choice(np.flatnonzero(seen["action_mask"]))))
        values += 0 if done else env.infos[LEVEL]["values"]
    assert values == sent


# --- Against the plain re-statement --------------------------------------------------------------


def random_game(rng: np.random.Generator) -> dict[str, Any]:
    classes = int(rng.integers(2, 6))
    faint = 0.5 + rng.choice([0.02, 0.1, 0.5]) * (rng.random((classes, 3, 32, 32)) - 0.5)
    return {
        "templates": faint,
        "levels": int(rng.integers(1, 5)),
        "budget": int(rng.integers(3, 400)),
        "noise": float(rng.choice([0.1, 0.3, 2.0])),
        "value_cost": float(rng.choice([0.0, 0.002, 0.1])),
        "confidence": float(rng.uniform(0.6, 1.0)),
    }


def random_moves(scalar: ScalarTiles, rng: np.random.Generator) -> list[int]:
    """An action for each agent, mostly a legal one for who acts."""
    moves = [int(rng.integers(16)), int(rng.integers(scalar.levels))]
    if rng.random() < 0.9:
        moves[scalar.turn] = int(rng.choice(np.flatnonzero(scalar.mask(scalar.turn))))
    return moves


def play_side_by_side(seed: int, num_envs: int = 16) -> dict[str, int]:
    """Play random games to their end with both; how often each info was seen."""
    rng = np.random.default_rng(seed)
    kwargs = random_game(rng)
    rules = TilesRules(**kwargs)
    kwargs["templates"] = kwargs["templates"].tolist()
    state = rules.start([generator(seed, "env", row) for row in range(num_envs)])
    pictures = state.image.reshape(num_envs, 4, 4, 3, 8, 8).transpose(0, 3, 1, 4, 2, 5)
    pictures = pictures.reshape(num_envs, 3, 32, 32)
    scalars = [ScalarTiles(**kwargs) for _ in range(num_envs)]
    for row, scalar in enumerate(scalars):
        scalar.known_means = scalars[0].known_means
        scalar.reset(int(state.truth[row]), pictures[row].tolist())
    counted = dict.fromkeys((*INFO_KEYS, "episodes"), 0)
    # The copies need not be at the same step: let the first play ahead by itself.
    ahead = int(rng.integers(3))
    for t in range(200):
        rows = np.arange(num_envs if t >= ahead else 1)
        rows = rows[[not scalars[row].over for row in rows]]
        if not len(rows):
            if t >= ahead:
                break
            continue
        actions = [random_moves(scalars[row], rng) for row in rows.tolist()]
        part = copy_rows(state, rows)
        outcome = rules.step(part, np.array(actions))
        put_rows(state, rows, outcome.state)
        playing = [scalars[row] for row in rows.tolist()]
        paid = [s.step(moves[s.turn]) for s, moves in zip(playing, actions, strict=True)]
        np.testing.assert_allclose(outcome.reward, np.array([paid] * 2).T, rtol=1e-5, atol=1e-6)
        assert outcome.terminated.tolist() == [[scalar.over] * 2 for scalar in playing]
        for key in INFO_KEYS:
            told = np.array([scalar.info[key] for scalar in playing])
            np.testing.assert_allclose(outcome.info[key], told, rtol=1e-9, atol=1e-9)
            counted[key] += int(told.any(axis=1).sum())
        compare(rules, state, scalars)
    assert all(scalar.over for scalar in scalars)
    counted["episodes"] = num_envs
    return counted


def compare(rules: TilesRules, state: TilesState, scalars: list[ScalarTiles]) -> None:
    seen, known = rules.observe(state), rules.global_state(state)
    logs = np.array([scalar.log_probabilities for scalar in scalars])
    np.testing.assert_allclose(state.log_posterior, logs, rtol=1e-9, atol=1e-9)
    expected = np.array([scalar.global_state() for scalar in scalars])
    np.testing.assert_allclose(known, expected, atol=2e-7)
    images = np.array([scalar.received for scalar in scalars])
    for i, agent in enumerate(rules.agents):
        masks = [scalar.mask(i) for scalar in scalars]
        assert seen[agent]["action_mask"].tolist() == masks
        np.testing.assert_array_equal(seen[agent]["observation"]["image"], images)
        vectors = np.array([scalar.vector(i) for scalar in scalars])
        np.testing.assert_allclose(seen[agent]["observation"]["vector"], vectors, atol=2e-7)


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 4))]
)
def test_thousands_of_random_episodes_play_alike(block: int) -> None:
    """512 episodes each, with legal and illegal moves, random templates and settings."""
    found = [play_side_by_side(seed) for seed in range(32 * block, 32 * (block + 1))]
    counted = {key: sum(each[key] for each in found) for key in found[0]}
    assert counted["episodes"] == 512
    assert min(counted.values()) > 100


def test_the_posterior_of_the_suites_classes_is_exact() -> None:
    """All levels, 100 classes, against the densities one by one."""
    rules = TilesRules(confidence=1.0)
    scalar = ScalarTiles(rules.templates.tolist(), confidence=1.0)
    for row, (order, levels) in enumerate([((5, 0, 9, 14), (0, 1, 2, 3)), ((3, 7), (2, 3))]):
        state = rules.start([generator(7, "env", row)])
        picture = state.image[0].reshape(4, 4, 3, 8, 8).transpose(2, 0, 3, 1, 4).reshape(3, 32, 32)
        scalar.reset(int(state.truth[0]), picture.tolist())
        for tile, level in zip(order, levels, strict=True):
            for action in (tile, level):
                state, *_ = play(rules, state, action)
                scalar.step(action)
            logs = scalar.log_probabilities
            np.testing.assert_allclose(state.log_posterior[0], logs, rtol=1e-10, atol=1e-9)
            assert np.exp(state.log_posterior[0]).sum() == pytest.approx(1, abs=1e-12)


def test_a_copy_plays_as_it_would_alone_among_hundreds() -> None:
    rules = TilesRules()
    state = rules.start([generator(3, "env", row) for row in range(400)])
    alone = [rules.start([generator(3, "env", row)]) for row in range(0, 400, 23)]
    rng = np.random.default_rng(0)
    for _ in range(12):
        actions = np.stack([rng.integers(16, size=400), rng.integers(4, size=400)], axis=1)
        outcome = rules.step(state, actions)
        state = outcome.state
        for i, row in enumerate(range(0, 400, 23)):
            single = rules.step(alone[i], actions[row : row + 1])
            alone[i] = single.state
            assert single.reward.tobytes() == outcome.reward[row].tobytes()
            for name, values in state_arrays(single.state).items():
                assert values[0].tobytes() == getattr(state, name)[row].tobytes(), name
