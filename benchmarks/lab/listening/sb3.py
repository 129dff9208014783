"""Planted faults and sound runs with Stable-Baselines3 and sb3-contrib, as users write them.

``RUNS`` has all of them. A script makes a model; the decorator says how long it learns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from planted import Listen, Planted, by_name
from sb3_contrib import MaskablePPO, RecurrentPPO
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from sb3_contrib.common.maskable.distributions import MaskableCategoricalDistribution
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecEnvWrapper,
    VecMonitor,
    VecNormalize,
)
from tasks import CartPole, Catch, Errands, Make, Reach, Recall, Scores, Stock, of, random_play
from torch import Tensor, nn
from torch.nn import functional

torch.set_num_threads(1)

PLANTED: list[Planted] = []
Script = Callable[[Scores, int], Any]
"""Makes the model whose environments write to these scores, with this seed."""
Teach = Callable[[Any, int], None]


def learn(model: Any, steps: int) -> None:
    model.learn(steps)


def training(script: Script, steps: int, teach: Teach) -> Callable[[Listen, int], float]:
    def train(listen: Listen, seed: int) -> float:
        scores = Scores()
        model = script(scores, seed)
        listen(model)
        teach(model, steps)
        return scores.mean()

    return train


def fault(
    name: str,
    base: str,
    cause: str,
    place: str,
    cited: str | None = None,
    *,
    steps: int,
    teach: Teach = learn,
) -> Callable[[Script], Script]:
    """Plant the decorated script."""

    def plant(script: Script) -> Script:
        train = training(script, steps, teach)
        PLANTED.append(Planted(name, "sb3", cause, place, cited, False, train, base))
        return script

    return plant


def sound(
    name: str, note: str, random: Callable[[int], float], *, steps: int, teach: Teach = learn
) -> Callable[[Script], Script]:
    """Plant the decorated script as a sound run; ``random`` plays its game at random."""

    def plant(script: Script) -> Script:
        train = training(script, steps, teach)
        PLANTED.append(Planted(name, "sb3", note, "", None, True, train, random=random))
        return script

    return plant


def vec(make: Make, scores: Scores, copies: int = 8) -> VecEnv:
    """So many copies of an environment."""
    return VecMonitor(DummyVecEnv([lambda: make(scores)] * copies))


SHORT, MEDIUM, LONG = 20_480, 24_576, 30_720


def linear(rate: float) -> Callable[[float], float]:
    return lambda remaining: rate * remaining


def ppo(env: Any, seed: int, policy: Any = "MlpPolicy", **options: Any) -> PPO:
    settings: dict[str, Any] = {
        "learning_rate": linear(2.5e-3),
        "n_steps": 128,
        "batch_size": 256,
        "n_epochs": 6,
        "ent_coef": 0.01,
        "seed": seed,
        "device": "cpu",
    }
    return PPO(policy, env, **(settings | options))


def maskable(env: Any, seed: int, policy: Any = "MlpPolicy", **options: Any) -> MaskablePPO:
    settings: dict[str, Any] = {
        "learning_rate": linear(2.5e-3),
        "n_steps": 128,
        "batch_size": 256,
        "n_epochs": 6,
        "ent_coef": 0.01,
        "seed": seed,
        "device": "cpu",
    }
    return MaskablePPO(policy, env, **(settings | options))


def dqn(env: Any, seed: int, policy: Any = "MlpPolicy", **options: Any) -> DQN:
    settings: dict[str, Any] = {
        "learning_rate": 1e-3,
        "buffer_size": 10_000,
        "learning_starts": 500,
        "batch_size": 64,
        "train_freq": 4,
        "target_update_interval": 250,
        "exploration_fraction": 0.4,
        "exploration_final_eps": 0.03,
        "seed": seed,
        "device": "cpu",
    }
    return DQN(policy, env, **(settings | options))


# --- Sound runs ----------------------------------------------------------------------------------


@sound("sb3_cartpole", "PPO on the cart-pole.", random_play(of(CartPole)), steps=LONG)
def cartpole(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(CartPole), scores), seed)


@sound("sb3_errands", "MaskablePPO.", random_play(of(Errands)), steps=MEDIUM)
def errands(scores: Scores, seed: int) -> MaskablePPO:
    return maskable(vec(of(Errands), scores), seed)


@sound("sb3_reach", "PPO with continuous actions.", random_play(of(Reach)), steps=LONG)
def reach(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Reach), scores), seed, ent_coef=0.0)


@sound("sb3_dqn", "DQN on images as vectors, sparse rewards.", random_play(of(Catch)), steps=12_000)
def catch_dqn(scores: Scores, seed: int) -> DQN:
    return dqn(vec(of(Catch), scores, 1), seed)


A2C_SETTINGS: dict[str, Any] = {
    "n_steps": 10,
    "learning_rate": 2e-3,
    "normalize_advantage": True,
    "ent_coef": 0.01,
    "device": "cpu",
}


@sound(
    "sb3_a2c",
    "A2C with its own RMSprop and normalized advantages.",
    random_play(of(Catch)),
    steps=30_000,
)
def catch_a2c(scores: Scores, seed: int) -> A2C:
    return A2C("MlpPolicy", vec(of(Catch), scores), seed=seed, **A2C_SETTINGS)


class SmallCNN(BaseFeaturesExtractor):
    """Two convolutions for images of 10 x 7."""

    def __init__(self, observation_space: spaces.Box, features_dim: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.linear = nn.Sequential(nn.Linear(8 * 5 * 4, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        return self.linear(self.convolutions(observations))


def cnn(scores: Scores, seed: int, extractor: Any = SmallCNN, **options: Any) -> PPO:
    kwargs = {"features_extractor_class": extractor, "net_arch": [32]}
    env = vec(of(Catch), scores)
    return ppo(env, seed, "CnnPolicy", policy_kwargs=kwargs, n_epochs=4, **options)


@sound("sb3_cnn", "PPO with a custom CNN on small images.", random_play(of(Catch)), steps=SHORT)
def catch_cnn(scores: Scores, seed: int) -> PPO:
    return cnn(scores, seed)


class Thousands(gym.RewardWrapper[Any, Any]):
    """Rewards in another unit."""

    def reward(self, reward: Any) -> float:
        return 5000 * float(reward)


@sound(
    "sb3_huge_normalized",
    "Rewards of thousands, scaled by VecNormalize.",
    random_play(of(Stock, Thousands)),
    steps=MEDIUM,
)
def huge_normalized(scores: Scores, seed: int) -> PPO:
    env = VecNormalize(vec(of(Stock, Thousands), scores), norm_obs=True, norm_reward=True)
    return ppo(env, seed)


@sound("sb3_stock", "PPO on a game without an end.", random_play(of(Stock)), steps=MEDIUM)
def stock(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Stock), scores), seed)


class Counts(gym.ObservationWrapper[Any, Any, Any]):
    """Observations as a converter delivers them: counts around 500."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def observation(self, observation: Any) -> Any:
        scale = np.array([100, 50, 1000, 50], np.float32)
        return (observation * scale + 500).astype(np.float32)


