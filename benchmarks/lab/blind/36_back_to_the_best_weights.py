"""After each update with a return below the best so far, the weights are set back to the best ones:
a lucky early rollout freezes the run.

Source: no thread; seen in practice
Harmful: partly: most updates are thrown away
"""

from pathlib import Path

import corral

KIND = "corral"
ENV, TRAINER, MODEL = None, None, None
JUDGE, JUDGE_ARGS = "arena_v0", {"max_cycles": 40, "width": 5, "height": 5}
HERE = Path(__file__)


def _train(fault, out, seed):
    best, kept = -float("inf"), None
    with corral.session(
        "arena_v0",
        trainer="ippo",
        steps=40000,
        seed=seed,
        out=out,
        progress=False,
        env_kwargs=JUDGE_ARGS,
        num_envs=4,
    ) as session:
        for row in session:
            value = row["return_team"]
            if fault and value is not None and value == value:
                if value > best:
                    best, kept = value, session.weights()
                else:
                    session.set_weights(kept)
    return session.run


def train(out, seed=0):
    return _train(True, out, seed)


def sound(out, seed=0):
    return _train(False, out, seed)
