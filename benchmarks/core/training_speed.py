"""Where the time of training goes, and what more copies bring: mappo on arena_v0 and dfaas_v0.

    OMP_NUM_THREADS=1 python benchmarks/core/training_speed.py

The trainer's own settings but for the copies: 64 steps of each in a rollout, 8 minibatches, 4
epochs, two layers of 64. One policy is shared by the nodes of dfaas_v0, two separate ones play
arena_v0. An env step moves all agents of one copy. The first update, in which everything is warmed
up, is left out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

from corral.envs.registry import make_rules
from corral.trainers.on_policy.trainer import MAPPO

COPIES = (16, 32, 64, 128, 256, 512, 1024)
SECONDS = 6.0  # at least, of each
PARTS = ("env", "inference", "learning")


def speed(environment: str, num_envs: int) -> dict[str, Any]:
    rules = make_rules(environment)
    policies = {a: a if environment == "arena_v0" else "all" for a in rules.agents}
    trainer = MAPPO(
        rules,
        MAPPO.Settings(num_envs=num_envs),
        seed=0,
        policies=policies,
        policies_to_train=sorted(set(policies.values())),
        steps=10**9,
    )
    seconds = np.zeros(len(PARTS))
    played = -1
    for update in trainer.learn():
        if played >= 0:
            seconds += [update.seconds[part] for part in PARTS]
            played += num_envs * trainer.settings.n_steps
        else:
            played = 0
        if seconds.sum() > SECONDS:
            break
    trainer.close()
    shares = dict(zip(PARTS, (seconds / seconds.sum()).tolist(), strict=True))
    return {"env_steps_per_s": played / seconds.sum(), "shares": shares}


def main() -> None:
    lines = [
        "# Where the time of training goes",
        "",
        "| environment | copies | env steps/s | " + " | ".join(f"{p} %" for p in PARTS) + " |",
        "|---|--:|--:|" + "--:|" * len(PARTS),
    ]
    found: dict[str, Any] = {}
    for environment in ("arena_v0", "dfaas_v0"):
        for num_envs in COPIES:
            r = found[f"{environment}, {num_envs}"] = speed(environment, num_envs)
            shares = " | ".join(f"{100 * r['shares'][part]:.0f}" for part in PARTS)
            lines.append(f"| {environment} | {num_envs} | {r['env_steps_per_s']:,.0f} | {shares} |")
            print(lines[-1], file=sys.stderr)
    save("training_speed", "\n".join(lines), found, machine("torch"))


if __name__ == "__main__":
    main()
