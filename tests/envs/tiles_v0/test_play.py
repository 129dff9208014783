"""tiles_v0: chance, arguments, reference teams."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs import tiles_v0
from corral.envs.batch import Batch
from corral.envs.core import generator
from corral.envs.tiles_v0 import TilesRules
from corral.envs.tiles_v0.baselines import (
    Greedy,
    expected_information,
    teams_of,
    tiles_team,
)
from corral.envs.tiles_v0.templates import (
    VALUES,
    split_tiles,
    suite_classes,
)
from corral.errors import UnknownNameError
from corral.trainers.evaluation.scores import TeamScore, evaluate_team
from support.messages import refused

TILE, LEVEL = "tile_0", "level_0"


# --- Chance --------------------------------------------------------------------------------------


def test_images_are_templates_with_noise() -> None:
    rules = TilesRules(noise=0.25)
    state = rules.start([generator(0, "env", row) for row in range(600)])
    noise = state.image - split_tiles(rules.templates[state.truth])
    assert abs(noise.mean()) < 1e-3
    assert abs(noise.std() - 0.25) < 1e-3
    assert abs((np.abs(noise) > 0.5).mean() - 0.0455) < 1e-3  # a normal distribution's 2 deviations
    counts = np.bincount(state.truth, minlength=100)
    assert len(counts) == 100
    assert counts.max() < 20  # 6 each are expected


def test_the_posterior_is_calibrated() -> None:
    """Of classes that it gives a probability of p, a share of p is true: in reference play."""
    rules = TilesRules(confidence=0.999)
    state = rules.start([generator(1, "env", row) for row in range(1500)])
    for tile in range(3):
        for action in (tile, 1):
            state = rules.step(state, np.full((1500, 2), action)).state
    p = np.exp(state.log_posterior)
    true = np.arange(100) == state.truth[:, None]
    for low, high in ((0.02, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1.0)):
        chosen = (p >= low) & (p < high)
        expected, deviation = p[chosen].mean(), math.sqrt((p * (1 - p))[chosen].sum())
        assert chosen.sum() > 50
        assert abs(true[chosen].sum() - expected * chosen.sum()) < 4 * deviation


# --- Arguments -----------------------------------------------------------------------------------

IMAGES = np.full((3, 3, 32, 32), 0.5)


@pytest.mark.parametrize(
    ("kwargs", "values"),
    [
        ({"levels": 0}, ("levels=0", 1)),
        ({"levels": 5}, ("levels=5", "1 to 4")),
        ({"budget": 2}, ("budget=2", 3, "None")),
        ({"noise": 0}, ("noise=0", 0)),
        ({"noise": math.nan}, ("noise=nan", 0)),
        ({"value_cost": -1}, ("value_cost=-1", 0)),
        ({"confidence": 0.01}, ("confidence=0.01", "1/100", 1)),
        ({"confidence": 1.5}, ("confidence=1.5", "1/100", 1)),
        ({"max_cycles": 0}, ("max_cycles=0", 1)),
        ({"illegal": "ignore"}, ("illegal='ignore'", "'penalise', 'raise'")),
        ({"templates": IMAGES[0]}, ("(3, 32, 32)", "[K, 3, 32, 32]")),
        (
            {"templates": IMAGES.transpose(0, 2, 3, 1)},
            ("(3, 32, 32, 3)", "templates.transpose(0, 3, 1, 2)"),
        ),
        ({"templates": IMAGES[:1]}, ("1 classes", 2)),
        ({"templates": IMAGES * 3}, ("1.5 to 1.5", "[0, 1]")),
        ({"templates": IMAGES * math.nan}, ("nan to nan", "[0, 1]")),
        ({"templates": (IMAGES * 255).astype(np.uint8)}, ("127 to 127", "[0, 1]", 255)),
        ({"templates": [[1], [2, 3]]}, ("templates", "list", "[K, 3, 32, 32]")),
        ({"templates": object()}, ("templates", "object", "[K, 3, 32, 32]")),
    ],
)
def test_bad_arguments_are_named(kwargs: dict[str, Any], values: tuple[Any, ...]) -> None:
    with refused(ValueError, *values):
        TilesRules(**kwargs)


def test_unknown_arguments_are_answered_with_the_nearest() -> None:
    with refused(TypeError, "'level'", "'levels'"):
        tiles_v0.env(level=1)


def test_ones_own_images(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((7, 3, 32, 32)).astype(np.float32)
    rules = TilesRules(images)
    assert rules.observation_space(TILE)["observation"]["vector"].shape == (25,)
    images[0] = 0
    assert rules.templates[0].max() > 0  # they are copied
    np.save(tmp_path / "images.npy", rules.templates)
    read = TilesRules(tmp_path / "images.npy")
    assert read.identity == TilesRules(str(tmp_path / "images.npy")).identity == rules.identity
    (tmp_path / "text.npy").write_text("none")
    with refused(ValueError, f"templates={tmp_path / 'text.npy'}", ".npy"):
        TilesRules(tmp_path / "text.npy")
    with pytest.raises(FileNotFoundError):
        TilesRules(tmp_path / "absent.npy")


def test_the_suites_classes_are_not_in_pickles_ones_own_are() -> None:
    assert len(pickle.dumps(TilesRules())) < 2_000
    assert pickle.loads(pickle.dumps(TilesRules())).classes is suite_classes()
    own = pickle.loads(pickle.dumps(TilesRules(IMAGES)))
    np.testing.assert_array_equal(own.templates, IMAGES)
    assert own.identity == TilesRules(IMAGES).identity


def test_rules_that_play_alike_have_the_same_identity() -> None:
    others: list[dict[str, Any]] = [
        {"templates": IMAGES},
        {"levels": 3},
        {"budget": 300},
        {"noise": 0.2},
        {"value_cost": 0.001},
        {"confidence": 0.9},
        {"max_cycles": 31},
    ]
    assert len({TilesRules(**kwargs).identity for kwargs in ({}, *others)}) == 8
    assert TilesRules(illegal="raise").identity == TilesRules().identity


# --- Reference teams -----------------------------------------------------------------------------


def measured(name: str, episodes: int = 256, **kwargs: Any) -> TeamScore:
    rules = TilesRules(**kwargs, illegal="raise")
    score = evaluate_team(rules, tiles_team(name, rules), episodes=episodes, num_envs=128)
    assert score.illegal_actions == 0
    assert score.low is not None
    assert score.return_team <= math.log(100)
    gained = score.kpis["gain"] - 0.002 * score.kpis["values"]
    assert score.return_team == pytest.approx(gained, abs=1e-4)
    return score


@pytest.mark.parametrize(
    ("name", "returns", "right", "values"),
    [
        ("random", (2.8, 3.5), (0.60, 0.80), (300, 340)),
        ("raster-0", (2.7, 3.3), (0.38, 0.56), (45, 48)),
        ("raster-1", (3.6, 4.1), (0.78, 0.92), (130, 170)),
        ("raster-2", (2.8, 3.4), (0.53, 0.70), (265, 305)),
        ("raster-3", (1.7, 2.3), (0.20, 0.37), (345, 378)),
        ("greedy", (4.2, 4.5), (0.95, 1.00), (52, 75)),
    ],
)
def test_what_reference_teams_reach(name: str, returns: Any, right: Any, values: Any) -> None:
    score = measured(name)
    for found, (low, high) in (
        (score.return_team, returns),
        (score.kpis["correct"], right),
        (score.kpis["values"], values),
    ):
        assert low < found < high


def test_with_one_level_it_matters_which_tiles_are_sent() -> None:
    """The best team gets at least what greedy gets; where all tiles can be sent, none gets more."""
    random, greedy = (measured(name, 1024, levels=1) for name in ("random", "greedy"))
    assert greedy.low is not None
    assert random.high is not None
    assert greedy.low > random.high + 0.4
    assert random.kpis["tiles"] == pytest.approx(4, abs=0.05)
    random, greedy = (measured(name, 256, levels=1, budget=384) for name in ("random", "greedy"))
    assert greedy.return_team == pytest.approx(random.return_team, abs=0.03)


def test_the_budget_of_other_levels_is_384() -> None:
    assert [TilesRules(levels=levels).budget for levels in (1, 2, 3, 4)] == [12, 384, 384, 384]
    assert TilesRules(levels=1, budget=384).budget == 384


def test_expected_information_is_a_bound_close_to_what_is_gained() -> None:
    """Against the mean gain in the log-probability of the true class over many images."""
    rules = TilesRules(confidence=1.0)
    greedy = Greedy(rules)
    prior = np.full((1, 100), 0.01)
    bound = expected_information(prior, greedy.overlap)[0]  # [16, 4]
    for tile, level in ((0, 0), (6, 1), (11, 2)):
        state = rules.start([generator(5, "env", row) for row in range(1500)])
        state = rules.step(state, np.full((1500, 2), tile)).state
        gain = rules.step(state, np.full((1500, 2), level)).info["gain"][:, 1]
        error = gain.std() / math.sqrt(1500)
        assert bound[tile, level] < gain.mean() + 3 * error
        assert bound[tile, level] > 0.6 * gain.mean()
    sure = np.zeros((1, 100))
    sure[0, 3] = 1
    assert np.abs(expected_information(sure, greedy.overlap)).max() < 1e-12


def test_expected_information_is_exact_for_classes_that_cannot_be_mistaken() -> None:
    templates = np.repeat([0.0, 0.4, 1.0, 1.0], 3 * 1024).reshape(4, 3, 32, 32)
    rules = TilesRules(templates)
    prior = np.array([[0.1, 0.4, 0.3, 0.2]])  # the last two look alike
    expected = -sum(p * math.log(p) for p in (0.1, 0.4, 0.5))
    found = expected_information(prior, Greedy(rules).overlap)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_the_greedy_team_plays_the_pair_that_it_planned() -> None:
    rules = TilesRules(budget=60)
    batch, team = Batch(rules, 12, 0), tiles_team("greedy", rules)
    greedy = Greedy(rules)
    observations = batch.reset()
    checked = 0
    for _ in range(4):
        vector = observations[TILE]["observation"]["vector"].astype(np.float64)
        worth = expected_information(vector[:, :100], greedy.overlap) - 0.01 * np.array(VALUES)
        worth[np.repeat(vector[:, 102:][:, :, None] > 0, 4, axis=2)] = -np.inf
        dear = np.array(VALUES) > np.rint(vector[:, 100] * 60)[:, None]
        worth[np.repeat(dear[:, None], 16, axis=1)] = -np.inf
        best = worth.reshape(12, -1).argmax(axis=1)
        tile = team[TILE].act(observations[TILE]).action
        observations = batch.step(np.stack([tile, tile * 0], axis=1)).observations
        level = team[LEVEL].act(observations[LEVEL]).action
        observations = batch.step(np.stack([tile * 0, level], axis=1)).observations
        np.testing.assert_array_equal(4 * tile + level, best)
        checked += len(best)
    assert checked == 48


@pytest.mark.parametrize("name", ["raster-1", "greedy"])
def test_teams_play_single_observations_like_batches(name: str) -> None:
    rules = TilesRules(levels=3, illegal="raise")
    batch, team = Batch(rules, 3, 0), tiles_team(name, rules)
    observations = batch.reset()
    for step in range(6):
        agent = rules.agents[step % 2]
        seen = observations[agent]
        action = team[agent].act(seen).action
        for row in range(3):
            inner = {key: values[row] for key, values in seen["observation"].items()}
            one = {"observation": inner, "action_mask": seen["action_mask"][row]}
            decided = team[agent].act(one).action
            assert np.shape(decided) == ()
            assert decided == action[row]
        observations = batch.step(np.stack([action, action], axis=1)).observations


def test_a_raster_takes_the_finest_level_that_can_be_paid() -> None:
    score = measured("raster-3", budget=250)
    assert score.kpis["values"] > 200
    assert score.kpis["tiles"] >= 2


def test_levels_that_are_not_there_have_no_raster() -> None:
    rules = TilesRules(levels=2)
    assert list(teams_of(rules)) == ["raster-0", "raster-1", "greedy"]
    with refused(
        UnknownNameError, "'raster-2'", "'raster-1'", "greedy, random, raster-0, raster-1"
    ):
        tiles_team("raster-2", rules)
