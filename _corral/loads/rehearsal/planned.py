"""Decide on plans once a step, as in production, and carry them out request by request."""

from __future__ import annotations

import dataclasses
import time as clock
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.features import step_keys
from corral.envs.dfaas_v0.network import Caps
from corral.envs.dfaas_v0.planned import View
from corral.envs.dfaas_v0.plans import Plans
from corral.envs.dfaas_v0.routes import GOLDEN, UNBOUNDED, mixed
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.errors import ActionError
from corral.loads.export.core import NodeDecider, State
from corral.loads.export.user_policy import PolicyDecider
from corral.loads.rehearsal.carried_out import ROUTES, PlanMemory

__all__ = ["CustomDecider", "Deciding", "RuleDecider", "Situation"]

PAST_COUNTS = 8
"""Past counts for rules and custom policies; a team has its own number."""

PATIENCE = 100
"""Decisions after which the mean time of a decision is compared with the length of a step."""


class Situation:
    """Knowledge of the nodes at the beginning of a step: int64 [N] each."""

    def __init__(self, nodes: int) -> None:
        self.queue = np.zeros(nodes, dtype=np.int64)
        self.spare = np.zeros(nodes, dtype=np.int64)
        self.lost = np.zeros(nodes, dtype=np.int64)


class RuleDecider(NodeDecider):
    """A rule that keeps the caps of its decision, which also limit second offers.

    Decisions with known arrivals are numbers of requests, without caps.
    """

    offered_caps: Caps = None

    def _offered_by(self, moment: Any, plans: Plans) -> Array:
        self.offered_caps = plans.caps
        return super()._offered_by(moment, plans)


class CustomDecider(PolicyDecider):
    """A custom policy with the views of a replay, and the caps of its decision.

    In production, views with known arrivals have no past counts, and only UTC clocks have a time.
    """

    offered_caps: Caps = None
    last_counts_of: Sequence[Sequence[int]] = ()  # by node, newest first
    clock_text: str = ""

    def _offered_by(self, moment: Any, plans: Plans) -> Array:
        self.offered_caps = plans.caps
        return super()._offered_by(moment, plans)

    def _views(self, moment: Any, state: State) -> list[View]:
        views = zip(super()._views(moment, state), self.last_counts_of, strict=True)
        return [
            dataclasses.replace(view, last_counts=list(counts), time=self.clock_text)
            for view, counts in views
        ]


