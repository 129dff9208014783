"""The arena of RLlib's tutorial of 2021, a class for Ray and the old gym. Two lines are others:

from gym.spaces import Discrete, MultiDiscrete
from ray.rllib.env.multi_agent_env import MultiAgentEnv
"""

import random

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from corral.adapters import MultiAgentEnv


class MultiAgentArena(MultiAgentEnv):
    """agent1 is paid for new fields, agent2 for standing in its way."""

    def __init__(self, config=None):
        config = config or {}
        self.width = config.get("width", 10)
        self.height = config.get("height", 10)
        # End an episode after this many timesteps.
        self.timestep_limit = config.get("ts", 100)

        fields = self.width * self.height
        self.observation_space = MultiDiscrete([fields, fields])
        # 0=up, 1=right, 2=down, 3=left.
        self.action_space = Discrete(4)

        self.reset()

    def reset(self):
        self.agent1_pos = [0, 0]  # upper left corner
        self.agent2_pos = [self.height - 1, self.width - 1]  # lower right corner
        self.agent1_visited_fields = set()
        self.timesteps = 0
        return self._get_obs()

    def step(self, action):
        self.timesteps += 1
        # Who moves first is drawn.
        events = set()
        for agent in random.sample(["agent1", "agent2"], 2):
            events |= self._move(agent, action[agent])

        obs = self._get_obs()
        r1 = -1.0 if "collision" in events else 1.0 if "new" in events else -0.5
        r2 = 1.0 if "collision" in events else -0.1
        rewards = {"agent1": r1, "agent2": r2}

        is_done = self.timesteps >= self.timestep_limit
        dones = {"agent1": is_done, "agent2": is_done, "__all__": is_done}
        return obs, rewards, dones, {}

    def _get_obs(self):
        one = self.agent1_pos[0] * self.width + self.agent1_pos[1]
        two = self.agent2_pos[0] * self.width + self.agent2_pos[1]
        return {"agent1": np.array([one, two]), "agent2": np.array([two, one])}

    def _move(self, agent, action):
        """Move an agent; return what happened: "collision", "new", or nothing."""
        is_agent1 = agent == "agent1"
        coords, other = self.agent1_pos, self.agent2_pos
        if not is_agent1:
            coords, other = other, coords
        before = coords[:]
        coords[0] += -1 if action == 0 else 1 if action == 2 else 0
        coords[1] += 1 if action == 1 else -1 if action == 3 else 0
        # Neither may run into the other.
        if coords == other:
            coords[:] = before
            return {"collision"}
        coords[0] = min(max(coords[0], 0), self.height - 1)
        coords[1] = min(max(coords[1], 0), self.width - 1)
        if is_agent1 and tuple(coords) not in self.agent1_visited_fields:
            self.agent1_visited_fields.add(tuple(coords))
            return {"new"}
        return set()

    def render(self, mode=None):
        for row in range(self.height):
            for column in range(self.width):
                here = [row, column]
                mark = "1" if here == self.agent1_pos else "2" if here == self.agent2_pos else "."
                print(mark, end="")
            print()
