"""What corral check --learnable says of every environment of the suite, and of planted games.

    OMP_NUM_THREADS=1 python benchmarks/lab/learnable.py [seconds [game ...]]

Planted games (tests/support/planted_choices.py) have nothing to learn, each for a reason of its
own, or are sound twins of such. ``seconds`` is the time that each may take, 20 by default. With
beginnings of games' labels only these are asked again; the rest stays as it was.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save

from corral.envs.registry import ENVIRONMENTS, PROBES, make_rules
from corral.lab.doctor.choices import learnable

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.planted_choices import BlindArena, DeafArena, Guess, Lottery, OneCounts

NO_CHOICE = {1: "no-choice", 2: "no-choice", 3: "no-choice", 7: "idle", 8: "no-choice"}
NO_CHOICE |= {9: "no-choice", 10: "no-choice", 12: "idle", 13: "no-choice", 15: "no-choice"}
NO_CHOICE |= {16: "no-choice", 17: "no-choice"}
"""Probes in which no action, or none of an agent, changes anything, by number."""


def games() -> Iterator[tuple[str, Any, str]]:
    """Yield each game's label, its rules, and the cause that is to be found, "" for none."""
    for name in ENVIRONMENTS:
        yield name, make_rules(name), ""
    for name in PROBES:
        yield name, make_rules(name), NO_CHOICE.get(int(name[7:9]), "")
    every = make_rules("tiles_v0", levels=1, budget=48)
    yield "tiles_v0, levels=1 budget=48: every tile is sent", every, "order-only"
    yield "arena_v0, observation never changes", BlindArena(), "constant-observation"
    yield "arena_v0, reward that no action moves", DeafArena(), "no-choice"
    yield "best action not shown", Guess(shown=False), "hidden"
    yield "its twin: shown", Guess(shown=True), ""
    yield "pay by lot", Lottery(), "chance-only"
    yield "an agent wired to nothing", OneCounts(), "idle"


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    chosen = tuple(sys.argv[2:])
    data = []
    before = json.loads((RESULTS / "learnable.json").read_text())["games"] if chosen else []
    kept = {each["game"]: each for each in before}
    for label, rules, expected in games():
        if chosen and not label.startswith(chosen):
            data.append(kept[label])
            continue
        found = learnable(rules, seconds=seconds)
        data.append({"game": label, "expected": expected, **found.to_json()})
        print(f"{label}: {_causes(data[-1]) or '-'} ({found.seconds:.1f} s)", flush=True)
    save("learnable", _page(data), {"games": data}, machine("numpy"))


def _causes(game: dict[str, Any]) -> str:
    return ", ".join(sorted({fault["cause"] for fault in game["faults"]}))


def _page(data: list[dict[str, Any]]) -> str:
    right = sum(_causes(game) == game["expected"] for game in data)
    lines = [
        "# Do choices matter, and does the observation show which?",
        "",
        f"`corral check ENV --learnable`: {right} of {len(data)} games as expected.",
        "Gains are of the agent that gains most: its own return above the mean of the actions",
        "that were tried, ± two standard errors.",
        "",
        "| game | expected | found | verdict | best action | one for all | by observation | s |",
        "|---|---|---|---|--:|--:|--:|--:|",
    ]
    for game in data:
        forked = max(game["forked"], key=lambda each: each["best"]["mean"], default={})
        gains = [
            f"{forked[kind]['mean']:.3g} ± {2 * forked[kind]['error']:.1g}" if forked else ""
            for kind in ("best", "constant", "shown")
        ]
        found = (game["expected"] or "-", _causes(game) or "-", game["verdict"])
        cells = [game["game"], *found, *gains, f"{game['seconds']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
