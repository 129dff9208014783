"""What self-play against a pool costs: env steps/s with no pool, one snapshot, and twenty.

    OMP_NUM_THREADS=1 python benchmarks/core/self_play_speed.py
    OMP_NUM_THREADS=1 python benchmarks/core/self_play_speed.py --against ../other/.venv/bin/python

mappo with the presets of each game; every pool draws uniformly and grows no more, so that all of
its snapshots play. "One by one" asks the twenty networks one after the other, as nothing in corral
does where they are made of linear layers. All take turns in every round, and ratios are taken
within a round. Seconds are those of the process on its core, so that waiting for a busy machine
does not count: of whole training, and of playing alone (the rollout, without the update).

``--against`` names the interpreter of another version of corral: then training without a pool, and
nothing else, is timed in both.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from alternating import alternate, quotients, serve, spread
from common import RESULTS, machine, save

from corral.adapters.sources import rules_of
from corral.trainers.kinds import defaults_for
from corral.trainers.on_policy.trainer import MAPPO

ROUNDS, SNAPSHOTS, SEED = 5, 20, 0
PASTS = (0.2, 0.5, 1.0)
GAMES: dict[str, tuple[str, dict[str, Any], int]] = {  # name -> environment, settings, updates
    "tictactoe_v0, 256 envs": ("tictactoe_v0", {}, 2),
    "tictactoe_v0, 32 envs": ("tictactoe_v0", {"num_envs": 32}, 6),
    "arena_v0, 16 envs": ("arena_v0", {}, 3),
    "rps_v0, 32 envs": ("rps_v0", {}, 3),
    "connect_four_v3, 32 envs": ("pettingzoo.classic.connect_four_v3", {"num_envs": 32}, 1),
    "tictactoe_v0 with memory, 256 envs": ("tictactoe_v0", {"memory": 32}, 1),
    "tiles_v0 (images), 64 envs": ("tiles_v0", {}, 1),
}
SINGLY = ("memory", "images")
"""Games with such networks: snapshots are asked one by one there in any case."""
NONE, BY_ONE = "no pool", " one by one"
Seconds = dict[str, float]
"""Of one env step, times 10^6: "training" as a whole, and "playing"."""


# --- The contenders ------------------------------------------------------------------------------


def contender(name: str, game: str) -> Callable[[], Seconds]:
    """Return what trains for some updates and tells how long it took."""
    env, given, updates = GAMES[game]
    rules = rules_of(env)
    settings = {**defaults_for(rules, MAPPO, SEED).settings, **given}
    alike = env not in ("arena_v0", "tiles_v0")  # whose agents do other things
    agents = rules.agents
    policies = dict.fromkeys(agents, "shared") if alike else dict(zip(agents, agents, strict=True))
    more: dict[str, Any] = {}
    if name != NONE:
        from corral.trainers.capabilities import Seats
        from corral.trainers.pool import Pool

        pool = Pool(past=float(name.split()[1]), every=10**12, keep=SNAPSHOTS, draw="uniform")
        more["seats"] = Seats(pool=pool)
    trainer = MAPPO(
        rules,
        MAPPO.Settings(**settings),
        seed=SEED,
        policies=policies,
        policies_to_train=list(dict.fromkeys(policies.values())),
        steps=10**9,
        **more,
    )
    trainer.begin()
    if name != NONE:
        fill(trainer, int(name.split()[3]), stacked=not name.endswith(BY_ONE))

    def run() -> Seconds:
        playing = learning = 0.0
        for _ in range(updates):
            began = time.process_time()
            episodes, seconds = trainer.collect()
            then = time.process_time()
            trainer.learn_from(episodes, seconds)
            playing, learning = playing + then - began, learning + time.process_time() - then
        per_step = 1e6 / (updates * trainer.rollout_steps)
        return {"training": (playing + learning) * per_step, "playing": playing * per_step}

    return run


def fill(trainer: Any, count: int, *, stacked: bool) -> None:
    """Let the pool have ``count`` snapshots, no two alike, and draw anew who plays."""
    for frozen in trainer.casting.frozen.values():
        for i in range(1, count):
            with torch.no_grad():
                for parameter in trainer.learners[frozen.learner.group.policy].actor.parameters():
                    parameter.add_(0.01 * torch.randn_like(parameter))
            frozen.add(i)
        if not stacked:
            frozen._stacked = functools.partial(one_by_one, frozen)
    trainer.casting.restart()


def one_by_one(frozen: Any, vector: torch.Tensor, numbers: Any) -> torch.Tensor:
    """Return what ``FrozenActors._stacked`` does, from a forward of each network."""
    chosen = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
    pieces = []
    for rows in chosen:
        actor = frozen.snapshots[int(numbers[rows[0]])].actor
        outputs, _ = actor.step([vector[torch.from_numpy(rows)]], vector.new_zeros(len(rows), 0))
        pieces.append(outputs)
    return torch.cat(pieces)[torch.from_numpy(np.argsort(np.concatenate(chosen)))]


def names(game: str) -> list[str]:
    """Return all contenders: how often a pool plays, of how many, and how they are asked."""
    pools = [f"past {past} of {count}" for past in PASTS for count in (1, SNAPSHOTS)]
    if any(kind in game for kind in SINGLY):
        return [NONE, *pools]
    return [NONE, *pools, *(f"past {past} of {SNAPSHOTS}{BY_ONE}" for past in PASTS)]


def forwards() -> dict[str, list[float]]:
    """Return microseconds, round by round, of 20 networks for 3 rows each: singly, and stacked."""
    from corral.trainers.capabilities import Seats
    from corral.trainers.pool import Pool

    rules = rules_of("tictactoe_v0")
    pool = Pool(past=1.0, every=10**12, draw="uniform")
    trainer = MAPPO(
        rules,
        MAPPO.Settings(num_envs=4, n_steps=4),
        seed=SEED,
        policies=dict.fromkeys(rules.agents, "shared"),
        policies_to_train=["shared"],
        steps=10**9,
        seats=Seats(pool=pool),
    )
    trainer.begin()
    fill(trainer, SNAPSHOTS, stacked=True)
    frozen = trainer.casting.frozen["shared"]
    numbers = np.random.default_rng(0).permutation(np.repeat(np.arange(SNAPSHOTS), 3))
    group = trainer.rollout.groups[0]
    vector = torch.randn(len(numbers), group.vector.shape[-1])
    single = vector[:3].clone()
    hidden = vector.new_zeros(3, 0)
    ways: dict[str, Callable[[], Any]] = {
        "20 single forwards of 3 rows": lambda: [
            each.actor.step([single], hidden) for each in frozen.snapshots
        ],
        "one by one, rows sorted out": lambda: one_by_one(frozen, vector, numbers),
        "stacked, rows sorted out": lambda: frozen._stacked(vector, numbers),
        "one forward of 60 rows": lambda: frozen.snapshots[0].actor.step(
            [vector], vector.new_zeros(60, 0)
        ),
    }
    with torch.inference_mode():
        expected, found = one_by_one(frozen, vector, numbers), frozen._stacked(vector, numbers)
        torch.testing.assert_close(found, expected)
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                began = time.process_time()
                for _ in range(300):
                    way()
                spent[name].append((time.process_time() - began) / 300 * 1e6)
    return spent


# --- The tables ----------------------------------------------------------------------------------


Measured = dict[str, dict[str, list[Seconds]]]
"""game -> contender -> round by round."""


def measured(games: Sequence[str]) -> Measured:
    """Return what each contender needs in each game, in turn."""
    found: Measured = {}
    for game in games:
        runs = {name: contender(name, game) for name in names(game)}
        for run in runs.values():
            run()  # unmeasured
        own = found[game] = {name: [] for name in runs}
        for _ in range(ROUNDS):
            for name, run in runs.items():
                own[name].append(run())
        for name in runs:
            per_second = 1e6 / statistics.median(each["training"] for each in own[name])
            print(f"{game}: {name}: {per_second:,.0f} env steps/s", file=sys.stderr)
    return found


def ratio(own: Mapping[str, list[Seconds]], what: str, name: str, other: str) -> list[float]:
    """Return how many times longer a contender takes than another, round by round."""
    return quotients([each[what] for each in own[name]], [each[what] for each in own[other]])


def page(found: Measured, spent: Mapping[str, list[float]]) -> str:
    lines = [
        "# What self-play against a pool costs",
        "",
        "Seconds of one core; median (min to max) of the rounds.",
    ]
    for game, own in found.items():
        lines += ["", f"## {game}", ""]
        lines += ["| | env steps/s, training | playing alone |", "|---|--:|--:|"]
        for name, rounds in own.items():
            cells = [
                f"{1e6 / statistics.median(each[what] for each in rounds):,.0f}"
                for what in ("training", "playing")
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines += ["", "| time, times as long | training | playing alone |", "|---|--:|--:|"]
        for past in PASTS:
            one, all_of = f"past {past} of 1", f"past {past} of {SNAPSHOTS}"
            for name, other in ((one, NONE), (all_of, one), (all_of + BY_ONE, one)):
                if name not in own:
                    continue
                cells = [cell(ratio(own, what, name, other)) for what in ("training", "playing")]
                lines.append(f"| {name} / {other} | {' | '.join(cells)} |")
    lines += ["", "## Twenty networks of two layers of 64, 3 rows each", ""]
    lines += ["| | microseconds, median | min | max |", "|---|--:|--:|--:|"]
    lines += [f"| {name} | {spread(numbers, ',.0f')} |" for name, numbers in spent.items()]
    return "\n".join(lines)


def cell(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def against(python: str, games: list[str]) -> None:
    """Time training without a pool in another version too, and print how they compare."""
    workers = {"this version": (sys.executable, NONE), "other version": (python, NONE)}
    rounds, checkouts = alternate(workers, __file__, games, 3 * ROUNDS)
    lines = ["# Training without a pool, beside another version", ""]
    lines += ["| time, this version / other | training | playing alone | best rounds |"]
    lines += ["|---|--:|--:|--:|"]
    for game in games:
        own = {name: rounds[name][game] for name in workers}
        cells = [
            cell(ratio(own, what, "this version", "other version"))
            for what in ("training", "playing")
        ]
        best = [min(each["training"] for each in found) for found in own.values()]
        cells.append(f"{best[0] / best[1]:.2f}")
        lines.append(f"| {game} | {' | '.join(cells)} |")
    about = {**machine("torch"), "OMP_NUM_THREADS": "1", "rounds": 3 * ROUNDS, **checkouts}
    save("self_play_speed_against", "\n".join(lines), {"rounds": rounds}, about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="PYTHON", help="interpreter of another version")
    parser.add_argument(
        "--game", action="append", choices=list(GAMES), help="these alone; others stay"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    games = asked.game or list(GAMES)
    if asked.worker:
        made = {game: functools.cache(functools.partial(contender, NONE, game)) for game in games}
        serve({game: lambda make=make: make()() for game, make in made.items()})
    elif asked.against:
        against(asked.against, games)
    else:
        kept = RESULTS / "self_play_speed.json"
        before = json.loads(kept.read_text())["games"] if asked.game and kept.exists() else {}
        found, spent = {**before, **measured(games)}, forwards()
        about = {**machine("torch"), "rounds": ROUNDS, "seed": SEED}
        save("self_play_speed", page(found, spent), {"games": found, "forwards": spent}, about)


if __name__ == "__main__":
    main()
