"""The published comparison: who learns what, in equal env steps and in equal CPU seconds.

    pip install --no-deps mpe2
    OMP_NUM_THREADS=1 python benchmarks/core/published.py run           # what is here
    OMP_NUM_THREADS=1 python benchmarks/core/published.py run --only mappo --seeds 0 1
    python benchmarks/core/published.py missing       # what is not played yet
    python benchmarks/core/published.py report        # the table and the picture

A queue: every run that ends is added to results/published.jsonl as a line of its own, and what is
there is not played again, so that it can be stopped and started. Seeds go before games: every cell
has its first seed early. The frameworks exclude each other: start it once in each virtual
environment (``.[sb3,mappo]``, ``.[benchmarl,mappo]``, ``.[rllib]``); it plays what that one can
import. Two at once are fine: lines are added whole.

Seconds are of training alone, after imports: CPU of this process and its children, and wall.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, append_row, kept_rows, machine

FILE = RESULTS / "published.jsonl"
SEEDS = range(5)
LIKE_BENCHMARL = (
    "mappo_constant_rate",
    "mappo_raw_values",
    "mappo_squared_loss",
    "mappo_no_ids",
    "mappo_all_four",
)
"""mappo with one difference from BenchMARL's MAPPO taken away, or four; not in the report."""
NEEDS = {
    "mappo": "safetensors",
    "ippo": "safetensors",
    "sb3_ppo": "stable_baselines3",
    "mappo_like_sb3": "safetensors",
    **dict.fromkeys(LIKE_BENCHMARL, "safetensors"),
    "cleanrl": "torch",
    "benchmarl_mappo_alike": "benchmarl",
    "benchmarl_mappo": "benchmarl",
    "benchmarl_qmix": "benchmarl",
    "rllib_ppo": "ray",
}
"""Algorithms in the order in which they are played, and the package that each of them needs."""
PACKAGES = {
    "sb3_ppo": ("stable-baselines3", "sb3-contrib"),
    "rllib_ppo": ("ray",),
    **dict.fromkeys((name for name in NEEDS if name[0] == "b"), ("benchmarl", "torchrl")),
}
FEWER = {
    "rllib_ppo": (("dfaas_default", "arena"), range(2)),
    "mappo_like_sb3": (("simple_spread",), SEEDS),
    **dict.fromkeys(LIKE_BENCHMARL, (("dfaas_hard",), range(3))),
    "mappo_no_ids": (("dfaas_hard", "dfaas_default"), SEEDS),
}
"""Algorithms that play only some games, with fewer seeds."""
REFERENCES = "references"

Key = tuple[str, str, int]
"""Game, algorithm, seed."""


def planned() -> Iterator[Key]:
    """Yield all that is played, in the order in which it is: references, then seed by seed."""
    from published_games import GAMES

    yield from ((name, REFERENCES, 0) for name in GAMES)
    shared = [name for name, game in GAMES.items() if not game.only]
    own = ("mappo", "ippo", "sb3_ppo", "mappo_like_sb3", "cleanrl", *LIKE_BENCHMARL)
    yield from _by_seed(own, shared)
    for name, game in GAMES.items():
        yield from ((name, algorithm, seed) for algorithm in game.only for seed in game.seeds)
    for group in (tuple(name for name in NEEDS if name.startswith("benchmarl")), ("rllib_ppo",)):
        yield from _by_seed(group, shared)


def _by_seed(algorithms: Sequence[str], games: Iterable[str]) -> Iterator[Key]:
    for seed in SEEDS:
        for name in games:
            for algorithm in algorithms:
                chosen, seeds = FEWER.get(algorithm, (tuple(games), SEEDS))
                if name in chosen and seed in seeds:
                    yield name, algorithm, seed


def missing() -> list[Key]:
    done = {(row["game"], row["algorithm"], row["seed"]) for row in kept_rows(FILE)}
    return [key for key in planned() if key not in done]


def played(key: Key) -> dict[str, Any]:
    """Play one, and return its line."""
    import torch
    from published_games import GAMES

    name, algorithm, seed = key
    game = GAMES[name]
    about = machine("torch", *PACKAGES.get(algorithm, ()))
    about["torch_threads"] = torch.get_num_threads()
    row: dict[str, Any] = {"game": name, "algorithm": algorithm, "seed": seed, "about": about}
    if algorithm == REFERENCES:
        return {**row, "judged": game.references()}
    learn = learner(algorithm)
    from published_own import Curve

    curve = Curve()
    result = learn(game, seed, curve)
    cpu, wall = curve.seconds()
    judged = game.judge({algorithm: result.team})[algorithm]
    return {
        **row,
        "env_steps": result.env_steps,
        "cpu_s": round(cpu, 2),
        "wall_s": round(wall, 2),
        "judged": judged,
        "settings": {key: str(v) if callable(v) else v for key, v in result.settings.items()},
        "curve": curve.thinned(),
    }


def learner(algorithm: str) -> Callable[..., Any]:
    """Import what trains ``algorithm``, before any clock runs."""
    import functools

    import published_own

    if algorithm in published_own.CORRAL:
        from corral.trainers.base import find_trainer

        find_trainer(published_own.VARIANTS.get(algorithm, (algorithm,))[0])
        return functools.partial(published_own.trained, algorithm)
    if algorithm == "cleanrl":
        return published_own.cleanrl
    import published_peers

    return functools.partial(published_peers.benchmarl, algorithm)


def run(only: list[str], games: list[str], seeds: list[int]) -> None:
    """Play what is missing, here importable, and asked for."""
    left_out = {name for name, needs in NEEDS.items() if find_spec(needs) is None}
    for key in missing():
        game, algorithm, seed = key
        if algorithm in left_out or (only and algorithm not in only):
            continue
        if (games and game not in games) or (seeds and seed not in seeds):
            continue
        if game == "simple_spread" and find_spec("mpe2") is None:
            continue
        if key not in missing():  # another process has played it
            continue
        row = played(key)
        append_row(FILE, row)
        value = row["judged"].get("value", "")
        print(game, algorithm, seed, value, row.get("cpu_s", ""), file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("run", "missing", "report"))
    parser.add_argument("--only", nargs="+", default=[], choices=[*NEEDS, REFERENCES])
    parser.add_argument("--games", nargs="+", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[])
    args = parser.parse_args()
    if args.command == "run":
        run(args.only, args.games, args.seeds)
    elif args.command == "missing":
        print("\n".join(f"{game} {algorithm} {seed}" for game, algorithm, seed in missing()))
    else:
        from published_report import report

        report(kept_rows(FILE), missing())


if __name__ == "__main__":
    main()
