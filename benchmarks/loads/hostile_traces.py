"""Hostile files as traces and imports: how many are refused or read rightly, within the limits.

    OMP_NUM_THREADS=1 python benchmarks/loads/hostile_traces.py [--share 0.1]

A try is one reader and one file of tests/support/hostile_traces.py. It holds if the file is read or
refused by name within 5 CPU seconds, and the process that lets all readers open the file stays
below 1 GB. ``--share`` takes that part of the files, spread over all kinds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.hostile_traces import CASES, failures, meet, readers_of


def rows(share: float = 1.0) -> Iterator[dict[str, Any]]:
    """Yield for each kind of file: what it is, tries, held, and what did not hold."""
    kinds: dict[str, dict[str, Any]] = {}
    names = list(CASES)
    taken = {names[int(at / share)] for at in range(max(1, round(share * len(names))))}
    for name in (each for each in names if each in taken):
        kind = CASES[name].kind
        row = kinds.setdefault(kind, {"what": kind, "tries": 0, "not_held": [], "peak_mb": 0})
        with tempfile.TemporaryDirectory() as folder:
            path = CASES[name].build(Path(folder))
            meetings, peak = meet(path, readers_of(name))
        row["tries"] += len(readers_of(name)) + 1  # the last is its memory
        row["not_held"] += failures(name, meetings, peak)
        row["peak_mb"] = max(row["peak_mb"], round(peak))
        row["seconds"] = max(row.get("seconds", 0), *(each.seconds for each in meetings))
    for row in kinds.values():
        yield {**row, "held": row["tries"] - len(row["not_held"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0)
    share = parser.parse_args().share
    found = list(rows(share))
    lines = [
        "| hostile traces and imports | tries | held | most CPU s | most MB |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in found:
        counts = f"{row['tries']} | {row['held']} | {row['seconds']:.1f} | {row['peak_mb']}"
        lines.append(f"| {row['what']} | {counts} |")
    lost = [line for row in found for line in row["not_held"]]
    save("hostile_traces", "\n".join(lines), {"share": share, "rows": found}, machine("pandas"))
    if lost:
        sys.exit("not held:\n" + "\n".join(lost))


if __name__ == "__main__":
    main()
