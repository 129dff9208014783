"""Runs that are killed and resumed, against runs that never stopped.

    OMP_NUM_THREADS=1 python benchmarks/core/resume_kills.py --tries 40
    OMP_NUM_THREADS=1 python benchmarks/core/resume_kills.py --share 0.05 --case advise

The cases are all trainers that resume exactly, pools, mixes of opponents, memory, from_rule, advise
and tune. Each runs once without a stop, in fresh processes like all others here. It is then killed
(SIGKILL to all its processes) and resumed, up to ``KILLS`` times in one chain, until it has ended.
Kills strike in turns at a random moment of the work and before a file call (open, rename, mkdir,
remove, fsync, ...) below the folder, TensorBoard's aside: the calls of the run that never stopped
are divided evenly among the tries.

A try is a kill that was resumed from. It holds if at the end of its chain every value of every file
equals that of the run that never stopped, the order of columns too. ``CLOCKS`` and ``NOT_COMPARED``
are all that is left out.

``--tries`` are divided among the cases. Results are kept case by case: a repeated call at the same
commit goes on with the cases that lack tries. ``--afresh`` forgets them.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import RESULTS, machine, save

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from corral.data import write_trace
from corral.files import sha256
from corral.trainers.base import trainers
from corral.trainers.runs.checkpoint import load_checkpoint, named_checkpoint
from support.loads import days

TRIES = 300
KILLS = 5  # of a chain
NAME = "resume_kills"

CLOCKS = {
    *("wall_s", "env_steps_per_s", "share_env", "share_inference", "share_learning"),
    "spent",  # seconds so far, of from_rule.json
}
"""Columns and JSON keys that hold times and rates."""

NOT_COMPARED = {
    ".*": "locks, and what a kill left half written: hidden",
    "events.out.tfevents.*": "times within; their scalars are compared",
    "manifest.json": "digests of files with times; checkpoints are loaded, which verifies them",
    "latest": "the same; the name of its checkpoint is compared",
    "best": "the same",
    "*.log": "what was printed, in parts",
    "*.db": "Optuna's, with times; trials.csv is compared",
    "*.html": "shows the times; its numbers are in the files beside it",
    "agreement.json": "written by corral clone at its end; corral train --resume ends without it",
}

NOT_EXACT = {
    "rllib_ppo": "Ray's runners keep no state of episodes",
    **dict.fromkeys(
        ("benchmarl_vdn", "benchmarl_qmix", "benchmarl_iql", "benchmarl_masac"),
        "BenchMARL's collectors begin new episodes",
    ),
}
"""Trainers that do not resume exactly, which corral says when they are resumed."""


# --- Cases ---------------------------------------------------------------------------------------

ROLLOUT = "--num-envs 4 --n-steps 16 --net-arch 16"
DFAAS = f"corral train dfaas_v0 --max-cycles 30 --steps 640 {ROLLOUT}"  # 10 updates
EVERY = "--checkpoint-every 64"
DAYS = "--queue 5 --wait-cost 0.02 --forward-cost 0.1 --route equal"

CASES: dict[str, str] = {
    **{
        name: f"{DFAAS} --trainer {name} {EVERY}"
        for name in ("mappo", "ippo", "ppo_kl", "a2c", "pg", "pg_episode")
    },
    "sb3_ppo": f"{DFAAS} --trainer sb3_ppo --batch-size 64 {EVERY}",
    "sb3_maskable_ppo": f"{DFAAS} --trainer sb3_maskable_ppo --batch-size 64 {EVERY}",
    "sb3_a2c": f"{DFAAS} --trainer sb3_a2c {EVERY}",
    "sb3_dqn": "corral train dfaas_v0 --max-cycles 30 --steps 640 --num-envs 4 --net-arch 16 "
    f"--trainer sb3_dqn --learning-starts 256 {EVERY}",
    "clone": "corral clone dfaas_v0 --from overflow/equal --max-cycles 30 --steps 640 "
    f"{ROLLOUT} --episodes 4 {EVERY}",
    "policy_iteration": "corral train dfaas_v0 --max-cycles 30 --steps 640 "
    f"{ROLLOUT} --trainer policy_iteration {EVERY}",
    "mappo with memory, metrics of its own": f"{DFAAS} --trainer mappo --memory 8 "
    f"--metric late=TREE/metric.py:late --evaluate-every 320 {EVERY}",
    "mappo against a mix": f"{DFAAS} --trainer mappo --opponent node_1=overflow:2,random:1 {EVERY}",
    "mappo with a pool": "corral train tictactoe_v0 --trainer mappo --steps 640 "
    f"{ROLLOUT} --self-play past=0.5,every=128,keep=3,best=4 --checkpoint-every 128",
    "ippo with memory and a pool": "corral train tictactoe_v0 --trainer ippo --memory 8 "
    f"--steps 640 {ROLLOUT} --self-play past=0.5,every=128,keep=3 --checkpoint-every 128",
    "from_rule": "corral train dfaas_v0 --from-rule --trace TREE/days.csv "
    f"{DAYS} --steps 448 {ROLLOUT}",  # 7 updates
    "advise": f"corral advise TREE/days.csv {DAYS} --steps 2048",  # 4 updates of the preset
    "tune": "corral tune two_step_v0 --grid learning_rate=1e-3,1e-2 --jobs 1 --steps 400 "
    "--num-envs 4 --n-steps 5 --checkpoint-every 40",
}
AGAIN = ("advise", "tune")  # the same command goes on

METRIC = """
def late(episode):  # None in short episodes: its columns are empty at first
    return float(episode.rewards[-5:].sum()) if len(episode.rewards) > 20 else None
