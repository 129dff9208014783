"""How every game of the suite is learned: curves of mappo, and of MaskablePPO one seat at a time.

    OMP_NUM_THREADS=1 python benchmarks/learning_curves.py [--draw]

Two seeds of ``mappo`` in each game, with the presets of the package (arena_v0: the settings of
arena_learning.py). Shown is what training itself returns, mean of the last 100 episodes (of at
least 20), actions sampled; of tictactoe_v0, whose two seats learn from each other, it is how often
the greedy policy of a checkpoint does not lose 500 games as player_2 against random play. Dashed:
reference players in the same seats, over 500 episodes. MaskablePPO's curves come from
results/seat_learning.json.

``--draw`` draws the pictures again from the results.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import arena_learning
import numpy as np
from common import RESULTS, machine, save, temporary_run
from two_step import BONUSES
from two_step import SETTINGS as TWO_STEP

from corral.envs import make_rules
from corral.envs.reference import reference_player, reference_team
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.zero_sum import evaluate_seat
from corral.trainers.report import svg as pen
from corral.trainers.runs.checkpoint import load_checkpoint

SEEDS = (0, 1)
EPISODES = 500
POINTS = 60  # of a curve, at most
Curve = list[tuple[int, float]]

GAMES: dict[str, dict[str, Any]] = {
    "dfaas_v0": {
        "says": "team return, training rows",
        "settings": {"steps": 150_000, "validation": 0},
        "levels": ("overflow", "random"),
    },
    "arena_v0": {
        "says": "sum of both returns",
        "settings": {"steps": 300_000, "policies": "separate", **arena_learning.SETTINGS},
        "levels": ("nearest/chase", "random"),
    },
    "two_step_v0": {
        "says": "team return",
        "settings": {"steps": 20_000, **TWO_STEP, **BONUSES["0.1, fading to 0"]},
        "levels": ("random",),
    },
    "rps_v0": {
        "says": "return against beat-last",
        "column": "return_player_0",
        "settings": {"steps": 16_000, "opponents": {"player_1": "beat-last"}},
        "levels": (),
    },
    "tictactoe_v0": {
        "says": "% not lost as player_2 against random",
        "settings": {"steps": 600_000, "checkpoint_every": 60_000, "keep": 100},
        "levels": (),
    },
    "tiles_v0": {
        "says": "team return",
        "settings": {"steps": 200_000, "policies": "separate"},
        "levels": ("raster-1", "greedy", "random"),
    },
}


# --- Learning ------------------------------------------------------------------------------------


def learned(name: str, game: Mapping[str, Any], seed: int) -> Curve:
    with temporary_run(name, trainer="mappo", seed=seed, **game["settings"]) as run:
        if name == "tictactoe_v0":
            return not_lost(run)
        progress = run.progress
        full = progress[progress["episodes"] >= 20]
        every = max(1, math.ceil(len(full) / POINTS))
        rows = full.iloc[::-every][::-1]  # the last one is among them
        column = game.get("column", "return_team")
        return [
            (int(steps), round(float(value), 4))
            for steps, value in zip(rows["env_steps"], rows[column], strict=True)
        ]


def not_lost(run: Any) -> Curve:
    """In % of games, at each checkpoint."""
    rules = make_rules("tictactoe_v0", illegal="raise")
    curve = []
    for path in sorted((run.folder / "checkpoints").glob("step_*")):
        trainer = run.begun()
        trainer.load(load_checkpoint(path))
        score = evaluate_seat(
            rules,
            "player_2",
            trainer.policies["player_2"],
            reference_player("random", rules, "player_1"),
            episodes=EPISODES,
            num_envs=EPISODES,
        )
        curve.append((trainer.env_steps, round(100 * (1 - score.lost), 3)))
    return curve


def levels(name: str, game: Mapping[str, Any]) -> dict[str, float]:
    """What reference players earn where the team learns."""
    rows = {"rows": (0, 2822)} if name == "dfaas_v0" else {}
    rules = make_rules(name, illegal="raise", **rows)
    if name == "rps_v0":
        other = reference_player("beat-last", rules, "player_1")
        mine = reference_player("random", rules, "player_0")
        score = evaluate_seat(rules, "player_0", mine, other, episodes=EPISODES)
        return {"random": score.return_seat}
    if name == "tictactoe_v0":
        other = reference_player("random", rules, "player_1")
        mine = reference_player("random", rules, "player_2")
        score = evaluate_seat(rules, "player_2", mine, other, episodes=EPISODES)
        return {"random": 100 * (1 - score.lost), "perfect": 100.0}
    return {
        team: evaluate_team(rules, reference_team(team, rules), episodes=EPISODES).return_team
        for team in game["levels"]
    }


# --- Pictures ------------------------------------------------------------------------------------

ACROSS = 3
PANEL, GAP = 290, 14
PLOT, LEFT = 150, 46
COLORS = (pen.BLUE, pen.RED, pen.GREEN)


def picture(title: str, note: str, panels: Sequence[Mapping[str, Any]], across: int) -> str:
    """Small multiples: a panel per game, a line per seed, dashed levels with their names."""
    top, height = 58, PLOT + 78
    parts = [pen.text(8, 20, title, size=15, weight=600), pen.text(8, 38, note, size=11)]
    for index, panel in enumerate(panels):
        x = 8 + index % across * (PANEL + GAP)
        y = top + index // across * height
        parts += draw(panel, x, y)
    rows = -(-len(panels) // across)
    return pen.svg(top + rows * height, parts, title)


def draw(panel: Mapping[str, Any], x: float, y: float) -> list[str]:
    values = [value for curve in panel["curves"].values() for _, value in curve]
    low, high, marks = pen.ticks(
        min([*values, *panel["levels"].values()]), max([*values, *panel["levels"].values()])
    )
    most = max(steps for curve in panel["curves"].values() for steps, _ in curve)
    left, top, width = x + LEFT, y + 40, PANEL - LEFT - 6
    base = top + PLOT

    def up(value: Any) -> Any:
        return base - (np.asarray(value, dtype=float) - low) / (high - low) * PLOT

    parts = [
        pen.text(x, y + 10, panel["name"], size=13, weight=600),
        pen.text(x, y + 26, panel["says"], size=11),
    ]
    for mark in marks:
        at = float(up(mark))
        parts.append(pen.line(left, at, left + width, at, pen.PALE))
        parts.append(pen.text(left - 5, at + 4, f"{mark:g}", anchor="end", size=11))
    ends = pen.ticks(0.0, most)[2]
    for mark in ends:
        if mark <= most:
            at = left + mark / most * width
            anchor = "end" if mark == most else "middle"
            parts.append(pen.text(at, base + 15, pen.thousands(mark), anchor=anchor, size=11))
    for name, value in panel["levels"].items():
        at = float(up(value))
        parts.append(pen.line(left, at, left + width, at, pen.GRAY, 1.5, dash="5 4"))
        above = at - 4 if at - 16 > top else at + 12
        parts.append(pen.text(left + width - 2, above, name, anchor="end", size=11))
    for (_, curve), color in zip(panel["curves"].items(), COLORS, strict=False):
        steps, values = np.array(curve, dtype=float).T
        parts.append(pen.path(left + steps / most * width, up(values), color, 1.8))
    return parts


def draw_all(found: Mapping[str, Any]) -> None:
    panels = [
        {"name": name, "says": GAMES[name]["says"], **found[name]}
        for name in GAMES
        if name in found
    ]
    note = (
        "across: env steps; a line per seed: mean of the last 100 training episodes; dashed: "
        "reference players in the same seats"
    )
    text = picture("mappo in every game of the suite", note, panels, ACROSS)
    (RESULTS / "learning_curves.svg").write_text(text)
    path = RESULTS / "seat_learning.json"
    if path.exists():
        seats = json.loads(path.read_text())
        panels = []
        for name, own in seats.items():
            if name == "about":
                continue
            game, rest = name.split(", ", 1)
            panels.append(
                {
                    "name": game,
                    "says": rest,
                    "curves": {seed: r["curve"] for seed, r in own["seeds"].items()},
                    "levels": {"random": own["random"]},
                }
            )
        note = (
            "across: decisions of that seat; a line per seed: mean return of the last 100 "
            "training episodes; dashed: random play in the same seat"
        )
        text = picture("MaskablePPO in one seat, reference players in the others", note, panels, 2)
        (RESULTS / "seat_learning.svg").write_text(text)


def main() -> None:
    if "--draw" in sys.argv:
        draw_all(json.loads((RESULTS / "learning_curves.json").read_text()))
        return
    lines = [
        "# mappo in every game of the suite",
        "",
        "![a panel per game](learning_curves.svg)",
        "",
        "| game | figure | seed | at first | at the end | reference players |",
        "|---|---|--:|--:|--:|---|",
    ]
    found: dict[str, Any] = {}
    for name, game in GAMES.items():
        marks = levels(name, game)
        found[name] = {"levels": marks, "curves": {}}
        beside = ", ".join(f"{team} {value:.2f}" for team, value in marks.items())
        for seed in SEEDS:
            curve = found[name]["curves"][str(seed)] = learned(name, game, seed)
            lines.append(
                f"| {name} | {game['says']} | {seed} | {curve[0][1]:.2f} | {curve[-1][1]:.2f} "
                f"| {beside} |"
            )
            print(lines[-1], file=sys.stderr, flush=True)
    save("learning_curves", "\n".join(lines), found, machine("torch", "gymnasium", "pettingzoo"))
    draw_all(found)


if __name__ == "__main__":
    main()
