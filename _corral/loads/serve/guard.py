"""A guard around who decides: where it knows better than to ask, or the answer is none, the rule
decides.

A team has learned for the numbers that it saw. What it does with others nobody has looked at, and a
network is sure of itself there too. So the guard lets a rule decide

| reason | where |
|---|---|
| ``nodes`` | there are other nodes than in training, or others have reported |
| ``arrivals``, ``capacity``, ``queue``, ``spare``, ``lost`` | one is outside its range |
| ``spare``, ``lost`` | the same of reports in a team's memory, which restarts then |
| ``last_arrivals`` | the same of counts of past steps, which may be 0 |
| ``raised`` | the team raises |
| ``nonsense`` | its answer is no forwarding of the requests that arrived, or no plan |

and counts each reason. The ranges are those of training, wider by ``margin`` of the largest value,
and end where the team takes no more: at the scales and the queue of its environment.
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
"""How much further than in training numbers may go, as a share of the largest seen there."""

Numbers = Mapping[str, Mapping[str, Any]]
"""Node -> numbers by name; "last_arrivals" may be a list of them."""
Decision = dict[str, dict[str, Any]]
"""Node -> other node -> requests; with unknown arrivals node -> plan."""
Decide = Callable[..., "tuple[Decision, Any]"]
"""Is called with nodes, previous, a state and, if one was sent, the time. Returns a decision, and
the hidden state for the next one; None without any."""


@dataclass(frozen=True)
class Answer:
    """What nodes do, who said so, and why not the team."""

    decision: Decision
    by: str  # "team" or "rule"
    reason: str | None = None  # one of REASONS; of a rule that is served alone, "nodes" or None
    detail: str | None = None  # in words, with the node and the number
    state: Any = None  # for the next decision, of a team with memory
    difference: int | None = None  # requests that a shadow would have placed elsewhere

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
    """What nodes were trained with: node -> name of a number -> (lowest, highest)."""

    of: Mapping[str, Mapping[str, tuple[float, float]]]
    neighbours: Mapping[str, frozenset[str]]  # node -> to whom it can forward
    plans: bool = False  # whether arrivals are unknown, so that a team answers by plans
    link_limit: int | None = None  # requests that a link carries in a step

    @classmethod
    def seen(cls, about: Mapping[str, Any], margin: float = MARGIN) -> Ranges:
        """Return the ranges of training, as ``about_rules`` of ``corral.loads.export``
        tells them, wider by ``margin`` of the highest number on both sides, but with no number that
        a ``NodeDecider`` refuses.

        Raises ValueError where that is negative or not finite.
        """
        if isinstance(margin, bool) or not (math.isfinite(margin) and margin >= 0):
            raise ValueError(f"margin={margin!r}: give a number, 0 or more, such as {MARGIN}")
        most = limits_of(about)
        most |= {"spare": most["capacity"], "lost": most["arrivals"]}
        ranges = {
            name: {
                k: (low - margin * high, min(high + margin * high, most[k]))
                for k, (low, high) in of.items()
            }
            for name, of in about["seen"].items()
        }
        if about.get("last_counts", 0):
            for of in ranges.values():  # no step was before the first
                of["last_arrivals"] = min(0.0, of["arrivals"][0]), of["arrivals"][1]
        nodes = about["nodes"]
        neighbours = {
            name: frozenset(other for other, linked in zip(nodes, row, strict=True) if linked)
            for name, row in zip(nodes, about["links"], strict=True)
        }
        plans = about.get("arrivals", "known") == "unknown"
        return cls(ranges, neighbours, plans, about.get("link_limit"))

    def outside(self, nodes: Numbers, previous: Numbers | None) -> tuple[str, str] | None:
        """Return a reason, and in words what is outside; None where nothing is."""
        for given in (nodes,) if previous is None else (nodes, previous):
            if given.keys() != self.of.keys():
                return "nodes", other_nodes(given, self.of)
        for given, keys in ((nodes, NOW), (previous or {}, ENDED)):
            for name, numbers in given.items():
                seen = self.of[name]
                for key in keys:
                    for value in _values(numbers, key):
                        low, high = seen[key]
                        if not low <= value <= high:
                            allowed = f"{max(low, 0):.4g} to {high:.4g}"
                            return key, f"{name}: {key} {value}, not in {allowed}"
        return None

    def late(self, state: Any) -> tuple[str, str] | None:
        """Return the same of the reports of earlier steps in a team's memory."""
        if not isinstance(state, State) or not state.reports.size:
            return None
        low, high = self._bounds
        odd = np.argwhere((state.reports < low) | (state.reports > high))
        for _, k, i, j in odd[:1].tolist():
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
        """Return in words why ``decision`` is none; None if it is one."""
        if self.plans:
            return nonsense_plans(decision, nodes, self.neighbours, self.link_limit)
        return nonsense(decision, nodes, self.neighbours)