"""


def words(name: str, tree: Path) -> list[str]:
    """Return the command that begins a case in ``tree``, or that goes on there."""
    run = tree / "run"
    command = f"{CASES[name]} --out {run}"
    if (run / "config.json").exists() and name not in AGAIN:
        every = CASES[name].partition(" --checkpoint-every ")[2]
        command = f"corral train --resume {run}"
        command += f" --checkpoint-every {every}" if every else ""
        if "--metric" in CASES[name]:
            command += f" --metric late={tree}/metric.py:late --evaluate-every 320"
    return [sys.executable, "-m", *command.replace("TREE", str(tree)).split()]


# --- Kills ---------------------------------------------------------------------------------------

HOOK = """
import atexit, os, signal, sys
TREE, MARK, AT = os.environ["TREE"], os.environ["MARK"], int(os.environ["AT"])
EVENTS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.link", "os.symlink",
          "os.truncate", "os.chmod", "os.listdir", "os.scandir"}
calls, fsync = 0, os.fsync

def called():
    global calls
    calls += 1
    if calls == 1:
        os.close(os.open(f"{MARK}/{os.getpid()}", os.O_CREAT))
    if calls == AT:
        os.killpg(0, signal.SIGKILL)

def hook(event, given):
    if event in EVENTS and isinstance(given[0], (str, bytes, os.PathLike)):
        path = os.fsdecode(given[0])
        relative = not os.path.isabs(path)  # to a folder that is open
        if relative or path.startswith(TREE) and "/tensorboard/" not in path:
            called()

def counted(handle):
    called()
    fsync(handle)

def told():
    with open(f"{MARK}/{os.getpid()}", "w") as file:
        file.write(str(calls))

