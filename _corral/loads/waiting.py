"""How long the requests waited that a replay served: exact, from what was served and what waited.

Nodes serve oldest first. So the n-th request that a node lets into its queue or serves is the n-th
that it serves: it came at the first step at which n had come, and is served at the first at which n
were served. Requests that neighbours serve do not wait.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from corral.data import Trace
from corral.envs.core import Array
from corral.loads.scores import Score

__all__ = ["served_after", "waits_lines", "with_waits"]


def served_after(served_local: Array, served_remote: Array, waiting: Array, window: int) -> Array:
    """Return how many requests were served after waiting for 0, 1, 2, ... steps: int64 [K].

    All are int64 [T, N], of windows of so many steps, each of which begins with empty queues. What
    waits at the end of one is served never.
    """
    steps, nodes = served_local.shape
    last = np.arange(1, steps + 1) % window == 0
    last[-1] = True
    # Windows and nodes in one row: each goes on from what had come when the one before it ended.
    done = served_local.T.ravel().cumsum()  # [N * T]
    stays = np.where(last, waiting.T, 0).ravel()  # at the end of windows, for good
    done += stays.cumsum() - stays
    came = done + waiting.T.ravel()
    # Between two of these numbers, all requests came together, and were served together.
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
    """Return ``scores`` with the waiting times of the policies of which ``after`` tells them."""
    found = []
    for score in scores:
        times = after.get(score.policy)
        if times is not None and times.sum():
            steps = np.arange(len(times))
            mean = float(times @ steps / times.sum())
            p95 = int(np.searchsorted(times.cumsum(), 0.95 * times.sum()))
            own: dict[str, float | None] = {"mean_wait": mean, "p95_wait": p95}
            if trace.clock == "utc":
                own |= {"mean_wait_s": mean * trace.step, "p95_wait_s": float(p95 * trace.step)}
            score = dataclasses.replace(score, **own)  # type: ignore[arg-type]
        found.append(score)
    return found


def waits_lines(scores: list[Score]) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of how long requests waited: steps, and time by the clock."""
    lines, clock = [], any(score.mean_wait_s is not None for score in scores)
    for score in scores:
        if score.mean_wait is None:
            continue
        cells = [f"{score.mean_wait:.2f}", f"{score.p95_wait}"]
        if clock:
            cells += [_time(score.mean_wait_s), _time(score.p95_wait_s)]
        lines.append([score.policy, *cells])
    return ["mean steps", "95 % in", *["mean time", "95 % in"] * clock], lines


def _time(seconds: float | None) -> str:
    """Return "40.0 s", "12.5 min"."""
    if seconds is None:
        return ""
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"
