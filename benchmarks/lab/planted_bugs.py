"""Which probes each planted bug fails, and whether the doctor names it by that.

    OMP_NUM_THREADS=1 python benchmarks/lab/planted_bugs.py           # what is missing
    OMP_NUM_THREADS=1 python benchmarks/lab/planted_bugs.py --fresh   # all anew

Each bug of ``tests/support/planted_bugs`` is planted in ippo (seed 0) and in mappo
(seed 1), and examined on all probes. The patterns go to
_corral/lab/doctor/examination/patterns.json, which ``suspects`` reads, each as soon as it is
measured. P14 is about memory: it is left to the bugs of memory, and a sound trainer.

Then each is named by the patterns of the *other* trainer, of another seed, alone: once with all
that was judged, once as if no values had been given. What counts is the place of the bug's name.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from corral.lab.doctor.examination import EXAMINED, examination
from corral.lab.doctor.examination.patterns import PATTERNS, Pattern, suspects
from corral.trainers.on_policy.trainer import IPPO, MAPPO
from support.planted_bugs import PLANTED

Kept: TypeAlias = dict[str, list[dict[str, Any]]]

SOUND = "nothing"
SUBJECTS = {"ippo": (IPPO, 0), "mappo": (MAPPO, 1)}


def measured(bug: str, trainer: str) -> dict[str, Any]:
    """Return what a bug fails, as patterns.json keeps it."""
    kind, seed = SUBJECTS[trainer]
    began = time.process_time()
    names = EXAMINED if bug == SOUND or bug.startswith("memory") else EXAMINED[:-1]
    found = examination(PLANTED[bug](kind) if bug != SOUND else kind, names, seed=seed)
    return {
        "trainer": trainer,
        "seed": seed,
        "judged": sorted(found.judged),
        "symptoms": sorted(found.symptoms),
        "seconds": round(time.process_time() - began, 1),
    }


def named(kept: Kept, trainer: str, values: bool) -> dict[str, tuple[int, int]]:
    """Return each bug's place among those that are named, from 1, and how many share it; 0: it is
    not named. Its own trainer's patterns are left out."""
    known = {
        bug: [_pattern(one, True) for one in examples if one["trainer"] != trainer]
        for bug, examples in kept.items()
    }
    places = {}
    for bug in PLANTED:
        (one,) = (each for each in kept[bug] if each["trainer"] == trainer)
        found = [suspect for suspect in suspects(_pattern(one, values), known) if suspect.exact]
        place = next((i for i, each in enumerate(found, 1) if bug in each.bugs), 0)
        places[bug] = place, len(found[place - 1].bugs) if place else 0
    return places


def _pattern(one: dict[str, Any], values: bool) -> Pattern:
    def told(kinds: list[str]) -> frozenset[str]:
        return frozenset(kind for kind in kinds if values or kind.split()[1] != "values")

    return Pattern(told(one["judged"]), told(one["symptoms"]))


def table(kept: Kept) -> str:
    lines = [
        "# Planted bugs",
        "",
        "Each is planted in ippo (seed 0) and mappo (seed 1), and examined on the probes. *Fails*: "
        "what it fails in both; in brackets what in one of them. *Place*: where the bug is named "
        "by the patterns of the other trainer and seed alone, in ippo / mappo; in brackets how "
        "many share that place, since nothing that was judged tells them apart; -: not named.",
        "",
        "| bug | fails | place | place without values |",
        "|---|---|---|---|",
    ]
    places = {(who, v): named(kept, who, v) for who in SUBJECTS for v in (True, False)}
    for bug in PLANTED:
        cells = [" / ".join(_place(places[w, v][bug]) for w in SUBJECTS) for v in (True, False)]
        lines.append(f"| {bug} | {_fails(kept[bug])} | {' | '.join(cells)} |")
    lines.append("")
    for values in (True, False):
        failing = [
            (one["trainer"], bug)
            for bug in PLANTED
            for one in kept[bug]
            if _pattern(one, values).symptoms
        ]
        where = [places[trainer, values][bug] for trainer, bug in failing]
        first, second = (sum(1 <= place <= most for place, _ in where) for most in (1, 2))
        alone = sum(1 <= place <= 2 and size == 1 for place, size in where)
        lines.append(
            f"- {'With' if values else 'Without'} values {len(failing)} of {2 * len(PLANTED)} fail "
            f"a probe. Of these {first} are named first, {second} first or second "
            f"({second / max(1, len(failing)):.0%}), {alone} of them by themselves."
        )
    return "\n".join(lines) + "\n"


def _place(place: tuple[int, int]) -> str:
    number, size = place
    if not number:
        return "-"
    return f"{number}" + (f" (of {size})" if size > 1 else "")


def _fails(examples: list[dict[str, Any]]) -> str:
    """Return "P4, P5 (P6)": what fails in all examples, and in brackets what in one."""
    kinds = [{symptom.split()[0] for symptom in one["symptoms"]} for one in examples]
    every, some = set.intersection(*kinds), set.union(*kinds)
    always, once = (sorted(p, key=lambda label: int(label[1:])) for p in (every, some - every))
    return ", ".join(always) + (f" ({', '.join(once)})" if once else "") or "nothing"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fresh", action="store_true", help="forget what is measured")
    parser.add_argument("--trainer", choices=SUBJECTS, help="measure this one alone")
    given = parser.parse_args()
    if given.fresh or not PATTERNS.exists():
        PATTERNS.write_text("{}\n")
    for bug in (SOUND, *PLANTED):
        for trainer in [given.trainer] if given.trainer else SUBJECTS:
            if any(one["trainer"] == trainer for one in read().get(bug, ())):
                continue
            one = measured(bug, trainer)
            print(bug, trainer, one["seconds"], one["symptoms"], file=sys.stderr)
            kept = read()  # the other trainer may have gone on
            kept.setdefault(bug, []).append(one)
            kept[bug].sort(key=lambda each: each["seed"])
            ordered = {name: kept[name] for name in (SOUND, *PLANTED) if name in kept}
            whole = PATTERNS.with_suffix(".part")
            whole.write_text(json.dumps(ordered, indent=1) + "\n")
            whole.replace(PATTERNS)
    if all(len(read().get(bug, ())) == len(SUBJECTS) for bug in PLANTED):
        save("planted_bugs", table(read()), {"seconds": seconds(read())}, machine("torch"))


def read() -> Kept:
    kept: Kept = json.loads(PATTERNS.read_text())
    return kept


def seconds(kept: Kept) -> dict[str, list[float]]:
    """Return the CPU seconds of each bug's examinations."""
    return {bug: [one["seconds"] for one in examples] for bug, examples in kept.items()}


if __name__ == "__main__":
    main()
