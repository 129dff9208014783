"""The simulator carries out the action of the step before, and the observation does not tell which
one that is.

Source: no thread; seen in practice
Harmful: partly: balancing with a delay is harder
"""

from pathlib import Path

import gymnasium as gym

import corral


class Pole(gym.Wrapper):
    FAULT = True

    def __init__(self, render_mode=None):
        super().__init__(gym.make("CartPole-v1", render_mode=render_mode))
        self.waiting = 0

    def reset(self, **kwargs):
        self.waiting = 0
        return self.env.reset(**kwargs)

    def step(self, action):
        late, self.waiting = self.waiting, int(action)
        return self.env.step(late if self.FAULT else int(action))


class SoundPole(Pole):
    FAULT = False


KIND = "sb3"
ENV, TRAINER, MODEL = "Pole", None, None
JUDGE = "Pole"  # both are scored by its rewards
SOUND_JUDGE = "SoundPole"
HERE = Path(__file__)


def _train(env, out, seed):
    return corral.train(
        f"{HERE}:{env}",
        trainer="sb3_ppo",
        steps=20000,
        seed=seed,
        out=out,
        progress=False,
        num_envs=8,
        n_steps=64,
        batch_size=128,
    )


def train(out, seed=0):
    return _train("Pole", out, seed)


def sound(out, seed=0):
    return _train("SoundPole", out, seed)
