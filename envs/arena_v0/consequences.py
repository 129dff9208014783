"""What follows from the two moves of a step of arena_v0.

Seven facts decide all of it. ``_consequences`` holds the rules, in the order of the manual. It is
asked once, for all 128 combinations of the facts. A step then looks its combination up: this takes
one NumPy call where the rules take some twenty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corral.envs.core import Array

__all__ = ["BITS", "BLOCKER", "CONSEQUENCES", "EXPLORER", "Consequences", "Facts"]

EXPLORER, BLOCKER = 0, 1  # the agents, along axis N

NOTHING, NEW_FIELD, COLLISION = range(3)  # what a step can bring
REWARDS = np.zeros((3, 2), dtype=np.float32)  # [3, N] explorer, blocker; the manual has them too
REWARDS[NOTHING] = -0.5, -0.1
REWARDS[NEW_FIELD] = 1.0, -0.1
REWARDS[COLLISION] = -1.0, 1.0


class Facts(NamedTuple):
    """What decides all that follows, for C combinations: bool [C] each."""

    blocker_first: Array  # the blocker was drawn to move first
    explorer_onto: Array  # the explorer's move leads to the field where the blocker stood
    blocker_onto: Array  # the blocker's leads to the field where the explorer stood
    same_target: Array  # both lead to the same field
    unvisited: Array  # the explorer's leads to a field that it has not entered
    explorer_off: Array  # the explorer's leads off the grid, which is illegal
    blocker_off: Array  # the blocker's does


class Consequences(NamedTuple):
    """What follows from C combinations of facts."""

    collides: Array  # bool [N, C] the agent runs into the other, and stays
    enters: Array  # bool [C] the explorer enters a field for the first time
    reward: Array  # float32 [C, N]
    info: dict[str, Array]  # int64 [C, N] each


def _consequences(facts: Facts) -> Consequences:
    # The agent drawn for this step moves first. It collides if its move leads to the field where
    # the other stands.
    explorer_first = ~facts.blocker_first
    first_collides = np.where(explorer_first, facts.explorer_onto, facts.blocker_onto)
    # Then the other moves. It collides if its move leads to where the first stands by now: on its
    # old field if that collided, else on its target.
    onto_first = np.where(explorer_first, facts.blocker_onto, facts.explorer_onto)
    second_collides = np.where(first_collides, onto_first, facts.same_target)
    # Who collides stays.
    explorer_collides = np.where(explorer_first, first_collides, second_collides)
    blocker_collides = np.where(explorer_first, second_collides, first_collides)

    # The explorer enters its target (its own field, where it bumps into a wall) unless it collides
    # or its move is illegal. A field is new when it is entered for the first time.
    enters = facts.unvisited & ~explorer_collides & ~facts.explorer_off

    # A collision by either decides the rewards, else whether the field was new.
    any_collision = explorer_collides | blocker_collides
    brings = np.where(any_collision, COLLISION, np.where(enters, NEW_FIELD, NOTHING))

    nobody = np.zeros_like(enters)
    info = {
        "new_field": (brings == NEW_FIELD, nobody),
        "fields_visited": (enters, nobody),
        "collision": (explorer_collides, blocker_collides),
        "illegal_actions": (facts.explorer_off, facts.blocker_off),
    }
    return Consequences(
        collides=np.stack([explorer_collides, blocker_collides]),
        enters=enters,
        reward=REWARDS[brings],
        info={key: np.stack(both, axis=1).astype(np.int64) for key, both in info.items()},
    )


BITS = np.array([1 << place for place in range(len(Facts._fields))], dtype=np.uint8)
"""What each fact counts in the number of a combination, the first the least."""

CONSEQUENCES = _consequences(Facts(*((np.arange(1 << len(BITS)) & bit) > 0 for bit in BITS)))
