"""The accounting of episodes: sums by hand, and what is left of them when others end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.envs import episode_stats
from corral.envs.batch import Batch
from corral.envs.episode_stats import (
    EndedEpisodes,
    Episode,
    EpisodeRecord,
    EpisodeRecorder,
    EpisodeStats,
)
from support.messages import refused
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


# --- Whole episodes ------------------------------------------------------------------------------


def played(batch: Any, recorder: EpisodeRecorder, rng: Any, steps: int) -> list[EpisodeRecord]:
    for _ in range(steps):
        batch.step(batch.sample_actions(rng))
    return recorder.ended()


@pytest.mark.parametrize("seed", range(3))
def test_a_record_holds_every_step_of_its_episode(seed: int) -> None:
    """Beside the same steps collected by hand, of agents that die, cut where an episode ends."""
    rules = MortalRules()
    recorder = EpisodeRecorder(rules.agents, 5)
    batch = recorder.wrap(Batch(rules, 5, seed))
    batch.reset()
    rng = np.random.default_rng(seed)
    running: list[list[tuple[Any, ...]]] = [[] for _ in range(5)]
    expected = []
    for _ in range(200):  # more than the first room
        acting, actions = batch.acting.copy(), batch.sample_actions(rng)
        step = batch.step(actions)
        for row in range(5):
            values = step.reward, actions, acting, step.info["t"]
            running[row].append(tuple(each[row].copy() for each in values))
        for row in np.flatnonzero(step.over).tolist():
            expected.append((row, [np.stack(a) for a in zip(*running[row], strict=True)]))
            running[row] = []
    found = recorder.ended()
    assert len(found) == len(expected) > 10
    for record, (row, (rewards, actions, acted, t)) in zip(found, expected, strict=True):
        assert (record.env, record.length) == (row, len(rewards))
        assert np.array_equal(record.rewards, rewards)
        assert np.array_equal(record.actions, actions)
        assert np.array_equal(record.acted, acted)
        assert np.array_equal(record.info["t"], t)
        assert list(record.returns.values()) == rewards.sum(axis=0).tolist()
    assert not all(record.acted.all() for record in found)
    assert recorder.ended() == []


def test_a_recorder_goes_on_from_what_it_saved() -> None:
    rules = MortalRules()
    whole, first, second = (EpisodeRecorder(rules.agents, 5) for _ in range(3))
    batch, stopped = whole.wrap(Batch(rules, 5, 1)), first.wrap(Batch(rules, 5, 1))
    rngs = [np.random.default_rng(7), np.random.default_rng(7)]
    batch.reset()
    stopped.reset()
    before = played(batch, whole, rngs[0], 13), played(stopped, first, rngs[1], 13)
    assert len(before[0]) == len(before[1])
    assert first.save()["began"].any()  # it was within episodes
    second.load(first.save())
    again = second.wrap(Batch(rules, 5, 1))
    again.restore(stopped.snapshot())
    after = played(batch, whole, rngs[0], 30), played(again, second, rngs[1], 30)
    assert len(after[0]) == len(after[1]) > 3
    for one, other in zip(*after, strict=True):
        assert np.array_equal(one.rewards, other.rewards)
        assert np.array_equal(one.info["t"], other.info["t"])
    odd = first.save()
    odd["step.reward"] = odd["step.reward"][:, :4]
    with refused(ValueError, "(5, 3)"):
        second.load(odd)


def test_an_episode_whose_beginning_nobody_saw_does_not_count() -> None:
    rules = SteadyRules()  # episodes of 4 steps
    seen = Batch(rules, 3, 0)
    seen.reset()
    seen.step(np.zeros((3, 2), dtype=np.int64))
    recorder = EpisodeRecorder(rules.agents, 3)
    recorder.load({})
    assert recorder.waiting == 3
    batch = recorder.wrap(Batch(rules, 3, 0))
    batch.restore(seen.snapshot())
    rng = np.random.default_rng(0)
    assert played(batch, recorder, rng, 3) == []
    assert recorder.waiting == 0
    assert [record.length for record in played(batch, recorder, rng, 4)] == [4, 4, 4]


def test_steps_take_no_more_room_than_unfinished_episodes_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = SteadyRules()
    recorder = EpisodeRecorder(rules.agents, 3)
    batch = recorder.wrap(Batch(rules, 3, 0))
    batch.reset()
    records = played(batch, recorder, np.random.default_rng(0), 4000)
    assert len(records) == 3000
    assert {record.length for record in records} == {4}
    assert len(recorder.save()["step.reward"]) == 0
    # Episodes that take too much are given up, and those after them count again.
    monkeypatch.setattr(episode_stats, "MAX_BYTES", 1000)
    long = SteadyRules(max_cycles=300)
    recorder = EpisodeRecorder(long.agents, 3)
    batch = recorder.wrap(Batch(long, 3, 0))
    batch.reset()
    assert played(batch, recorder, np.random.default_rng(0), 301) == []
    assert recorder.given_up == 3
    assert recorder.waiting == 0
