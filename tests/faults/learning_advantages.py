"""Mistakes in advantage functions: nothing, the wrong way round, or others' numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from corral import algorithms as alg
from corral.trainers.on_policy.trainer import MAPPO
from corral.trainers.runs.run import Run
from faults.fault import fault, trained


def with_advantages(folder: Path, advantages: Any, env: str = "dfaas_v0", **given: Any) -> Run:
    """Train MAPPO with an advantage function of one's own."""
    return trained(folder, env, trainer=alg.mappo.but(name="mine", advantages=advantages), **given)


# --- Nothing is said -----------------------------------------------------------------------------


@fault("zero-advantages")
def advantages_never_filled(folder: Path) -> Run:
    """The array of advantages is made, and never filled."""

    def advantages(trajectories, settings):
        found = alg.gae(trajectories, settings)
        return alg.Advantages(np.zeros_like(found.advantage), found.value_target)

    return with_advantages(folder, advantages)


@fault("zero-advantages")
def advantages_of_the_invalid(folder: Path) -> Run:
    """The mask of valid decisions is turned round: what counts is set to 0."""

    def advantages(trajectories, settings):
        found = alg.gae(trajectories, settings)
        return alg.Advantages(found.advantage * ~trajectories.valid, found.value_target)

    return with_advantages(folder, advantages)


@fault("zero-advantages")
def normalized_over_one(folder: Path) -> Run:
    """Each advantage is normalized over an axis of one element: it less itself."""

    def advantages(trajectories, settings):
        found = alg.gae(trajectories, settings)
        each = found.advantage[..., None]  # [T, C, 1]: one agent
        scaled = (each - each.mean(-1, keepdims=True)) / (each.std(-1, keepdims=True) + 1e-8)
        return alg.Advantages(scaled[..., 0], found.value_target)

    return with_advantages(folder, advantages)


@fault("zero-advantages", "advantage-elsewhere")
def advantages_times_done(folder: Path) -> Run:
    """Advantages are multiplied by done, where 1 - done was meant."""

    def advantages(trajectories, settings):
        found = alg.gae(trajectories, settings)
        done = trajectories.ended.astype(np.float32)
        return alg.Advantages(found.advantage * done, found.value_target)

    return with_advantages(folder, advantages)


class NothingValid(MAPPO):
    """Takes no decision for valid: its mask is of who is dead."""

    def update_policy(self, i, learner):
        self.rollout.groups[i].acted[:] = False
        return super().update_policy(i, learner)


@fault("decisions-left-out")
def no_decision_is_valid(folder: Path) -> Run:
    """The mask of who acted is cleared before the update: nothing is learned from."""
    return trained(folder, "dfaas_v0", trainer=NothingValid)


# --- The wrong way round, or another's -----------------------------------------------------------


@fault("advantage-sign")
def advantage_sign_flipped(folder: Path) -> Run:
    """Advantages are value - return."""

    def advantages(trajectories, settings):
        found = alg.gae(trajectories, settings)
        return alg.Advantages(trajectories.value - found.value_target, found.value_target)

    return with_advantages(folder, alg.normalize(advantages))


@fault("advantage-elsewhere")
def advantages_shuffled(folder: Path) -> Run:
    """Advantages are shuffled, and what they belong to is not."""
    rng = np.random.default_rng(0)

    def advantages(trajectories, settings):
        found = alg.gae(trajectories, settings)
        mixed = rng.permutation(found.advantage.reshape(-1)).reshape(found.advantage.shape)
        return alg.Advantages(mixed, found.value_target)

    return with_advantages(folder, alg.normalize(advantages))


@fault("advantage-elsewhere")
def advantages_reshaped(folder: Path) -> Run:
    """Advantages of [T, C] come back as if they were of [C, T]."""

    def advantages(trajectories, settings):
        found = alg.gae(trajectories, settings)
        turned = found.advantage.T.reshape(found.advantage.shape)
        return alg.Advantages(np.ascontiguousarray(turned), found.value_target)

    return with_advantages(folder, alg.normalize(advantages))


def own_gae(
    reward: Any, value: Any, after: Any, goes_on: Any, gamma: float, gae_lambda: float
) -> Any:
    """Return GAE as many write it; ``goes_on`` 0 or 1 [T, C], ``after`` [C] the last value."""
    advantage, trace = np.zeros_like(reward), np.zeros_like(after)
    for t in reversed(range(len(reward))):
        delta = reward[t] + gamma * after * goes_on[t] - value[t]
        trace = delta + gamma * gae_lambda * goes_on[t] * trace
        advantage[t], after = trace, value[t]
    return advantage


@fault("advantage-elsewhere", "advantages-mixed")
def gae_over_agents(folder: Path) -> Run:
    """GAE runs over the axis of agents and environments in place of time."""

    def advantages(trajectories, settings):
        flipped = (trajectories.reward.T, trajectories.value.T)
        goes_on = 1.0 - trajectories.ended.T
        after = np.zeros(len(trajectories.reward), np.float32)
        found = own_gae(*flipped, after, goes_on, settings.gamma, settings.gae_lambda)
        found = np.ascontiguousarray(found.T, dtype=np.float32)
        return alg.Advantages(found, found + trajectories.value)

    return with_advantages(folder, alg.normalize(advantages))


@fault("advantage-elsewhere")
def gae_forwards(folder: Path) -> Run:
    """GAE runs from the first step to the last: what comes before is credited."""

    def advantages(trajectories, settings):
        advantage, trace = np.zeros_like(trajectories.reward), 0.0
        following = [*trajectories.value[1:], trajectories.bootstrap_value]
        for t, following_value in enumerate(following):
            goes_on = 1.0 - trajectories.ended[t]
            delta = trajectories.reward[t] - trajectories.value[t]
            delta = delta + settings.gamma * following_value * goes_on
            trace = delta + settings.gamma * settings.gae_lambda * trace
            advantage[t], trace = trace, trace * goes_on
        return alg.Advantages(advantage, advantage + trajectories.value)

    return with_advantages(folder, alg.normalize(advantages))


@fault("advantages-tiny", "policy-unchanged")
def rewards_divided_in_advantages(folder: Path) -> Run:
    """Rewards are divided by a million before advantages are made, which nobody normalizes."""

    def advantages(trajectories, settings):
        found = alg.gae(trajectories, settings)
        return alg.Advantages(found.advantage * 1e-6, found.value_target)

    return with_advantages(folder, advantages)
