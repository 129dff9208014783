"""The accounting of episodes: sums by hand, and what is left of them when others end."""

from __future__ import annotations

import numpy as np
import pytest

from corral.envs.batch import Batch
from corral.envs.episode_stats import EndedEpisodes, Episode, EpisodeStats
from support.steady_rules import SteadyRules
from support.turn_rules import MortalRules


def test_episodes_are_summed_until_they_end() -> None:
    rules = SteadyRules()
    batch, stats = Batch(rules, 3, 0), EpisodeStats(rules.agents)
    batch.reset()
    nothing = np.zeros((3, 2), dtype=np.int64)
    for _ in range(2):  # a second episode begins at nothing again
        for _ in range(3):
            assert len(stats.add(batch.step(nothing))) == 0
        assert (stats.sums["half"] == 0.5 + 1.0 + 1.5).all()
        ended = stats.add(batch.step(nothing))
        assert ended.rows.tolist() == [0, 1, 2]
        assert ended.infos["half"].tolist() == [[5.0, 5.0]] * 3
        each = Episode({"agent_0": 4.0, "agent_1": 4.0}, 4, {"half": 10.0})
        assert list(ended) == [each] * 3
        assert (stats.sums["half"] == 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_episodes_of_unlike_lengths_are_told_apart(seed: int) -> None:
    """Each step's rewards and infos, collected by hand, and cut where an episode ends."""
    rules = MortalRules()
    batch, stats = Batch(rules, 5, seed), EpisodeStats(rules.agents)
    batch.reset()
    rng = np.random.default_rng(seed)
    running: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(5)]
    parts: list[EndedEpisodes] = []
    expected = []
    for _ in range(40):
        step = batch.step(batch.sample_actions(rng))
        for row in range(5):
            running[row].append((step.reward[row].copy(), step.info["t"][row].copy()))
        ended = stats.add(step)
        for row in np.flatnonzero(step.over).tolist():
            rewards, infos = (sum(values) for values in zip(*running[row], strict=True))
            expected.append((row, rewards.tolist(), infos.tolist(), len(running[row])))
            running[row] = []
        parts.append(ended)
    joined = EndedEpisodes.join([part for part in parts if len(part)])
    found = [
        (row, returns, infos, length)
        for row, returns, infos, length in zip(
            joined.rows.tolist(),
            joined.returns.tolist(),
            joined.infos["t"].tolist(),
            joined.lengths.tolist(),
            strict=True,
        )
    ]
    assert found == expected
    assert len({length for *_, length in found}) > 2
    some = joined.take(joined.rows == 2)
    assert len(some) == sum(row == 2 for row, *_ in found) > 2
    assert [e.kpis["t"] for e in some] == [float(sum(t)) for row, _, t, _ in found if row == 2]
