"""buffer_size is 16 (meant were rollouts), so the replay memory holds the last few decisions only.

Source: no thread; seen in practice
Harmful: yes, each update sees the same few decisions
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
    return _train(out, seed, num_envs=4, buffer_size=16)


def sound(out, seed=0):
    return _train(out, seed, num_envs=4)
