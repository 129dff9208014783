"""The mask in the info is the one of the field before the move, one step late; the walls that it
should forbid cost a point.

Source: no thread; seen in practice
Harmful: yes, the way onwards is often forbidden and the wall allowed
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

import corral


class Corridors(gym.Env):
    """A maze of 5 x 5 fields with a mask of the ways that are open; a wall costs a point."""

    FAULT = True
    MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
    WALLS = {((1, y), (2, y)) for y in (0, 1, 2, 3)} | {((3, y), (4, y)) for y in (1, 2, 3, 4)}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 1, (25,), np.float32)
        self.action_space = Discrete(4)

    def _open(self, field):
        there = [(field[0] + dx, field[1] + dy) for dx, dy in self.MOVES]
        inside = [0 <= x < 5 and 0 <= y < 5 for x, y in there]
        walls = [{(field, t), (t, field)} & self.WALLS for t in there]
        return np.array([i and not w for i, w in zip(inside, walls)], np.int8)

    def _result(self):
        mask = self.before if self.FAULT else self._open(self.here)
        view = np.zeros(25, np.float32)
        view[self.here[0] * 5 + self.here[1]] = 1
        return view, {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.here, self.steps = (0, int(self.np_random.integers(5))), 0
        self.before = self._open(self.here)
        return self._result()

    def step(self, action):
        self.steps += 1
        cost, free = 0.05, self._open(self.here)
        if free[action]:
            dx, dy = self.MOVES[action]
            self.here = (self.here[0] + dx, self.here[1] + dy)
        else:
            cost = 1.0
        there = self.here == (4, 4)
        view, info = self._result()
        self.before = self._open(self.here)
        return view, 5.0 - cost if there else -cost, there, self.steps >= 40, info


class SoundCorridors(Corridors):
    FAULT = False


KIND = "corral"
ENV, TRAINER, MODEL = "Corridors", None, None
JUDGE = "SoundCorridors"  # both are scored by its rewards
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}", trainer="ippo", steps=30000, seed=seed, out=out, progress=False
    )


def train(out, seed=0):
    return _train("Corridors", out, seed)


def sound(out, seed=0):
    return _train("SoundCorridors", out, seed)
