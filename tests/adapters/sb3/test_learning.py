"""PPO and MaskablePPO learn over both ways to a VecEnv, Batch and SuperSuit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.columns import GAMES, WAYS, columns, dfaas, value_of_a_steady_reward
from support.contract import plain
from support.steady_rules import SteadyRules

pytest.importorskip("supersuit", reason="needs the extra supersuit")
PPO = pytest.importorskip("stable_baselines3", reason="needs the extra sb3").PPO
MaskablePPO = pytest.importorskip("sb3_contrib", reason="needs the extra sb3").MaskablePPO

SHORT: dict[str, Any] = {
    "n_steps": 16,
    "batch_size": 64,
    "n_epochs": 2,
    "seed": 0,
    "policy_kwargs": {"net_arch": [16]},
    "device": "cpu",
}


@pytest.mark.parametrize("way", WAYS)
def test_values_go_on_after_the_time_limit(way: str) -> None:
    """Reward 1 for ever, gamma 0.9, cut every 4 steps; stock SuperSuit gives 2.304."""
    assert value_of_a_steady_reward(columns(way, SteadyRules(), 2)) == pytest.approx(10, abs=1e-3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["dfaas", "steady, nested"])
def test_maskable_ppo_plays_no_illegal_action(way: str, name: str) -> None:
    """``illegal="raise"``: the environment itself would end the test."""
    vec_env = columns(way, GAMES[name](), 4)
    model = MaskablePPO("MultiInputPolicy", vec_env, **SHORT).learn(400)
    assert model.ep_info_buffer
    for deterministic in (True, False):
        seen = vec_env.reset()
        for _ in range(30):
            masks = vec_env.action_masks()
            actions, _ = model.predict(seen, action_masks=masks, deterministic=deterministic)
            assert masks[np.arange(len(actions)), actions].all()
            seen, *_ = vec_env.step(actions)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_seed_learns_the_same_on_both_ways(way: str) -> None:
    """Weights after some updates, bit for bit: of two runs, and of the two ways."""
    runs = [columns(way, dfaas(), 2), columns("batch", dfaas(), 2, seed=99)]
    weights = []
    for vec_env in runs:
        model = MaskablePPO("MultiInputPolicy", vec_env, **SHORT).learn(200)  # seeds with 0
        weights.append({k: v.numpy().copy() for k, v in model.policy.state_dict().items()})
    assert plain(weights[0]) == plain(weights[1])


# Plain PPO does not mask: it plays illegal actions, of which the environment rightly warns.
@pytest.mark.filterwarnings("ignore::corral.errors.IllegalActionWarning")
@pytest.mark.parametrize("way", WAYS)
def test_plain_ppo_runs(way: str) -> None:
    vec_env = columns(way, dfaas(illegal="penalise"), 4)
    model = PPO("MultiInputPolicy", vec_env, **SHORT).learn(400)
    actions, _ = model.predict(vec_env.reset())
    assert actions.shape == (12,)


@pytest.mark.parametrize("way", WAYS)
def test_evaluation_takes_the_episodes_of_the_infos(way: str) -> None:
    """No warning of a missing Monitor: the infos hold what it would add."""
    from sb3_contrib.common.maskable.evaluation import evaluate_policy

    vec_env = columns(way, SteadyRules(), 2)
    model = MaskablePPO("MultiInputPolicy", vec_env, **SHORT)
    returns, lengths = evaluate_policy(model, vec_env, 8, return_episode_rewards=True)
    assert (returns, lengths) == ([4.0] * 8, [4] * 8)


def test_the_mask_stays_out_of_the_features() -> None:
    """What the network makes of an observation does not change with the mask; stock SB3's does."""
    from corral.adapters import FeaturesWithoutMask

    vec_env = columns("batch", dfaas(), 2)
    values = {}
    for name, extra in (("stock", {}), ("ours", {"features_extractor_class": FeaturesWithoutMask})):
        policy = {**SHORT["policy_kwargs"], **extra}
        model = MaskablePPO("MultiInputPolicy", vec_env, **{**SHORT, "policy_kwargs": policy})
        seen = vec_env.reset()
        free = {**seen, "action_mask": np.ones_like(seen["action_mask"])}
        assert not np.array_equal(free["action_mask"], seen["action_mask"])
        tensors = [model.policy.obs_to_tensor(each)[0] for each in (seen, free)]
        values[name] = [model.policy.predict_values(each).tolist() for each in tensors]
    assert values["ours"][0] == values["ours"][1]
    assert values["stock"][0] != values["stock"][1]
