"""The entropy bonus is added to the loss with a plus sign, so the policy is driven to certainty
instead of exploration.

Source: https://github.com/PKU-Alignment/omnisafe/pull/133
Harmful: perhaps: the policy settles on what it tried first
"""

from pathlib import Path

import gymnasium as gym
from gymnasium.spaces import Discrete

import corral
from corral import algorithms as alg


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


def loss(minibatch, outputs, settings):
    terms = alg.ppo_loss(minibatch, outputs, settings).terms
    return alg.Losses({**terms, "entropy_bonus": 0.1 * outputs.entropy})


own_ppo = alg.ippo.but(name="own_ppo", loss=loss)

KIND = "corral"
ENV, TRAINER, MODEL = "Trap", "own_ppo", None
JUDGE = "Trap"
HERE = Path(__file__)


def _train(trainer, out, seed):
    return corral.train(
        f"{HERE}:Trap",
        trainer=trainer,
        steps=30000,
        seed=seed,
        out=out,
        progress=False,
        ent_coef=0.1,
    )


def train(out, seed=0):
    return _train(f"{HERE}:own_ppo", out, seed)


def sound(out, seed=0):
    return _train("ippo", out, seed)
