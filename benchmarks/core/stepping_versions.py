"""How fast environments are stepped in this version of corral and in another.

    OMP_NUM_THREADS=1 python benchmarks/core/stepping_versions.py --against OTHER/.venv/bin/python
        [--third-party] [--rounds N]

64 and 1024 environments of dfaas_v0 and arena_v0, observations built; one env step moves all agents
of one environment. With --third-party 16 environments of PettingZoo's and MPE2's games, and whole
trainings of some by mappo. The random legal actions of 100 steps are drawn beforehand, and then
replayed from the same seed, so that nothing but stepping is timed. The versions take turns in every
round, each in a process of its own; ratios are taken within a round. Seconds are those of the
process on its core, so that waiting for a busy machine does not count.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from alternating import alternate, quotients, serve, spread
from common import machine, save

import corral
from corral.adapters import make_batch

STEPS, SEED = 100, 0
SECONDS = 1.0  # per measurement
OWN = ("dfaas_v0", "arena_v0")
THIRD_PARTY = (
    *("classic/connect_four-v3", "classic/tictactoe-v3", "classic/rps-v2"),
    *("mpe2.simple_speaker_listener_v4", "mpe2.simple_spread_v3"),
)
TRAINED = ("mpe2.simple_speaker_listener_v4", "mpe2.simple_spread_v3")
STEPS_OF_TRAINING = 8_192
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


def training(game: str) -> Callable[[], float]:
    """Env steps per second of a whole training by mappo, with evaluation of the kind of game."""

    def run() -> float:
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            corral.train(
                game,
                trainer="mappo",
                steps=STEPS_OF_TRAINING,
                seed=SEED,
                out=f"{folder}/run",
                progress=False,
            )
            return STEPS_OF_TRAINING / (time.process_time() - began)

    return run


def tasks_of(worker: str) -> dict[str, Callable[[], float]]:
    if worker == "own":
        return {f"{game}, {n}": stepping(game, n) for game in OWN for n in (64, 1024)}
    return {
        **{f"{game}, 16": stepping(game, 16) for game in THIRD_PARTY},
        **{f"{game}, mappo": training(game) for game in TRAINED},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="PYTHON", help="interpreter of another version")
    parser.add_argument("--third-party", action="store_true", help="games of PettingZoo and MPE2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        serve(tasks_of(asked.worker))
        return
    if asked.against is None:
        parser.error("--against: give the interpreter that the other version is installed for")
    worker = "third_party" if asked.third_party else "own"
    workers = {OURS: (sys.executable, worker), OTHER: (asked.against, worker)}
    tasks = list(tasks_of(worker))
    speeds, checkouts = alternate(workers, __file__, tasks, asked.rounds)
    lines = [
        "# Stepping, this version and another",
        "",
        "| environment, how many | version | env steps/s, median | min | max |",
        "|---|---|--:|--:|--:|",
    ]
    lines += [
        f"| {task} | {name} | {spread(speeds[name][task], ',.0f')} |"
        for task in tasks
        for name in workers
    ]
    ratios = {task: quotients(speeds[OURS][task], speeds[OTHER][task]) for task in tasks}
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
        "rounds": asked.rounds,
        **{name: checkouts[name] for name in workers},
    }
    data = {"env_steps_per_s": speeds, "ratios": ratios}
    save(
        "stepping_third_party" if asked.third_party else "stepping_versions",
        "\n".join(lines),
        data,
        about,
    )


if __name__ == "__main__":
    main()
