"""What the policies read: masks that something has changed, normalised entries, small images."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gymnasium import spaces

from corral.errors import UnsupportedSpaceError
from support.columns import GAMES, WAYS, columns, dfaas, value_of_a_steady_reward
from support.learners import LEARNERS, learner
from support.mask_rules import PictureRules
from support.messages import refused
from support.steady_rules import SteadyRules

torch = pytest.importorskip("torch", reason="needs the extra sb3")
sb3 = pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
pytest.importorskip("sb3_contrib", reason="needs the extra sb3")
pytest.importorskip("supersuit", reason="needs the extra supersuit")

from corral.adapters import FeaturesWithoutMask  # noqa: E402
from corral.adapters import normalize as normalized  # noqa: E402
from corral.adapters.sb3.policies import SmallCNN  # noqa: E402

# --- Masks that are none any more ----------------------------------------------------------------


def test_stock_normalising_makes_other_masks() -> None:
    """What is guarded against: legal is taken for illegal and the other way round."""
    vec_env = sb3.common.vec_env.VecNormalize(columns("batch", dfaas(), 4))
    seen = vec_env.reset()["action_mask"]
    truth = np.stack(vec_env.env_method("action_masks"))
    assert seen.dtype == np.float32
    assert not np.isin(seen, (0, 1)).all()
    assert (seen.astype(bool) & ~truth).any()  # illegal ones shown as something
    assert (~seen.astype(np.int8).astype(bool) & truth).any()  # as the rollout buffer keeps them


@pytest.mark.parametrize("name", LEARNERS)
def test_normalised_masks_are_refused(name: str) -> None:
    vec_env = sb3.common.vec_env.VecNormalize(columns("batch", dfaas(), 4))
    model = learner(name, vec_env)
    expected = ("action_mask", "VecNormalize", "corral.adapters.normalize", "norm_obs_keys")
    with refused(UnsupportedSpaceError, *expected):
        model.learn(100)
    with refused(UnsupportedSpaceError, *expected):
        model.predict(vec_env.reset())


def test_other_masks_are_refused_by_the_features() -> None:
    seen = {"observation": spaces.Box(0, 1, (2,), np.float32)}
    for mask in (
        spaces.Box(-10, 10, (3,), np.float32),
        spaces.Box(0, 1, (3,), np.float32),
        spaces.Box(0, 2, (3,), np.int8),
        spaces.Box(0, 1, (3, 2), np.int8),
        spaces.MultiBinary(3),
    ):
        with refused(
            UnsupportedSpaceError,
            "action_mask",
            mask,
            "Box(0, 1, (actions,), int8)",
        ):
            FeaturesWithoutMask(spaces.Dict({**seen, "action_mask": mask}))
    fine = spaces.Dict({**seen, "action_mask": spaces.Box(0, 1, (3,), np.int8)})
    features = FeaturesWithoutMask(fine)
    assert features.features_dim == 2
    observation = torch.rand(4, 2)
    masks = torch.tensor([1.0, 0.0, 1.0]).expand(4, 3)
    assert torch.equal(features({"observation": observation, "action_mask": masks}), observation)
    for wrong in (0.5, -1.0, math.nan):
        with refused(
            UnsupportedSpaceError,
            "action_mask",
            "0 and 1",
            "corral.adapters.normalize(vec_env)",
        ):
            features({"observation": observation, "action_mask": masks + wrong})


@pytest.mark.parametrize("way", WAYS)
def test_normalize_scales_quantities_alone(way: str) -> None:
    """Two equal VecEnvs, one of them normalised, side by side over ends of episodes."""
    rules = PictureRules(channels_last=False) if way == "batch" else dfaas()
    plain, scaled = columns(way, rules, 2), normalized(columns(way, rules, 2), norm_reward=False)
    floats = "observation_level_now" if way == "batch" else "observation"
    assert scaled.norm_obs_keys == [floats]
    ours, theirs = plain.reset(), scaled.reset()
    rng = np.random.default_rng(0)
    scaled_some = ends = 0
    for _ in range(14):
        for key, values in ours.items():
            same = values.dtype == theirs[key].dtype and np.array_equal(values, theirs[key])
            if key == floats:
                scaled_some += not same
            else:
                assert same, key
        masks = plain.action_masks()
        assert np.array_equal(np.stack(scaled.env_method("action_masks")), masks)
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
        ours, rewards, dones, infos = plain.step(actions)
        theirs, their_rewards, their_dones, their_infos = scaled.step(actions)
        assert np.array_equal(rewards, their_rewards)
        assert np.array_equal(dones, their_dones)
        for column in np.flatnonzero(dones):
            ends += 1
            info, their_info = infos[column], their_infos[column]
            assert info["TimeLimit.truncated"] is their_info["TimeLimit.truncated"] is True
            last, their_last = info["terminal_observation"], their_info["terminal_observation"]
            expected = scaled.normalize_obs(last)
            for key in last:
                assert np.array_equal(their_last[key], expected[key]), key
    assert scaled_some > 10
    assert ends >= 4


@pytest.mark.parametrize("way", WAYS)
def test_values_go_on_after_the_time_limit_under_normalize(way: str) -> None:
    """Reward 1 for ever, gamma 0.9, cut every 4 steps: 10."""
    vec_env = normalized(columns(way, SteadyRules(), 2), norm_reward=False)
    assert value_of_a_steady_reward(vec_env) == pytest.approx(10, abs=1e-3)


@pytest.mark.parametrize("name", LEARNERS)
def test_learns_legally_under_normalize(name: str) -> None:
    model = learner(name, normalized(columns("batch", dfaas(), 4))).learn(400)
    assert model.ep_info_buffer


def test_normalize_keeps_masks_out() -> None:
    vec_env = columns("batch", SteadyRules(), 2)
    for keys in (None, ["observation", "action_mask"]):
        with refused(
            UnsupportedSpaceError, f"norm_obs_keys={keys}", "action_mask", "['observation']"
        ):
            normalized(vec_env, norm_obs_keys=keys)
    assert normalized(vec_env, norm_obs_keys=[], clip_obs=5.0).clip_obs == 5.0
    seen = spaces.Box(0, 1, (2,), np.float32)
    vec_env.observation_space = seen
    with refused(UnsupportedSpaceError, "Box(0.0, 1.0, (2,), float32)", "Dict", "VecNormalize"):
        normalized(vec_env)


# --- Images --------------------------------------------------------------------------------------


def test_small_images_have_a_network_of_their_own() -> None:
    """Stock SB3 fails below 36 x 36."""
    stock = sb3.common.torch_layers.CombinedExtractor
    for side in (8, 9, 16, 35, 36):
        space = spaces.Dict(
            {
                "level": spaces.Box(0, 1, (2,), np.float32),
                "picture": spaces.Box(0, 255, (3, side, 48), np.uint8),
            }
        )
        if side < 36:
            with refused(RuntimeError, "Kernel"):
                stock(space)
        features = FeaturesWithoutMask(space, cnn_output_dim=16, small_cnn_output_dim=24)
        assert isinstance(features.extractors["picture"], SmallCNN) == (side < 36)
        given = {"level": torch.rand(5, 2), "picture": torch.rand(5, 3, side, 48)}
        seen = features(given)
        assert seen.shape == (5, features.features_dim) == (5, 2 + (24 if side < 36 else 16))
        other = features({**given, "picture": given["picture"].flip(-1)})
        assert not torch.equal(seen, other)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LEARNERS)
def test_pictures_in_either_order(name: str, way: str) -> None:
    """Channels last are transposed on the way to PPO: the same weights come out.

    But for rounding: convolutions sum in another order where channels lie last in memory.
    """
    weights, values = [], []
    for channels_last in (False, True):
        vec_env = columns(way, PictureRules(channels_last), 2)
        model = learner(name, vec_env)
        network = model.policy.features_extractor.extractors["observation_picture"]
        assert isinstance(network, SmallCNN)
        start = network.layers[0].weight.detach().clone()
        model.learn(64)
        assert not torch.equal(network.layers[0].weight, start)  # it learns
        weights.append(model.policy.state_dict())
        seen = vec_env.reset()
        shape = (4, 32, 32, 3) if channels_last else (4, 3, 32, 32)
        assert seen["observation_picture"].shape == shape
        # What the VecEnv shows is taken as it is, though the model was trained on the transposed.
        values.append(model.policy.predict_values(model.policy.obs_to_tensor(seen)[0]))
        actions, _ = model.predict(seen, deterministic=True)
        assert vec_env.action_masks()[np.arange(4), actions].all()
    for key in weights[0]:
        torch.testing.assert_close(weights[0][key], weights[1][key], atol=1e-5, rtol=0)
    torch.testing.assert_close(values[0], values[1], atol=1e-4, rtol=0)
    assert values[0].std() > 0  # the agents are shown different pictures


def test_the_games_of_the_other_tests_are_played_too() -> None:
    """A nested observation whose picture is too small to be one stays a vector."""
    model = learner("PPO", columns("batch", GAMES["steady, nested"](), 2)).learn(32)
    extractors = model.policy.features_extractor.extractors
    assert isinstance(extractors["observation_picture"], torch.nn.Flatten)