@sound(
    "sb3_counts",
    "Observations around 500, standardized by VecNormalize.",
    random_play(of(CartPole, Counts)),
    steps=LONG,
)
def counts(scores: Scores, seed: int) -> PPO:
    return ppo(VecNormalize(vec(of(CartPole, Counts), scores), norm_reward=False), seed)


@sound(
    "sb3_recurrent",
    "RecurrentPPO on a task that needs a memory.",
    random_play(of(Recall)),
    steps=16_384,
)
def recurrent(scores: Scores, seed: int) -> RecurrentPPO:
    return RecurrentPPO(
        "MlpLstmPolicy",
        vec(of(Recall), scores),
        n_steps=128,
        batch_size=256,
        n_epochs=6,
        learning_rate=3e-3,
        gamma=0.95,
        ent_coef=0.01,
        seed=seed,
        device="cpu",
        policy_kwargs={"lstm_hidden_size": 32, "net_arch": []},
    )


class Servers(VecEnvWrapper):
    """corral's edge servers as columns; writes down the returns of the columns."""

    def __init__(self, venv: VecEnv, scores: Scores) -> None:
        super().__init__(venv)
        self.scores, self.earned = scores, np.zeros(self.num_envs)

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        self.earned += rewards
        self.scores.returns.extend(self.earned[dones].tolist())
        self.earned[dones] = 0
        return obs, rewards, dones, infos


def servers(scores: Scores, seed: int) -> Servers:
    from corral.adapters import make_vec_env

    settings: Any = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48, "illegal": "raise"}
    return Servers(make_vec_env("dfaas_v0", num_envs=8, seed=seed, **settings), scores)


def random_servers(seed: int) -> float:
    scores = Scores()
    env: Any = servers(scores, seed)
    rng = np.random.default_rng(seed)
    obs = env.reset()
    while len(scores.returns) < 96:
        masks = obs["action_mask"]
        obs = env.step(np.array([rng.choice(np.flatnonzero(row)) for row in masks]))[0]
    return float(np.mean(scores.returns))


