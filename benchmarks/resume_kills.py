"""Runs that are killed at random moments and resumed, against runs that never stopped.

    OMP_NUM_THREADS=1 python benchmarks/resume_kills.py
    OMP_NUM_THREADS=1 python benchmarks/resume_kills.py --case "mappo with a pool"

SIGKILL, 20 times, at a random moment after at least one more update, the time in which a
checkpoint is written included; every fifth strikes while the run still starts. Episodes are 30
steps long and rollouts 16, so that most stops are in the middle of one. In the end weights,
optimisers, generators and the environment's state are compared by a hash over every byte, and
progress.csv row by row, but for clocks.

With a pool of snapshots the game is tictactoe_v0, and of 10 kills every third strikes while a file
of the pool is half written, every third in the middle of a duel. There the files of RUN/pool and
the best checkpoint are compared too, and the SHA-256 of every snapshot's file is watched from its
first writing on, in both runs: it must stay, and be the same in both.

``--case`` runs some alone and keeps the results of the others.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import RESULTS, machine, save

from corral.trainers.runs.checkpoint import latest_checkpoint, load_checkpoint, named_checkpoint

ROLLOUT = 64  # env steps: 4 copies x 16
DFAAS = {"env": "dfaas_v0", "env_kwargs": {"max_cycles": 30}, "checkpoint_every": ROLLOUT}
POOL = {
    "env": "tictactoe_v0",
    "self_play": "past=0.5,every=128,keep=3,best=4",
    "checkpoint_every": 2 * ROLLOUT,
}
CASES: dict[str, dict[str, Any]] = {
    "mappo": {**DFAAS, "trainer": "mappo"},
    "mappo with memory": {**DFAAS, "trainer": "mappo", "memory": 8},
    "ippo": {**DFAAS, "trainer": "ippo"},
    "mappo against a mix": {**DFAAS, "trainer": "mappo", "memory": 8, "opponents": {}},
    "sb3_ppo": {**DFAAS, "trainer": "sb3_ppo", "batch_size": 64},
    "mappo with a pool": {**POOL, "trainer": "mappo"},
    "ippo with memory and a pool": {**POOL, "trainer": "ippo", "memory": 8},
}
CLOCKS = {"wall_s", "env_steps_per_s", "share_env", "share_inference", "share_learning"}

BEGIN = """
import corral
corral.train(**{given!r}, steps={steps}, seed=3, out={folder!r}, num_envs=4,
             n_steps=16, n_epochs=2, net_arch=(16,), progress=False)
"""
GO_ON = """
import corral, corral.trainers.driver
corral.resume({folder!r}, checkpoint_every={checkpoint_every}, progress=False)
"""
STRIKES = {  # where a process kills itself -> how
    "at random": "",
    "in a pool's file": """
