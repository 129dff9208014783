"""Cloning: how far networks agree with their teachers, and what a clone is worth as a start.

    OMP_NUM_THREADS=1 python benchmarks/core/cloning.py teachers
    OMP_NUM_THREADS=1 python benchmarks/core/cloning.py hard [--seeds 0,1,2,3,4] [--steps 204800]

``teachers`` clones three reference teams and compares decisions on held-out rows, or on seeds not
cloned from; seconds are of the processor (time.process_time), all of cloning and comparing.

``hard`` is the setting of ``hard_setting.py``. For each seed mappo learns from nothing, and from a
clone of margin/spare; the env steps of the clone are taken off those of the second, so that both
played the same number. Teams are judged on the days held out, as cost = lost + 0.2 forwarded, a
share of the arrivals. Each run is appended to results/cloning_hard.json as it ends: a call that was
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save

import corral
from corral.loads.replay import replay
from corral.trainers.cloning.driver import cloned
from corral.trainers.evaluation.judge import players

CLONED: dict[str, tuple[str, int, dict[str, Any]]] = {
    "dfaas_v0": ("overflow/equal", 30_000, {}),
    "tictactoe_v0": ("perfect", 30_000, {}),
    "tiles_v0": (
        "greedy",
        100_000,
        {"n_epochs": 4},
    ),
}
"""Environment -> teacher, env steps, settings that are not the defaults."""
EPISODES = {"tictactoe_v0": 1000, "tiles_v0": 500}
SEEDS = (0, 1, 2)

TEACHER = "margin/spare"
ROLLOUT = 2048  # num_envs x n_steps: all are played in whole ones
HARD_STEPS = 100 * ROLLOUT
HARD_SETTINGS: dict[str, Any] = {
    "gamma": 0.7,
    "gae_lambda": 0.8,
    "learning_rate": 1e-3,
    "net_arch": (128, 128),
}
CLONE_SETTINGS = HARD_SETTINGS | {
    "learning_rate": 5e-3,
    "n_epochs": 8,
    "smoothing": 2.0,
    "agent_id": True,
}


# --- Agreement -----------------------------------------------------------------------------------


def teachers(wanted: list[str]) -> None:
    place = RESULTS / "cloning.json"  # rows of other environments stay
    kept = json.loads(place.read_text())["rows"] if place.exists() else []
    rows = [row for row in kept if row["env"] not in (wanted or CLONED)]
    for env in wanted or CLONED:
        teacher, steps, settings = CLONED[env]
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                began = time.process_time()
                _, found = cloned(
                    env,
                    teacher,
                    steps,
                    None,
                    EPISODES.get(env, 64),
                    seed=seed,
                    out=Path(folder) / "run",
                    progress=False,
                    **settings,
                )
                seconds = time.process_time() - began
            whole = found.rows[-1]
            row = {"env": env, "teacher": teacher, "steps": steps, "seed": seed}
            rows.append(row | {"cpu_s": seconds, "unit": found.unit, **vars(whole)})
            print(f"{env} {seed}: {100 * whole.share:.2f} %, {seconds:.1f} s", file=sys.stderr)
    lines = [
        "# Agreement with a teacher",
        "",
        "| environment | teacher | seed | env steps | decisions compared | agree, % "
        "| 95 % interval | mean difference | CPU, s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        low, high = row["interval"]
        apart = "" if row["difference"] is None else f"{row['difference']:.3f} {row['unit']}"
        lines.append(
            f"| {row['env']} | {row['teacher']} | {row['seed']} | {row['steps']:,} "
            f"| {row['decisions']:,} | {100 * row['share']:.2f} "
            f"| {100 * low:.2f} to {100 * high:.2f} | {apart} | {row['cpu_s']:.1f} |"
        )
    save("cloning", "\n".join(lines), {"rows": rows}, machine("torch"))


# --- A clone as a start --------------------------------------------------------------------------


def hard(seeds: list[int], steps: int) -> None:
    from reference_policies import HARD, nasa_nodes

    steps = max(5, steps // ROLLOUT) * ROLLOUT

    place = RESULTS / "cloning_hard.json"
    rows: list[dict[str, Any]] = json.loads(place.read_text())["rows"] if place.exists() else []
    trace = nasa_nodes()
    env_kwargs = {"trace": trace, "capacity": "1.25x", "route": "spare", **HARD}

    def played(label: str, seed: int, entries: dict[str, Any], run: Any, seconds: float) -> None:
        scores = replay(
            trace,
            entries,
            rows=run.config.env_config.held_out["rows"],
            capacity="1.25x",
            optimum_windows=0,
            **HARD,
        ).scores
        for score in scores:
            row = {"start": label, "seed": seed, "steps": steps, "policy": score.policy}
            rows.append(row | {"mode": score.mode, "cost": score.cost, "cpu_s": seconds})
        RESULTS.mkdir(exist_ok=True)
        place.write_text(json.dumps({"about": machine("torch"), "rows": rows}, indent=1) + "\n")

    def done(label: str, seed: int) -> bool:
        return any((r["start"], r["seed"], r["steps"]) == (label, seed, steps) for r in rows)

    clone_steps = steps // ROLLOUT // 5 * ROLLOUT
    for seed in seeds:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            common: dict[str, Any] = {"seed": seed, "env_kwargs": env_kwargs, "progress": False}
            if not done("nothing", seed):
                began = time.process_time()
                run = corral.train(
                    "dfaas_v0", steps=steps, out=folder / "nothing", **common, **HARD_SETTINGS
                )
                entries = {f"mappo, {player.mode}": player for player in players(run)}
                played("nothing", seed, entries, run, time.process_time() - began)
            if done("clone", seed):
                continue
            began = time.process_time()
            clone = corral.clone(
                "dfaas_v0",
                TEACHER,
                steps=clone_steps,
                out=folder / "clone",
                **common,
                **CLONE_SETTINGS,
            )
            spent = time.process_time() - began
            entries = {f"clone, {player.mode}": player for player in players(clone)}
            played("the clone alone", seed, {**entries, TEACHER: TEACHER}, clone, spent)
            run = corral.train(
                "dfaas_v0",
                steps=steps - clone_steps,
                init=clone.folder,
                out=folder / "from_clone",
                **common,
                **HARD_SETTINGS,
            )
            entries = {f"mappo, {player.mode}": player for player in players(run)}
            played("clone", seed, entries, run, time.process_time() - began)
    lines = [
        "# A clone as a start, in the hard setting",
        "",
        f"{steps:,} env steps each, those of the clone among them.",
        "",
        "| start | policy | mode | seeds | cost %, mean | least to most | CPU, s |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    own = [row for row in rows if row["steps"] == steps]
    for key in dict.fromkeys((row["start"], row["policy"], row["mode"]) for row in own):
        found = [row for row in own if (row["start"], row["policy"], row["mode"]) == key]
        costs = [100 * row["cost"] for row in found]
        seconds = statistics.mean(row["cpu_s"] for row in found)
        lines.append(
            f"| {' | '.join(key)} | {len(found)} | {statistics.mean(costs):.3f} "
            f"| {min(costs):.3f} to {max(costs):.3f} | {seconds:.0f} |"
        )
    save("cloning_hard", "\n".join(lines), {"rows": rows}, machine("torch"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("teachers", "hard"))
    parser.add_argument("envs", nargs="*", help="of teachers: some of the environments")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--steps", type=int, default=HARD_STEPS)
    given = parser.parse_args()
    if given.what == "teachers":
        teachers(given.envs)
    else:
        hard([int(seed) for seed in given.seeds.split(",")], given.steps)


if __name__ == "__main__":
    main()
