"""The own advantage estimate does not look at the ends of episodes and bootstraps from the first
value of the next episode.

Source: https://github.com/Emerge-Lab/PufferDrive/pull/208
Harmful: yes, falling costs nothing because the next episode follows
"""

from pathlib import Path

import numpy as np

import corral
from corral import algorithms as alg


def through(trajectories, settings):
    reward, value = trajectories.reward, trajectories.value
    advantage, later = np.zeros_like(reward), np.zeros(reward.shape[1])
    next_value = trajectories.bootstrap_value
    for t in reversed(range(len(reward))):
        delta = reward[t] + settings.gamma * next_value - value[t]
        later = delta + settings.gamma * settings.gae_lambda * later
        advantage[t], next_value = later, value[t]
    return alg.Advantages(advantage, advantage + value)


own_gae = alg.ippo.but(name="own_gae", advantages=alg.normalize(through))

KIND = "corral"
ENV, TRAINER, MODEL = "CartPole-v1", "own_gae", None
JUDGE = "CartPole-v1"
HERE = Path(__file__)


def _train(trainer, out, seed):
    return corral.train(
        "CartPole-v1", trainer=trainer, steps=24000, seed=seed, out=out, progress=False, num_envs=8
    )


def train(out, seed=0):
    return _train(f"{HERE}:own_gae", out, seed)


def sound(out, seed=0):
    return _train("ippo", out, seed)
