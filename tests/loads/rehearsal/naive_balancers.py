"""Balancers once more, over the public part of the naive simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from loads.rehearsal.naive import DONE, Choice, System

Cost = Callable[[System, int, int], tuple[int, float]]
"""(system, node of the client, server) -> what is smallest for the best server."""


def naive_balancer(name: str, uniform: Sequence[float]) -> Choice:
    """Return a choice like the balancer ``name``. ``uniform``: its random numbers, in order."""
    plain, _, number = name.partition("=")
    costs: dict[str, Cost] = {
        "least-requests": requests_in_flight,
        "choices": requests_in_flight,
        "shortest-queue": held,
        "shortest-of": held,
        "shortest-delay": delay,
        "least-work": work_in_flight,
        "work-of": work_in_flight,
    }
    if plain == "local":
        return lambda system, i, now: i
    if plain == "overflow":
        return overflow
    if plain == "room":
        return most_room
    if plain == "random":
        return Drawn(uniform, 1, lambda system, i, j: (0, 0.0))
    if number:
        return Drawn(uniform, int(number), costs[plain])
    if plain == "round-robin":
        return InTurn()
    if plain == "weighted-round-robin":
        return SmoothWeights()
    return Best(costs[plain])


def per_capacity(system: System, j: int, number: float) -> tuple[int, float]:
    """Return a number relative to the capacity; servers without capacity come last."""
    capacity = system.capacity[system.t][j]
    return (0, number / capacity) if capacity > 0 else (1, number)


def requests_in_flight(system: System, i: int, j: int) -> tuple[int, float]:
    return per_capacity(system, j, system.in_flight[i][j] + 1)


def work_in_flight(system: System, i: int, j: int) -> tuple[int, float]:
    records = list(system.nodes[j].held)
    records += [r for r in system.travelling if r.target == j and not r.refused]
    works = [record.request.work for record in records if record.request.node == i]
    return per_capacity(system, j, sum(works))


def held(system: System, i: int, j: int) -> tuple[int, float]:
    return 0, system.held(j)


def delay(system: System, i: int, j: int) -> tuple[int, float]:
    return per_capacity(system, j, system.held(j) + 1)


def open_neighbours(system: System, i: int) -> list[int]:
    return [j for j in system.neighbours(i) if system.link_is_open(i, j)]


class Best:
    """The server of least cost; ties go to the own node, then in cyclic order."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost

    def __call__(self, system: System, i: int, now: float) -> int:
        return min([i, *open_neighbours(system, i)], key=lambda j: self.cost(system, i, j))


class Drawn:
    """The server of least cost among some that are drawn with replacement."""

    def __init__(self, uniform: Sequence[float], number: int, cost: Cost) -> None:
        self.uniform, self.number, self.cost = iter(uniform), number, cost

    def __call__(self, system: System, i: int, now: float) -> int:
        servers = [i, *system.neighbours(i)]
        drawn = [servers[int(next(self.uniform) * len(servers))] for _ in range(self.number)]
        return min(drawn, key=lambda j: self.cost(system, i, j))


class InTurn:
    def __init__(self) -> None:
        self.decisions: dict[int, int] = {}

    def __call__(self, system: System, i: int, now: float) -> int:
        servers = [i, *system.neighbours(i)]
        self.decisions[i] = self.decisions.get(i, -1) + 1
        return servers[self.decisions[i] % len(servers)]


class SmoothWeights:
    """Smooth weighted round robin: all scores grow by their weights; the best one pays the sum."""

    def __init__(self) -> None:
        self.scores: dict[tuple[int, int], float] = {}

    def __call__(self, system: System, i: int, now: float) -> int:
        servers = [i, *system.neighbours(i)]
        weights = system.capacity[system.t]
        for j in servers:
            self.scores[i, j] = self.scores.get((i, j), 0.0) + weights[j]
        best = max(servers, key=lambda j: self.scores[i, j])
        self.scores[i, best] -= sum(weights[j] for j in servers)
        return best


def servable(system: System, j: int) -> float:
    rest = system.capacity[system.t][j] * (system.t + 1 - system.now)
    return rest if system.settings.by_work else math.floor(rest)


def room(system: System, j: int) -> float:
    backlog = system.work(j) if system.settings.by_work else system.held(j)
    return servable(system, j) - backlog


def overflow(system: System, i: int, now: float) -> int:
    if system.takes(i, system.settings.queue):
        return i
    return next((j for j in open_neighbours(system, i) if room(system, j) > DONE), i)


def most_room(system: System, i: int, now: float) -> int:
    if system.takes(i, 0):
        return i
    best = max(open_neighbours(system, i), key=lambda j: room(system, j), default=i)
    return best if best != i and room(system, best) > DONE else i
