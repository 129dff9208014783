"""The learning rate's schedule takes its argument for the part of the run that is done, but Stable-
Baselines3 passes the part that remains: the rate rises from zero to its maximum.

Source: no thread; seen in practice
Harmful: perhaps: little is learned early and the end is unsettled
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
    model = PPO(
        MaskedPolicy,
        envs,
        n_steps=64,
        batch_size=128,
        n_epochs=6,
        gamma=0.9,
        learning_rate=(lambda done: 2e-3 * (1 - done)) if FAULT else (lambda left: 2e-3 * left),
        seed=seed,
        device="cpu",
    )
    model.learn(total_timesteps=steps * len(agents))

    def play(name, observation):
        seen = dict(observation)
        seen["agent"] = np.eye(len(agents), dtype=np.float32)[agents.index(name)]
        seen = {k: v for k, v in seen.items() if k in model.observation_space.spaces}
        action, _ = model.predict(seen, deterministic=True)
        return int(action)

    return {a: lambda o, a=a: play(a, o) for a in agents}
