"""Train a mixture of two configurations for a short time, and score its policies.

The score is the mean return per episode of the final policies, with sampled actions, on the same
seeds for all mixtures. Returns in progress.csv would cost nothing, but the code under test writes
them: a wrapper scales rewards, a rollout shifts them. The environment of the good side, and the
rewards inside all wrappers, are the same measure for all mixtures. In a zero-sum game, in which all
returns of a team add up to the same, each agent plays against random players.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import time
import warnings
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np

from corral.adapters.seats import random_policy
from corral.adapters.zoo.batch import ZooRules
from corral.envs.core import Rules
from corral.envs.policy import PolicyLike
from corral.lab.bisect.sides import Difference, Pair
from corral.lab.bisect.wrappers import Rewrapped
from corral.trainers.base import Trainer
from corral.trainers.evaluation.episodes import play
from corral.trainers.evaluation.zero_sum import is_zero_sum
from corral.trainers.plan import begun
from corral.trainers.runs.run_config import RunConfig

__all__ = ["FAILED", "Mixable", "MixedConfigs", "score_of"]

EPISODES = 16
MAX_TURNS = 2_000
"""Longest evaluation in steps; a longer episode counts up to there."""

FAILED = float("-inf")
"""Score of a training that raises an error."""


class Mixable(Protocol):
    """Two trainings, their differences, and the score of any mixture."""

    differences: tuple[Difference, ...]

    def score(self, bad: Collection[Difference], seed: int) -> float | None:
        """Train with the good values, except for the differences ``bad``; return the score.

        None: this mixture does not fit together."""
        ...


class MixedConfigs:
    """Mixtures of two configurations, trained for ``steps`` env steps of the good side."""

    def __init__(self, good: RunConfig, bad: RunConfig, steps: int) -> None:
        self.pair = Pair(good, bad)
        self.differences = self.pair.differences
        self.share = steps / good.steps

    def score(self, bad: Collection[Difference], seed: int) -> float | None:
        from corral.trainers.rng import GlobalGenerators  # needs torch

        with (
            GlobalGenerators(seed),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(action="ignore"),
        ):
            try:
                config = self.pair.mixed(bad)
                learner = begun(shortened(config, self.share, seed))
                if config.init is not None:
                    from corral.trainers.cloning.start import start_from  # needs torch

                    at = int(config.init["checkpoint"].split("_")[1])
                    start_from(learner, f"{config.init['run']}@{at}", config.env_config)
                judge = self.pair.judge(bad)
            except Exception:  # the user's parts may raise anything
                return None
            try:
                for _ in learner.learn():
                    pass
                return score_of(learner.policies, judge, config, seed)
            except Exception:
                return FAILED
            finally:
                learner.close()


def shortened(config: RunConfig, share: float, seed: int) -> RunConfig:
    """Return the configuration of a training of a share of the steps, with another seed."""
    steps, horizon = (max(1, round(share * length)) for length in (config.steps, config.horizon))
    return dataclasses.replace(config, steps=steps, horizon=horizon, seed=seed)


def seconds_per_step(learner: Trainer, seconds: float) -> float:
    """Return the CPU seconds per env step of a trainer, from ``seconds`` of training or more."""
    began = time.process_time()
    for _ in learner.learn():
        if time.process_time() - began > seconds:
            break
    return (time.process_time() - began) / max(1, learner.env_steps)


def score_of(
    policies: Mapping[str, PolicyLike], rules: Rules[Any], config: RunConfig, seed: int
) -> float:
    """Return the mean return per episode, summed over the trained agents."""
    random_team = {a: random_policy(rules.action_space(a)) for a in rules.agents}
    team = {**random_team, **policies}
    kind = config.defaults.get("kind") or {}
    if not (is_zero_sum(rules) or kind.get("zero_sum")):
        return _mean_return(team, rules, config.learners, seed)
    seats = [
        _mean_return({**random_team, agent: team[agent]}, rules, (agent,), seed)
        for agent in config.learners
    ]
    return float(np.mean(seats))


def _mean_return(
    team: Mapping[str, PolicyLike], rules: Any, agents: Collection[str], seed: int
) -> float:
    returns: list[float] = []
    if isinstance(rules, ZooRules) and isinstance(rules.make_env, Rewrapped):
        make = dataclasses.replace(rules.make_env, ledger=returns)
        rules = dataclasses.replace(rules, make_env=make)
    columns = [i for i, agent in enumerate(rules.agents) if agent in agents]
    alive, total = np.ones(EPISODES, dtype=bool), 0.0
    sampled = dict.fromkeys(rules.agents, False)
    quota = np.ones(EPISODES, dtype=np.int64)
    for turn in play(rules, team, sampled, quota=quota, seed=seed + EPISODE_SEED):
        total += float(turn.step.reward[alive][:, columns].sum())
        alive[turn.ended.rows] = False
        if turn.t + 1 >= MAX_TURNS:
            break
    return float(np.mean(returns)) if returns else total / EPISODES


EPISODE_SEED = 7_000
"""Added to the seed of a training, for episodes that it has not played."""
