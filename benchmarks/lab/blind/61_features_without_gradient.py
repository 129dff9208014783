"""The features extractor computes under torch.no_grad() (copied from an inference script), so its
two random features are never trained.

Source: no thread; seen in practice
Harmful: yes, two random features say too little
"""

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

import corral
from corral.adapters import MaskedPolicy, make_vec_env

KIND, FAULT, STEPS, GREEDY = "sb3", True, 20000, True


def make_env(api=None):
    return corral.make("CartPole-v1")


class Features(BaseFeaturesExtractor):
    def __init__(self, observation_space):
        super().__init__(observation_space, 2)
        self.layers = nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(2), nn.Tanh())
        with torch.no_grad():
            self.layers(
                self._flat(
                    {k: torch.zeros(1, *s.shape) for k, s in observation_space.spaces.items()}
                )
            )

    def _flat(self, observations):
        parts = [v.flatten(1).float() for k, v in observations.items() if k != "action_mask"]
        return torch.cat(parts, dim=1)

    def forward(self, observations):
        with torch.set_grad_enabled(torch.is_grad_enabled() and not FAULT):
            return self.layers(self._flat(observations))


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
        policy_kwargs={"features_extractor_class": Features},
    )
    model.learn(total_timesteps=steps * len(agents))

    def play(name, observation):
        seen = dict(observation)
        seen["agent"] = np.eye(len(agents), dtype=np.float32)[agents.index(name)]
        seen = {k: v for k, v in seen.items() if k in model.observation_space.spaces}
        action, _ = model.predict(seen, deterministic=True)
        return int(action)

    return {a: lambda o, a=a: play(a, o) for a in agents}
