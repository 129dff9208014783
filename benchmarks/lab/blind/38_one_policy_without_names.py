"""Two agents with opposite tasks and equal observations share one policy, and the identity of the
agent is switched off.

Source: no thread; seen in practice
Harmful: yes, one policy cannot do both
"""

from pathlib import Path

import numpy as np
from gymnasium.spaces import Box, Discrete

import corral
from corral.adapters import MultiAgentEnv


class Seesaw(MultiAgentEnv):
    """Both see the tilt; one should push with it and the other one against it."""

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = ["with", "against"]
        self.observation_space = Box(-1, 1, (1,), np.float32)
        self.action_space = Discrete(2)

    def _observe(self):
        self.tilt = self.np_random.uniform(-1, 1)
        view = np.array([self.tilt], np.float32)
        return {"with": view, "against": view.copy()}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action_dict):
        up = int(self.tilt > 0)
        rewards = {
            "with": float(action_dict["with"] == up),
            "against": float(action_dict["against"] != up),
        }
        self.steps += 1
        return self._observe(), rewards, {"__all__": False}, {"__all__": self.steps >= 10}, {}


KIND = "corral"
ENV, TRAINER, MODEL = "Seesaw", None, None
JUDGE = "Seesaw"
HERE = Path(__file__)


def _train(out, seed, **settings):
    return corral.train(
        f"{HERE}:Seesaw",
        trainer="ippo",
        steps=20000,
        seed=seed,
        out=out,
        progress=False,
        **settings,
    )


def train(out, seed=0):
    return _train(out, seed, policies="shared", agent_id=False)


def sound(out, seed=0):
    return _train(out, seed, policies="separate")
