"""Every digit of config.json changed once: which are refused, and which keys are harmless.

    OMP_NUM_THREADS=1 python benchmarks/config_digits.py

A run of dfaas_v0 and one of another library's environment are trained for a moment. Then each digit
of their config.json is changed, alone, and the run's policies are loaded and it is resumed. A key
that is not refused must be one that a run may change (``HARMLESS`` of run_config.py), or the
horizon, which policies that only play do not need.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from common import machine, save

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import corral
from corral.trainers.runs.run_config import HARMLESS
from support.config_digits import Change, digits, judged

SMALL = {"num_envs": 4, "n_steps": 16, "n_epochs": 1, "net_arch": (16,)}
RUNS: dict[str, dict[str, Any]] = {
    "dfaas_v0, edge3": {"env": "dfaas_v0", "env_kwargs": {"max_cycles": 30, "capacity": 60}},
    "classic/tictactoe-v3": {"env": "classic/tictactoe-v3"},
}


def is_harmless(key: str) -> bool:
    return key.startswith(tuple(name for name in HARMLESS if name != "format"))


def changed(name: str, folder: Path) -> list[Change]:
    """Return what became of each change of a run."""
    run = corral.train(
        out=folder / "run", steps=128, seed=1, trainer="mappo", **SMALL, **RUNS[name]
    )
    text = (run.folder / "config.json").read_text()
    again = {"env": name} if name == "classic/tictactoe-v3" else {}
    return [judged(run.folder, change, folder / "copy", **again) for change in digits(text)]


def row(key: str, found: list[Change]) -> dict[str, Any]:
    read, resumed = (
        [getattr(c, which) is not None for c in found] for which in ("read", "resumed")
    )
    return {
        "key": key,
        "digits": len(found),
        "refused when played": sum(read),
        "refused when resumed": sum(resumed),
        "harmless": is_harmless(key),
    }


def note(of: dict[str, Any]) -> str:
    if of["harmless"]:
        return "may change"
    return "matters to what goes on" if not of["refused when played"] else ""


def main() -> None:
    results, lines = {}, []
    for name in RUNS:
        with tempfile.TemporaryDirectory() as place:
            found = changed(name, Path(place))
        by_key: dict[str, list[Change]] = defaultdict(list)
        for change in found:
            by_key[change.key].append(change)
        rows = [row(key, changes) for key, changes in by_key.items()]
        missed = sum(c.resumed is None and not is_harmless(c.key) for c in found)
        refused = sum(c.resumed is not None for c in found)
        lines += [
            f"**{name}**: {len(found)} digits; resuming refuses {refused}, "
            f"{len(found) - refused - missed} are of keys that may change, {missed} go unseen.",
            "",
            "| key | digits | refused when played | refused when resumed | |",
            "|---|---:|---:|---:|---|",
        ]
        lines += [
            f"| {r['key']} | {r['digits']} | {r['refused when played']} | "
            f"{r['refused when resumed']} | {note(r)} |"
            for r in rows
        ]
        lines.append("")
        results[name] = {"rows": rows, "digits": len(found), "refused": refused, "unseen": missed}
    save("config_digits", "\n".join(lines), results, machine("torch"))


if __name__ == "__main__":
    main()
