"""Guard a team's decisions: a rule decides if the input or the team's answer is not acceptable.

A team has been trained on certain numbers. Its behavior on other numbers is untested, and a network
is confident there too. So the guard lets a rule decide

| reason | condition |
|---|---|
| ``nodes`` | the nodes, or the nodes that have reported, differ from those of the training |
| ``arrivals``, ``capacity``, ``queue``, ``spare``, ``lost`` | a value is outside its range |
| ``spare``, ``lost`` | a report in the team's memory is outside its range; the memory restarts |
| ``last_arrivals`` | a count of a past step is outside its range, which includes 0 |
| ``raised`` | the team raises an exception |
| ``nonsense`` | the answer is not a valid forwarding of the arrivals, or not a valid plan |

and counts each reason. The ranges are those of the training, widened by ``margin`` times the
largest value. They end at the scales and the queue of the environment, which limit a team's input.
A team with ``beyond="rule"`` plays up to its scales, as in an evaluation; see ``Ranges.seen``.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.plans import Plan
from corral.loads.export.core import State
from corral.loads.export.inputs import limits_of

__all__ = [
    "REASONS",
    "Answer",
    "Decide",
    "Decision",
    "Guard",
    "Numbers",
    "Ranges",
    "newest",
    "nonsense",
    "nonsense_plans",
    "other_nodes",
]

NOW, ENDED = ("arrivals", "last_arrivals", "capacity", "queue"), ("spare", "lost")
REASONS = ("nodes", *NOW, *ENDED, "raised", "nonsense")
MARGIN = 0.1
"""Default widening of the ranges of the training, as a share of the largest value."""

Numbers = Mapping[str, Mapping[str, Any]]
"""Node -> numbers by name; "last_arrivals" may be a list of them."""
Decision = dict[str, dict[str, Any]]
"""Node -> other node -> requests; with unknown arrivals node -> plan."""
Decide = Callable[..., "tuple[Decision, Any]"]
"""Called with nodes, previous, a state and, if one was sent, the time. Returns a decision, and the
hidden state for the next one; None for a policy without state."""


@dataclass(frozen=True)
class Answer:
    """The nodes' decision, its author, and the reason if the team did not decide."""

    decision: Decision
    by: str  # "team" or "rule"
    reason: str | None = None  # one of REASONS; for a rule that is served alone, "nodes" or None
    detail: str | None = None  # the reason as text, with the node and the number
    state: Any = None  # for the next decision, if the team has memory
    difference: int | None = None  # requests that a shadow would have placed differently

    @property
    def forward(self) -> Decision:
        """The decision with known arrivals: node -> other node -> requests."""
        return self.decision

    @property
    def plan(self) -> Decision:
        """The decision with unknown arrivals: node -> plan."""
        return self.decision


