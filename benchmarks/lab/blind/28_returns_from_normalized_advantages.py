"""The value targets are the sum of the values and the already normalized advantages, so the critic
follows a number without scale.

Source: no thread; seen in practice
Harmful: partly: the critic never learns the size of returns
"""

from pathlib import Path

import corral
from corral import algorithms as alg

scaled = alg.normalize(alg.gae)


def advantages(trajectories, settings):
    advantage = scaled(trajectories, settings).advantage
    return alg.Advantages(advantage, advantage + trajectories.value)


own_ppo = alg.mappo.but(name="own_ppo", advantages=advantages)

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
