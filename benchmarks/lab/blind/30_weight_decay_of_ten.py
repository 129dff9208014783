"""The optimizer is AdamW with a weight decay of 10 (copied from a setup with a learning rate of
1e-6), which pulls all weights to zero.

Source: no thread; seen in practice
Harmful: yes, nothing learned stays
"""

from pathlib import Path

import torch

import corral
from corral import algorithms as alg


def decaying(parameters, settings):
    return torch.optim.AdamW(parameters, lr=0.0, weight_decay=10.0)


own_ppo = alg.ippo.but(name="own_ppo", optimizer=decaying)

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