@dataclass(frozen=True)
class Ranges:
    """The ranges of the training: node -> name of a number -> (lowest, highest)."""

    of: Mapping[str, Mapping[str, tuple[float, float]]]
    neighbours: Mapping[str, frozenset[str]]  # node -> nodes to which it can forward
    plans: bool = False  # whether arrivals are unknown, so that a team answers with plans
    link_limit: int | None = None  # maximum requests per link and step

    @classmethod
    def seen(cls, about: Mapping[str, Any], margin: float = MARGIN) -> Ranges:
        """Return the ranges of the training from ``about_rules`` of ``corral.loads.export``.

        They are widened on both sides by ``margin`` times the highest number, up to the limits of a
        ``NodeDecider``. With ``beyond="rule"`` they end at the scales, whatever the training had:
        above them all nodes follow the rule in an evaluation too.

        Raises ValueError if ``margin`` is negative or not finite.
        """
        if isinstance(margin, bool) or not (math.isfinite(margin) and margin >= 0):
            raise ValueError(f"margin={margin!r}: pass a number, 0 or more, such as {MARGIN}")
        most = limits_of(about)
        most |= {"spare": most["capacity"], "lost": most["arrivals"]}
        scales = _scales(about)
        ranges = {
            name: {
                k: (low - margin * high, scales.get(k, min(high + margin * high, most[k])))
                for k, (low, high) in of.items()
            }
            for name, of in about["seen"].items()
        }
        if about.get("last_counts", 0):
            for of in ranges.values():  # before the first step, past counts are 0
                of["last_arrivals"] = min(0.0, of["arrivals"][0]), of["arrivals"][1]
        nodes = about["nodes"]
        neighbours = {
            name: frozenset(other for other, linked in zip(nodes, row, strict=True) if linked)
            for name, row in zip(nodes, about["links"], strict=True)
        }
        plans = about.get("arrivals", "known") == "unknown"
        return cls(ranges, neighbours, plans, about.get("link_limit"))

    def outside(self, nodes: Numbers, previous: Numbers | None) -> tuple[str, str] | None:
        """Return reason and detail of the first value outside its range; None if all are inside."""
        for numbers_of in (nodes,) if previous is None else (nodes, previous):
            if numbers_of.keys() != self.of.keys():
                return "nodes", other_nodes(numbers_of, self.of)
        for numbers_of, keys in ((nodes, NOW), (previous or {}, ENDED)):
            for name, numbers in numbers_of.items():
                seen = self.of[name]
                for key in keys:
                    for value in _values(numbers, key):
                        low, high = seen[key]
                        if not low <= value <= high:
                            allowed = f"{max(low, 0):.4g} to {high:.4g}"
                            return key, f"{name}: {key} {value}, not in {allowed}"
        return None

    def late(self, state: Any) -> tuple[str, str] | None:
        """Return the same for the reports of earlier steps in a team's memory."""
        if not isinstance(state, State) or not state.reports.size:
            return None
        low, high = self._bounds
        outliers = np.argwhere((state.reports < low) | (state.reports > high))
        for _, k, i, j in outliers[:1].tolist():
            value = f"{ENDED[j]} {state.reports[0, k, i, j]} of an earlier step"
            allowed = f"{max(low[i, j], 0):.4g} to {high[i, j]:.4g}"
            return ENDED[j], f"{state.nodes[i]}: {value}, not in {allowed}"
        return None

    @cached_property
    def _bounds(self) -> Array:
        """Lowest and highest spare and lost of each node: [2, N, 2]."""
        rows = [[self.of[name][key] for key in ENDED] for name in self.neighbours]
        return np.array(rows, dtype=np.float64).transpose(2, 0, 1)

    def wrong(self, decision: Any, nodes: Numbers) -> str | None:
        """Return the reason why ``decision`` is not valid; None if it is."""
        if self.plans:
            return nonsense_plans(decision, nodes, self.neighbours, self.link_limit)
        return nonsense(decision, nodes, self.neighbours)


def _scales(about: Mapping[str, Any]) -> dict[str, float]:
    """Return the highest numbers that a team with ``beyond="rule"`` plays; {} for other teams."""
    if about.get("beyond") != "rule" or about["observation"] != "every":
        return {}
    loads, capacities = about["load_scale"], about["capacity_scale"]
    return {"arrivals": loads, "lost": loads, "capacity": capacities, "spare": capacities}


def _values(numbers: Mapping[str, Any], key: str) -> tuple[Any, ...] | list[Any]:
    """Return the numbers with that name; a missing queue is 0."""
    if key in ("arrivals", "last_arrivals"):
        counts = numbers.get(key, ())
        return counts if isinstance(counts, list | tuple) else (counts,)
    return (numbers.get(key, 0),)


def newest(node: Mapping[str, Any]) -> int:
    """Return a node's arrivals in this step, or in the last one if they are unknown."""
    counts = node["arrivals"] if "arrivals" in node else node["last_arrivals"]
    if isinstance(counts, list | tuple):
        counts = counts[0] if counts else 0
    return int(counts)


