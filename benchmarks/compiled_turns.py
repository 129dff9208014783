"""What compiling the hottest part of dfaas_v0 would gain: the turns of the senders under numba.

    pip install numba
    OMP_NUM_THREADS=1 python benchmarks/compiled_turns.py

The loop below says once more what ``corral.envs.dfaas_v0.network`` does for the route "equal", to
be timed against it, after a check that both give the same numbers. corral itself is not compiled;
benchmarks/LOG.md says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numba
import numpy as np
from common import machine, save

from corral.envs.dfaas_v0.network import Network, adjacency

NODES = 3


@numba.njit
def compiled_turns(first: np.ndarray, forwarded: np.ndarray, spare: np.ndarray) -> tuple:
    num_envs, n = forwarded.shape
    refused, after = np.zeros((num_envs, n), np.int64), spare.copy()
    for b in range(num_envs):
        for turn in range(n):
            i = (first[b] + turn) % n
            rest = forwarded[b, i]
            each, extra = rest // (n - 1), rest % (n - 1)
            for offset in range(n - 1):
                j = (i + 1 + offset) % n
                taken = min(each + (1 if offset < extra else 0), after[b, j])
                after[b, j] -= taken
                rest -= taken
            for offset in range(n - 1):
                j = (i + 1 + offset) % n
                taken = min(rest, after[b, j])
                after[b, j] -= taken
                rest -= taken
            refused[b, i] = rest
    return refused, after


def microseconds(call: Callable[[], object], seconds: float = 0.5) -> float:
    """The best of five rounds."""
    best = float("inf")
    for _ in range(5):
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for _ in range(50):
                call()
            count += 50
        best = min(best, (time.perf_counter() - began) / count)
    return 1e6 * best


def main() -> None:
    agents = [f"node_{i}" for i in range(NODES)]
    network = Network(adjacency(agents, agents, None), "equal", True, None)
    lines = ["# The turns of the senders, compiled", "", "| copies | NumPy, us | numba, us |"]
    lines.append("|--:|--:|--:|")
    found = {}
    for num_envs in (1, 64, 1024):
        rng = np.random.default_rng(0)
        first = np.ones(num_envs, dtype=np.int64)
        forwarded, spare = rng.integers(1, 50, (2, num_envs, NODES))

        def plain(a=first, f=forwarded, s=spare) -> tuple:
            return network.forward(a, f, s, s, None, None)

        def compiled(a=first, f=forwarded, s=spare) -> tuple:
            return compiled_turns(a, f, s)

        for ours, theirs in zip(plain(), compiled(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        found[num_envs] = {"numpy": microseconds(plain), "numba": microseconds(compiled)}
        lines.append(
            f"| {num_envs} | {found[num_envs]['numpy']:.0f} | {found[num_envs]['numba']:.0f} |"
        )
    save("compiled_turns", "\n".join(lines), {"microseconds": found}, machine("numba"))


if __name__ == "__main__":
    main()