def _values(numbers: Mapping[str, Any], key: str) -> tuple[Any, ...] | list[Any]:
    """Return the numbers of that name; a queue that is missing is 0."""
    if key in ("arrivals", "last_arrivals"):
        found = numbers.get(key, ())
        return found if isinstance(found, list | tuple) else (found,)
    return (numbers.get(key, 0),)


def newest(node: Mapping[str, Any]) -> int:
    """Return the arrivals of a node in this step, or in the last one if they are unknown."""
    found = node["arrivals"] if "arrivals" in node else node["last_arrivals"]
    if isinstance(found, list | tuple):
        found = found[0] if found else 0
    return int(found)


def other_nodes(given: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return in words how the names differ from those that are known."""
    unknown = [name for name in given if name not in known]
    missing = [name for name in known if name not in given]
    parts = {"unknown": unknown, "missing": missing}
    return "; ".join(f"{what}: {', '.join(names[:5])}" for what, names in parts.items() if names)


def nonsense(forward: Any, nodes: Numbers, neighbours: Mapping[str, frozenset[str]]) -> str | None:
    """Return in words why ``forward`` is no forwarding of what arrived; None where it is one.

    It names every node, forwards whole requests, none of them less than 0, to neighbours alone, and
    no more of them than arrived.
    """
    if not isinstance(forward, Mapping) or forward.keys() != nodes.keys():
        return "it does not name each node once"
    for name, parts in forward.items():
        if not isinstance(parts, Mapping):
            return f"{name}: {parts!r:.80} in place of requests by node"
        total = 0
        for other, requests in parts.items():
            if isinstance(requests, bool) or not isinstance(requests, int) or requests < 0:
                return f"{name}: {requests!r:.80} requests to {other}"
            if requests and other not in neighbours.get(name, ()):
                return f"{name}: {requests} requests to {other}, which is no neighbour"
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
    """Return in words why ``plans`` are none of these nodes; None if they are.

    They name every node. Each has numbers that ``Plan`` takes, caps of neighbours alone, none of
    them above the link limit, and an order of neighbours.
    """
    if not isinstance(plans, Mapping) or plans.keys() != nodes.keys():
        return "it does not name each node once"
    for name, plan in plans.items():
        if not isinstance(plan, Mapping) or plan.keys() != set(PLAN):
            return f"{name}: {plan!r:.80} in place of a plan"
        try:
            Plan(**plan)
        except (ValueError, TypeError) as error:
            return f"{name}: {error}"
        caps, order = plan["caps"] or {}, plan["order"] or ()
        counts = [plan["keep"], plan["most"], *caps.values()]
        if any(type(each) is not int for each in counts if each is not None):
            return f"{name}: {plan!r:.80} has other numbers than int"
        if not isinstance(order, list | tuple):
            return f"{name}: {order!r:.80} in place of an order"
        for other in (*caps, *order):
            if other not in neighbours.get(name, ()):
                return f"{name}: a plan for {other}, not a neighbour"
        if link_limit is not None and max(caps.values(), default=0) > link_limit:
            return f"{name}: a cap of {max(caps.values())}, above the link limit of {link_limit}"
    return None


class Guard:
    """Lets the ``team`` decide, and the ``rule`` where the team had better not.

    ``counts``: how many decisions the rule made, by reason; ``detail`` of the latest is in the
    answer. The rule is asked for any nodes, and must not fail.
    """

    def __init__(self, team: Decide, rule: Decide, ranges: Ranges) -> None:
        self.team, self.rule, self.ranges = team, rule, ranges
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()  # a server asks from two threads

    def decide(
        self,
        nodes: Numbers,
        previous: Numbers | None = None,
        state: Any = None,
        time: str | None = None,
    ) -> Answer:
        """Return a decision. Arguments are those of ``Run.decide``.

        A team with memory keeps it if its input is outside the ranges, and restarts if it failed.
        """
        found = self.asked(nodes, previous, state, time)
        if found.reason is None:
            return found
        given = (nodes, previous, None) if time is None else (nodes, previous, None, time)
        decision, _ = self.rule(*given)
        return replace(found, decision=decision)

    def asked(
        self,
        nodes: Numbers,
        previous: Numbers | None = None,
        state: Any = None,
        time: str | None = None,
    ) -> Answer:
        """Return the team's answer; where there is none, an empty one with the reason, counted."""
        outside = self.ranges.outside(nodes, previous)
        if outside is not None:
            return self._refused(*outside, state=state)
        late = self.ranges.late(state)
        if late is not None:  # none of its decisions has left that there: it restarts
            return self._refused(*late)
        given = (nodes, previous, state) if time is None else (nodes, previous, state, time)
        try:
            decision, after = self.team(*given)
        except Exception as error:  # whatever it is, requests wait for an answer
            return self._refused("raised", f"{type(error).__name__}: {error}"[:300])
        wrong = self.ranges.wrong(decision, nodes)
        if wrong is not None:
            return self._refused("nonsense", wrong)
        return Answer(decision, "team", state=after)

    def _refused(self, reason: str, detail: str, state: Any = None) -> Answer:
        with self._lock:
            self.counts[reason] += 1
        return Answer({}, "rule", reason, detail, state)
