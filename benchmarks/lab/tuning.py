"""corral tune: the grid of the arena's tutorial, and studies that are killed.

    OMP_NUM_THREADS=1 python benchmarks/lab/tuning.py [--case grid] [--case killed]

The grid is learning_rate x num_envs (the batch of an update is num_envs x n_steps env steps), two
values of each, two seeds. The command that the study prints for its best trial is then run as it
is, and every row of progress.csv (but for clocks) and every byte of the last checkpoint is compared
with the trial's own.

A small study, by TPE, is killed ten times over: SIGKILL to the whole process group, parent and
trainings, at one or two random moments each, then the same command again until it ends. Parameters,
values and the best are compared with those of a study that was left alone, exactly, and so is each
run. ``--case`` runs one alone and keeps the results of the other. Each killed study is kept as
it ends: a call that is repeated goes on.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save
from resume_kills import values

GRID = """
corral tune arena_v0 --trainer mappo --steps 30000 --seeds 2 --jobs 2 \\
  --grid learning_rate=1e-4,5e-4 num_envs=8,32
"""
KILLED = """
corral tune two_step_v0 --search learning_rate=log:1e-4..1e-1 gamma=0.9..1 --trials 3 --jobs 2
  --steps 400 --num-envs 4 --n-steps 5 --checkpoint-every 40
"""
STUDIES, KILLS = 10, (1, 2)  # of every other study
AT_ONCE = 3
ROWS = 60  # updates of all trials


def words(command: str) -> list[str]:
    """Return a command as this Python runs it."""
    found = shlex.split(command.replace("\\\n", " "))
    return [sys.executable, "-m", *found]


def learned(run: Path) -> dict[str, Any]:
    """Return the rows of progress.csv and all that the trainer keeps, but for clocks."""
    kept = ("progress.csv", ".safetensors", "trainer.json")
    return {name: value for name, value in values(run).items() if name.endswith(kept)}


def grid(folder: Path) -> dict[str, Any]:
    study = folder / "grid"
    began = time.perf_counter()
    printed = subprocess.run(
        [*words(GRID), "--out", str(study)], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    seconds = time.perf_counter() - began
    print(printed, file=sys.stderr)
    table = pd.read_csv(study / "trials.csv")
    best = table.sort_values("value", ascending=False, kind="stable").iloc[0]
    command = next(line for line in printed.splitlines() if line.startswith("for seed in"))
    repeated = folder / "repeated"  # where the command writes runs/
    repeated.mkdir()
    (repeated / "corral").write_text(f'#!/bin/sh\nexec {sys.executable} -m corral "$@"\n')
    (repeated / "corral").chmod(0o755)
    path = f"{repeated}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, shell=True, cwd=repeated, env={**os.environ, "PATH": path}, check=True)
    again = {f"trial-{best.trial:04}-seed{run.name[-1]}": run for run in repeated.glob("runs/*")}
    equal = {name: learned(study / name) == learned(run) for name, run in again.items()}
    return {
        "command": GRID.strip(),
        "lines typed": len(GRID.strip().splitlines()),
        "trials": json.loads(table.to_json(orient="records")),
        "printed": printed.replace(str(study), "runs/study"),
        "seconds": seconds,
        "the best, again": equal,
    }


def outcome(study: Path) -> dict[str, Any]:
    """All that a study found, but for clocks."""
    table = (study / "trials.csv").read_text()
    runs = {run.name: learned(run) for run in sorted(study.glob("trial-*")) if run.is_dir()}
    return {"trials.csv": table, **runs}


def killed(folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    subprocess.run([*words(KILLED), "--out", str(folder / "left")], check=True, stdout=sys.stderr)
    seconds = time.perf_counter() - began
    table = pd.read_csv(folder / "left" / "trials.csv")
    found: dict[str, Any] = {
        "command": KILLED.strip(),
        "trials": json.loads(table.to_json(orient="records")),
        "seconds": seconds,
        "studies": {},
    }
    before = kept_results().get("killed", {})
    if before.get("command") == found["command"] and len(before["studies"]) < STUDIES:
        found["studies"] = before["studies"]  # those that an earlier call came to
    left = [number for number in range(STUDIES) if str(number) not in found["studies"]]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number, one in pool.map(functools.partial(one_killed, folder), left):
            found["studies"][str(number)] = one
            keep("killed", found)
    return found


def one_killed(folder: Path, number: int) -> tuple[int, dict[str, Any]]:
    """Return how often a study was killed, and what differs from the one that was left alone."""
    rng, study = random.Random(number), folder / f"killed-{number}"
    moments: list[dict[str, int]] = []
    while True:
        process = subprocess.Popen(
            [*words(KILLED), "--out", str(study)],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        if len(moments) < KILLS[number % 2]:
            strike_at = rng.randrange(rows(study), ROWS - 1)
            while process.poll() is None and rows(study) < strike_at:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 2.0))
        else:
            process.wait()
        if (code := process.poll()) is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        moments.append({"rows": rows(study), "checkpoints": checkpoints(study)})
    expected, found = outcome(folder / "left"), outcome(study)
    unequal = [name for name in expected if found.get(name) != expected[name]]
    unequal += [name for name in found if name not in expected]
    kept = {"kills": moments, "exit code": code, "unequal": unequal}
    print(number, kept, file=sys.stderr, flush=True)
    return number, kept


def rows(study: Path) -> int:
    """Return the updates of all its runs so far."""
    return sum(path.read_text().count("\n") - 1 for path in study.glob("trial-*/progress.csv"))


def checkpoints(study: Path) -> int:
    return len([*study.glob("trial-*/checkpoints/step_*")])


def page(found: dict[str, Any]) -> str:
    lines = ["# Tuning"]
    if (g := found.get("grid")) is not None:
        same = sum(g["the best, again"].values())
        lines += ["", "## The grid of the arena's tutorial", "", "```", g["command"], "```", ""]
        lines += [f"{g['lines typed']} lines typed; {g['seconds']:.0f} s. It prints:", "", "```"]
        lines += [g["printed"].rstrip(), "```", ""]
        lines.append(
            f"The command of the best trial, run as printed: {same} of "
            f"{len(g['the best, again'])} runs equal the trial's, every row and every byte."
        )
    if (k := found.get("killed")) is not None:
        whole = sum(
            not each["unequal"] and each["exit code"] == 0 for each in k["studies"].values()
        )
        kills = [moment for each in k["studies"].values() for moment in each["kills"]]
        lines += ["", "## Studies that are killed", "", "```", k["command"], "```", ""]
        lines.append(
            f"Left alone: {k['seconds']:.0f} s. {len(kills)} kills of the process group, "
            f"{sum(m['rows'] > 0 for m in kills)} after a first update, "
            f"{sum(m['checkpoints'] > 0 for m in kills)} with checkpoints there. "
            f"**{whole} of {len(k['studies'])}** studies ended with the same trials, parameters, "
            "values and best, and the same rows and bytes of every run."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cases = {"grid": grid, "killed": killed}
    parser.add_argument("--case", action="append", choices=list(cases), help="these alone")
    asked = parser.parse_args().case or list(cases)
    for name in asked:
        with tempfile.TemporaryDirectory() as folder:
            keep(name, cases[name](Path(folder)))


def kept_results() -> dict[str, Any]:
    """Return the results of earlier calls."""
    path = RESULTS / "tuning.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def keep(name: str, new: dict[str, Any]) -> None:
    found = {**kept_results(), name: new}
    found.pop("about", None)
    save("tuning", page(found), found, machine("torch", "optuna"))


if __name__ == "__main__":
    main()
