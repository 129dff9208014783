"""The post-mortem of a day: its costliest steps, and why they cost what they did.

A day is played again by a policy, by the best rule (of so many, on that very day, in hindsight), by
the best rule that knows each other node's spare of the present step (``report_delay=0``), and
compared with the clairvoyant optimum. The cost of a step is the sum of four differences:

    play          policy - best rule                      another rule would have saved it
    late reports  best rule - best rule, spare known      knowing what is spare now would have
    clairvoyance  best rule, spare known - optimum        knowing more: what others choose, the future
    unavoidable   optimum                                 no policy saves it

Each may be below 0, where a policy that knows less did better in that step. The difference of two
costs is exact for the day. For a step it is exact without a queue: what a step costs then depends
on the choices of this step alone. With a queue a step inherits what earlier steps left; its figures
are those of four different days, side by side, and of the optimum there may be several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from corral.envs.core import Array
from corral.envs.dfaas_v0.arguments import cost_of
from corral.envs.dfaas_v0.optimum import optimum
from corral.errors import MissingExtraError
from corral.trainers.evaluation.episodes import Turn
from corral.trainers.evaluation.judge import Progress
from corral.trainers.loads.advise.again import Again, again, require_label
from corral.trainers.loads.from_rule.days import RULES
from corral.trainers.loads.replay import Entry, Replay
from corral.trainers.runs.run import Run

__all__ = ["Moment", "PostMortem", "post_mortem"]

PARTS = {
    "play": "play",
    "late_reports": "late reports",
    "clairvoyance": "clairvoyance",
    "unavoidable": "unavoidable",
}
"""The parts of a cost, and how they are called."""


@dataclass(frozen=True)
class Moment:
    """A step of the day: requests, summed over nodes, but for the ``node`` that cost most."""

    row: int  # of the trace
    time: str  # by the trace's clock, in UTC
    node: str  # the trace's name of it
    node_cost: float
    arrivals: int
    capacity: int
    cost: float  # play + late_reports + clairvoyance + unavoidable
    play: float
    late_reports: float
    clairvoyance: float | None  # None, and unavoidable too: the optimum was not computed
    unavoidable: float | None


@dataclass(frozen=True)
class PostMortem:
    """A day of a replay, step by step: costs in requests, float64 [T] each."""

    policy: str
    mode: str  # "greedy", "sampled"; "" of a rule
    day: int  # number of the window in the replay, from 0
    days: int  # windows of the replay
    is_day: bool  # whether windows are days
    rows: tuple[int, int]  # of the trace
    times: tuple[str, ...]  # [T]
    nodes: tuple[str, ...]  # [N]
    arrivals: Array = field(repr=False)  # int64 [T]
    capacity: Array = field(repr=False)  # int64 [T]
    costs: Array = field(repr=False)  # float64 [T, N] the policy's
    rule: str  # the best rule of that day
    rule_cost: Array = field(repr=False)
    informed: str  # the best rule that knows the present spare
    informed_cost: Array = field(repr=False)
    optimum_cost: Array | None = field(repr=False)
    optimum_method: str  # or why there is none
    compared: int  # rules that the best were taken from
    report_delay: int
    queue: int
    replayed: float  # the policy's cost of that day in the replay
    illegal_actions: int
    most: int = 10

    @property
    def cost(self) -> Array:
        """The policy's cost of each step: float64 [T]."""
        return np.asarray(self.costs.sum(axis=1))

    @property
    def exact_by_step(self) -> bool:
        """Whether steps can be compared one by one: without a queue."""
        return self.queue == 0

    @property
    def parts(self) -> dict[str, Array]:
        """The parts that the cost of each step is the sum of, float64 [T]; the last two are missing
        where there is no optimum."""
        found = {"play": self.cost - self.rule_cost}
        found["late_reports"] = self.rule_cost - self.informed_cost
        if self.optimum_cost is not None:
            found["clairvoyance"] = self.informed_cost - self.optimum_cost
            found["unavoidable"] = self.optimum_cost
        return found

    @property
    def worst(self) -> list[Moment]:
        """The costliest steps, the costliest first; of equal ones the earliest. Fewer than ``most``
        where the others cost nothing."""
        table = self.to_dataframe()
        table = table[table["cost"] > 0]
        table = table.sort_values("cost", ascending=False, kind="stable").head(self.most)
        return [Moment(**row) for row in table.to_dict("records")]  # type: ignore[arg-type]

    def to_dataframe(self) -> pd.DataFrame:
        """Return all steps of the day, a ``Moment`` each."""
        dearest = self.costs.argmax(axis=1)
        return pd.DataFrame(
            {
                "row": np.arange(*self.rows),
                "time": self.times,
                "node": [self.nodes[i] for i in dearest],
                "node_cost": self.costs.max(axis=1),
                "arrivals": self.arrivals,
                "capacity": self.capacity,
                "cost": self.cost,
                **dict.fromkeys(PARTS),
                **self.parts,
            }
        )