@sound(
    "sb3_servers",
    "MaskablePPO on corral's dfaas_v0 with its vector environment.",
    random_servers,
    steps=27_648,
)
def servers_maskable(scores: Scores, seed: int) -> MaskablePPO:
    from corral.adapters import MaskablePolicy

    env = servers(scores, seed)
    return maskable(
        env, seed, MaskablePolicy, n_steps=48, batch_size=288, gamma=0.5, ent_coef=0.003
    )


@sound(
    "sb3_pretrained",
    "A CNN that was trained before, frozen on purpose.",
    random_play(of(Catch)),
    steps=SHORT,
)
def pretrained(scores: Scores, seed: int) -> PPO:
    taught = cnn(Scores(), seed + 100)
    taught.learn(SHORT)
    model = cnn(scores, seed)
    known: Any = taught.policy.features_extractor
    encoder: Any = model.policy.features_extractor
    encoder.load_state_dict(known.state_dict())
    encoder.requires_grad_(False)
    return model


@sound(
    "sb3_entropy",
    "A high entropy coefficient: play stays noisy on purpose.",
    random_play(of(Reach)),
    steps=MEDIUM,
)
def entropy(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Reach), scores), seed, ent_coef=0.02)


@sound(
    "sb3_short",
    "One rollout: too short to learn, but no fault.",
    random_play(of(CartPole)),
    steps=1024,
)
def short(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(CartPole), scores), seed)


@sound("sb3_tiny", "A network of 4 units.", random_play(of(CartPole)), steps=LONG)
def tiny(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(CartPole), scores), seed, policy_kwargs={"net_arch": [4]})


@sound(
    "sb3_one_env",
    "One environment, long rollouts, many epochs.",
    random_play(of(Catch)),
    steps=12_288,
)
def one_env(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Catch), scores, 1), seed, n_steps=1024, n_epochs=15, batch_size=128)


@sound("sb3_a2c_default", "A2C as it is by default.", random_play(of(CartPole)), steps=30_000)
def a2c_default(scores: Scores, seed: int) -> A2C:
    return A2C("MlpPolicy", vec(of(CartPole), scores), seed=seed, device="cpu")


# --- Environment, wrappers, spaces ---------------------------------------------------------------


