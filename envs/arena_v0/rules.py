"""The rules of arena_v0 as array code; ``corral.envs.arena_v0`` is their manual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import spaces

from corral.envs.arena_v0.render import Frame, ansi, draw
from corral.envs.arguments import nonnegative_int, one_of
from corral.envs.core import Array, Observation, Outcome, agent_views
from corral.envs.masks import masked_space
from corral.envs.policy import Policy

__all__ = ["ArenaRules", "ArenaState"]

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # rows and columns of up, right, down, left

NOTHING, NEW_FIELD, COLLISION = range(3)  # what a step can bring
REWARDS = np.array(  # [3, N] explorer, blocker
    [[-0.5, -0.1], [1.0, -0.1], [-1.0, 1.0]], dtype=np.float32
)

INFO = ("new_field", "fields_visited", "collision", "illegal_actions")

# Seven yes-or-no facts about two moves decide all that follows from them. As the bits of a number,
# the first the lowest, they name one of 128 cases.
FACTS = (
    "explorer_onto",  # the explorer's move leads onto the field where the blocker stood
    "blocker_onto",  # the blocker's onto the explorer's
    "clash",  # both lead onto the same field
    "blocker_first",  # the blocker moves first
    "unvisited",  # the explorer's leads onto a field that it never entered
    "explorer_off",  # the explorer's leads off the grid, and is illegal
    "blocker_off",  # the blocker's is
)
BITS = np.array([1 << place for place in range(len(FACTS))], dtype=np.uint8)


@dataclass(frozen=True)
class Cases:
    """What follows from each of the C cases; agents N: explorer, blocker."""

    stays: Array  # bool [N, C] ran into the other
    enters: Array  # bool [C] the explorer enters a field for the first time
    reward: Array  # float32 [C, N]
    info: Array  # int64 [len(INFO), C, N]


def _what_follows() -> Cases:
    """The rules of a step, case by case."""
    cases = np.arange(1 << len(FACTS))
    facts = dict(zip(FACTS, (cases >> place & 1 > 0 for place in range(len(FACTS))), strict=True))
    explorer_onto, blocker_onto, clash = (facts[name] for name in FACTS[:3])

    # Who moves first collides with the other where it stood. So does who moves second, if a
    # collision stopped the first; else it collides with the other where that has gone.
    explorer_stays = np.where(facts["blocker_first"] & ~blocker_onto, clash, explorer_onto)
    blocker_stays = np.where(facts["blocker_first"] | explorer_onto, blocker_onto, clash)
    stays = np.stack([explorer_stays, blocker_stays])

    enters = facts["unvisited"] & ~explorer_stays & ~facts["explorer_off"]
    outcome = np.where(stays.any(axis=0), COLLISION, np.where(enters, NEW_FIELD, NOTHING))
    nobody = np.zeros_like(enters)
    info = {
        "new_field": (outcome == NEW_FIELD, nobody),
        "fields_visited": (enters, nobody),
        "collision": (explorer_stays, blocker_stays),
        "illegal_actions": (facts["explorer_off"], facts["blocker_off"]),
    }
    table = np.array([info[key] for key in INFO], dtype=np.int64)  # [len(INFO), N, C]
    return Cases(stays, enters, REWARDS[outcome], table.transpose(0, 2, 1).copy())


CASES = _what_follows()

OWN_AND_OTHER = np.array([0, 1, 1, 0])  # whose positions are shown: to the explorer, the blocker
ONE, FOUR = np.array(1), np.array(len(MOVES))  # arrays spare NumPy the conversion in each step


class Offsets(NamedTuple):
    """Where the part of each copy begins in flat views of arrays [B, ...]."""

    field: Array  # int64 [B] in ``entered``
    moment: Array  # int64 [B] in ``first``
    ones: Array  # int64 [4, B] in the observations: own and other's position, for both agents


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
    """The rules of arena_v0 over B copies; see the manual of the package.

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
        self.width = nonnegative_int("width", width, least=1)
        self.height = nonnegative_int("height", height, least=1)
        self.max_cycles = nonnegative_int("max_cycles", max_cycles, least=1)
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
        self._target, self._inside = self.target.reshape(-1), inside.reshape(-1)
        self._offsets = self._offsets_of(1)

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

    def teams(self) -> dict[str, dict[str, Policy]]:
        """Return its reference teams by name, see ``corral.envs.arena_v0.baselines``."""
        from corral.envs.arena_v0.baselines import teams_of  # which imports this module

        return teams_of(self)

    # --- Spaces ----------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> spaces.Dict:
        return masked_space(spaces.Box(0.0, 1.0, (self._features,), np.float32), len(MOVES))

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(len(MOVES))

    def state_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (3 * self.fields,), np.float32)

    # --- An episode ------------------------------------------------------------------------------

    def start(self, rngs: Sequence[np.random.Generator]) -> ArenaState:
        """Fresh episodes; each generator draws a number of [0, 1) per step: who moves first."""
        b = len(rngs)
        drawn = np.empty((b, self.max_cycles))
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

    def _corners(self, num_envs: int) -> Array:
        """Where both begin, [B, N]; each agent's numbers lie side by side, for speed."""
        corners = np.empty((2, num_envs), dtype=np.int64)
        corners[0], corners[1] = 0, self.fields - 1
        return corners.T

    def observe(self, state: ArenaState) -> dict[str, Observation]:
        b, features = len(state.t), self._features
        flat = np.zeros(2 * features * b, dtype=np.float32)
        ones = state.position.T.take(OWN_AND_OTHER, axis=0)  # [4, B]
        ones += self._within(b).ones
        flat[ones] = 1.0
        seen = flat.reshape(b, 2, features)
        if self.observation == "visited":
            seen[..., 2 * self.fields :] = (state.entered > 0)[:, None]
        if self.walls == "mask":
            masks = self.inside.take(state.position, axis=0).view(np.int8)  # [B, 2, 4]
        else:
            masks = np.ones((b, 2, len(MOVES)), dtype=np.int8)
        return agent_views(self.agents, seen, masks)

    def acting(self, state: ArenaState) -> Array:
        return np.ones(state.position.shape, dtype=bool)

    def step(self, state: ArenaState, action: Array) -> Outcome[ArenaState]:
        b = len(action)
        offsets = self._within(b)
        before = state.position.T  # [N, B]
        chosen = before * FOUR
        chosen += action.T
        target = self._target[chosen]  # the own field where a move leads off the grid
        place = offsets.field + target[0]
        entered = state.entered.reshape(-1)  # a view
        when = entered[place]

        facts = np.zeros((len(FACTS), b), dtype=bool)
        np.equal(target, before[::-1], out=facts[:2])
        np.equal(target[0], target[1], out=facts[2])
        facts[3] = state.first.reshape(-1)[offsets.moment + state.t]
        np.logical_not(when, out=facts[4])
        if self.walls == "mask":
            np.logical_not(self._inside[chosen], out=facts[5:])
        case = (BITS @ facts.view(np.uint8)).astype(np.int64)  # [B]

        position = np.where(CASES.stays.take(case, axis=1), before, target)
        reward = CASES.reward.take(case, axis=0)
        info = CASES.info.take(case, axis=1)
        state.t += ONE
        state.score += reward
        state.before, state.position = state.position, position.T
        np.copyto(when, state.t, where=CASES.enters[case])
        entered[place] = when
        terminated = np.zeros((b, 2), dtype=bool)
        return Outcome(state, reward, terminated, dict(zip(INFO, info, strict=True)))

    def _within(self, num_envs: int) -> Offsets:
        """The offsets for so many copies; those for the most copies so far are kept."""
        if num_envs > len(self._offsets.field):
            self._offsets = self._offsets_of(num_envs)
        field, moment, ones = self._offsets
        if num_envs == len(field):
            return self._offsets
        return Offsets(field[:num_envs], moment[:num_envs], ones[:, :num_envs])

    def _offsets_of(self, num_envs: int) -> Offsets:
        rows, fields, features = np.arange(num_envs), self.fields, self._features
        parts = np.array([0, fields, features, features + fields])[:, None]  # own, other, twice
        return Offsets(rows * fields, rows * self.max_cycles, rows * 2 * features + parts)

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
