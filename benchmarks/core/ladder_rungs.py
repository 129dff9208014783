"""Players of connect_four_v3 that look some plies ahead.

A player knows the observation alone: planes [R, 6, 7, 2] (own pieces, then the other's; row 0 is
the top) and the action_mask. Among equally good moves it draws one.
"""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, OBSERVATION, sample_legal
from corral.envs.policy import Heuristic

__all__ = ["OnePly", "TakesWins", "ThreePly", "winning"]


class TakesWins(Heuristic):
    """Wins at once if it can, else plays at random: a search of one ply."""

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return columns, int64 [R], for planes [R, 6, 7, 2]."""
        assert rng is not None
        planes, legal = _board(observation)
        return sample_legal(_preferred(legal, legal & winning(planes, 0)).astype(np.int8), rng)


class OnePly(Heuristic):
    """Wins at once if it can, else blocks a win of the opponent's next move, else plays at random.

    Among several such moves it draws one.
    """

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return columns, int64 [R], for planes [R, 6, 7, 2]."""
        assert rng is not None
        planes, legal = _board(observation)
        wins, blocks = (legal & winning(planes, side) for side in (0, 1))
        return sample_legal(_preferred(legal, blocks, wins).astype(np.int8), rng)


class ThreePly(Heuristic):
    """Searches three plies: its move, the reply, and its next move.

    A move is best if it wins, or if every reply leaves a winning move; worst if a reply wins.
    """

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return columns, int64 [R], for planes [R, 6, 7, 2]."""
        assert rng is not None
        planes, legal = _board(observation)
        wins = legal & winning(planes, 0)
        loses, forces = np.zeros_like(legal), np.zeros_like(legal)
        for move in range(legal.shape[1]):
            rows = np.flatnonzero(legal[:, move] & ~wins.any(axis=1))
            after = _dropped(planes[rows], move, 0)
            replies = ~after[:, 0].any(axis=2)  # [R, 7]
            loses[rows, move] = (replies & winning(after, 1)).any(axis=1)
            always = replies.any(axis=1)
            for reply in range(legal.shape[1]):
                open_rows = np.flatnonzero(replies[:, reply] & always)
                then = winning(_dropped(after[open_rows], reply, 1), 0).any(axis=1)
                always[open_rows] = then
            forces[rows, move] = always & ~loses[rows, move]
        best = _preferred(legal, legal & ~loses, forces, wins)
        return sample_legal(best.astype(np.int8), rng)


def winning(planes: Array, side: int) -> Array:
    """Return the columns, bool [R, 7], where a piece of ``side`` makes four in a row."""
    row = _landing(planes)
    wins = np.zeros(row.shape, dtype=bool)
    for column in range(row.shape[1]):
        own, rows = planes[..., side].copy(), np.flatnonzero(row[:, column] >= 0)
        own[rows, row[rows, column], column] = True
        wins[rows, column] = four(own[rows])
    return wins


def four(own: Array) -> Array:
    """Return which boards [R, 6, 7] hold four in a row, bool [R]."""
    lines = (
        own[:, :, :-3] & own[:, :, 1:-2] & own[:, :, 2:-1] & own[:, :, 3:],
        own[:, :-3] & own[:, 1:-2] & own[:, 2:-1] & own[:, 3:],
        own[:, :-3, :-3] & own[:, 1:-2, 1:-2] & own[:, 2:-1, 2:-1] & own[:, 3:, 3:],
        own[:, 3:, :-3] & own[:, 2:-1, 1:-2] & own[:, 1:-2, 2:-1] & own[:, :-3, 3:],
    )
    return np.logical_or.reduce([line.any(axis=(1, 2)) for line in lines])


def _board(observation: Observation) -> tuple[Array, Array]:
    return np.asarray(observation[OBSERVATION]) != 0, np.asarray(observation[MASK]) != 0


def _landing(planes: Array) -> Array:
    """Return the row where a piece would land, int64 [R, 7]; -1: the column is full."""
    row: Array = (~planes.any(axis=3)).sum(axis=1) - 1
    return row


def _dropped(planes: Array, column: int, side: int) -> Array:
    """Return copies of the boards with a piece of ``side`` in a column that is not full."""
    after = planes.copy()
    after[np.arange(len(after)), _landing(planes)[:, column], column, side] = True
    return after


def _preferred(*choices: Array) -> Array:
    """Return the last of the ``choices`` bool [R, 7] that is not empty, for each row."""
    best = choices[0]
    for choice in choices[1:]:
        best = np.where(choice.any(axis=1, keepdims=True), choice, best)
    return best
