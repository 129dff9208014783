"""Rules about rows in order of time, in batches of whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from corral.lab.listening.ear import Ear
from corral.lab.listening.rules import findings_of

GAMMA = 0.99


def to_go(rewards: Any, gamma: float = GAMMA) -> Any:
    weights = gamma ** np.arange(len(rewards))
    return np.array([rewards[t:] @ weights[: len(rewards) - t] for t in range(len(rewards))])


def normalized(values: Any) -> Any:
    return (values - values.mean()) / (values.std() + 1e-8)


def causes(
    returns_of: Callable[[Any], Any],
    *,
    sparse: bool = True,
    shuffled: bool = False,
) -> dict[str, int]:
    draws = np.random.default_rng(0)
    ear = Ear()
    for number in range(4):
        rewards, returns, ends = [], [], []
        for _ in range(10):
            paid = draws.normal(size=draws.integers(5, 12) if number else 8)
            if sparse:
                paid[:-1], paid[-1] = 0.0, draws.choice([-1, 1]) if number else -1
            rewards.append(paid)
            returns.append(returns_of(paid))
            ends.append(np.arange(len(paid)) == len(paid) - 1)
        columns = {"rewards": rewards, "returns": returns, "terminated": ends}
        batch = {name: np.concatenate(parts) for name, parts in columns.items()}
        if shuffled:
            order = draws.permutation(len(batch["returns"]))
            batch = {name: values[order] for name, values in batch.items()}
        ear.batch(**batch, advantages=normalized(batch["returns"]), log_probs=-batch["rewards"])
    return {item.cause: item.certainty for item in findings_of(ear.policies.values())}


@pytest.mark.parametrize("sparse", [False, True])
def test_sound_returns_are_silent(sparse: bool) -> None:
    assert causes(to_go, sparse=sparse) == {}
    assert causes(lambda rewards: np.full(len(rewards), rewards.sum()), sparse=sparse) == {}


@pytest.mark.parametrize("sparse", [False, True])
def test_sums_of_the_past_are_named(sparse: bool) -> None:
    assert causes(lambda rewards: to_go(rewards[::-1])[::-1], sparse=sparse) == {
        "advantage-elsewhere": 3
    }


def test_returns_normalized_by_episode_are_named() -> None:
    found = causes(lambda rewards: normalized(to_go(rewards)))
    assert found == {"advantages-mixed": 3}
    assert causes(lambda rewards: to_go(rewards) - to_go(rewards).mean()) == {"advantages-mixed": 2}


@pytest.mark.parametrize("returns_of", [to_go, lambda rewards: normalized(to_go(rewards))])
def test_shuffled_rows_are_silent(returns_of: Callable[[Any], Any]) -> None:
    assert causes(returns_of, shuffled=True) == {}
