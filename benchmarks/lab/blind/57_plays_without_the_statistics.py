"""Training runs over VecNormalize, and the model is later used on observations that are not
normalized.

Source: https://github.com/DLR-RM/stable-baselines3/issues/870
Harmful: yes, the policy in use sees other numbers than in training
"""

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3 import PPO

import corral
from corral.adapters import MaskedPolicy, make_vec_env, normalize

KIND, FAULT, STEPS, GREEDY = "sb3", True, 20000, True


class Tank(gym.Env):
    """Keep the level of a tank between 480 and 520 litres; in and out go by 10 litres."""

    def __init__(self):
        self.observation_space = Box(0, 1000, (2,), np.float32)
        self.action_space = Discrete(3)

    def _observe(self):
        return np.array([self.level, self.flow + 300], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level, self.flow, self.steps = self.np_random.uniform(400, 600), 0.0, 0
        return self._observe(), {}

    def step(self, action):
        self.flow = self.np_random.normal(0, 5)
        self.level = float(np.clip(self.level + 20 * (int(action) - 1) + self.flow, 0, 1000))
        self.steps += 1
        return self._observe(), float(480 <= self.level <= 520), False, self.steps >= 30, {}


def make_env(api=None):
    return corral.make(Tank)


def learn(make_env, steps, seed):
    torch.manual_seed(seed)
    envs = make_vec_env(make_env, num_envs=8, seed=seed)
    envs = normalize(envs)
    agents = list(make_env().possible_agents)
    model = PPO(
        MaskedPolicy,
        envs,
        n_steps=64,
        batch_size=128,
        n_epochs=6,
        gamma=0.9,
        learning_rate=2e-3,
        seed=seed,
        device="cpu",
    )
    model.learn(total_timesteps=steps * len(agents))

    def play(name, observation):
        seen = dict(observation)
        seen["agent"] = np.eye(len(agents), dtype=np.float32)[agents.index(name)]
        seen = {k: v for k, v in seen.items() if k in model.observation_space.spaces}
        if not FAULT:
            batch = {k: np.asarray(v)[None] for k, v in seen.items()}
            seen = {k: v[0] for k, v in envs.normalize_obs(batch).items()}
        action, _ = model.predict(seen, deterministic=True)
        return int(action)

    return {a: lambda o, a=a: play(a, o) for a in agents}
