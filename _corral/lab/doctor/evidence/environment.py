"""Paired replays of an environment: same seed and same actions, except in one step.

Any later difference is an effect of the changed actions. No state is copied, so the test works for
any environment with reproducible seeds. It shows which agents an action affects and how soon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, generator
from corral.envs.masks import MASK, split
from corral.errors import CorralError
from corral.lab.doctor.evidence.witness import flat_tree

__all__ = ["Twins", "measured_twins", "twins_of"]

COPIES = 16
"""Number of environment copies."""

BEFORE = (0, 1, 3, 6)
"""Numbers of equal steps before the two replays differ."""

HORIZON = 16
"""Maximum number of steps with equal actions after the step that differs."""


@dataclass(frozen=True)
class Twins:
    """Effects of actions on agents, and their delay. N agents.

    ``reached`` [N, N]: number of cases in which changing the action of agent i alone changed the
    observation or reward of agent j in the same step (``paid``: its reward, ``shown``: its
    observation), of ``moments`` [N]
    cases with a changed action of agent i. ``soon``: number of cases in which changing all agents'
    actions changed an observation in the same step; ``late``: only in the step after.

    ``idle`` [N]: number of cases in which the action of agent i changed nothing for any agent, in
    ``HORIZON`` steps or until the episode's end. ``earned``: number of ``cases`` in which changing
    all agents' actions changed a reward in that time.
    """

    agents: tuple[str, ...]
    reached: Array
    paid: Array
    shown: Array
    moments: Array
    soon: int
    late: int
    idle: Array
    earned: int
    cases: int


def twins_of(make: Callable[[], Any], seed: int = 0) -> Twins | None:
    """Measure the effects of actions in paired replays; None if a seed is not reproducible.

    ``make`` makes a batch of ``COPIES`` environments, the same at each call. Raises ValueError if
    actions are not Discrete.
    """
    agents: list[str] = []
    reached, paid, shown = np.zeros((3, 0, 0))
    moments, idle = np.zeros((2, 0))
    soon = late = earned = cases = 0
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
                reached, paid, shown = np.zeros((3, len(agents), len(agents)))
                moments, idle = np.zeros((2, len(agents)))
            if i is None:
                soon, late = soon + pair.soon, late + pair.late
                earned += int((pair.earned & pair.differ).sum())
                cases += int(pair.differ.sum())
            else:
                moments[i] += pair.differ.sum()
                idle[i] += (pair.differ & ~pair.effect).sum()
                reached[i] += (pair.reached & pair.differ[:, None]).sum(axis=0)
                paid[i] += (pair.paid & pair.differ[:, None]).sum(axis=0)
                shown[i] += (pair.shown & pair.differ[:, None]).sum(axis=0)
    return Twins(tuple(agents), reached, paid, shown, moments, soon, late, idle, earned, cases)


def measured_twins(
    rules: Any, make_batch: Callable[[Any, int, int], Any], seed: int
) -> Twins | None:
    """Measure the effects of actions under ``rules``; None if that is impossible.

    ``make_batch`` is called with the rules, the number of copies and the seed.
    """
    if not all(isinstance(rules.action_space(a), spaces.Discrete) for a in rules.agents):
        return None
    try:
        return twins_of(lambda: make_batch(rules, COPIES, seed), seed)
    except CorralError:
        return None  # already recorded while the trainer played


class _Pair:
    """Two batches with equal actions except in step ``before``.

    In that step agent ``i``, or every agent if None, plays other actions in the second batch.
    """

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
        alternatives = self._drawn(looks[0], actions, chosen)
        acts = np.array(self.batches[0].acting)
        self.differ = ((actions != alternatives) & acts).any(axis=1)
        steps = [
            b.step(item) for b, item in zip(self.batches, (actions, alternatives), strict=True)
        ]
        looks = [step.observations for step in steps]
        changed = self._changed(looks, None)
        self.paid = steps[0].reward != steps[1].reward
        self.shown = changed | self._changed(looks, MASK)
        self.reached = self.shown | self.paid
        self.late = 0
        self.effect = self.reached.any(axis=1) | (steps[0].over != steps[1].over)
        self.earned = self.paid.any(axis=1)
        going = self.differ & ~steps[0].over & ~steps[1].over
        self.soon = int((going & changed.any(axis=1)).sum())
        waits = going & ~changed.any(axis=1)
        for later in range(HORIZON):
            missing = ~self.earned if i is None else ~self.effect
            if later and not (going & missing).any():
                return
            steps = [b.step(self._drawn(look)) for b, look in self._each(looks)]
            looks = [step.observations for step in steps]
            paid = going & (steps[0].reward != steps[1].reward).any(axis=1)
            ends = steps[0].over | steps[1].over
            self.effect |= paid | (going & (steps[0].over != steps[1].over))
            self.earned |= paid
            going &= ~ends
            changed = self._changed(looks, None)
            if later == 0:
                self.late = int((waits & going & changed.any(axis=1)).sum())
            self.effect |= going & (changed | self._changed(looks, MASK)).any(axis=1)

    def _each(self, looks: list[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each batch with its observations, with the same random state for both."""
        state = self.rng.bit_generator.state
        for batch, look in zip(self.batches, looks, strict=True):
            self.rng.bit_generator.state = state
            yield batch, look

    def _drawn(self, look: Any, but: Array | None = None, chosen: Iterable[int] = ()) -> Array:
        """Return random legal actions [B, N].

        With ``but``, return those actions, but different ones for the ``chosen`` agents if they
        have a choice.
        """
        drawn = np.zeros((self.batches[0].num_envs, len(self.agents)), dtype=np.int64)
        if but is not None:
            drawn[...] = but
        for column, agent in enumerate(self.agents):
            if but is not None and column not in chosen:
                continue
            count = int(self.batches[0].rules.action_space(agent).n)
            legal = np.ones((len(drawn), count), dtype=bool)
            if MASK in look[agent]:
                legal = np.asarray(look[agent][MASK]) != 0
            order = self.rng.random(legal.shape) + legal
            if but is not None:
                order[np.arange(len(drawn)), but[:, column]] -= legal.sum(axis=1) > 1
            drawn[:, column] = order.argmax(axis=1)
        return drawn

    def _changed(self, looks: list[Any], key: str | None) -> Array:
        """Return the differences between two observations, bool [B, N]: in masks, or in the
        rest."""
        changed = np.zeros((self.batches[0].num_envs, len(self.agents)), dtype=bool)
        for column, agent in enumerate(self.agents):
            parts = []
            for look in looks:
                seen, mask = split(look[agent])
                parts.append(seen if key is None else mask)
            if parts[0] is not None:
                changed[:, column] = (flat_tree(parts[0]) != flat_tree(parts[1])).any(axis=1)
        return changed
