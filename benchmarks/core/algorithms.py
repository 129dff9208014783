"""The in-house algorithms: the exact answers of the probes, and two games beside mappo.

    OMP_NUM_THREADS=1 python benchmarks/core/algorithms.py                # both parts
    OMP_NUM_THREADS=1 python benchmarks/core/algorithms.py --part probes  # or games

**Probes.** Each algorithm learns P1 - P7 and P9 - P13 (tests/trainers/on_policy/test_algorithms.py
says why these) within the probe's budget; a cell counts the seeds whose answer came out: all values
within the probe's tolerance, all best actions with a probability of 0.9 or more.

**Games.** dfaas_v0 and arena_v0 with their defaults and each trainer's own. A cell is the mean
return of the team over the last 100 episodes of training, actions sampled: the median of the seeds,
with the least and the greatest; and the CPU seconds of a run.

Each finished run is kept in results/algorithms.json at once: a benchmark that was cut off goes on
where it was. ``--fresh`` begins anew.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save, temporary_run

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from corral import algorithms
from corral.envs.probes import PROBES
from corral.trainers.base import trainer_class
from support.probing import learn, misses

NAMES = ("mappo", "ippo", "ppo_kl", "a2c", "pg", "pg_episode")
ONE_STEP = ("a2c", "pg", "pg_episode")
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)
SEPARATE = {"agent_0": "agent_0", "agent_1": "agent_1"}
BUDGETS: dict[int, dict[str, Any]] = {
    5: {"policies": SEPARATE},
    9: {"steps": 25_000},
    10: {"steps": 10_000},
    11: {"policies": SEPARATE},
}
GAMES = {"dfaas_v0": 200_000, "arena_v0": 300_000}
Runs = dict[str, Any]


def probe(name: str, number: int, seed: int) -> dict[str, Any]:
    """Learn a probe; return what is not as it must be, and the CPU seconds."""
    trainer = algorithms.trainer_of(getattr(algorithms, name))
    rules = PROBES[f"probe_p{number:02}_v0"](illegal="raise")
    given: dict[str, Any] = dict(BUDGETS.get(number, {}))
    if name in ONE_STEP:  # short rollouts, more of them
        steps = 4 if number in (9, 10) else 2
        given |= {"n_steps": steps, "num_envs": 64 // steps, "learning_rate": 0.01}
    began = time.process_time()
    learned = learn(rules, trainer, seed=seed, **given)
    return {"misses": misses(learned.trainer, rules), "seconds": time.process_time() - began}


def game(name: str, env: str, steps: int, seed: int) -> dict[str, Any]:
    """Train; return the team's mean return at a quarter, half and the end, and the CPU seconds."""
    trainer_class(name)  # what it imports is not its time
    began = time.process_time()
    with temporary_run(env, trainer=name, steps=steps, seed=seed, progress=False) as run:
        returns = run.progress["return_team"]
        curve = [float(returns.iloc[at]) for at in (len(returns) // 4, len(returns) // 2, -1)]
    return {"returns": curve, "seconds": time.process_time() - began}


def table(runs: Runs) -> str:
    """Return what is known so far, as Markdown."""
    lines = ["# Algorithms", "", "Seeds whose answer came out, of those played.", ""]
    lines += [f"| algorithm | {' | '.join(f'P{n}' for n in NUMBERS)} | CPU s, all |"]
    lines += ["|---|" + "--:|" * (len(NUMBERS) + 1)]
    for name in NAMES:
        own = [_of(runs, name, f"P{n}") for n in NUMBERS]
        right = [f"{sum(not r['misses'] for r in cell)} of {len(cell)}" for cell in own]
        seconds = sum(r["seconds"] for cell in own for r in cell)
        lines.append(f"| {name} | {' | '.join(right)} | {seconds:.0f} |")
    lines += ["", "The team's mean return, median of the seeds (least to greatest).", ""]
    heads = [f"{env}, {steps:,} env steps | CPU s" for env, steps in GAMES.items()]
    lines += [f"| trainer | {' | '.join(heads)} |", "|---|" + "--:|" * 2 * len(GAMES)]
    for name in NAMES:
        cells = []
        for env in GAMES:
            played = _of(runs, name, env)
            last = sorted(each["returns"][-1] for each in played)
            if not last:
                cells.append(" | ")
                continue
            spread = f"{statistics.median(last):.1f} ({last[0]:.1f} to {last[-1]:.1f})"
            cells.append(f"{spread} | {statistics.median(r['seconds'] for r in played):.0f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _of(runs: Runs, name: str, what: str) -> list[dict[str, Any]]:
    return [each for key, each in runs.items() if key.startswith(f"{name} {what} ")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=("probes", "games", "all"), default="all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="env steps of a game; default: of each its own")
    parser.add_argument("--fresh", action="store_true", help="forget the runs that are kept")
    given = parser.parse_args()
    kept = RESULTS / "algorithms.json"
    runs: Runs = {}
    if kept.exists() and not given.fresh:
        runs = json.loads(kept.read_text())["runs"]
    about = machine("torch", "gymnasium", "pettingzoo")
    plan: list[tuple[str, str, int]] = []
    for seed in range(given.seeds):
        if given.part != "games":
            plan += [(name, f"P{number}", seed) for name in NAMES for number in NUMBERS]
        if given.part != "probes":
            plan += [(name, env, seed) for name in NAMES for env in GAMES]
    for name, what, seed in plan:
        key = f"{name} {what} {seed}"
        if key in runs:
            continue
        if what in GAMES:
            runs[key] = game(name, what, given.steps or GAMES[what], seed)
        else:
            runs[key] = probe(name, int(what[1:]), seed)
        print(key, runs[key], file=sys.stderr)
        kept.write_text(json.dumps({"about": about, "runs": runs}, indent=1) + "\n")
    save("algorithms", table(runs), {"runs": runs}, about)


if __name__ == "__main__":
    main()
