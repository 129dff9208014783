"""A second simulator of plans: dfaas_v0 played request by request, in the order of arrival.

A plan says for one node and one step which requests stay and where the others go. The arrivals of a
step are gone through one by one: each stays or goes, and each that goes is assigned to a neighbour.
Plain integers, lists and loops; nothing is shared with ``corral.envs``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from support.request_routes import IN_PROPORTION, Draw, Sender, in_proportion


@dataclass(frozen=True)
class PlainPlan:
    """What one node decides for a step. Neighbours are node numbers."""

    keep: int | None = None  # the first so many stay; None: all
    share: Fraction | None = None  # in place of ``keep``: this part goes
    most: int | None = None  # at most so many go
    caps: Mapping[int, int] | None = None  # by neighbour: at most so many go there; absent: none
    route: str = "equal"
    order: Sequence[int] | None = None  # neighbours that route "fill" serves first


@dataclass(frozen=True)
class World:
    """N nodes and their load. Lists are [T][N]; an episode begins at row ``start`` and wraps."""

    arrivals: list[list[int]]
    capacity: list[list[int]]
    queue: int = 0
    forward_cost: float = 0.0
    wait_cost: float = 0.0
    second_offer: bool = True
    link_limit: int | None = None
    neighbours: list[list[int]] | None = None  # of each node, in any order; None: everybody
    report_delay: int = 1
    start: int = 0

    @property
    def nodes(self) -> int:
        return len(self.arrivals[0])

    def near(self, i: int) -> list[int]:
        """The neighbours of node i in cyclic order i+1, i+2, ..."""
        others = [(i + distance) % self.nodes for distance in range(1, self.nodes)]
        if self.neighbours is None:
            return others
        return [j for j in others if j in self.neighbours[i]]


@dataclass(frozen=True)
class Knows:
    """What node i knows before step t, with nothing of the arrivals of this step."""

    t: int
    node: int
    capacity: int  # of this step
    waiting: int  # in its queue
    queue: int  # the most that can wait
    neighbours: list[int]  # in cyclic order
    spare: list[int]  # as these reported it
    link_limit: int | None


@dataclass(frozen=True)
class StepCounts:
    """Requests of one step, one number per node; ``flows[i][j]`` is what j took from i."""

    forwarded: list[int]
    served_local: list[int]
    served_remote: list[int]
    lost: list[int]
    waiting: list[int]
    spare: list[int]
    flows: list[list[int]]
    cost: list[float]
    first: list[list[int]]  # first[i][j]: what i offered j at first


PlanOf = Callable[[Knows], PlainPlan]


@dataclass
class Play:
    """An episode of a world. ``draws[t][i]`` is the pair of places drawn for route "two" (places in
    the list of neighbours in cyclic order), ``draw`` draws the pairs of "two-choices"."""

    world: World
    draws: Sequence[Sequence[Sequence[int]]] | None = None
    draw: Draw | None = None
    t: int = 0
    queues: list[int] = field(default_factory=list)
    past: list[list[int]] = field(default_factory=list)  # the spare of every step

    def __post_init__(self) -> None:
        self.queues = [0] * self.world.nodes

    def knows(self, i: int) -> Knows:
        """What node i knows now."""
        near = self.world.near(i)
        return Knows(
            t=self.t,
            node=i,
            capacity=self._row(self.world.capacity)[i],
            waiting=self.queues[i],
            queue=self.world.queue,
            neighbours=near,
            spare=[self._reported()[j] for j in near],
            link_limit=self.world.link_limit,
        )

    def step(self, plan_of: PlanOf) -> StepCounts:
        """Play one step with the plan that each node makes of what it knows."""
        world, n = self.world, self.world.nodes
        arrivals, capacity = self._row(world.arrivals), self._row(world.capacity)
        plans = [plan_of(self.knows(i)) for i in range(n)]
        first = [self._gone(i, plans[i], arrivals[i]) for i in range(n)]
        forwarded = [sum(row) for row in first]
        served, lost, spare = [0] * n, [0] * n, list(capacity)
        for i in range(n):
            # Each request that waited or stayed is served, or waits, or is lost.
            work, self.queues[i] = self.queues[i] + arrivals[i] - forwarded[i], 0
            for _ in range(work):
                if spare[i] > 0:
                    spare[i] -= 1
                    served[i] += 1
                elif self.queues[i] < world.queue:
                    self.queues[i] += 1
                else:
                    lost[i] += 1
        flows = [[0] * n for _ in range(n)]
        for turn in range(n):
            i = (self.t + turn) % n
            lost[i] += self._offer(i, first[i], plans[i].caps, spare, flows[i])
        cost = [
            lost[i] + world.forward_cost * forwarded[i] + world.wait_cost * self.queues[i]
            for i in range(n)
        ]
        remote = [sum(flows[i][j] for i in range(n)) for j in range(n)]
        self.past.append(list(spare))
        self.t += 1
        return StepCounts(
            forwarded, served, remote, lost, list(self.queues), spare, flows, cost, first
        )

    def _row(self, table: list[list[int]]) -> list[int]:
        return table[(self.world.start + self.t) % len(table)]

    def _reported(self) -> list[int]:
        world = self.world
        if world.report_delay == 0:
            came, can = self._row(world.arrivals), self._row(world.capacity)
            return [max(0, can[i] - self.queues[i] - came[i]) for i in range(world.nodes)]
        if self.t < world.report_delay:
            return [0] * world.nodes
        return self.past[self.t - world.report_delay]

    def _gone(self, i: int, plan: PlainPlan, arrivals: int) -> list[int]:
        """Go through the arrivals of node i; return what it offers at first, by node."""
        near = self.world.near(i)
        spare = [self._reported()[j] for j in near]
        capacity = [self._row(self.world.capacity)[j] for j in near]
        caps = [None if plan.caps is None else plan.caps.get(j, 0) for j in near]
        in_proportion_to = {"capacity": capacity, "spare": spare}.get(plan.route)
        target = None
        if plan.route == "shortest" and near:
            target = spare.index(max(spare))
        elif plan.route == "two" and near:
            assert self.draws is not None
            one, other = self.draws[self.t][i]
            target = int(other if spare[other] > spare[one] else one)
        order = None if plan.order is None else [near.index(j) for j in plan.order]
        # A split in proportion is made of the count at the end; until then any route counts it.
        route = "equal" if plan.route in IN_PROPORTION else plan.route
        sender = Sender(route, spare, capacity, caps, order=order, target=target, draw=self.draw)
        gone = 0
        for m in range(1, arrivals + 1):
            if not _goes(plan, m) or (plan.most is not None and gone >= plan.most):
                continue
            if sender.send() is not None:
                gone += 1
        shares = sender.sent
        if in_proportion_to is not None and near:
            shares = in_proportion(gone, in_proportion_to, caps)
        offers = [0] * self.world.nodes
        for j, share in zip(near, shares, strict=True):
            offers[j] = share
        return offers

    def _offer(
        self,
        i: int,
        first: list[int],
        caps: Mapping[int, int] | None,
        spare: list[int],
        taken: list[int],
    ) -> int:
        """Make the offers of node i, request by request; return how many nobody took."""
        limit = self.world.link_limit

        def accepts(j: int) -> bool:
            if spare[j] == 0 or (limit is not None and taken[j] >= limit):
                return False
            if caps is not None and taken[j] >= caps.get(j, 0):
                return False
            spare[j] -= 1
            taken[j] += 1
            return True

        refused = 0
        near = self.world.near(i)
        for j in near:
            for _ in range(first[j]):
                refused += not accepts(j)
        if not self.world.second_offer:
            return refused
        lost = 0
        for _ in range(refused):
            if not any(accepts(j) for j in near):
                lost += 1
        return lost


def _goes(plan: PlainPlan, m: int) -> bool:
    """Whether the m-th arrival of a step is to go."""
    if plan.share is not None:
        return math.ceil(plan.share * m) > math.ceil(plan.share * (m - 1))
    return plan.keep is not None and m > plan.keep


# --- The plans of rules --------------------------------------------------------------------------


def plan_of_rule(amount: str, route: str, knows: Knows) -> PlainPlan:
    """The plan of a rule such as "patient" or "backlog=0.75,margin=1" from what a node knows."""
    c, room = knows.capacity, knows.capacity + knows.queue - knows.waiting
    known = sum(knows.spare)
    plain = {
        "local": PlainPlan(route=route),
        "static": PlainPlan(share=Fraction(2, 5), route=route),
        "overflow": PlainPlan(keep=c, route=route),
        "threshold": PlainPlan(keep=c * 4 // 5, route=route),
        "margin": PlainPlan(keep=c, most=known, route=route),
        "patient": PlainPlan(keep=room, route=route),
        "patient-margin": PlainPlan(keep=room, most=known, route=route),
    }
    if amount in plain:
        return plain[amount]
    numbers = {name: Fraction(x) for name, x in (part.split("=") for part in amount.split(","))}
    caps = _caps_of(knows, numbers.pop("margin", None))
    ((name, x),) = numbers.items()
    if name == "share":
        return PlainPlan(share=x, caps=caps, route=route)
    if name == "capacity":
        return PlainPlan(keep=math.floor(x * c), caps=caps, route=route)
    assert name == "backlog"
    keep = max(0, math.floor(c + x * knows.queue) - knows.waiting)
    return PlainPlan(keep=keep, caps=caps, route=route)


def _caps_of(knows: Knows, margin: Fraction | None) -> dict[int, int] | None:
    """The link limits, and with a margin no more than this multiple of each reported spare."""
    if margin is None and knows.link_limit is None:
        return None
    caps = {}
    for j, spare in zip(knows.neighbours, knows.spare, strict=True):
        bounds = [] if knows.link_limit is None else [knows.link_limit]
        if margin is not None:
            bounds.append(math.floor(margin * spare))
        caps[j] = min(bounds)
    return caps
