"""Actions of dfaas_v0 that are offsets to the number of requests that a rule keeps.

A residual policy begins as a rule and learns where to deviate from it. Action 0 is the rule. The
actions 1, 2, 3, 4, ... keep -1, +1, -2, +2, ... units more than the rule.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.amounts import Levels
from corral.envs.dfaas_v0.plain_rules import PlainRule, Seen, plans_of
from corral.envs.dfaas_v0.plans import KEEP_ALL, Plans
from corral.envs.dfaas_v0.routes import UNBOUNDED

__all__ = ["WITHOUT_KEEP", "Residual"]

WITHOUT_KEEP = ("random", "static", "share")
"""Amounts of rules that keep no fixed number of requests."""

MAX_REACH = 100


class Residual(Levels):
    """Offsets -R .. R to the requests that a rule keeps, in the order 0, -1, +1, -2, +2, ...

    Let k be the requests that the rule keeps, and m = c + Q - q the room of the node. Offset 0
    follows the rule. Any other offset o keeps min(max(0, k + o u), m). It is legal if this differs
    from the requests kept by all offsets before it. For a rule that keeps all requests, k is m for
    the other offsets. The largest number, the caps and the route of the rule stay. The unit u is
    the same for all nodes; or, if ``relative``, it is in proportion to the node's own c + Q.

    Raises ValueError for a rule that keeps no fixed number of requests.
    """

    by_room = True

    def __init__(
        self, rule: str, reach: int, most: float, max_level: int, relative: bool = False
    ) -> None:
        """``most``: capacity plus queue limit, the most requests that a node can hold."""
        self.rule = PlainRule.of(rule)
        if self.rule.amount in WITHOUT_KEEP:
            raise ValueError(
                f"residual={rule!r}: {self.rule.amount} keeps no fixed number of requests; give a "
                "rule such as backlog=0.75/least"
            )
        if not 1 <= reach <= MAX_REACH:
            raise ValueError(f"offsets={reach}: give a whole number from 1 to {MAX_REACH}")
        self.reach = reach
        self.most = most
        self.max_level, self.relative = max_level, relative
        self.unit = max(1, math.ceil(most / max_level))
        self.count = 2 * reach + 1
        steps = np.arange(1, reach + 1)
        self.offsets = np.zeros(self.count, dtype=np.int64)  # [A]
        self.offsets[1::2], self.offsets[2::2] = -steps, steps
        self._actions = np.arange(self.count)

    def plans(self, seen: Seen) -> Plans:
        """Return the plans of the rule in the next step."""
        return plans_of([self.rule], seen)

    def units(self, limit: Array) -> Array:
        """Return the requests of a unit: [...] of nodes with ``limit`` = c + Q [...], or []."""
        if not self.relative:
            return np.asarray(self.unit)
        return np.asarray(np.maximum(1, -(-limit // self.max_level)))

    def legal(self, action: Array, keep: Array, room: Array, unit: Array) -> Array:
        """Return whether an ``action`` is legal, bool; all arguments are int64 and broadcast.

        ``keep`` are the requests that the rule keeps, ``room`` is c + Q - q, and ``unit`` comes
        from ``units``.
        """
        offset = self.offsets.take(action)
        base = np.where(keep >= KEEP_ALL, room, keep)
        kept = _limited(base + offset * unit, room)
        # Offsets of one sign keep more and more, or less and less: compare with the one before.
        before = _limited(base + (offset - np.sign(offset)) * unit, room)
        before = np.where(np.abs(offset) == 1, keep, before)
        legal = (offset == 0) | (kept != before)
        # If the rule keeps more than the room, -1 may keep as much as +1.
        return np.asarray(legal & ((offset != 1) | (kept != _limited(base - unit, room))))

    def masks_of(self, keep: Array, room: Array, linked: Array, unit: Array) -> Array:
        """Return masks int8 [B, N, A] for ``keep``, ``room`` [B, N] and ``unit``, as ``legal``.

        ``linked`` bool [N] are the nodes with neighbors; the others have only action 0.
        """
        masks = self.legal(self._actions, keep[..., None], room[..., None], unit[..., None])
        masks = masks.astype(np.int8)
        masks[..., 1:] &= linked[:, None]
        return masks

    def kept(self, action: Array, keep: Array, room: Array, unit: Array) -> Array:
        """Return the requests that nodes keep with ``action``: int64 [B, N]."""
        offset = self.offsets.take(action)
        base = np.where(keep >= KEEP_ALL, room, keep)
        return np.where(offset == 0, keep, _limited(base + offset * unit, room))

    def nearest(
        self, keep: Array, rule_keep: Array, room: Array, mask: Array, unit: Array
    ) -> Array:
        """Return the legal action that keeps the number of requests nearest to ``keep``.

        All are int64 [...]; ``mask`` is [..., A]. A tie goes to the first action.
        """
        kept = self.kept(self._actions, rule_keep[..., None], room[..., None], unit[..., None])
        limit = room[..., None]
        distance = np.abs(np.minimum(kept, limit) - np.minimum(keep[..., None], limit))
        return np.asarray(np.where(mask != 0, distance, UNBOUNDED).argmin(axis=-1))

    def __str__(self) -> str:
        return f"{self.rule} -{self.reach}..{self.reach}"

    # --- Levels ----------------------------------------------------------------------------------

    def highest(self, arrivals: Array) -> Array:
        """Return the last action; ``masks_of`` has the masks."""
        return np.full_like(arrivals, self.count - 1)

    def level(self, requests: Array, arrivals: Array) -> Array:
        raise AssertionError("offsets depend on the rule: see nearest")

    def forwarded(self, level: Array, arrivals: Array, room: Array | None = None) -> Array:
        raise AssertionError("offsets depend on the rule: see kept")

    def said(self) -> tuple[str, Array]:
        return "requests kept beyond the rule", self.offsets * float(self.unit)

    def feature(self, keep: Array) -> Any:
        """Return the kept requests as a share of the most that a node can hold, at most 1."""
        return np.minimum(keep / self.most, 1.0)


def _limited(keep: Array, room: Array) -> Array:
    return np.minimum(np.maximum(keep, 0), room)
