"""A rule that decides for any nodes: those of the run, some of them, or others beside them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from corral.errors import ActionError
from corral.loads.export.core import NodeDecider, State, about_rule
from corral.loads.export.own_policy import PolicyDecider
from corral.loads.serve.guard import Answer, Decision, Numbers, other_nodes

__all__ = ["Rule"]

KEPT_BYTES = 1 << 24
"""Of what decides for other sets of nodes than the run's: one of 700, or hundreds of ten. The set
that was not asked for longest is dropped, and made again when it is asked for."""
NOTHING = {"spare": 0, "lost": 0}


class Rule:
    """The rule ``name`` ("overflow/equal") with the links and the queue of ``about``, which is
    what ``about_rules`` of ``corral.loads.export`` tells.

    Nodes that the run does not know are linked to all others where the run links every two nodes,
    else to nobody. Of a node that has not reported, nothing is spare. Reports count as they come,
    late or not. Raises ValueError for what is no rule, or one that draws. ``arrivals``: "known" or
    "unknown", so that it answers by plans; default: as the run.

    A ``policy`` of one's own, with ``plan(view)``, decides in the place of a rule, under that name.
    If it raises, or returns no plan, the rule ``fallback`` decides.
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
        """What ``about_rule`` tells of it."""
        return self._about

    @property
    def quick(self) -> bool:
        """Whether a decision of a few nodes takes no more than milliseconds: not of a policy of
        one's own, which may do anything, and of a rule that draws for each request."""
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
        """Return the same as a server gives it: with a reason where other nodes than the run's are
        given, or have reported, and where a policy fails."""
        decider, start = self._for(frozenset(nodes))
        if self.policy is not None:  # it is told of no earlier request
            start = decider.start(start.rng)
        reports = previous
        if previous is not None and previous.keys() != nodes.keys():
            reports = {name: previous.get(name, NOTHING) for name in nodes}
        try:
            found = Answer(decider.decide(nodes, reports, start, time), "rule")
        except ActionError as error:
            assert self._backup is not None
            decision, _ = self._backup.decide(nodes, previous)
            return Answer(decision, "rule", "raised", str(error)[:300])
        for given in (nodes,) if previous is None else (nodes, previous):
            if given.keys() != self._order.keys():
                return replace(found, reason="nodes", detail=other_nodes(given, self._order))
        return found

    def _for(self, names: frozenset[str]) -> tuple[NodeDecider, State]:
        """Return what decides for these nodes, and the state that it draws from."""
        if names == self._nodes:
            return self._of_run
        with self._lock:
            made = self._made.pop(names, None)
            if made is not None:
                self._made[names] = made  # the latest stands last
                return made
        made = self._make(names)
        with self._lock:
            if names not in self._made:
                self._bytes += bytes_of(len(names))
            self._made[names] = made
            while self._bytes > KEPT_BYTES:
                oldest = next(iter(self._made))
                del self._made[oldest]
                self._bytes -= bytes_of(len(oldest))
        return made

    def _make(self, names: frozenset[str]) -> tuple[NodeDecider, State]:
        ordered = sorted(names, key=lambda name: (self._order.get(name, len(self._order)), name))
        places = [self._order.get(name, -1) for name in ordered]
        known = np.array([place >= 0 for place in places])
        links = self._links[np.ix_(places, places)] & np.outer(known, known)
        if self._complete:
            links = ~np.eye(len(ordered), dtype=bool)
        decider = self._decider({**self._about, "nodes": ordered, "links": links})
        return decider, decider.start()

    def _decider(self, about: Mapping[str, Any]) -> NodeDecider:
        return NodeDecider(about) if self.policy is None else PolicyDecider(about, self.policy)


def bytes_of(nodes: int) -> int:
    """Return no less than the memory of what decides for so many nodes, in bytes."""
    return 20_000 + 2_000 * nodes + 30 * nodes**2
