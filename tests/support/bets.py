"""A game of bets in dfaas_v0: a node that forwards its requests bets on the count of that step.

A bet wins 1 where more than ``LINE`` requests arrive, which is so in 2 of 5 steps, and loses 1
elsewhere: -0.2 on average. No bet pays 0. Counts are drawn by themselves, so that nothing tells the
next one, and a policy that does not know it does best if it never bets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.data.trace import Trace
from corral.envs.batch import Batch
from corral.envs.core import Array, windows_of
from corral.envs.dfaas_v0 import DfaasRules

STEPS = 8
"""Steps of a day, which is an episode."""

LINE, LARGEST = 24, 40


def counts(days: int, seed: int, nodes: int = 2) -> Trace:
    """So many days. At each time of day exactly 2 of 5 steps win, so that no time is better."""
    rng = np.random.default_rng(seed)
    wins = np.arange(days)[:, None, None] < 2 * days // 5
    wins = rng.permuted(np.broadcast_to(wins, (days, STEPS, nodes)), axis=0)
    high = rng.integers(LINE + 1, LARGEST + 1, size=wins.shape)
    low = rng.integers(1, LINE + 1, size=wins.shape)
    arrivals = np.where(wins, high, low).reshape(-1, nodes)
    return Trace(
        nodes=tuple(f"site-{i}" for i in range(nodes)),
        arrivals=arrivals,
        capacity=np.full_like(arrivals, 4 * LARGEST),
        times=np.arange(len(arrivals)) * (86_400 // STEPS),
        clock="utc",
        name="bets",
    )


def paid(info: Any, rules: Any) -> Array:
    bet = info["forwarded"] > 0
    return np.where(bet, np.where(info["arrivals"] > LINE, 1, -1), 0).astype(np.float32)


def bets(days: int = 40, seed: int = 1, **given: Any) -> DfaasRules:
    """Rules with two actions: keep all, or forward all."""
    plan: dict[str, Any] = {"max_level": 1, "load_scale": LARGEST, "max_cycles": STEPS}
    plan |= {"reward_fn": paid, "arrivals": "unknown"}
    return DfaasRules(counts(days, seed), **{**plan, **given})


def earned_on(rules: DfaasRules, decide: Any) -> tuple[float, float, float]:
    """What ``decide`` earns in a step on all days of the rules, its 95 % interval's half width over
    days; and the share of its bets."""
    windows = windows_of(rules, 10_000)
    assert windows is not None
    batch = Batch(windows[0], windows[1], seed=0)
    observations, rewards, bet = batch.reset(), [], 0.0
    for _ in range(STEPS):
        actions = decide(observations, batch.acting)
        bet += float((actions > 0).mean()) / STEPS
        step = batch.step(actions)
        observations = step.observations
        rewards.append(step.reward.mean(axis=1))
    days = np.mean(rewards, axis=0)
    return float(days.mean()), float(1.96 * days.std() / np.sqrt(len(days))), bet
