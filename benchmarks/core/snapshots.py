"""How fast games of third-party environments are copied, in each way that is proved to be exact.

    OMP_NUM_THREADS=1 python benchmarks/core/snapshots.py

A plain class of the arena (tests/support), the arena of RLlib's tutorial (docs/environments),
tic-tac-toe as a class, PettingZoo's connect four, and Nim over a C library, with a state for each
environment or one that all share. Each way is proved alone; then copies in mid-episode are counted
in five rounds. Ways that the proof refuses are named with the reason.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

from corral.adapters.snapshots import SnapshotError, proof
from corral.adapters.snapshots.forks import Fork
from corral.adapters.snapshots.games import Deepcopy, Game, Pickled, Replay, Way
from corral.adapters.sources import rules_of
from corral.adapters.zoo.batch import ZooRules, zoo_rules
from corral.envs.core import generator

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.arena_scalar import PlainArena
from support.nim_c import Nim, compiled
from support.tictactoe_class import TicTacToe

CLASS = Path(__file__).parents[2] / "docs/environments/multi_agent_arena.py"
ROUNDS = 5


def games(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the label and the rules of each game."""
    yield "arena as a plain class", zoo_rules(PlainArena)
    yield "RLlib's tutorial, MultiAgentArena", rules_of(f"{CLASS}:MultiAgentArena")
    yield "tic-tac-toe as a class", zoo_rules(TicTacToe)
    yield "connect_four_v3 of PettingZoo", rules_of("classic/connect_four-v3")
    library = compiled(folder)
    if library is None:
        print("no C compiler (cc): Nim is left out", file=sys.stderr)
        return
    yield "Nim in C, a state each", zoo_rules(functools.partial(Nim, library))
    yield "Nim in C, one shared state", zoo_rules(functools.partial(Nim, library, shared=True))


def in_the_middle(way: Way, rules: ZooRules) -> Game:
    """Return a game after half of an episode of random play."""
    game, rng = way.make(), generator(0, "eval")
    game.begin(generator(0, "env"))
    for _ in range(proof._length(way, rules, 0) // 2):
        game.play(proof._drawn(rules, game.look, rng))
    return game


def main() -> None:
    lines = [
        "# Copies of third-party games per second",
        "",
        f"Median and fastest of {ROUNDS} rounds; seconds of the proof.",
        "",
        "| game | way | copies per second | fastest | proof, s |",
        "|---|---|--:|--:|--:|",
    ]
    data: list[dict[str, Any]] = []
    every = (Pickled, Deepcopy, Replay, Fork)
    with tempfile.TemporaryDirectory() as folder:
        for label, rules in games(Path(folder)):
            for kind in every:
                proof.WAYS = (kind,)
                began = time.perf_counter()
                try:
                    way, copied = proof.prove(rules)
                except SnapshotError as error:
                    lines.append(f"| {label} | {kind.name}: refused | | | |")
                    data.append({"game": label, "way": kind.name, "refused": str(error)})
                    continue
                took = time.perf_counter() - began
                game = in_the_middle(way, rules)
                speeds = [proof._speed(game) for _ in range(ROUNDS)]
                way.close()
                lines.append(
                    f"| {label} | {copied.way} | {statistics.median(speeds):,.0f} | "
                    f"{max(speeds):,.0f} | {took:.1f} |"
                )
                data.append({"game": label, "way": copied.way, "speeds": speeds, "proof": took})
                print(lines[-1], file=sys.stderr)
    lines += ["", f"Load of the machine at the end: {os.getloadavg()[0]:.1f} processes."]
    save("snapshots", "\n".join(lines), {"copies": data}, machine("numpy", "pettingzoo"))


if __name__ == "__main__":
    main()
