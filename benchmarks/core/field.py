"""Greedy and sampled play after training, game by game and setting by setting.

    pip install --no-deps mpe2 lbforaging rware
    OMP_NUM_THREADS=1 python benchmarks/core/field.py run [--games NAME ...] [--variants NAME ...]
        [--seeds N] [--workers N] [--seconds N] [--out FILE]
    python benchmarks/core/field.py report [--out FILE]

A cell is a game, a variant of the settings and a seed. Each cell trains in a process of its own, is
judged on episodes that the training did not play, and is a line of results/field.jsonl. A line that
is there is not repeated. The longest cells begin first. The table is results/field.md.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine, temporary_run
from ladder_rungs import OnePly, TakesWins, ThreePly
from parallel import cpu_seconds, play
from remedies import HAPPO, Leaning, Sharpening, entropy_cost

from corral import algorithms
from corral.adapters import zoo_rules
from corral.envs.policy import RandomPolicy
from corral.trainers.evaluation.greedy import CHOSEN
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.zero_sum import evaluate_seat

SEED = 10_000
"""Seed of the episodes that judge; no training uses it."""

MODES = ("greedy", "sampled")

LADDER_STEPS = 700_000
"""Env steps of connect four in 300 CPU seconds."""


# --- Games ---------------------------------------------------------------------------------------


def team_of(name: str) -> Any:
    """Return a Gymnasium environment with tuples of spaces as a PettingZoo environment."""
    import gymnasium
    import lbforaging  # noqa: F401  # registers its ids
    import rware  # noqa: F401  # registers its ids
    from pettingzoo import ParallelEnv

    class Team(ParallelEnv):  # type: ignore[misc,type-arg]
        metadata = {"name": name.split(":")[-1]}  # noqa: RUF012
        render_mode = None

        def __init__(self) -> None:
            self.env = gymnasium.make(name, disable_env_checker=True)
            spaces = self.env.observation_space, self.env.action_space
            self.possible_agents = [f"agent_{i}" for i in range(len(spaces[0]))]  # type: ignore[arg-type]
            self.spaces = [dict(zip(self.possible_agents, tree, strict=True)) for tree in spaces]

        def observation_space(self, agent: str) -> Any:
            return self.spaces[0][agent]

        def action_space(self, agent: str) -> Any:
            return self.spaces[1][agent]

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.agents = list(self.possible_agents)
            views, _ = self.env.reset(seed=seed)
            return self._of(views), {agent: {} for agent in self.agents}

        def step(self, actions: Any) -> Any:
            chosen = tuple(int(actions[agent]) for agent in self.possible_agents)
            views, rewards, ended, cut, _ = self.env.step(chosen)
            count = len(self.possible_agents)
            step = (
                self._of(views),
                self._of(map(float, rewards)),  # type: ignore[arg-type]
                self._of([bool(ended)] * count),
                self._of([bool(cut)] * count),
                {agent: {} for agent in self.possible_agents},
            )
            self.agents = [] if ended or cut else self.agents
            return step

        def _of(self, values: Any) -> dict[str, Any]:
            return dict(zip(self.possible_agents, values, strict=True))

    return Team()


def spread() -> Any:
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env(N=3, local_ratio=0.5, max_cycles=25)


def speaker_listener() -> Any:
    from mpe2 import simple_speaker_listener_v4

    return simple_speaker_listener_v4.parallel_env(max_cycles=25)


@dataclass(frozen=True)
class Game:
    """A game, its length of training, and the length of its judgment."""

    env: Callable[[], Any]
    steps: int
    random: float  # team return of random play, the lower end of the range
    best: float  # a good team return, the upper end
    cpu_s: float  # expected CPU seconds of a cell
    episodes: int = 500
    ladder: bool = False
    measured: bool = (
        True  # runs compare both modes at their end; False: see docs/greedy_and_sampled.md
    )


GAMES = {
    "lbforaging": Game(
        lambda: zoo_rules(functools.partial(team_of, "lbforaging:Foraging-8x8-2p-2f-coop-v3")),
        200_000,
        0.0,
        1.0,
        90,
    ),
    "lbforaging_long": Game(
        lambda: zoo_rules(functools.partial(team_of, "lbforaging:Foraging-8x8-2p-2f-coop-v3")),
        400_000,
        0.0,
        1.0,
        165,
    ),
    "arena": Game(lambda: "arena_v0", 150_000, -8.6, 65.0, 36),
    "simple_spread": Game(lambda: zoo_rules(spread), 100_000, -77.6, -45.0, 85),
    "rware": Game(
        lambda: zoo_rules(functools.partial(team_of, "rware:rware-tiny-2ag-easy-v2")),
        100_000,
        0.1,
        10.0,
        95,
        episodes=40,
        measured=False,  # episodes of 500 steps are too long for the budget
    ),
    "tiles": Game(lambda: "tiles_v0", 60_000, 3.05, 4.5, 35),
    "dfaas": Game(lambda: "dfaas_v0", 60_000, -21.9, -8.0, 20, measured=False),
    "speaker_listener": Game(lambda: zoo_rules(speaker_listener), 100_000, -79.4, -20.0, 55),
    "connect_four": Game(
        lambda: "classic/connect_four-v3",
        150_000,
        0.0,
        100.0,
        65,
        episodes=200,
        ladder=True,
        measured=False,
    ),
    "connect_four_long": Game(
        lambda: "classic/connect_four-v3",
        LADDER_STEPS,
        0.0,
        100.0,
        400,
        episodes=1_000,
        ladder=True,
    ),
}


# --- Variants ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """A change of the defaults."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    trainer: Any = "mappo"