os.fsync = counted
sys.addaudithook(hook)
atexit.register(told)
"""
"""A sitecustomize: each process of a case kills all of them before its file call number AT."""


@dataclass
class Watched:
    """The processes of a command, with the hook in each."""

    command: list[str]
    tree: Path
    mark: Path
    at: int = 0
    """File call to be killed at; 0: none."""

    def __enter__(self) -> Watched:
        self.mark.mkdir(parents=True)
        (self.mark / "sitecustomize.py").write_text(HOOK)
        path = os.pathsep.join([str(self.mark), os.environ.get("PYTHONPATH", "")])
        named = {"TREE": str(self.tree), "MARK": str(self.mark), "AT": str(self.at)}
        with (self.mark / "printed").open("wb") as printed:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.mark,
                env={**os.environ, **named, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End all processes that are left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def working(self) -> bool:
        """Wait until the first file call; return whether there was one."""
        while self.process.poll() is None:
            if any(path.name.isdigit() for path in self.mark.iterdir()):
                return True
            time.sleep(0.005)
        return False

    def calls(self) -> int:
        """The most file calls of a process."""
        texts = [path.read_text() for path in self.mark.iterdir() if path.name.isdigit()]
        return max(int(text or 0) for text in texts)

    def ended(self) -> bool:
        """Whether it came to its end; raises CalledProcessError where it failed."""
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return False
        if code:
            print((self.mark / "printed").read_text()[-2000:], file=sys.stderr)
            raise subprocess.CalledProcessError(code, self.command)
        return True


# --- What is compared ----------------------------------------------------------------------------


AGAIN_AT = re.compile(r"(step_[0-9]{12})_[0-9]+")
"""A checkpoint whose step had one already: a kill struck before that was announced."""


def values(tree: Path) -> dict[str, Any]:
    """Return every value of every file below ``tree``, but for clocks."""
    found: dict[str, Any] = {}
    for path in sorted(tree.rglob("*")):
        parts = path.relative_to(tree).parts
        name = AGAIN_AT.sub(r"\1", "/".join(parts))
        while name in found:  # a checkpoint of the same step: it must be equal too
            name += "'"
        if path.is_dir():
            if path.name == "checkpoints":
                found |= {f"{name} {at}": checkpoint(path, at) for at in ("latest", "best")}
            if path.name == "tensorboard":
                found[name] = scalars(path)
                assert found[name], path
        elif any(fnmatch(part, place) for part in parts for place in NOT_COMPARED):
            continue
        elif path.suffix == ".csv":
            found[name] = table(path)
        elif path.suffix == ".json":
            found[name] = timeless(json.loads(path.read_text().replace(str(tree), "TREE")))
        else:
            found[name] = sha256(path.read_bytes())
    return found


def table(path: Path) -> list[list[str]]:
    """Return the cells of a CSV, its header first."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    kept = [at for at, name in enumerate(rows[0]) if name not in CLOCKS]
    return [[row[at] for at in kept] for row in rows]


