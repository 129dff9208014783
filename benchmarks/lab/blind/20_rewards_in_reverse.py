"""Rewards are put together in the order in which agents were processed (last first) and zipped with
the agents in their usual order: each gets the other's.

Source: no thread; seen in practice
Harmful: yes, each agent is paid for the other's choice
"""

from pathlib import Path

from gymnasium.spaces import Discrete

import corral
from corral.adapters import MultiAgentEnv


class Duo(MultiAgentEnv):
    """The cook should do as the ticket says; the waiter should do the opposite of its own card."""

    FAULT = True

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = ["cook", "waiter"]
        self.observation_space = Discrete(3)
        self.action_space = Discrete(3)

    def _observe(self):
        self.cards = [int(c) for c in self.np_random.integers(0, 3, 2)]
        return dict(zip(self.possible_agents, self.cards))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action_dict):
        paid = []
        for agent in reversed(self.possible_agents):
            card = self.cards[self.possible_agents.index(agent)]
            wanted = card if agent == "cook" else (card + 1) % 3
            paid.append(1.0 if action_dict[agent] == wanted else 0.0)
        if not self.FAULT:
            paid.reverse()
        self.steps += 1
        rewards = dict(zip(self.possible_agents, paid))
        return self._observe(), rewards, {"__all__": False}, {"__all__": self.steps >= 12}, {}


class SoundDuo(Duo):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Duo", None, None
JUDGE = "SoundDuo"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=20000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Duo", out, seed)


def sound(out, seed=0):
    return _train("SoundDuo", out, seed)
