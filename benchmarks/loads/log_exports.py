"""Logs and JSON as operators export them: is each kind read cell by cell, and how fast?

    python benchmarks/loads/log_exports.py [FOLDER]

Draws loads of three servers, writes them in each kind of tests/support/log_exports.py (into FOLDER,
to look at), imports each, and compares the trace with the loads. Logs have an hour of 24 requests
per second, documents two weeks of minutes. Prints for each kind: its size after unpacking, the
options, the CPU seconds of the import, the same for a gigabyte, and if every cell is right.
"""

from __future__ import annotations

import gzip
import shlex
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from corral.data import import_trace
from corral.errors import TraceError
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


def measure(folder: Path, kind: str, loads: Loads) -> tuple[Export, float, float, str]:
    """Return the files of a kind, their size in MB, the CPU seconds, and what is wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    export = (LOGS | DOCUMENTS)[kind](folder, loads)
    begin = time.process_time()
    try:
        trace = import_trace(export.files, **export.options, max_cells=10**9).trace
    except TraceError as error:
        return export, 0.0, 0.0, f"refused: {error}"
    used = time.process_time() - begin
    columns = [trace.nodes.index(node) for node in export.nodes if node in trace.nodes]
    right = trace.arrivals[:, columns].tolist() == export.arrivals.tolist()
    wrong = "" if right and len(columns) == len(trace.nodes) else "other loads"
    return export, sum(map(megabytes, export.files)), used, wrong


def main() -> None:
    head = [
        "| export | MB | options | CPU s | CPU s per GB | cell by cell |",
        "|---|---|---|---|---|---|",
    ]
    rows = []
    print(*head, sep="\n")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        hour, weeks = Loads.draw(minutes=60, mean=480), Loads.draw(minutes=14 * 1440)
        for at, kind in enumerate(LOGS | DOCUMENTS):
            loads = hour if kind in LOGS else weeks
            export, size, used, wrong = measure(folder / str(at), kind, loads)
            options = shlex.join(typed(export)).replace("|", "\\|") or "none"
            scaled = f"{used / size * 1000:.0f}" if kind in LOGS and not wrong else ""
            row = [kind, f"{size:.1f}", options, f"{used:.1f}", scaled, wrong or "yes"]
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
