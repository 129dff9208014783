"""Training goes in ten parts to save in between, and each part makes a new PPO instead of going on
with the last one.

Source: no thread; seen in practice
Harmful: yes, only the last tenth counts
"""

import numpy as np
import torch
from stable_baselines3 import PPO

import corral
from corral.adapters import MaskedPolicy, make_vec_env

KIND, FAULT, STEPS, GREEDY = "sb3", True, 20000, True


def make_env(api=None):
    return corral.make("CartPole-v1")


def learn(make_env, steps, seed):
    torch.manual_seed(seed)
    envs = make_vec_env(make_env, num_envs=8, seed=seed)
    agents = list(make_env().possible_agents)

    def make_model():
        return PPO(
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

    model = make_model()
    for part in range(10):
        if FAULT:
            model = make_model()
        model.learn(total_timesteps=steps * len(agents) // 10, reset_num_timesteps=False)

    def play(name, observation):
        seen = dict(observation)
        seen["agent"] = np.eye(len(agents), dtype=np.float32)[agents.index(name)]
        seen = {k: v for k, v in seen.items() if k in model.observation_space.spaces}
        action, _ = model.predict(seen, deterministic=True)
        return int(action)

    return {a: lambda o, a=a: play(a, o) for a in agents}
