"""Random configurations of dfaas_v0, odd ones on purpose, for tests that hold for all of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st

from corral.data.trace import Trace
from support.dfaas_scalar import ALIASES, NEW_ROUTES, ROUTES, ScalarDfaas

MAGNITUDES = (1, 3, 12, 100, 5_000, 2**31)
"""The largest value of a table of arrivals or capacities."""


def configurations() -> st.SearchStrategy[dict[str, Any]]:
    """Keyword arguments of dfaas_v0, among them a trace of at most 12 steps and 6 nodes."""
    seeds = st.integers(min_value=0, max_value=2**32 - 1)
    return seeds.map(lambda seed: random_configuration(np.random.default_rng(seed)))


def random_configuration(rng: np.random.Generator) -> dict[str, Any]:
    """Keyword arguments of dfaas_v0; ``start`` is always a row, ``illegal`` always "penalise"."""
    nodes = int(rng.integers(1, 7))
    steps = int(rng.integers(1, 13))
    trace, capacity = _trace_and_capacity(rng, steps, nodes)
    rows = _section(rng, steps)
    length = steps if rows is None else rows[1] - rows[0]
    of_rows = _section(rng, steps) if isinstance(capacity, str) else None
    measured = trace if capacity is None else trace.with_capacity(capacity, of_rows)
    load = max(1, int(trace.arrivals.max()))
    load_scale = _larger(rng, load)
    max_level = _one_of(rng, 1, 2, 3, 7, 10, 50, 99, 100)
    return {
        "trace": trace,
        "capacity": capacity,
        "capacity_rows": of_rows,
        "rows": rows,
        "start": int(rng.integers(length)),
        "max_cycles": int(rng.integers(1, 2 * length + 3)),
        "load_scale": load_scale,
        "capacity_scale": _larger(rng, max(1, int(measured.capacity.max()))),  # type: ignore[union-attr]
        "max_level": max_level,
        "amount": _amount(rng, load if load_scale is None else load_scale, max_level),
        "queue": _one_of(rng, 0, 0, 1, 3, load // 3 + 1, 10 * load),
        "forward_cost": _one_of(rng, 0.0, 0.0, 0.05, 1.0),
        "wait_cost": _one_of(rng, 0.0, 0.0, 0.1, 2.0),
        "route": _one_of(rng, *ROUTES),
        "second_offer": bool(rng.integers(2)),
        "link_limit": _one_of(rng, None, None, 0, 1, 3, load // 4 + 1, 10 * load),
        "neighbours": _graph(rng, nodes),
        "reward": _one_of(rng, "own", "team"),
        "illegal": "penalise",
        "report_delay": _one_of(rng, 1, 1, 0, 2, 3, 7),
        "observation": _one_of(rng, *["every"] * 4, "summary", "neighborhood"),
    }


def wider_configuration(rng: np.random.Generator) -> dict[str, Any]:
    """A random configuration, most with arguments that came with plans: arrivals, what is observed
    of past counts and of the time of day, levels that are plans, and routes request by request."""
    kwargs = random_configuration(rng)
    kwargs["trace"] = trace = _with_days(rng, kwargs["trace"])
    if rng.random() < 0.5:
        kwargs |= {"arrivals": "unknown", "report_delay": max(1, kwargs["report_delay"])}
    if rng.random() < 0.4:
        kwargs["amount"] = "keep" if kwargs["observation"] == "every" else "share"
    elif rng.random() < 0.3:
        kwargs["amount"] = "share"
    if rng.random() < 0.5:
        kwargs["route"] = _one_of(rng, *NEW_ROUTES, *ALIASES)
    if rng.random() < 0.5:
        kwargs["last_counts"] = int(rng.integers(kwargs.get("arrivals") == "unknown", 5))
    if kwargs["route"] == "two-choices":  # drawn for every request: let there be few
        few = {"load_scale": None, "capacity_scale": None}
        trace = bounded(trace, int(_one_of(rng, 1, 12, 60)))
        kwargs |= {"trace": trace, **few}
    if trace.steps_per_day and rng.random() < 0.5:
        shape = trace.steps_per_day, len(trace.nodes)
        largest = kwargs["load_scale"] or max(1, int(trace.arrivals.max()))
        kwargs["daily_mean"] = _one_of(rng, True, rng.random(shape) * largest)
    return kwargs


RULES = (
    "local",
    "overflow",
    "threshold",
    "margin",
    "patient",
    "patient-margin",
    "backlog=0",
    "backlog=0.7",
    "backlog=0.75+margin=1",
    "backlog=1+margin=0.5",
    "backlog=2",
    "capacity=0",
    "capacity=0.75",
    "capacity=1+margin=1.5",
    "capacity=1.5",
    "capacity=1.5+margin=0",
)
"""Amounts of rules that keep a fixed number of requests."""


def residual_configuration(rng: np.random.Generator) -> dict[str, Any]:
    """A wider configuration in which actions are offsets to a rule; in most of them numbers may
    exceed the scales."""
    kwargs = wider_configuration(rng)
    del kwargs["amount"]
    routes = (*ROUTES, *NEW_ROUTES, *ALIASES)
    route = _one_of(rng, *(each for each in routes if each not in ("choose", "two-choices")))
    if kwargs["route"] == "two-choices":  # with few requests
        route = "two-choices"
    del kwargs["route"]
    kwargs |= {
        "residual": f"{_one_of(rng, *RULES)}/{route}",
        "offsets": int(_one_of(rng, 1, 2, 6, 20)),
    }
    if rng.random() < 0.3:
        return kwargs
    loads = max(1, int(kwargs["trace"].arrivals.max()))
    below = {each: int(rng.integers(1, loads + 1)) for each in ("load_scale", "capacity_scale")}
    return (
        kwargs
        | {"beyond": _one_of(rng, "rule", "rule", "clip")}
        | {each: scale for each, scale in below.items() if rng.random() < 0.7}
    )


def _with_days(rng: np.random.Generator, trace: Trace) -> Trace:
    """The trace with another clock, most often one of few steps a day."""
    step = int(_one_of(rng, 300, 3600, 21_600, 21_600, 28_800, 28_800, 43_200, 86_400, 7))
    times = step * (int(rng.integers(50)) + np.arange(len(trace)))
    return dataclasses.replace(trace, times=times, clock=_one_of(rng, "utc", "utc", "integer"))


def random_actions(
    rng: np.random.Generator, rules: ScalarDfaas, *, legal: float = 0.8
) -> list[int]:
    """One action per node, by chance: legal with at least this probability, else any at all."""
    actions = []
    for i in range(rules.n):
        some = np.arange(rules.actions)
        if rng.random() < legal:
            some = np.flatnonzero(rules.mask(i))
        # The ends are where rules break: draw them more often than the middle.
        actions.append(int(_one_of(rng, 0, some[-1], rng.choice(some))))
    return actions


def random_draws(rng: np.random.Generator, rules: ScalarDfaas) -> list[list[list[int]]]:
    """Pairs of neighbours for ``route="two"``: draws[t][i] -> positions (j1, j2)."""
    return [
        [rng.integers(max(1, len(near)), size=2).tolist() for near in rules.neighbours]
        for _ in range(rules.max_cycles)
    ]


def _trace_and_capacity(
    rng: np.random.Generator, steps: int, nodes: int
) -> tuple[Trace, int | str | None]:
    arrivals = _table(rng, steps, nodes)
    served: np.ndarray | None = None
    capacity: int | str | None = None
    kind = _one_of(rng, "own", "own", "like arrivals", "constant", "number", "multiple")
    if kind == "own":
        served = _table(rng, steps, nodes)
    elif kind == "like arrivals":  # near balance: queues, losses and spares all occur
        served = rng.permuted(arrivals, axis=1)
    elif kind == "constant":  # equal spares: ties
        served = np.full((steps, nodes), rng.integers(2 * arrivals.max() + 2) // 2)
    elif kind == "number":
        capacity = int(rng.integers(arrivals.max() + 1))
    else:
        capacity = str(_one_of(rng, "0x", "0.5x", "1x", "1.25x", "2.5x"))
    if capacity is not None and isinstance(capacity, str):  # a multiple must stay a valid trace
        arrivals = arrivals // 4
    names = tuple(f"site-{i}" for i in rng.permutation(nodes))
    times = np.arange(steps) * 300
    return Trace(nodes=names, arrivals=arrivals, capacity=served, times=times), capacity


def _table(rng: np.random.Generator, steps: int, nodes: int) -> np.ndarray:
    """Numbers of one magnitude, or of one per node; sometimes sparse, all zero or all equal."""
    if rng.random() < 0.5:
        largest = np.full(nodes, _one_of(rng, *MAGNITUDES))
    else:
        largest = rng.choice(MAGNITUDES, nodes)
    if rng.random() < 0.05:
        largest = np.zeros(nodes, np.int64)
    table = rng.integers(largest + 1, size=(steps, nodes))
    if rng.random() < 0.2:
        table[:] = table[0, 0]
    if rng.random() < 0.3:
        table[rng.random(table.shape) < 0.5] = 0
    return table


def _section(rng: np.random.Generator, steps: int) -> tuple[int, int] | None:
    if rng.random() < 0.5:
        return None
    low = int(rng.integers(steps))
    return low, int(rng.integers(low + 1, steps + 1))


def _larger(rng: np.random.Generator, largest: int) -> int | None:
    return _one_of(rng, None, None, largest, largest + 1, 2 * largest, largest + 137)


def _amount(rng: np.random.Generator, largest: int, max_level: int) -> str | list[int]:
    """A way to give the levels; a list of some numbers up to ``largest`` or a little more."""
    if (kind := _one_of(rng, "unit", "unit", "quantile", "list")) != "list":
        return kind
    between = rng.integers(1, largest + 1, size=rng.integers(max_level)).tolist()
    return sorted({0, largest + int(rng.integers(3)), *between})


def _graph(rng: np.random.Generator, nodes: int) -> dict[str, list[str]] | None:
    """A directed graph with every node as a key; some nodes have nobody to send to."""
    if rng.random() < 0.4:
        return None
    density = rng.random()
    graph = {}
    for i in range(nodes):
        near = [j for j in range(nodes) if j != i and rng.random() < density]
        rng.shuffle(near)  # the order in which they are named must not matter
        graph[f"node_{i}"] = [f"node_{j}" for j in near]
    return graph


def _one_of(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def bounded(trace: Trace, largest: int) -> Trace:
    """The trace with a capacity, and no number above ``largest``."""
    served = trace.arrivals[::-1] if trace.capacity is None else trace.capacity
    return Trace(
        nodes=trace.nodes,
        arrivals=np.minimum(trace.arrivals, largest),
        capacity=np.minimum(served, largest),
        times=trace.times,
        clock=trace.clock,
    )