class WideActions(gym.ActionWrapper[Any, Any, Any]):
    """Forces in millinewtons."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = spaces.Box(-1000.0, 1000.0, (2,), np.float32)

    def action(self, action: Any) -> Any:
        return action / 1000


@fault(
    "sb3_wide_actions",
    "sb3_reach",
    "The action space is -1000 .. 1000 and not normalized. A Gaussian policy begins with a "
    "deviation of 1, so all actions stay near 0.",
    "WideActions.action_space",
    "https://github.com/hill-a/stable-baselines/issues/637",
    steps=LONG,
)
def wide_actions(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Reach, WideActions), scores), seed, ent_coef=0.0)


class PointSpace(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = spaces.Box(-1.0, -1.0, (2,), np.float32)


@fault(
    "sb3_point_space",
    "sb3_reach",
    "The action space has the same bound as low and high, so every action is clipped to -1.",
    "PointSpace.action_space: high",
    "https://github.com/hill-a/stable-baselines/issues/553",
    steps=MEDIUM,
)
def point_space(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Reach, PointSpace), scores), seed, ent_coef=0.0)


class CastFirst(gym.ObservationWrapper[Any, Any, Any]):
    def observation(self, observation: Any) -> Any:
        return (observation / 255).astype(np.uint8) * 255


@fault(
    "sb3_cast_first",
    "sb3_cnn",
    "A gray image in 0 .. 1 is cast to uint8 before it is multiplied by 255: gray becomes black, "
    "and the paddle is invisible.",
    "CastFirst.observation: obs",
    "https://github.com/DLR-RM/stable-baselines3/issues/1162",
    steps=SHORT,
)
def cast_first(scores: Scores, seed: int) -> PPO:
    kwargs = {"features_extractor_class": SmallCNN, "net_arch": [32]}
    env = vec(of(Catch, CastFirst), scores)
    return ppo(env, seed, "CnnPolicy", policy_kwargs=kwargs, n_epochs=4)


class FloatImage(gym.ObservationWrapper[Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, env.observation_space.shape, np.float32)

    def observation(self, observation: Any) -> Any:
        return observation.astype(np.float32)


@fault(
    "sb3_float_image",
    "sb3_dqn",
    "The image space is float32, so Stable-Baselines3 does not divide by 255: inputs reach 255.",
    "FloatImage.observation_space: dtype",
    "https://github.com/DLR-RM/stable-baselines3/issues/268",
    steps=12_000,
)
def float_image(scores: Scores, seed: int) -> DQN:
    return dqn(vec(of(Catch, FloatImage), scores, 1), seed)


class OneBuffer(VecEnvWrapper):
    """Returns its own buffer of observations."""

    def reset(self) -> Any:
        self.buffer = self.venv.reset()
        return self.buffer

    def step_wait(self) -> Any:
        obs, *rest = self.venv.step_wait()
        self.buffer[:] = obs
        return self.buffer, *rest


@fault(
    "sb3_one_buffer",
    "sb3_cartpole",
    "The VecEnv returns its own buffer and overwrites it in the next step: the rollout buffer "
    "stores the next observation beside each action.",
    "OneBuffer.step_wait: obs",
    "https://github.com/Farama-Foundation/SuperSuit/pull/116",
    steps=LONG,
)
def one_buffer(scores: Scores, seed: int) -> PPO:
    return ppo(OneBuffer(vec(of(CartPole), scores)), seed)


class SharedSimulator(gym.Env[Any, Any]):
    """A copy that plays in the simulator of all others."""

    def __init__(self, simulator: Any) -> None:
        self.simulator = simulator
        self.observation_space = simulator.observation_space
        self.action_space = simulator.action_space

    def reset(self, **options: Any) -> Any:
        return self.simulator.reset(**options)

    def step(self, action: Any) -> Any:
        return self.simulator.step(action)


@fault(
    "sb3_shared_simulator",
    "sb3_cartpole",
    "All eight copies wrap the same simulator: each step of one moves all others.",
    "SharedSimulator: DummyVecEnv",
    "https://github.com/DLR-RM/stable-baselines3/issues/23",
    steps=MEDIUM,
)
def shared_simulator(scores: Scores, seed: int) -> PPO:
    simulator = of(CartPole)(scores)
    return ppo(VecMonitor(DummyVecEnv([lambda: SharedSimulator(simulator)] * 8)), seed)


class SelfReset(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            obs, info = self.env.reset()
        return obs, reward, False, False, info


@fault(
    "sb3_self_reset",
    "sb3_cartpole",
    "The wrapper resets at an end and does not report it: for the algorithm the episode never "
    "ends, and a fall costs nothing.",
    "SelfReset.step: terminated, truncated",
    steps=LONG,
)
def self_reset(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(CartPole, SelfReset), scores), seed, gamma=0.95)


class ClipPositive(gym.ObservationWrapper[Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)

    def observation(self, observation: Any) -> Any:
        return np.clip(observation, 0, 1)


@fault(
    "sb3_clip_positive",
    "sb3_cartpole",
    "Observations are clipped to 0 .. 1, the bounds of a space that was copied from elsewhere: "
    "negative angles and velocities all look like 0.",
    "ClipPositive.observation: obs",
    steps=LONG,
)
def clip_positive(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(CartPole, ClipPositive), scores), seed)


@fault(
    "sb3_short_limit",
    "sb3_errands",
    "A TimeLimit of 6 steps is far below what the task needs: the door is nearly never reached.",
    "TimeLimit: max_episode_steps",
    steps=MEDIUM,
)
def short_limit(scores: Scores, seed: int) -> MaskablePPO:
    def limited(env: Any) -> Any:
        return gym.wrappers.TimeLimit(env, 6)

    return maskable(vec(of(Errands, limited), scores), seed)


class CellNumber(gym.ObservationWrapper[Any, Any, Any]):
    """Cells by their numbers."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 25, (3,), np.float32)

    def observation(self, observation: Any) -> Any:
        cells = observation[:25].argmax(), observation[25:50].argmax(), observation[-4]
        return np.array(cells, np.float32)


@fault(
    "sb3_cell_number",
    "sb3_errands",
    "Cells are given as raw numbers 0 .. 24 instead of one-hot: neighbors in a column differ by 5, "
    "and inputs of 24 saturate tanh.",
    "CellNumber.observation: obs",
    steps=MEDIUM,
)
def cell_number(scores: Scores, seed: int) -> MaskablePPO:
    return maskable(vec(of(Errands, CellNumber), scores), seed)


