"""Arguments of dfaas_v0 that the trace completes, capacity and scales; and rewards of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.data import Trace
from corral.envs.arguments import nonnegative_float, nonnegative_int
from corral.envs.core import Array
from corral.envs.dfaas_v0.rows import Section, section
from corral.errors import Fault, ScaleError, TraceError
from corral.named import NamedFunction

__all__ = [
    "built_in_reward",
    "cost_of",
    "last_counts",
    "measured_on",
    "reward_function",
    "reward_of",
    "scale",
    "with_capacity",
]


def with_capacity(trace: Trace, capacity: int | str | None, rows: Section | None) -> Trace:
    """Return the trace with that capacity, or its own. Raises TraceError where there is none."""
    if capacity is None and trace.capacity is None:
        rule = "has no capacity column; pass capacity=, a number or a text such as '1.25x'"
        raise TraceError([Fault(file=trace.name, rule=rule)])
    rows = None if rows is None else section(rows, len(trace), "capacity_rows")
    return trace if capacity is None else trace.with_capacity(capacity, rows)


def measured_on(
    trace: Trace,
    rows: Section,
    capacity: int | str | None,
    capacity_rows: Section | None,
    capacity_scale: float | None,
) -> dict[str, Any]:
    """Return which arguments differ in training on those rows: of a capacity such as "1.25x" its
    mean is over them, unless other rows are given."""
    if not isinstance(capacity, str) or capacity_rows is not None:
        return {}
    levels = trace.with_capacity(capacity, rows).capacity
    found = scale("capacity_scale", capacity_scale, levels)
    return {"capacity_rows": rows, "capacity_scale": found}


def scale(name: str, value: float | None, numbers: Array | None) -> float:
    """Return the scale of ``numbers`` [T, N]. Raises ScaleError where they exceed ``value``."""
    assert numbers is not None
    largest = max(1, int(numbers.max()))
    if value is None:
        return largest
    if nonnegative_float(name, value) < 1:
        raise ValueError(f"{name}={value!r}: give a finite number, 1 or more")
    if value < largest:
        what = f"{name.removesuffix('_scale')} of {largest}"
        raise ScaleError(f"{name}={value:g}, but the trace has a {what}; pass {name}={largest}")
    return value


def last_counts(given: int | None, arrivals: str, report_delay: int) -> int:
    """Return how many of its own past counts a node observes. Raises ValueError where ``arrivals``
    are unknown and something that a node observes would tell them."""
    if arrivals == "unknown" and report_delay == 0:
        raise ValueError(
            "report_delay=0 with arrivals='unknown': reports of this step tell its arrivals; give "
            "report_delay=1 or more"
        )
    least = int(arrivals == "unknown")
    return least if given is None else nonnegative_int("last_counts", given, least)


def reward_function(given: Any, reward: str) -> NamedFunction | None:
    """Return ``reward_fn`` as it is kept. Raises ValueError where it is none, or ``reward`` would
    be ignored."""
    if given is not None and reward != "own":
        raise ValueError(f"reward={reward!r} and reward_fn: the function alone says what is paid")
    return None if given is None else NamedFunction.of("reward_fn", given)


def cost_of(rules: Any, info: Mapping[str, Array]) -> Array:
    """Return the cost of steps with ``info``, in requests; two steps of waiting count twice."""
    cost: Array = info["lost"]
    if rules.forward_cost:
        cost = cost + rules.forward_cost * info["forwarded"]
    if rules.wait_cost:
        cost = cost + rules.wait_cost * info["waiting"]
    return cost


def built_in_reward(rules: Any, info: Mapping[str, Array]) -> Array:
    """Return what a step with ``info`` pays without ``reward_fn``: float32 [B, N]."""
    cost = cost_of(rules, info)
    if rules.reward == "team":
        cost = np.broadcast_to(cost.mean(axis=1, keepdims=True), cost.shape)
    return np.asarray(0.0 - cost / rules.load_scale, dtype=np.float32)  # 0.0 -: no minus zero


def reward_of(rules: Any, info: Mapping[str, Array]) -> Array:
    """Return what the ``reward_fn`` of the rules pays for a step with ``info``: float32 [B, N].

    Raises ValueError where that is of another shape or dtype, or is not finite.
    """
    function, shape = rules.reward_fn, info["lost"].shape
    paid = function({key: values.copy() for key, values in info.items()}, rules)
    wanted = f"reward_fn {function} must return a float32 array of shape {shape} = [B, N]"
    if not isinstance(paid, np.ndarray):
        raise ValueError(f"{wanted}, not {type(paid).__name__}")
    if (paid.shape, paid.dtype) != (shape, np.float32):
        raise ValueError(f"{wanted}, not {paid.dtype} of shape {paid.shape}")
    if not np.isfinite(paid).all():
        env, node = np.argwhere(~np.isfinite(paid))[0].tolist()
        seen = ", ".join(f"{key} {values[env, node]}" for key, values in info.items())
        raise ValueError(
            f"reward_fn {function} returned {paid[env, node]} for {rules.agents[node]}, of {seen}"
        )
    return paid
