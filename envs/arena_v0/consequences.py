"""Table of the consequences of two moves in a step of arena_v0.

Seven boolean facts determine the result of a step. ``_consequences`` holds the rules, in the order
of the manual. It is called once, for all 128 combinations of the facts. A step then looks up its
combination in the table: one NumPy call instead of about twenty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corral.envs.core import Array

__all__ = ["BITS", "BLOCKER", "CONSEQUENCES", "EXPLORER", "Consequences", "Facts"]

EXPLORER, BLOCKER = 0, 1  # the agents, along axis N

NOTHING, NEW_FIELD, COLLISION = range(3)  # the result of a step
REWARDS = np.zeros((3, 2), dtype=np.float32)  # [3, N] explorer, blocker; as in the manual
REWARDS[NOTHING] = -0.5, -0.1
REWARDS[NEW_FIELD] = 1.0, -0.1
REWARDS[COLLISION] = -1.0, 1.0


class Facts(NamedTuple):
    """The facts that determine a step, for C combinations: each bool [C]."""

    blocker_first: Array  # the blocker was drawn to move first
    explorer_onto: Array  # the explorer's move leads to the field where the blocker stood
    blocker_onto: Array  # the blocker's move leads to the field where the explorer stood
    same_target: Array  # both moves lead to the same field
    unvisited: Array  # the explorer's move leads to a field that it has not entered
    explorer_off: Array  # the explorer's move leads off the grid, which is illegal
    blocker_off: Array  # the blocker's move leads off the grid, which is illegal


class Consequences(NamedTuple):
    """The result of a step, for C combinations of facts."""

    collides: Array  # bool [N, C] the agent runs into the other agent, and stays
    enters: Array  # bool [C] the explorer enters a field for the first time
    reward: Array  # float32 [C, N]
    info: dict[str, Array]  # int64 [C, N] per key


def _consequences(facts: Facts) -> Consequences:
    # The agent that was drawn moves first. It collides if its target is the field of the other
    # agent.
    explorer_first = ~facts.blocker_first
    first_collides = np.where(explorer_first, facts.explorer_onto, facts.blocker_onto)
    # Then the other agent moves. It collides if its target is the current field of the first
    # mover: the old field of the first mover if that collided, otherwise its target.
    onto_first = np.where(explorer_first, facts.blocker_onto, facts.explorer_onto)
    second_collides = np.where(first_collides, onto_first, facts.same_target)
    # An agent that collides stays.
    explorer_collides = np.where(explorer_first, first_collides, second_collides)
    blocker_collides = np.where(explorer_first, second_collides, first_collides)

    # The explorer enters its target field unless it collides or its move is illegal. After a bump
    # the target is its current field. A field is new when it is entered for the first time.
    enters = facts.unvisited & ~explorer_collides & ~facts.explorer_off

    # A collision by either agent decides the rewards; otherwise a new field does.
    any_collision = explorer_collides | blocker_collides
    result = np.where(any_collision, COLLISION, np.where(enters, NEW_FIELD, NOTHING))

    never = np.zeros_like(enters)
    info = {
        "new_field": (result == NEW_FIELD, never),
        "fields_visited": (enters, never),
        "collision": (explorer_collides, blocker_collides),
        "illegal_actions": (facts.explorer_off, facts.blocker_off),
    }
    return Consequences(
        collides=np.stack([explorer_collides, blocker_collides]),
        enters=enters,
        reward=REWARDS[result],
        info={key: np.stack(both, axis=1).astype(np.int64) for key, both in info.items()},
    )


BITS = np.array([1 << place for place in range(len(Facts._fields))], dtype=np.uint8)
"""Weight of each fact in the index of a combination; the first fact has weight 1."""

CONSEQUENCES = _consequences(Facts(*((np.arange(1 << len(BITS)) & bit) > 0 for bit in BITS)))
