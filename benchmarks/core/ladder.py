"""connect_four_v3: mappo and PettingZoo's own MaskablePPO tutorial against one ladder.

    OMP_NUM_THREADS=1 python benchmarks/core/ladder.py [--steps N] [--seeds N] [--only NAME ...]
        [--minutes M] [--folder DIR]

Every contestant has the same env steps (moves of either player). Rungs: random play; one-ply play,
which wins at once or blocks if it can; and the contestant's own snapshot of half its training. Each
is played 500 times in each seat, by the contestant's likeliest moves and by moves that it draws.
The tutorial is trained as it stands, with its wrapper and its settings; of its two ways to play,
the table shows the better.

Trainings go on where they were broken off (``--minutes`` breaks them off), and results are kept:
what is in results/ladder.json is not done again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sb3_contrib import MaskablePPO

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save
from ladder_players import RUNGS, tutorial

import corral
from corral.adapters.sources import rules_of
from corral.envs.policy import PolicyLike
from corral.errors import CheckpointError
from corral.trainers.evaluation.zero_sum import SeatScore, evaluate_seat

ENV = "classic/connect_four-v3"
STEPS = 204_800
EPISODES = 500
MARKS = {"random": 0.98, "one-ply": 0.9, "half": 0.6}
"""Shares of won games that are aimed at, in either seat."""

Team = Mapping[str, PolicyLike]


@dataclasses.dataclass(frozen=True)
class Contestant:
    """What learns: ``corral.train`` with these arguments, or the tutorial."""

    about: str
    given: Mapping[str, Any] | None = None  # None: the tutorial


POOL = "past=0.2,every=20000,keep=20,draw=pfsp,best=0"
MODEL = f"{Path(__file__).parent / 'ladder_network.py'}:make"
OWN: Mapping[str, Any] = {
    **{"trainer": "ippo", "model": MODEL, "num_envs": 128, "n_steps": 32, "learning_rate": 1e-3},
    **{"n_epochs": 8, "gamma": 0.8, "gae_lambda": 0.5, "ent_coef": 0.25, "ent_coef_end": 0.1},
}

CONTESTANTS = {
    "mappo": Contestant("plain self-play, with the defaults for such a game", {}),
    "mappo, tuned": Contestant(
        "the same in smaller rollouts, with larger networks and less entropy",
        {
            **{"num_envs": 64, "n_steps": 32, "net_arch": (256, 256), "activation": "relu"},
            **{"ent_coef": 0.1, "ent_coef_end": 0.03},
        },
    ),
    "ippo, own network": Contestant(
        "plain self-play with ladder_network.py, more entropy and short sight", OWN
    ),
    "ippo, own network, pool": Contestant(
        "the same against a pool of its own snapshots", {**OWN, "self_play": POOL}
    ),
    "tutorial": Contestant("MaskablePPO of PettingZoo's tutorial, as it stands"),
}


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of ``count`` independent games (Wilson, 1927)."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    return max(0.0, middle - half), min(1.0, middle + half)


# --- Training ------------------------------------------------------------------------------------


def trained(
    env: str, given: Mapping[str, Any], seed: int, steps: int, folder: Path, deadline: float
) -> Any:
    """Return a run with ``steps`` env steps; None where there was no time for that."""
    model = given.get("model")
    if not (folder / "config.json").is_file():
        session = corral.session(
            env,
            seed=seed,
            steps=steps,
            out=folder,
            checkpoint_every=steps // 20,
            keep="all",
            progress=False,
            **given,
        )
    else:
        try:
            run = corral.load_run(folder, env, model=model)
            if int(run.progress["env_steps"].iloc[-1]) >= run.config.steps:
                return run
        except (CheckpointError, IndexError, OSError):
            pass
        session = corral.resume_session(folder, env=env, model=model, progress=False)
    with session:
        for _ in session:
            if time.monotonic() > deadline:
                return None
        return session.finish()


def teams_of(name: str, seed: int, steps: int, folder: Path, deadline: float) -> Any:
    """Return a contestant's team at the end, and at half of its training; None: out of time."""
    given = CONTESTANTS[name].given
    if given is None:
        files = tutorial(seed, steps, folder, lambda: time.monotonic() > deadline)
        if max(files, default=0) < steps:
            return None
        half = min(files, key=lambda done: abs(done - steps // 2))
        models = [MaskablePPO.load(files[done], device="cpu") for done in (steps, half)]
        return [dict.fromkeys(("player_0", "player_1"), model) for model in models], steps
    run = trained(ENV, given, seed, steps, folder, deadline)
    if run is None:
        return None
    half = half_of(ENV, folder, steps, given.get("model"))
    return [run.policies, half and half.policies], max(saved_at(folder))


def half_of(env: str, folder: Path, steps: int, model: str | None = None) -> Any:
    """Return the run as it was at half of ``steps``; None where no such checkpoint was kept."""
    half = min(saved_at(folder), key=lambda done: abs(done - steps // 2))
    near = abs(half - steps // 2) <= steps / 20
    return corral.load_run(f"{folder}@{half}", env, model=model) if near else None


def saved_at(folder: Path) -> list[int]:
    """Return the env steps of a run's checkpoints."""
    return [int(path.name.split("_")[1]) for path in (folder / "checkpoints").glob("step_*")]


# --- Playing -------------------------------------------------------------------------------------


def climbed(team: Team, half: Team | None) -> dict[str, Any]:
    """Return shares won, drawn and lost: rung -> seat -> mode."""
    rules = rules_of(ENV)
    found: dict[str, Any] = {}
    for rung in (*RUNGS, *(["half"] if half else [])):
        for seat, other in (rules.agents, rules.agents[::-1]):
            opponent = RUNGS[rung] if half is None or rung in RUNGS else half[other]
            for mode in ("greedy", "sampled"):
                score = evaluate_seat(
                    rules,
                    seat,
                    team[seat],
                    opponent,
                    episodes=EPISODES,
                    num_envs=100,
                    deterministic=mode == "greedy",
                )
                found.setdefault(rung, {}).setdefault(seat, {})[mode] = shares(score)
    return found


def shares(score: SeatScore) -> dict[str, float]:
    return {"won": score.won, "drawn": score.drawn, "lost": score.lost}


# --- Results -------------------------------------------------------------------------------------


def cell(found: Mapping[str, float]) -> str:
    low, high = wilson(found["won"], EPISODES)
    counts = "/".join(f"{100 * found[key]:.1f}" for key in ("won", "drawn", "lost"))
    return f"{counts} ({100 * low:.1f} to {100 * high:.1f})"


def better(runs: list[Mapping[str, Any]]) -> str:
    """Return the mode that wins more games against the rungs that are the same for everybody."""
    won = {
        mode: sum(
            run["played"][rung][seat][mode]["won"]
            for run in runs
            for rung in RUNGS
            for seat in run["played"][rung]
        )
        for mode in ("greedy", "sampled")
    }
    return max(won, key=lambda mode: won[mode])


def table(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row for every contestant, seed and seat."""
    lines = [
        "# connect_four_v3: a ladder",
        "",
        f"Games won/drawn/lost in %, {EPISODES:,} of each; in brackets the 95 % interval of the "
        "share won. In each row the mode, greedy or sampled, in which the contestant wins more "
        "against random and one-ply play.",
        "",
        "| contestant | env steps | seed | seat | mode | random | one-ply | its own half |",
        "|---|--:|--:|---|---|---|---|---|",
    ]
    kinds = sorted({(run["contestant"], run["steps"]) for run in runs.values()})
    for name, steps in kinds:
        own = [r for r in runs.values() if (r["contestant"], r["steps"]) == (name, steps)]
        mode = better(own)
        for run in sorted(own, key=lambda each: each["seed"]):
            for seat in run["played"]["random"]:
                played = [run["played"].get(rung) for rung in MARKS]
                cells = " | ".join(cell(each[seat][mode]) if each else "" for each in played)
                lines.append(
                    f"| {name} | {run['env_steps']:,} | {run['seed']} | {seat} | {mode} | {cells} |"
                )
    lines += ["", *(f"- {name}: {each.about}" for name, each in CONTESTANTS.items())]
    return "\n".join(lines)


def kept(file: Path) -> dict[str, Any]:
    """Return the results that are there already."""
    return dict(json.loads(file.read_text())["runs"]) if file.is_file() else {}


def options(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(about or "").split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the contestants")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="of what is trained")
    return parser


def main() -> None:
    asked = options(__doc__).parse_args()
    deadline = time.monotonic() + 60 * asked.minutes
    torch.set_num_threads(1)
    runs = kept(RESULTS / "ladder.json")
    for seed in range(asked.seeds):
        for name in CONTESTANTS:
            key = f"{name}/{asked.steps}/{seed}"
            if name not in (asked.only or CONTESTANTS) or key in runs:
                continue
            folder = asked.folder / f"ladder-{key.replace('/', '-').replace(', ', '-')}"
            found = teams_of(name, seed, asked.steps, folder, deadline)
            if found is None:
                print(f"{key}: broken off; the same command goes on", file=sys.stderr)
                return
            (team, half), env_steps = found
            found = {
                "contestant": name,
                "seed": seed,
                "steps": asked.steps,
                "env_steps": env_steps,
                "played": climbed(team, half),
            }
            runs = {**kept(RESULTS / "ladder.json"), key: found}  # others may add to it meanwhile
            about = machine("torch", "pettingzoo", "sb3-contrib")
            save("ladder", table(runs), {"runs": runs}, about)


if __name__ == "__main__":
    main()
