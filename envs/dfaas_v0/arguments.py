"""Arguments of dfaas_v0 that depend on the trace (capacity and scales), and custom rewards."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.data import Trace
from corral.envs.arguments import nonnegative_float, nonnegative_int, one_of
from corral.envs.core import Array
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.routes import Route, canonical_route
from corral.envs.dfaas_v0.rows import Section, section
from corral.errors import Fault, ScaleError, TraceError
from corral.named import NamedFunction

__all__ = [
    "beyond",
    "built_in_reward",
    "cost_of",
    "last_counts",
    "measured_on",
    "reward_function",
    "reward_of",
    "route_of",
    "scale",
    "with_capacity",
]

DEFAULT_ROUTE, DEFAULT_OFFSETS = "equal", 6

NAMED = 3
"""At most this many nodes are named in an error."""


def with_capacity(trace: Trace, capacity: int | str | None, rows: Section | None) -> Trace:
    """Return the trace with ``capacity``, or with its recorded capacity if that is None.

    Raises TraceError if both are missing.
    """
    if capacity is None and trace.capacity is None:
        named = [f"{node}=N" for node in trace.nodes[:NAMED]]
        levels = ",".join([*named, *["..."] * (len(trace.nodes) > NAMED)])
        rule = (
            "has no capacity column; pass capacity=, a number for all nodes or a text such as "
            "'1.25x'. To set one value per node, import the loads again: corral trace import FILE "
            f"--capacity {shlex.quote(levels)} --out loads.csv"
        )
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
    """Return the arguments that change for training on ``rows``.

    A capacity such as "1.25x" is then measured on these rows, unless ``capacity_rows`` is set.
    """
    if not isinstance(capacity, str) or capacity_rows is not None:
        return {}
    levels = trace.with_capacity(capacity, rows).capacity
    scaled = scale("capacity_scale", capacity_scale, levels)
    return {"capacity_rows": rows, "capacity_scale": scaled}


def scale(name: str, value: float | None, numbers: Array | None, bounded: bool = True) -> float:
    """Return the scale of ``numbers`` [T, N].

    Raises ScaleError if they are ``bounded`` by it and exceed ``value``.
    """
    assert numbers is not None
    largest = max(1, int(numbers.max()))
    if value is None:
        return largest
    if nonnegative_float(name, value) < 1:
        raise ValueError(f"{name}={value!r}: give a finite number, 1 or more")
    if bounded and value < largest:
        maximum = f"{name.removesuffix('_scale')} of {largest}"
        raise ScaleError(f"{name}={value:g}, but the trace has a {maximum}; pass {name}={largest}")
    return value


def route_of(route: str | None, residual: str | None) -> Route:
    """Return the route of the environment; by default that of the rule of a residual policy.

    Raises ValueError for another route and for "choose", and the errors of ``PlainRule.of``.
    """
    if residual is None:
        return canonical_route(DEFAULT_ROUTE if route is None else route)
    if not isinstance(residual, str):
        raise ValueError(f"residual={residual!r:.80}: give a rule such as backlog=0.75/least")
    rule = PlainRule.of(residual)
    if rule.route == "choose":
        raise ValueError(f"residual={residual!r}: a rule chooses no neighbor; give another route")
    if route is not None and canonical_route(route) != rule.route:
        raise ValueError(
            f"route={route!r}: requests go by the route of residual={residual!r}; omit the route"
        )
    return rule.route


def offsets(value: int | None, residual: str | None) -> int:
    """Return the largest offset of a residual action. Raises ValueError."""
    if value is None:
        return DEFAULT_OFFSETS
    if residual is None:
        raise ValueError(f"offsets={value!r:.40} has no effect without residual=; give a rule")
    return nonnegative_int("offsets", value, least=1)


def beyond(value: str | None, residual: str | None) -> Any:
    """Return the argument ``beyond``. Raises ValueError."""
    if value is None:
        return None
    if one_of("beyond", value, ("rule", "clip")) == "rule" and residual is None:
        raise ValueError('beyond="rule" needs the rule of residual; give beyond="clip"')
    return value


def last_counts(requested: int | None, arrivals: str, report_delay: int) -> int:
    """Return the number of past arrivals that a node observes.

    Raises ValueError if ``arrivals`` are unknown but reports would reveal them.
    """
    if arrivals == "unknown" and report_delay == 0:
        raise ValueError(
            "report_delay=0 with arrivals='unknown': reports of this step reveal its arrivals; "
            "give report_delay=1 or more"
        )
    minimum = int(arrivals == "unknown")
    return minimum if requested is None else nonnegative_int("last_counts", requested, minimum)


def reward_function(function: Any, reward: str) -> NamedFunction | None:
    """Return ``reward_fn`` as a NamedFunction, or None.

    Raises ValueError if it is not a function, or if ``reward`` would be ignored.
    """
    if function is not None and reward != "own":
        raise ValueError(f"reward={reward!r} has no effect with reward_fn; give only one of them")
    return None if function is None else NamedFunction.of("reward_fn", function)


def cost_of(rules: Any, info: Mapping[str, Array]) -> Array:
    """Return the cost of steps with ``info``, in requests. Waiting counts once per step."""
    cost: Array = info["lost"]
    if rules.forward_cost:
        cost = cost + rules.forward_cost * info["forwarded"]
    if rules.wait_cost:
        cost = cost + rules.wait_cost * info["waiting"]
    return cost


def built_in_reward(rules: Any, info: Mapping[str, Array]) -> Array:
    """Return the reward of a step with ``info`` without ``reward_fn``: float32 [B, N]."""
    cost = cost_of(rules, info)
    if rules.reward == "team":
        cost = np.broadcast_to(cost.mean(axis=1, keepdims=True), cost.shape)
    return np.asarray(0.0 - cost / rules.load_scale, dtype=np.float32)  # "0.0 -" avoids -0.0


def reward_of(rules: Any, info: Mapping[str, Array]) -> Array:
    """Return the reward that ``reward_fn`` of the rules computes from ``info``: float32 [B, N].

    Raises ValueError for another shape or dtype, and for values that are not finite.
    """
    function, shape = rules.reward_fn, info["lost"].shape
    reward = function({key: values.copy() for key, values in info.items()}, rules)
    rule = f"reward_fn {function} must return a float32 array of shape {shape} = [B, N]"
    if not isinstance(reward, np.ndarray):
        raise ValueError(f"{rule}, not {type(reward).__name__}")
    if (reward.shape, reward.dtype) != (shape, np.float32):
        raise ValueError(f"{rule}, not {reward.dtype} of shape {reward.shape}")
    if not np.isfinite(reward).all():
        env, node = np.argwhere(~np.isfinite(reward))[0].tolist()
        counts = ", ".join(f"{key} {values[env, node]}" for key, values in info.items())
        raise ValueError(
            f"reward_fn {function} returned {reward[env, node]} for {rules.agents[node]} with "
            f"{counts}; return finite numbers"
        )
    return reward
