"""Which probes learners of each framework pass: ``corral doctor --learner``, for all that can be
imported.

    OMP_NUM_THREADS=1 python benchmarks/lab/framework_probes.py                  # what is missing
    OMP_NUM_THREADS=1 python benchmarks/lab/framework_probes.py --only "RLlib PPO"   # anew

The frameworks exclude each other: run it once in each virtual environment. Each probe replaces
its cell in results/framework_probes.json as soon as it is measured, and the others stay.

Rows are corral's trainers, and the functions of docs/plug_it_in/*_learner.py, with 10,000 env steps
or what the probe allows, seed 0; where that fails, once more with three times as many. Nothing was
tuned for a framework: other settings may mend what its learner fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine

from corral.lab.doctor.examination import (
    EXAMINED,
    Examination,
    examination,
    suspects,
)
from corral.lab.doctor.examination.patterns import Pattern

PROGRAMS = Path(__file__).parents[2] / "docs" / "plug_it_in"
OWN = ("mappo", "ippo", "ppo_kl", "a2c", "pg", "sb3_ppo")
LEARNERS = {
    "CleanRL-style loop": ("torch", "cleanrl_learner.py:learn"),
    "Stable-Baselines3 PPO": ("stable-baselines3", "sb3_learner.py:learn"),
    "Stable-Baselines3 PPO, SuperSuit": ("supersuit", "sb3_learner.py:learn_through_supersuit"),
    "RLlib PPO": ("ray", "rllib_learner.py:learn"),
    "RLlib PPO, no ValueFunctionAPI": ("ray", "rllib_learner.py:learn_without_value_function_api"),
    "Tianshou DQN": ("tianshou", "tianshou_learner.py:learn"),
    "TorchRL IPPO": ("torchrl", "torchrl_learner.py:learn"),
}
MODULES = {"stable-baselines3": "stable_baselines3"}
LONGER = 3
"""How many times the env steps where a probe is failed: is it broken, or slow?"""

LABELS = [f"P{number}" for number in range(1, 15)]
NOTES = """
- yes: all numbers that could be judged came out (values within the probe's tolerance, best actions
  with a probability of 0.9 or more, returns). a: actions, v: values, r: returns, m: masks did not.
- "a; yes": it failed, and with three times the env steps it passed; "a; a": nor then.
- refused: the learner says that it does not play such games. error: it raised, or what it
  returned did. -: not judged, since no values were given, or nothing keeps a memory.
- Tianshou's DQN gives what its greedy action is worth while the others explore (P7), and ends the
  episode of all as the first agent ends (P9, P10); its n-step return counts turns (P12).
- RLlib drops what is paid with an agent's first observation; RLlibEnv pays it with the first move,
  which keeps the return, and credits it to that move (P13). Without ValueFunctionAPI: see
  docs/plug_it_in.md.
