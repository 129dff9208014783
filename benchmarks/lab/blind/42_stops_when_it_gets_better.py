"""EarlyStop watches the return with lower=True, as if it were a loss, so training stops as soon as
the return rises.

Source: no thread; seen in practice
Harmful: yes, the run ends after a few updates
"""

from pathlib import Path

import corral
from corral.trainers import EarlyStop

KIND = "corral"
ENV, TRAINER, MODEL = "CartPole-v1", None, None
JUDGE = "CartPole-v1"
HERE = Path(__file__)


def _train(lower, out, seed):
    return corral.train(
        "CartPole-v1",
        trainer="ippo",
        steps=24000,
        seed=seed,
        out=out,
        progress=False,
        callbacks=[EarlyStop("return_team", patience=10, lower=lower)],
        num_envs=8,
    )


def train(out, seed=0):
    return _train(True, out, seed)


def sound(out, seed=0):
    return _train(False, out, seed)
