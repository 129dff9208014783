"""Twins of an environment: the same seed and the same actions, but for one step's.

What then differs is what those actions did; no state has to be copied, so that this is asked of any
environment that a seed repeats. It tells whose actions reach whom, and how soon they are observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array, generator
from corral.envs.masks import MASK, split
from corral.lab.doctor.evidence.witness import flat_tree

__all__ = ["Twins", "twins_of"]

COPIES = 16
"""Environments side by side."""

BEFORE = (0, 1, 3, 6)
"""Steps that both play alike before they differ."""


@dataclass(frozen=True)
class Twins:
    """Whom actions reach, and when. N agents.

    ``reached`` [N, N]: moments at which another action of agent i alone changed in the same step
    what agent j observes or is paid (``paid``: is paid), of ``moments`` [N] at which i played
    another. ``soon``: how often other actions of all changed at once what somebody observes;
    ``late``: only in the step after.
    """

    agents: tuple[str, ...]
    reached: Array
    paid: Array
    moments: Array
    soon: int
    late: int


def twins_of(make: Callable[[], Any], seed: int = 0) -> Twins | None:
    """Return what twins of a batch tell; None where a seed does not repeat its episodes.

    ``make`` makes a batch of ``COPIES`` environments, each time the same. Raises ValueError where
    actions are not Discrete.
    """
    agents: list[str] = []
    reached, paid, moments = np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0)
    soon = late = 0
    for before in BEFORE:
        who: list[int | None] = [None, *range(len(agents))]
        while who:
            i = who.pop(0)
            pair = _Pair(make(), make(), before, i, seed)
            if not pair.alike:
                return None
            if not agents:
                agents = pair.agents
                who = list(range(len(agents)))
                reached, paid = np.zeros((2, len(agents), len(agents)))
                moments = np.zeros(len(agents))
            if i is None:
                soon, late = soon + pair.soon, late + pair.late
            else:
                moments[i] += pair.differ.sum()
                reached[i] += (pair.reached & pair.differ[:, None]).sum(axis=0)
                paid[i] += (pair.paid & pair.differ[:, None]).sum(axis=0)
    return Twins(tuple(agents), reached, paid, moments, soon, late)


class _Pair:
    """Two batches that play alike for ``before`` steps; then agent ``i``, or all (None), play
    other actions in the second, and then both play alike again."""

    def __init__(self, first: Any, second: Any, before: int, i: int | None, seed: int) -> None:
        self.batches = first, second
        self.agents = list(first.agents)
        self.rng = generator(seed, "eval", before)
        try:
            self._play(before, i)
        finally:
            for batch in self.batches:
                batch.close()

    def _play(self, before: int, i: int | None) -> None:
        looks = [batch.reset() for batch in self.batches]
        for _ in range(before):
            actions = self._drawn(looks[0])
            looks = [batch.step(actions).observations for batch in self.batches]
        self.alike = not (self._changed(looks, MASK) | self._changed(looks, None)).any()
        if not self.alike:
            return
        actions = self._drawn(looks[0])
        chosen = range(len(self.agents)) if i is None else [i]
        others = self._drawn(looks[0], actions, chosen)
        acts = np.array(self.batches[0].acting)
        self.differ = ((actions != others) & acts).any(axis=1)
        steps = [b.step(each) for b, each in zip(self.batches, (actions, others), strict=True)]
        looks = [step.observations for step in steps]
        changed = self._changed(looks, None)
        self.paid = steps[0].reward != steps[1].reward
        self.reached = changed | self._changed(looks, MASK) | self.paid
        going = self.differ & ~steps[0].over & ~steps[1].over
        self.soon = int((going & changed.any(axis=1)).sum())
        waits = going & ~changed.any(axis=1)
        steps = [b.step(self._drawn(look)) for b, look in self._each(looks)]
        looks = [step.observations for step in steps]
        waits &= ~steps[0].over & ~steps[1].over
        self.late = int((waits & self._changed(looks, None).any(axis=1)).sum())

    def _each(self, looks: list[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each batch and what is observed in it; both draw the same numbers."""
        state = self.rng.bit_generator.state
        for batch, look in zip(self.batches, looks, strict=True):
            self.rng.bit_generator.state = state
            yield batch, look

    def _drawn(self, look: Any, but: Array | None = None, chosen: Iterable[int] = ()) -> Array:
        """Return random legal actions [B, N]; with ``but``: those, and of the ``chosen`` agents
        others, where they have a choice."""
        found = np.zeros((self.batches[0].num_envs, len(self.agents)), dtype=np.int64)
        if but is not None:
            found[...] = but
        for column, agent in enumerate(self.agents):
            if but is not None and column not in chosen:
                continue
            count = int(self.batches[0].rules.action_space(agent).n)
            legal = np.ones((len(found), count), dtype=bool)
            if MASK in look[agent]:
                legal = np.asarray(look[agent][MASK]) != 0
            order = self.rng.random(legal.shape) + legal
            if but is not None:
                order[np.arange(len(found)), but[:, column]] -= legal.sum(axis=1) > 1
            found[:, column] = order.argmax(axis=1)
        return found

    def _changed(self, looks: list[Any], key: str | None) -> Array:
        """Tell what differs between two observations: bool [B, N]. Of masks, or of all else."""
        found = np.zeros((self.batches[0].num_envs, len(self.agents)), dtype=bool)
        for column, agent in enumerate(self.agents):
            parts = []
            for look in looks:
                seen, mask = split(look[agent])
                parts.append(seen if key is None else mask)
            if parts[0] is not None:
                found[:, column] = (flat_tree(parts[0]) != flat_tree(parts[1])).any(axis=1)
        return found
