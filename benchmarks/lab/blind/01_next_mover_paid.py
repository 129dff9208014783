"""In a turn-based game the turn passes before the winner is paid, so that the reward of the last
move goes to the player who moves next.

Source: https://github.com/ray-project/ray/issues/7056
Harmful: yes, every player learns to lose
"""

from pathlib import Path

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import AECEnv

import corral


class Nim(AECEnv):
    """Nine matches; take one to three; who takes the last one wins."""

    metadata = {"name": "nim", "is_parallelizable": False}
    FAULT = True

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode
        self.possible_agents = ["first", "second"]
        self.action_spaces = {a: Discrete(3) for a in self.possible_agents}
        space = Dict(observation=Box(0, 1, (10,), np.float32), action_mask=Box(0, 1, (3,), np.int8))
        self.observation_spaces = dict.fromkeys(self.possible_agents, space)

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        rng = np.random.default_rng(seed)
        self.agents = self.possible_agents[:]
        self.matches = int(rng.integers(6, 10))
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {a: {} for a in self.agents}
        self.agent_selection = "first"

    def observe(self, agent):
        mask = np.array([self.matches > n for n in range(3)], np.int8)
        return {
            "observation": np.eye(10, dtype=np.float32)[self.matches],
            "action_mask": mask if agent == self.agent_selection else np.zeros(3, np.int8),
        }

    def step(self, action):
        if self.terminations[self.agent_selection]:
            return self._was_dead_step(action)
        mover = self.agent_selection
        self._cumulative_rewards[mover] = 0.0
        self._clear_rewards()
        self.matches -= int(action) + 1
        self.agent_selection = other = "second" if mover == "first" else "first"
        if self.matches <= 0:
            winner = self.agent_selection if self.FAULT else mover
            self.rewards = {a: 1.0 if a == winner else -1.0 for a in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()


class SoundNim(Nim):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Nim", None, None
JUDGE = "SoundNim"  # both are scored by its rewards
ZERO_SUM, AGENTS = True, ["first", "second"]
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="mappo", steps=40000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Nim", out, seed)


def sound(out, seed=0):
    return _train("SoundNim", out, seed)
