"""Compute the waiting times of served requests exactly, from the counts of a replay.

Nodes serve the oldest request first. So the n-th request that enters a node is the n-th that it
serves: it entered at the first step at which n requests had entered, and is served at the first
step at which n were served. Requests that neighbors serve do not wait.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from corral.data import Trace
from corral.envs.core import Array
from corral.loads.scores import Score

__all__ = ["served_after", "time_text", "waits_lines", "with_waits"]


def served_after(served_local: Array, served_remote: Array, waiting: Array, window: int) -> Array:
    """Return the number of requests served after waiting for 0, 1, 2, ... steps: int64 [K].

    All arguments are int64 [T, N], in windows of ``window`` steps, which begin with empty queues.
    Requests still waiting at the end of a window are never served.
    """
    steps, nodes = served_local.shape
    last = np.arange(1, steps + 1) % window == 0
    last[-1] = True
    # All windows and nodes in one row: each continues the counts of the one before it.
    done = served_local.T.ravel().cumsum()  # [N * T]
    stays = np.where(last, waiting.T, 0).ravel()  # still waiting at the end of a window
    done += stays.cumsum() - stays
    came = done + waiting.T.ravel()
    # Requests between two of these numbers entered together and were served together.
    number = np.unique(np.concatenate([done, came]))
    many = np.diff(number, prepend=0)
    begin, end = np.searchsorted(came, number), np.searchsorted(done, number)
    part = np.repeat(np.arange(nodes), steps) * steps + np.tile(np.arange(steps) // window, nodes)
    served = end < len(done)
    served[served] = part[begin[served]] == part[end[served]]
    after = np.zeros(window + 1, dtype=np.int64)
    np.add.at(after, (end - begin)[served], many[served])
    after[0] += served_remote.sum()
    return np.asarray(np.trim_zeros(after, "b"))


def with_waits(scores: list[Score], after: Mapping[str, Array | None], trace: Trace) -> list[Score]:
    """Return ``scores`` with the waiting times of the policies in ``after``."""
    with_waiting = []
    for score in scores:
        times = after.get(score.policy)
        if times is not None and times.sum():
            steps = np.arange(len(times))
            mean = float(times @ steps / times.sum())
            p95 = int(np.searchsorted(times.cumsum(), 0.95 * times.sum()))
            fields: dict[str, float | None] = {"mean_wait": mean, "p95_wait": p95}
            if trace.clock == "utc":
                fields |= {"mean_wait_s": mean * trace.step, "p95_wait_s": float(p95 * trace.step)}
            score = dataclasses.replace(score, **fields)  # type: ignore[arg-type]
        with_waiting.append(score)
    return with_waiting


def waits_lines(scores: list[Score]) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of waiting times, in steps and by the clock."""
    lines, clock = [], any(score.mean_wait_s is not None for score in scores)
    for score in scores:
        if score.mean_wait is None:
            continue
        cells = [f"{score.mean_wait:.2f}", f"{score.p95_wait}"]
        if clock:
            cells += [time_text(score.mean_wait_s), time_text(score.p95_wait_s)]
        lines.append([score.policy, *cells])
    return ["mean steps", "95 % in", *["mean time", "95 % in"] * clock], lines


def time_text(seconds: float | None) -> str:
    """Return "40.0 s", "12.5 min"."""
    if seconds is None:
        return ""
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"