def other_nodes(names: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return the unknown and missing names as text."""
    unknown = [name for name in names if name not in expected]
    missing = [name for name in expected if name not in names]
    parts = {"unknown": unknown, "missing": missing}
    return "; ".join(f"{kind}: {', '.join(names[:5])}" for kind, names in parts.items() if names)


def nonsense(forward: Any, nodes: Numbers, neighbours: Mapping[str, frozenset[str]]) -> str | None:
    """Return the reason why ``forward`` is not a valid forwarding of the arrivals; None if it is.

    A valid one has every node, and forwards whole, non-negative numbers of requests, only to
    neighbors, and in total no more than the arrivals.
    """
    if not isinstance(forward, Mapping) or forward.keys() != nodes.keys():
        return "it must have each node exactly once"
    for name, parts in forward.items():
        if not isinstance(parts, Mapping):
            return f"{name}: {parts!r:.80} instead of requests by node"
        total = 0
        for other, requests in parts.items():
            if isinstance(requests, bool) or not isinstance(requests, int) or requests < 0:
                return f"{name}: {requests!r:.80} requests to {other}"
            if requests and other not in neighbours.get(name, ()):
                return f"{name}: {requests} requests to {other}, which is not a neighbor"
            total += requests
        if total > nodes[name]["arrivals"]:
            return f"{name}: {total} of {nodes[name]['arrivals']} requests"
    return None


PLAN = ("keep", "share", "most", "caps", "route", "order")


def nonsense_plans(
    plans: Any,
    nodes: Numbers,
    neighbours: Mapping[str, frozenset[str]],
    link_limit: int | None,
) -> str | None:
    """Return the reason why ``plans`` are not valid for these nodes; None if they are.

    Valid plans have every node. Each has valid fields of ``Plan``, caps for neighbors only, not
    above the link limit, and an order of neighbors.
    """
    if not isinstance(plans, Mapping) or plans.keys() != nodes.keys():
        return "it must have each node exactly once"
    for name, plan in plans.items():
        if not isinstance(plan, Mapping) or plan.keys() != set(PLAN):
            return f"{name}: {plan!r:.80} instead of a plan"
        try:
            Plan(**plan)
        except (ValueError, TypeError) as error:
            return f"{name}: {error}"
        caps, order = plan["caps"] or {}, plan["order"] or ()
        counts = [plan["keep"], plan["most"], *caps.values()]
        if any(type(count) is not int for count in counts if count is not None):
            return f"{name}: {plan!r:.80} has numbers that are not int"
        if not isinstance(order, list | tuple):
            return f"{name}: {order!r:.80} instead of an order"
        for other in (*caps, *order):
            if other not in neighbours.get(name, ()):
                return f"{name}: the plan uses {other}, which is not a neighbor"
        if link_limit is not None and max(caps.values(), default=0) > link_limit:
            return f"{name}: a cap of {max(caps.values())}, above the link limit of {link_limit}"
    return None


class Guard:
    """Lets the ``team`` decide, or the ``rule`` for unacceptable input or answers.

    ``counts``: number of decisions by the rule, by reason; the answer has the ``detail``. The rule
    must accept any nodes, and must not fail.
    """

    def __init__(self, team: Decide, rule: Decide, ranges: Ranges) -> None:
        self.team, self.rule, self.ranges = team, rule, ranges
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()  # a server uses two threads

    def decide(
        self,
        nodes: Numbers,
        previous: Numbers | None = None,
        state: Any = None,
        time: str | None = None,
    ) -> Answer:
        """Return a decision. Arguments are those of ``Run.decide``.

        The memory of a team is kept if the input is outside the ranges, and restarts if it failed.
        """
        answer = self.team_answer(nodes, previous, state, time)
        if answer.reason is None:
            return answer
        arguments = (nodes, previous, None) if time is None else (nodes, previous, None, time)
        decision, _ = self.rule(*arguments)
        return replace(answer, decision=decision)

    def team_answer(
        self,
        nodes: Numbers,
        previous: Numbers | None = None,
        state: Any = None,
        time: str | None = None,
    ) -> Answer:
        """Return the team's answer, or an empty one with the reason, which is counted."""
        outside = self.ranges.outside(nodes, previous)
        if outside is not None:
            return self._refused(*outside, state=state)
        late = self.ranges.late(state)
        if late is not None:  # its decisions cannot have left such a state: it restarts
            return self._refused(*late)
        arguments = (nodes, previous, state) if time is None else (nodes, previous, state, time)
        try:
            decision, after = self.team(*arguments)
        except Exception as error:  # any error: the requests need a decision
            return self._refused("raised", f"{type(error).__name__}: {error}"[:300])
        wrong = self.ranges.wrong(decision, nodes)
        if wrong is not None:
            return self._refused("nonsense", wrong)
        return Answer(decision, "team", state=after)

    def _refused(self, reason: str, detail: str, state: Any = None) -> Answer:
        with self._lock:
            self.counts[reason] += 1
        return Answer({}, "rule", reason, detail, state)
