"""learning_starts is 50,000 (a default of a large benchmark) and the run ends after 12,000 steps:
not one update is made.

Source: https://github.com/DLR-RM/stable-baselines3/issues/1760
Harmful: yes, nothing is learned
"""

from pathlib import Path

import corral

KIND = "sb3"
ENV, TRAINER, MODEL = "CartPole-v1", None, None
JUDGE = "CartPole-v1"
GREEDY = True
HERE = Path(__file__)


def _train(out, seed, **settings):
    return corral.train(
        "CartPole-v1",
        trainer="sb3_dqn",
        steps=12000,
        seed=seed,
        out=out,
        progress=False,
        **settings,
    )


def train(out, seed=0):
    return _train(out, seed, num_envs=4, learning_starts=50_000)


def sound(out, seed=0):
    return _train(out, seed, num_envs=4)
