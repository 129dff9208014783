"""A guard around who decides: where it knows better than to ask, or the answer is none, the rule
decides.

A team has learned for the numbers that it saw. What it does with others nobody has looked at, and a
network is sure of itself there too. So the guard lets a rule decide

| reason | where |
|---|---|
| ``nodes`` | there are other nodes than in training, or others have reported |
| ``arrivals``, ``capacity``, ``queue``, ``spare``, ``lost`` | one is outside its range |
| ``raised`` | the team raises |
| ``nonsense`` | its answer is no forwarding of the requests that arrived |

and counts each reason. The ranges are those of training, wider by ``margin`` of the largest value,
and end where the team takes no more: at the scales and the queue of its environment.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from corral.trainers.loads.export.core import limits_of

__all__ = ["REASONS", "Answer", "Decide", "Forwarded", "Guard", "Ranges", "nonsense", "other_nodes"]

NOW, ENDED = ("arrivals", "capacity", "queue"), ("spare", "lost")
REASONS = ("nodes", *NOW, *ENDED, "raised", "nonsense")
MARGIN = 0.1
"""How much further than in training numbers may go, as a share of the largest seen there."""

Numbers = Mapping[str, Mapping[str, int]]
"""Node -> numbers by name."""
Forwarded = dict[str, dict[str, int]]
"""Node -> other node -> requests."""
Decide = Callable[[Numbers, "Numbers | None", Any], "tuple[Forwarded, Any]"]
"""Returns what nodes forward, and the hidden state for the next decision; None where none."""


@dataclass(frozen=True)
class Answer:
    """What nodes forward, who said so, and why not the team."""

    forward: Forwarded
    by: str  # "team" or "rule"
    reason: str | None = None  # one of REASONS; of a rule that is served alone, "nodes" or None
    detail: str | None = None  # in words, with the node and the number
    state: Any = None  # for the next decision, of a team with memory
    difference: int | None = None  # requests that a shadow would have placed elsewhere


@dataclass(frozen=True)
class Ranges:
    """What nodes were trained with: node -> name of a number -> (lowest, highest)."""

    of: Mapping[str, Mapping[str, tuple[float, float]]]
    neighbours: Mapping[str, frozenset[str]]  # node -> to whom it can forward

    @classmethod
    def seen(cls, about: Mapping[str, Any], margin: float = MARGIN) -> Ranges:
        """Return the ranges of training, as ``about_rules`` of ``corral.trainers.loads.export``
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
        nodes = about["nodes"]
        neighbours = {
            name: frozenset(other for other, linked in zip(nodes, row, strict=True) if linked)
            for name, row in zip(nodes, about["links"], strict=True)
        }
        return cls(ranges, neighbours)

    def outside(self, nodes: Numbers, previous: Numbers | None) -> tuple[str, str] | None:
        """Return a reason, and in words what is outside; None where nothing is."""
        for given in (nodes,) if previous is None else (nodes, previous):
            if given.keys() != self.of.keys():
                return "nodes", other_nodes(given, self.of)
        for given, keys in ((nodes, NOW), (previous or {}, ENDED)):
            for name, numbers in given.items():
                seen = self.of[name]
                for key in keys:
                    low, high = seen[key]
                    value = numbers.get(key, 0)
                    if not low <= value <= high:
                        allowed = f"{max(low, 0):.4g} to {high:.4g}"
                        return key, f"{name}: {key} {value}, not in {allowed}"
        return None


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


class Guard:
    """Lets the ``team`` decide, and the ``rule`` where the team had better not.

    ``counts``: how many decisions the rule made, by reason; ``detail`` of the latest is in the
    answer. The rule is asked for any nodes, and must not fail.
    """

    def __init__(self, team: Decide, rule: Decide, ranges: Ranges) -> None:
        self.team, self.rule, self.ranges = team, rule, ranges
        self.counts: Counter[str] = Counter()

    def decide(self, nodes: Numbers, previous: Numbers | None = None, state: Any = None) -> Answer:
        """Return who forwards how much to whom. Arguments are those of ``Run.decide``.

        A team with memory keeps it where its input is outside of what it knows, and begins anew
        where it failed.
        """
        found = self.asked(nodes, previous, state)
        if found.reason is None:
            return found
        forward, _ = self.rule(nodes, previous, None)
        return replace(found, forward=forward)

    def asked(self, nodes: Numbers, previous: Numbers | None = None, state: Any = None) -> Answer:
        """Return the team's answer; where there is none, an empty one with the reason, counted."""
        outside = self.ranges.outside(nodes, previous)
        if outside is not None:
            return self._refused(*outside, state=state)
        try:
            forward, after = self.team(nodes, previous, state)
        except Exception as error:  # whatever it is, requests wait for an answer
            return self._refused("raised", f"{type(error).__name__}: {error}"[:300])
        wrong = nonsense(forward, nodes, self.ranges.neighbours)
        if wrong is not None:
            return self._refused("nonsense", wrong)
        return Answer(forward, "team", state=after)

    def _refused(self, reason: str, detail: str, state: Any = None) -> Answer:
        self.counts[reason] += 1
        return Answer({}, "rule", reason, detail, state)
