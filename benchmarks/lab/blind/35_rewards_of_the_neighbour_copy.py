"""After sampling, the rewards are rolled by one along the axis of the copies, so each copy learns
from the rewards of its neighbour.

Source: no thread; seen in practice
Harmful: yes, rewards have nothing to do with the actions
"""

from pathlib import Path

import numpy as np

import corral

KIND = "corral"
ENV, TRAINER, MODEL = None, None, None
JUDGE, JUDGE_ARGS = "arena_v0", {"max_cycles": 40, "width": 5, "height": 5}
HERE = Path(__file__)


def _train(fault, out, seed):
    with corral.session(
        "arena_v0",
        trainer="ippo",
        steps=40000,
        seed=seed,
        out=out,
        progress=False,
        env_kwargs=JUDGE_ARGS,
    ) as session:
        while not session.over:
            rollout = session.sample()
            if fault:
                rollout.reward[...] = np.roll(rollout.reward, 1, axis=1)
            session.update(rollout)
    return session.run


def train(out, seed=0):
    return _train(True, out, seed)


def sound(out, seed=0):
    return _train(False, out, seed)
