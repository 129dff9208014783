"""A rule that decides for any nodes: those of the run, some of them, or others beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from corral.trainers.loads.export.core import NodeDecider, State, about_rule
from corral.trainers.loads.serve.guard import Answer, Forwarded, Numbers, other_nodes

__all__ = ["Rule"]

KEPT = 64
"""Sets of nodes for which what decides is kept; it is made again for others."""
NOTHING = {"spare": 0, "lost": 0}


class Rule:
    """The rule ``name`` ("overflow/equal") with the links and the queue of ``about``, which is
    what ``about_rules`` of ``corral.trainers.loads.export`` tells.

    Nodes that the run does not know are linked to all others where the run links every two nodes,
    else to nobody. Of a node that has not reported, nothing is spare. Reports count as they come,
    late or not. Raises ValueError for what is no rule, or one that draws.
    """

    def __init__(self, name: str, about: Mapping[str, Any]) -> None:
        self.name = name if "/" in name else f"{name}/equal"
        self._about = about_rule(about, self.name)
        self._about["report_delay"] = min(1, about["report_delay"])
        self._order = {node: i for i, node in enumerate(about["nodes"])}
        self._links = np.array(about["links"], dtype=bool)
        self._complete = bool((self._links | np.eye(len(self._order), dtype=bool)).all())
        self._made: dict[frozenset[str], tuple[NodeDecider, State]] = {}
        self._for(frozenset(self._order))

    def decide(
        self, nodes: Numbers, previous: Numbers | None = None, state: Any = None
    ) -> tuple[Forwarded, None]:
        """Return what the nodes forward, and None: a rule remembers nothing."""
        decider, start = self._for(frozenset(nodes))
        if previous is not None and previous.keys() != nodes.keys():
            previous = {name: previous.get(name, NOTHING) for name in nodes}
        return decider.decide(nodes, previous, start), None

    def answer(self, nodes: Numbers, previous: Numbers | None = None, state: Any = None) -> Answer:
        """Return the same as a server gives it: with a reason where other nodes than the run's are
        given, or have reported."""
        found = Answer(self.decide(nodes, previous)[0], "rule")
        for given in (nodes,) if previous is None else (nodes, previous):
            if given.keys() != self._order.keys():
                return replace(found, reason="nodes", detail=other_nodes(given, self._order))
        return found

    def _for(self, names: frozenset[str]) -> tuple[NodeDecider, State]:
        """Return what decides for these nodes, and the state that it draws from."""
        if names not in self._made:
            if len(self._made) >= KEPT:
                self._made.pop(next(iter(self._made)))
            ordered = sorted(
                names, key=lambda name: (self._order.get(name, len(self._order)), name)
            )
            places = [self._order.get(name, -1) for name in ordered]
            known = np.array([place >= 0 for place in places])
            links = self._links[np.ix_(places, places)] & np.outer(known, known)
            if self._complete:
                links = ~np.eye(len(ordered), dtype=bool)
            about = {"nodes": ordered, "links": links.astype(int).tolist()}
            decider = NodeDecider({**self._about, **about})
            self._made[names] = decider, decider.start()
        return self._made[names]
