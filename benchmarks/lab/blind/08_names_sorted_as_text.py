"""Rewards are computed in the order of the agents' numbers but handed out over sorted(agents), where
agent_10 comes before agent_2: eight of twelve agents get another one's reward.

Source: no thread; seen in practice
Harmful: yes, most agents learn from someone else's reward
"""

from pathlib import Path

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import corral


class Switchboard(ParallelEnv):
    """Twelve agents; each sees a bit and is paid for repeating it (odd ones: for the opposite)."""

    metadata = {"name": "switchboard"}
    FAULT = True

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.possible_agents = [f"agent_{i}" for i in range(12)]

    def observation_space(self, agent):
        return Box(0, 1, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def _observe(self):
        self.bits = self.rng.integers(0, 2, 12)
        return {a: np.array([b], np.float32) for a, b in zip(self.possible_agents, self.bits)}

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.agents, self.steps = self.possible_agents[:], 0
        return self._observe(), {a: {} for a in self.agents}

    def step(self, actions):
        wanted = self.bits ^ (np.arange(12) % 2)
        played = np.array([actions[f"agent_{i}"] for i in range(12)])
        paid = (played == wanted).astype(float)
        order = sorted(self.possible_agents) if self.FAULT else self.possible_agents
        rewards = dict(zip(order, paid.tolist()))
        self.steps += 1
        over = self.steps >= 10
        ends = dict.fromkeys(self.possible_agents, False)
        cuts = dict.fromkeys(self.possible_agents, over)
        infos = {a: {} for a in self.possible_agents}
        views = self._observe()
        self.agents = [] if over else self.agents
        return views, rewards, ends, cuts, infos


class SoundSwitchboard(Switchboard):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Switchboard", None, None
JUDGE = "SoundSwitchboard"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}",
        trainer="ippo",
        steps=12000,
        seed=seed,
        out=out,
        progress=False,
        policies="separate",
        num_envs=8,
        n_steps=40,
    )


def train(out, seed=0):
    return _train("Switchboard", out, seed)


def sound(out, seed=0):
    return _train("SoundSwitchboard", out, seed)
