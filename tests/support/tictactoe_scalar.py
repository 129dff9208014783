"""The rules of tictactoe_v0 once more, in plain lists and loops: a second reading.

Nothing here is vectorised and nothing is shared with ``corral.envs``. Tests compare the two.
"""

from __future__ import annotations

INFO_KEYS = ("moves", "won", "drawn", "illegal_actions")


class ScalarTicTacToe:
    """One game; ``board[row][column]`` is 0, 1 or 2. After a ``step``: ``rewards``, ``info``."""

    def __init__(self, rows: int = 3, columns: int = 3, line: int = 3) -> None:
        self.rows, self.columns, self.line = rows, columns, line
        self.board = [[0] * columns for _ in range(rows)]
        self.mover = 0
        self.over = False
        self.rewards = [0.0, 0.0]
        self.info = {key: [0, 0] for key in INFO_KEYS}

    def step(self, field: int) -> None:
        row, column = field // self.columns, field % self.columns
        me, other = self.mover, 1 - self.mover
        self.rewards = [0.0, 0.0]
        self.info = {key: [0, 0] for key in INFO_KEYS}
        self.info["moves"][me] = 1
        self.mover = other
        if self.board[row][column] != 0:
            self.over = True
            self.rewards[me] = -1.0
            self.info["illegal_actions"][me] = 1
            return
        self.board[row][column] = me + 1
        if any(self.longest(row, column, way) >= self.line for way in ("-", "|", "\\", "/")):
            self.over = True
            self.rewards[me], self.rewards[other] = 1.0, -1.0
            self.info["won"][me] = 1
        elif all(stone for line in self.board for stone in line):
            self.over = True
            self.info["drawn"][me] = 1

    def longest(self, row: int, column: int, way: str) -> int:
        """How many stones of one colour lie in a line through a field, without a gap."""
        down, right = {"-": (0, 1), "|": (1, 0), "\\": (1, 1), "/": (1, -1)}[way]
        count = 1
        for sign in (1, -1):
            r, c = row + sign * down, column + sign * right
            while self.holds(r, c) == self.board[row][column]:
                count += 1
                r, c = r + sign * down, c + sign * right
        return count

    def holds(self, row: int, column: int) -> int | None:
        """The stone on a field, 0 for none; None off the board."""
        if 0 <= row < self.rows and 0 <= column < self.columns:
            return self.board[row][column]
        return None

    def acting(self) -> list[bool]:
        return [not self.over and self.mover == i for i in (0, 1)]

    def mask(self, agent: int) -> list[int]:
        acts = self.acting()[agent]
        return [int(acts and stone == 0) for line in self.board for stone in line]

    def observation(self, agent: int) -> list[list[list[float]]]:
        own, other = agent + 1, 2 - agent
        return [[[float(s == own), float(s == other)] for s in line] for line in self.board]

    def global_state(self) -> list[float]:
        flat = [stone for line in self.board for stone in line]
        boards = [float(stone == player) for player in (1, 2) for stone in flat]
        return boards + [float(acts) for acts in self.acting()]
