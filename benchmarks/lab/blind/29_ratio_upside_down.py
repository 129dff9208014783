"""The probability ratio is old divided by new, so that good decisions become less likely.

Source: https://github.com/openai/baselines/issues/1218
Harmful: yes, it climbs down
"""

from pathlib import Path

import torch

import corral
from corral import algorithms as alg


def loss(minibatch, outputs, settings):
    ratio = (minibatch.log_prob - outputs.log_prob).exp()
    clip = minibatch.now(settings, "clip_range")
    gain = torch.min(
        ratio * minibatch.advantage, ratio.clamp(1 - clip, 1 + clip) * minibatch.advantage
    )
    values = alg.value_loss(minibatch, outputs, settings)
    return alg.Losses({"policy_loss": -gain.mean(), "value_loss": values})


own_ppo = alg.mappo.but(name="own_ppo", loss=loss)

KIND = "corral"
ENV, TRAINER, MODEL = "CartPole-v1", "own_ppo", None
JUDGE = "CartPole-v1"
HERE = Path(__file__)


def _train(trainer, out, seed):
    return corral.train(
        "CartPole-v1", trainer=trainer, steps=20000, seed=seed, out=out, progress=False, num_envs=8
    )


def train(out, seed=0):
    return _train(f"{HERE}:own_ppo", out, seed)


def sound(out, seed=0):
    return _train("mappo", out, seed)
