"""Reference players of arena_v0, as opponents or as a benchmark for a learned team.

A pair of players is written explorer/blocker: "nearest/still", "random/random", ...

| explorer | move in each step |
|---|---|
| random | a uniformly random legal move |
| nearest | towards the nearest unvisited field; avoids the blocker's field if possible |

| blocker | move in each step |
|---|---|
| random | a uniformly random legal move |
| still | bumps into its wall; with masked walls it moves back and forth |
| chase | the shortest way to the explorer |

Returns per episode of the default game. The walls columns show the mean and the 95 % interval of
the team return (``corral.trainers.evaluation.episodes.evaluate_team`` with num_envs=256 and seed 0;
4096 episodes with the random explorer, 512 with the nearest explorer). The maximum is 90. Against a
blocker that never leaves its corner the maximum is 88.5.

| pair | walls="bump" | explorer | blocker | walls="mask" |
|---|--:|--:|--:|--:|
| random/random | -8.40 (-8.78 to -8.02) | 0.62 | -9.02 | -3.63 (-4.00 to -3.27) |
| random/still | -8.33 (-8.71 to -7.95) | 1.51 | -9.83 | -3.65 (-4.01 to -3.28) |
| random/chase | 3.76 (3.49 to 4.03) | -31.20 | 34.96 | 5.99 (5.71 to 6.28) |
| nearest/random | 87.42 (87.21 to 87.63) | 95.78 | -8.37 | 87.21 (86.98 to 87.44) |
| nearest/still | 88.50 | 98.50 | -10.00 | 87.48 (87.46 to 87.51) |
| nearest/chase | 65.80 (63.81 to 67.71) | 48.24 | 17.56 | 74.71 (74.26 to 75.12) |

If several fields are equally near, the explorer prefers the field with the fewest open fields
around it (Warnsdorff's rule for knight's tours, 1823), so that it leaves no islands. All players
read only their observation, like a network. The nearest explorer remembers the visited fields in
``Decision.state``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from corral.envs.arena_v0.rules import ArenaRules
from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, OBSERVATION, greedy
from corral.envs.policy import Decision, Heuristic, Policy, PolicyBase
from corral.envs.reference import Makers, reference_player
from corral.errors import UnknownNameError

__all__ = [
    "BLOCKERS",
    "EXPLORERS",
    "PAIRS",
    "Chase",
    "Nearest",
    "Still",
    "arena_team",
    "players_of",
    "teams_of",
]

FAR = 10**6  # larger than any distance on a grid


class Memory(NamedTuple):
    """Recurrent state of the nearest explorer in B episodes."""

    visited: Array  # bool [B, H W]
    aim: Array  # int64 [B] target field of the last move; -1 before the first move


class Still(Heuristic):
    """A blocker that stays on its field if the mask allows it."""

    def __init__(self, rules: ArenaRules) -> None:
        self.rules = rules

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        own, _, targets = _positions_and_targets(self.rules, observation)
        return _cheapest(self.rules.distance(targets, own[:, None]), observation)


class Chase(Heuristic):
    """A blocker that takes the shortest way to the explorer."""

    def __init__(self, rules: ArenaRules) -> None:
        self.rules = rules

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        _, other, targets = _positions_and_targets(self.rules, observation)
        return _cheapest(self.rules.distance(targets, other[:, None]), observation)


class Nearest(PolicyBase):
    """An explorer that goes to the nearest unvisited field."""

    def __init__(self, rules: ArenaRules) -> None:
        self.rules = rules

    def initial_state(self, num_envs: int) -> Memory:
        visited = np.zeros((num_envs, self.rules.fields), dtype=bool)
        return Memory(visited, np.full(num_envs, -1, dtype=np.int64))

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        own, other, targets = _positions_and_targets(self.rules, observation)
        rows = np.arange(len(own))
        hidden = self.initial_state(len(own)) if state is None else state
        visited = np.array(hidden.visited)
        # An explorer on its target field has entered it; after a collision it is elsewhere.
        visited[rows, own] |= hidden.aim == own
        closed = visited.copy()
        closed[rows, other] = True  # the blocker's field is no target

        fields = np.arange(self.rules.fields)
        distance = self.rules.distance(targets[..., None], fields)  # [B, 4, H W]
        distance = np.where(closed[:, None], FAR, distance).min(axis=2)  # [B, 4]
        beyond = self.rules.target[targets]  # [B, 4, 4] fields adjacent to the targets
        is_open = ~closed[rows[:, None, None], beyond] & (beyond != targets[..., None])
        cost = 8 * distance + is_open.sum(axis=2) + FAR * 8 * (targets == other[:, None])
        action = _cheapest(cost, observation)
        return Decision(action, Memory(visited, targets[rows, action]))


EXPLORERS: Makers = {"nearest": Nearest}
BLOCKERS: Makers = {"still": Still, "chase": Chase}

PAIRS = tuple(
    f"{explorer}/{blocker}"
    for explorer in ("random", *EXPLORERS)
    for blocker in ("random", *BLOCKERS)
)


def players_of(rules: ArenaRules, agent: str) -> Makers:
    return EXPLORERS if agent == rules.agents[0] else BLOCKERS


def teams_of(rules: ArenaRules) -> dict[str, dict[str, Policy]]:
    """Return all pairs except random/random, by name."""
    return {pair: arena_team(pair, rules) for pair in PAIRS if pair != "random/random"}


def arena_team(pair: str, rules: ArenaRules) -> dict[str, Policy]:
    """Return the players of a pair, for example "nearest/still", by agent.

    Raises UnknownNameError, which suggests the closest valid name.
    """
    chosen = pair.strip()
    if chosen not in PAIRS:
        raise UnknownNameError.of("pair of players", pair, PAIRS)
    pairs = zip(rules.agents, chosen.split("/"), strict=True)
    return {agent: reference_player(name, rules, agent) for agent, name in pairs}


def _positions_and_targets(
    rules: ArenaRules, observation: Observation
) -> tuple[Array, Array, Array]:
    """Return own field [B], the other agent's field [B], and the target of each move [B, 4]."""
    features = np.reshape(observation[OBSERVATION], (-1, rules.features))
    own = features[:, : rules.fields].argmax(axis=1)
    other = features[:, rules.fields : 2 * rules.fields].argmax(axis=1)
    return own, other, rules.target[own]


def _cheapest(cost: Array, observation: Observation) -> Array:
    """Return the first legal move of minimal ``cost`` [B, 4]: int64 [B], or a scalar."""
    mask = np.asarray(observation[MASK])
    return greedy(-cost.reshape(mask.shape), mask)
