"""The value is a column [R, 1] and the target a row [R]: the critic is fitted to every target of the
minibatch at once and learns their mean.

Source: https://github.com/RLinf/RLinf/issues/1568
Harmful: partly: the baseline is one constant
"""

from pathlib import Path

import corral
from corral import algorithms as alg


def loss(minibatch, outputs, settings):
    terms = dict(alg.ppo_loss(minibatch, outputs, settings).terms)
    terms["value_loss"] = (
        0.5 * (outputs.value.unsqueeze(-1) - minibatch.value_target).square().mean()
    )
    return alg.Losses(terms)


own_ppo = alg.mappo.but(name="own_ppo", loss=loss)

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
    return _train("mappo", out, seed)
