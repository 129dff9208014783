"""The cost that a replay promises, and the parts between it and the rehearsal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loads.rehearsal.both import Case, course_of, random_case
from loads.rehearsal.naive import Outcome, simulate

from corral.data import Trace
from corral.envs.dfaas_v0.planned import View
from corral.envs.dfaas_v0.plans import Plan
from corral.loads.export.decider import about_rules
from corral.loads.rehearsal import rehearse
from corral.loads.rehearsal.planned import CustomDecider
from corral.loads.rehearsal.played import Sums, play_priority
from corral.loads.rehearsal.policies import Policy
from corral.loads.rehearsal.result import PARTS
from corral.loads.replay import replay

SEEDS = st.integers(0, 2**32)
GAME: dict[str, Any] = {
    "queue": 4,
    "link_limit": 5,
    "forward_cost": 0.25,
    "wait_cost": 0.125,
    "window": 8,
}  # costs without rounding


def load(seed: int = 0) -> Trace:
    rng = np.random.default_rng(seed)
    return Trace(
        nodes=("a", "b", "c"),
        arrivals=rng.integers(12, size=(24, 3)),
        capacity=rng.integers(12, size=(24, 3)),
        times=np.arange(24),
    )


class Backlog:
    """A custom policy."""

    def plan(self, view: View) -> Plan:
        return Plan(keep=max(0, view.capacity - view.queue), most=4, route="least")


RULES = ("local/equal", "overflow/weighted", "backlog=0.5+margin=1/least", "share=0.3/all-to-two")


@pytest.mark.parametrize("latency", [0.0, 0.2])
@pytest.mark.parametrize("second_offer", [False, True])
def test_the_promise_is_the_cost_of_a_replay_and_the_parts_lead_to_the_rehearsal(
    latency: float, second_offer: bool
) -> None:
    policies = {**{rule: rule for rule in RULES}, "mine": Backlog()}
    game = {**GAME, "second_offer": second_offer}
    result = rehearse(load(), policies, latency=latency, **game)
    replayed = replay(load(), policies, optimum_windows=0, arrivals="unknown", **game)
    assert result.promises.keys() == policies.keys()
    for label, promise in result.promises.items():
        np.testing.assert_array_equal(promise.cost, replayed.sums[label].cost)
        assert tuple(promise.parts) == PARTS
        total = promise.cost + sum(promise.parts.values())
        np.testing.assert_array_equal(total, result.costs[label])
        if not latency:
            assert promise.parts["latency"].tolist() == [0, 0, 0]
    local = result.promises["local/equal"].parts
    assert local["competition"].tolist() == local["latency"].tolist() == [0, 0, 0]
    assert (local["times"] != 0).any()
    mine = result.promises["mine"].parts
    assert (mine["competition"] != 0).any()
    assert bool((mine["latency"] != 0).any()) == (latency > 0)


def test_some_days_have_the_promise_that_they_have_among_all_days() -> None:
    everything = rehearse(load(), RULES, **GAME)
    some = rehearse(load(), RULES, days=2, seed=1, **GAME)
    replayed = replay(load(), RULES, seed=1, optimum_windows=0, arrivals="unknown", **GAME)
    assert len(everything.windows) == 3
    for rule in RULES:
        expected = replayed.sums[rule].cost[list(some.windows)]
        np.testing.assert_array_equal(some.promises[rule].cost, expected)


def test_balancers_promise_nothing_and_promises_can_be_left_out() -> None:
    assert rehearse(load(), ["random", "overflow"], **GAME).promises == {}
    assert rehearse(load(), RULES, parts=False, **GAME).promises == {}
    assert rehearse(load(), RULES, service="step", **GAME).promises == {}


# --- Own requests first --------------------------------------------------------------------------


class Fixed:
    """Plans that depend on the step and the node alone."""

    def plan(self, view: View) -> Plan:
        return Plan(keep=self.keep(view.step, int(view.node[1:])))

    def keep(self, t: int, i: int) -> int:
        return (5 * t + 3 * i) % 4


class OwnFirst:
    """Own requests as if there were no forwarded ones; these get the work that is left."""

    def __init__(self, case: Case) -> None:
        self.case, kept, self.forwarded = case, [], []
        seen: dict[tuple[int, int], int] = {}
        turn: dict[tuple[int, int], int] = {}
        for request in case.requests:
            t, i = int(request.time), request.node
            seen[t, i] = seen.get((t, i), 0) + 1
            near = case.near(i)
            if near and seen[t, i] > Fixed().keep(t, i):
                turn[t, i] = turn.get((t, i), -1) + 1
                self.forwarded.append((request, near[turn[t, i] % len(near)]))
            else:
                kept.append(request)
        stay = simulate(kept, case.capacity.tolist(), case.settings, choose=lambda s, i, now: i)
        self.own: Outcome = stay
        self.done = [0.0] * case.nodes
        self.lost, self.refused, self.waiting = stay.lost, 0, stay.waiting
        for t in range(case.steps):
            self.play(t)

    def idle(self, j: int, until: float) -> float:
        """Return the work that node ``j`` has left before ``until``, since the start."""
        total = 0.0
        for t in range(math.ceil(until)):
            end, busy = min(t + 1, until), 0.0
            for record in self.own.records:
                if record.node == j and record.start is not None:
                    last = end if record.end is None else min(record.end, end)
                    busy += max(0.0, last - max(record.start, t))
            servers = self.case.settings.servers
            total += float(self.case.capacity[t, j]) * ((end - t) - busy / servers)
        return total

    def play(self, t: int) -> None:
        used: dict[tuple[int, int], int] = {}
        settings = self.case.settings
        limit = math.inf if settings.link_limit is None else settings.link_limit

        def takes(i: int, j: int, now: float, work: float) -> bool:
            idle, end = self.idle(j, now), self.idle(j, t + 1)
            backlog = max(0.0, self.done[j] - idle)
            if used.get((i, j), 0) >= limit or backlog + 1e-12 >= end - idle:
                return False
            used[i, j] = used.get((i, j), 0) + 1
            self.done[j] = idle + backlog + work
            return True

        for request, j in self.forwarded:
            if int(request.time) == t:
                i, now, work = request.node, request.time, request.work
                if not takes(i, j, now, work):
                    self.refused += 1
                    others = self.case.near(i) if settings.second_offer else []
                    self.lost += not any(takes(i, k, now, work) for k in others)
        for j in range(self.case.nodes):
            self.waiting += int(max(0.0, self.done[j] - self.idle(j, t + 1)) + 1e-12)


def own_first(case: Case) -> Sums:
    engine = case.engine()
    decider = CustomDecider(about_rules(engine.rules), Fixed(), "unknown")
    policy = Policy("fixed", decider=decider)
    return play_priority(policy, course_of(case, engine.rules), engine, lambda done, total: None)


def require_own_first(seed: int) -> None:
    case = random_case(np.random.default_rng(seed))
    sums, naive = own_first(case), OwnFirst(case)
    counts = {name: int(values[0]) for name, values in sums.counts.items()}
    assert counts["arrivals"] == len(case.requests)
    assert counts["forwarded"] == len(naive.forwarded)
    assert (counts["lost"], counts["refused"]) == (naive.lost, naive.refused)
    assert counts["waiting"] == naive.waiting


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_forwarded_requests_get_the_work_that_own_requests_leave(seed: int) -> None:
    require_own_first(seed)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_forwarded_requests_get_the_work_that_is_left_in_many_worlds(seed: int) -> None:
    require_own_first(seed)
