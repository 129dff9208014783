"""A team's memory as text: it travels with requests and answers, so that a server has none.

Hidden states of recurrent networks, reports that come late, and the digest of the team. The text is
read against a fresh memory of the team: the same parts, of the same shapes, all finite and hidden
states in range. The guard checks the reports. The memory of another team, such as this one before
it was trained again, is not read: it restarts.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.loads.export.core import NodeDecider, State
from corral.loads.serve.guard import Decision, Numbers

__all__ = ["MemoryTextError", "Remembering"]


class MemoryTextError(ValueError):
    """A text is no memory of this team."""


class Remembering:
    """A decider that takes its memory as text, and returns it so: a ``Decide`` of ``guard``."""

    def __init__(self, decider: NodeDecider) -> None:
        self.decider = decider
        self.remembers = decider.remembers
        self._fresh = decider.start()

    def __call__(
        self,
        nodes: Numbers,
        previous: Numbers | None,
        state: State | None,
        time: str | None = None,
    ) -> tuple[Decision, State | None]:
        """Return a decision, and the memory after it; None for a team without memory."""
        used = state if self.remembers and state is not None else self._fresh
        if used is self._fresh and self.remembers:
            used = copy.deepcopy(used)
        found = self.decider.decide(nodes, previous, used, time)
        return found, used if self.remembers else None

    def read(self, text: str | None, begins: bool) -> State | None:
        """Return the memory that a request sends; None: as at a start. ``begins``: it says nothing
        of an earlier step. Raises MemoryTextError."""
        if not self.remembers:
            return None
        if text is None:
            if begins:
                return None
            raise MemoryTextError(
                "this team remembers earlier steps: send the state of the last answer again, or "
                "leave out previous to begin anew"
            )
        try:
            told = json.loads(base64.b64decode(text, validate=True))
            t, team = told["t"], told["team"]
            if type(team) is not str or len(team) != len(self._fresh.team):
                raise ValueError(team)
            if team != self._fresh.team:
                other = copy.deepcopy(self._fresh)
                other.team = team  # so that the decision restarts it, and says so
                return other
            parts = [_array(part) for part in told["parts"]]
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            raise MemoryTextError(UNREAD) from None
        fresh = _parts([self._fresh.reports, self._fresh.hidden])
        if type(t) is not int or not 0 <= t <= MOST_STEPS or len(parts) != len(fresh):
            raise MemoryTextError(UNREAD)
        for part, own in zip(parts, fresh, strict=True):
            if part.shape != own.shape or part.dtype != own.dtype or not np.isfinite(part).all():
                raise MemoryTextError(UNREAD)
        rest = iter(parts)
        found = copy.copy(self._fresh)
        found.t = t
        found.reports, found.hidden = _like([self._fresh.reports, self._fresh.hidden], rest)
        if not self.decider.sound(found):
            raise MemoryTextError(UNREAD)
        return found

    def text_of(self, state: State | None) -> str | None:
        """Return a memory as text; of a team that failed, so that there is none, a fresh one."""
        if not self.remembers:
            return None
        state = self._fresh if state is None else state
        parts = [
            {
                "dtype": part.dtype.str,
                "shape": part.shape,
                "data": base64.b64encode(np.ascontiguousarray(part).tobytes()).decode(),
            }
            for part in _parts([state.reports, state.hidden])
        ]
        told = {"t": state.t, "team": state.team, "parts": parts}
        return base64.b64encode(json.dumps(told).encode()).decode()


MOST_STEPS = 2**53
"""Of a memory: more than any gateway lives."""

UNREAD = "this is no state that this team has sent: send the state of the last answer as it came"


def _array(part: Any) -> Any:
    data = base64.b64decode(part["data"], validate=True)
    if part["dtype"] not in ("<f4", "<f8", "<i8"):
        raise ValueError(part["dtype"])
    return np.frombuffer(data, dtype=part["dtype"]).reshape(part["shape"]).copy()


def _parts(tree: Any) -> list[Any]:
    """Return the arrays of a tree of tuples, lists and mappings, in their order."""
    if tree is None:
        return []
    if isinstance(tree, Mapping):
        return [part for key in tree for part in _parts(tree[key])]
    if isinstance(tree, tuple | list):
        return [part for each in tree for part in _parts(each)]
    return [np.asarray(tree)]


def _like(tree: Any, parts: Any) -> Any:
    """Return a tree that is built alike, of the next arrays of ``parts``."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: _like(tree[key], parts) for key in tree}
    if isinstance(tree, tuple | list):
        return type(tree)([_like(each, parts) for each in tree])
    return next(parts)
