"""Exercises on returns: 3, discounted returns; 4, generalized advantages; 6, their scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.lab.course.exercise import Probe, exercise

__all__ = ["discounted_returns", "generalized_advantages", "normalized_advantages"]


def _gae(p: Probe, *, cut: bool = True) -> Array:
    """Return generalized advantages; without ``cut``, the trace runs through ends of episodes."""
    following = np.where(p["ended"], p["end_values"], p["values"][1:])
    delta = p["rewards"] + p["gamma"] * following - p["values"][:-1]
    advantage, trace = np.zeros(len(delta)), 0.0
    for t in reversed(range(len(delta))):
        if cut and p["ended"][t]:
            trace = 0.0
        advantage[t] = trace = delta[t] + p["gamma"] * p["gae_lambda"] * trace
    return advantage


def _rollout(seed: int, ends: str) -> Probe:
    """Return steps of one agent: t is terminated, c is truncated, a dash is neither."""
    rng, letters = np.random.default_rng(seed), np.array([*ends])
    return {
        "rewards": rng.integers(-2, 3, len(ends)).astype(float),
        "terminated": letters == "t",
        "truncated": letters == "c",
        "values": rng.normal(3, 1, len(ends) + 1).round(1),
        "final_values": np.where(letters == "-", 0, rng.normal(5, 1, len(ends)).round(1)),
        "gamma": 0.9,
    }


# --- 3: discounted returns -----------------------------------------------------------------------


def _discounted(p: Probe, **changes: Any) -> Array:
    p = p | changes
    return _gae(
        {
            "rewards": p["rewards"],
            "values": np.append(0 * p["rewards"], p["values"][-1]),  # 0: advantages are returns
            "ended": p["terminated"] | p["truncated"],
            "end_values": np.where(p["truncated"], p["final_values"], 0.0),
            "gamma": p["gamma"],
            "gae_lambda": 1.0,
        }
    )


def _bootstrapped(p: Probe, value: Array) -> Array:
    """Continue terminated episodes with a value."""
    final_values = np.where(p["terminated"], value, p["final_values"])
    return _discounted(p, truncated=p["terminated"] | p["truncated"], final_values=final_values)


def _one_step(p: Probe) -> Array:
    following = np.where(p["truncated"], p["final_values"], p["values"][1:])
    return np.asarray(p["rewards"] + p["gamma"] * following * ~p["terminated"])


discounted_returns = exercise(
    3,
    lambda: [_rollout(seed, ends) for seed, ends in enumerate(("----", "--t-", "-c-c-", "-t-t"))],
    _discounted,
    {
        "truncation-as-termination": lambda p: _discounted(p, final_values=0 * p["final_values"]),
        "bootstrap-at-termination": (
            lambda p: _bootstrapped(p, p["final_values"]),
            lambda p: _bootstrapped(p, p["values"][1:]),
        ),
        "value-after-reset": lambda p: _discounted(p, final_values=p["values"][1:]),
        "ends-ignored": lambda p: _discounted(
            p, terminated=p["terminated"] & False, truncated=p["truncated"] & False
        ),
        "rollout-end-as-termination": lambda p: _discounted(p, values=0 * p["values"]),
        "values-ignored": lambda p: _discounted(
            p, values=0 * p["values"], final_values=0 * p["final_values"]
        ),
        "final-values-alone": lambda p: _bootstrapped(
            p | {"values": 0 * p["values"]}, p["final_values"]
        ),
        "one-step-targets": _one_step,
    },
)

# --- 4: generalized advantages -------------------------------------------------------------------


def _advantage_rollouts() -> list[Probe]:
    probes = []
    for seed, ends in enumerate(("----", "-t-t-", "--c-", "-c-c")):
        p = _rollout(seed + 40, ends)
        ended, end_values = p["terminated"] | p["truncated"], p["truncated"] * p["final_values"]
        kept = {"rewards": p["rewards"], "values": p["values"], "ended": ended}
        probes.append(kept | {"end_values": end_values, "gamma": 0.9, "gae_lambda": 0.7})
    return probes


generalized_advantages = exercise(
    4,
    _advantage_rollouts,
    _gae,
    {
        "trace-not-cut": lambda p: _gae(p, cut=False),
        "lambda-ignored": lambda p: _gae(p | {"gae_lambda": 1.0}),
        "no-trace": lambda p: _gae(p | {"gae_lambda": 0.0}),
        "value-of-next-episode": lambda p: _gae(p | {"end_values": p["values"][1:]}),
        "truncation-as-termination": lambda p: _gae(p | {"end_values": 0 * p["end_values"]}),
    },
)

# --- 6: normalized advantages --------------------------------------------------------------------


def _advantages() -> list[Probe]:
    probes = []
    for seed, steps in enumerate((3, 5)):
        rng = np.random.default_rng(seed + 6)
        acting = rng.random((steps, 2)) < 0.6
        acting[:3] = [[True, False], [True, True], [True, True]]
        advantage = rng.normal([2, -1], [1, 3], (steps, 2)).round(1) * acting
        probes.append({"advantage": advantage, "acting": acting})
    return probes


def _scaled(p: Probe, over: Any, ddof: int = 0) -> Array:
    """Return the advantages normalized with the statistics of the entries ``over``."""
    chosen = p["advantage"][over]
    return np.asarray((p["advantage"] - chosen.mean()) / chosen.std(ddof=ddof))


def _normalized(p: Probe) -> Array:
    return np.asarray(_scaled(p, over=p["acting"]) * p["acting"])


def _per_agent(p: Probe) -> Array:
    columns = zip(p["advantage"].T, p["acting"].T, strict=True)
    return np.stack([_normalized({"advantage": a, "acting": b}) for a, b in columns], axis=1)


normalized_advantages = exercise(
    6,
    _advantages,
    _normalized,
    {
        "over-all-entries": (
            lambda p: _scaled(p, over=...),
            lambda p: _scaled(p, over=...) * p["acting"],
        ),
        "idle-entries-shifted": lambda p: _scaled(p, over=p["acting"]),
        "per-agent": _per_agent,
        "mean-kept": lambda p: p["advantage"] / p["advantage"][p["acting"]].std(),
        "sample-deviation": lambda p: _scaled(p, over=p["acting"], ddof=1) * p["acting"],
    },
)
