"""How long served requests waited: against a line of requests, and what the rules tell."""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
import pytest

from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.loads.replay import Score, play_windows, replay
from corral.loads.text import describe, score_tables
from corral.loads.waiting import served_after, with_waits
from corral.trainers.evaluation.episodes import Turn
from support.loads import small_trace


def test_waits_are_those_of_requests_in_line() -> None:
    rng = np.random.default_rng(0)
    steps, nodes, window = 103, 3, 10
    served, waiting = (np.zeros((steps, nodes), dtype=np.int64) for _ in range(2))
    remote = rng.integers(3, size=(steps, nodes))
    found = Counter({0: int(remote.sum())})
    for i in range(nodes):
        line: deque[int] = deque()
        for t in range(steps):
            if t % window == 0:
                line.clear()
            line.extend([t] * int(rng.integers(4) if i else 0))
            for _ in range(min(len(line), int(rng.integers(4)))):
                found[t - line.popleft()] += 1
                served[t, i] += 1
            while len(line) > 7:
                line.pop()
            waiting[t, i] = len(line)
    times = served_after(served, remote, waiting, window)
    assert {wait: int(n) for wait, n in enumerate(times) if n} == found
    assert len(found) > 4


def test_waits_add_up_to_what_the_rules_tell() -> None:
    rules = DfaasRules(small_trace(steps=70), queue=20, capacity="0.9x")
    told = []

    def add(turn: Turn) -> None:
        told.append(turn.step.info["waited"].sum())

    team = baseline_team("patient", rules)
    _, course = play_windows(rules, team, window=20, on_turn=add)
    assert course.served_after is not None
    assert course.served_after @ np.arange(len(course.served_after)) == sum(told) > 0
    none = DfaasRules(small_trace())
    assert play_windows(none, baseline_team("local", none), 20)[1].served_after is None


def test_mean_and_percentile_by_hand() -> None:
    trace = Trace(
        nodes=("a",), arrivals=[[20], [0]], capacity=[[19], [9]], times=[0, 90], clock="utc"
    )
    score = replay(trace, ["local"], queue=9, window=2).scores[0]
    assert (score.mean_wait, score.p95_wait) == (1 / 20, 0)  # 19 of 20 did not wait
    assert (score.mean_wait_s, score.p95_wait_s) == (90 / 20, 0)
    score = with_waits([score], {"local": np.array([18, 0, 2])}, trace)[0]
    assert (score.mean_wait, score.p95_wait, score.p95_wait_s) == (4 / 20, 2, 180)


@pytest.mark.parametrize("queue", [0, 30])
def test_waits_are_shown_where_there_is_a_queue(queue: int) -> None:
    pytest.importorskip("scipy", reason="the linear program needs scipy: corral[optimum]")
    result = replay(small_trace(steps=60), ["local", "overflow"], window=20, queue=queue)
    titles = [str(table.columns[0].header) for table in score_tables(result)]
    assert any("wait" in title for title in titles) == bool(queue)
    assert any("forwards" in line and "wait" in line for line in describe(result)) == bool(queue)
    scores: dict[str, Score] = {score.policy: score for score in result.scores}
    assert (scores["local"].mean_wait is not None) == bool(queue)
    assert scores["local"].mean_wait_s is None  # the trace has no clock
    assert scores["optimum"].mean_wait is None
