"""What corral check --learnable says of every environment of the suite, and of planted games.

    OMP_NUM_THREADS=1 python benchmarks/learnable.py [seconds]

Planted games (tests/support/planted_choices.py) have nothing to learn, each for a reason of its
own, or are sound twins of such. ``seconds`` is the time that each may take, 20 by default.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import machine, save

from corral.envs.registry import ENVIRONMENTS, PROBES, make_rules
from corral.trainers.doctor.choices import Forked, Learnable, learnable

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
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
    rows, data = [], []
    for label, rules, expected in games():
        found = learnable(rules, seconds=seconds)
        causes = sorted({fault.cause for fault in found.faults})
        rows.append((label, expected, causes, found))
        data.append({"game": label, "expected": expected, **found.to_json()})
        print(f"{label}: {', '.join(causes) or '-'} ({found.seconds:.1f} s)", flush=True)
    save("learnable", _page(rows, seconds), {"games": data}, machine("numpy"))


def _page(rows: list[tuple[str, str, list[str], Learnable]], seconds: float) -> str:
    right = sum(causes == ([expected] if expected else []) for _, expected, causes, _ in rows)
    lines = [
        "# Do choices matter, and does the observation show which?",
        "",
        f"`corral check ENV --learnable --seconds {seconds:g}`: {right} of {len(rows)} games",
        "as expected.",
        "Gains are of the agent that gains most: its own return above the mean of the actions",
        "that were tried, ± two standard errors.",
        "",
        "| game | expected | found | verdict | best action | one for all | by observation | s |",
        "|---|---|---|---|--:|--:|--:|--:|",
    ]
    for label, expected, causes, found in rows:
        best = max(found.forked, key=lambda each: each.best.mean, default=None)
        cells = (label, expected or "-", ", ".join(causes) or "-", found.verdict, *_gains(best))
        lines.append("| " + " | ".join([*cells, f"{found.seconds:.1f}"]) + " |")
    return "\n".join(lines)


def _gains(forked: Forked | None) -> tuple[str, str, str]:
    if forked is None:
        return "", "", ""
    first, second, third = (
        f"{gain.mean:.3g} ± {2 * gain.error:.1g}"
        for gain in (forked.best, forked.constant, forked.shown)
    )
    return first, second, third


if __name__ == "__main__":
    main()