REMEDIES = {
    "sharpen10": Variant(trainer=Sharpening),
    "sharpen10 early": Variant({"sharpen_from": 0.4}, Sharpening),
    "sharpen4": Variant({"sharpen": 4.0}, Sharpening),
    "sharpen10, constant rate": Variant({"anneal": False}, Sharpening),
    "lean": Variant(trainer=Leaning),
    "lean early": Variant({"greedy_from": 0.1, "greedy_to": 0.6}, Leaning),
    "entropy cost": Variant(trainer=algorithms.mappo.but(name="cost", loss=entropy_cost)),
    "entropy to 0": Variant({"ent_coef": 0.01, "ent_coef_end": 0.0}),
    "separate": Variant({"policies": "separate"}),
    "happo": Variant({"policies": "separate"}, HAPPO),
    "no ids": Variant({"agent_id": False}),
    "memory": Variant({"memory": 32}),
}

VARIANTS = {
    "default": Variant(),
    "no preset": Variant({"preset": "none"}),
    "team": Variant({"preset": "team"}),
    "self-play": Variant({"preset": "self-play"}),
    "team, falling": Variant({"preset": "team", "anneal": True, "ent_coef_end": 0.0}),
    **REMEDIES,
    **{
        f"{prefix}, {name}": Variant({"preset": preset, **variant.settings}, variant.trainer)
        for prefix, preset in (("no preset", "none"), ("self-play", "self-play"))
        for name, variant in REMEDIES.items()
    },
}


# --- A cell --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    game: str
    variant: str
    seed: int
    scale: float = 1.0  # of the env steps, and of the episodes

    def __str__(self) -> str:
        return f"{self.game}, {self.variant}, seed {self.seed}"


def row_of(cell: Cell) -> dict[str, Any]:
    """Train and judge a cell."""
    torch.set_num_threads(1)
    game, variant = GAMES[cell.game], VARIANTS[cell.variant]
    episodes = max(1, int(cell.scale * game.episodes))
    row: dict[str, Any] = {"game": cell.game, "variant": cell.variant, "seed": cell.seed}
    with temporary_run(
        game.env(),
        trainer=variant.trainer,
        steps=int(cell.scale * game.steps),
        seed=cell.seed,
        progress=False,
        **variant.settings,
    ) as run:
        row |= {"env_steps": int(run.progress["env_steps"].iloc[-1]), "cpu_s": cpu_seconds()}
        entropies = [name for name in run.progress.columns if name.split("/")[-1] == "entropy"]
        row["entropy"] = float(run.progress[entropies].iloc[-1].mean())
        rules = run.config.env_config.rules() if isinstance(game.env(), str) else game.env()
        if game.ladder:
            return row | {"seats": ladder(rules, run.policies, episodes)}
        for mode in MODES:
            player = Player(run.policies, deterministic=mode == "greedy")
            score = evaluate_team(rules, player, episodes=episodes, seed=SEED)
            row[mode] = float(score.return_team)
        row |= {"episodes": episodes, "plays": "greedy" if run.deterministic else "sampled"}
    return row


RUNGS = {
    "random": RandomPolicy(),
    "1-ply": TakesWins(),
    "3-ply": ThreePly(),
    "wins or blocks": OnePly(),
}


