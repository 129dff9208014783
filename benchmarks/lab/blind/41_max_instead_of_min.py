"""The clipped objective takes the larger of the two terms, so a decision that has already moved far
is pushed further.

Source: no thread; seen in practice
Harmful: perhaps: updates are unbounded
"""

from pathlib import Path

import torch

import corral
from corral import algorithms as alg


def loss(minibatch, outputs, settings):
    ratio = (outputs.log_prob - minibatch.log_prob).exp()
    gain = torch.max(ratio * minibatch.advantage, ratio.clamp(0.8, 1.2) * minibatch.advantage)
    values = alg.value_loss(minibatch, outputs, settings)
    return alg.Losses({"policy_loss": -gain.mean(), "value_loss": values})


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
