"""max_grad_norm is 1e-6 (mistaken for a tolerance), and Adam's eps of 1e-5 is then larger than every
gradient.

Source: no thread; seen in practice
Harmful: yes, the weights hardly move
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
        trainer="ippo",
        steps=24000,
        seed=seed,
        out=out,
        progress=False,
        num_envs=8,
        **settings,
    )


def train(out, seed=0):
    return _train(out, seed, max_grad_norm=1e-6)


def sound(out, seed=0):
    return _train(out, seed)
