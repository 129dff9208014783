"""Tables and public traces as they are exported: is each kind read cell by cell?

    python benchmarks/loads/table_exports.py [FOLDER]

Draws a day of minutes of two servers, writes it as each kind of tests/support/table_exports.py
(into FOLDER, to look at), imports each by one command in a process of its own, and compares the
trace with the loads. Prints for each kind the result of a bare import, the options, the CPU
seconds, and if every cell is right. A file that must be refused is right if the message names the
problem.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save
from exports import cpu_seconds

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.table_exports import KINDS, PUBLIC, Loads, right

README = (Path(__file__).parents[2] / "data" / "README.md").read_text(encoding="utf-8")
LINES = dict(re.findall(r"^\| ([^|]+) \| `corral trace import \S+(.*)` \|$", README, re.MULTILINE))
MINUTES = 1440


def imported(files: list[Path], options: list[str]) -> tuple[int, str]:
    """Return the exit status of an import, and its errors."""
    command = [sys.executable, "-m", "corral", "trace", "import", *map(str, files), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr


def measure(folder: Path, kind: str) -> list[str]:
    """Return the row of a kind."""
    from corral.data import read_trace

    folder.mkdir(parents=True, exist_ok=True)
    export = KINDS[kind](folder, Loads.draw(MINUTES))
    options = shlex.split(LINES[kind] if kind in PUBLIC else export.options)
    code, errors = imported(export.files, []) if options or export.names else (0, "")
    bare = "refused" if code else "read"
    if export.arrivals is None:
        named = code != 0 and all(name in errors for name in export.names)
        return [kind, bare, "", "", "refused rightly" if named else "WRONG"]
    out, used = folder / "trace.csv", cpu_seconds()
    code, errors = imported(export.files, [*options, "--out", str(out), "--overwrite"])
    used = cpu_seconds() - used
    if code:
        return [kind, bare, shlex.join(options), f"{used:.1f}", f"refused: {errors.strip()}"]
    trace = read_trace(out)
    is_right = right(export, trace.nodes, trace.arrivals, trace.step)
    return [kind, bare, shlex.join(options), f"{used:.1f}", "yes" if is_right else "WRONG"]


def main() -> None:
    head = ["| export | bare import | options | CPU s | cell by cell |", "|---|---|---|---|---|"]
    print(*head, sep="\n")
    rows, table = [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        for at, kind in enumerate(KINDS):
            row = measure(folder / str(at), kind)
            rows.append(row)
            table.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
            print(table[-1], flush=True)
    num_right = sum(row[-1] in ("yes", "refused rightly") for row in rows)
    table.append(f"\n{num_right} of {len(rows)} rightly.")
    print(table[-1])
    save("table_exports", "\n".join([*head, *table]), {"rows": rows}, machine("pandas"))
    if num_right < len(rows):
        sys.exit("some exports were refused, or not read as they are")


if __name__ == "__main__":
    main()
