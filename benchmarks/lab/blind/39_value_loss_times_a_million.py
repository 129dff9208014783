"""The value loss has a weight of 1e6, from the time when actor and critic shared their layers.

Source: no thread; seen in practice
Harmful: no: actor and critic have their own layers and their own clipping here
"""

from pathlib import Path

import corral
from corral import algorithms as alg


def loss(minibatch, outputs, settings):
    terms = dict(alg.ppo_loss(minibatch, outputs, settings).terms)
    terms["value_loss"] = 1e6 * terms["value_loss"]
    return alg.Losses(terms)


own_ppo = alg.ippo.but(name="own_ppo", loss=loss)

KIND = "corral"
ENV, TRAINER, MODEL = "CartPole-v1", "own_ppo", None
JUDGE = "CartPole-v1"
HERE = Path(__file__)


def _train(trainer, out, seed):
    return corral.train(
        "CartPole-v1", trainer=trainer, steps=24000, seed=seed, out=out, progress=False, num_envs=8
    )


def train(out, seed=0):
    return _train(f"{HERE}:own_ppo", out, seed)


def sound(out, seed=0):
    return _train("ippo", out, seed)
