"""How fast a year of minutes is read: three nodes, ISO times, with capacity, 1.58 million rows.

    python benchmarks/loads/trace_reading.py

Writes the files into a temporary folder, reads each in a process of its own: seconds,
megabytes per second, and the peak of memory (resident set) of the whole process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

MINUTES = 525_600
NODES = ("milan", "oslo", "porto")


def write_year(folder: Path) -> dict[str, Path]:
    """The same year twice: all nodes of a minute together, and all minutes of a node together."""
    start = np.datetime64("2026-01-01T00:00:00")
    times = np.datetime_as_string(start + np.arange(MINUTES) * np.timedelta64(60, "s")).tolist()
    loads = np.random.default_rng(0).poisson(50, size=(MINUTES, len(NODES))).tolist()
    head = "time,node,arrivals,capacity\n"
    by_time, by_node = folder / "by_time.csv", folder / "by_node.csv"
    with by_time.open("w", newline="") as file:
        file.write(head)
        for at, row in zip(times, loads, strict=True):
            cells = zip(NODES, row, strict=True)
            file.writelines(f"{at}Z,{name},{load},100\n" for name, load in cells)
    with by_node.open("w", newline="") as file:
        file.write(head)
        for node, name in enumerate(NODES):
            cells = zip(times, loads, strict=True)
            file.writelines(f"{at}Z,{name},{row[node]},100\n" for at, row in cells)
    return {"sorted by time": by_time, "sorted by node": by_node}


def read(path: str) -> None:
    """Read one file and print seconds and peak memory in MB (run in a process of its own)."""
    import resource

    from corral.data import read_trace

    begin = time.perf_counter()
    trace = read_trace(path)
    seconds = time.perf_counter() - begin
    if trace.arrivals.shape != (MINUTES, len(NODES)):
        sys.exit(f"read {trace}, not the year that was written")
    unit = 1 if sys.platform == "darwin" else 1024
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6)


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "read":
        return read(sys.argv[2])
    lines = [
        "# Reading a year of minutes",
        "",
        "| file | MB | seconds, best of 3 | MB/s | peak memory, MB |",
        "|---|--:|--:|--:|--:|",
    ]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in write_year(Path(folder)).items():
            command = [sys.executable, __file__, "read", str(path)]
            runs = [
                subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                for _ in range(3)
            ]
            seconds = min(float(run[0]) for run in runs)
            peak = max(float(run[1]) for run in runs)
            size = path.stat().st_size / 1e6
            found[name] = {"seconds": seconds, "peak_mb": peak, "mb": size}
            lines.append(
                f"| {name} | {size:.0f} | {seconds:.2f} | {size / seconds:.0f} | {peak:.0f} |"
            )
    return save("trace_reading", "\n".join(lines), {"files": found}, machine("pandas"))


if __name__ == "__main__":
    main()
