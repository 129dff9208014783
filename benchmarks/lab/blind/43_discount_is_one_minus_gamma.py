"""gamma is 0.01, the complement of what was meant, so the policy looks no further than the next
reward.

Source: no thread; seen in practice
Harmful: yes, the prize is some steps away
"""

from pathlib import Path

import gymnasium as gym
from gymnasium.spaces import Discrete

import corral


class Trap(gym.Env):
    """A chain of ten states: stop at once for 0.2, or walk right at a small cost for 3."""

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Discrete(10)
        self.action_space = Discrete(3)  # left, right, stop

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.steps = int(self.np_random.integers(4, 8)), 0
        return self.state, {}

    def step(self, action):
        self.steps += 1
        if action == 2:
            return self.state, 0.2, True, False, {}
        self.state = max(0, self.state + (1 if action == 1 else -1))
        there = self.state == 9
        return self.state, 3.0 if there else -0.1, there, self.steps >= 40, {}


KIND = "corral"
ENV, TRAINER, MODEL = "Trap", None, None
JUDGE = "Trap"
HERE = Path(__file__)


def _train(out, seed, **settings):
    return corral.train(
        f"{HERE}:Trap", trainer="ippo", steps=30000, seed=seed, out=out, progress=False, **settings
    )


def train(out, seed=0):
    return _train(out, seed, gamma=0.01)


def sound(out, seed=0):
    return _train(out, seed, gamma=0.99)
