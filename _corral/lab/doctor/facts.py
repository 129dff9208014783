"""Numbers about a run that are shown with the findings in every diagnosis."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from corral.envs.core import Array, Rules
from corral.envs.policy import PolicyLike
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.trainers.evaluation.episodes import play

__all__ = ["FACTS", "Fact", "Played", "Trend", "facts_of", "played", "trend_of"]

FACTS = {
    "entropy": "entropy / log(legal actions)",
    "advantages": "spread of advantages",
    "explained_variance": "explained variance",
    "approx_kl": "KL divergence of an update",
    "clip_fraction": "share of clipped ratios",
    "learning_rate": "learning rate",
    "weights": "largest change of a weight",
}
"""Name of a fact -> its label on the screen."""


@dataclass(frozen=True)
class Fact:
    """One number of a policy, in the first updates and at the checkpoint; None if not measured."""

    name: str  # of FACTS
    policy: str
    beginning: float | None
    latest: float | None


@dataclass(frozen=True)
class Played:
    """Greedy and sampled returns of the learning agents: means and standard errors.

    Both use the same episodes.
    """

    episodes: int
    greedy: float
    greedy_error: float
    sampled: float
    sampled_error: float
    illegal: int  # illegal actions in greedy and sampled play together


@dataclass(frozen=True)
class Trend:
    """Mean reward per env step in the first and the last fifth of the updates."""

    updates: int
    first: float
    last: float
    error: float  # standard error of last - first, if updates are independent and alike distributed

    @property
    def rose(self) -> bool | None:
        """True if the reward rose by more than noise, False if it fell, None otherwise."""
        change = self.last - self.first
        return None if abs(change) <= 3 * self.error else change > 0


# --- Updates -------------------------------------------------------------------------------------


def facts_of(beginning: Evidence | None, latest: Evidence | None) -> tuple[Fact, ...]:
    """Return the facts of each policy that appears in either evidence."""
    policies = dict.fromkeys(
        name for item in (beginning, latest) if item is not None for name in item.policies
    )
    facts = []
    for policy in policies:
        sides = [
            {}
            if item is None or policy not in item.policies
            else _numbers(item.policies[policy], item.trainer.capabilities.advantages)
            for item in (beginning, latest)
        ]
        facts += [
            Fact(name, policy, sides[0].get(name), sides[1].get(name))
            for name in FACTS
            if name in sides[0] or name in sides[1]
        ]
    return tuple(facts)


def _numbers(record: PolicyEvidence, uses_advantages: bool) -> dict[str, float]:
    """Return the facts of the last observed update."""
    numbers: dict[str, float] = {}
    if record.entropy and record.max_entropy and record.max_entropy[-1] > 0:
        numbers["entropy"] = record.entropy[-1][1] / record.max_entropy[-1]
    if uses_advantages and record.advantages and len(record.trajectories) == len(record.advantages):
        valid = record.trajectories[-1].valid
        if valid.any():
            numbers["advantages"] = float(np.std(record.advantages[-1].advantage[valid]))
    metrics = record.metrics[-1] if record.metrics else {}
    numbers |= {
        name: float(metrics[name])
        for name in ("explained_variance", "approx_kl", "clip_fraction", "learning_rate")
        if name in metrics
    }
    if record.moved:
        numbers["weights"] = max(record.moved.values())
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


# --- Play ----------------------------------------------------------------------------------------

EPISODES, SECONDS = 32, 8.0


def played(
    rules: Rules[Any],
    team: Mapping[str, PolicyLike],
    learners: tuple[str, ...],
    *,
    seed: int = 0,
    episodes: int = EPISODES,
    seconds: float = SECONDS,
) -> Played:
    """Play ``team`` greedily and with sampled actions, for at most ``seconds`` each.

    Raises ValueError if not all episodes end in that time: the ones that end are the short ones.
    """
    columns = [rules.agents.index(agent) for agent in learners]
    sums: list[Array] = []
    illegal = 0
    for greedy in (True, False):
        deterministic = {agent: greedy or agent not in learners for agent in rules.agents}
        returns, chosen = _returns(rules, team, deterministic, episodes, seed, seconds)
        if len(returns) < max(2, episodes):
            raise ValueError(f"{len(returns)} of {episodes} episodes ended in {seconds:g} seconds")
        illegal += int(chosen[columns].sum())
        sums.append(returns[:, columns].sum(axis=1))
    (greedy_mean, greedy_error), (sampled_mean, sampled_error) = map(_mean_and_error, sums)
    return Played(episodes, greedy_mean, greedy_error, sampled_mean, sampled_error, illegal)


def _mean_and_error(values: Array) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def _returns(
    rules: Rules[Any],
    team: Mapping[str, PolicyLike],
    deterministic: Mapping[str, bool],
    episodes: int,
    seed: int,
    seconds: float,
) -> tuple[Array, Array]:
    """Return the returns of the episodes that end in time, [E, N], and illegal actions, [N]."""
    began = time.perf_counter()
    illegal = np.zeros(len(rules.agents), dtype=np.int64)
    parts = [np.zeros((0, len(rules.agents)))]
    turns = play(rules, team, deterministic, quota=np.ones(episodes, dtype=np.int64), seed=seed)
    for turn in turns:
        illegal += turn.illegal
        parts.append(turn.ended.returns)
        if time.perf_counter() - began > seconds:
            turns.close()  # type: ignore[attr-defined]
            break
    return np.concatenate(parts), illegal


# --- The whole run -------------------------------------------------------------------------------


def trend_of(progress: pd.DataFrame) -> Trend | None:
    """Return the trend of rewards in progress.csv; None with fewer than 10 updates."""
    if "reward_per_step" not in progress:
        return None
    rewards = pd.to_numeric(progress["reward_per_step"], errors="coerce").dropna().to_numpy()
    part = len(rewards) // 5
    if part < 2:
        return None
    first, last = rewards[:part], rewards[-part:]
    error = math.sqrt((first.var(ddof=1) + last.var(ddof=1)) / part)
    return Trend(len(rewards), float(first.mean()), float(last.mean()), error)
