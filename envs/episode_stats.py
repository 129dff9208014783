"""The accounting of episodes: sums over a batch's steps, by environment and agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from corral.envs.batch import BatchStep
from corral.envs.core import Array

__all__ = ["EndedEpisodes", "Episode", "EpisodeStats"]


@dataclass(frozen=True)
class Episode:
    """One episode that ended."""

    returns: dict[str, float]  # agent -> sum of its rewards
    length: int  # steps
    kpis: dict[str, float]  # sums of the environment's info, over steps and agents


@dataclass(frozen=True, eq=False)
class EndedEpisodes:
    """D episodes that ended, in a step or in many; iterating gives an ``Episode`` for each."""

    agents: tuple[str, ...]
    rows: Array  # int64 [D] of the batch
    returns: Array  # float64 [D, N] sum of each agent's rewards
    lengths: Array  # int64 [D] steps
    infos: dict[str, Array]  # [D, N] each info, summed over the steps

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def join(cls, parts: Sequence[EndedEpisodes]) -> EndedEpisodes:
        """Return the episodes of all ``parts``, one or more, in their order."""
        rows, returns, lengths = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("rows", "returns", "lengths")
        )
        infos = {key: np.concatenate([p.infos[key] for p in parts]) for key in parts[0].infos}
        return cls(parts[0].agents, rows, returns, lengths, infos)

    def take(self, chosen: Array) -> EndedEpisodes:
        """Return some of them: ``chosen`` is bool [D]."""
        infos = {key: sums[chosen] for key, sums in self.infos.items()}
        return EndedEpisodes(
            self.agents, self.rows[chosen], self.returns[chosen], self.lengths[chosen], infos
        )

    def __iter__(self) -> Iterator[Episode]:
        kpis = {key: sums.sum(axis=1).astype(float) for key, sums in self.infos.items()}
        returns, lengths = self.returns.tolist(), self.lengths.tolist()
        for d in range(len(self)):
            yield Episode(
                dict(zip(self.agents, returns[d], strict=True)),
                lengths[d],
                {key: float(values[d]) for key, values in kpis.items()},
            )


class EpisodeStats:
    """Adds up the infos of B environments, step by step, and hands over each episode as it ends.

    ``sums`` holds those of the running episodes, [B, N] each: a checkpoint saves and restores them.
    """

    def __init__(self, agents: Sequence[str]) -> None:
        self.agents = tuple(agents)
        self.sums: dict[str, Array] = {}
        n = len(self.agents)
        none = np.zeros(0, dtype=np.int64)
        self._none = EndedEpisodes(self.agents, none, np.zeros((0, n)), none, {})

    def add(self, step: BatchStep) -> EndedEpisodes:
        """Take in a step of the batch; return the episodes that ended in it, in order of rows."""
        for key, values in step.info.items():
            if key not in self.sums:
                wide = np.float64 if np.asarray(values).dtype.kind == "f" else np.int64
                self.sums[key] = np.zeros(np.shape(values), dtype=wide)
            self.sums[key] += values
        if step.finished is None:
            return self._none
        rows = step.finished.rows
        infos = {key: sums[rows] for key, sums in self.sums.items()}
        for sums in self.sums.values():
            sums[rows] = 0
        return EndedEpisodes(self.agents, rows, step.finished.returns, step.finished.lengths, infos)
