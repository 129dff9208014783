"""A rule that decides for any nodes: those of the run, some of them, or additional ones."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from corral.errors import ActionError
from corral.loads.export.core import NodeDecider, State, about_rule
from corral.loads.export.user_policy import PolicyDecider
from corral.loads.serve.guard import Answer, Decision, Numbers, other_nodes

__all__ = ["Rule"]

KEPT_BYTES = 1 << 24
"""Memory for deciders of other node sets than the run's: one of 700 nodes, or hundreds of ten. The
least recently used set is dropped, and created again when needed."""
NOTHING = {"spare": 0, "lost": 0}


class Rule:
    """The rule ``name`` ("overflow/equal") with the links and the queue of ``about``, the return
    value of ``about_rules`` of ``corral.loads.export``.

    Nodes that are unknown to the run are linked to all others if the run links all pairs of nodes,
    else to none. A node without a report has no spare capacity. Reports are used when they arrive,
    whatever their delay. Raises ValueError for an invalid rule, or one that draws. ``arrivals``:
    "known" or "unknown" (it answers with plans); default: as the run.

    A user's ``policy`` with ``plan(view)`` decides instead of the rule, under that name. If it
    raises an exception or returns an invalid plan, the rule ``fallback`` decides.
    """

    def __init__(
        self,
        name: str,
        about: Mapping[str, Any],
        arrivals: str | None = None,
        *,
        policy: Any = None,
        fallback: str = "overflow",
    ) -> None:
        self.policy = policy
        self.name = name if "/" in name or policy is not None else f"{name}/equal"
        rule = self.name if policy is None else fallback
        self._about = about_rule(about, rule, arrivals)
        self._backup = None if policy is None else Rule(fallback, about, arrivals)
        self._about["report_delay"] = min(1, about["report_delay"])
        self._order = {node: i for i, node in enumerate(about["nodes"])}
        self._links = np.array(about["links"], dtype=bool)
        self._complete = bool((self._links | np.eye(len(self._order), dtype=bool)).all())
        self._nodes = frozenset(self._order)
        self._of_run = self._make(self._nodes)
        self._made: dict[frozenset[str], tuple[NodeDecider, State]] = {}
        self._bytes, self._lock = 0, threading.Lock()

    @property
    def about(self) -> Mapping[str, Any]:
        """The result of ``about_rule`` for the rule, or for the fallback of a user's policy."""
        return self._about

    @property
    def quick(self) -> bool:
        """Whether a decision for a few nodes takes only milliseconds. False for a user's policy,
        which may be slow, and for a rule that draws for each request."""
        draws = self._about["route"] == "two-choices" and self._about["arrivals"] == "known"
        return self.policy is None and not draws

    def decide(
        self,
        nodes: Numbers,
        previous: Numbers | None = None,
        state: Any = None,
        time: str | None = None,
    ) -> tuple[Decision, None]:
        """Return a decision, and None: a rule has no memory."""
        return self.answer(nodes, previous, state, time).decision, None

    def answer(
        self,
        nodes: Numbers,
        previous: Numbers | None = None,
        state: Any = None,
        time: str | None = None,
    ) -> Answer:
        """Return the decision as a server answer: with a reason if nodes or reporting nodes differ
        from the run's, or if a policy fails."""
        decider, start = self._for(frozenset(nodes))
        if self.policy is not None:  # a policy gets no data of earlier requests
            start = decider.start(start.rng)
        reports = previous
        if previous is not None and previous.keys() != nodes.keys():
            reports = {name: previous.get(name, NOTHING) for name in nodes}
        try:
            answer = Answer(decider.decide(nodes, reports, start, time), "rule")
        except ActionError as error:
            assert self._backup is not None
            decision, _ = self._backup.decide(nodes, previous)
            return Answer(decision, "rule", "raised", str(error)[:300])
        for numbers_of in (nodes,) if previous is None else (nodes, previous):
            if numbers_of.keys() != self._order.keys():
                return replace(answer, reason="nodes", detail=other_nodes(numbers_of, self._order))
        return answer

    def _for(self, names: frozenset[str]) -> tuple[NodeDecider, State]:
        """Return the decider for these nodes, and the state from which it draws."""
        if names == self._nodes:
            return self._of_run
        with self._lock:
            entry = self._made.pop(names, None)
            if entry is not None:
                self._made[names] = entry  # the most recently used is last
                return entry
        entry = self._make(names)
        with self._lock:
            if names not in self._made:
                self._bytes += bytes_of(len(names))
            self._made[names] = entry
            while self._bytes > KEPT_BYTES:
                oldest = next(iter(self._made))
                del self._made[oldest]
                self._bytes -= bytes_of(len(oldest))
        return entry

    def _make(self, names: frozenset[str]) -> tuple[NodeDecider, State]:
        ordered = sorted(names, key=lambda name: (self._order.get(name, len(self._order)), name))
        places = [self._order.get(name, -1) for name in ordered]
        is_known = np.array([place >= 0 for place in places])
        links = self._links[np.ix_(places, places)] & np.outer(is_known, is_known)
        if self._complete:
            links = ~np.eye(len(ordered), dtype=bool)
        decider = self._decider({**self._about, "nodes": ordered, "links": links})
        return decider, decider.start()

    def _decider(self, about: Mapping[str, Any]) -> NodeDecider:
        return NodeDecider(about) if self.policy is None else PolicyDecider(about, self.policy)


def bytes_of(nodes: int) -> int:
    """Return an upper limit of the memory of a decider for this number of nodes, in bytes."""
    return 20_000 + 2_000 * nodes + 30 * nodes**2
