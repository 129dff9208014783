"""Plans carried out request by request, for the naive simulator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

WORD = 2**64


class Carrier:
    """Carries out the plan of one node for one step.

    ``plan`` has the keys keep, share, most, caps (node -> requests), route, order (nodes), spare
    (of all nodes, as reported) and key (an integer). A missing key is None.
    """

    def __init__(
        self, plan: Mapping[str, Any], neighbours: Sequence[int], capacity: Sequence[float]
    ) -> None:
        self.plan = plan
        self.neighbours = neighbours  # in cyclic order
        self.capacity = capacity  # of all nodes, in this step
        self.arrivals = 0
        self.sent = dict.fromkeys(neighbours, 0)
        self.last: int | None = None  # target of the last forwarded request

    def cap(self, j: int) -> float:
        caps = self.plan.get("caps")
        cap = math.inf if caps is None else caps.get(j, 0)
        return math.inf if cap is None else float(cap)

    def next_target(self) -> int | None:
        """Return the neighbor for the next arrival, or None if it stays."""
        self.arrivals += 1
        open_ones = [j for j in self.neighbours if self.sent[j] < self.cap(j)]
        limit = self.plan.get("most")
        reached = limit is not None and sum(self.sent.values()) >= limit
        if not self.goes(self.arrivals) or reached or not open_ones:
            return None
        target = self.by_route(open_ones)
        self.sent[target] += 1
        self.last = target
        return target

    def goes(self, m: int) -> bool:
        """Return whether the m-th arrival is to be forwarded."""
        share, keep = self.plan.get("share"), self.plan.get("keep")
        if share is not None:
            return math.ceil(share * m - 1e-9) > math.ceil(share * (m - 1) - 1e-9)
        return keep is not None and m > keep

    def by_route(self, open_ones: list[int]) -> int:
        route = self.plan.get("route") or "equal"
        if route == "equal":
            return self.next_in_turn(open_ones)
        if route == "weighted":
            return min(open_ones, key=self.turn)  # the first of several
        if route == "least":
            return max(open_ones, key=self.level)  # the first of several
        if route == "two-choices":
            return self.better_of_two(open_ones)
        if route == "fill":
            return self.first_to_fill(open_ones)
        raise ValueError(f"route={route!r}")

    def next_in_turn(self, open_ones: list[int]) -> int:
        first = 0 if self.last is None else self.neighbours.index(self.last) + 1
        turns = [*self.neighbours[first:], *self.neighbours[:first]]
        return next(j for j in turns if j in open_ones)

    def turn(self, j: int) -> tuple[float, int]:
        """Return a number that is smallest for the next node. Capacity 0 comes last, in turn."""
        if self.capacity[j] == 0:
            return math.inf, self.sent[j]
        return (self.sent[j] + 1) / self.capacity[j], 0

    def level(self, j: int) -> int:
        return int(self.plan["spare"][j]) - self.sent[j]

    def better_of_two(self, open_ones: list[int]) -> int:
        m = sum(self.sent.values()) + 1
        drawn = finalized((int(self.plan["key"]) + m * 0x9E3779B97F4A7C15) % WORD)
        one = open_ones[(drawn >> 32) * len(open_ones) >> 32]
        two = open_ones[(drawn % 2**32) * len(open_ones) >> 32]
        return two if self.level(two) > self.level(one) else one

    def first_to_fill(self, open_ones: list[int]) -> int:
        order = self.plan.get("order")
        if order is None:
            return max(open_ones, key=lambda j: int(self.plan["spare"][j]))  # the first of several
        return next((j for j in order if j in open_ones), open_ones[0])


def finalized(z: int) -> int:
    """Return the output of SplitMix64 for the state ``z``."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)
