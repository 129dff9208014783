"""Runs and settings files made by an enemy: no code is run, nothing hangs or fills the memory.

    OMP_NUM_THREADS=1 python benchmarks/core/hostile_runs.py [--share 0.1] [--only TEXT]

The cases are those of tests/support/hostile_runs.py; each is opened by every command of its kind
in a process of its own. A case holds where no code was run, nothing outside of its folder was
changed or quoted, every command ended with an error of corral's own or did its work, took at most
5 CPU seconds more than for a sound run, and the process less than 1 GB.
Writes results/hostile_runs.json and .md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.hostile_runs import CASES, meet, usual_seconds, world

KINDS = {
    "settings": "hostile settings files",
    "a link": "links in the folder of a run",
    "": "hostile runs",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=1.0, help="of the cases, every n-th")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    arguments = parser.parse_args()
    step = max(1, round(1 / arguments.share))
    names = [name for name in CASES if arguments.only in name][::step]
    rows: dict[str, dict[str, object]] = {}
    faults: dict[str, list[str]] = {kind: [] for kind in KINDS.values()}
    tries = dict.fromkeys(faults, 0)
    with tempfile.TemporaryDirectory() as place:
        sound = world(Path(place) / "world")
        usual = usual_seconds(sound, Path(place) / "usual")
        for number, name in enumerate(names):
            kind = next(what for start, what in KINDS.items() if name.startswith(start))
            met = meet(name, sound, Path(place) / f"case-{number}", usual)
            tries[kind] += 1
            if met.faults:
                faults[kind].append(f"{name}: {'; '.join(met.faults)}")
            held = f"held, {met.refused} of {met.commands} refused"
            print(f"{name}: {'; '.join(met.faults) or held}", flush=True)
    table = ["| what | tries | held | not held |", "|---|--:|--:|---|"]
    for kind, count in tries.items():
        held = count - len(faults[kind])
        rows[kind] = {"what": kind, "tries": count, "held": held, "not_held": faults[kind]}
        table.append(f"| {kind} | {count} | {held} | {'; '.join(faults[kind]) or '-'} |")
    found = {"rows": list(rows.values()), "share": arguments.share, "machine": machine()}
    (RESULTS / "hostile_runs.json").write_text(json.dumps(found, indent=1) + "\n")
    text = "# Hostile runs and settings files\n\n" + "\n".join(table) + "\n"
    (RESULTS / "hostile_runs.md").write_text(text)


if __name__ == "__main__":
    main()