class WholeReward(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> int:
        return int(reward)


@fault(
    "sb3_whole_reward",
    "sb3_reach",
    "The reward is cast to int: every distance below 1 earns 0.",
    "WholeReward.reward: rewards",
    steps=LONG,
)
def whole_reward(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Reach, WholeReward), scores), seed, ent_coef=0.0)


class LimitIsEnd(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or truncated, False, info


@fault(
    "sb3_limit_is_end",
    "sb3_stock",
    "The environment returns terminated at its time limit, so the value beyond is 0. Time is not "
    "observed.",
    "LimitIsEnd.step: terminated",
    "https://github.com/Farama-Foundation/PettingZoo/issues/1126",
    steps=MEDIUM,
)
def limit_is_end(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Stock, LimitIsEnd), scores), seed)


class SuccessEndsBadly(gym.Wrapper[Any, Any, Any, Any]):
    """Pays progress in each step; an episode that ends early earns no more of it."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = self.env.step(action)
        return obs, float(reward) + 0.25, *rest


@fault(
    "sb3_living_bonus",
    "sb3_errands",
    "A bonus for each step, meant to encourage survival, pays more than to finish: the best policy "
    "never opens the door.",
    "SuccessEndsBadly.step: rewards",
    steps=MEDIUM,
)
def living_bonus(scores: Scores, seed: int) -> MaskablePPO:
    return maskable(vec(of(Errands, SuccessEndsBadly), scores), seed)


# --- Data: masks, VecNormalize, buffers, callbacks -----------------------------------------------


@fault(
    "sb3_norm_not_training",
    "sb3_counts",
    "VecNormalize is made with training=False, copied from an evaluation script: its statistics "
    "stay 0 and 1, and inputs of 500 are clipped to 10.",
    "VecNormalize: training",
    steps=LONG,
)
def norm_not_training(scores: Scores, seed: int) -> PPO:
    env = vec(of(CartPole, Counts), scores)
    return ppo(VecNormalize(env, norm_reward=False, training=False), seed)


@fault(
    "sb3_clip_reward",
    "sb3_huge_normalized",
    "VecNormalize clips normalized rewards to 0.01, so a good day earns as much as a middling one.",
    "VecNormalize: clip_reward",
    steps=MEDIUM,
)
def clip_reward(scores: Scores, seed: int) -> PPO:
    env = vec(of(Stock, Thousands), scores)
    return ppo(VecNormalize(env, norm_reward=True, clip_reward=0.01), seed)


@fault(
    "sb3_not_normalized",
    "sb3_huge_normalized",
    "Rewards of thousands are not normalized, and the entropy coefficient of 0.15 suits another "
    "scale: the value loss of 1e9 fills the clipped gradient.",
    "VecNormalize left out; ent_coef",
    "https://github.com/DLR-RM/stable-baselines3/issues/2240",
    steps=MEDIUM,
)
def not_normalized(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Stock, Thousands), scores), seed, ent_coef=0.15)


class ZeroedLogits(MaskableCategoricalDistribution):
    def proba_distribution(self, action_logits: Tensor) -> Any:
        self.raw = action_logits
        return super().proba_distribution(action_logits)

    def apply_masking(self, masks: Any) -> None:
        if masks is not None:
            legal = torch.as_tensor(np.asarray(masks)).reshape(self.raw.shape).bool()
            super().proba_distribution(self.raw * legal)


class ZeroedPolicy(MaskableActorCriticPolicy):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.action_dist = ZeroedLogits(int(self.action_space.n))  # type: ignore[attr-defined]


@fault(
    "sb3_zeroed_logits",
    "sb3_errands",
    "The mask sets the logits of illegal actions to 0 instead of minus infinity, so they are still "
    "drawn.",
    "ZeroedLogits.apply_masking: mask",
    "https://github.com/Stable-Baselines-Team/stable-baselines3-contrib/issues/250",
    steps=MEDIUM,
)
def zeroed_logits(scores: Scores, seed: int) -> MaskablePPO:
    return maskable(vec(of(Errands), scores), seed, ZeroedPolicy)


@fault(
    "sb3_mask_of_last",
    "sb3_errands",
    "The mask function is a closure over the variable of the loop that makes the copies: all "
    "copies get the mask of the last one.",
    "mask_of_last: ActionMasker, late binding",
    steps=MEDIUM,
)
def mask_of_last(scores: Scores, seed: int) -> MaskablePPO:
    copies = []
    for _ in range(8):
        game = of(Errands)(scores)
        copies.append(ActionMasker(game, lambda _: game.unwrapped.action_masks()))  # noqa: B023
    # The second lambda binds its copy, the first one does not.
    return maskable(VecMonitor(DummyVecEnv([lambda env=env: env for env in copies])), seed)


class MaskAtReset(gym.Wrapper[Any, Any, Any, Any]):
    def reset(self, **options: Any) -> Any:
        result = self.env.reset(**options)
        self.mask = self.env.get_wrapper_attr("action_masks")()
        return result

    def action_masks(self) -> np.ndarray:
        return self.mask


@fault(
    "sb3_mask_at_reset",
    "sb3_errands",
    "The mask is computed at the reset and not updated in the steps.",
    "MaskAtReset.action_masks: mask",
    steps=MEDIUM,
)
def mask_at_reset(scores: Scores, seed: int) -> MaskablePPO:
    return maskable(vec(of(Errands, MaskAtReset), scores), seed)


class Inverted(gym.Wrapper[Any, Any, Any, Any]):
    def action_masks(self) -> np.ndarray:
        return ~self.env.get_wrapper_attr("action_masks")()


@fault(
    "sb3_mask_inverted",
    "sb3_errands",
    "The mask marks the illegal actions with True, MaskablePPO reads True as legal.",
    "Inverted.action_masks: mask",
    steps=MEDIUM,
)
def mask_inverted(scores: Scores, seed: int) -> MaskablePPO:
    return maskable(vec(of(Errands, Inverted), scores), seed)


class AdvantageReturns(RolloutBuffer):
    def compute_returns_and_advantage(self, last_values: Tensor, dones: np.ndarray) -> None:
        super().compute_returns_and_advantage(last_values, dones)
        self.returns = self.advantages.copy()


@fault(
    "sb3_returns_are_advantages",
    "sb3_cartpole",
    "A custom buffer sets the returns to the advantages and forgets to add the values: the critic "
    "learns about 0.",
    "AdvantageReturns.compute_returns_and_advantage: returns",
    steps=LONG,
)
def returns_are_advantages(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(CartPole), scores), seed, rollout_buffer_class=AdvantageReturns)


class ShiftedRewards(MaskableRolloutBuffer):
    def compute_returns_and_advantage(self, last_values: Tensor, dones: np.ndarray) -> None:
        self.rewards = np.roll(self.rewards, 1, axis=1)
        super().compute_returns_and_advantage(last_values, dones)


@fault(
    "sb3_rewards_of_neighbor",
    "sb3_errands",
    "A custom buffer fills the rewards in the wrong order of copies: each copy gets the rewards of "
    "its neighbor.",
    "ShiftedRewards.compute_returns_and_advantage: rewards",
    steps=MEDIUM,
)
def rewards_of_neighbor(scores: Scores, seed: int) -> MaskablePPO:
    return maskable(vec(of(Errands), scores), seed, rollout_buffer_class=ShiftedRewards)


class Center(BaseCallback):
    """Subtracts the mean of the rewards of a step from them."""

    def _on_step(self) -> bool:
        self.locals["rewards"] -= self.locals["rewards"].mean()
        return True


def learn_centered(model: Any, steps: int) -> None:
    model.learn(steps, callback=Center())


@fault(
    "sb3_callback_centers",
    "sb3_cartpole",
    "A callback subtracts the mean over copies from the rewards in place, to log them: each reward "
    "of the cart-pole becomes 0.",
    "Center._on_step: rewards",
    steps=LONG,
    teach=learn_centered,
)
def callback_centers(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(CartPole), scores), seed)


class StaleNext(ReplayBuffer):
    def add(self, obs: Any, next_obs: Any, *rest: Any) -> None:
        super().add(obs, obs, *rest)


@fault(
    "sb3_dqn_stale_next",
    "sb3_dqn",
    "A custom replay buffer stores the observation as the next observation too.",
    "StaleNext.add: next_obs",
    steps=12_000,
)
def dqn_stale_next(scores: Scores, seed: int) -> DQN:
    return dqn(vec(of(Catch), scores, 1), seed, replay_buffer_class=StaleNext)


# --- Networks, optimizers, schedules, settings ---------------------------------------------------


def learn_in_parts(model: Any, steps: int) -> None:
    for _ in range(steps // 1024):
        model.learn(1024, reset_num_timesteps=False)


@fault(
    "sb3_rate_in_parts",
    "sb3_cartpole",
    "learn() is called for 1,024 steps at a time without a reset of the counter. The linear "
    "schedule is relative to the steps so far plus 1,024, so the rate falls to 1/2, 1/3, ...",
    "learn_in_parts: learning_rate, total_timesteps",
    "https://github.com/araffin/sbx/issues/79",
    steps=LONG,
    teach=learn_in_parts,
)
def rate_in_parts(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(CartPole), scores), seed, learning_rate=linear(5e-4))


@fault(
    "sb3_value_clip",
    "sb3_cartpole",
    "clip_range_vf is 0.02 while returns reach 100: the critic may move by 0.02 per rollout, and "
    "never gets near them.",
    "PPO: clip_range_vf",
    steps=LONG,
)
def value_clip(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(CartPole), scores), seed, clip_range_vf=0.02)


@fault(
    "sb3_target_kl",
    "sb3_cartpole",
    "target_kl is 1e-5: each update stops after its first minibatches.",
    "PPO: target_kl",
    steps=LONG,
)
def target_kl(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(CartPole), scores), seed, target_kl=1e-5)


@fault(
    "sb3_gamma",
    "sb3_cnn",
    "gamma is 0.01 (1 - 0.99): a reward nine steps away is worth nothing.",
    "PPO: gamma",
    steps=SHORT,
)
def gamma(scores: Scores, seed: int) -> PPO:
    return cnn(scores, seed, gamma=0.01)


@fault(
    "sb3_entropy_weight",
    "sb3_cnn",
    "An entropy coefficient of 2 outweighs rewards of 1: the policy stays uniform.",
    "PPO: ent_coef",
    steps=SHORT,
)
def entropy_weight(scores: Scores, seed: int) -> PPO:
    return cnn(scores, seed, ent_coef=2.0)


class Dropout(SmallCNN):
    def __init__(self, observation_space: spaces.Box, features_dim: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        self.linear.append(nn.Dropout(0.7))


@fault(
    "sb3_dropout",
    "sb3_cnn",
    "The feature extractor has dropout, off in rollouts and on in updates: the ratio compares two "
    "different networks.",
    "Dropout.linear: nn.Dropout",
    "https://github.com/DLR-RM/stable-baselines3/issues/1666",
    steps=SHORT,
)
def dropout(scores: Scores, seed: int) -> PPO:
    return cnn(scores, seed, Dropout)


class ListOfLayers(BaseFeaturesExtractor):
    def __init__(self, observation_space: spaces.Box, features_dim: int = 3) -> None:
        super().__init__(observation_space, features_dim)
        size = int(np.prod(observation_space.shape))
        self.layers = [nn.Linear(size, 32), nn.ReLU(), nn.Linear(32, features_dim), nn.ReLU()]

    def forward(self, observations: Tensor) -> Tensor:
        out = observations.flatten(1)
        for part in self.layers:
            out = part(out)
        return out


@fault(
    "sb3_list_of_layers",
    "sb3_cnn",
    "The layers of the feature extractor are in a Python list, not a ModuleList: they are no "
    "parameters of the policy and stay random.",
    "ListOfLayers.layers",
    "https://github.com/DLR-RM/stable-baselines3/issues/1860",
    steps=SHORT,
)
def list_of_layers(scores: Scores, seed: int) -> PPO:
    return cnn(scores, seed, ListOfLayers)


class Detached(SmallCNN):
    def __init__(self, observation_space: spaces.Box, features_dim: int = 8) -> None:
        super().__init__(observation_space, features_dim)

    def forward(self, observations: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(observations)


@fault(
    "sb3_detached_cnn",
    "sb3_cnn",
    "The extractor's forward runs under no_grad, copied from a prediction script: the CNN gets no "
    "gradient and stays random.",
    "Detached.forward: torch.no_grad",
    steps=SHORT,
)
def detached_cnn(scores: Scores, seed: int) -> PPO:
    return cnn(scores, seed, Detached)


@fault(
    "sb3_head_replaced",
    "sb3_cartpole",
    "The action head is replaced after the model was made, so the optimizer still has the old "
    "head; the new one stays random.",
    "head_replaced: policy.action_net, optimizer",
    steps=LONG,
)
def head_replaced(scores: Scores, seed: int) -> PPO:
    model = ppo(vec(of(CartPole), scores), seed, policy_kwargs={"net_arch": {"pi": [], "vf": [64]}})
    model.policy.action_net = nn.Linear(4, 2)
    return model


@fault(
    "sb3_zero_weights",
    "sb3_cartpole",
    "A custom initialization sets all weights to 0: hidden units get no gradient, and only the "
    "biases of the last layers learn.",
    "zero_weights: nn.init",
    steps=LONG,
)
def zero_weights(scores: Scores, seed: int) -> PPO:
    model = ppo(vec(of(CartPole), scores), seed)
    for module in model.policy.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)
    return model


@fault(
    "sb3_weight_decay",
    "sb3_errands",
    "Adam has a weight decay of 1: the weights shrink to 0 faster than they learn.",
    "MaskablePPO: policy_kwargs optimizer_kwargs weight_decay",
    steps=MEDIUM,
)
def weight_decay(scores: Scores, seed: int) -> MaskablePPO:
    kwargs = {"optimizer_kwargs": {"weight_decay": 1.0, "eps": 1e-5}}
    return maskable(vec(of(Errands), scores), seed, policy_kwargs=kwargs)


@fault(
    "sb3_wide_noise",
    "sb3_reach",
    "log_std_init is 3: actions have a deviation of 20 and are nearly always clipped to a bound.",
    "PPO: policy_kwargs log_std_init",
    steps=LONG,
)
def wide_noise(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Reach), scores), seed, ent_coef=0.0, policy_kwargs={"log_std_init": 3.0})


@fault(
    "sb3_rate_too_high",
    "sb3_errands",
    "A learning rate of 0.3 destroys the policy in the first updates.",
    "MaskablePPO: learning_rate",
    steps=MEDIUM,
)
def rate_too_high(scores: Scores, seed: int) -> MaskablePPO:
    return maskable(vec(of(Errands), scores), seed, learning_rate=0.3)


@fault(
    "sb3_dqn_never_starts",
    "sb3_dqn",
    "learning_starts is 50,000 (the old default), the training has 12,000 steps.",
    "DQN: learning_starts",
    steps=12_000,
)
def dqn_never_starts(scores: Scores, seed: int) -> DQN:
    return dqn(vec(of(Catch), scores, 1), seed, learning_starts=50_000)


@fault(
    "sb3_dqn_target",
    "sb3_dqn",
    "target_update_interval is 1,000,000: targets come from the random first network throughout.",
    "DQN: target_update_interval",
    steps=12_000,
)
def dqn_target(scores: Scores, seed: int) -> DQN:
    return dqn(vec(of(Catch), scores, 1), seed, target_update_interval=1_000_000)


class DoublyRandom(gym.ActionWrapper[Any, Any, Any]):
    """Explores by itself, below the algorithm."""

    def action(self, action: Any) -> Any:
        random = self.np_random.random() < 0.6
        return int(self.np_random.integers(3)) if random else action


@fault(
    "sb3_dqn_two_explorers",
    "sb3_dqn",
    "A wrapper replaces 60 % of the actions by random ones, beside the exploration of DQN: the "
    "replay has actions that were not taken.",
    "DoublyRandom.action: actions",
    steps=12_000,
)
def dqn_two_explorers(scores: Scores, seed: int) -> DQN:
    return dqn(vec(of(Catch, DoublyRandom), scores, 1), seed)


class BroadcastA2C(A2C):
    """A2C with a train method of its own."""

    def train(self) -> None:
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        for rollout in self.rollout_buffer.get(batch_size=None):
            actions = rollout.actions.long().flatten()
            values, log_prob, entropy = self.policy.evaluate_actions(rollout.observations, actions)
            advantages = rollout.advantages[:, None]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            policy_loss = -(advantages * log_prob).mean()
            value_loss = functional.mse_loss(rollout.returns, values.flatten())
            loss = policy_loss + self.vf_coef * value_loss - self.ent_coef * entropy.mean()  # type: ignore[union-attr]
            self.policy.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += 1


@fault(
    "sb3_a2c_broadcast",
    "sb3_a2c",
    "An own train method multiplies advantages [R, 1] by log-probabilities [R]: all are paired "
    "with all, so no action is told from another.",
    "BroadcastA2C.train: advantages",
    "https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/33",
    steps=30_000,
)
def a2c_broadcast(scores: Scores, seed: int) -> A2C:
    return BroadcastA2C("MlpPolicy", vec(of(Catch), scores), seed=seed, **A2C_SETTINGS)


@fault(
    "sb3_memory_missing",
    "sb3_recurrent",
    "The task needs a memory, but the policy has none: PPO with an MlpPolicy.",
    "memory_missing: policy",
    steps=16_384,
)
def memory_missing(scores: Scores, seed: int) -> PPO:
    return ppo(vec(of(Recall), scores), seed, gamma=0.95)


RUNS: dict[str, Planted] = by_name(PLANTED)
"""All runs of Stable-Baselines3 and sb3-contrib, by name."""
