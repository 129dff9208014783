"""Random numbers for each episode of each env copy: who plays a seat, in which seat one learns."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array, generator

__all__ = ["EpisodeDraws"]

BLOCK = 64
"""Episodes whose numbers are drawn at once; it does not decide which numbers they are."""


class EpisodeDraws:
    """Gives ``count`` uniform numbers to each episode of each of B = ``num_envs`` env copies.

    They depend on the seed, the global index of the row (``first_row`` + row) and the number of the
    episode alone: never on what was asked before, so that there is nothing to save. They are the
    numbers ``episode * count`` and on of ``generator(seed, "opponent", first_row + row)``.
    """

    def __init__(self, seed: int, num_envs: int, count: int, first_row: int = 0) -> None:
        self.seed, self.count, self.first_row = seed, count, first_row
        self._values = np.empty((num_envs, BLOCK, count))
        self._blocks = np.full(num_envs, -1, dtype=np.int64)  # which block a row's values are

    def __call__(self, rows: Array, episodes: Array) -> Array:
        """Return float64 [R, count] in [0, 1) of ``rows`` [R] and ``episodes``, int64 [R], 0 or
        more."""
        if len(rows) == 1:
            return self._one(int(rows[0]), int(episodes[0]))[None].copy()
        blocks = episodes // BLOCK
        places = episodes - blocks * BLOCK
        stale = (self._blocks[rows] != blocks).nonzero()[0]
        for at in stale:
            self._fill(int(rows[at]), int(blocks[at]))
        if len(stale) > 1 and (self._blocks[rows] != blocks).any():  # one row, two of its blocks
            pairs = zip(rows.tolist(), episodes.tolist(), strict=True)
            return np.array([self._one(row, episode).copy() for row, episode in pairs])
        found: Array = self._values[rows, places]
        return found

    def _one(self, row: int, episode: int) -> Array:
        """Return the numbers of one episode: a view [count]."""
        block, place = divmod(episode, BLOCK)
        if self._blocks[row] != block:
            self._fill(row, block)
        found: Array = self._values[row, place]
        return found

    def _fill(self, row: int, block: int) -> None:
        rng = generator(self.seed, "opponent", self.first_row + row)
        rng.bit_generator.advance(block * BLOCK * self.count)  # type: ignore[attr-defined]
        rng.random(out=self._values[row])
        self._blocks[row] = block
