"""How quick a team decides in production, and whether its folder of NumPy decides alike.

    OMP_NUM_THREADS=1 python benchmarks/loads/decide.py

Teams of dfaas_v0 on the three nodes of edge3 with the default network (two layers of 64), a few
updates old: one shared policy, own policies, a recurrent one, Stable-Baselines3's PPO, one that
observes a summary, and two with unknown arrivals, which answer by plans. Of each:

- the folder of ``run.export("numpy")`` in a process of its own: seconds until ``Decider()`` is
  made, median of new processes; one decision for all nodes, with what the last step ended with:
  median and 99 % of wall seconds (on a busy machine the 99 % say how long others had the core), and
  the mean of CPU seconds;
- ``run.decide`` of the same team, by its own policies;
- actions that differ on 100,000 random observations, where the two best logits are further apart
  than 1e-5.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

import corral
from corral.loads.export.numpy_folder import network_actor, odd_actions

OBSERVATIONS, PROCESSES = 100_000, 7
TEAMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "mappo, one policy": ("mappo", {}, {}),
    "ippo, own policies": ("ippo", {"policies": "separate"}, {}),
    "mappo, GRU of 32": ("mappo", {"memory": 32}, {}),
    "sb3_ppo": ("sb3_ppo", {}, {}),
    "mappo, summary": ("mappo", {}, {"observation": "summary", "route": "spare"}),
    "mappo, unknown arrivals": (
        "mappo",
        {},
        {"arrivals": "unknown", "amount": "keep", "route": "least", "link_limit": 15},
    ),
    "mappo, four counts, time": (
        "mappo",
        {},
        {"arrivals": "unknown", "amount": "keep", "last_counts": 4, "daily_mean": True},
    ),
}

CLOCK = """
import json, sys, time
begun = time.perf_counter()
sys.path.insert(0, sys.argv[1])
from policy import Decider
decider = Decider()
ready = time.perf_counter() - begun
"""

TIMED = """
import random
draw = random.Random(0)
cases = []
for _ in range(500):
    nodes, ended = {}, {}
    for name in decider.nodes:
        counts = [draw.randint(0, 60) for _ in range(max(1, decider.last_counts))]
        nodes[name] = {"capacity": draw.randint(10, 40), "arrivals": counts[0]}
        if decider.arrivals == "unknown":
            nodes[name] = {"capacity": nodes[name]["capacity"], "last_arrivals": counts}
        ended[name] = {"spare": draw.randint(0, 20), "lost": draw.randint(0, 5)}
    cases.append((nodes, ended))
state = decider.start()
timed = decider.daily_mean is not None
time_of_day = {"time": "2026-03-01T12:05:00Z"} if timed else {}
for case in cases:
    decider.decide(*case, state, **time_of_day)
wall, begun = [], time.process_time()
for _ in range(20):
    for case in cases:
        before = time.perf_counter()
        decider.decide(*case, state, **time_of_day)
        wall.append(time.perf_counter() - before)
cpu = (time.process_time() - begun) / len(wall)
wall.sort()
print(json.dumps([ready, wall[len(wall) // 2], wall[int(0.99 * len(wall))], cpu]))
"""
RUN = """
import json, sys, time
import corral
decider, ready = corral.load_run(sys.argv[1]).decider, 0.0
"""


def timed(code: str, folder: Path) -> list[float]:
    """Return what a new process prints."""
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Return the figures of a team, which is trained in ``folder``."""
    trainer, settings, env_kwargs = TEAMS[name]
    kwargs = {"trace": "edge3", "queue": 5, **env_kwargs}
    out = folder / "run"
    run = corral.train(
        "dfaas_v0",
        trainer=trainer,
        steps=4_096,
        seed=0,
        out=out,
        env_kwargs=kwargs,
        progress=False,
        **settings,
    )
    place = run.export("numpy")[0].parent
    ready = [timed(CLOCK + "print(json.dumps(ready))", place) for _ in range(PROCESSES)]
    numpy, torch = timed(CLOCK + TIMED, place), timed(RUN + TIMED, out)
    return {
        "import_s": statistics.median(ready),  # type: ignore[type-var]
        "median_s": numpy[1],
        "p99_s": numpy[2],
        "cpu_s": numpy[3],
        "run_decide_median_s": torch[1],
        "run_decide_cpu_s": torch[3],
        "odd_actions": odd_actions(run.decider, network_actor(run.decider), OBSERVATIONS),
        "folder_kB": sum(path.stat().st_size for path in place.iterdir()) / 1e3,
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| team | import, s | decision, ms: median | 99 % | CPU | run.decide, ms: median | CPU "
        f"| other actions of {OBSERVATIONS:,} | folder, kB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, each in found.items():
        keys = "median_s", "p99_s", "cpu_s", "run_decide_median_s", "run_decide_cpu_s"
        times = " | ".join(f"{1e3 * each[key]:.3f}" for key in keys)
        lines.append(
            f"| {name} | {each['import_s']:.2f} | {times} | {each['odd_actions']} "
            f"| {each['folder_kB']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    found = {}
    for name in TEAMS:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measured(name, Path(folder))
        print(name, found[name], flush=True)
    text = f"# Decisions of three nodes\n\n{table(found)}"
    save("decide", text, found, machine("numpy", "torch", "stable-baselines3"))


if __name__ == "__main__":
    main()
