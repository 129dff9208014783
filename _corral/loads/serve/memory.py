"""A team's memory as text: it travels with requests and responses, so the server stores none.

The text has the hidden states of recurrent networks, delayed reports, and the digest of the team.
When it is read, it must match a fresh memory of the team: the same parts with the same shapes, all
finite, and hidden states in range. The guard checks the reports. The memory of another team, such
as an earlier training of this one, is not used: the memory restarts.
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
    """A text is not a memory of this team."""


class Remembering:
    """A decider that reads and returns its memory as text: a ``Decide`` of ``guard``."""

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
        decision = self.decider.decide(nodes, previous, used, time)
        return decision, used if self.remembers else None

    def read(self, text: str | None, begins: bool) -> State | None:
        """Return the memory in a request; None: a fresh one. ``begins``: the request has no data of
        an earlier step. Raises MemoryTextError."""
        if not self.remembers:
            return None
        if text is None:
            if begins:
                return None
            raise MemoryTextError(
                "this team remembers earlier steps: send back state from the previous response, or "
                "omit previous to start again"
            )
        try:
            content = json.loads(base64.b64decode(text, validate=True))
            t, team = content["t"], content["team"]
            if type(team) is not str or len(team) != len(self._fresh.team):
                raise ValueError(team)
            if team != self._fresh.team:
                other = copy.deepcopy(self._fresh)
                other.team = team  # so that the decision restarts the memory, and reports it
                return other
            parts = [_array(part) for part in content["parts"]]
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            raise MemoryTextError(UNREAD) from None
        fresh = _parts([self._fresh.reports, self._fresh.hidden])
        if type(t) is not int or not 0 <= t <= MAX_STEPS or len(parts) != len(fresh):
            raise MemoryTextError(UNREAD)
        for part, fresh_part in zip(parts, fresh, strict=True):
            if (
                part.shape != fresh_part.shape
                or part.dtype != fresh_part.dtype
                or not np.isfinite(part).all()
            ):
                raise MemoryTextError(UNREAD)
        remaining = iter(parts)
        state = copy.copy(self._fresh)
        state.t = t
        state.reports, state.hidden = _like([self._fresh.reports, self._fresh.hidden], remaining)
        if not self.decider.sound(state):
            raise MemoryTextError(UNREAD)
        return state

    def text_of(self, state: State | None) -> str | None:
        """Return a memory as text; a fresh one after a failure of the team."""
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
        content = {"t": state.t, "team": state.team, "parts": parts}
        return base64.b64encode(json.dumps(content).encode()).decode()


MAX_STEPS = 2**53
"""Maximum step number in a memory: beyond the lifetime of any gateway."""

UNREAD = "unknown state: send back state from the previous response, unchanged"


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
        return [part for branch in tree for part in _parts(branch)]
    return [np.asarray(tree)]


def _like(tree: Any, parts: Any) -> Any:
    """Return a tree with the structure of ``tree`` and the next arrays of ``parts``."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: _like(tree[key], parts) for key in tree}
    if isinstance(tree, tuple | list):
        return type(tree)([_like(branch, parts) for branch in tree])
    return next(parts)
