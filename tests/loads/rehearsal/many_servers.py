"""Many equal servers that share their load, for known answers of queueing theory."""

from __future__ import annotations

import math

import numpy as np

from corral.data import Trace
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.loads.rehearsal.arrivals import DECISIONS, DrawnRequests, chunks_of, stream
from corral.loads.rehearsal.balancers import balancer_of
from corral.loads.rehearsal.engine import Engine, WindowResult
from corral.loads.rehearsal.setting import Setting

SPEED = 20
"""Requests that a server does in a step on average. A service time is 1 / SPEED steps."""


class Servers:
    """Servers with Poisson arrivals, exponential work, and plenty of places.

    ``load``: requests per service time and server. Times are in service times.
    """

    def __init__(self, number: int, load: float, *, warm_up: int, time: int, seed: int = 0) -> None:
        self.warm_up, self.steps, self.seed = warm_up // SPEED, (warm_up + time) // SPEED, seed
        shape = self.steps, number
        arrivals = np.random.default_rng(seed).poisson(SPEED * load, size=shape)
        trace = Trace(
            nodes=tuple(f"n{i}" for i in range(number)),
            arrivals=arrivals,
            capacity=np.full(shape, SPEED),
            times=np.arange(self.steps),
        )
        self.rules = DfaasRules(trace, max_cycles=self.steps)

    def mean_time(self, name: str, *, compiled: bool, period: float = 0.0) -> tuple[float, float]:
        """Return the mean time in the system of requests served after the warm-up, and its error.

        ``period``: between two reports. The standard error is that of ten batches.
        """
        setting = Setting(work="exponential", places=10**6, report_period=period / SPEED)
        balancer = balancer_of(name)
        engine = Engine(self.rules, setting, peaks=balancer.peaks, compile_it=compiled)
        play = engine.player(balancer.choose, strict=True)
        memory, window = engine.memory(balancer.memory(engine.nodes)), engine.begin()
        trace, rng = self.rules.trace, stream(self.seed, DECISIONS, 0)
        assert trace.capacity is not None
        requests = DrawnRequests(trace.arrivals, "exponential", self.seed, 0)
        batches = np.linspace(self.warm_up, self.steps, 11).astype(int).tolist()
        results: list[WindowResult] = []
        for chunk in chunks_of(requests, trace.arrivals, single=True):
            if chunk.first in batches:
                results.append(window.result())
            uniform = rng.random(len(chunk.node) * memory.draws)
            memory = memory._replace(uniform=engine.values(uniform))
            speed = trace.capacity[chunk.first : chunk.last].astype(np.float64)
            window.play(play, memory, speed, chunk)
        results.append(window.result())
        served = np.diff([result.counts["served"] for result in results])
        total = [result.mean_stay * result.counts["served"] for result in results]
        means = SPEED * np.diff(total) / served
        error = float(means.std(ddof=1)) / math.sqrt(len(means))
        return float(SPEED * np.diff(total).sum() / served.sum()), error


def two_choices_limit(load: float, choices: int = 2) -> float:
    """Return the mean time in the system of ``shortest-of`` with infinitely many servers.

    In service times (Mitzenmacher, The power of two choices in randomized load balancing, 2001).
    """
    exponents = [(choices**i - choices) // (choices - 1) for i in range(1, 12)]
    return sum(load**exponent for exponent in exponents)
