"""Networks for boards and grids, before and after, at equal CPU seconds.

    OMP_NUM_THREADS=1 python benchmarks/core/boards.py --out FILE.jsonl [--games NAME ...]
        [--variants NAME ...] [--workers N] [--seconds S]
    python benchmarks/core/boards.py --report FILE.jsonl ...

A cell is [game, variant, arguments of ``corral.train``, seed, factor of the game's budget];
``--cells`` is a file of them, by default boards_cells.json. Its
first rollouts are played to measure CPU seconds per env step; then it trains with as many env steps
as fit into the budget. Every row is appended to the file when its cell is done, and cells in the
file are not repeated. After ``--seconds`` no new cell starts. ``--report`` writes the rows to
results/boards.md, where lines of other cells stay.

connect_four is judged by a ladder, on array code with the rules of PettingZoo; tictactoe by games
against random play, and on 3 x 3 also against perfect play; go by games against random play;
teams by their return. ``connect_four_fast`` also trains in the array code. Its budget counts
ENV_SECONDS per env step in addition, the time of PettingZoo's connect_four_v3.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ladder_rungs import OnePly, TakesWins, ThreePly

from corral.envs.core import Array, Observation, Outcome, agent_views
from corral.envs.masks import MASK, OBSERVATION, masked_space, sample_legal
from corral.envs.policy import Heuristic, RandomPolicy
from corral.envs.tictactoe_v0 import TicTacToeRules, TicTacToeState

HERE = Path(__file__).resolve().parent
CELLS = HERE / "boards_cells.json"
ROWS, COLUMNS = 6, 7
ENV_SECONDS = 150e-6
MODES = ("greedy", "sampled")
INTRODUCTION = """# Networks for boards and grids, at equal CPU seconds

