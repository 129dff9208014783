"""The doctor, measured: planted faults that it names, and false alarms on healthy runs.

    OMP_NUM_THREADS=1 python benchmarks/lab/doctor.py --part gallery
    OMP_NUM_THREADS=1 python benchmarks/lab/doctor.py --part healthy
    OMP_NUM_THREADS=1 python benchmarks/lab/doctor.py --part healthy --envs dfaas_v0

``gallery`` trains every fault of tests/faults for a few updates, and asks for the verdict: a fault
is named where one of its causes is the first or the second finding. ``healthy`` trains every
environment with every in-house trainer, as it is by default, once briefly and, with some, once to
the end of a plan, and counts what is found. ``--audit`` compares with the truth, too. What was
found of others before is kept, and so is what was found until Ctrl-C. Seconds are of CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save, temporary_run

from corral.lab.doctor.diagnose import Diagnosis, diagnose

TRAINERS = ("mappo", "ippo", "ppo_kl", "a2c", "pg", "pg_episode")
GAMES = ("dfaas_v0", "arena_v0", "tiles_v0", "tictactoe_v0", "rps_v0", "two_step_v0")
PROBES = tuple(f"probe_p{number:02d}_v0" for number in range(1, 19))
BRIEF, LONG = 2, 30
"""Rollouts that healthy runs have learned from: at their beginning, and at their end."""

ANNEALED = ("ippo", "pg")
"""Trainers that learn for longer, too."""

VARIANTS: dict[str, dict[str, Any]] = {
    "memory": {"memory": 16},
    "separate policies": {"policies": "separate"},
    "entropy bonus": {"ent_coef": 0.01},
    "bare scales": {"normalize_values": False, "huber_delta": None},
    "pool": {"self_play": "past=0.5,every=512,keep=5,best=2"},
}
"""Changes of settings, each tried with the first trainer."""

SIZES: dict[str, Any] = {"num_envs": 16, "n_steps": 32}


def examined(run: Any, audited: bool) -> tuple[Diagnosis, float]:
    """Return what was found, and the seconds of CPU time that it took."""
    began = time.process_time()
    found = diagnose(run, audited=audited, cloned=audited, checked=audited)
    return found, time.process_time() - began


# --- Planted faults ------------------------------------------------------------------------------


def gallery(found: dict[str, Any], only: str, audited: bool) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from faults import FAULTS

    for name, fault in FAULTS.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            diagnosis, seconds = examined(fault.make(Path(folder) / "run"), audited)
        least = 2 if fault.sure else 1
        causes = [each.cause for each in diagnosis.findings if each.certainty >= least]
        ranks = [causes.index(cause) + 1 for cause in fault.causes if cause in causes]
        found[name] = {
            "mistake": fault.mistake,
            "findings": causes,
            "rank": min(ranks, default=None),
            "seconds": seconds,
        }
        print(name, found[name]["rank"], causes, f"{seconds:.1f} s", file=sys.stderr)


def gallery_lines(found: dict[str, Any]) -> list[str]:
    named = sum(each["rank"] in (1, 2) for each in found.values())
    lines = [
        "## Planted faults",
        "",
        f"{named} of {len(found)} are named as first or second finding.",
        "",
        "| fault | the mistake | rank | found | CPU seconds |",
        "|---|---|--:|---|--:|",
    ]
    for name, each in found.items():
        rank = "-" if each["rank"] is None else each["rank"]
        causes = ", ".join(each["findings"]) or "nothing"
        lines.append(f"| {name} | {each['mistake']} | {rank} | {causes} | {each['seconds']:.1f} |")
    return lines


# --- Healthy runs --------------------------------------------------------------------------------


def healthy(found: dict[str, Any], envs: list[str], trainers: list[str], audited: bool) -> None:
    pairs = [(env, trainer, "") for env in envs for trainer in trainers]
    pairs += [(env, trainers[0], name) for env in envs if env in GAMES for name in VARIANTS]
    for env, trainer, variant in pairs:
        cells = []
        for updates in (BRIEF, LONG) if trainer in ANNEALED else (BRIEF,):
            options = {**SIZES, **VARIANTS.get(variant, {})}
            steps = updates * options["num_envs"] * options["n_steps"]
            given = {"trainer": trainer, "steps": steps, "progress": False, **options}
            with temporary_run(env, **given) as run:
                diagnosis, seconds = examined(run, audited)
            alarms = [each.cause for each in diagnosis.findings if each.certainty >= 2]
            hints = [each.cause for each in diagnosis.findings if each.certainty < 2]
            cells.append({"updates": updates, "alarms": alarms, "hints": hints, "seconds": seconds})
        name = f"{env}, {trainer}" + (f", {variant}" if variant else "")
        found[name] = cells
        print(name, [each["alarms"] for each in cells], file=sys.stderr, flush=True)


def healthy_lines(found: dict[str, Any]) -> list[str]:
    cells = [each for row in found.values() for each in row]
    alarms = sum(bool(each["alarms"]) for each in cells)
    longest = max(each["seconds"] for each in cells)
    lines = [
        "## Healthy runs",
        "",
        f"{alarms} of {len(cells)} runs, each of one environment, trainer and length, are called "
        f"broken; a diagnosis took {longest:.0f} s at most. Rows are environments, columns "
        f"trainers, cells what is found after {BRIEF} updates (and, with {' and '.join(ANNEALED)}, "
        f"after {LONG}), then the seconds of their diagnoses.",
        "",
    ]
    kinds = list(dict.fromkeys(name.partition(", ")[2] for name in found))
    lines += [f"| environment | {' | '.join(kinds)} |", "|---|" + "--:|" * len(kinds)]
    for env in dict.fromkeys(name.partition(", ")[0] for name in found):
        row = [_cell(found.get(f"{env}, {kind}")) for kind in kinds]
        lines.append(f"| {env} | {' | '.join(row)} |")
    return lines


def _cell(cells: list[dict[str, Any]] | None) -> str:
    if cells is None:
        return ""
    causes = [", ".join(each["alarms"]) or "0" for each in cells]
    return f"{'; '.join(causes)} ({sum(each['seconds'] for each in cells):.0f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("gallery", "healthy"), required=True)
    parser.add_argument("--only", default="", help="part of a fault's name")
    parser.add_argument("--envs", default=",".join((*GAMES, *PROBES)))
    parser.add_argument("--trainers", default=",".join(TRAINERS))
    parser.add_argument("--audit", action="store_true", help="compare with the truth, too")
    args = parser.parse_args()
    kept = RESULTS / "doctor.json"
    data = json.loads(kept.read_text()) if kept.exists() else {}
    data.pop("about", None)
    found = data.setdefault(args.part, {})
    with contextlib.suppress(KeyboardInterrupt):
        if args.part == "gallery":
            gallery(found, args.only, args.audit)
        else:
            healthy(found, args.envs.split(","), args.trainers.split(","), args.audit)
    lines = ["# The doctor", ""]
    if "gallery" in data:
        lines += [*gallery_lines(data["gallery"]), ""]
    if "healthy" in data:
        lines += healthy_lines(data["healthy"])
    save("doctor", "\n".join(lines), data, machine("torch", "gymnasium", "pettingzoo"))


if __name__ == "__main__":
    main()
