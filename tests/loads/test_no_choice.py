"""Loads on which no policy can differ, and networks that are too large: answered plainly."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.loads.replay import replay
from corral.loads.text import describe
from support.messages import refused, shown


def load(nodes: int = 2, steps: int = 40, arrivals: Any = None, capacity: int = 9) -> Trace:
    drawn = np.random.default_rng(0).poisson(9, (steps, nodes))
    return Trace(
        nodes=tuple(f"n{i}" for i in range(nodes)),
        arrivals=drawn if arrivals is None else np.full((steps, nodes), arrivals),
        capacity=np.full((steps, nodes), capacity),
        times=np.arange(steps),
        name="mine",
    )


CASES: list[tuple[Trace, dict[str, Any], tuple[str, ...]]] = [
    (load(nodes=1), {}, ("one node",)),
    (load(), {"neighbours": {}}, ("2 nodes", "neighbours")),
    (load(arrivals=0), {}, ("no request",)),
    (load(capacity=0), {}, ("capacity", "0")),
    (load(), {"capacity": 0}, ("capacity", "0")),
]


@pytest.mark.parametrize(("trace", "settings", "values"), CASES)
def test_where_there_is_no_choice_nothing_is_trained(
    trace: Trace, settings: dict[str, Any], values: tuple[str, ...]
) -> None:
    with refused(ValueError, "mine", *values):
        DfaasRules(trace, **settings).split(None, None)


@pytest.mark.parametrize(("trace", "settings", "values"), CASES)
def test_a_replay_says_so(trace: Trace, settings: dict[str, Any], values: tuple[str, ...]) -> None:
    result = replay(trace, ["local", "overflow"], window=20, **settings)
    usual = describe(replay(load(), ["local", "overflow"], window=20))
    shown("\n".join(line for line in describe(result) if line not in usual), *values)


def test_a_load_that_never_changes_is_said_to() -> None:
    said = "equal in all steps"
    steady = replay(load(arrivals=9), ["local"], window=20)
    assert sum(said in line for line in describe(steady)) == 1
    assert not any(said in line for line in describe(replay(load(), ["local"], window=20)))
    DfaasRules(load(arrivals=9)).split(None, None)  # it can be learned


def test_many_nodes_are_refused_before_memory_is_taken() -> None:
    trace = load(nodes=10_000, steps=2)
    tracemalloc.start()
    with refused(ValueError, "10,000 nodes", "800 MB", "1,000 nodes"):
        DfaasRules(trace)
    with refused(ValueError, "10,000 nodes", "800 MB", "1,000 nodes"):
        replay(trace, ["local"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80e6
    assert DfaasRules(load(nodes=200, steps=2)).network.complete