Means over seeds. Two-player games: shares of won games in the first / second seat (against perfect
play: lost games). Teams: return. The budget is in CPU seconds, with 150 µs per env step added in
connect_four_fast, the time of PettingZoo's connect_four_v3; CPU s are those of the training itself.
16 cores of a shared server, one thread per training, torch 2.11. A variant without three seeds
ranks nothing. "before" are the defaults without the preset "boards".
"""
RUNGS: dict[str, tuple[Any, int]] = {
    "random": (RandomPolicy(), 1000),
    "1-ply": (TakesWins(), 1000),
    "wins or blocks": (OnePly(), 1000),
    "3-ply": (ThreePly(), 400),
}


# --- Games ---------------------------------------------------------------------------------------


class ConnectFourRules(TicTacToeRules):
    """connect_four_v3 of PettingZoo as array code: stones fall to the lowest empty field."""

    name = "connect_four_fast"
    agents = ("player_0", "player_1")

    def __init__(self) -> None:
        super().__init__((ROWS, COLUMNS), 4)

    @property
    def identity(self) -> str:
        return "connect four"

    def observation_space(self, agent: str) -> spaces.Dict:
        return masked_space(spaces.Box(0, 1, (ROWS, COLUMNS, 2), np.int8), COLUMNS)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(COLUMNS)

    def observe(self, state: TicTacToeState) -> dict[str, Observation]:
        boards = state.stones[:, :, : self.fields].reshape(-1, 2, ROWS, COLUMNS)
        planes = np.stack([boards, boards[:, ::-1]], axis=-1).astype(np.int8)
        mask = ~boards[:, :, 0].any(axis=1)[:, None] & self.acting(state)[:, :, None]
        return agent_views(self.agents, planes, mask.view(np.int8))

    def step(self, state: TicTacToeState, action: Array) -> Outcome[TicTacToeState]:
        boards = state.stones[:, :, : self.fields].reshape(-1, 2, ROWS, COLUMNS).any(axis=1)
        row = np.maximum(0, (~boards).sum(axis=1) - 1)  # [B, 7]
        return super().step(state, np.take_along_axis(row, action, axis=1) * COLUMNS + action)


def foraging(grid: bool) -> Any:
    """Return lbforaging 8x8-2p-2f-coop as a PettingZoo environment."""
    import lbforaging.foraging.environment as source
    from pettingzoo import ParallelEnv

    class Field(source.ForagingEnv):  # type: ignore[misc]
        def _get_observation_space(self) -> Any:
            if not grid:
                return super()._get_observation_space()
            side = 1 + 2 * self.sight  # its own space of a grid has a wrong shape
            return spaces.Box(0.0, 4.0, (3, side, side), np.float32)

    class Foraging(ParallelEnv):  # type: ignore[misc,type-arg]
        metadata = {"name": "foraging"}  # noqa: RUF012
        render_mode = None

        def __init__(self) -> None:
            self.env = Field(
                players=2,
                min_player_level=1,
                max_player_level=2,
                min_food_level=1,
                max_food_level=None,
                field_size=(8, 8),
                max_num_food=2,
                sight=8,
                max_episode_steps=50,
                force_coop=True,
                grid_observation=grid,
            )
            self.possible_agents = ["one", "two"]

        def observation_space(self, agent: str) -> Any:
            return self.env.observation_space[0]

        def action_space(self, agent: str) -> Any:
            return self.env.action_space[0]

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.agents = list(self.possible_agents)
            views, _ = self.env.reset(seed=seed)
            return self.of(views), {agent: {} for agent in self.agents}

        def step(self, actions: Any) -> Any:
            chosen = tuple(int(actions[agent]) for agent in self.possible_agents)
            views, rewards, ended, cut, _ = self.env.step(chosen)
            results = self.of(views), self.of(map(float, rewards)), self.of([ended] * 2)
            infos: dict[str, Any] = {agent: {} for agent in self.agents}
            self.agents = [] if ended or cut else self.agents
            return *results, self.of([cut] * 2), infos

        def of(self, values: Any) -> dict[str, Any]:
            return dict(zip(self.possible_agents, values, strict=True))

    return Foraging()


def foraging_numbers() -> Any:
    return foraging(grid=False)


def foraging_grid() -> Any:
    return foraging(grid=True)


def make_foraging(name: str) -> str:
    return f"{HERE / 'boards.py'}:{name}"


@dataclass(frozen=True)
class Game:
    env: Any
    budget: float  # CPU seconds
    zero_sum: bool
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)


GAMES = {
    "connect_four": Game("classic/connect_four-v3", 300, True),
    "connect_four_56": Game("classic/connect_four-v3", 56, True),
    "connect_four_fast": Game(ConnectFourRules, 300, True),
    "tictactoe_3": Game("tictactoe_v0", 30, True),
    "tictactoe_5": Game("tictactoe_v0", 60, True, {"size": 5, "line": 4}),
    "go_5": Game("classic/go-v5", 100, True, {"board_size": 5}),
    "foraging_numbers": Game(make_foraging("foraging_numbers"), 100, False),
    "foraging_grid": Game(make_foraging("foraging_grid"), 100, False),
    "arena_visited": Game("arena_v0", 100, False, {"observation": "visited"}),
    "arena_planes": Game("arena_v0", 100, False, {"observation": "visited", "planes": True}),
}


class WinsOrBlocks(Heuristic):
    """Completes a line of tictactoe_v0, else blocks one, else plays at random."""

    def __init__(self, rules: TicTacToeRules) -> None:
        self.lines = rules.lines

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return fields, int64 [R], for planes [R, R, C, 2]."""
        assert rng is not None
        legal = np.asarray(observation[MASK]) != 0
        planes = np.asarray(observation[OBSERVATION]).reshape(len(legal), -1, 2) != 0
        chosen = np.zeros(legal.shape, dtype=bool)
        for side in (0, 1):
            complete = planes[:, self.lines, side].sum(axis=2) == self.lines.shape[1] - 1  # [R, L]
            wins = np.zeros(legal.shape, dtype=bool)
            row, line = np.nonzero(complete)
            wins[row[:, None], self.lines[line]] = True
            wins &= legal
            chosen = np.where(chosen.any(axis=1, keepdims=True), chosen, wins)
        best = np.where(chosen.any(axis=1, keepdims=True), chosen, legal)
        return sample_legal(best.astype(np.int8), rng)


# --- Cells ---------------------------------------------------------------------------------------


def env_of(game: Game) -> Any:
    return game.env() if isinstance(game.env, type) else game.env


def steps_within(game: Game, budget: float, settings: Mapping[str, Any], seed: int) -> int:
    """Return the env steps that fit into the budget, from the fastest of six updates."""
    import corral

    extra = ENV_SECONDS if isinstance(game.env, type) else 0.0
    with tempfile.TemporaryDirectory() as folder:
        given = {**settings, "env_kwargs": dict(game.env_kwargs)}
        given |= {"out": f"{folder}/run", "progress": False}
        with corral.session(env_of(game), steps=10**8, seed=seed, **given) as session:
            began, first, costs = time.process_time(), 0, []
            for update in itertools.islice(session, 6):  # the first ones import and allocate
                now, last = time.process_time(), int(update["env_steps"])
                costs.append((now - began) / (last - first))
                began, first = now, last
    each = min(costs) + extra
    return int(budget / each)


