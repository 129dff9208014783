"""State of dfaas_v0 about past steps: delayed reports, and the age of queued requests.

With ``report_delay`` = k > 1 the state holds the reports of the k - 1 steps before the last step,
in a ring buffer. Step s of the episode has place s mod (k - 1). Before step t the oldest report, of
step t - k, is at the place of step t - 1. Playing step t replaces it by the report of step t - 1.

The state counts the queued requests that came 2 or more steps ago, 3 or more, and so on. From these
counts follows how long served requests waited, oldest first. In memory the age is the first axis,
so that all environments and nodes of one age are contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.load import DfaasState
from corral.envs.dfaas_v0.render import Frame

__all__ = ["keep_reports", "last_frame", "late_reports", "no_past", "serve_waiting"]


def no_past(num_envs: int, nodes: int, delay: int, queue: int, steps: int) -> dict[str, Array]:
    """Return the arrays ``reports`` and ``aged`` at the start of episodes of ``steps`` steps.

    ``reports`` is int64 [B, K, N, 2], and ``aged`` is int64 [B, K, N]. K is 0 if no request can
    wait for two steps.
    """
    ages = max(steps - 2, 0) if queue else 0
    return {
        "reports": np.zeros((num_envs, max(delay - 1, 0), nodes, 2), dtype=np.int64),
        "aged": np.zeros((ages, num_envs, nodes), dtype=np.int64).transpose(1, 0, 2),
    }


# --- Reports -------------------------------------------------------------------------------------


def late_reports(reports: Array, t: Array) -> tuple[Array, Array]:
    """Return the oldest spare and lost, [B, N] each, before step ``t`` [B] is played."""
    oldest = reports[np.arange(len(t)), (t - 1) % reports.shape[1]]  # [B, N, 2]
    return oldest[..., 0], oldest[..., 1]


def keep_reports(reports: Array, t: Array, spare: Array, lost: Array) -> None:
    """Replace the oldest report by the end of step ``t`` - 1."""
    if reports.shape[1]:
        reports[np.arange(len(t)), (t - 1) % reports.shape[1]] = np.stack([spare, lost], axis=-1)


# --- Queued requests -----------------------------------------------------------------------------


def serve_waiting(aged: Array, queue: Array, served: Array) -> Array:
    """Return the sum of waiting steps over the requests that nodes serve themselves: [B, N].

    A step serves ``served`` requests (int64 [B, N]), first those in the ``queue`` before the step,
    oldest first. ``aged`` [B, K, N] counts the queued requests that came k + 2 or more steps ago;
    it is updated for the next step. A request that waited for w steps counts w times.
    """
    waited = np.minimum(queue, served)  # requests that waited for one or more steps
    if aged.size:
        ages = aged.transpose(1, 0, 2)  # [K, B, N]
        depth = 0
        while depth < len(ages) and np.count_nonzero(ages[depth]):
            depth += 1
        rest = queue - waited
        if depth:
            older = np.minimum(ages[:depth], served)
            waited += np.add.reduce(older, axis=0)
            ages[1 : depth + 1] = (ages[:depth] - older)[: len(ages) - 1]
        ages[0] = rest
    return waited


def last_frame(
    rules: Any, state: DfaasState, info: Mapping[str, Array], counts: Sequence[str]
) -> Frame:
    """Return the last step of environment 0; before the first step, its arrivals."""
    t = int(state.t[0])
    before = replace(state, t=np.maximum(state.t - 1, 0))
    row = rules._row(before)
    arrivals, capacity, _ = rules.load.at(before, row)
    numbers = {key: tuple(info[key][0].tolist()) for key in counts}
    if t == 0:
        numbers["arrivals"] = tuple(arrivals[0].tolist())
    nodes = zip(rules.agents, rules.trace.nodes, strict=True)
    return Frame(
        t=t,
        max_cycles=rules.max_cycles,
        clock=rules.trace.clock_text(rules.rows[0] + int(row[0])),
        names=tuple(agent if agent == node else f"{agent} {node}" for agent, node in nodes),
        capacity=tuple(capacity[0].tolist()),
        queue=rules.queue,
        flow=tuple(map(tuple, state.flow[0].tolist())) if rules.keep_flow else None,
        load_scale=float(rules.load_scale),
        capacity_scale=float(rules.capacity_scale),
        **numbers,
    )
