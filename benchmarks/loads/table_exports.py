"""Tables and public traces as they are exported: is each kind read cell by cell?

    python benchmarks/loads/table_exports.py [FOLDER]

Draws a day of minutes of two servers, writes it as each kind of tests/support/table_exports.py,
unlisted_exports.py and further_exports.py (into FOLDER, to look at), imports each by one command in
a process of its own, and compares the trace with the loads. Prints for each kind the result of a
bare import, the options, the CPU seconds, and if every cell is right. A file that must be refused
is right if the message names the problem. "WRONG" is a trace with other loads than the file,
"refused" a file that no option reads.
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

from support.further_exports import FURTHER
from support.table_exports import KINDS, PUBLIC, Export, Loads, right
from support.unlisted_exports import UNLISTED

README = (Path(__file__).parents[2] / "data" / "README.md").read_text(encoding="utf-8")
LINES = dict(re.findall(r"^\| ([^|]+) \| `corral trace import \S+(.*)` \|$", README, re.MULTILINE))
MINUTES = 1440
READ = ("yes", "refused rightly")


def imported(export: Export, folder: Path, options: list[str]) -> tuple[str, str]:
    """Return the result of an import, and its messages."""
    from corral.data import read_trace

    out, files = folder / "trace.csv", list(map(str, export.files))
    command = [sys.executable, "-m", "corral", "trace", "import", *files, *options]
    done = subprocess.run(
        [*command, "--out", str(out), "--overwrite"], capture_output=True, text=True
    )
    if done.returncode:
        return "refused", done.stderr
    trace = read_trace(out)
    is_right = right(export, trace.nodes, trace.arrivals, trace.step)
    return "yes" if is_right else "WRONG", done.stderr


def measure(folder: Path, kind: str) -> list[str]:
    """Return the row of a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    export = (KINDS | UNLISTED | FURTHER)[kind](folder, Loads.draw(MINUTES))
    options = shlex.split(LINES[kind] if kind in PUBLIC else export.options)
    used = cpu_seconds()
    bare, errors = imported(export, folder, [])
    result = bare
    if export.arrivals is None:
        is_named = bare == "refused" and all(name in errors for name in export.names)
        result = "refused rightly" if is_named else "WRONG"
    elif options:
        used = cpu_seconds()
        result, errors = imported(export, folder, options)
    used = cpu_seconds() - used
    return [kind, bare, shlex.join(options), f"{used:.1f}", result]


def main() -> None:
    head = ["| export | bare import | options | CPU s | cell by cell |", "|---|---|---|---|---|"]
    print(*head, sep="\n")
    rows, table = [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        for at, kind in enumerate([*KINDS, *UNLISTED, *FURTHER]):
            row = measure(folder / str(at), kind)
            rows.append(row)
            table.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
            print(table[-1], flush=True)
    listed, unlisted = rows[: len(KINDS)], rows[len(KINDS) :]
    table.insert(len(KINDS), "\nKinds without a reader of their own:\n\n" + "\n".join(head))
    num_listed, num_unlisted = (sum(row[-1] in READ for row in part) for part in (listed, unlisted))
    texts = f"{num_listed} of {len(listed)}", f"{num_unlisted} of {len(unlisted)}"
    table.append(f"\nRead rightly: {texts[0]}, and {texts[1]} kinds without a reader of their own.")
    print(table[-1])
    save("table_exports", "\n".join([*head, *table]), {"rows": rows}, machine("pandas"))
    if any(row[-1] not in READ for row in listed) or any("WRONG" in row for row in rows):
        sys.exit("some exports were refused, or not read as they are")


if __name__ == "__main__":
    main()
