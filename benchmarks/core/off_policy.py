"""Trainers beside the in-house ones, on what has an exact answer: dfaas_v0 and the probes P1 to P7.

    OMP_NUM_THREADS=1 python benchmarks/core/off_policy.py                 # what is missing
    OMP_NUM_THREADS=1 python benchmarks/core/off_policy.py --only sb3_dqn  # one trainer, anew
    OMP_NUM_THREADS=1 python benchmarks/core/off_policy.py --only sb3_dqn --part game

Each result is kept in results/off_policy.json as soon as it is measured, so that a run which was
stopped goes on. The default game is judged as in default_game.py, and the probes as ``corral doctor
--learner`` does it, with its settings, seed 0. All are played with illegal="raise": an illegal
action would end the training.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine

import corral
from corral.lab.doctor.examination import Learned, examination, trained_by
from corral.trainers.base import trainer_class

TRAINERS = {"sb3_dqn": "stable_baselines3", "sb3_a2c": "stable_baselines3"}
"""Trainer -> the module that it stands on."""

GAME_STEPS = 50_000
GAME = {"sb3_dqn": range(3), "sb3_a2c": range(3)}
"""Trainer -> seeds."""

ALL = tuple(f"P{number}" for number in range(1, 8))
PROBES = {"sb3_dqn": ALL, "sb3_a2c": ALL}

FILE = RESULTS / "off_policy.json"


def play_game(trainer: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train on the first 70 % of the rows of edge3; judge beside the optimum on the others."""
    began = time.perf_counter()
    run = corral.train(
        "dfaas_v0",
        env_kwargs={"illegal": "raise"},
        trainer=trainer,
        steps=GAME_STEPS,
        seed=seed,
        validation=0,
        out=folder,
        progress=False,
    )
    seconds = time.perf_counter() - began
    shares = {s.mode: s for s in corral.evaluate(run, references=["overflow/equal"]) if s.mode}
    newest = max((run.folder / "checkpoints").glob("step_*"))
    return {
        "env_steps": int(run.progress["env_steps"].iloc[-1]),
        "seconds": round(seconds, 1),
        "greedy": shares["greedy"].share_of_optimum,
        "sampled": shares["sampled"].share_of_optimum,
        "illegal_actions": sum(score.illegal_actions for score in shares.values()),
        "checkpoint_mb": round(sum(f.stat().st_size for f in newest.iterdir()) / 1e6, 1),
        "machine": about(),
    }


def examine(trainer: str, probe: str) -> dict[str, Any]:
    """Let ``trainer`` learn a probe; return what came out, number by number."""

    def learn(make_env: Callable[..., Any], steps: int, seed: int) -> Learned:
        return trained_by(trainer)(functools.partial(make_env, illegal="raise"), steps, seed)

    (result,) = examination(learn, [probe]).results
    return {
        "passed": result.passed,
        "refused": result.refused,
        "error": result.error,
        "checks": [[c.kind, c.what, c.expected, c.found, c.passed] for c in result.checks],
        "seconds": round(result.seconds, 1),
        "machine": about(),
    }


def about() -> dict[str, Any]:
    return machine("torch", *(["stable-baselines3"] if find_spec("stable_baselines3") else []))


# --- The queue -----------------------------------------------------------------------------------


def jobs(only: str | None, part: str | None) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield part, label and job of all that can be measured here."""
    for trainer, module in TRAINERS.items():
        if only not in (None, trainer) or find_spec(module) is None:
            continue
        trainer_class(trainer)
        for probe in PROBES[trainer] if part in (None, "probes") else ():
            yield "probes", f"{trainer}, {probe}", functools.partial(examine, trainer, probe)
        for seed in GAME.get(trainer, ()) if part in (None, "game") else ():
            yield "game", f"{trainer}, seed {seed}", functools.partial(in_folder, trainer, seed)


def in_folder(trainer: str, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return play_game(trainer, seed, Path(folder) / "run")


def known() -> dict[str, dict[str, Any]]:
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    return {"game": found.get("game", {}), "probes": found.get("probes", {})}


def table(found: dict[str, dict[str, Any]]) -> str:
    lines = [
        "# Trainers beside the in-house ones",
        "",
        f"dfaas_v0 with its defaults on edge3, {GAME_STEPS:,} env steps on rows 0:2822, judged on "
        'rows 2822:4032; illegal="raise":',
        "",
        "| trainer | seed | env steps | training, s | greedy, of optimum % | sampled | illegal "
        "| checkpoint, MB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for label, r in found["game"].items():
        trainer, seed = label.split(", seed ")
        lines.append(
            f"| {trainer} | {seed} | {r['env_steps']:,} | {r['seconds']:.0f} "
            f"| {100 * r['greedy']:.2f} | {100 * r['sampled']:.2f} | {r['illegal_actions']} "
            f"| {r['checkpoint_mb']} |"
        )
    lines += [
        "",
        "The probes: how many numbers of each kind came out (values within 0.1, best actions with "
        "a probability of 0.9 or more, returns, masks: 0 illegal actions).",
        "",
        "| trainer | probe | passed | values | actions | returns | masks |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for label, r in found["probes"].items():
        trainer, probe = label.split(", ")
        cells = [_count(r["checks"], kind) for kind in ("values", "actions", "returns", "masks")]
        said = "refused" if r["refused"] else "error" if r["error"] else "-"
        said = {True: "yes", False: "no"}.get(r["passed"], said)
        lines.append(f"| {trainer} | {probe} | {said} | {' | '.join(cells)} |")
    wrong = [
        f"- {label}: {what}: {found}, expected {expected}"
        for label, r in found["probes"].items()
        for _, what, expected, found, passed in r["checks"]
        if passed is False
    ]
    lines += ["", "What did not come out:", "", *(wrong or ["- nothing"])]
    machines = {
        json.dumps(r["machine"]): r["machine"] for part in found.values() for r in part.values()
    }
    lines += ["", *(", ".join(f"{k} {v}" for k, v in m.items()) for m in machines.values())]
    return "\n".join(lines) + "\n"


def _count(checks: list[Any], kind: str) -> str:
    """Return "passed of judged", "" where nothing of the kind is judged."""
    judged = [passed for each, *_, passed in checks if each == kind and passed is not None]
    return f"{sum(judged)} of {len(judged)}" if judged else ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", metavar="TRAINER", help="one trainer, measured anew")
    parser.add_argument("--part", choices=("game", "probes"), help="default: both")
    given = parser.parse_args()
    if given.only not in (None, *TRAINERS):
        raise SystemExit(f"--only {given.only}: give one of {', '.join(TRAINERS)}")
    for part, label, job in jobs(given.only, given.part):
        if label in known()[part] and given.only is None:
            continue
        result = job()
        found = known()  # others may have come
        found[part][label] = result
        found[part] = dict(sorted(found[part].items()))
        print(
            label,
            {k: v for k, v in result.items() if k not in ("checks", "machine")},
            file=sys.stderr,
        )
        RESULTS.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        FILE.with_suffix(".md").write_text(table(found))


if __name__ == "__main__":
    main()
