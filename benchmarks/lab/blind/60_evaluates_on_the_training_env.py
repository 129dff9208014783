"""A callback evaluates the policy on the training environment after each rollout, which resets it,
so the next rollout starts from an observation that no longer belongs to it.

Source: https://github.com/DLR-RM/stable-baselines3/issues/1731
Harmful: perhaps not: one step of each rollout is wrong
"""

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

import corral
from corral.adapters import MaskedPolicy, make_vec_env

KIND, FAULT, STEPS, GREEDY = "sb3", True, 20000, True


def make_env(api=None):
    return corral.make("CartPole-v1")


class Evaluation(BaseCallback):
    def _on_step(self):
        return True

    def _on_rollout_end(self):
        if FAULT:
            views = self.training_env.reset()
            for _ in range(10):
                views = self.training_env.step(self.model.predict(views)[0])[0]


def learn(make_env, steps, seed):
    torch.manual_seed(seed)
    envs = make_vec_env(make_env, num_envs=8, seed=seed)
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
    model.learn(total_timesteps=steps * len(agents), callback=Evaluation())

    def play(name, observation):
        seen = dict(observation)
        seen["agent"] = np.eye(len(agents), dtype=np.float32)[agents.index(name)]
        seen = {k: v for k, v in seen.items() if k in model.observation_space.spaces}
        action, _ = model.predict(seen, deterministic=True)
        return int(action)

    return {a: lambda o, a=a: play(a, o) for a in agents}
