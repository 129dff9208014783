"""The two entries of the observation dict are swapped, so each agent sees what the other one should
see.

Source: no thread; seen in practice
Harmful: yes, what an agent must know is shown to the other
"""

from pathlib import Path

from gymnasium.spaces import Discrete

import corral
from corral.adapters import MultiAgentEnv


class Couriers(MultiAgentEnv):
    """Each of two couriers sees the street of its own parcel and must drive there."""

    FAULT = True

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = ["bike", "van"]
        self.observation_space = Discrete(4)
        self.action_space = Discrete(4)

    def _observe(self):
        self.street = {a: int(self.np_random.integers(4)) for a in self.possible_agents}
        bike, van = self.street["bike"], self.street["van"]
        return {"bike": van, "van": bike} if self.FAULT else {"bike": bike, "van": van}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action_dict):
        rewards = {a: float(action_dict[a] == self.street[a]) for a in self.possible_agents}
        self.steps += 1
        over = {"__all__": False}
        return self._observe(), rewards, over, {"__all__": self.steps >= 10}, {}


class SoundCouriers(Couriers):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Couriers", None, None
JUDGE = "Couriers"  # both are scored by its rewards
SOUND_JUDGE = "SoundCouriers"
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=20000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Couriers", out, seed)


def sound(out, seed=0):
    return _train("SoundCouriers", out, seed)
