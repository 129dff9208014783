"""The ratio is a column [R, 1] and the advantage a row [R], so their product is a table [R, R], and
each decision is weighted by the mean of all advantages.

Source: https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/33
Harmful: yes, the mean advantage is zero
"""

from pathlib import Path

import torch

import corral
from corral import algorithms as alg


def loss(minibatch, outputs, settings):
    ratio = (outputs.log_prob - minibatch.log_prob).exp().unsqueeze(-1)
    gain = torch.min(ratio * minibatch.advantage, ratio.clamp(0.8, 1.2) * minibatch.advantage)
    values = alg.value_loss(minibatch, outputs, settings)
    return alg.Losses({"policy_loss": -gain.mean(), "value_loss": values})


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
