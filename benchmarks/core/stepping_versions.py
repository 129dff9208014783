"""How fast Batch steps dfaas_v0 and arena_v0 in this version of corral and in another.

    OMP_NUM_THREADS=1 python benchmarks/core/stepping_versions.py --against OTHER/.venv/bin/python

64 and 1024 environments, observations built; one env step moves all agents of one environment. The
random legal actions of 100 steps are drawn beforehand, and then replayed from the same seed, so
that nothing but stepping is timed. The versions take turns in every round, each in a process of
its own; ratios are taken within a round. Seconds are those of the process on its core, so that
waiting for a busy machine does not count.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from alternating import alternate, quotients, serve, spread
from common import machine, save

from corral.adapters import make_batch

ROUNDS, STEPS, SEED = 5, 100, 0
SECONDS = 1.0  # per measurement
TASKS = {f"{game}, {n}": (game, n) for game in ("dfaas_v0", "arena_v0") for n in (64, 1024)}
OURS, OTHER = "this version", "other version"


def stepping(game: str, num_envs: int) -> Callable[[], float]:
    """Env steps per second of whichever corral is imported, this version or an older one."""
    known = inspect.signature(make_batch).parameters
    number = {"num_envs" if "num_envs" in known else "copies": num_envs}
    batch = make_batch(game, **number, seed=SEED)
    batch.reset(SEED)
    rng = np.random.default_rng(SEED)
    actions = []
    for _ in range(STEPS):
        actions.append(batch.sample_actions(rng))
        batch.step(actions[-1])

    def run() -> float:
        spent, played = 0.0, 0
        while spent < SECONDS:
            batch.reset(SEED)
            began = time.process_time()
            for action in actions:
                batch.step(action)
            spent += time.process_time() - began
            played += num_envs * STEPS
        return played / spent

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="PYTHON", help="interpreter of another version")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        serve({task: stepping(*given) for task, given in TASKS.items()})
        return
    if asked.against is None:
        parser.error("--against: give the interpreter that the other version is installed for")
    workers = {OURS: (sys.executable, "stepping"), OTHER: (asked.against, "stepping")}
    speeds, checkouts = alternate(workers, __file__, list(TASKS), ROUNDS)
    lines = [
        "# Stepping, this version and another",
        "",
        "| environment, how many | version | env steps/s, median | min | max |",
        "|---|---|--:|--:|--:|",
    ]
    lines += [
        f"| {task} | {name} | {spread(speeds[name][task], ',.0f')} |"
        for task in TASKS
        for name in workers
    ]
    ratios = {task: quotients(speeds[OURS][task], speeds[OTHER][task]) for task in TASKS}
    lines += [
        "",
        "| this / other version | median of the rounds | min | max |",
        "|---|--:|--:|--:|",
    ]
    lines += [f"| {task} | {spread(found, '.2f')} |" for task, found in ratios.items()]
    about = {
        **machine(),
        "OMP_NUM_THREADS": "1",  # of each contender
        "seed": SEED,
        "rounds": ROUNDS,
        **{name: checkouts[name] for name in workers},
    }
    data = {"env_steps_per_s": speeds, "ratios": ratios}
    save("stepping_versions", "\n".join(lines), data, about)


if __name__ == "__main__":
    main()
