"""Bound the saving of any team before training: the optimum, which knows the future, compared with
the best plain rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.optimum import has_closed_form, optimum
from corral.errors import MissingExtraError, OptimumError
from corral.loads.judge import CAPACITY
from corral.loads.replay import Replay
from corral.progress import Progress

__all__ = ["MOST", "Bound", "bound_of"]

MOST = 12
"""At most this many windows get a linear program; they are spread over the history."""


@dataclass(frozen=True)
class Bound:
    """The saving of the optimum compared with a rule, as a share of the arrivals."""

    share: float
    windows: int
    enough: bool  # whether a team could be worth it; the remaining windows are then skipped

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def bound_of(replay: Replay, cost: Array, worth: float, show: Progress) -> Bound | None:
    """Return the bound; None without SciPy, or if a linear program fails.

    Args:
        replay: of the load.
        cost: float64 [W], requests that the rule costs in each window.
        worth: least saving of a team worth running, as a share of the arrivals.
    """
    settings = {**replay.settings, "observation": "every", "rows": replay.rows}
    rules = DfaasRules(replay.trace, **{k: v for k, v in settings.items() if k not in CAPACITY})
    limits: dict[str, Any] = {
        "queue": rules.queue,
        "link_limit": rules.link_limit,
        "links": rules.network.links,
    }
    section = rules.trace.section(*replay.rows)
    assert section.capacity is not None  # a replay's trace has one
    count = len(cost)
    chosen = np.arange(count)
    if not has_closed_form(**limits):
        chosen = np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(np.int64))
    first = chosen * replay.window
    parts = [slice(low, min(low + replay.window, len(section))) for low in first.tolist()]
    load = [int(section.arrivals[part].sum()) for part in parts]
    every = max(1, sum(load))
    saved = 0.0
    for done, (window, part) in enumerate(zip(chosen.tolist(), parts, strict=True), start=1):
        try:
            best = optimum(
                section.arrivals[part],
                section.capacity[part],
                forward_cost=rules.forward_cost,
                wait_cost=rules.wait_cost,
                **limits,
            )
        except (MissingExtraError, OptimumError):
            return None
        saved += max(0.0, float(cost[window]) - best.cost)
        show("optimum", done, len(parts))
        if saved > worth * every:  # the remaining windows cannot lower it
            return Bound(saved / every, done, True)
    return Bound(saved / every, len(parts), False)
