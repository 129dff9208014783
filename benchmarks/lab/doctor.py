"""Planted faults of tests/faults that the doctor names.

    OMP_NUM_THREADS=1 python benchmarks/lab/doctor.py [--only TEXT] [--audit]

Trains every fault for a few updates, and asks for the verdict: a fault is named if one of its
causes is the first or the second finding. ``--audit`` also compares with true values. Faults that
were examined before are replaced, the others kept. Seconds are CPU time. Healthy runs: healthy.py.
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

from common import RESULTS, machine, save

from corral.lab.doctor.diagnose import diagnose


def gallery(found: dict[str, Any], only: str, audited: bool) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from faults import FAULTS

    for name, fault in FAULTS.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = fault.make(Path(folder) / "run")
            began = time.process_time()
            diagnosis = diagnose(run, audited=audited, cloned=audited, checked=audited)
            seconds = time.process_time() - began
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
        "# The doctor: planted faults",
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of a fault's name")
    parser.add_argument("--audit", action="store_true", help="compare with the truth, too")
    args = parser.parse_args()
    kept = RESULTS / "doctor.json"
    found = json.loads(kept.read_text())["gallery"] if kept.exists() else {}
    with contextlib.suppress(KeyboardInterrupt):
        gallery(found, args.only, args.audit)
    text = "\n".join(gallery_lines(found))
    save("doctor", text, {"gallery": found}, machine("torch", "gymnasium", "pettingzoo"))


if __name__ == "__main__":
    main()
