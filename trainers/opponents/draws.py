"""Random numbers per episode and environment copy, to draw players and learning seats."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array, generator

__all__ = ["EpisodeDraws"]

BLOCK = 64
"""Number of episodes per block of draws; the numbers do not depend on it."""


class EpisodeDraws:
    """Returns ``count`` uniform numbers for each episode of B = ``num_envs`` environment copies.

    The numbers depend only on the seed, the global index of the row (``first_row`` + row) and the
    number of the episode, not on previous calls. No state must be saved. They are the numbers from
    ``episode * count`` on of ``generator(seed, "opponent", first_row + row)``.
    """

    def __init__(self, seed: int, num_envs: int, count: int, first_row: int = 0) -> None:
        self.seed, self.count, self.first_row = seed, count, first_row
        self._values = np.empty((num_envs, BLOCK, count))
        self._blocks = np.full(num_envs, -1, dtype=np.int64)  # the block of a row's values

    def __call__(self, rows: Array, episodes: Array) -> Array:
        """Return float64 [R, count] in [0, 1) for ``rows`` [R] and ``episodes``, int64 [R] and at
        least 0."""
        if len(rows) == 1:
            return self._one(int(rows[0]), int(episodes[0]))[None].copy()
        blocks = episodes // BLOCK
        places = episodes - blocks * BLOCK
        stale = (self._blocks[rows] != blocks).nonzero()[0]
        for at in stale:
            self._fill(int(rows[at]), int(blocks[at]))
        if len(stale) > 1 and (self._blocks[rows] != blocks).any():  # the same row with two blocks
            pairs = zip(rows.tolist(), episodes.tolist(), strict=True)
            return np.array([self._one(row, episode).copy() for row, episode in pairs])
        numbers: Array = self._values[rows, places]
        return numbers

    def _one(self, row: int, episode: int) -> Array:
        """Return a view [count] of the numbers of one episode."""
        block, place = divmod(episode, BLOCK)
        if self._blocks[row] != block:
            self._fill(row, block)
        numbers: Array = self._values[row, place]
        return numbers

    def _fill(self, row: int, block: int) -> None:
        rng = generator(self.seed, "opponent", self.first_row + row)
        rng.bit_generator.advance(block * BLOCK * self.count)  # type: ignore[attr-defined]
        rng.random(out=self._values[row])
        self._blocks[row] = block
