"""Reference players of tictactoe_v0: random and perfect.

The perfect player knows the minimax value of every position (Zermelo, 1913) and plays a move with
the highest value. It prefers early wins and late losses. Among equal moves it draws with ``rng``;
with ``deterministic=True`` it takes the first.

The positions are computed once for each size and line. The forward pass collects the positions
after each move; the backward pass computes their values. 3 x 3 fields have 4,520 positions with a
legal move (0.1 s), 3 x 4 fields about 100,000 (1 s), and 4 x 4 fields ten million. A board of more
than ``LARGEST_BOARD`` fields raises InfeasibleError.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array, Observation
from corral.envs.masks import OBSERVATION, first, greedy
from corral.envs.policy import Decision, Memoryless
from corral.envs.reference import Makers
from corral.envs.tictactoe_v0.rules import TicTacToeRules, all_lines
from corral.errors import InfeasibleError

__all__ = ["LARGEST_BOARD", "Perfect", "Solution", "players_of", "solved"]

LARGEST_BOARD = 12
"""Maximum number of fields for perfect play; such a board has at most 3**12 positions."""


@dataclass(frozen=True)
class Solution:
    """All P positions with a legal move, and their values for the player to move.

    The number of a position is a sum over fields with a stone: 3**field * 1 for a stone of
    player_1, and 3**field * 2 for a stone of player_2.
    """

    position: Array  # int64 [P] ascending
    value: Array  # int64 [P] +1 won, 0 drawn, -1 lost, for the player to move
    best: Array  # bool [P, R C] the best moves


@functools.lru_cache(maxsize=8)
def solved(rows: int, columns: int, line: int) -> Solution:
    """Solve a board by minimax. Raises InfeasibleError beyond ``LARGEST_BOARD`` fields."""
    fields = rows * columns
    if fields > LARGEST_BOARD:
        raise InfeasibleError(
            f"perfect play on {rows} x {columns} = {fields} fields: all positions would have to be "
            f"computed; the maximum is {LARGEST_BOARD} fields. Choose a smaller size or another "
            "player"
        )
    lines = all_lines(rows, columns, line)
    power = 3 ** np.arange(fields)  # int64

    # Forward: the unfinished positions after n moves.
    layers, moves = [np.zeros(1, dtype=np.int64)], []
    for n in range(fields):
        board = layers[n][:, None] // power % 3  # [P, R C]
        stone = 1 + n % 2
        children = layers[n][:, None] + stone * power  # [P, R C] where the field is empty
        wins = np.zeros(board.shape, dtype=bool)
        for fields_of_line in lines:
            own = (board[:, fields_of_line] == stone).sum(axis=1) == line - 1  # one is missing
            wins[:, fields_of_line] |= own[:, None] & (board[:, fields_of_line] == 0)
        moves.append((board == 0, wins, children))
        unfinished = (board == 0) & ~wins
        layers.append(np.unique(children[unfinished]))

    # Backward. The winner counts first, then the time: a win after n moves is worth more than a
    # win after n + 1 moves.
    score = np.zeros(len(layers[fields]), dtype=np.int64)  # full boards: drawn
    positions, values, best = [], [], []
    for n in reversed(range(fields)):
        empty, wins, children = moves[n]
        after = np.searchsorted(layers[n + 1], np.where(empty & ~wins, children, 0))
        worth = -score[np.minimum(after, len(score) - 1)] if len(score) else np.zeros_like(children)
        worth = np.where(wins, fields + 1 - n, np.where(empty, worth, -2 * fields))
        score = worth.max(axis=1, initial=-2 * fields)
        positions.append(layers[n])
        values.append(np.sign(score))
        best.append(worth == score[:, None])
    position = np.concatenate(positions)
    order = np.argsort(position)
    return Solution(position[order], np.concatenate(values)[order], np.concatenate(best)[order])


class Perfect(Memoryless):
    """A player that plays a best move in every position.

    Raises InfeasibleError if the board has more than ``LARGEST_BOARD`` fields.
    """

    def __init__(self, rules: TicTacToeRules) -> None:
        self.solution = solved(rules.rows, rules.columns, rules.line)
        self._power = 3 ** np.arange(rules.fields)

    def value(self, observation: Observation) -> Array:
        """Return +1, 0 or -1 for the player to move: int64 [B], or a scalar."""
        return np.asarray(self.solution.value[self._index(observation)])

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Return a best move: drawn with ``rng``, or the first one if ``deterministic``."""
        best = self.solution.best[self._index(observation)]  # [..., R C]
        extra = {"choices": best, "probabilities": best / best.sum(axis=-1, keepdims=True)}
        if deterministic:
            return Decision(first(best), extra=extra)
        if rng is None:
            raise ValueError("drawing a move needs a generator: pass rng= or deterministic=True")
        return Decision(greedy(rng.random(best.shape), best), extra=extra)

    def _index(self, observation: Observation) -> Array:
        """Return the index of the position in the solution."""
        planes = np.asarray(observation[OBSERVATION]) != 0  # [..., R, C, 2]
        stones = planes.reshape(*planes.shape[:-3], -1, 2).astype(np.int64)
        own, other = stones[..., 0], stones[..., 1]
        # With equal numbers of stones player_1 is to move.
        even = (own.sum(axis=-1) == other.sum(axis=-1))[..., None]
        board = np.where(even, own + 2 * other, 2 * own + other)
        number = (board * self._power).sum(axis=-1)
        index = np.searchsorted(self.solution.position, number)
        index = np.minimum(index, len(self.solution.position) - 1)
        if (self.solution.position[index] != number).any():
            raise ValueError(
                "the observation is not a position of this game with a legal move; pass the "
                "observation of the player to move"
            )
        return np.asarray(index)


def players_of(rules: TicTacToeRules, agent: str) -> Makers:
    return {"perfect": Perfect}
