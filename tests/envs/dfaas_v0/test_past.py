"""How long requests of dfaas_v0 wait: by hand, request by request, and in copies of a state."""

from __future__ import annotations

from collections import deque

import numpy as np

from corral.data import Trace
from corral.envs.batch import Batch
from corral.envs.core import copy_rows, generator
from corral.envs.dfaas_v0 import DfaasRules
from support.loads import small_trace


def test_waiting_by_hand() -> None:
    """4 come, 1 is served each step: 3 wait 1, 2, 3 steps, one of the next 2 waits 3; and so on."""
    trace = Trace(
        nodes=("a",), arrivals=[[4], [0], [2], [0], [0], [0]],
        capacity=[[1], [1], [1], [1], [0], [9]], times=np.arange(6),
    )  # fmt: skip
    rules = DfaasRules(trace, queue=4, start=0, max_cycles=6)
    state, waited = rules.start([np.random.default_rng(0)]), []
    for _ in range(6):
        outcome = rules.step(state, np.zeros((1, 1), dtype=np.int64))
        state = outcome.state
        waited.append(outcome.info["waited"][0, 0])
    assert waited == [0, 1, 2, 3, 0, 3 + 3]


def test_waiting_request_by_request() -> None:
    """Each request is one entry of a line, with the step at which it came."""
    rules = DfaasRules(small_trace(steps=60), queue=17, capacity="0.9x", max_cycles=60)
    num_envs, most = 4, 0
    state = rules.start([generator(3, "env", row) for row in range(num_envs)])
    lines = {(env, i): deque[int]() for env in range(num_envs) for i in range(3)}
    rng = np.random.default_rng(0)
    for t in range(60):
        outcome = rules.step(state, rng.integers(4, size=(num_envs, 3)))
        state, info = outcome.state, outcome.info
        for (env, i), line in lines.items():
            came = info["arrivals"][env, i] - info["forwarded"][env, i]
            line.extend([t] * int(came))
            waits = [t - line.popleft() for _ in range(info["served_local"][env, i])]
            assert info["waited"][env, i] == sum(waits)
            while len(line) > 17:
                line.pop()
            assert info["waiting"][env, i] == len(line)
            most = max(most, *waits, 0)
    assert most > 3


def test_copies_of_a_state_and_new_episodes_wait_for_themselves() -> None:
    kwargs = {"trace": small_trace(steps=60), "queue": 17, "capacity": "0.8x"}
    batch = Batch(DfaasRules(**kwargs, max_cycles=9), 5, 0)
    batch.reset()
    rng = np.random.default_rng(0)
    for _ in range(4):
        batch.step(batch.sample_actions(rng))
    moments, elapsed, _ = batch.moments(np.array([3, 1]))
    rules, seen = batch.rules, []
    batch.restore(batch.snapshot())
    for _ in range(12):
        actions = batch.sample_actions(rng)
        step = batch.step(actions)
        seen.append(step.info["waited"][[3, 1]])
        if len(seen) <= 5:  # a copy of the rows, in another order and memory layout
            alone = rules.step(copy_rows(moments, slice(None)), actions[[3, 1]])
            moments = alone.state
            np.testing.assert_array_equal(alone.info["waited"], seen[-1])
    assert elapsed.tolist() == [4, 4]
    assert np.count_nonzero(seen[:5]) > 0
    np.testing.assert_array_equal(seen[5], 0)  # the first step of new episodes


def test_beyond_the_last_step_nothing_breaks() -> None:
    rules = DfaasRules(small_trace(), queue=30, capacity="0.5x", max_cycles=3)
    state = rules.start([generator(3, "env", 0)])
    for _ in range(20):
        outcome = rules.step(state, np.zeros((1, 3), dtype=np.int64))
        state = outcome.state
        assert (outcome.info["waited"] <= 2 * outcome.info["served_local"]).all()
    assert rules.start([generator(3, "env", 0)]).aged.shape == (1, 1, 3)
    assert DfaasRules(small_trace()).start([generator(3, "env", 0)]).aged.size == 0