class Deciding:
    """The decisions of ``decider`` in one window of the load of ``rules``.

    ``rng``: generator of the window, as in a replay. ``first_row``: of the window, counted from the
    first row of the trace.
    """

    def __init__(
        self, decider: NodeDecider, rules: DfaasRules, rng: np.random.Generator, first_row: int
    ) -> None:
        self.decider, self.rules, self.first_row = decider, rules, first_row
        self.names = rules.trace.nodes
        self.state = decider.start(rng)
        self._counts: deque[list[int]] = deque(maxlen=max(PAST_COUNTS, decider.last_counts))
        self._spares = deque([np.zeros(len(self.names), dtype=np.int64)], decider.report_delay or 1)
        self.exceeding = 0  # decisions with a number above its scale
        self._timed = decider.daily_mean is not None and rules.trace.clock == "utc"
        self._seconds = 0.0

    def decide(self, t: int, situation: Situation) -> dict[str, dict[str, Any]]:
        """Return the decision of ``NodeDecider.decide`` for step ``t`` of the window.

        Raises ActionError for a custom policy that is slower than its steps.
        """
        trace, row = self.rules.trace, self.first_row + t
        assert trace.capacity is not None  # checked by the rules
        numbers: dict[str, dict[str, Any]] = {}
        unknown = self.decider.arrivals == "unknown"
        for i, name in enumerate(self.names):
            numbers[name] = {
                "capacity": int(trace.capacity[row, i]),
                "queue": min(int(situation.queue[i]), self.rules.queue),
            }
            if not unknown:
                numbers[name]["arrivals"] = int(trace.arrivals[row, i])
            if self.decider.inputs.own:
                counts = self._past(i)
                numbers[name]["last_arrivals"] = counts
        previous = None
        if t:
            previous = {
                name: {"spare": int(situation.spare[i]), "lost": int(situation.lost[i])}
                for i, name in enumerate(self.names)
            }
            self._spares.append(situation.spare.copy())
        if isinstance(self.decider, CustomDecider):
            self.decider.last_counts_of = [self._past(i) for i in range(len(self.names))]
            self.decider.clock_text = trace.clock_text(row)
        moment = f"{trace.clock_text(row).replace(' ', 'T')}Z" if self._timed else None
        began = clock.perf_counter()
        decision = self.decider.decide(numbers, previous, self.state, moment)
        self._seconds += clock.perf_counter() - began
        self.exceeding += self.state.exceeds
        self._counts.appendleft(trace.arrivals[row].tolist())
        self._require_quick(t + 1)
        return decision

    @property
    def offered_caps(self) -> Caps:
        """The caps of the last decision with known arrivals."""
        if isinstance(self.decider, RuleDecider | CustomDecider):
            return self.decider.offered_caps
        return None

    @property
    def spare(self) -> Array:
        """The spare that nodes reported before this step, int64 [N]."""
        return self._spares[0]

    def _past(self, i: int) -> list[int]:
        """Return the last counts of node ``i``, newest first."""
        length = PAST_COUNTS if self.decider.inputs.any_counts else self.decider.last_counts
        return [counts[i] for counts in self._counts][:length]

    def _require_quick(self, decisions: int) -> None:
        trace = self.rules.trace
        if decisions % PATIENCE or trace.clock != "utc":
            return
        mean = self._seconds / decisions
        if mean > trace.step:
            raise ActionError(
                f"a decision takes {mean:.1f} s on average, but a step has {trace.step} s: the "
                "policy could not decide in time"
            )

    def memory(self, plans: Mapping[str, Mapping[str, Any]], t: int, requests: Array) -> PlanMemory:
        """Return the plans of step ``t`` for ``carried_out.by_plan``, as arrays.

        ``requests`` int64 [N]: the number of requests of each node in the step.
        """
        n, network = len(self.names), self.rules.network
        index = {name: i for i, name in enumerate(self.names)}
        row = self.first_row + t
        keep, limit = np.full(n, UNBOUNDED), np.full(n, UNBOUNDED)
        share, route = np.full(n, -1.0), np.zeros(n, dtype=np.int64)
        cap = np.full((n, n), UNBOUNDED)
        assert self.rules.trace.capacity is not None
        capacity = self.rules.trace.capacity[row]
        weight = np.tile(self.spare.astype(np.float64), (n, 1))
        for i, name in enumerate(self.names):
            plan = plans[name]
            if plan["route"] not in ROUTES:
                raise ActionError(
                    f"{name}: route {plan['route']} divides all requests of a step at once, and "
                    "cannot be carried out request by request"
                )
            route[i] = ROUTES[plan["route"]]
            if plan["share"] is not None:
                share[i] = plan["share"]
            elif plan["keep"] is not None:
                keep[i] = plan["keep"]
            if plan["most"] is not None:
                limit[i] = plan["most"]
            if plan["caps"] is not None:
                cap[i] = [plan["caps"].get(other, 0) for other in self.names]
            if plan["route"] == "weighted":
                weight[i] = capacity
            if plan["order"] is not None:
                weight[i] = 0.0
                for place, other in enumerate(plan["order"]):
                    weight[i, index[other]] = len(plan["order"]) - place
        draws_at = requests.cumsum() - requests
        first, second = self._draws(route, requests)
        return PlanMemory(
            uniform=np.zeros(0),
            keep=keep,
            share=share,
            limit=limit,
            route=route,
            cap=np.where(network.links, cap, 0).ravel(),
            weight=weight.ravel(),
            draws=first,
            draws_too=second,
            draws_at=draws_at,
            seen=np.zeros(n, dtype=np.int64),
            forwarded=np.zeros(n, dtype=np.int64),
            sent=np.zeros(n * n, dtype=np.int64),
        )

    def _draws(self, route: Array, requests: Array) -> tuple[Array, Array]:
        """Return the two halves of the draws of route "two-choices", as in ``routes``."""
        if not (route == ROUTES["two-choices"]).any():
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        assert self.state.draws is not None
        # ``decide`` has advanced the state to the next step.
        keys = step_keys(self.state.draws[:, 0], np.array([self.state.t - 1]))[0]
        number = np.concatenate([np.arange(1, count + 1) for count in requests.tolist()])
        drawn = mixed(np.repeat(keys, requests) + number.astype(np.uint64) * np.uint64(GOLDEN))
        halves = drawn >> np.uint64(32), drawn & np.uint64(0xFFFFFFFF)
        return halves[0].astype(np.int64), halves[1].astype(np.int64)


def offers_of(decision: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Array:
    """Return the numbers of a decision with known arrivals: int64 [N, N] from i to j."""
    return np.array(
        [[decision[name].get(other, 0) for other in names] for name in names], dtype=np.int64
    )
