"""How much reference teams of tiles_v0 know after so many values, as a table and a picture.

OMP_NUM_THREADS=1 python benchmarks/core/tiles_accuracy.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save
from tiles_curves import HEAD, as_values, chart, play, row

from corral.envs.tiles_v0 import TilesRules
from corral.envs.tiles_v0.baselines import Greedy, teams_of, tiles_team

EPISODES = 4096
SEED = 1000
PRICES = (0.002, 0.005, 0.02)  # besides greedy's own, 0.01


def main() -> None:
    rules = TilesRules(illegal="raise")
    teams = {"random": tiles_team("random", rules), **teams_of(rules)}
    began = time.process_time()
    known = {name: play(rules, team, episodes=EPISODES, seed=SEED) for name, team in teams.items()}
    prices = {
        f"greedy, price {price}": play(
            rules, dict.fromkeys(rules.agents, Greedy(rules, price)), episodes=EPISODES, seed=SEED
        )
        for price in PRICES
    }
    lines = [f"# Reference teams of tiles_v0, {EPISODES} episodes each", "", *HEAD]
    lines += [row(name, each) for name, each in {**known, **prices}.items()]
    lines += ["", f"All in {time.process_time() - began:.0f} s of processor time."]
    lines += ["", "![share right against values sent](tiles_accuracy.svg)"]
    title = "tiles_v0: what reference teams know after so many values"
    (RESULTS / "tiles_accuracy.svg").write_text(chart(known, title))
    found = {name: as_values(each) for name, each in {**known, **prices}.items()}
    save("tiles_accuracy", "\n".join(lines), found, machine("gymnasium", "pettingzoo"))


if __name__ == "__main__":
    main()
