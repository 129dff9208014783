"""n_steps is 1024 for each of 16 copies, so 20,000 steps make one or two updates.

Source: no thread; seen in practice
Harmful: yes, there are too few updates
"""

from pathlib import Path

import corral

KIND = "sb3"
ENV, TRAINER, MODEL = "CartPole-v1", None, None
JUDGE = "CartPole-v1"
HERE = Path(__file__)


def _train(out, seed, **settings):
    return corral.train(
        "CartPole-v1",
        trainer="sb3_ppo",
        steps=20000,
        seed=seed,
        out=out,
        progress=False,
        **settings,
    )


def train(out, seed=0):
    return _train(out, seed, num_envs=16, n_steps=1024, batch_size=128)


def sound(out, seed=0):
    return _train(out, seed, num_envs=8, n_steps=64, batch_size=128)
