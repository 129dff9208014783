"""leduc_holdem_v4: plain self-play beside a pool of snapshots, and duels between them.

    pip install --no-deps rlcard termcolor
    OMP_NUM_THREADS=1 python benchmarks/core/leduc_pool.py [--steps N] [--seeds N] [--only NAME ...]
        [--minutes M] [--folder DIR]

Poker is played by chance: actions are sampled. A return is what a hand wins, mean of both seats,
with a 95 % interval over hands. Each run plays random play, its own half of training, and the runs
of the other contestant with every seed. Trainings go on where they were broken off; what is in
results/leduc_pool.json is not played again.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save
from ladder import half_of, kept, options, trained

from corral.adapters.sources import rules_of
from corral.envs.policy import RandomPolicy
from corral.trainers.evaluation.episodes import bootstrap_ratio, play_episodes

ENV = "classic/leduc_holdem-v4"
STEPS = 40_960
HANDS = 2000  # in each seat
PLAIN = {"num_envs": 64, "n_steps": 32, "ent_coef": 0.1, "ent_coef_end": 0.03}
LEARNERS = {
    "mappo": PLAIN,
    "mappo, pool": {**PLAIN, "self_play": "past=0.3,every=4096,keep=20,draw=pfsp,best=0"},
}


def duel(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[float]:
    """Return the mean of what a hand wins ``first`` in both seats, and its interval."""
    rules = rules_of(ENV)
    won = []
    for seat, other in (rules.agents, rules.agents[::-1]):
        team = {seat: first[seat], other: second[other]}
        played, _ = play_episodes(
            rules, team, dict.fromkeys(rules.agents, False), episodes=HANDS, num_envs=100
        )
        won.append(played.returns[:, rules.agents.index(seat)])
    returns = np.concatenate(won)
    low, high = bootstrap_ratio(returns, np.ones(len(returns)))
    assert low is not None
    assert high is not None
    return [float(returns.mean()), low, high]


def table(duels: Mapping[str, Any]) -> str:
    """Return a row for every duel."""
    lines = [
        "# leduc_holdem_v4: with and without a pool",
        "",
        f"What a hand wins, mean of {2 * HANDS:,} hands in both seats, and its 95 % interval. "
        "Actions are sampled.",
        "",
        "| who | against | env steps | a hand wins |",
        "|---|---|--:|---|",
    ]
    for key, (mean, low, high) in duels.items():
        who, against, steps = key.split("|")
        lines.append(
            f"| {who} | {against} | {int(steps):,} | {mean:+.2f} ({low:+.2f} to {high:+.2f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = options(__doc__)
    parser.set_defaults(steps=STEPS)
    asked = parser.parse_args()
    deadline = time.monotonic() + 60 * asked.minutes
    torch.set_num_threads(1)
    duels = kept(RESULTS / "leduc_pool.json")
    teams: dict[str, Any] = {}
    for seed, (name, given) in itertools.product(range(asked.seeds), LEARNERS.items()):
        if name not in (asked.only or LEARNERS):
            continue
        folder = asked.folder / f"leduc-{name.replace(', ', '-')}-{asked.steps}-{seed}"
        run = trained(ENV, given, seed, asked.steps, folder, deadline)
        if run is None:
            print(f"{name}, seed {seed}: broken off; the same command goes on", file=sys.stderr)
            break
        teams[f"{name}/{seed}"] = run.policies
        rungs = {"random": dict.fromkeys(run.policies, RandomPolicy())}
        if half := half_of(ENV, folder, asked.steps):
            rungs["its own half"] = half.policies
        for rung, opponent in rungs.items():
            if (key := f"{name}, seed {seed}|{rung}|{asked.steps}") not in duels:
                duels[key] = duel(run.policies, opponent)
    for first, second in itertools.permutations(teams, 2):
        if first.split("/")[0] > second.split("/")[0]:  # the pool's against the others
            key = f"{', seed '.join(first.split('/'))}|{', seed '.join(second.split('/'))}"
            if (key := f"{key}|{asked.steps}") not in duels:
                duels[key] = duel(teams[first], teams[second])
    save("leduc_pool", table(duels), {"runs": duels}, machine("torch", "pettingzoo", "rlcard"))


if __name__ == "__main__":
    main()
