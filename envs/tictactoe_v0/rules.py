"""Rules of tictactoe_v0 as array code; ``corral.envs.tictactoe_v0`` is the manual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.envs.arguments import nonnegative_int, one_of, optional_int
from corral.envs.core import Array, Observation, Outcome, agent_views
from corral.envs.masks import masked_space
from corral.envs.tictactoe_v0.render import Frame, ansi, draw

__all__ = ["LARGEST", "TicTacToeRules", "TicTacToeState", "all_lines"]

LARGEST = 26
"""Maximum rows or columns: a board fits into 80 columns of text, and letters name its columns."""

DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))  # changes of (row, column) along a line

PLAYING, LINE, FULL, ILLEGAL = range(4)  # state of a game
REWARDS = np.array(  # [4, 2] the player that moved, the other player
    [[0.0, 0.0], [1.0, -1.0], [0.0, 0.0], [-1.0, 0.0]], dtype=np.float32
)

INFO = ("moves", "won", "drawn", "illegal_actions")


def all_lines(rows: int, columns: int, line: int) -> Array:
    """Return the field numbers of every line of ``line`` fields on a board: int64 [L, line]."""
    lines = []
    for down, right in DIRECTIONS:
        for row in range(rows):
            for column in range(columns):
                end_row, end_column = row + (line - 1) * down, column + (line - 1) * right
                if end_row < rows and 0 <= end_column < columns:
                    step = down * columns + right
                    first = row * columns + column
                    lines.append([first + i * step for i in range(line)])
    return np.array(lines, dtype=np.int64).reshape(-1, line)


@dataclass
class TicTacToeState:
    """State of B environments between two steps. On axis N, player_1 is 0 and player_2 is 1."""

    stones: Array  # bool [B, 2, R C + 1] the stones of each player; the last entry is always False
    t: Array  # int64 [B] moves so far, including an illegal move
    ended: Array  # int64 [B] PLAYING, LINE, FULL or ILLEGAL
    last: Array  # int64 [B] field of the last move, for rendering; -1 before the first move


class TicTacToeRules:
    """Rules of tictactoe_v0 for B environments; see the manual of the package.

    Args:
        size: rows and columns of the board: one number for both, or (rows, columns); 1 to 26.
        line: number of stones in a line that win; from 2 to the longer side of the board.
        max_cycles: truncates a game after this number of moves; None: no truncation.
        illegal: reaction to an action outside the mask: "penalise" or "raise".

    Raises:
        ValueError: an argument is outside its range.
    """

    name = "tictactoe_v0"
    agents: tuple[str, ...] = ("player_1", "player_2")
    render_modes = ("human", "ansi", "rgb_array")
    render_fps = 1
    simultaneous = False

    def __init__(
        self,
        size: int | tuple[int, int] = 3,
        line: int = 3,
        *,
        max_cycles: int | None = None,
        illegal: Literal["penalise", "raise"] = "penalise",
    ) -> None:
        self.rows, self.columns = _sides(size)
        self.line = nonnegative_int("line", line, least=2)
        self.max_cycles = optional_int("max_cycles", max_cycles, least=1)
        self.illegal = one_of("illegal", illegal, ("penalise", "raise"))
        if self.line > max(self.rows, self.columns):
            raise ValueError(
                f"line={line}: a board of {self.rows} x {self.columns} fields is too small for "
                f"it. Pass a line of 2 to {max(self.rows, self.columns)}, or a larger size"
            )
        self.fields = self.rows * self.columns
        self.lines = all_lines(self.rows, self.columns, self.line)
        # The lines through each field, [R C, M, line]. A field on fewer than M lines is padded
        # with the extra entry of a board that never holds a stone.
        through = [self.lines[(self.lines == field).any(axis=1)] for field in range(self.fields)]
        shape = (self.fields, max(map(len, through)), self.line)
        self._through = np.full(shape, self.fields, dtype=np.int64)
        for field, own_lines in enumerate(through):
            self._through[field, : len(own_lines)] = own_lines

    @property
    def identity(self) -> str:
        """Return a text that is equal for equal rules."""
        return (
            f"{self.name} {self.rows}x{self.columns}, line {self.line}, "
            f"at most {self.max_cycles} moves"
        )

    # --- Spaces ----------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> spaces.Dict:
        shape = (self.rows, self.columns, 2)
        return masked_space(spaces.Box(0.0, 1.0, shape, np.float32), self.fields)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(self.fields)

    def state_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (2 * self.fields + 2,), np.float32)

    # --- An episode ------------------------------------------------------------------------------

    def start(self, rngs: Sequence[np.random.Generator]) -> TicTacToeState:
        """Start B episodes with empty boards. No random numbers are drawn."""
        b = len(rngs)
        return TicTacToeState(
            stones=np.zeros((b, 2, self.fields + 1), dtype=bool),
            t=np.zeros(b, dtype=np.int64),
            ended=np.full(b, PLAYING, dtype=np.int64),
            last=np.full(b, -1, dtype=np.int64),
        )

    def redraw(
        self, state: TicTacToeState, rngs: Sequence[np.random.Generator], told: bool = False
    ) -> TicTacToeState:
        """Return the state unchanged: the rules are deterministic."""
        return state

    def observe(self, state: TicTacToeState) -> dict[str, Observation]:
        b = len(state.t)
        boards = state.stones[:, :, : self.fields]  # [B, 2, R C]
        planes = np.empty((b, 2, self.fields, 2), dtype=np.float32)
        planes[..., 0] = boards
        planes[..., 1] = boards[:, ::-1]
        empty = ~(boards[:, 0] | boards[:, 1])
        masks = empty[:, None] & self.acting(state)[:, :, None]
        observation = planes.reshape(b, 2, self.rows, self.columns, 2)
        return agent_views(self.agents, observation, masks.view(np.int8))

    def acting(self, state: TicTacToeState) -> Array:
        mover = state.t[:, None] % 2 == np.arange(2)
        return np.asarray(mover & (state.ended == PLAYING)[:, None])

    def step(self, state: TicTacToeState, action: Array) -> Outcome[TicTacToeState]:
        rows = np.arange(len(action))
        mover = state.t % 2
        field = action[rows, mover]
        playing = state.ended == PLAYING
        legal = playing & ~state.stones[rows, :, field].any(axis=1)

        # Place the stone on an empty field. It wins if it completes a line through that field.
        state.stones[rows[legal], mover[legal], field[legal]] = True
        own = state.stones[rows, mover]  # [B, R C + 1]
        lines = own[rows[:, None, None], self._through[field]]  # [B, M, line]
        won = legal & lines.all(axis=2).any(axis=1)
        drawn = legal & ~won & (state.t + 1 == self.fields)
        illegal = playing & ~legal

        ended = np.select([won, drawn, illegal], [LINE, FULL, ILLEGAL], state.ended)
        reward = np.zeros(action.shape, dtype=np.float32)
        rewards = REWARDS[np.where(playing, ended, PLAYING)]  # [B, 2] zeros after the end
        reward[rows, mover], reward[rows, 1 - mover] = rewards[:, 0], rewards[:, 1]

        info = np.zeros((len(INFO), *action.shape), dtype=np.int64)
        info[:, rows, mover] = playing, won, drawn, illegal
        state.t = state.t + playing
        state.ended = ended
        state.last = np.where(playing, field, state.last)
        terminated = np.repeat((ended != PLAYING)[:, None], 2, axis=1)
        return Outcome(state, reward, terminated, dict(zip(INFO, info, strict=True)))

    def info(self, state: TicTacToeState) -> dict[str, Array]:
        return {key: np.zeros((len(state.t), 2), dtype=np.int64) for key in INFO}

    def global_state(self, state: TicTacToeState) -> Array:
        boards = state.stones[:, :, : self.fields].reshape(len(state.t), -1)
        return np.concatenate([boards, self.acting(state)], axis=1).astype(np.float32)

    def future(self, state: TicTacToeState) -> Array:
        """Return the state without the field of the last move: int64 [B, 2 (R C + 1) + 2]."""
        return np.column_stack(
            [state.stones.reshape(len(state.t), 2 * self.fields + 2), state.t, state.ended]
        )

    def render(self, state: TicTacToeState, info: dict[str, Array], mode: str) -> Any:
        frame = self.frame(state)
        return ansi(frame) if mode == "ansi" else draw(frame)

    def frame(self, state: TicTacToeState) -> Frame:
        """Return environment 0 as plain values."""
        stones = state.stones[0, :, : self.fields]
        board = (stones[0] + 2 * stones[1]).reshape(self.rows, self.columns)
        ended, last = int(state.ended[0]), int(state.last[0])
        winning: tuple[int, ...] = ()
        if ended == LINE:
            complete = stones[(int(state.t[0]) - 1) % 2][self.lines].all(axis=1)
            winning = tuple(np.unique(self.lines[complete]).tolist())
        return Frame(
            board=tuple(map(tuple, board.tolist())),
            line=self.line,
            t=int(state.t[0]),
            last=None if last < 0 else divmod(last, self.columns),
            ended=("", "line", "full", "illegal")[ended],
            winning=tuple(divmod(field, self.columns) for field in winning),
        )


def _sides(size: Any) -> tuple[int, int]:
    """Return the rows and columns of ``size``. Raises ValueError."""
    pair = tuple(size) if isinstance(size, tuple | list) else (size, size)
    try:
        rows, columns = (nonnegative_int("size", side, least=1) for side in pair)
        if max(rows, columns) <= LARGEST:
            return rows, columns
    except ValueError:
        pass
    raise ValueError(f"size={size!r}: pass an integer from 1 to {LARGEST}, or (rows, columns)")
