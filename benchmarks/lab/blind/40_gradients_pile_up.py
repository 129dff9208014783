"""The own gradient rule adds the gradients of all earlier steps (zero_grad was lost when gradient
accumulation was added).

Source: no thread; seen in practice
Harmful: yes, old gradients outweigh the new ones
"""

from pathlib import Path

import corral
from corral import algorithms as alg

piles = {}


def piling(learner, settings):
    for parameter in learner.parameters():
        if parameter.grad is not None:
            pile = piles.get(id(parameter))
            piles[id(parameter)] = parameter.grad.clone() if pile is None else pile + parameter.grad
            parameter.grad.copy_(piles[id(parameter)])
    return alg.clip_norm(learner, settings)


own_ppo = alg.ippo.but(name="own_ppo", gradients=piling)

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