def ladder(rules: Any, team: Mapping[str, Any], episodes: int) -> dict[str, Any]:
    """Return the shares won, drawn and lost: mode -> rung -> seat."""
    won: dict[str, Any] = {mode: {} for mode in MODES}
    for mode in MODES:
        for rung, opponent in RUNGS.items():
            for seat in rules.agents:
                score = evaluate_seat(
                    rules,
                    seat,
                    team[seat],
                    opponent,
                    episodes=episodes,
                    num_envs=100,
                    seed=SEED,
                    deterministic=mode == "greedy",
                )
                shares = [score.won, score.drawn, score.lost]
                won[mode].setdefault(rung, {})[seat] = [round(share, 4) for share in shares]
    return won


# --- The report ----------------------------------------------------------------------------------


def result(row: Mapping[str, Any], mode: str) -> float:
    """Return a row's team return; for a ladder, the share of games won over all rungs, in %."""
    if "seats" not in row:
        return float(row[mode])
    rungs = row["seats"][mode].values()
    return 100 * statistics.mean(won for rung in rungs for won, _, _ in rung.values())


def as_it_plays(row: Mapping[str, Any]) -> float:
    """Return the result in the mode that the run recorded. Rows without one are judged by the part
    of the rule that needs no single episodes."""
    game = GAMES[row["game"]]
    greedy, sampled = (result(row, mode) for mode in MODES)
    gain = abs(sampled - game.random)
    far = game.measured and sampled > greedy and sampled - greedy >= CHOSEN * gain
    return result(row, row.get("plays", "sampled" if far else "greedy"))


def report(rows: list[dict[str, Any]]) -> str:
    """Return the page with the table of all cells."""
    about = rows[-1]["about"] if rows else {}
    lines = [
        "# Greedy and sampled play after training",
        "",
        "mappo; means over the seeds: a row with fewer than three seeds ranks nothing. Team return "
        "of 500 episodes (rware: 40); connect_four: % of games won against random, 1-ply and 3-ply "
        "play and a player that wins or blocks, in both seats. The gap is greedy minus sampled, in "
        "% of the range from random to good play. Entropy in nats at the end. CPU seconds of the "
        "training. `default` has the preset of the kind of game. `b` is the preset `team` with "
        "rollouts of 64 x 25 steps; `b ...` changes one thing in it. LOG.md describes the others. "
        "`plays`: the result in the mode that the run records at its end; in older rows, greedy "
        "play unless it is a tenth of the gain over random play below sampled play.",
        "",
        "| game | settings | seeds | greedy | sampled | plays | random | gap % | entropy | CPU s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, game in GAMES.items():
        for variant in dict.fromkeys(row["variant"] for row in rows):
            cells = [row for row in rows if (row["game"], row["variant"]) == (name, variant)]
            if not cells:
                continue
            values = [statistics.mean(result(row, mode) for row in cells) for mode in MODES]
            gap = 100 * (values[0] - values[1]) / (game.best - game.random)
            values.append(statistics.mean(map(as_it_plays, cells)))
            figures = [f"{value:.3g}" for value in (*values, game.random)]
            entropy, seconds = (
                statistics.mean(row[key] for row in cells) for key in ("entropy", "cpu_s")
            )
            parts = [name, variant, str(len(cells)), *figures]
            parts += [f"{gap:+.1f}", f"{entropy:.2f}", f"{seconds:.0f}"]
            lines.append(f"| {' | '.join(parts)} |")
    stamp = ", ".join(f"{key} {value}" for key, value in about.items())
    return "\n".join([*lines, "", stamp])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("part", choices=("run", "report"))
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["default"])
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0 on")
    parser.add_argument("--scale", type=float, default=1.0, help="of steps and episodes, to try")
    parser.add_argument("--workers", type=int, default=2, help="processes at the same time")
    parser.add_argument("--seconds", type=float, help="limit of time")
    parser.add_argument("--out", type=Path, default=RESULTS / "field.jsonl")
    options = parser.parse_args()
    if options.part == "run":
        done = {(row["game"], row["variant"], row["seed"]) for row in kept_rows(options.out)}
        cells = [
            Cell(game, variant, seed, options.scale)
            for seed in range(options.seeds)
            for game in options.games
            for variant in options.variants
            if (game, variant, seed) not in done
        ]
        cells.sort(key=lambda cell: -GAMES[cell.game].cpu_s)
        about = machine("torch")
        play(
            cells,
            row_of,
            lambda row: append_row(options.out, {**row, "about": about}),
            parallel=options.workers,
            minutes=None if options.seconds is None else options.seconds / 60,
        )
    page = report(kept_rows(options.out))
    options.out.with_suffix(".md").write_text(page + "\n")
    print(page)


if __name__ == "__main__":
    main()