def measured(name: str, variant: str, settings: dict[str, Any], seed: int, scale: float) -> Any:
    """Train and judge a cell; return its row."""
    import torch

    import corral

    torch.set_num_threads(1)
    game = GAMES[name]
    if "model" in settings:
        settings = {**settings, "model": str(HERE / settings["model"])}
    budget = scale * game.budget
    steps = steps_within(game, budget, settings, seed)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        run = corral.train(
            env_of(game),
            steps=steps,
            seed=seed,
            out=f"{folder}/run",
            progress=False,
            env_kwargs=dict(game.env_kwargs),
            **settings,
        )
        row: dict[str, Any] = {
            "game": name,
            "variant": variant,
            "seed": seed,
            "budget": budget,
            "env_steps": int(run.progress["env_steps"].iloc[-1]),
            "cpu_s": round(time.process_time() - began, 1),
            "settings": run.config.defaults,
        }
        judged = "connect_four" in name
        rules: Any = ConnectFourRules() if judged else run.config.env_config.rules()
        return row | (seats(name, rules, run) if game.zero_sum else returns(rules, run))


def seats(name: str, rules: Any, run: Any) -> dict[str, Any]:
    """Return shares of won and drawn games: rung -> seat -> mode."""
    from corral.trainers.evaluation.zero_sum import evaluate_seat

    rungs = {"random": RUNGS["random"]}
    if "connect_four" in name:
        rungs = RUNGS
    if "tictactoe" in name:
        rungs = {**rungs, "wins or blocks": (WinsOrBlocks(rules), 1000)}
    if name == "tictactoe_3":
        from corral.envs.tictactoe_v0.baselines import Perfect

        rungs = {**rungs, "perfect": (Perfect(rules), 400)}
    if "go" in name:
        rungs = {"random": (RandomPolicy(), 200)}
    table: dict[str, Any] = {}
    for rung, (opponent, episodes) in rungs.items():
        for seat in rules.agents:
            for mode in MODES:
                score = evaluate_seat(
                    rules,
                    seat,
                    run.policies[seat],
                    opponent,
                    episodes=episodes,
                    num_envs=100,
                    deterministic=mode == "greedy",
                )
                cell = {"won": score.won, "drawn": score.drawn, "lost": score.lost}
                table.setdefault(rung, {}).setdefault(seat, {})[mode] = cell
    return {"played": table}


def returns(rules: Any, run: Any) -> dict[str, Any]:
    """Return the mean team return of 500 episodes, by mode."""
    from corral.trainers.evaluation.episodes import play_episodes

    row = {}
    for mode in MODES:
        greedy = dict.fromkeys(rules.agents, mode == "greedy")
        played, _ = play_episodes(rules, run.policies, greedy, episodes=500, num_envs=100)
        row[mode] = round(float(played.returns.sum(axis=1).mean()), 4)
    return row


def short(row: Mapping[str, Any]) -> str:
    """Return a row in few characters."""
    text = f"{row['game']} {row['variant']} s{row['seed']} {row['env_steps']:,} {row['cpu_s']} s:"
    if "played" not in row:
        return f"{text} greedy {row['greedy']} sampled {row['sampled']}"
    for rung, by_seat in row["played"].items():
        for mode in MODES:
            share = "/".join(f"{cell[mode]['won']:.2f}" for cell in by_seat.values())
            drawn = "/".join(f"{cell[mode]['drawn']:.2f}" for cell in by_seat.values())
            text += f" | {rung} {mode[0]} {share}" + (
                f" ={drawn}" if "tictactoe" in row["game"] else ""
            )
    return text


