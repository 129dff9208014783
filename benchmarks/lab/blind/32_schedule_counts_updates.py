"""The learning rate's schedule was written in updates (zero after update 150) but is read in env
steps, so it is zero from the first update on.

Source: no thread; seen in practice
Harmful: yes, learning ends before it begins
"""

from pathlib import Path

import corral

KIND = "corral"
ENV, TRAINER, MODEL = "CartPole-v1", None, None
JUDGE = "CartPole-v1"
HERE = Path(__file__)


def _train(out, seed, **settings):
    return corral.train(
        "CartPole-v1",
        trainer="mappo",
        steps=24000,
        seed=seed,
        out=out,
        progress=False,
        num_envs=8,
        **settings,
    )


def train(out, seed=0):
    return _train(out, seed, learning_rate="0:3e-3,150:0")


def sound(out, seed=0):
    return _train(out, seed, learning_rate="0:3e-3,30000:0")
