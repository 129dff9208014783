"""DQN and A2C over the same columns, and what Stable-Baselines3 brings around its learners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.errors import MaskError, UnsupportedSpaceError
from support.columns import WAYS, columns, dfaas
from support.mask_rules import BEST_OF_FIFTEEN, FIFTEEN, FifteenRules, PictureRules
from support.messages import refused

torch = pytest.importorskip("torch", reason="needs the extra sb3")
sb3 = pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
pytest.importorskip("supersuit", reason="needs the extra supersuit")

from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnMaxEpisodes  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.vec_env import VecMonitor  # noqa: E402

from corral.adapters import MaskedDQN, MaskedPolicy, MaskedQPolicy, SeatEnv  # noqa: E402
from support.thinned import fast_every  # noqa: E402

SMALL: dict[str, Any] = {
    "learning_rate": 3e-3,
    "learning_starts": 64,
    "train_freq": 1,
    "target_update_interval": 64,
    "buffer_size": 4096,
    "policy_kwargs": {"net_arch": [16]},
    "seed": 0,
    "device": "cpu",
}


def dqn(vec_env: Any, **changes: Any) -> MaskedDQN:
    return MaskedDQN(MaskedQPolicy, vec_env, **{**SMALL, **changes})


def played(model: Any, vec_env: Any, steps: int, deterministic: bool = True) -> float:
    """Reward per column and step; the environments raise at the first illegal action."""
    seen, total = vec_env.reset(), 0.0
    for _ in range(steps):
        actions, _ = model.predict(seen, deterministic=deterministic)
        seen, rewards, _, _ = vec_env.step(actions)
        total += float(rewards.sum())
    return total / steps / vec_env.num_envs


# --- DQN -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", fast_every(2, WAYS))
@pytest.mark.parametrize(
    "rules", [dfaas, lambda: PictureRules(channels_last=True)], ids=["vectors", "pictures"]
)
def test_dqn_plays_and_explores_legally(rules: Any, way: str) -> None:
    """From warming up to greedy; ``illegal="raise"``: the environment itself would end the test."""
    vec_env = columns(way, rules(), 2)
    model = dqn(vec_env, exploration_fraction=0.5).learn(600)
    assert model._n_updates > 20
    played(model, vec_env, 40)
    model.exploration_rate = 0.5
    played(model, vec_env, 40, deterministic=False)


def test_stock_dqn_plays_illegal_actions() -> None:
    """What MaskedDQN is for: of Stable-Baselines3's own the environment has no patience."""
    from corral.errors import IllegalActionError

    vec_env = columns("batch", FifteenRules(), 4)
    with pytest.raises(IllegalActionError):
        sb3.DQN("MultiInputPolicy", vec_env, **SMALL).learn(400)


@pytest.mark.slow  # learns
def test_dqn_learns_the_best_legal_action_and_its_value() -> None:
    """P6: action k pays k, and the next mask is any of the 15.

    With discount 1/2 action k is worth k + 34/15; where targets were made of illegal actions too it
    would be worth k + 3.
    """
    vec_env = columns("batch", FifteenRules(), 16)
    model = dqn(
        vec_env, gamma=0.5, exploration_fraction=1.0, exploration_final_eps=0.5, gradient_steps=4
    ).learn(10_000)
    assert played(model, vec_env, 15) == pytest.approx(BEST_OF_FIFTEEN / 15)
    free = {
        "observation": np.ones((1, 1), np.float32),
        "action_mask": np.ones((1, 4), np.int8),
    }
    with torch.no_grad():
        values = model.q_net(model.policy.obs_to_tensor(free)[0])[0].numpy()
    assert values == pytest.approx(np.arange(4) + BEST_OF_FIFTEEN / 15, abs=0.3)


def test_every_legal_action_is_tried() -> None:
    model = dqn(columns("batch", FifteenRules(), 1), exploration_initial_eps=1.0)
    model.exploration_rate = 1.0
    seen = {"observation": np.ones((15, 1), np.float32), "action_mask": FIFTEEN}
    drawn = np.zeros_like(FIFTEEN)
    for _ in range(200):
        actions, _ = model.predict(seen)
        drawn[np.arange(15), actions] = 1
    assert (drawn == FIFTEEN).all()
    model.exploration_rate = 0.5  # columns explore each by itself
    greedy = model.predict(seen, deterministic=True)[0]
    differs = [(model.predict(seen)[0] != greedy).mean() for _ in range(200)]
    assert 0.0 < np.mean(differs) < 0.5
    assert np.std(differs) < 0.2  # all at once: about 0.25