- *nearest*: the planted bugs whose failures are the likest, where any are near.
"""


def learners(only: str | None) -> dict[str, tuple[str, str]]:
    """Return the distribution and the learner of each row that can be measured here."""
    found = {f"corral {name}": ("corral", name) for name in OWN if find_spec("safetensors")}
    if not find_spec("stable_baselines3"):
        found.pop("corral sb3_ppo", None)
    for name, (package, program) in LEARNERS.items():
        if find_spec(MODULES.get(package, package)):
            found[name] = package, str(PROGRAMS / program)
    return {name: each for name, each in found.items() if only in (None, name)}


def row(
    package: str, found: Examination, longer: Examination | None, before: dict[str, Any]
) -> dict[str, Any]:
    """Return the row that ``found`` makes; probes that were not measured now stay as before."""
    again = {r.label: cell(r) for r in longer.results} if longer else {}
    now = {result.label for result in found.results}

    def merged(key: str, new: dict[str, Any]) -> dict[str, Any]:
        kept = {label: old for label, old in before.get(key, {}).items() if label not in now}
        return {label: each for label in LABELS if (each := {**kept, **new}.get(label))}

    judged, symptoms = (
        sorted({kind for kind in before.get(key, []) if kind.split()[0] not in now} | new)
        for key, new in (("judged", found.judged), ("symptoms", found.symptoms))
    )
    near = suspects(Pattern(frozenset(judged), frozenset(symptoms)))[:1]
    return {
        "version": f"{package} {metadata.version(package)}",
        "cells": merged("cells", {result.label: cell(result) for result in found.results}),
        "longer": merged("longer", again),
        "seconds": merged("seconds", {r.label: round(r.seconds, 1) for r in found.results}),
        "errors": merged("errors", {r.label: r.error for r in found.results if r.error}),
        "judged": judged,
        "symptoms": symptoms,
        "nearest": [
            f"{one.bugs[0]}{' and others' if one.bugs[1:] else ''} ({one.likeness:.2f})"
            for one in near
        ],
        "machine": machine("torch"),
    }


def cell(result: Any) -> str:
    """Return "yes", "a v", "refused", "error" or "-"."""
    if result.refused or result.error:
        return "refused" if result.refused else "error"
    if result.passed is None:
        return "-"
    kinds = sorted(kind.split()[1] for kind in result.kinds(False))
    return " ".join(kind[0] for kind in kinds) or "yes"


def table(rows: dict[str, dict[str, Any]]) -> str:
    lines = ["# Frameworks on the probes", "", *NOTES.strip().splitlines(), ""]
    lines += [f"| learner | {' | '.join(LABELS)} | nearest | s |", "|---" * 17 + "|"]
    for name, r in rows.items():
        cells = [r["cells"].get(label, "") for label in LABELS]
        again = [r.get("longer", {}).get(label) for label in LABELS]
        cells = [f"{a}; {b}" if b else a for a, b in zip(cells, again, strict=True)]
        nearest = ", ".join(r["nearest"])
        lines.append(
            f"| {name} | {' | '.join(cells)} | {nearest} | {sum(r['seconds'].values()):.0f} |"
        )
    lines += ["", "Errors, and what was refused (the beginning of what was said):", ""]
    for name, r in rows.items():
        alike: dict[str, list[str]] = {}
        for label, error in r["errors"].items():
            alike.setdefault(f"{error:.110}", []).append(label)
        lines += [f"- {name}, {', '.join(labels)}: {said}" for said, labels in alike.items()]
    lines += ["", "Versions; an empty cell was not measured:", ""]
    for name, r in rows.items():
        about = ", ".join(f"{key} {value}" for key, value in r["machine"].items())
        lines.append(f"- {name}: {r['version']}; {about}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", metavar="NAME", help="one row, measured anew")
    parser.add_argument("--probes", metavar="P4,P7", help="default: all")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="for each probe")
    parser.add_argument("--once", action="store_true", help="do not train longer what fails")
    given = parser.parse_args()
    chosen = learners(given.only)
    if not chosen:
        raise SystemExit(f"--only {given.only}: not importable here; {', '.join(learners(None))}")
    path = RESULTS / "framework_probes.json"
    names = given.probes.split(",") if given.probes else EXAMINED
    for name, (package, learner) in chosen.items():
        rows = json.loads(path.read_text()) if path.exists() else {}
        if name in rows and given.only is None:
            continue
        for probe in names:
            found = examination(learner, [probe], limit=given.limit)
            longer = None
            if found.failed and not found.results[0].error and not given.once:
                longer = examination(learner, [probe], budget=LONGER, limit=given.limit)
            rows = json.loads(path.read_text()) if path.exists() else {}  # others may have come
            rows[name] = row(package, found, longer, rows.get(name, {}))
            ordered = [f"corral {own}" for own in OWN] + list(LEARNERS)
            rows = {each: rows[each] for each in ordered if each in rows}
            print(name, probe, rows[name]["cells"], file=sys.stderr, flush=True)
            path.write_text(json.dumps(rows, indent=1) + "\n")
            (RESULTS / "framework_probes.md").write_text(table(rows))


if __name__ == "__main__":
    main()
