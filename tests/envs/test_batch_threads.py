"""What the Batch promises to threads: one batch each, over shared rules, or one with a lock."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from corral.envs.batch import make_batch
from corral.envs.core import Array
from corral.envs.registry import make_rules

ENVS = ["dfaas_v0", "arena_v0", "tictactoe_v0", "rps_v0", "tiles_v0", "two_step_v0"]
STEPS, THREADS = 120, 4


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """Threads that take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def played(rules: Any, seed: int) -> Array:
    """Return the rewards of a batch of its own, [T, B, N]."""
    batch, rng = make_batch(rules, num_envs=5, seed=seed), np.random.default_rng(seed)
    batch.reset()
    return np.array([batch.step(batch.sample_actions(rng)).reward.copy() for _ in range(STEPS)])


@pytest.mark.parametrize("env", ENVS)
def test_batches_of_shared_rules_play_as_alone(env: str) -> None:
    rules = make_rules(env)
    alone = [played(rules, seed) for seed in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as threads:
        beside = [*threads.map(lambda seed: played(rules, seed), range(THREADS))]
    for one, other in zip(alone, beside, strict=True):
        np.testing.assert_array_equal(one, other)
    assert any((one != alone[0]).any() for one in alone[1:])  # seeds tell apart


@pytest.mark.parametrize("env", ENVS)
def test_threads_with_a_lock_share_a_batch(env: str) -> None:
    """Whoever takes a step: the batch plays what it plays in one thread."""
    rules, turns = make_rules(env), threading.Lock()
    batch, rng = make_batch(rules, num_envs=5, seed=0), np.random.default_rng(0)
    batch.reset()
    rewards: list[Array] = []
    takers: set[int] = set()

    def steps(_: int) -> None:
        for _ in range(STEPS // THREADS):
            with turns:
                rewards.append(batch.step(batch.sample_actions(rng)).reward.copy())
                takers.add(threading.get_ident())

    began = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda i: (began.wait(), steps(i)), range(THREADS)))
    assert len(takers) == THREADS
    np.testing.assert_array_equal(np.array(rewards), played(rules, 0))
