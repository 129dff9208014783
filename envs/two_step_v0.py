"""two_step_v0: agent_0 chooses a matrix game, then both play it; 7 is safe, coordination pays 8.

In the first step the action of agent_0 chooses the game of the second step: 0 for game A, 1 for
game B. The action of agent_1 has no effect in the first step. In the second step agent_0 chooses a
row and agent_1 a column:

| game A | 0 | 1 |   | game B | 0 | 1 |
|---|---|---|---|---|---|---|
| **0** | 7 | 7 |   | **0** | 0 | 1 |
| **1** | 7 | 7 |   | **1** | 1 | 8 |

The number is the reward of the team; each agent gets half of it. The team's return, the sum over
both agents, equals this number.

| | two_step_v0 |
|---|---|
| agents | ``agent_0``, ``agent_1`` |
| actions | Discrete(2), both always legal |
| observation | float32 [3]: one-hot of start, game A, game B; the same for both |
| global state | the same as the observation |
| reward | half of the team's reward; 0 in the first step |
| episode | two steps; ends by termination |

**Known answers.** The best team plays game B and then (1, 1): 8. Against a uniformly random
partner, game B pays (0 + 1 + 1 + 8) / 4 = 2.5, or 4.5 with action 1. Learners that sum independent
values of the agents' actions therefore settle for game A: 7. Uniformly random play returns (7 +
2.5) / 2 = 4.75.

The game is deterministic. Source: Rashid et al., QMIX: Monotonic Value Function Factorisation for
Deep Multi-Agent Reinforcement Learning, 2018, section 5.1.

Version history: v0, the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.envs.arguments import one_of, optional_int
from corral.envs.core import Array, Observation, Outcome, agent_views
from corral.envs.entries import aec_entries, parallel_entry
from corral.envs.masks import masked_space
from corral.envs.render.canvas import Canvas

__all__ = ["TwoStepRules", "TwoStepState", "env", "parallel_env", "raw_env"]

START, GAME_A, GAME_B, OVER_A, OVER_B = range(5)
"""Places of an environment. The last two are the ends of game A and of game B."""

FEATURES = np.eye(3, dtype=np.float32)[[START, GAME_A, GAME_B, GAME_A, GAME_B]]  # [5, 3] by place
REWARDS = np.zeros((5, 2, 2))  # by place and actions
REWARDS[GAME_A] = 7
REWARDS[GAME_B] = [[0, 1], [1, 8]]


@dataclass
class TwoStepState:
    """B environments between two steps."""

    place: Array  # int64 [B] one of START .. OVER_B
    played: Array  # int64 [B, 2] the last actions; -1 at the start
    paid: Array  # float32 [B] the team's last reward


class TwoStepRules:
    """The rules of two_step_v0 for B environments. The docstring of the module is the manual.

    Args:
        max_cycles: time limit of an episode in steps. Episodes end after two steps anyway.
        illegal: treatment of an action outside the mask. In this game all actions are legal.

    Raises:
        ValueError: an argument is out of range.
    """

    name = "two_step_v0"
    agents: tuple[str, ...] = ("agent_0", "agent_1")
    render_modes = ("human", "ansi", "rgb_array")
    render_fps = 1
    simultaneous = True

    def __init__(
        self, *, max_cycles: int | None = None, illegal: Literal["penalise", "raise"] = "penalise"
    ) -> None:
        self.max_cycles = optional_int("max_cycles", max_cycles, least=1)
        self.illegal = one_of("illegal", illegal, ("penalise", "raise"))

    def observation_space(self, agent: str) -> spaces.Dict:
        return masked_space(spaces.Box(0.0, 1.0, (3,), np.float32), 2)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(2)

    def state_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (3,), np.float32)

    def start(self, rngs: Sequence[np.random.Generator]) -> TwoStepState:
        """Begin B episodes. Draws no random numbers."""
        b = len(rngs)
        return TwoStepState(
            place=np.full(b, START, dtype=np.int64),
            played=np.full((b, 2), -1, dtype=np.int64),
            paid=np.zeros(b, dtype=np.float32),
        )

    def best_returns(self, rngs: Sequence[np.random.Generator]) -> Array:
        """See ``OptionalRules.best_returns``: the best cell, if the limit allows two steps."""
        best = 0.0 if self.max_cycles == 1 else float(REWARDS.max())
        return np.full(len(rngs), best)

    def redraw(
        self, state: TwoStepState, rngs: Sequence[np.random.Generator], told: bool = False
    ) -> TwoStepState:
        """Return the state: the game is deterministic."""
        return state

    def observe(self, state: TwoStepState) -> dict[str, Observation]:
        acting = self.acting(state)
        observation = np.repeat(FEATURES[state.place][:, None], 2, axis=1)  # [B, 2, 3]
        mask = np.repeat(acting[:, :, None], 2, axis=2).astype(np.int8)
        return agent_views(self.agents, observation, mask)

    def acting(self, state: TwoStepState) -> Array:
        return np.repeat(state.place[:, None] < OVER_A, 2, axis=1)

    def step(self, state: TwoStepState, action: Array) -> Outcome[TwoStepState]:
        place, playing = state.place, state.place < OVER_A
        state.paid = REWARDS[place, action[:, 0], action[:, 1]].astype(np.float32)
        # The first action of agent_0 chooses the game; after the game the episode is over.
        state.place = np.where(
            place == START, GAME_A + action[:, 0], np.where(playing, place + 2, place)
        )
        state.played = np.where(playing[:, None], action, state.played)
        reward = np.repeat(state.paid[:, None] / 2, 2, axis=1)
        over = np.repeat(state.place[:, None] >= OVER_A, 2, axis=1)
        return Outcome(state, reward, over, self.info(state))

    def info(self, state: TwoStepState) -> dict[str, Array]:
        return {"illegal_actions": np.zeros((len(state.place), 2), dtype=np.int64)}

    def global_state(self, state: TwoStepState) -> Array:
        return FEATURES[state.place]

    def future(self, state: TwoStepState) -> Array:
        """Return the place, int64 [B, 1]."""
        return state.place[:, None]

    def render(self, state: TwoStepState, info: dict[str, Array], mode: str) -> Any:
        show = _text if mode == "ansi" else _drawn
        return show(int(state.place[0]), tuple(state.played[0].tolist()), float(state.paid[0]))


def _sentence(place: int, played: tuple[int, ...], paid: float) -> str:
    """Return a sentence that describes the last step."""
    if place == START:
        return "agent_0 chooses the game"
    if place < OVER_A:
        return f"agent_0 chose game {'AB'[place - GAME_A]}; both choose a row and a column"
    return f"row {played[0]} and column {played[1]} were played: the team gets {paid:g}"


def _cells(place: int, played: tuple[int, ...]) -> list[list[str]]:
    """Return three lines for each game; brackets mark the game and the cell that were played."""
    lines = []
    for game, letter in ((GAME_A, "A"), (GAME_B, "B")):
        on = place in (game, game + 2)
        cells = [f"[game {letter}]" if on else f"game {letter}"]
        for row in range(2):
            numbers = []
            for column in range(2):
                chosen = place == game + 2 and played == (row, column)
                number = f"{REWARDS[game, row, column]:g}"
                numbers.append(f"[{number}]" if chosen else number)
            cells.append("".join(number.center(4) for number in numbers))
        lines.append(cells)
    return lines


def _text(place: int, played: tuple[int, ...], paid: float) -> str:
    columns = zip(*_cells(place, played), strict=True)
    lines = ["".join(cell.center(10) for cell in cells).rstrip() for cells in columns]
    return "\n".join([*lines, _sentence(place, played, paid)])


def _drawn(place: int, played: tuple[int, ...], paid: float) -> Array:
    """Return the last step as a picture."""
    canvas = Canvas(480, 150)
    for i, (head, *rows) in enumerate(_cells(place, played)):
        middle = 120 + 240 * i
        canvas.text((middle, 28), head, 18, anchor="mm", bold="[" in head)
        for j, row in enumerate(rows):
            for k, number in enumerate(row.split()):
                at = (middle - 30 + 60 * k, 62 + 28 * j)
                canvas.text(at, number, 18, anchor="mm", bold="[" in number)
    canvas.text((240, 128), _sentence(place, played, paid), 16, anchor="mm", width=460)
    return canvas.pixels()


# --- PettingZoo ----------------------------------------------------------------------------------

parallel_env = parallel_entry(TwoStepRules)
raw_env, env = aec_entries(TwoStepRules)
