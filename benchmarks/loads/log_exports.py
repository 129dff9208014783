"""Logs and JSON as operators export them: is each kind read cell by cell, and how fast?

    python benchmarks/loads/log_exports.py [FOLDER]

Draws loads of three servers, writes them in each kind of tests/support/log_exports.py (into FOLDER,
to look at), imports each by one command in a process of its own, and compares the trace with the
loads. Logs have two hours of 24 requests per second, documents two weeks of minutes. Prints for
each kind: its size after unpacking, the options, the CPU seconds above those of tiny files, the
same for a gigabyte, and if every cell is right.
"""

from __future__ import annotations

import gzip
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save
from exports import cpu_seconds

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.log_exports import DOCUMENTS, LOGS, Export, Loads

OPTIONS = {"time_column": "--time-path", "node_column": "--node-path", "arrivals": "--value-path"}


def typed(export: Export) -> list[str]:
    """Return the options of an export as words of the command line."""
    words = []
    for name, value in export.options.items():
        text = ",".join(value) if isinstance(value, list) else value
        words += [OPTIONS.get(name, f"--{name}"), text]
    return words


def megabytes(path: Path) -> float:
    """Return the size of a file after unpacking."""
    data = path.read_bytes()
    return len(gzip.decompress(data) if path.suffix == ".gz" else data) / 1e6


def cpu_of(command: list[str]) -> tuple[float, str]:
    """Return the CPU seconds of a command, and its errors."""
    used = cpu_seconds()
    done = subprocess.run(command, capture_output=True, text=True)
    return cpu_seconds() - used, done.stderr.strip() if done.returncode else ""


def measure(folder: Path, kind: str, loads: Loads) -> tuple[Export, float, float, str]:
    """Return the files of a kind, their size in MB, the CPU seconds, and what is wrong."""
    from corral.data import read_trace

    folder.mkdir(parents=True, exist_ok=True)
    export = (LOGS | DOCUMENTS)[kind](folder, loads)
    out = folder / "trace.csv"
    corral = [sys.executable, "-m", "corral", "trace", "import", *map(str, export.files)]
    large = ["--max-cells", str(10**9), "--max-bytes", str(10**9), "--overwrite"]
    used, errors = cpu_of([*corral, *typed(export), *large, "--out", str(out)])
    size = sum(map(megabytes, export.files))
    if errors:
        return export, size, used, f"refused: {errors}"
    trace = read_trace(out)
    columns = [trace.nodes.index(node) for node in export.nodes if node in trace.nodes]
    right = trace.arrivals[:, columns].tolist() == export.arrivals.tolist()
    return export, size, used, "" if right and len(columns) == len(trace.nodes) else "other loads"


def main() -> None:
    head = [
        "| export | MB | options | CPU s | CPU s per GB | cell by cell |",
        "|---|---|---|---|---|---|",
    ]
    rows = []
    print(*head, sep="\n")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        hours, weeks = Loads.draw(minutes=120, mean=480), Loads.draw(minutes=14 * 1440)
        for at, kind in enumerate(LOGS | DOCUMENTS):
            start = measure(folder / "tiny", kind, Loads.draw(minutes=2))[2]
            found = measure(folder / str(at), kind, hours if kind in LOGS else weeks)
            export, size, used, wrong = found
            options = shlex.join(typed(export)).replace("|", "\\|") or "none"
            scaled = f"{(used - start) / size * 1000:.0f}" if kind in LOGS else ""
            row = [kind, f"{size:.1f}", options, f"{used - start:.1f}", scaled, wrong or "yes"]
            rows.append(row)
            print("| " + " | ".join(row) + " |", flush=True)
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    save("log_exports", "\n".join([*head, *lines]), {"rows": rows}, machine("pandas"))
    wrong = [row[0] for row in rows if row[-1] != "yes"]
    slow = [row[0] for row in rows if row[4] and float(row[4]) > 60]
    if wrong or slow:
        sys.exit(f"not read rightly: {wrong}; more than 60 CPU s per GB: {slow}")


if __name__ == "__main__":
    main()
