"""Train every planted fault of a framework and its sound base; write the returns of both.

    python benchmarks/lab/listening/harm_frameworks.py rllib --seeds 1

Writes benchmarks/results/listening_harm_<framework>.json after every training, and goes on where
it stopped. Nothing listens.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from planted import silent

RESULTS = Path(__file__).parents[2] / "results"


def measured(runs: dict[str, Any], path: Path, seeds: int, only: list[str]) -> None:
    """Train what the file lacks."""
    rows = json.loads(path.read_text()) if path.exists() else {}
    for name in sorted(runs, key=lambda name: (not runs[name].sound, name)):
        run = runs[name]
        if only and name not in only:
            continue
        row = rows.setdefault(name, {"sound": run.sound, "base": run.base, "returns": {}})
        for seed in range(seeds):
            if str(seed) in row["returns"]:
                continue
            start = time.process_time()
            try:
                row["returns"][str(seed)] = round(run.train(silent, seed), 4)
            except Exception as error:
                traceback.print_exc(limit=-4)
                row["error"] = f"{type(error).__name__}: {error}"[:300]
            row["cpu_seconds"] = round(time.process_time() - start, 1)
            if run.sound and run.random is not None and row.get("random") is None:
                row["random"] = round(run.random(0), 4)
            print(name, row, flush=True)
            path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=["rllib", "torchrl"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], help="names of runs")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    runs = import_module("torchrl_runs" if args.framework == "torchrl" else "rllib").RUNS
    measured(runs, RESULTS / f"listening_harm_{args.framework}.json", args.seeds, args.only)


if __name__ == "__main__":
    main()
