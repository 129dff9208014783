"""How much each planted fault costs: scores of the faulty and the sound runs, nobody listening.

    OMP_NUM_THREADS=1 nice -n 10 python benchmarks/lab/listening/harm.py plain

Run it in the virtual environment of the framework. Writes
benchmarks/results/listening_harm_<framework>.json after every training. A call that is repeated
goes on, and measures a fault again if its base, cause or place has changed. ``lost`` is the share
of the return above random play that a fault loses, 1 - (fault - random) / (sound - random), means
over the seeds that both the fault and its base have. A fault with ``lost`` above a third is
``harmful``.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
import warnings
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from planted import Planted, lines_of, silent

FILES = {"plain": "plain", "sb3": "sb3", "rllib": "rllib", "torchrl": "torchrl_runs"}
THIRD = 1 / 3


def described(one: Planted) -> dict[str, Any]:
    keys = "framework", "sound", "base", "cause", "place", "cited"
    return {key: getattr(one, key) for key in keys}


def measure(one: Planted, seed: int) -> dict[str, Any]:
    started = time.process_time()
    score = one.train(silent, seed)
    row = {"score": score, "cpu_seconds": round(time.process_time() - started, 1)}
    return row if one.random is None else {**row, "random": one.random(seed)}


def judge(rows: dict[str, Any]) -> None:
    """Add ``lost`` and ``harmful`` to faults whose base is known."""
    for row in rows.values():
        base = rows.get(row["base"], {"seeds": {}})["seeds"]
        seeds = sorted(set(row["seeds"]) & set(base))
        if row["sound"] or not seeds or "random" not in base[seeds[0]]:
            continue
        score, sound = (fmean(each[s]["score"] for s in seeds) for each in (row["seeds"], base))
        random = fmean(base[seed]["random"] for seed in seeds)
        lost = 1 - (score - random) / (sound - random)
        row["lost"] = None if math.isnan(lost) else round(lost, 3)
        row["harmful"] = math.isnan(lost) or lost > THIRD


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=sorted(FILES))
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    results = Path(__file__).parents[2] / "results" / f"listening_harm_{args.framework}.json"
    kept = json.loads(results.read_text()) if results.exists() else {}
    runs = import_module(FILES[args.framework]).RUNS
    rows: dict[str, Any] = {}
    for name, one in runs.items():
        old = kept.get(name, {})
        same = all(old.get(key) == getattr(one, key) for key in ("base", "cause", "place"))
        rows[name] = {**described(one), "seeds": old["seeds"] if same else {}}
    for seed in range(args.seeds):
        for name in sorted(runs, key=lambda name: (not runs[name].sound, name)):
            if str(seed) in rows[name]["seeds"]:
                continue
            rows[name]["seeds"][str(seed)] = measure(runs[name], seed)
            judge(rows)
            text = lines_of(rows)
            results.write_text(text.replace("NaN", "null"))
            print(name, seed, rows[name]["seeds"][str(seed)], rows[name].get("lost"), flush=True)


if __name__ == "__main__":
    main()
