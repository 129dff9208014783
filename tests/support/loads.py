"""A small load trace for tests that want dfaas_v0 without caring about the load."""

from __future__ import annotations

import numpy as np

from corral.data.trace import Trace


def small_trace(nodes: int = 3, steps: int = 40, largest: int = 12, seed: int = 7) -> Trace:
    """Random arrivals and capacities of 0 .. ``largest``, the same at every call."""
    rng = np.random.default_rng(seed)
    return Trace(
        nodes=tuple(f"site-{i}" for i in range(nodes)),
        arrivals=rng.integers(largest + 1, size=(steps, nodes)),
        capacity=rng.integers(largest + 1, size=(steps, nodes)),
        times=np.arange(steps),
    )
