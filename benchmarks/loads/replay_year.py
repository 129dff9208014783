"""A year of minutes for three nodes, read and replayed through all reference policies.

    OMP_NUM_THREADS=1 python benchmarks/loads/replay_year.py

The trace is made (seed 0), written as CSV to a temporary folder and read back, as a user would.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

from corral.data import make_trace, read_trace, write_trace
from corral.envs.dfaas_v0.baselines import PAIRS
from corral.loads.replay import replay
from corral.loads.report import write_report
from corral.loads.text import ordered


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "year.csv"
        write_trace(make_trace(nodes=3, days=365, step=60, seed=0), path)
        began = time.perf_counter()
        trace = read_trace(path)
        read = time.perf_counter() - began
        result = replay(trace, PAIRS)
        replayed = time.perf_counter() - began - read
        write_report(result, Path(folder) / "report")
        wrote = time.perf_counter() - began - read - replayed
    steps = len(trace) * len(PAIRS)
    lines = [
        "# Replaying a year of minutes",
        "",
        f"{len(trace):,} steps x {len(trace.nodes)} nodes, {len(PAIRS)} reference policies, "
        f"{result.windows} windows of {result.window} steps, default settings.",
        "",
        "| part | seconds |",
        "|---|--:|",
        f"| read the CSV ({len(trace) * len(trace.nodes):,} rows) | {read:.1f} |",
        f"| replay all policies, and the optimum | {replayed:.1f} |",
        f"| write the report | {wrote:.1f} |",
        f"| all | {read + replayed + wrote:.1f} |",
        "",
        f"{steps / replayed:,.0f} env steps/s, policies included.",
        "",
        "| policy | served % | lost % | of optimum % |",
        "|---|--:|--:|--:|",
    ]
    for s in ordered(result.scores):
        lines.append(
            f"| {s.policy} | {100 * s.served:.2f} | {100 * s.lost:.2f} "
            f"| {100 * (s.share_of_optimum or 0):.2f} |"
        )
    seconds = {"read": read, "replay": replayed, "report": wrote}
    save("replay_year", "\n".join(lines), {"seconds": seconds}, machine("pandas"))


if __name__ == "__main__":
    main()
