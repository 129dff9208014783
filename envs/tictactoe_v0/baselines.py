"""Reference players of tictactoe_v0: random, and perfect.

The perfect player knows the value of every position, by minimax over all of them (Zermelo, 1913),
and plays a move of the best one. Of winning moves it takes those that win soonest, of losing ones
those that lose latest; among equals it draws with ``rng``, or takes the first when it plays
greedily.

Positions are worked out once for each size and line, move by move: all that can come up after n
moves from those after n - 1, then their values backwards. 3 x 3 fields have 4,520 positions with a
move to make (0.1 s), 3 x 4 some 100,000 (1 s), 4 x 4 ten million: boards of more than
``LARGEST_BOARD`` fields raise InfeasibleError.
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
"""Fields of the largest board that is worked out: there are at most 3**12 positions on it."""


@dataclass(frozen=True)
class Solution:
    """Every position with a move to make, P of them, and what it is worth to who moves.

    The number of a position is the sum, over fields with a stone, of 3**field * 1 where it is
    player_1's and 3**field * 2 where it is player_2's.
    """

    position: Array  # int64 [P] ascending
    value: Array  # int64 [P] +1 won, 0 drawn, -1 lost for the player to move
    best: Array  # bool [P, R C] the best moves


@functools.lru_cache(maxsize=8)
def solved(rows: int, columns: int, line: int) -> Solution:
    """All positions of a board by minimax. Raises InfeasibleError beyond ``LARGEST_BOARD``."""
    fields = rows * columns
    if fields > LARGEST_BOARD:
        raise InfeasibleError(
            f"perfect play on {rows} x {columns} = {fields} fields: every position is worked out, "
            f"which is done up to {LARGEST_BOARD} fields; give a smaller size, or another player"
        )
    lines = all_lines(rows, columns, line)
    power = 3 ** np.arange(fields)  # int64

    # Forwards: after n moves the positions in which the game goes on.
    layers, moves = [np.zeros(1, dtype=np.int64)], []
    for n in range(fields):
        board = layers[n][:, None] // power % 3  # [P, R C]
        stone = 1 + n % 2
        children = layers[n][:, None] + stone * power  # [P, R C] where the field is empty
        wins = np.zeros(board.shape, dtype=bool)
        for each in lines:
            own = (board[:, each] == stone).sum(axis=1) == line - 1  # all but one
            wins[:, each] |= own[:, None] & (board[:, each] == 0)
        moves.append((board == 0, wins, children))
        going_on = (board == 0) & ~wins
        layers.append(np.unique(children[going_on]))

    # Backwards. What counts is who wins, and then when: a win with n moves made is worth more than
    # one with n + 1, whatever the number of moves in between.
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
    """Plays a best move of every position.

    Raises InfeasibleError where the board is too large; see ``LARGEST_BOARD``.
    """

    def __init__(self, rules: TicTacToeRules) -> None:
        self.solution = solved(rules.rows, rules.columns, rules.line)
        self._power = 3 ** np.arange(rules.fields)

    def value(self, observation: Observation) -> Array:
        """+1, 0 or -1 for the player to move: int64 [B], or a single one."""
        return np.asarray(self.solution.value[self._place(observation)])

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """A best move; ``rng`` draws it unless ``deterministic``, which takes the first."""
        best = self.solution.best[self._place(observation)]  # [..., R C]
        extra = {"choices": best, "probabilities": best / best.sum(axis=-1, keepdims=True)}
        if deterministic:
            return Decision(first(best), extra=extra)
        if rng is None:
            raise ValueError("to draw among best moves pass rng=, or deterministic=True")
        return Decision(greedy(rng.random(best.shape), best), extra=extra)

    def _place(self, observation: Observation) -> Array:
        """Where the position stands in the solution."""
        planes = np.asarray(observation[OBSERVATION]) != 0  # [..., R, C, 2]
        stones = planes.reshape(*planes.shape[:-3], -1, 2).astype(np.int64)
        own, other = stones[..., 0], stones[..., 1]
        # Equal numbers of stones: the one to move is player_1.
        even = (own.sum(axis=-1) == other.sum(axis=-1))[..., None]
        board = np.where(even, own + 2 * other, 2 * own + other)
        number = (board * self._power).sum(axis=-1)
        place = np.searchsorted(self.solution.position, number)
        place = np.minimum(place, len(self.solution.position) - 1)
        if (self.solution.position[place] != number).any():
            raise ValueError("no position of this game in which there is a move to make")
        return np.asarray(place)


def players_of(rules: TicTacToeRules, agent: str) -> Makers:
    return {"perfect": Perfect}
