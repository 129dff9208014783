"""MaskablePPO is trained with masks, but predict() is called without action_masks when the policy is
used.

Source: https://github.com/Stable-Baselines-Team/stable-baselines3-contrib/issues/212
Harmful: yes, logits of forbidden actions were never trained and now decide
"""

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from sb3_contrib import MaskablePPO

import corral
from corral.adapters import MaskablePolicy, make_vec_env

KIND, FAULT, STEPS, GREEDY = "sb3", True, 20000, True


class Corridors(gym.Env):
    """A maze of 5 x 5 fields with a mask of the open ways; more of them close each step."""

    MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self):
        self.observation_space = Box(0, 1, (10,), np.float32)
        self.action_space = Discrete(8)  # four moves, and four times a rest that costs

    def _result(self):
        there = [self.here + move for move in self.MOVES]
        ways = [bool((t >= 0).all() and (t <= 4).all()) for t in there]
        rest = [bool(self.np_random.random() < 0.5) for _ in range(4)]
        self.mask = np.array([*ways, *rest], np.int8)
        view = np.concatenate([np.eye(5)[self.here[0]], np.eye(5)[self.here[1]]])
        return view.astype(np.float32), {"action_mask": self.mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.here, self.steps = self.np_random.integers(0, 4, 2), 0
        return self._result()

    def step(self, action):
        self.steps += 1
        cost = 0.05
        if not self.mask[action]:
            cost = 0.5
        elif action < 4:
            self.here = self.here + self.MOVES[action]
        there = bool((self.here == 4).all())
        view, info = self._result()
        return view, 2.0 - cost if there else -cost, there, self.steps >= 30, info


def make_env(api=None):
    return corral.make(Corridors)


def learn(make_env, steps, seed):
    torch.manual_seed(seed)
    envs = make_vec_env(make_env, num_envs=8, seed=seed)
    agents = list(make_env().possible_agents)
    model = MaskablePPO(
        MaskablePolicy,
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
        masks = None if FAULT else np.asarray(observation["action_mask"]) == 1
        if FAULT and "action_mask" in seen:
            seen["action_mask"] = np.ones_like(seen["action_mask"])
        action, _ = model.predict(seen, deterministic=True, action_masks=masks)
        return int(action)

    return {a: lambda o, a=a: play(a, o) for a in agents}
