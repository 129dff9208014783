"""Random small worlds, played by the fast engine and by the naive simulator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from loads.rehearsal.naive import Choice, Outcome, Planner, Request, Settings, simulate
from loads.rehearsal.naive_balancers import naive_balancer

from corral.data import Trace
from corral.envs.core import Array
from corral.envs.dfaas_v0.planned import View
from corral.envs.dfaas_v0.plans import Plan
from corral.envs.dfaas_v0.routes import PER_REQUEST
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.loads.export.decider import about_rules
from corral.loads.rehearsal.arrivals import Chunk, Requests
from corral.loads.rehearsal.balancers import balancer_of
from corral.loads.rehearsal.engine import Engine, Window, WindowResult
from corral.loads.rehearsal.planned import CustomDecider
from corral.loads.rehearsal.played import Course, play_rate
from corral.loads.rehearsal.policies import Policy
from corral.loads.rehearsal.setting import Setting
from corral.loads.rehearsal.world import BINS, FIRST_BIN, RESOLUTION
from support.request_routes import HashedPairs

SEED = 5
"""Seed of the draws of route "two-choices"."""


@dataclass(frozen=True)
class Case:
    """A world of one window. ``requests`` are in time order."""

    requests: list[Request]
    capacity: Array  # int64 [T, N]
    settings: Settings
    report_delay: int = 1

    @property
    def steps(self) -> int:
        return len(self.capacity)

    @property
    def nodes(self) -> int:
        return self.capacity.shape[1]

    def near(self, i: int) -> list[int]:
        cycle = [(i + k) % self.nodes for k in range(1, self.nodes)]
        return [j for j in cycle if self.settings.links[i][j]]

    @property
    def arrivals(self) -> Array:
        """The number of requests: int64 [T, N]."""
        counts = np.zeros_like(self.capacity)
        for request in self.requests:
            counts[int(request.time), request.node] += 1
        return counts

    def rules(self) -> DfaasRules:
        settings = self.settings
        trace = Trace(
            nodes=tuple(f"n{i}" for i in range(self.nodes)),
            arrivals=self.arrivals,
            capacity=self.capacity,
            times=np.arange(self.steps),
        )
        return DfaasRules(
            trace,
            max_cycles=self.steps,
            queue=int(settings.queue),
            link_limit=settings.link_limit,
            second_offer=settings.second_offer,
            neighbours={f"n{i}": [f"n{j}" for j in self.near(i)] for i in range(self.nodes)},
            arrivals="unknown",
            report_delay=self.report_delay,
        )

    def engine(self, **options: Any) -> Engine:
        settings = self.settings
        setting = Setting(
            servers=settings.servers,
            places=settings.places,
            latency=settings.latency,
            report_period=settings.period,
            report_age=settings.age,
        )
        return Engine(self.rules(), setting, by_work=settings.by_work, **options)


class Listed:
    """The requests of a case, at their exact times."""

    def __init__(self, case: Case) -> None:
        self.time = np.array([request.time for request in case.requests], dtype=np.float64)
        self.node = np.array([request.node for request in case.requests], dtype=np.int64)
        self.work = np.array([request.work for request in case.requests], dtype=np.float64)

    def take(self, first: int, last: int) -> Chunk:
        bounds = np.searchsorted(self.time, np.arange(first, last + 1))
        rows = slice(int(bounds[0]), int(bounds[-1]))
        until = bounds[1:] - bounds[0]
        return Chunk(first, last, until, self.node[rows], self.time[rows], self.work[rows])


# --- Worlds ---------------------------------------------------------------------------------------


def random_case(rng: np.random.Generator) -> Case:
    """Return any world; in some of them all times and works are multiples of 1/16.

    Then many events happen at equal times, and no sum is rounded.
    """
    grid = bool(rng.random() < 0.4)
    nodes, steps = int(rng.integers(1, 6)), int(rng.integers(2, 7))
    largest = int(rng.choice([1, 3, 8]))
    if grid:
        capacity = rng.choice([0, 1, 2, 4, 8], size=(steps, nodes))
    else:
        capacity = rng.integers(largest + 1, size=(steps, nodes))
    load = rng.choice([0.5, 0.9, 1.3, 2.5]) * max(1.0, float(capacity.mean())) * nodes * steps
    times = np.sort(rng.uniform(0, steps, int(rng.poisson(load))))
    by_work = bool(rng.random() < 0.25)
    kind = rng.choice(["one", "exponential", "small"], p=[0.5, 0.25, 0.25])
    work = {
        "one": np.ones(len(times)),
        "exponential": rng.standard_exponential(len(times)),
        "small": rng.uniform(0, 0.5, len(times)),
    }[kind]
    latency = float(rng.choice([0, 0, 0.03, 0.3, 1.4]))
    period, age = float(rng.choice([0, 0, 0.1, 0.37, 1, 2.5])), 0.0
    if grid:
        times, work = np.floor(times * 16) / 16, np.maximum(np.floor(work * 16), 1) / 16
        latency = float(rng.choice([0, 0.125, 0.5, 1, 1.5]))
        period = float(rng.choice([0, 0.25, 0.5, 1, 2]))
    if period:
        age = float(rng.choice([0, 0.25, 1, 2.5])) if grid else float(rng.choice([0, 0.2, 1.7]))
    links = (rng.random((nodes, nodes)) < rng.choice([1, 0.6])) & ~np.eye(nodes, dtype=bool)
    senders = rng.integers(nodes, size=len(times))
    if rng.random() < 0.3:  # most requests come to one node
        senders[rng.random(len(times)) < 0.7] = 0
    rows = zip(times.tolist(), senders.tolist(), work.tolist(), strict=True)
    settings = Settings(
        queue=float(rng.integers(0, 6)),
        places=None if rng.random() < 0.6 else int(rng.integers(0, 5)),
        servers=int(rng.choice([1, 2])) if grid else int(rng.integers(1, 4)),
        link_limit=None if rng.random() < 0.5 else int(rng.integers(0, 5)),
        second_offer=bool(rng.integers(2)),
        latency=latency,
        links=links.tolist(),
        by_work=by_work,
        period=period,
        age=age,
    )
    requests = [Request(*row) for row in rows]
    return Case(requests, capacity, settings, report_delay=int(rng.choice([1, 1, 2, 3])))


# --- Balancers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """The result of a window, and the reports after each step."""

    result: WindowResult
    spare: list[list[int]]
    lost: list[list[int]]


def by_engine(case: Case, name: str, uniform: Array) -> Played:
    """Play a balancer step by step. ``uniform``: its random numbers in the order of use."""
    balancer = balancer_of(name)
    engine = case.engine(peaks=balancer.peaks)
    play = engine.player(balancer.choose, strict=True)
    memory, window = engine.memory(balancer.memory(engine.nodes)), Window(engine)
    listed = Listed(case)
    spare, lost, at = [], [], 0
    for t in range(case.steps):
        chunk = listed.take(t, t + 1)
        number = len(chunk.node) * memory.draws
        memory = memory._replace(uniform=uniform[at : at + number].tolist())
        at += number
        window.play(play, memory, case.capacity[t : t + 1].astype(np.float64), chunk)
        spare.append([math.floor(idle + 1e-9) for idle in window.world.idle])
        lost.append(list(window.world.lost))
        require_conserved(window.result())
    return Played(window.result(), spare, lost)


def draws_of(name: str, requests: int) -> int:
    """Return the number of random numbers that a balancer takes."""
    balancer = balancer_of(name)
    return requests * balancer.draws * max(1, balancer.number)


def by_naive(case: Case, name: str, uniform: Array) -> Outcome:
    chosen: Choice = naive_balancer(name, uniform.tolist())
    return simulate(case.requests, case.capacity.tolist(), case.settings, choose=chosen)


def require_conserved(result: WindowResult) -> None:
    """Assert that each request that arrived is in one place."""
    counts = result.counts
    inside = counts["served"] + counts["lost"] + result.held + result.in_flight
    assert counts["arrivals"] == inside
    assert counts["started"] == result.waits.sum()
    assert counts["lost"] == result.lost_by_step.sum()


def require_equal(result: WindowResult, outcome: Outcome) -> None:
    """Assert that both simulators agree in all counts, and in all waits."""
    counts = result.counts
    expected = {name: getattr(outcome, name) for name in counts if name not in ("late", "started")}
    waits, stays = waits_of(outcome), stays_of(outcome)
    fates = [record.outcome for record in outcome.records]
    expected |= {"late": sum(wait > 1 for wait in waits), "started": len(waits)}
    assert counts == expected
    assert result.held == fates.count("held")
    assert result.in_flight == fates.count("in flight")
    np.testing.assert_allclose(result.mean_wait, np.mean(waits or [0.0]), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.mean_stay, np.mean(stays or [0.0]), rtol=1e-9, atol=1e-9)
    assert result.waits.sum(axis=0).tolist() == histogram(waits)


def waits_of(outcome: Outcome) -> list[float]:
    pairs = [(record.start, record.request.time) for record in outcome.records]
    return [start - time for start, time in pairs if start is not None]


def stays_of(outcome: Outcome) -> list[float]:
    pairs = [(record.end, record.request.time) for record in outcome.records]
    return [end - time for end, time in pairs if end is not None]


def histogram(waits: Sequence[float]) -> list[int]:
    """Return the number of waits in each bin of ``world.BINS``."""
    bins = [0] * BINS
    for wait in waits:
        place = 0
        if wait > FIRST_BIN:
            place = 1 + math.floor(math.log(wait / FIRST_BIN) / RESOLUTION)
        bins[min(place, BINS - 1)] += 1
    return bins


# --- Plans ----------------------------------------------------------------------------------------


def drawn_plan(
    rng: np.random.Generator, near: Sequence[int], limit: int | None, route: str, ordered: bool
) -> dict[str, Any]:
    """Return any plan, in the form of ``naive_plans.Carrier``."""
    plan: dict[str, Any] = {"route": route}
    kind = rng.random()
    if kind < 0.6:
        plan["keep"] = int(rng.choice([0, 1, 3, 6]))
    elif kind < 0.9:
        plan["share"] = float(rng.choice([0, 0.1, 0.3, 0.5, 2 / 3, 1]))
    if rng.random() < 0.4:
        bound = 6 if limit is None else limit
        plan["caps"] = {j: int(rng.integers(bound + 1)) for j in near if rng.random() < 0.9}
    if rng.random() < 0.4:
        plan["most"] = int(rng.integers(8))
    if ordered:
        plan["order"] = [int(j) for j in rng.permutation(near)[: rng.integers(len(near) + 1)]]
    return plan


def drawn_route(seed: int, step: int) -> tuple[str, bool]:
    """Return the route of a step, and whether its plans have an order."""
    rng = np.random.default_rng((seed, step))
    route = str(rng.choice(PER_REQUEST))
    return route, route == "fill" and bool(rng.integers(2))


class Erratic:
    """Draws plans from all numbers that a node knows, so that any other number shows."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case, self.seed = case, seed
        self.views: list[list[View]] = []  # [step][node]

    def plan(self, view: View) -> Plan:
        if view.node == "n0":
            self.views.append([])
        self.views[-1].append(view)
        numbers = [*view.spare.values(), *view.lost.values(), *view.capacities.values()]
        numbers += [view.queue, view.capacity, *view.last_counts]
        plan = self.drawn(view.step, int(view.node[1:]), numbers)
        caps, order = plan.get("caps"), plan.get("order")
        return Plan(
            keep=plan.get("keep"),
            share=plan.get("share"),
            most=plan.get("most"),
            caps=None if caps is None else {f"n{j}": cap for j, cap in caps.items()},
            route=plan["route"],
            order=None if order is None else [f"n{j}" for j in order],
        )

    def drawn(self, t: int, i: int, numbers: Sequence[int]) -> dict[str, Any]:
        rng = np.random.default_rng([self.seed, t, i, *numbers])
        limit = self.case.settings.link_limit
        return drawn_plan(rng, self.case.near(i), limit, *drawn_route(self.seed, t))

    def planner(self, draws: Array) -> Planner:
        """Return the same for the naive simulator. ``draws`` int [N, 2]: keys of "two-choices"."""
        case = self.case
        history: list[tuple[list[int], list[int]]] = []

        def plans(
            t: int, queues: list[int], spare: list[int], lost: list[int]
        ) -> list[dict[str, Any]]:
            history.append((spare, lost))
            zeros = [0] * case.nodes
            back = len(history) - case.report_delay
            old_spare, old_lost = history[back] if t and back >= 1 else (zeros, zeros)
            chosen = []
            for i in range(case.nodes):
                near = sorted(case.near(i))
                numbers = [old_spare[j] for j in near] + [old_lost[j] for j in near]
                numbers += [int(case.capacity[t, j]) for j in near]
                past = case.arrivals[max(0, t - 8) : t, i][::-1].tolist()
                numbers += [queues[i], int(case.capacity[t, i]), *past]
                high, low = draws[i].tolist()
                extra = {"spare": old_spare, "key": HashedPairs(high, low, t).key}
                chosen.append({**self.drawn(t, i, numbers), **extra})
            return chosen

        return plans