def test_dqn_plays_a_turn_based_game_from_one_seat() -> None:
    seat = SeatEnv("tictactoe_v0", "player_1", "random", illegal="raise")
    model = dqn(seat, gamma=1.0).learn(500)
    seen, _ = seat.reset(seed=1)
    action, _ = model.predict(seen, deterministic=True)
    assert action.shape == ()
    assert seat.action_masks()[int(action)]


def test_dqn_saved_and_loaded_plays_the_same(tmp_path: Path) -> None:
    vec_env = columns("batch", dfaas(), 2)
    model = dqn(vec_env).learn(300)
    seen = vec_env.reset()
    model.save(tmp_path / "model")
    loaded = MaskedDQN.load(tmp_path / "model", env=vec_env, device="cpu")
    actions = model.predict(seen, deterministic=True)[0]
    assert loaded.predict(seen, deterministic=True)[0].tolist() == actions.tolist()
    assert isinstance(loaded.policy, MaskedQPolicy)
    before = {name: value.clone() for name, value in loaded.policy.state_dict().items()}
    loaded.learn(300)
    assert any((before[name] != now).any() for name, now in loaded.policy.state_dict().items())


def test_the_same_seed_learns_the_same() -> None:
    runs = [dqn(columns(way, dfaas(), 2)).learn(300) for way in WAYS]
    one, two = (run.policy.state_dict() for run in runs)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_what_dqn_cannot_mask_is_refused() -> None:
    vec_env = columns("batch", FifteenRules(), 1)
    model = dqn(vec_env)
    nothing = {
        "observation": np.ones((1, 1), np.float32),
        "action_mask": np.zeros((1, 4), np.int8),
    }
    with refused(MaskError, "action_mask"):
        model.predict(nothing, deterministic=True)
    model.exploration_rate = 1.0
    with refused(MaskError, "action_mask"):
        model.predict(nothing)
    with pytest.raises(UnsupportedSpaceError, match="action_mask"):
        MaskedDQN(MaskedQPolicy, "CartPole-v1")
    from stable_baselines3.dqn import MultiInputPolicy

    with refused(TypeError, "MultiInputPolicy", "MaskedQPolicy"):
        MaskedDQN(MultiInputPolicy, vec_env)


# --- A2C -----------------------------------------------------------------------------------------


@pytest.mark.slow  # learns
@pytest.mark.parametrize("way", WAYS)
def test_a2c_learns_the_best_legal_action_of_every_mask(way: str) -> None:
    vec_env = columns(way, FifteenRules(), 8)
    model = sb3.A2C(
        MaskedPolicy,
        vec_env,
        gamma=0.0,
        learning_rate=3e-3,
        policy_kwargs={"net_arch": [16]},
        seed=0,
        device="cpu",
    )
    assert played(model, vec_env, 15) < BEST_OF_FIFTEEN / 15
    model.learn(12_000)
    assert played(model, vec_env, 15) == pytest.approx(BEST_OF_FIFTEEN / 15)


# --- Around the learners -------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_monitors_evaluation_and_callbacks(way: str, tmp_path: Path) -> None:
    """VecMonitor and the infos tell the same episodes; callbacks evaluate, save and stop."""
    vec_env = columns(way, dfaas(), 2)
    with pytest.warns(
        UserWarning, match="VecMonitor|Monitor"
    ):  # the columns tell episodes themselves
        monitored = VecMonitor(columns(way, dfaas(), 2), str(tmp_path / "log"))
    settings: dict[str, Any] = {"n_steps": 12, "batch_size": 24, "n_epochs": 1, "seed": 0}
    plain_model = sb3.PPO(MaskedPolicy, vec_env, device="cpu", **settings).learn(144)
    with pytest.warns(UserWarning, match="VecMonitor|Monitor"):
        judged = VecMonitor(columns(way, dfaas(), 2, seed=5))
    judge = EvalCallback(
        judged,
        n_eval_episodes=12,
        eval_freq=12,
        best_model_save_path=str(tmp_path),
        verbose=0,
    )
    stop = StopTrainingOnMaxEpisodes(max_episodes=6)  # in each column
    model = sb3.PPO(MaskedPolicy, monitored, device="cpu", **settings)
    model.learn(100_000, callback=[judge, stop])
    assert model.num_timesteps < 1000
    told = [episode["r"] for episode in plain_model.ep_info_buffer]
    seen = [episode["r"] for episode in model.ep_info_buffer][: len(told)]
    assert seen == pytest.approx(told, abs=1e-5)  # a monitor rounds
    assert judge.best_mean_reward < 0
    monitored.close()
    best = sb3.PPO.load(tmp_path / "best_model", env=vec_env, device="cpu")
    mean, _ = evaluate_policy(best, columns(way, dfaas(), 2, seed=5), n_eval_episodes=12)
    assert mean == pytest.approx(judge.best_mean_reward, rel=0.5)
    assert (tmp_path / "log.monitor.csv").read_text().count("\n") > 6
