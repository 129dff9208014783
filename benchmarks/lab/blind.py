"""Faults that nobody showed to the doctor: what does it say of each?

    OMP_NUM_THREADS=1 python benchmarks/lab/blind.py run --list half_a.txt --parallel 2
    OMP_NUM_THREADS=1 python benchmarks/lab/blind.py run --only 01_next_mover_paid
    python benchmarks/lab/blind.py report

The plants are in benchmarks/lab/blind/, see its README. They were written by readers who had seen
no rule of the doctor and no test of it. A plant with ``train`` is trained, and its run is examined
by ``corral doctor``; a plant with ``learn`` is examined by ``corral doctor --learner``. A task is
a line of results/blind.jsonl, and is not repeated. Whether the first finding names the fault is
judged by a reader, in blind/judged.json: the fault stands beside the finding.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).with_name("blind")))

from common import RESULTS, append_row, kept_rows, machine
from parallel import play
from run import is_learner, module_of

FOLDER = Path(__file__).with_name("blind")
FILE = RESULTS / "blind.jsonl"
SHOWN = 3
"""Findings that are kept."""


def examined(name: str, folder: Path) -> dict[str, Any]:
    """Train a plant, examine it, and return its line."""
    module, file = module_of(name), FOLDER / f"{name}.py"
    if is_learner(module):
        command = ["--learner", f"{file}:learn"]
    else:
        module.train(str(folder / name))
        command = [str(folder / name)]
        for option, value in (
            ("--env", module.ENV),
            ("--trainer", module.TRAINER),
            ("--model", module.MODEL),
        ):
            if value is not None:
                command += [option, f"{file}:{value}" if hasattr(module, value) else value]
    done = subprocess.run(
        [sys.executable, "-m", "corral", "doctor", *command, "--json"],
        capture_output=True,
        text=True,
    )
    result = json.loads(done.stdout)
    return {
        "name": name,
        "fault": " ".join(str(module.__doc__).split("\n\n")[0].split()),
        "exit": done.returncode,
        "verdict": result.get("verdict"),
        "findings": [
            [finding["cause"], finding["certainty"], finding["title"]]
            for finding in result.get("findings", [])
            if not finding["follows"]
        ][:SHOWN],
        "suspects": result.get("suspects"),
        "about": machine("torch"),
    }


JUDGED = {
    "first": "named first",
    "among": "named among the first three",
    "effect": "an effect named first",
    "third": "does not learn, or fails probes, without this fault",
    "silent": "silent: learns or passes, and the fault is not named",
    "wrong": "another fault named, as certain",
}
"""Judgement of a reader in blind/judged.json -> its description."""


def report(rows: list[dict[str, Any]]) -> None:
    """Write counts of each judgement, and a table: the fault, the verdict, the first finding."""
    judged = json.loads((FOLDER / "judged.json").read_text())
    harmful = {row["name"]: row["harmful"] for row in plants()}
    kinds = {row["name"]: row["kind"] for row in plants()}
    lines = ["# Faults that nobody showed to the doctor", ""]
    lines += [
        "Harmful faults by judgement. Rules were changed while half A was read: its columns are no",
        "blind test, and its rows come from several versions of the rules. Half B was examined",
        "once, before its files were read. `run`: trainings by",
        "corral (01 to 56), examined by `corral doctor RUN`; `learner`: scripts and loops (57 to",
        "91), examined on probes by `corral doctor --learner`.",
        "",
    ]
    parts = {
        f"{half} {what}": [
            name
            for name in (FOLDER / f"half_{half.lower()}.txt").read_text().split()
            if harmful[name] is True and (int(name[:2]) <= 56) is (what == "run")
        ]
        for half in ("A", "B")
        for what in ("run", "learner")
    }
    lines += [f"| | {' | '.join(parts)} |", f"|---|{'--:|' * len(parts)}"]
    for key, text in JUDGED.items():
        counts = [sum(judged[name] == key for name in names) for names in parts.values()]
        lines.append(f"| {text} | {' | '.join(map(str, counts))} |")
    lines.append(f"| harmful | {' | '.join(str(len(names)) for names in parts.values())} |")
    unmeasured = [name for name, value in harmful.items() if not isinstance(value, bool)]
    if unmeasured:
        lines += ["", f"Plants without measured harm: {len(unmeasured)}."]
    lines += ["", "| plant | kind | fault | harmful | judged | verdict | first finding |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: str(row["name"])):
        name = str(row["name"])
        first = row["findings"][0][2] if row["findings"] else "-"
        if row["verdict"] is None and row["suspects"]:
            first = "like " + ", ".join(row["suspects"][0]["bugs"][:3])
        verdict = row["verdict"] or ("fails probes" if row["exit"] else "passes probes")
        lines.append(
            f"| {name.replace('_', ' ')} | {kinds[name]} | {row['fault']} | {harmful[name]} "
            f"| {judged[name]} | {verdict} | {first} |"
        )
    text = "\n".join(lines) + "\n"
    (RESULTS / "blind.md").write_text(text)
    print(text)


def plants() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((FOLDER / "results.json").read_text())
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--only", default="", help="plants, with commas")
    parser.add_argument("--list", default="half_a.txt", help="a file of names in blind/")
    parser.add_argument("--parallel", type=int, default=1, metavar="PROCESSES")
    parser.add_argument("--minutes", type=float, help="tasks that run longer are dropped")
    args = parser.parse_args()
    rows = kept_rows(FILE)
    if args.what == "report":
        report(rows)
        return
    names = [n for n in args.only.split(",") if n] or (FOLDER / args.list).read_text().split()
    done = {row["name"] for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        failed = play(
            [name for name in names if name not in done],
            functools.partial(examined, folder=Path(folder)),
            functools.partial(append_row, FILE),
            parallel=args.parallel,
            minutes=args.minutes,
        )
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
