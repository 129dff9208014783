"""tictactoe_v0 by self-play, and rps_v0 against players that give themselves away.

    OMP_NUM_THREADS=1 python benchmarks/games_learning.py

Three seeds each of mappo, all on one thread. In tictactoe_v0 one policy plays both seats and learns
from both; in rps_v0 player_0 learns while a reference player plays player_1. Judged is the greedy
policy over 1,000 episodes against each reference player: all games of tictactoe_v0, and the rounds
of rps_v0.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from common import machine, save, temporary_run

from corral.envs import make_rules
from corral.envs.reference import reference_player
from corral.trainers.evaluation.zero_sum import SeatScore, evaluate_seat

SEEDS = (0, 1, 2)
EPISODES = 1000
TICTACTOE_STEPS, RPS_STEPS = 600_000, 16_000
HEURISTICS = ("beat-last", "copy-last", "always-same")
BEST = {"beat-last": 1.0, "copy-last": 1.0, "always-same": 0.9 + 0.1 / 3}
"""The share of rounds that the best reply wins; always-same draws a move that nobody knows yet."""


def learned(env: str, **settings: Any) -> tuple[Any, float]:
    """Return the policies of a run, and the processor's seconds that it took."""
    began = time.process_time()
    with temporary_run(env, trainer="mappo", **settings) as run:
        return run.policies, time.process_time() - began


def judged(env: str, policies: Any, seat: str, other: str, opponent: str) -> SeatScore:
    rules = make_rules(env, illegal="raise")
    player = reference_player(opponent, rules, other)
    return evaluate_seat(rules, seat, policies[seat], player, episodes=EPISODES, num_envs=500)


def tictactoe() -> tuple[list[str], dict[str, Any]]:
    lines = [
        f"## tictactoe_v0, self-play, {TICTACTOE_STEPS:,} env steps",
        "",
        f"Won/drawn/lost of {EPISODES:,} games, greedy.",
        "",
        "| seed | player_1 against random | against perfect | player_2 against random "
        "| against perfect | processor s |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    found: dict[str, Any] = {}
    for seed in SEEDS:
        policies, seconds = learned("tictactoe_v0", steps=TICTACTOE_STEPS, seed=seed)
        cells, own = [], {}
        for seat, other in (("player_1", "player_2"), ("player_2", "player_1")):
            for opponent in ("random", "perfect"):
                score = judged("tictactoe_v0", policies, seat, other, opponent)
                shares = (score.won, score.drawn, score.lost)
                counts = [round(share * EPISODES) for share in shares]
                cells.append("/".join(map(str, counts)))
                own[f"{seat}, {opponent}"] = counts
        lines.append(f"| {seed} | {' | '.join(cells)} | {seconds:.0f} |")
        print(lines[-1], file=sys.stderr)
        found[str(seed)] = {**own, "s": seconds}
    return lines, found


def rps() -> tuple[list[str], dict[str, Any]]:
    lines = [
        f"## rps_v0, against a reference player, {RPS_STEPS:,} env steps",
        "",
        f"Rounds won by player_0, % of {10 * EPISODES:,}, greedy.",
        "",
        "| player_1 | "
        + " | ".join(f"seed {seed}" for seed in SEEDS)
        + " | the best reply, expected "
        "| processor s, mean |",
        "|---|" + "--:|" * (len(SEEDS) + 2),
    ]
    found: dict[str, Any] = {}
    for name in HEURISTICS:
        shares, spent = [], []
        for seed in SEEDS:
            policies, seconds = learned(
                "rps_v0", steps=RPS_STEPS, seed=seed, opponents={"player_1": name}
            )
            score = judged("rps_v0", policies, "player_0", "player_1", name)
            shares.append(score.kpis["won"] / 10)
            spent.append(seconds)
        cells = " | ".join(f"{100 * share:.2f}" for share in shares)
        mean = sum(spent) / len(spent)
        lines.append(f"| {name} | {cells} | {100 * BEST[name]:.2f} | {mean:.0f} |")
        print(lines[-1], file=sys.stderr)
        found[name] = {"won": shares, "s": spent}
    return lines, found


def main() -> None:
    torch.set_num_threads(1)
    second, rounds = rps()
    first, games = tictactoe()
    text = "\n".join(["# Games, learned", "", *first, "", *second])
    about = machine("torch", "gymnasium", "pettingzoo")
    save("games_learning", text, {"tictactoe_v0": games, "rps_v0": rounds}, about)


if __name__ == "__main__":
    main()
