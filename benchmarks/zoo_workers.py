"""Slow third-party environments in this process and in worker processes, as ratios of one run.

    OMP_NUM_THREADS=1 python benchmarks/zoo_workers.py

Two kinds of slowness, each 2 ms a step: an environment that waits (for a simulator, a server), and
one that computes. 16 copies, random actions, the median of five rounds in each of which every
number of workers has its turn. Waiting overlaps as far as there are workers, computing as far as
there are cores.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from typing import Any

import numpy as np
from common import machine, save
from gymnasium import spaces
from pettingzoo import ParallelEnv

from corral.adapters import make_zoo_batch

WORKERS = (0, 1, 2, 4)
COPIES = 16
STEPS = 25
ROUNDS = 5
COST = 0.002  # seconds


class SlowEnv(ParallelEnv):  # type: ignore[misc]
    """Two agents, two actions; each step takes COST seconds of waiting, or of computing."""

    metadata = {"name": "slow_v0", "render_modes": []}  # noqa: RUF012

    def __init__(self, computes: bool) -> None:
        self.computes = computes
        self.possible_agents = ["agent_0", "agent_1"]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0, 1, (4,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        self.t = 0
        return self._per_agent(np.zeros(4, np.float32)), self._per_agent({})

    def step(self, actions: dict[str, int]) -> Any:
        if self.computes:
            until = time.thread_time() + COST
            while time.thread_time() < until:
                pass
        else:
            time.sleep(COST)
        self.t += 1
        over = self.t >= 10
        told = [self._per_agent(x) for x in (np.zeros(4, np.float32), 0.0, False, over, {})]
        if over:
            self.agents = []
        return tuple(told)

    def _per_agent(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)


def main() -> None:
    lines = [
        "# Slow environments in worker processes",
        "",
        f"{COPIES} copies, {1000 * COST:.0f} ms a step.",
        "",
        "| a step | workers | env steps/s | times in process |",
        "|---|--:|--:|--:|",
    ]
    found: dict[str, Any] = {}
    for kind, computes in (("waits", False), ("computes", True)):
        batches = {
            workers: make_zoo_batch(
                functools.partial(SlowEnv, computes), COPIES, 0, workers=workers
            )
            for workers in WORKERS
        }
        rates: dict[int, list[float]] = {workers: [] for workers in WORKERS}
        rng = np.random.default_rng(0)
        for batch in batches.values():
            batch.reset()
        for _ in range(ROUNDS):
            for workers, batch in batches.items():
                began = time.perf_counter()
                for _ in range(STEPS):
                    batch.step(batch.sample_actions(rng))
                rates[workers].append(STEPS * COPIES / (time.perf_counter() - began))
        for batch in batches.values():
            batch.close()
        for workers in WORKERS:
            rate = statistics.median(rates[workers])
            ratio = statistics.median(
                many / one for many, one in zip(rates[workers], rates[0], strict=True)
            )
            found[f"{kind}, {workers}"] = {"env_steps_per_s": rate, "ratio": ratio}
            lines.append(f"| {kind} | {workers} | {rate:,.0f} | {ratio:.2f} |")
            print(lines[-1], file=sys.stderr)
    save("zoo_workers", "\n".join(lines), found, machine("pettingzoo", "gymnasium"))


if __name__ == "__main__":
    main()