def report(files: Sequence[Path], page: str) -> str:
    """Return the rows of several files as Markdown tables: means over seeds.

    Lines of the previous ``page`` stay if no row has their game, variant and budget.
    """
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = {}
    for line in itertools.chain.from_iterable(file.read_text().splitlines() for file in files):
        row = json.loads(line)
        if "error" not in row:
            key = row["game"], row["variant"], round(row["budget"], -1)
            groups.setdefault(key, []).append(row)
    heads, lines = lines_of(page)
    given = {(cell[0], cell[1]): cell[2] for cell in json.loads(CELLS.read_text())}
    for (game, variant, _), rows in sorted(groups.items()):
        rungs = list(rows[0].get("played", ["team return"]))
        columns = " | ".join(f"{rung}, {mode}" for rung in rungs for mode in MODES)
        heads[game] = f"| variant | budget | seeds | env steps | CPU s | {columns} | settings |\n"
        heads[game] += "|---|--:|--:|--:|--:|" + "---|" * (2 * len(rungs) + 1) + "\n"
        cells = [_cell(rows, rung, mode) for rung in rungs for mode in MODES]
        steps, seconds = (
            sum(row[key] for row in rows) / len(rows) for key in ("env_steps", "cpu_s")
        )
        budget = float(np.mean([row["budget"] for row in rows]))
        head = f"| {variant} | {budget:.0f} | {len(rows)} | {steps:,.0f} | {seconds:.0f} | "
        changes = ", ".join(f"{k}={v}" for k, v in given.get((game, variant), {}).items())
        key = game, variant, int(f"{budget:.0f}")
        lines[key] = head + " | ".join(cells) + f" | {changes} |\n"
    return "".join(
        f"\n## {game}\n\n{head}" + "".join(lines[key] for key in sorted(lines) if key[0] == game)
        for game, head in sorted(heads.items())
    )


def lines_of(page: str) -> tuple[dict[str, str], dict[tuple[str, str, int], str]]:
    """Return the heads of a page's tables by game, and their lines by game, variant and budget."""
    heads, lines = {}, {}
    for section in page.split("\n## ")[1:]:
        game, _, first, second, *rest = section.splitlines(keepends=True)
        heads[game.strip()] = first + second
        for line in rest:
            if line.startswith("| "):
                _, variant, budget, *_ = map(str.strip, line.split("|"))
                lines[game.strip(), variant, int(budget)] = line
    return heads, lines


def _cell(rows: Sequence[Mapping[str, Any]], rung: str, mode: str) -> str:
    """Return the mean over seeds: of won games in each seat, or of the return."""
    if "played" not in rows[0]:
        return f"{np.mean([row[mode] for row in rows]):.3g}"
    seats = rows[0]["played"][rung]
    kind = "lost" if rung == "perfect" else "won"
    shares = [np.mean([row["played"][rung][seat][mode][kind] for row in rows]) for seat in seats]
    return ("lost " if kind == "lost" else "") + " / ".join(f"{share:.2f}" for share in shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("boards.jsonl"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no cell starts")
    parser.add_argument(
        "--cells", type=Path, default=CELLS, help="JSON: [[game, variant, settings, seed, factor]]"
    )
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument("--variants", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--report", type=Path, nargs="+", help="files with rows")
    asked = parser.parse_args()
    if asked.report:
        page = HERE.parent / "results" / "boards.md"
        page.write_text(INTRODUCTION + report(asked.report, page.read_text()))
        return
    began = time.monotonic()
    cells = [
        tuple(cell)
        for cell in json.loads(asked.cells.read_text())
        if cell[0] in asked.games and cell[1] in (asked.variants or [cell[1]])
    ]
    done = set()
    if asked.out.exists():
        rows = map(json.loads, asked.out.read_text().splitlines())
        keys = ("game", "variant", "seed", "budget")
        done = {tuple(row[key] for key in keys) for row in rows if "error" not in row}
    cells = [c for c in cells if (c[0], c[1], c[3], c[4] * GAMES[c[0]].budget) not in done]
    cells.sort(key=lambda cell: -GAMES[cell[0]].budget * cell[4])
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(asked.workers) as pool:
        waiting, running = list(cells), {}
        while waiting or running:
            while waiting and len(running) < asked.workers:
                if time.monotonic() - began > asked.seconds:
                    waiting = []
                    break
                cell = waiting.pop(0)
                running[pool.submit(measured, *cell)] = cell
            if not running:
                break
            future = next(as_completed(running))
            game, variant, _, seed, _ = running.pop(future)
            try:
                row = future.result()
                print(short(row), flush=True)
            except Exception:
                error = traceback.format_exc()
                row = {"game": game, "variant": variant, "seed": seed, "error": error}
                print(game, variant, seed, error, flush=True)
            with asked.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
