"""Runs that are killed at random moments and resumed, against runs that never stopped.

    OMP_NUM_THREADS=1 python benchmarks/resume_kills.py

SIGKILL, 20 times, at a random moment after at least one more update, the time in which a
checkpoint is written included; every fifth strikes while the run still starts. Episodes are 30
steps long and rollouts 16, so that most stops are in the middle of one. In the end weights,
optimisers, generators and the environment's state are compared by a hash over every byte, and
progress.csv row by row, but for clocks.
"""

from __future__ import annotations

import csv
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import machine, save

from corral.trainers.runs.checkpoint import latest_checkpoint, load_checkpoint

KILLS = 20
UPDATES = 200
ROLLOUT = 64  # env steps: 4 copies x 16
TRAINERS = {
    "mappo": {},
    "mappo with memory": {"memory": 8},
    "ippo": {},
    "mappo against a mix": {"opponents": {}, "memory": 8},
    "sb3_ppo": {"batch_size": 64},
}
CLOCKS = {"wall_s", "env_steps_per_s", "share_env", "share_inference", "share_learning"}

BEGIN = """
import corral
corral.train("dfaas_v0", trainer={trainer!r}, steps={steps}, seed=3, out={folder!r}, num_envs=4,
             n_steps=16, n_epochs=2, net_arch=(16,), checkpoint_every=64, progress=False,
             env_kwargs={{"max_cycles": 30}}, **{settings!r})
"""
GO_ON = """
import corral, corral.trainers.driver
corral.resume({folder!r}, checkpoint_every=64, progress=False)
"""


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


def fingerprint(folder: Path) -> tuple[str, list[dict[str, str]]]:
    """A hash of all that the last checkpoint holds, and the log without clocks."""
    content = load_checkpoint(latest_checkpoint(folder / "checkpoints"))
    digest = hashlib.sha256()
    for file in sorted(content.arrays):
        for name in sorted(content.arrays[file]):
            array = content.arrays[file][name]
            digest.update(f"{file}.{name} {array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
    trainer = content.documents["trainer"]
    digest.update(repr(sorted(trainer.items(), key=lambda item: item[0])).encode())
    with (folder / "progress.csv").open(newline="") as file:
        rows = [{k: v for k, v in row.items() if k not in CLOCKS} for row in csv.DictReader(file)]
    return digest.hexdigest(), rows


def tried(name: str, folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = dict(TRAINERS[name])
    if "opponents" in settings:  # a run among them: the first of these
        mix = {"overflow": 2, "random": 1, str(folder / "mappo unstopped"): 1}
        settings["opponents"] = {"node_1": mix}
    names = {"trainer": name.split()[0], "steps": UPDATES * ROLLOUT, "settings": settings}
    unstopped, killed = folder / f"{name} unstopped", folder / f"{name} killed"
    assert started(BEGIN.format(folder=str(unstopped), **names)).wait() == 0
    rng = random.Random(0)
    process = started(BEGIN.format(folder=str(killed), **names))
    kills = in_training = 0
    while kills < KILLS and process.poll() is None:
        if kills % 5:
            before = updates(killed)
            while updates(killed) <= before and process.poll() is None:
                time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.1))
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        in_training += (killed / "checkpoints" / "latest").exists()
        if (killed / "config.json").exists():
            process = started(GO_ON.format(folder=str(killed)))
        else:  # killed before there was anything to go on with
            process = started(BEGIN.format(folder=str(killed), **names))
    assert process.wait() == 0
    return {
        "kills": kills,
        "in training": in_training,
        "equal": fingerprint(unstopped) == fingerprint(killed),
    }


def main() -> None:
    lines = [
        "# Killed and resumed",
        "",
        f"{UPDATES} updates of {ROLLOUT} env steps of dfaas_v0, a checkpoint after each.",
        "",
        "| trainer | kills | of them past a checkpoint | the same bytes as without a stop |",
        "|---|--:|--:|---|",
    ]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in TRAINERS:
            r = found[name] = tried(name, Path(folder))
            lines.append(
                f"| {name} | {r['kills']} | {r['in training']} | {'yes' if r['equal'] else 'NO'} |"
            )
            print(lines[-1], file=sys.stderr)
    save("resume_kills", "\n".join(lines), found, machine("torch", "stable-baselines3"))


if __name__ == "__main__":
    main()
