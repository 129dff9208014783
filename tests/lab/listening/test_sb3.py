"""Listening to models of Stable-Baselines3 and sb3-contrib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from sb3_contrib import MaskablePPO, RecurrentPPO
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import corral
from corral.lab.listening.ear import Ear
from support.messages import refused

SMALL: dict[Any, dict[str, Any]] = {
    PPO: {"n_steps": 64, "batch_size": 64, "n_epochs": 2},
    A2C: {"n_steps": 64},
    DQN: {"learning_starts": 128, "train_freq": 16},
    MaskablePPO: {"n_steps": 64, "batch_size": 64, "n_epochs": 2},
    RecurrentPPO: {"n_steps": 64, "batch_size": 64, "n_epochs": 1},
}


def model_of(kind: Any, seed: int = 0) -> Any:
    env: Any = "CartPole-v1"
    if kind is MaskablePPO:
        env = lambda: InvalidActionEnvDiscrete(dim=6, n_invalid_actions=3)  # noqa: E731
    policy_kwargs = {"net_arch": [8]}
    envs = make_vec_env(env, n_envs=4, seed=seed)
    policy = "MlpLstmPolicy" if kind is RecurrentPPO else "MlpPolicy"
    return kind(policy, envs, seed=seed, policy_kwargs=policy_kwargs, **SMALL[kind])


def trained(kind: Any, *, heard: bool, steps: int = 1024) -> tuple[torch.Tensor, Ear | None]:
    model = model_of(kind)
    ear = corral.listen(model) if heard else None
    model.learn(steps)
    if ear is not None:
        ear.stop()
    return torch.cat([item.detach().flatten() for item in model.policy.parameters()]), ear


@pytest.mark.parametrize("kind", list(SMALL))
def test_training_is_the_same_bit_by_bit(kind: Any) -> None:
    (plain, _), (listened, ear) = (trained(kind, heard=heard, steps=512) for heard in (False, True))
    assert torch.equal(plain, listened)
    assert ear is not None
    assert ear.error == ""


@pytest.mark.parametrize("kind", [PPO, A2C, MaskablePPO])
def test_rollouts_and_losses_are_heard(kind: Any) -> None:
    _, ear = trained(kind, heard=True)
    assert ear is not None
    heard = ear.policies["policy"]
    assert heard.updates == 4
    assert heard.missing == ([] if kind is MaskablePPO else ["mask"])
    rollout = heard.rollouts[0]
    assert rollout.rewards.shape == rollout.advantages.shape == (64, 4)
    batch = heard.minibatches[0]
    assert batch.first
    assert batch.gradients is not None
    assert batch.gradients.done
    assert np.abs(batch.new_log_probs - batch.log_probs).max() < 1e-5
    assert len(heard.returns) >= 8


def test_padding_of_sequences_is_left_out() -> None:
    _, ear = trained(RecurrentPPO, heard=True)
    assert ear is not None
    assert ear.error == ""
    batch = ear.policies["policy"].minibatches[0]
    assert len(batch.advantages) == 64
    assert np.abs(batch.new_log_probs - batch.log_probs).max() < 1e-4


def test_env_steps_of_off_policy_models_are_heard() -> None:
    _, ear = trained(DQN, heard=True)
    assert ear is not None
    heard = ear.policies["policy"]
    assert sum(len(rollout.rewards) for rollout in heard.rollouts) * 4 == 1024
    assert {"values", "advantages", "log_probs"} <= set(heard.missing)


class Limited(gym.Wrapper[Any, Any, Any, Any]):
    """Ends every second episode by a time limit."""

    def reset(self, **options: Any) -> Any:
        self.steps = 0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, self.steps >= 8 and not terminated, info


def test_rewards_are_heard_without_the_value_added_at_time_limits() -> None:
    envs = make_vec_env(lambda: Limited(gym.make("CartPole-v1").unwrapped), n_envs=2, seed=0)
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=1, seed=0)
    ear = corral.listen(model)
    model.learn(128)
    ear.stop()
    rollout = ear.policies["policy"].rollouts[0]
    assert np.allclose(rollout.rewards, 1.0)
    assert rollout.truncated.any()
    assert not (rollout.truncated & rollout.terminated).any()
    assert np.abs(rollout.final_values[rollout.truncated]).min() > 0
    assert not rollout.final_values[~rollout.truncated].any()


def test_a_model_that_is_heard_can_be_saved_and_loaded(tmp_path: Path) -> None:
    model = model_of(PPO)
    ear = corral.listen(model)
    model.learn(256)
    model.save(tmp_path / "model.zip")
    loaded = PPO.load(tmp_path / "model.zip")
    assert ear.policies["policy"].updates == 1
    for before, after in zip(model.policy.parameters(), loaded.policy.parameters(), strict=True):
        assert torch.equal(before, after)
    ear.stop()
    assert "evaluate_actions" not in vars(model.policy)


class Pushing(gym.Env[Any, Any]):
    """Continuous actions from 0 to 500; or two actions, with a mask in the observation."""

    def __init__(self, masked: bool) -> None:
        view = gym.spaces.Box(-1, 1, (2,), np.float32)
        if masked:
            self.observation_space = gym.spaces.Dict(
                {"observation": view, "action_mask": gym.spaces.MultiBinary(2)}
            )
            self.action_space = gym.spaces.Discrete(2)
        else:
            self.observation_space = view
            self.action_space = gym.spaces.Box(0, 500, (1,), np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation_space.sample(), 0.0, self.steps == 60, False, {}


@pytest.mark.parametrize(("masked", "cause"), [(True, "mask-lost"), (False, "unscaled-actions")])
def test_known_traps_are_named_before_training(masked: bool, cause: str) -> None:
    policy = "MultiInputPolicy" if masked else "MlpPolicy"
    ear = corral.listen(PPO(policy, Pushing(masked), n_steps=64, seed=0))
    (finding,) = ear.policies["policy"].traps
    assert finding.cause == cause
    assert finding.certainty >= 2
    assert "https://" in finding.todo
    ear.stop()


def test_time_limits_told_as_terminations_are_named() -> None:
    model = PPO("MlpPolicy", Pushing(False), n_steps=64, batch_size=64, n_epochs=1, seed=0)
    ear = corral.listen(model)
    model.learn(640)
    ear.stop()
    assert "ignored-truncation" in {finding.cause for finding in ear.policies["policy"].traps}


@pytest.mark.parametrize("kind", [PPO, DQN, MaskablePPO])
def test_sound_models_have_no_traps(kind: Any) -> None:
    ear = corral.listen(model_of(kind))
    assert ear.policies["policy"].traps == []
    ear.stop()


# --- Buffers and plans ---------------------------------------------------------------------------


def causes_of(model: Any, steps: int, callback: Any = None) -> dict[str, int]:
    """Train, and return the known traps with their certainty."""
    ear = corral.listen(model)
    model.learn(steps, callback=callback)
    ear.stop()
    assert ear.error == ""
    return {finding.cause: finding.certainty for finding in ear.policies["policy"].traps}


class OwnBuffer(DummyVecEnv):
    """Returns its own array of observations, and overwrites it in the next step."""

    def step_wait(self) -> Any:
        returned = super().step_wait()
        return (self.buf_obs[None], *returned[1:])

    def reset(self) -> Any:
        super().reset()
        return self.buf_obs[None]


def test_overwritten_observations_are_named() -> None:
    envs = OwnBuffer([lambda: gym.make("CartPole-v1")] * 2)
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=1, seed=0)
    assert causes_of(model, 256) == {"observation-changed": 3}


class Centered(BaseCallback):
    """Subtracts the mean reward, in place."""

    def _on_step(self) -> bool:
        self.locals["rewards"] -= self.locals["rewards"].mean()
        return True


def test_rewards_that_a_callback_changes_are_named() -> None:
    assert causes_of(model_of(PPO), 512, Centered()) == {"reward-changed": 3}


class Stale(ReplayBuffer):
    """Stores the observation as the next observation, too."""

    def add(self, obs: Any, next_obs: Any, *rest: Any) -> None:
        super().add(obs, obs.copy(), *rest)


def dqn(**settings: Any) -> Any:
    return DQN("MlpPolicy", "CartPole-v1", seed=0, train_freq=16, **settings)


def test_stale_next_observations_are_named() -> None:
    model = dqn(learning_starts=128, target_update_interval=200, replay_buffer_class=Stale)
    assert causes_of(model, 1024) == {"observation-changed": 3}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"learning_starts": 5000}, {"never-learns": 3}),
        ({"learning_starts": 100, "target_update_interval": 9000}, {"target-network-fixed": 2}),
        ({"learning_starts": 100, "target_update_interval": 200}, {}),
    ],
)
def test_plans_of_dqn(settings: dict[str, Any], expected: dict[str, int]) -> None:
    assert causes_of(dqn(**settings), 1024) == expected


@pytest.mark.parametrize(
    ("target_kl", "expected"), [(1e-7, {"updates-cut-short": 2}), (None, {}), (1.0, {})]
)
def test_updates_that_target_kl_ends(target_kl: float | None, expected: dict[str, int]) -> None:
    envs = make_vec_env("CartPole-v1", n_envs=4, seed=0)
    settings: dict[str, Any] = {"n_steps": 64, "batch_size": 32, "n_epochs": 4, "seed": 0}
    model = PPO("MlpPolicy", envs, target_kl=target_kl, learning_rate=1e-2, **settings)
    assert causes_of(model, 1536) == expected


@pytest.mark.parametrize(("log_std", "expected"), [(3.0, {"actions-clipped": 2}), (0.0, {})])
def test_actions_that_are_nearly_all_clipped(log_std: float, expected: dict[str, int]) -> None:
    model = PPO(
        "MlpPolicy",
        make_vec_env("Pendulum-v1", n_envs=2, seed=0),
        n_steps=64,
        batch_size=64,
        n_epochs=1,
        policy_kwargs={"log_std_init": log_std},
        seed=0,
    )
    assert causes_of(model, 256) == expected


def test_normalized_rewards_are_stored_as_returned() -> None:
    envs = VecNormalize(make_vec_env("CartPole-v1", n_envs=4, seed=0))
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=1, seed=0)
    assert causes_of(model, 512) == {}


def test_corrals_own_trainers_over_it_are_refused(tmp_path: Path) -> None:
    with (
        corral.session("two_step_v0", trainer="sb3_ppo", steps=64, out=tmp_path / "run") as session,
        refused(TypeError, "mappo", "SB3PPO", "corral.diagnose"),
    ):
        corral.listen(session)
