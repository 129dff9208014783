"""The dict of rewards is built over the agents that are still alive after the step, so an agent
never gets the penalty of the step in which it dies.

Source: https://github.com/ray-project/ray/issues/4627
Harmful: yes, dying costs nothing
"""

from pathlib import Path

import numpy as np
from gymnasium.spaces import Box, Discrete

import corral
from corral.adapters import MultiAgentEnv


class Climbers(MultiAgentEnv):
    """Two climbers: a risky pitch pays 0.6 and may end the climb at a price of 4, a safe one 0.2."""

    FAULT = True

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = ["left", "right"]
        self.observation_space = Box(0, 1, (2,), np.float32)
        self.action_space = Discrete(2)

    def _observe(self, agent):
        return np.array([self.steps / 15, self.ice[agent]], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.alive, self.steps = ["left", "right"], 0
        self.ice = {a: self.np_random.random() for a in self.alive}
        return {a: self._observe(a) for a in self.alive}, {}

    def step(self, action_dict):
        self.steps += 1
        paid, died = {}, []
        for agent, action in action_dict.items():
            paid[agent] = 0.6 if action == 1 else 0.2
            if action == 1 and self.np_random.random() < self.ice[agent]:
                paid[agent] = -4.0
                died.append(agent)
        before, self.alive = self.alive, [a for a in self.alive if a not in died]
        self.ice = {a: self.np_random.random() for a in before}
        rewards = {a: paid[a] for a in (self.alive if self.FAULT else before)}
        ends = {a: a in died for a in before}
        ends["__all__"] = not self.alive
        cuts = dict.fromkeys(before, self.steps >= 15)
        cuts["__all__"] = self.steps >= 15
        return {a: self._observe(a) for a in before}, rewards, ends, cuts, {}


class SoundClimbers(Climbers):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Climbers", None, None
JUDGE = "SoundClimbers"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=40000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Climbers", out, seed)


def sound(out, seed=0):
    return _train("SoundClimbers", out, seed)
