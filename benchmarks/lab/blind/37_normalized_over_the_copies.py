"""Advantages are normalized separately in each time step over the copies; with two copies that
leaves only plus and minus one, whatever their size.

Source: no thread; seen in practice
Harmful: yes, all steps count the same, and half of the good ones count as bad
"""

from pathlib import Path

import numpy as np

import corral
from corral import algorithms as alg


def advantages(trajectories, settings):
    estimate = alg.gae(trajectories, settings)
    a = estimate.advantage
    a = (a - a.mean(axis=1, keepdims=True)) / (a.std(axis=1, keepdims=True) + 1e-8)
    return alg.Advantages(a.astype(np.float32), estimate.value_target)


own_ppo = alg.ippo.but(name="own_ppo", advantages=advantages)

KIND = "corral"
ENV, TRAINER, MODEL = "CartPole-v1", "own_ppo", None
JUDGE = "CartPole-v1"
HERE = Path(__file__)


def _train(trainer, out, seed):
    return corral.train(
        "CartPole-v1",
        trainer=trainer,
        steps=24000,
        seed=seed,
        out=out,
        progress=False,
        num_envs=2,
        n_steps=512,
    )


def train(out, seed=0):
    return _train(f"{HERE}:own_ppo", out, seed)


def sound(out, seed=0):
    return _train("ippo", out, seed)
