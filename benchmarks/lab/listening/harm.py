"""How much each planted fault costs: scores of the faulty and the sound runs, nobody listening.

    OMP_NUM_THREADS=1 nice -n 10 python benchmarks/lab/listening/harm.py [plain sb3 ...]

Each run trains with two seeds. ``lost`` is the share of the return above random play that a fault
loses: 1 - (fault - random) / (sound - random), means over the seeds. A fault with ``lost`` above a
third is ``harmful``. Results are kept after each training, and a call that is repeated goes on. To
measure a changed run again, delete its row.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from planted import Planted, lines_of, silent

RESULTS = Path(__file__).parents[2] / "results" / "listening_harm.json"
SEEDS = (0, 1)
THIRD = 1 / 3


def measure(one: Planted, seed: int) -> dict[str, float]:
    started = time.process_time()
    score = one.train(silent, seed)
    return {"score": score, "cpu_seconds": round(time.process_time() - started, 1)}


def judge(results: dict[str, Any]) -> None:
    """Add ``lost`` and ``harmful`` to the faults, by the seeds that they and their base have."""
    for row in results.values():
        base = results.get(row["base"], {"seeds": {}})["seeds"]
        seeds = sorted(set(row["seeds"]) & set(base))
        if row["sound"] or not seeds:
            continue
        random = fmean(base[seed]["random"] for seed in seeds)
        sound = fmean(base[seed]["score"] for seed in seeds)
        score = fmean(row["seeds"][seed]["score"] for seed in seeds)
        row["lost"] = round(1 - (score - random) / (sound - random), 3)
        row["harmful"] = row["lost"] > THIRD


def read() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def save(own: dict[str, Any]) -> None:
    """Write the results of this call beside those of other calls."""
    results = read() | own
    judge(results)
    RESULTS.write_text(lines_of(results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=["plain", "sb3"])
    files = parser.parse_args().files
    runs: dict[str, Planted] = {}
    for file in files:
        runs |= importlib.import_module(file).RUNS
    kept = read()
    results: dict[str, Any] = {}
    for name, one in runs.items():
        about = {
            "framework": one.framework,
            "sound": one.sound,
            "base": one.base,
            "cause": one.cause,
            "place": one.place,
            "cited": one.cited,
        }
        results[name] = {**about, "seeds": kept.get(name, {"seeds": {}})["seeds"]}
    for seed in SEEDS:
        for name, one in sorted(runs.items(), key=lambda item: not item[1].sound):
            if str(seed) in results[name]["seeds"]:
                continue
            row = measure(one, seed)
            if one.random is not None:
                row["random"] = one.random(seed)
            results[name]["seeds"][str(seed)] = row
            save(results)
            print(name, seed, row, flush=True)
    save(results)


if __name__ == "__main__":
    main()
