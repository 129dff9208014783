"""Small load traces for tests that want dfaas_v0 without caring about the load."""

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


DAY = 24
"""Steps of a day of ``days``."""


def days(count: int, nodes: int = 3, seed: int = 0) -> Trace:
    """So many days of 24 hours, whose nodes peak at other times."""
    rng, hours = np.random.default_rng(seed), np.arange(count * DAY)
    peaks = rng.uniform(0, 2 * np.pi, nodes)
    load = rng.poisson(12 * (1 + 0.7 * np.sin(2 * np.pi * hours[:, None] / DAY + peaks)))
    return Trace(
        nodes=tuple(f"site-{i}" for i in range(nodes)),
        arrivals=load,
        capacity=np.full_like(load, 14),
        times=hours * 3600,
        clock="utc",
        name="made",
    )
