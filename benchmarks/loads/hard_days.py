"""Late information and costs, on days never seen: in-house and SB3 teams, references, optimum.

    OMP_NUM_THREADS=1 python benchmarks/loads/hard_days.py [--runs FOLDER] [TEAM ...]

(About two hours. With a folder for the runs, those that are there are not trained again, so that
it can be stopped and started.)

The three nodes of an episode are three days of NASA's web server of July 1995 (requests per
minute), each turned by a random shift, so that their peaks meet at random. Every node can serve 60
requests a minute, 1.25 times the mean of the month. No second offer, forwarding costs 0.2, a queue
of 50, 20 requests per link and step, route "spare", reward "team". Every third day is held out:
teams learn on draws of the other 18 days, and are judged on 40 draws of those 9, in windows of 12
hours. Cost = lost + 0.2 forwarded, as a share of the arrivals. The optimum is a linear program that
knows each window beforehand; no policy need reach it.

"Now-casting" is no policy either: each step's spare is known to all senders as they choose, and
requests are placed by a dispatcher. It knows nothing of the future; what separates it from the rest
is the value of knowing the present.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import TRACES, machine, save
from reference_policies import HARD, seeds_table, table

import corral
from corral.data import Trace, import_series
from corral.envs.dfaas_v0.baselines import PAIRS
from corral.loads.replay import replay
from corral.loads.text import describe, ordered
from corral.trainers.evaluation.judge import players

SEEDS = (0, 1, 2, 3, 4)
STEPS = 400_000
DAY = 1440  # minutes
WINDOW = 720
CAPACITY = 60
DRAWS = {"learn": 120, "judge": 40}
SHARED: dict[str, Any] = {"gamma": 0.8, "gae_lambda": 0.8}
TEAMS: dict[str, dict[str, Any]] = {
    "mappo": {"trainer": "mappo", "num_envs": 64, **SHARED},
    "mappo with memory": {"trainer": "mappo", "num_envs": 64, "memory": 32, **SHARED},
    "ippo": {"trainer": "ippo", "num_envs": 64, **SHARED},
    "sb3_ppo": {
        "trainer": "sb3_ppo",
        "num_envs": 64,
        "batch_size": 1536,
        "learning_rate": 1e-3,
        **SHARED,
    },
}
MORE_PAIRS = [
    *(f"margin/{route}" for route in ("capacity", "shortest", "two")),
    "patient/spare",
    "patient-margin/equal",
]


def month() -> np.ndarray[Any, Any]:
    """Return requests per minute: int64 [days, 1440]."""
    path = TRACES / "nasa_http_1995" / "nasa_http_jul1995_per_minute.csv"
    load = import_series(path, zone="-04:00").trace.arrivals[:, 0]
    return load[: len(load) // DAY * DAY].reshape(-1, DAY)


def drawn(days: int, count: int, seed: int) -> list[tuple[list[int], list[int]]]:
    """Return ``count`` draws of three different days below ``days``, and a shift for each."""
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(count):
        chosen = rng.choice(days, 3, False).tolist()
        draws.append((chosen, [int(rng.integers(DAY)) for _ in chosen]))
    return draws


def joined(
    days: np.ndarray[Any, Any], draws: list[tuple[list[int], list[int]]]
) -> np.ndarray[Any, Any]:
    """Return days of three nodes, one after the other: int64 [draws * 1440, 3]."""
    turned = [
        np.stack([np.roll(days[day], shift) for day, shift in zip(chosen, shifts, strict=True)], 1)
        for chosen, shifts in draws
    ]
    return np.concatenate(turned)


def draws(days: np.ndarray[Any, Any], count: int, seed: int) -> np.ndarray[Any, Any]:
    """Return ``count`` drawn days of three nodes, one after the other: int64 [count * 1440, 3]."""
    return joined(days, drawn(len(days), count, seed))


def load() -> tuple[Trace, tuple[int, int]]:
    """Return the draws to learn from, then those to be judged on, and the rows of the latter."""
    days = month()
    assert round(1.25 * days.mean()) == CAPACITY
    held_out = np.arange(len(days)) % 3 == 2
    learned = draws(days[~held_out], DRAWS["learn"], seed=1)
    judged = draws(days[held_out], DRAWS["judge"], seed=2)
    both = np.concatenate([learned, judged])
    trace = Trace(
        nodes=("node_a", "node_b", "node_c"),
        arrivals=both,
        capacity=np.full_like(both, CAPACITY),
        times=np.arange(len(both)),
        name="nasa_days",
    )
    return trace, (len(learned), len(both))


def now_casting(arrivals: np.ndarray[Any, Any], keep: int) -> float:
    """Return the cost in %, where nodes keep up to ``keep`` waiting, a dispatcher places the rest.

    ``arrivals`` int64 [W, T, 3]: windows side by side.
    """
    queue = np.zeros((len(arrivals), 3), dtype=np.int64)
    lost = forwarded = 0
    for t in range(arrivals.shape[1]):
        work = queue + arrivals[:, t]
        spare = np.maximum(0, CAPACITY - work)
        wanted = np.clip(work - CAPACITY - keep, 0, arrivals[:, t])
        for sender in range(3):
            for step in (1, 2):
                other = (sender + step) % 3
                sent = np.minimum(np.minimum(wanted[:, sender], spare[:, other]), 20)
                wanted[:, sender] -= sent
                spare[:, other] -= sent
                work[:, sender] -= sent
                forwarded += int(sent.sum())
        left = np.maximum(0, work - CAPACITY)
        queue = np.minimum(left, 50)
        lost += int((left - queue).sum())
    return 100 * (lost + 0.2 * forwarded) / float(arrivals.sum())


def finished(folder: Path) -> bool:
    """Tell whether a run is there, and trained to its end."""
    if not (folder / "checkpoints" / "latest").exists():
        return False
    steps = int(corral.load_run(folder).progress["env_steps"].iloc[-1])
    return steps > STEPS - 20_000  # the last rollout that would exceed STEPS is not played


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=Path)
    parser.add_argument("teams", nargs="*", metavar="TEAM")
    args = parser.parse_args()
    wanted = args.teams or list(TEAMS)
    trace, rows = load()
    env_kwargs = {"trace": trace, "route": "spare", "reward": "team", "max_cycles": 240, **HARD}
    entries: dict[str, Any] = {pair: pair for pair in (*PAIRS, *MORE_PAIRS)}
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        runs = args.runs or Path(folder)
        for team in wanted:
            for seed in SEEDS:
                own = runs / f"{team}-{seed}"
                if not finished(own):
                    shutil.rmtree(own, ignore_errors=True)
                    corral.train(
                        "dfaas_v0",
                        steps=STEPS,
                        seed=seed,
                        env_kwargs=env_kwargs,
                        held_out=rows,
                        validation=0,
                        out=own,
                        **TEAMS[team],
                    )
                run = corral.load_run(own)
                label = f"{team} {seed}"
                seconds[label] = float(run.progress["wall_s"].iloc[-1])
                print(f"{label}: {seconds[label]:.0f} s", file=sys.stderr)
                entries |= {f"{label}, {player.mode}": player for player in players(run)}
        result = replay(
            trace,
            entries,
            rows=rows,
            window=WINDOW,
            optimum_windows=(rows[1] - rows[0]) // WINDOW,
            **HARD,
        )
    windows = trace.arrivals[slice(*rows)].reshape(-1, WINDOW, 3)
    costs = {keep: now_casting(windows, keep) for keep in (50, 40, 30, 20, 10, 0)}
    best = min(costs, key=costs.__getitem__)
    lines = [
        "# Days never seen, late information",
        "",
        f"{STEPS:,} env steps of training; the number behind a team is its seed.",
        "",
        *table(result),
        "",
        f"Now-casting, no policy: {costs[best]:.2f} % cost (keeping up to {best} waiting).",
        "",
        *seeds_table("team", result, seconds),
    ]
    lines += ["", *(f"{sentence}  " for sentence in describe(result))]
    data = {
        "settings": {**TEAMS, "steps": STEPS},
        "seconds": seconds,
        "now_casting": {str(keep): cost for keep, cost in costs.items()},
        "rows": [dataclasses.asdict(score) for score in ordered(result.scores)],
    }
    about = machine("torch", "stable-baselines3", "sb3-contrib", "scipy")
    save("hard_days", "\n".join(lines), data, about)


if __name__ == "__main__":
    main()