def course_of(case: Case, rules: DfaasRules, requests: Requests | None = None) -> Course:
    """Return the single window of a case."""
    listed = Listed(case) if requests is None else requests
    return Course(rules, (0,), SEED, lambda w: listed, (0,))


def plans_by_engine(case: Case, seed: int, **options: Any) -> tuple[WindowResult, Erratic]:
    engine = case.engine(**options)
    course = course_of(case, engine.rules)
    erratic = Erratic(case, seed)
    decider = CustomDecider(about_rules(engine.rules), erratic, "unknown")
    policy = Policy("erratic", decider=decider)
    sums = play_rate(policy, course, engine, lambda done, total: None)
    result = WindowResult(
        counts={name: int(values[0]) for name, values in sums.counts.items()},
        held=int(sums.held[0]),
        in_flight=int(sums.in_flight[0]),
        mean_wait=float(sums.mean_wait[0]),
        mean_stay=float(sums.mean_stay[0]),
        waits=sums.waits,
        lost_by_step=sums.lost_by_step[0],
    )
    return result, erratic


def plans_by_naive(case: Case, seed: int) -> Outcome:
    rng = course_of(case, case.rules()).rng(0)
    draws = rng.integers(2**31, size=(1, 1, case.nodes, 2), dtype="i4")[0, 0]
    planner = Erratic(case, seed).planner(draws)
    return simulate(case.requests, case.capacity.tolist(), case.settings, planner=planner)
