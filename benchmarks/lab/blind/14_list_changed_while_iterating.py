"""Agents that are done are removed from the list over which the loop runs, so the agent after each
removed one is skipped and gets no reward in this step.

Source: https://github.com/Farama-Foundation/PettingZoo/issues/713
Harmful: partly: rewards are lost in the steps in which someone leaves
"""

from pathlib import Path

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import corral


class Exit(ParallelEnv):
    """Four agents leave a room; each is paid 1 for leaving in the step that its card shows."""

    metadata = {"name": "exit"}
    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.possible_agents = [f"guest_{i}" for i in range(4)]

    def observation_space(self, agent):
        return Box(0, 1, (2,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def _observe(self, agent):
        return np.array([self.cards[agent] / 5, self.steps / 5], np.float32)

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.agents, self.steps = self.possible_agents[:], 0
        card = int(self.rng.integers(0, 5))  # the same for all, so that they leave together
        self.cards = dict.fromkeys(self.agents, card)
        return {a: self._observe(a) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions):
        before = self.agents[:]
        rewards = dict.fromkeys(before, 0.0)
        ends, cuts = dict.fromkeys(before, False), dict.fromkeys(before, False)
        looped = self.agents if self.FAULT else before
        for agent in looped:
            if actions[agent] == 1 or self.steps >= 5:
                rewards[agent] = 1.0 if self.steps == self.cards[agent] else -0.2
                ends[agent] = True
                if agent in self.agents:
                    self.agents.remove(agent)
        self.steps += 1
        if self.steps > 8:
            cuts = {a: not ends[a] for a in before}
            self.agents = []
        return {a: self._observe(a) for a in before}, rewards, ends, cuts, {a: {} for a in before}


class SoundExit(Exit):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Exit", None, None
JUDGE = "SoundExit"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=40000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Exit", out, seed)


def sound(out, seed=0):
    return _train("SoundExit", out, seed)