def timeless(value: Any) -> Any:
    """Return a JSON value without clocks."""
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if key not in CLOCKS}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def checkpoint(folder: Path, name: str) -> str | None:
    """Return the name of a checkpoint, after it was verified; None where there is none."""
    if not (folder / name).exists():
        return None
    place = named_checkpoint(folder, name)
    load_checkpoint(place)
    return AGAIN_AT.sub(r"\1", place.name)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return what TensorBoard shows but for times: steps and values by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), {"scalars": 0})
    read.Reload()
    return {
        tag: [(event.step, event.value) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
        if not CLOCKS & {tag.partition("/")[2], tag.replace("/", "_")}
    }


# --- Chains --------------------------------------------------------------------------------------


def begun(folder: Path) -> Path:
    """Return an empty tree with the files that cases name; always the same path, as it is kept in
    what they write."""
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    (tree / "metric.py").write_text(METRIC)
    write_trace(days(12), tree / "days.csv")
    return tree


def tried(name: str, folder: Path, tries: int, seed: int) -> dict[str, Any]:
    """Return how many of at least ``tries`` resumes of a case held."""
    rng = random.Random(f"{name} {seed}")
    tree = begun(folder)
    with Watched(words(name, tree), tree, folder / "mark") as whole:
        whole.working()
        clock = time.monotonic()
        assert whole.ended()
        lasts, calls = time.monotonic() - clock, whole.calls()
    expected = values(tree)
    result = {"tries": 0, "held": 0, "from a checkpoint": 0, "at a file call": 0}
    result |= {"calls": calls, "values": len(expected), "unequal": []}
    at_calls = max(1, tries // 2)
    strikes = itertools.count()
    while result["tries"] < tries:
        begun(folder)
        kills: list[str] = []
        resumed = 0
        while True:
            left = min(KILLS, tries - result["tries"]) - len(kills)
            strike, at = next(strikes), 0
            if left and strike % 2 == 0:
                at = 1 + math.floor(calls * ((strike // 2 + rng.random()) % at_calls) / at_calls)
            with Watched(words(name, tree), tree, folder / f"mark-{strike}", at) as process:
                if left and strike % 2 and process.working():
                    time.sleep(rng.uniform(0.0, 0.8) * lasts)
                    process.kill()
                if process.ended():
                    break
            kills.append(f"file call {at}" if at else "at random")
            resumed += any(tree.rglob("checkpoints/latest"))
        found = values(tree)
        pairs = {key: (expected.get(key.rstrip("'")), value) for key, value in found.items()}
        unequal = [key for key, (one, other) in pairs.items() if one != other]
        unequal += expected.keys() - found.keys()
        result["tries"] += len(kills)
        result["held"] += len(kills) * (not unequal)
        result["from a checkpoint"] += resumed
        result["at a file call"] += sum("call" in kill for kill in kills)
        if unequal:
            result["unequal"].append({"kills": kills, "values": unequal})
    return result


def commit() -> str:
    """Return the commit that is tried, "+" where files were changed since."""
    git = ["git", "-C", str(Path(__file__).parent)]
    found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "*.py"], capture_output=True)
    return found.stdout.strip() + "+" * (changed.returncode == 1) or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--share", type=float, default=1.0, help="of the tries")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--case", action="append", choices=list(CASES), help="these alone")
    parser.add_argument("--afresh", action="store_true", help="forget kept results")
    given = parser.parse_args()
    lacking = trainers().keys() - CASES.keys() - NOT_EXACT.keys()
    assert not lacking, f"trainers without a case: {lacking}"
    wanted = math.ceil(given.tries * given.share)
    names = given.case or list(CASES)
    each = {name: wanted // len(names) + (i < wanted % len(names)) for i, name in enumerate(names)}
    place = RESULTS / f"{NAME}.json"
    kept = {} if given.afresh or not place.exists() else json.loads(place.read_text())["cases"]

    now = commit()

    def one(name: str) -> None:
        before = kept.get(name, {"tries": 0, "commit": now})
        if before["tries"] >= each[name] and before["commit"] == now:
            return
        with tempfile.TemporaryDirectory() as folder:
            found = tried(name, Path(folder).resolve(), each[name], given.seed)
        kept[name] = {**found, "commit": now}
        about = {**machine("torch", "stable-baselines3"), "seed": given.seed}
        cases = {name: kept[name] for name in CASES if name in kept}
        tried_now = {name: case for name, case in cases.items() if case["commit"] == now}
        save(NAME, page(cases), {"rows": rows(tried_now), "cases": cases}, about)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(one, names))


def rows(cases: dict[str, Any]) -> list[dict[str, Any]]:
    """Return tries, those that held, and which did not, of each case."""
    return [
        {
            "what": name,
            "tries": case["tries"],
            "held": case["held"],
            "not_held": [
                f"{name}: {len(each['values'])} values, such as {each['values'][0]}, after "
                f"{len(each['kills'])} kills"
                for each in case["unequal"]
            ],
        }
        for name, case in cases.items()
    ]


def page(cases: dict[str, Any]) -> str:
    total = {key: sum(case[key] for case in cases.values()) for key in ("tries", "held")}
    lines = [
        "# Killed and resumed",
        "",
        f"{total['held']} of {total['tries']} resumes held: every value of every file, and the "
        "order of columns, as in a run that never stopped, but for clocks and rates.",
        "",
        "| case | file calls of a run | kills | at a file call | resumed from a checkpoint "
        "| held | unequal |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for name, case in cases.items():
        unequal = sorted({value for one in case["unequal"] for value in one["values"]})
        cells = [case[key] for key in ("calls", "tries", "at a file call", "from a checkpoint")]
        row = " | ".join(map(str, [name, *cells, case["held"], ", ".join(unequal)]))
        lines.append(f"| {row} |")
    lines += ["", f"Not compared: {', '.join(sorted(CLOCKS))}; files:", ""]
    lines += [f"- `{place}`: {why}" for place, why in NOT_COMPARED.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
