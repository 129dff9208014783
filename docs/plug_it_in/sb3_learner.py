"""Stable-Baselines3's PPO on the probes, over Batch and through SuperSuit.

corral doctor --learner sb3_learner.py:learn
corral doctor --learner sb3_learner.py:learn_through_supersuit
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from stable_baselines3 import PPO

from corral.adapters import MaskedPolicy, make_vec_env
from corral.adapters.supersuit import vectorize
from corral.lab.doctor.examination import Learned


def learn(make_env: Callable[[], Any], steps: int, seed: int) -> Learned:
    return trained(make_vec_env(make_env, num_envs=64, seed=seed), make_env, steps, seed)


def learn_through_supersuit(make_env: Callable[[], Any], steps: int, seed: int) -> Learned:
    return trained(vectorize(make_env(), num_envs=64, seed=seed), make_env, steps, seed)


def trained(vec_env: Any, make_env: Callable[[], Any], steps: int, seed: int) -> Learned:
    agents = list(make_env().possible_agents)
    model = PPO(
        MaskedPolicy,
        vec_env,
        n_steps=8,
        batch_size=1024,
        n_epochs=8,
        learning_rate=5e-3,
        gamma=0.9,
        seed=seed,
        device="cpu",
    )
    model.learn(total_timesteps=steps * len(agents))  # it counts columns
    vec_env.close()

    def value(agent: str) -> Callable[[dict[str, Any]], Any]:
        who = np.eye(len(agents), dtype=np.float32)[agents.index(agent)]

        def of(observation: dict[str, Any]) -> Any:
            shown, _ = model.policy.obs_to_tensor({**observation, "agent": who})
            return model.policy.predict_values(shown)

        return of

    return Learned(dict.fromkeys(agents, model), {agent: value(agent) for agent in agents})
