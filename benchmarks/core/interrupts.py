"""Ctrl-C and SIGTERM in the middle of long work, every core busy: seconds until all has ended.

    OMP_NUM_THREADS=1 python benchmarks/core/interrupts.py [--share 0.1] [--case advise]

Rollouts and updates last for minutes, so that the signal, SIGINT and SIGTERM in turns, strikes
within one. ``--busy`` processes compete meanwhile, as many as there are cores; a machine that is
busy already needs none. The load is kept with each try. SIGINT goes to all processes, as a
terminal sends it, SIGTERM to the first. Cases named "short" have checkpoints before; the run must
then be resumable. A try holds if the command ends within ``MAX_S`` seconds with the code 130 or
143, as shells see it, and leaves no process. Results are kept try by try: a repeated call at the
same commit goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save
from resume_kills import DAYS, Watched, begun, commit

from corral.data import write_trace
from corral.trainers.runs.run import load_run
from support.loads import days

MAX_S = 10.0
TRIES = 80
NAME = "interrupts"
WORK = "while True: sum(range(10**5))"

LONG = "--num-envs 64 --n-steps 16384 --steps 2000000"  # some minutes to the first update
SHORT = "--num-envs 4 --n-steps 16 --steps 1000000 --checkpoint-every 10000000"
CASES = {
    "mappo, short": f"train dfaas_v0 {SHORT}",
    "mappo, rollout": f"train dfaas_v0 {LONG}",
    "mappo, update": "train dfaas_v0 --num-envs 64 --n-steps 64 --n-epochs 10000 --steps 100000",
    "ippo": f"train arena_v0 --trainer ippo {LONG}",
    "ppo_kl": f"train dfaas_v0 --trainer ppo_kl {LONG}",
    "a2c": f"train dfaas_v0 --trainer a2c {LONG}",
    "pg": f"train dfaas_v0 --trainer pg {LONG}",
    "pg_episode": f"train dfaas_v0 --trainer pg_episode {LONG}",
    "policy_iteration": f"train dfaas_v0 --trainer policy_iteration {LONG}",
    "clone": f"clone dfaas_v0 --from overflow/equal {LONG}",
    "a pool": "train tictactoe_v0 --self-play past=0.5,every=128,keep=3,best=4 --num-envs 4 "
    "--n-steps 16 --steps 1000000",
    "sb3_ppo": f"train dfaas_v0 --trainer sb3_ppo {LONG}",
    "sb3_maskable_ppo": f"train dfaas_v0 --trainer sb3_maskable_ppo {LONG}",
    "sb3_a2c": f"train dfaas_v0 --trainer sb3_a2c {LONG}",
    "sb3_dqn": "train dfaas_v0 --trainer sb3_dqn --steps 1000000 --log-interval 10000",
    "sb3_ppo, workers": "train dfaas_v0 --trainer sb3_ppo --vec-env supersuit --cpus 2 "
    "--num-envs 4 --n-steps 16384 --steps 1000000",
    "from_rule": f"train dfaas_v0 --from-rule --trace TREE/days.csv {DAYS} --steps 1000000",
    "advise": "advise edge3 --queue 8 --forward-cost 0.1 --steps 1000000",
    "tune": "tune dfaas_v0 --grid learning_rate=1e-3,1e-2 --jobs 2 --num-envs 64 --n-steps 16384 "
    "--steps 2000000",
    "replay": "replay TREE/years.csv --queue 9 --forward-cost 0.1 --window 720",
}


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many cores at work meanwhile."""
    others = [subprocess.Popen([sys.executable, "-c", WORK]) for _ in range(count)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def tried(name: str, number: int, folder: Path, delay: float) -> dict[str, Any]:
    """Return how a case met a signal, ``delay`` seconds after its work began."""
    tree = begun(folder)
    write_trace(days(6000), tree / "years.csv")
    command = f"{CASES[name]} --out {tree / 'run'}".replace("TREE", str(tree))
    words = [sys.executable, "-m", "corral", *command.split()]
    with Watched(words, tree, folder / f"mark-{delay}") as process:
        first = process.process
        process.working()
        time.sleep(delay)
        while "short" in name and not rows_of(tree / "run" / "progress.csv"):
            time.sleep(0.1)
        assert first.poll() is None, (process.mark / "printed").read_text()
        clock = time.monotonic()
        (os.killpg if number == signal.SIGINT else os.kill)(first.pid, number)
        try:
            first.wait(timeout=6 * MAX_S)
        except subprocess.TimeoutExpired:
            return {"seconds": 6 * MAX_S, "held": False, "why": "goes on"}
        seconds = time.monotonic() - clock
        why = [] if seconds <= MAX_S else [f"took {seconds:.1f} s"]
        # Shells see both alike; Python ends by the signal if it struck within exec(), as in imports
        if first.returncode not in (128 + number, -number):
            why.append(f"exit code {first.returncode}")
        if processes_of(first.pid):
            why.append("processes are left")
        printed = (process.mark / "printed").read_text()
    if "Traceback" in printed:
        why.append("a traceback")
    if "short" in name and load_run(tree / "run").checkpoint() is None:
        why.append("no checkpoint")
    return {"seconds": round(seconds, 2), "held": not why, "why": ", ".join(why)}


def rows_of(progress: Path) -> int:
    """Return the lines of a progress.csv but for its header."""
    return progress.read_text().count("\n") - 1 if progress.exists() else 0


def processes_of(group: int) -> bool:
    """Return whether a process of the group is alive, a moment later."""
    time.sleep(0.2)
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--share", type=float, default=1.0, help="of the tries")
    parser.add_argument("--busy", type=int, default=os.cpu_count(), help="processes beside it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", action="append", choices=list(CASES), help="these alone")
    parser.add_argument("--afresh", action="store_true", help="forget kept results")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    place = RESULTS / f"{NAME}.json"
    rows = [] if given.afresh or not place.exists() else json.loads(place.read_text())["tries"]
    names = given.case or list(CASES)
    rng, now = random.Random(given.seed), commit()
    rows = [row for row in rows if row["commit"] == now]
    for at in range(math.ceil(given.tries * given.share)):
        turn, index = divmod(at, len(names))
        name = names[index]
        number = signal.Signals((signal.SIGINT, signal.SIGTERM)[(index + turn) % 2])
        delay = rng.uniform(1.0, 20.0)
        what = {"case": name, "signal": number.name, "delay": delay, "commit": now}
        if any(what.items() <= row.items() for row in rows):
            continue
        with tempfile.TemporaryDirectory() as folder, busy(given.busy):
            found = tried(name, number, Path(folder).resolve(), delay)
            rows.append({**what, **found, "load": os.getloadavg()[0]})
        print(rows[-1], file=sys.stderr)
        one = {
            "what": "answered within 10 s",
            "tries": len(rows),
            "held": sum(row["held"] for row in rows),
            "not_held": [f"{r['case']}, {r['signal']}: {r['why']}" for r in rows if r["why"]],
        }
        save(NAME, page(rows), {"rows": [one], "tries": rows}, machine("torch"))


def page(rows: list[dict[str, Any]]) -> str:
    held = sum(row["held"] for row in rows)
    lines = [
        "# Ctrl-C and SIGTERM under load",
        "",
        f"{held} of {len(rows)} ended within {MAX_S:g} s, with the code 130 or 143 and no process "
        "left.",
        "",
        "| case | signal | after, s | ended within, s | load of the machine | not held |",
        "|---|---|--:|--:|--:|---|",
    ]
    for row in rows:
        cells = [row["case"], row["signal"], f"{row['delay']:.1f}", row["seconds"]]
        cells += [f"{row['load']:.1f}", row["why"]]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
