"""Defaults by the kind of game, before and after, in games of others and in our own.

    pip install --no-deps rlcard termcolor
    OMP_NUM_THREADS=1 python benchmarks/core/kinds.py [--seeds N] [--only TEXT]

Before: the trainer's own settings, and what was once said of an environment by its name. After: the
defaults as they are. A game of two in turn is judged by the games that greedy play loses against
uniformly random play, 1,000 in each seat; a team by the sum of its returns while learning, mean of
the last 100 episodes. Where both settings are equal, so are all numbers, and one line says so.

Every run is added to results/kinds.json when it is done; one that is there is not done again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save, temporary_run

from corral.adapters.seats import random_policy
from corral.adapters.sources import rules_of
from corral.trainers.base import trainer_class
from corral.trainers.evaluation.zero_sum import evaluate_seat
from corral.trainers.kinds import defaults_for

EPISODES = 1000
MARK = 20.9
"""Of arena_v0: what its own benchmark reaches."""


@dataclass(frozen=True)
class Game:
    env: str
    steps: int
    before: dict[str, Any]


GAMES = (
    Game("classic/connect_four-v3", 200_000, {}),
    Game("classic/tictactoe-v3", 65_536, {}),
    Game("classic/leduc_holdem-v4", 65_536, {}),
    Game("arena_v0", 61_440, {}),
    Game("dfaas_v0", 60_000, {"gamma": 0.5}),
    Game(
        "tictactoe_v0",
        200_000,
        {
            **{"num_envs": 256, "n_steps": 32, "gamma": 1.0},
            **{"ent_coef": 0.3, "ent_coef_end": 0.1, "net_arch": (128, 128)},
        },
    ),
    Game(
        "tiles_v0",
        200_000,
        {
            **{"num_envs": 64, "n_steps": 32, "n_minibatches": 4, "gamma": 0.95},
            **{"ent_coef": 0.01, "ent_coef_end": 0.0, "cnn_arch": (8, 16), "cnn_patch": 8},
        },
    ),
    Game("rps_v0", 16_000, {}),
    Game("two_step_v0", 16_000, {}),
    Game("mpe2.simple_spread_v3", 100_000, {}),
)


def played(game: Game, which: str, seed: int) -> dict[str, Any]:
    """Train, and judge what was learned."""
    given: dict[str, Any] = {"preset": "auto"}
    if which == "before":
        given = {"preset": "none", **game.before}
    began = time.process_time()
    training = temporary_run(
        game.env, trainer="mappo", steps=game.steps, seed=seed, progress=False, **given
    )
    with training as run:
        found = {"cpu_s": time.process_time() - began, **run.config.defaults}
        progress = run.progress
        found["env_steps"] = int(progress["env_steps"].iloc[-1])
        rules, agents = run.config.env_config.rules(), run.config.env_config.rules().agents
        full = progress[progress["episodes"] >= 100]
        found["return_team"] = float(full["return_team"].iloc[-1])
        passed = full[full["return_team"] >= MARK]
        found["passed"] = None if passed.empty else int(passed["env_steps"].iloc[0])
        if (found["kind"] or {"in_turn": not rules.simultaneous})["in_turn"]:
            for seat, other in (agents, agents[::-1]):
                score = evaluate_seat(
                    rules,
                    seat,
                    run.policies[seat],
                    random_policy(rules.action_space(other)),
                    episodes=EPISODES,
                    num_envs=100,
                )
                found[seat] = {"lost": score.lost, "won": score.won, "return": score.return_seat}
    return found


def line(game: Game, which: str, runs: list[dict[str, Any]]) -> str:
    """Return a row of the table: one figure for each seed."""
    seats = [key for key in runs[0] if isinstance(runs[0][key], dict) and "lost" in runs[0][key]]
    if seats:
        cells = []
        for seat in seats:
            lost = ", ".join(f"{100 * run[seat]['lost']:.1f}" for run in runs)
            earned = ", ".join(f"{run[seat]['return']:.2f}" for run in runs)
            cells.append(f"{lost} % lost, return {earned}")
    else:
        returns = ", ".join(f"{run['return_team']:.1f}" for run in runs)
        marks = ", ".join(f"{run['passed']:,}" if run["passed"] else "never" for run in runs)
        cells = [f"return {returns}", f"{MARK} at {marks}"]
    seconds = statistics.mean(run["cpu_s"] for run in runs)
    settings = ", ".join(f"{k}={v}" for k, v in runs[0]["settings"].items())
    given = "the trainer's own" if which == "before" else settings
    row = [game.env, which, f"{runs[0]['env_steps']:,}", *cells, f"{seconds:.0f}", given]
    return f"| {' | '.join(row)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=2, help="how many, from 0 on")
    parser.add_argument("--only", default="", metavar="TEXT", help="games with TEXT in their name")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "kinds.json"
    lines = [
        "# Defaults by the kind of game, before and after",
        "",
        f"mappo; one figure for each seed. Games lost of {EPISODES:,} against random play, greedy, "
        f"in each seat; of arena_v0 the sum of both returns, and env steps until it was {MARK}.",
        "",
        "| game | defaults | env steps | first seat, or return | second seat, or mark "
        "| processor s | settings |",
        "|---|---|--:|---|---|--:|---|",
    ]
    about = machine("torch", "pettingzoo")
    for game in GAMES:
        try:
            rules = rules_of(game.env)
        except ImportError as error:
            print(f"{game.env}: left out, {error}", file=sys.stderr)
            continue
        now = defaults_for(rules, trainer_class("mappo"), seed=0)
        if now.given() == game.before:
            lines.append(f"| {game.env} | the same settings | | | | | {', '.join(now.names)} |")
            continue
        for seed in range(options.seeds if options.only in game.env else 0):
            for which in ("before", "after"):
                key = f"{game.env}, {game.steps}, {which}, seed {seed}"
                if key not in kept_in(file):
                    found = {**played(game, which, seed), "about": about}
                    print(key, found, file=sys.stderr)
                    runs = {**kept_in(file), key: found}  # of another process, too
                    file.write_text(json.dumps({"about": about, "runs": runs}, indent=1) + "\n")
        for which in ("before", "after"):
            start = f"{game.env}, {game.steps}, {which},"
            kept = sorted(kept_in(file).items())
            if done := [run for key, run in kept if key.startswith(start)]:
                lines.append(line(game, which, done))
    save("kinds", "\n".join(lines), {"runs": kept_in(file)}, about)


def kept_in(file: Path) -> dict[str, Any]:
    """Return the runs that are done."""
    return dict(json.loads(file.read_text())["runs"]) if file.exists() else {}


if __name__ == "__main__":
    main()
