"""arena_v0: an explorer that collects new fields, and a blocker that runs into it.

Two agents walk on a grid. The explorer is paid for each field that it enters for the first time,
the blocker for collisions with the explorer. Both choose at once; who moves first is drawn anew in
every step. With its default arguments this is the MultiAgentArena of RLlib's tutorial of 2021.

| | of arena_v0 |
|---|---|
| agents | ``agent_1``, the explorer, begins at row 0, column 0 |
| | ``agent_2``, the blocker, begins in the opposite corner |
| actions | Discrete(4): 0 up, 1 right, 2 down, 3 left |
| action mask | all legal; with ``walls="mask"`` only moves that stay on the grid |
| observation | float32 [2 H W] of 0 and 1: where I am, one-hot, then where the other is, one-hot |
| | with ``observation="visited"`` float32 [3 H W]: also the fields the explorer has been to |
| episode | ``max_cycles`` steps; ends by truncation alone |

H is ``height``, W is ``width``; field number row * W + column.

**A step.** The agent drawn for it moves first, then the other:

1. A move onto the field where the other stands at that moment is a collision: the mover stays.
2. A move off the grid is a bump: with ``walls="bump"`` it enters the field on which it stands.
3. Else the mover enters the field next to its own.

A field is new when the explorer enters it for the first time in the episode. Before the first step
it has entered none, so that a bump at the start finds a new field.

| reward, the first that applies | explorer | blocker |
|---|--:|--:|
| a collision by either in this step | -1 | +1 |
| the explorer entered a new field | +1 | -0.1 |
| else | -0.5 | -0.1 |

A field that is entered in a step with a collision is visited from then on, but pays nothing.

**Global state.** Float32 [3 H W]: explorer one-hot, blocker one-hot, fields visited.

**Info** (0 or 1, of this step, 0 at reset; summed over an episode they count): new_field, a field
that was paid for, and fields_visited, paid or not, both the explorer's only; collision, this agent
ran into the other; illegal_actions.

**Illegal actions** (with ``walls="mask"``) under "penalise" move nobody and enter no field.

Known answers: an explorer that finds a new field in every step gets 1 a step, and the blocker -0.1:
0.9 a step for both is the most there is, 90 in 100 steps. A collision is worth 0 to both together,
a step without anything -0.6. What simple players get is in ``corral.envs.arena_players``; random
play -8.4.

Version history: v0, the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from pettingzoo import AECEnv

from corral.envs.arena_render import Frame, ansi, draw
from corral.envs.arguments import known_arguments, one_of, whole
from corral.envs.core import Array, Observation, Outcome, agent_views
from corral.envs.shells import ParallelShell, checked_aec, ordered

__all__ = ["ArenaRules", "ArenaState", "env", "parallel_env", "raw_env"]

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # rows and columns of up, right, down, left

NOTHING, NEW_FIELD, COLLISION = range(3)  # what a step can bring
REWARDS = np.array(  # [3, N] explorer, blocker
    [[-0.5, -0.1], [1.0, -0.1], [-1.0, 1.0]], dtype=np.float32
)

INFO = ("new_field", "fields_visited", "collision", "illegal_actions")


@dataclass
class ArenaState:
    """B copies of the game between two steps; of two agents the explorer comes first."""

    t: Array  # int64 [B] steps since the episode began
    first: Array  # bool [B, max_cycles] whether the blocker moves first, in each step
    position: Array  # int64 [B, 2] number of the field where each stands
    before: Array  # int64 [B, 2] the same before the last step, kept for pictures
    entered: Array  # int32 [B, H W] step in which the explorer entered a field first; 0: never
    score: Array  # float32 [B, 2] rewards so far, kept for pictures


class ArenaRules:
    """The rules of arena_v0 over B copies; the module's docstring is their manual.

    Args:
        width: columns of the grid.
        height: rows of the grid; it needs at least two fields in all.
        max_cycles: steps of an episode.
        observation: "positions", or "visited": also the fields that the explorer has been to.
        walls: moves off the grid "bump", and enter the field one stands on; or "mask": are illegal.
        illegal: what an action outside the mask does: "penalise" or "raise".

    Raises:
        ValueError: an argument is out of its range.
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
        walls: Literal["bump", "mask"] = "bump",
        illegal: Literal["penalise", "raise"] = "penalise",
    ) -> None:
        self.width = whole("width", width, least=1)
        self.height = whole("height", height, least=1)
        self.max_cycles = whole("max_cycles", max_cycles, least=1)
        self.observation = one_of("observation", observation, ("positions", "visited"))
        self.walls = one_of("walls", walls, ("bump", "mask"))
        self.illegal = one_of("illegal", illegal, ("penalise", "raise"))
        self.fields = self.width * self.height
        if self.fields < 2:
            raise ValueError(
                f"width={width}, height={height}: two agents need 2 fields or more; give a larger "
                "width or height"
            )
        # Where each move leads, and whether it stays on the grid: [H W, 4].
        rows, columns = np.divmod(np.arange(self.fields), self.width)
        down, right = np.array(MOVES).T
        row, column = rows[:, None] + down, columns[:, None] + right
        inside = (row >= 0) & (row < self.height) & (column >= 0) & (column < self.width)
        self.target = np.where(inside, row * self.width + column, np.arange(self.fields)[:, None])
        self.inside = inside
        # Where the ones of an observation stand: own, then other's position, for both agents.
        features = self._features
        self._ones = np.array([0, self.fields, features, features + self.fields])
        self._whose = np.array([0, 1, 1, 0])

    def distance(self, one: Array, other: Array) -> Array:
        """Moves between fields, given by number, on an empty grid; the two are broadcast."""
        (row, column), (row_2, column_2) = np.divmod(one, self.width), np.divmod(other, self.width)
        return np.asarray(np.abs(row - row_2) + np.abs(column - column_2))

    @property
    def _features(self) -> int:
        return (3 if self.observation == "visited" else 2) * self.fields

    @property
    def identity(self) -> str:
        """Equal for rules that play alike."""
        return (
            f"{self.name} {self.width}x{self.height}, {self.max_cycles} steps, "
            f"observation {self.observation}, walls {self.walls}"
        )

    # --- Spaces ----------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> gymnasium.spaces.Dict:
        return gymnasium.spaces.Dict(
            {
                "observation": gymnasium.spaces.Box(0.0, 1.0, (self._features,), np.float32),
                "action_mask": gymnasium.spaces.Box(0, 1, (len(MOVES),), np.int8),
            }
        )

    def action_space(self, agent: str) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(len(MOVES))

    def state_space(self) -> gymnasium.spaces.Box:
        return gymnasium.spaces.Box(0.0, 1.0, (3 * self.fields,), np.float32)

    # --- An episode ------------------------------------------------------------------------------

    def start(self, rngs: Sequence[np.random.Generator]) -> ArenaState:
        """Fresh episodes; each generator draws a number of [0, 1) per step: who moves first."""
        b = len(rngs)
        drawn = np.empty((b, self.max_cycles))
        for rng, row in zip(rngs, drawn, strict=True):
            rng.random(out=row)  # a fifth of the time of rng.integers
        corners = np.array([0, self.fields - 1], dtype=np.int64)
        return ArenaState(
            t=np.zeros(b, dtype=np.int64),
            first=drawn >= 0.5,
            position=np.tile(corners, (b, 1)),
            before=np.tile(corners, (b, 1)),
            entered=np.zeros((b, self.fields), dtype=np.int32),
            score=np.zeros((b, 2), dtype=np.float32),
        )

    def observe(self, state: ArenaState) -> dict[str, Observation]:
        b, features = len(state.t), self._features
        seen = np.zeros((b, 2, features), dtype=np.float32)
        ones = state.position.take(self._whose, axis=1)  # [B, 4] own, other; own, other
        ones += self._ones
        ones += np.arange(0, 2 * b * features, 2 * features)[:, None]
        seen.reshape(-1)[ones] = 1.0
        if self.observation == "visited":
            seen[..., 2 * self.fields :] = (state.entered > 0)[:, None]
        if self.walls == "mask":
            masks = self.inside.take(state.position, axis=0).view(np.int8)  # [B, 2, 4]
        else:
            masks = np.ones((b, 2, len(MOVES)), dtype=np.int8)
        return agent_views(self.agents, observation=seen, action_mask=masks)

    def acting(self, state: ArenaState) -> Array:
        return np.ones(state.position.shape, dtype=bool)

    def step(self, state: ArenaState, action: Array) -> Outcome[ArenaState]:
        rows = np.arange(len(action))
        before = state.position
        chosen = before * len(MOVES) + action
        target = self.target.take(chosen)  # [B, 2]; the own field where a move leads off the grid

        # Who moves first collides with the other where it stood. So does who moves second, if a
        # collision stopped the first; else it collides with the other where that has gone.
        blocker_first = state.first[rows, state.t]  # [B]
        explorer_onto = target[:, 0] == before[:, 1]
        blocker_onto = target[:, 1] == before[:, 0]
        clash = target[:, 0] == target[:, 1]
        collided = np.empty(action.shape, dtype=bool)
        collided[:, 0] = np.where(blocker_first & ~blocker_onto, clash, explorer_onto)
        collided[:, 1] = np.where(blocker_first | explorer_onto, blocker_onto, clash)
        position = np.where(collided, before, target)

        info = np.zeros((len(INFO), *action.shape), dtype=np.int64)
        new_field, fields_visited, collision, illegal_actions = info
        place = rows * self.fields + position[:, 0]
        entered = state.entered.reshape(-1)  # a view
        seen = entered.take(place)
        fresh = (seen == 0) & ~collided[:, 0]
        if self.walls == "mask":
            legal = self.inside.take(chosen)
            fresh &= legal[:, 0]
            illegal_actions[...] = ~legal
        outcome = np.where(collided[:, 0] | collided[:, 1], COLLISION, fresh)  # [B] see REWARDS
        reward = REWARDS.take(outcome, axis=0)

        new_field[:, 0] = outcome == NEW_FIELD
        fields_visited[:, 0] = fresh
        collision[...] = collided
        state.t += 1
        state.before, state.position = before, position
        entered[place] = np.where(fresh, state.t, seen)
        state.score += reward
        terminated = np.zeros(action.shape, dtype=bool)
        return Outcome(state, reward, terminated, dict(zip(INFO, info, strict=True)))

    def info(self, state: ArenaState) -> dict[str, Array]:
        return {key: np.zeros_like(state.position) for key in INFO}

    def global_state(self, state: ArenaState) -> Array:
        b, f = len(state.t), self.fields
        seen = np.zeros((b, 3 * f), dtype=np.float32)
        seen[np.arange(b)[:, None], np.add(state.position, (0, f))] = 1.0
        seen[:, 2 * f :] = state.entered > 0
        return seen

    def render(self, state: ArenaState, info: dict[str, Array], mode: str) -> Any:
        frame = self.frame(state, info)
        return ansi(frame) if mode == "ansi" else draw(frame)

    def frame(self, state: ArenaState, info: dict[str, Array]) -> Frame:
        """The last step of copy 0 in plain numbers."""
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
            first=int(state.first[0, t - 1]) if t else None,
            collision=(bool(info["collision"][0, 0]), bool(info["collision"][0, 1])),
            new_field=bool(info["new_field"][0, 0]),
        )


# --- PettingZoo ----------------------------------------------------------------------------------


def parallel_env(render_mode: str | None = None, **kwargs: Any) -> ParallelShell:
    """arena_v0 as a PettingZoo ParallelEnv; arguments as for ``ArenaRules``."""
    known_arguments(ArenaRules, kwargs)
    return ParallelShell(ArenaRules(**kwargs), render_mode)


def raw_env(render_mode: str | None = None, **kwargs: Any) -> AECEnv:
    """arena_v0 as a PettingZoo AECEnv, without the wrapper that checks the order of calls."""
    return checked_aec(parallel_env(render_mode, **kwargs))


def env(render_mode: str | None = None, **kwargs: Any) -> AECEnv:
    """arena_v0 as a PettingZoo AECEnv; arguments as for ``ArenaRules``."""
    return ordered(raw_env(render_mode, **kwargs))
