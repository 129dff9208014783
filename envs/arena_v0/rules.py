"""Rules of arena_v0 as array code; ``corral.envs.arena_v0`` is the manual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.envs.arena_v0.consequences import BITS, BLOCKER, CONSEQUENCES, EXPLORER
from corral.envs.arguments import nonnegative_int, one_of, yes_or_no
from corral.envs.core import ENDLESS, Array, Observation, Outcome, agent_views
from corral.envs.masks import masked_space
from corral.memory import require_memory

__all__ = ["ArenaRules", "ArenaState"]

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # change of row and column for up, right, down, left

OWN_AND_OTHER = np.array(
    [EXPLORER, BLOCKER, BLOCKER, EXPLORER]
)  # the order of positions in both observations
ONE, FOUR = np.array(1), np.array(len(MOVES))  # arrays, because NumPy converts an int slowly


@lru_cache(maxsize=8)
def _begins(num_envs: int, size: int, *offsets: int) -> Array:
    """Return the offset of each environment's ``size`` numbers in a flat array: int64 [B].

    K further ``offsets`` are added to it: [K, B]. The latest arrays are cached for speed.
    """
    begins = np.arange(num_envs) * size
    if offsets:
        begins = begins + np.array(offsets)[:, None]
    begins.flags.writeable = False
    return begins


@dataclass
class ArenaState:
    """State of B environments between two steps. The explorer is agent 0, the blocker agent 1."""

    t: Array  # int64 [B] steps since the start of the episode
    first: Array  # bool [B, max_cycles] True if the blocker moves first in that step
    position: Array  # int64 [B, 2] field number of each agent
    before: Array  # int64 [B, 2] field numbers before the last step, for rendering
    entered: Array  # int32 [B, H W] step of the explorer's first visit; 0: not visited
    score: Array  # float32 [B, 2] sum of rewards so far, for rendering


class ArenaRules:
    """Rules of arena_v0 for B environments; see the manual of the package.

    Args:
        width: number of columns of the grid.
        height: number of rows of the grid. The grid needs at least two fields.
        max_cycles: steps per episode.
        observation: "positions", or "visited" to add the fields visited by the explorer.
        planes: observations of shape [2, height, width], or 3 with "visited".
        walls: effect of a move off the grid. "bump": the agent enters its current field again.
            "mask": the move is illegal.
        illegal: reaction to an action outside the mask: "penalise" or "raise".

    Raises:
        ValueError: an argument is outside its range.
    """

    name = "arena_v0"
    agents: tuple[str, ...] = ("agent_1", "agent_2")
    render_modes = ("human", "ansi", "rgb_array")
    render_fps = 4
    simultaneous = True

    def __init__(
        self,
        width: int = 10,
        height: int = 10,
        *,
        max_cycles: int = 100,
        observation: Literal["positions", "visited"] = "positions",
        planes: bool = False,
        walls: Literal["bump", "mask"] = "bump",
        illegal: Literal["penalise", "raise"] = "penalise",
    ) -> None:
        self.width = nonnegative_int("width", width, least=1)
        self.height = nonnegative_int("height", height, least=1)
        self.max_cycles = nonnegative_int("max_cycles", max_cycles, least=1)
        self.observation = one_of("observation", observation, ("positions", "visited"))
        self.planes = yes_or_no("planes", planes)
        self.walls = one_of("walls", walls, ("bump", "mask"))
        self.illegal = one_of("illegal", illegal, ("penalise", "raise"))
        self.fields = self.width * self.height
        if self.fields < 2:
            raise ValueError(
                f"width={width}, height={height}: two agents need at least 2 fields. Pass a larger "
                "width or height"
            )
        require_memory(  # per field: target and inside; per step: the random numbers of an episode
            {
                f"width={self.width}, height={self.height}": 36 * self.fields,
                f"max_cycles={self.max_cycles}": 9 * self.max_cycles,
            }
        )
        # Target of each move, and whether it stays on the grid: [H W, 4].
        rows, columns = np.divmod(np.arange(self.fields), self.width)
        down, right = np.array(MOVES).T
        row, column = rows[:, None] + down, columns[:, None] + right
        inside = (row >= 0) & (row < self.height) & (column >= 0) & (column < self.width)
        self.target = np.where(inside, row * self.width + column, np.arange(self.fields)[:, None])
        self.inside = inside
        self._target, self._inside = self.target.reshape(-1), inside.reshape(-1)

    def distance(self, one: Array, other: Array) -> Array:
        """Return the number of moves between two fields on an empty grid; arguments broadcast."""
        (row, column), (row_2, column_2) = np.divmod(one, self.width), np.divmod(other, self.width)
        return np.asarray(np.abs(row - row_2) + np.abs(column - column_2))

    @property
    def features(self) -> int:
        """Size of an observation."""
        return (3 if self.observation == "visited" else 2) * self.fields

    @property
    def _shape(self) -> tuple[int, ...]:
        """Shape of an observation."""
        flat = (self.features,)
        return (self.features // self.fields, self.height, self.width) if self.planes else flat

    @property
    def identity(self) -> str:
        """Return a text that is equal for equal rules."""
        return (
            f"{self.name} {self.width}x{self.height}, {self.max_cycles} steps, "
            f"observation {self.observation}{', planes' if self.planes else ''}, walls {self.walls}"
        )

    # --- Spaces ----------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> spaces.Dict:
        return masked_space(spaces.Box(0.0, 1.0, self._shape, np.float32), len(MOVES))

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(len(MOVES))

    def state_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (3 * self.fields,), np.float32)

    # --- An episode ------------------------------------------------------------------------------

    def start(self, rngs: Sequence[np.random.Generator]) -> ArenaState:
        """Start B episodes. Each generator draws the first mover of every step."""
        b = len(rngs)
        drawn = np.empty((b, self.max_cycles or ENDLESS))
        for rng, row in zip(rngs, drawn, strict=True):
            rng.random(out=row)  # a fifth of the time of rng.integers
        return ArenaState(
            t=np.zeros(b, dtype=np.int64),
            first=drawn >= 0.5,
            position=self._corners(b),
            before=self._corners(b),
            entered=np.zeros((b, self.fields), dtype=np.int32),
            score=np.zeros((b, 2), dtype=np.float32),
        )

    def redraw(
        self, state: ArenaState, rngs: Sequence[np.random.Generator], told: bool = False
    ) -> ArenaState:
        """Redraw the first mover of all remaining steps."""
        steps = state.first.shape[1]
        for rng, row, t in zip(rngs, state.first, state.t.tolist(), strict=True):
            row[t % steps :] = rng.random(steps - t % steps) >= 0.5
        return state

    def _corners(self, num_envs: int) -> Array:
        """Return the start fields [B, N]; each agent's values are contiguous, for speed."""
        corners = np.empty((2, num_envs), dtype=np.int64)
        corners[EXPLORER], corners[BLOCKER] = 0, self.fields - 1
        return corners.T

    def observe(self, state: ArenaState) -> dict[str, Observation]:
        b, features = len(state.t), self.features
        flat = np.zeros(b * 2 * features, dtype=np.float32)
        # Own and other one-hot position in the explorer's features, then in the blocker's.
        ones = state.position.T.take(OWN_AND_OTHER, axis=0)  # [4, B]
        ones += _begins(b, 2 * features, 0, self.fields, features, features + self.fields)
        flat[ones] = 1.0
        observation = flat.reshape(b, 2, features)
        if self.observation == "visited":
            observation[..., 2 * self.fields :] = (state.entered > 0)[:, None]
        if self.walls == "mask":
            mask = self.inside.take(state.position, axis=0).view(np.int8)  # [B, 2, 4]
        else:
            mask = np.ones((b, 2, len(MOVES)), dtype=np.int8)
        return agent_views(self.agents, observation.reshape(b, 2, *self._shape), mask)

    def acting(self, state: ArenaState) -> Array:
        return np.ones(state.position.shape, dtype=bool)

    def step(self, state: ArenaState, action: Array) -> Outcome[ArenaState]:
        b = len(action)
        position = state.position.T  # [N, B]
        move = position * FOUR + action.T  # index of the move among all moves from all fields
        target = self._target[move]  # the current field if the move leads off the grid
        field = (
            _begins(b, self.fields) + target[EXPLORER]
        )  # index of the target among the fields of all copies
        entered = state.entered.reshape(-1)  # a view
        entered_at = entered[field]  # 0: never
        steps = state.first.shape[1]  # without a time limit, the drawn numbers repeat
        moment = state.t if steps == self.max_cycles else state.t % steps

        # The facts that determine the step, see ``Facts``.
        facts = np.zeros((len(BITS), b), dtype=bool)
        facts[0] = state.first.reshape(-1)[_begins(b, steps) + moment]  # blocker_first
        np.equal(target, position[::-1], out=facts[1:3])  # explorer_onto, blocker_onto
        np.equal(target[EXPLORER], target[BLOCKER], out=facts[3])  # same_target
        np.logical_not(entered_at, out=facts[4])  # unvisited
        if self.walls == "mask":
            np.logical_not(self._inside[move], out=facts[5:])  # explorer_off, blocker_off
        case = (BITS @ facts.view(np.uint8)).astype(np.int64)  # [B]

        # The result of the step, see ``_consequences``.
        stays = CONSEQUENCES.collides.take(case, axis=1)  # [N, B]
        state.before, state.position = state.position, np.where(stays, position, target).T
        state.t += ONE
        np.copyto(entered_at, state.t, where=CONSEQUENCES.enters[case])
        entered[field] = entered_at
        reward = CONSEQUENCES.reward.take(case, axis=0)
        state.score += reward
        terminated = np.zeros((b, 2), dtype=bool)
        info = {key: table.take(case, axis=0) for key, table in CONSEQUENCES.info.items()}
        return Outcome(state, reward, terminated, info)

    def info(self, state: ArenaState) -> dict[str, Array]:
        return {key: np.zeros_like(state.position) for key in CONSEQUENCES.info}

    def global_state(self, state: ArenaState) -> Array:
        b, f = len(state.t), self.fields
        features = np.zeros((b, 3 * f), dtype=np.float32)
        features[np.arange(b)[:, None], np.add(state.position, (0, f))] = 1.0
        features[:, 2 * f :] = state.entered > 0
        return features

    def render(self, state: ArenaState, info: dict[str, Array], mode: str) -> Any:
        from corral.envs.arena_v0.render import (
            ansi,
            draw,
        )  # imported late: training does not render

        frame = self.frame(state, info)
        return ansi(frame) if mode == "ansi" else draw(frame)

    def frame(self, state: ArenaState, info: dict[str, Array]) -> Any:
        """Return the last step of environment 0 as plain numbers."""
        from corral.envs.arena_v0.render import Frame

        t = int(state.t[0])
        explorer, blocker = (divmod(place, self.width) for place in state.position[0].tolist())
        explorer_was, blocker_was = (
            divmod(place, self.width) for place in state.before[0].tolist()
        )
        return Frame(
            t=t,
            max_cycles=self.max_cycles,
            entered=tuple(map(tuple, state.entered[0].reshape(self.height, self.width).tolist())),
            places=(explorer, blocker),
            before=(explorer_was, blocker_was),
            score=(float(state.score[0, 0]), float(state.score[0, 1])),
            first=int(state.first[0, (t - 1) % state.first.shape[1]]) if t else None,
            collision=(bool(info["collision"][0, 0]), bool(info["collision"][0, 1])),
            new_field=bool(info["new_field"][0, 0]),
        )
