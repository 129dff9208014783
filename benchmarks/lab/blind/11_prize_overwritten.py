"""The prize for the goal is assigned first and then overwritten by the cost of the step, because the
cost stands outside the else branch.

Source: no thread; seen in practice
Harmful: yes, the goal only ends the costs
"""

from pathlib import Path

import gymnasium as gym
from gymnasium.spaces import Discrete

import corral


class Chain(gym.Env):
    """A chain of nine states: go right to the prize, or stop early for a consolation."""

    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Discrete(9)
        self.action_space = Discrete(3)  # left, right, stop

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.steps = int(self.np_random.integers(0, 5)), 0
        return self.state, {}

    def step(self, action):
        self.steps += 1
        terminated = action == 2
        if action < 2:
            self.state = max(0, self.state + (1 if action == 1 else -1))
        if self.state == 8:
            reward = 3.0
            terminated = True
        elif action == 2:
            reward = 0.0
        else:
            reward = -0.1
        if self.FAULT and action != 2:
            reward = -0.1  # each move costs
        return self.state, reward, bool(terminated), self.steps >= 40, {}


class SoundChain(Chain):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Chain", None, None
JUDGE = "SoundChain"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=30000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Chain", out, seed)


def sound(out, seed=0):
    return _train("SoundChain", out, seed)
