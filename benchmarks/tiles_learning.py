"""tiles_v0, learned: accuracy and log-probability at equal values sent, beside reference teams.

    OMP_NUM_THREADS=1 python benchmarks/tiles_learning.py

Three seeds of mappo with the preset of tiles_v0, actor and critic of each agent separate. A raster
scan sends tile after tile at one level; the learned team is compared with the one whose values per
tile are nearest to its own (by ratio), at the values that the learned team sends on average.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np
from common import RESULTS, machine, save, temporary_run
from tiles_curves import HEAD, Known, as_values, chart, play, row

from corral.envs.tiles_v0 import TilesRules
from corral.envs.tiles_v0.baselines import teams_of, tiles_team
from corral.envs.tiles_v0.templates import VALUES

SEEDS = (0, 1, 2)
STEPS = 200_000
EPISODES = 2048
SEED = 1000  # of the episodes that judge: none is one of training's


def nearest_level(known: Known) -> int:
    return int(np.argmin([abs(math.log(known.per_tile / values)) for values in VALUES]))


def main() -> None:
    rules = TilesRules(illegal="raise")
    teams = {"random": tiles_team("random", rules), **teams_of(rules)}
    known = {name: play(rules, team, episodes=EPISODES, seed=SEED) for name, team in teams.items()}
    learned: dict[str, Known] = {}
    curves, seconds = {}, []
    for seed in SEEDS:
        wall, began = time.perf_counter(), time.process_time()
        training = temporary_run(
            "tiles_v0", trainer="mappo", policies="separate", steps=STEPS, seed=seed
        )
        with training as run:
            seconds.append((time.process_time() - began, time.perf_counter() - wall))
            progress = run.progress
            keys = ["env_steps", "return_team", "kpi_values", "kpi_correct"]
            curves[seed] = progress[keys].round(4).to_dict("list")
            for mode in ("greedy", "sampled"):
                learned[f"seed {seed}, {mode}"] = play(
                    rules,
                    run.policies,
                    episodes=EPISODES,
                    seed=SEED,
                    deterministic=mode == "greedy",
                )
        print(row(f"seed {seed}", learned[f"seed {seed}, greedy"]), file=sys.stderr, flush=True)

    lines = [f"# tiles_v0 learned in {STEPS:,} env steps", ""]
    lines += [f"{EPISODES} episodes each, 95 % interval of what is right.", "", *HEAD]
    lines += [row(f"mappo, {name}", each) for name, each in learned.items()]
    lines += [row(name, each) for name, each in known.items()]
    lines += [
        "",
        "At the values that the learned team sends on average, the raster scan whose values per "
        "tile are nearest:",
        "",
        "| team | values | values per tile | right, % | log P | raster | right, % | log P |",
        "|---|--:|--:|--:|--:|---|--:|--:|",
    ]
    equal: dict[str, Any] = {}
    for name, each in learned.items():
        level = nearest_level(each)
        (right, log), (theirs, their_log) = (
            each.at(each.values),
            known[f"raster-{level}"].at(each.values),
        )
        equal[name] = {"raster": level, "right": [right, theirs], "log": [log, their_log]}
        lines.append(
            f"| mappo, {name} | {each.values:.1f} | {each.per_tile:.1f} | {100 * right:.1f} "
            f"| {log:.3f} | raster-{level} | {100 * theirs:.1f} | {their_log:.3f} |"
        )
    cpu, wall = np.mean(seconds, axis=0)
    lines += ["", f"A training takes {cpu:.0f} s of processor time ({wall:.0f} s by the clock)."]
    lines += ["", "![share right against values sent](tiles_learning.svg)"]
    best = {"learned": learned[f"seed {SEEDS[0]}, greedy"], **known}
    title = "tiles_v0: what is known after so many values"
    (RESULTS / "tiles_learning.svg").write_text(chart(best, title))
    found = {
        "learned": {name: as_values(each) for name, each in learned.items()},
        "references": {name: as_values(each) for name, each in known.items()},
        "at_equal_values": equal,
        "progress": curves,
        "seconds": seconds,
    }
    save("tiles_learning", "\n".join(lines), found, machine("torch", "gymnasium", "pettingzoo"))


if __name__ == "__main__":
    main()