import os, signal
from corral.trainers.selfplay import keeper
def half(path, content):
    path.write_bytes(content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
keeper.write_through = half
""",
    "in a duel": """
import os, random, signal, threading
from corral.trainers.selfplay import keeper
points_against = keeper.points_against
def struck(*given, **named):
    threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return points_against(*given, **named)
keeper.points_against = struck
""",
}


def started(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def updates(folder: Path) -> int:
    """Whole rows of progress.csv; 0 where there is none yet."""
    try:
        return max(0, (folder / "progress.csv").read_text().count("\n") - 1)
    except FileNotFoundError:
        return 0


def fingerprint(folder: Path) -> dict[str, Any]:
    """A hash of all that the last checkpoint holds, the log without clocks; of a run with a pool
    also the best checkpoint, and the pool's files."""
    checkpoints = folder / "checkpoints"
    with (folder / "progress.csv").open(newline="") as file:
        rows = [{k: v for k, v in row.items() if k not in CLOCKS} for row in csv.DictReader(file)]
    found = {"checkpoint": hash_of(latest_checkpoint(checkpoints)), "progress.csv": rows}
    if (folder / "pool").exists():
        best = named_checkpoint(checkpoints, "best")
        found["best"] = best.name, hash_of(best)
        found["pool"] = {path.name: path.read_bytes() for path in (folder / "pool").iterdir()}
    return found


def hash_of(checkpoint: Path) -> str:
    """A hash of all arrays of a checkpoint, and of the trainer's JSON."""
    content = load_checkpoint(checkpoint)
    digest = hashlib.sha256()
    for file in sorted(content.arrays):
        for name in sorted(content.arrays[file]):
            array = content.arrays[file][name]
            digest.update(f"{file}.{name} {array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
    trainer = content.documents["trainer"]
    digest.update(repr(sorted(trainer.items(), key=lambda item: item[0])).encode())
    return digest.hexdigest()


class Snapshots:
    """Watches the files of a run's pool: their SHA-256, from the first writing on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pool"
        self.digests: dict[str, str] = {}
        self.changed: set[str] = set()

    def look(self) -> None:
        for path in self.folder.glob("*.safetensors"):
            try:
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
            except FileNotFoundError:  # it was dropped
                continue
            if self.digests.setdefault(path.name, digest) != digest:
                self.changed.add(path.name)

    def wait(self, process: subprocess.Popen[bytes], seconds: float = float("inf")) -> None:
        """Look until a process has ended, or for so many seconds."""
        end = time.monotonic() + seconds
        while process.poll() is None and (left := end - time.monotonic()) > 0:
            self.look()
            time.sleep(min(0.005, left))
        self.look()


def tried(name: str, folder: Path) -> dict[str, Any]:
    given = CASES[name]
    if "opponents" in given:  # a run among them: the first of these
        mix = {"overflow": 2, "random": 1, str(folder / "mappo unstopped"): 1}
        given = {**given, "opponents": {"node_1": mix}}
    pool = "self_play" in given
    most, steps = (10, 60 * ROLLOUT) if pool else (20, 200 * ROLLOUT)
    unstopped, killed = folder / f"{name} unstopped", folder / f"{name} killed"
    first, then = Snapshots(unstopped), Snapshots(killed)
    begin = BEGIN.format(given=given, steps=steps, folder=str(unstopped))
    process = started(begin)
    first.wait(process)
    assert process.wait() == 0
    rng = random.Random(0)
    begin = BEGIN.format(given=given, steps=steps, folder=str(killed))
    go_on = GO_ON.format(folder=str(killed), **given)
    strikes = list(STRIKES) if pool else ["at random"]
    kills = dict.fromkeys(strikes, 0)
    process, strike = started(begin), "at random"
    in_training = 0
    while sum(kills.values()) < most and process.poll() is None:
        if strike == "at random":
            if sum(kills.values()) % 5:
                before = updates(killed)
                while updates(killed) <= before and process.poll() is None:
                    then.wait(process, 0.002)
            then.wait(process, rng.uniform(0.0, 0.1))
            process.kill()
        else:
            then.wait(process)
        if process.wait() == 0:  # it came to its end
            break
        kills[strike] += process.wait() == -signal.SIGKILL
        in_training += (killed / "checkpoints" / "latest").exists()
        strike = strikes[sum(kills.values()) % len(strikes)]
        if sum(kills.values()) == most:
            strike = "at random"  # in no way: it goes on to its end
        code = STRIKES[strike].format(delay=rng.uniform(0.0, 0.05))
        process = started(code + (go_on if (killed / "config.json").exists() else begin))
    then.wait(process)
    assert process.wait() == 0
    ours, theirs = fingerprint(unstopped), fingerprint(killed)
    found = {
        "kills": sum(kills.values()),
        "in training": in_training,
        "equal": ours == theirs,
        "unequal": [part for part in ours if ours[part] != theirs[part]],
    }
    if pool:
        both = first.digests.keys() & then.digests.keys()
        same = all(first.digests[each] == then.digests[each] for each in both)
        found |= {
            "kills by moment": kills,
            "snapshot files seen": len(first.digests.keys() | then.digests.keys()),
            "seen in both runs": len(both),
            "their bytes stayed": same and not first.changed | then.changed,
        }
    return found


def page(found: dict[str, Any]) -> str:
    lines = [
        "# Killed and resumed",
        "",
        f"200 updates of {ROLLOUT} env steps of dfaas_v0, a checkpoint after each. With a pool: 60 "
        "updates of tictactoe_v0, a checkpoint after every second, a snapshot too.",
        "",
        "| trainer | kills | of them past a checkpoint | the same bytes as without a stop |",
        "|---|--:|--:|---|",
    ]
    for name, r in found.items():
        equal = "yes" if r["equal"] else "NO"
        lines.append(f"| {name} | {r['kills']} | {r['in training']} | {equal} |")
    pools = {name: r for name, r in found.items() if "kills by moment" in r}
    if pools:
        lines += ["", "| with a pool | kills at random | in a pool's file | in a duel | snapshot "]
        lines[-1] += "files seen, in both runs | no byte of one changed |"
        lines.append("|---|--:|--:|--:|--:|---|")
    for name, r in pools.items():
        cells = [*r["kills by moment"].values(), r["snapshot files seen"], r["seen in both runs"]]
        at_random, in_file, in_duel, seen, both = cells
        stayed = "yes" if r["their bytes stayed"] else "NO"
        lines.append(
            f"| {name} | {at_random} | {in_file} | {in_duel} | {seen}, {both} | {stayed} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", choices=list(CASES), help="these alone")
    asked = parser.parse_args().case or list(CASES)
    kept = RESULTS / "resume_kills.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            if name in asked:
                found[name] = tried(name, Path(folder))
                print(name, found[name], file=sys.stderr)
            elif name in before:
                found[name] = before[name]
    save("resume_kills", page(found), found, machine("torch", "stable-baselines3"))


if __name__ == "__main__":
    main()
