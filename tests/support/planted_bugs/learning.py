"""Bugs in what is learned from: advantages, rewards, gradients, steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.trainers.on_policy.algorithms import gae
from corral.trainers.on_policy.records import Advantages, Trajectories
from support.planted_bugs.base import (
    Kind,
    but,
    plant,
    with_methods,
    with_settings,
)

# --- Advantages ----------------------------------------------------------------------------------


def _advantages(kind: Kind, change: Callable[[Array], Array]) -> Kind:
    """Return a trainer whose advantages are ``change(advantages [R])`` of valid decisions."""
    right = kind.algorithm.advantages

    def changed(trajectories: Trajectories, settings: Any) -> Advantages:
        found, valid = right(trajectories, settings), trajectories.valid
        advantage = np.zeros_like(found.advantage)
        advantage[valid] = change(found.advantage[valid])
        return dataclasses.replace(found, advantage=advantage)

    return but(kind, advantages=changed)


@plant
def zeroed_advantages(kind: Kind) -> Kind:
    """The actor learns nothing, the critic all."""
    return _advantages(kind, np.zeros_like)


@plant
def advantage_sign_flipped(kind: Kind) -> Kind:
    return _advantages(kind, np.negative)


@plant
def shuffled_advantages(kind: Kind) -> Kind:
    """Minibatches pair decisions with advantages of others."""
    rng = np.random.default_rng(0)
    return _advantages(kind, rng.permutation)


@plant
def advantages_without_the_sign(kind: Kind) -> Kind:
    return _advantages(kind, np.abs)


@plant
def plain_normalization(kind: Kind) -> Kind:
    """Advantages are divided by their standard deviation, whatever that is: NaN ends the run."""

    def plain(trajectories: Trajectories, settings: Any) -> Advantages:
        found, valid = gae(trajectories, settings), trajectories.valid
        scaled = np.zeros_like(found.advantage)
        own = found.advantage[valid]
        with np.errstate(all="ignore"):
            scaled[valid] = (own - own.mean()) / own.std()
        return Advantages(scaled, found.value_target)

    return but(kind, advantages=plain)


def _trajectories(kind: Kind, change: Callable[[dict[str, Array], Any], Any]) -> Kind:
    """Return a trainer that makes advantages of what ``change`` leaves of the trajectories."""
    right = kind.algorithm.advantages

    def changed(trajectories: Trajectories, settings: Any) -> Advantages:
        given = dict(vars(trajectories))
        change(given, settings)
        return right(Trajectories(**given), settings)

    return but(kind, advantages=changed)


@plant
def cut_taken_for_an_end(kind: Kind) -> Kind:
    """A time limit is worth nothing."""

    def change(given: dict[str, Array], settings: Any) -> None:
        given["final_obs_value"] = np.zeros_like(given["final_obs_value"])

    return _trajectories(kind, change)


@plant
def end_taken_for_a_cut(kind: Kind) -> Kind:
    """Episodes never end: the next one's values and advantages go on from theirs."""

    def change(given: dict[str, Array], settings: Any) -> None:
        given["ended"] = np.zeros_like(given["ended"])

    return _trajectories(kind, change)


@plant
def value_after_the_reset(kind: Kind) -> Kind:
    """A cut is worth what the next episode's first observation is, not its own last."""

    def change(given: dict[str, Array], settings: Any) -> None:
        following = np.concatenate([given["value"][1:], given["bootstrap_value"][None]])
        given["final_obs_value"] = np.where(given["final_obs_value"] != 0, following, 0)

    return _trajectories(kind, change)


@plant
def rewards_between_moves_lost(kind: Kind) -> Kind:
    def change(given: dict[str, Array], settings: Any) -> None:
        given["reward"] = given["reward"] * given["acted"]

    return _trajectories(kind, change)


@plant
def rewards_between_moves_discounted(kind: Kind) -> Kind:
    """Once per step of the game, as if the agent acted in all of them."""

    def change(given: dict[str, Array], settings: Any) -> None:
        since = np.zeros(given["acted"].shape[1])
        reward = given["reward"].copy()
        for t, acted in enumerate(given["acted"]):
            since = np.where(acted, 0, since + 1)
            reward[t] *= settings.gamma**since
        given["reward"] = reward

    return _trajectories(kind, change)


@plant
def early_rewards_credited(kind: Kind) -> Kind:
    """What came while an agent did not act is added to the move that follows."""

    def change(given: dict[str, Array], settings: Any) -> None:
        reward = given["reward"].copy()
        for t in range(len(reward) - 1):
            moved = np.where(given["acted"][t], 0, reward[t])
            reward[t] -= moved
            reward[t + 1] += moved
        given["reward"] = reward

    return _trajectories(kind, change)


@plant
def reward_one_step_late(kind: Kind) -> Kind:
    """Each decision is paid what the one before it earned."""

    def change(given: dict[str, Array], settings: Any) -> None:
        given["reward"] = np.concatenate([given["reward"][:1] * 0, given["reward"][:-1]])

    return _trajectories(kind, change)


@plant
def discount_once_too_often(kind: Kind) -> Kind:
    def change(given: dict[str, Array], settings: Any) -> None:
        given["reward"] = given["reward"] * np.float32(settings.gamma)

    return _trajectories(kind, change)


@plant
def discount_forgotten(kind: Kind) -> Kind:
    return with_settings(kind, gamma=1.0)


# --- Rewards -------------------------------------------------------------------------------------


def _rewards(kind: Kind, change: Callable[[Array], Array]) -> Kind:
    """Return a trainer that learns from ``change(reward [T, B, N])``."""

    def collect(self: Any) -> Any:
        found = kind.collect(self)
        self.rollout.reward[...] = change(self.rollout.reward.copy())
        return found

    return with_methods(kind, collect=collect)


@plant
def mixed_rewards(kind: Kind) -> Kind:
    """Each agent learns from the mean of all agents' rewards."""
    return _rewards(kind, lambda reward: reward.mean(axis=-1, keepdims=True))


@plant
def reward_of_another_agent(kind: Kind) -> Kind:
    return _rewards(kind, lambda reward: np.roll(reward, 1, axis=-1))


@plant
def rewards_clipped_to_one(kind: Kind) -> Kind:
    return _rewards(kind, lambda reward: reward.clip(-1, 1))


@plant
def reward_scale_of_a_millionth(kind: Kind) -> Kind:
    return _rewards(kind, lambda reward: reward * 1e-6)


# --- Networks and steps --------------------------------------------------------------------------


@plant
def shared_policy_without_agent_id(kind: Kind) -> Kind:
    return with_settings(kind, agent_id=False)


@plant
def learning_rate_zero(kind: Kind) -> Kind:
    return with_settings(kind, learning_rate=0.0)


@plant
def too_few_steps(kind: Kind) -> Kind:
    """A tenth of what the probes allow."""

    def init(self: Any, *args: Any, steps: int, **kwargs: Any) -> None:
        kind.__init__(self, *args, steps=steps // 10, **kwargs)

    return with_methods(kind, __init__=init)


@plant
def entropy_bonus_too_large(kind: Kind) -> Kind:
    return with_settings(kind, ent_coef=3.0)


def _gradients(kind: Kind, role: str) -> Kind:
    right = kind.algorithm.gradients

    def gradients(learner: Any, settings: Any) -> Any:
        for parameter in getattr(learner, role).parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        return right(learner, settings)

    return but(kind, gradients=gradients)


@plant
def actor_without_gradient(kind: Kind) -> Kind:
    return _gradients(kind, "actor")


@plant
def critic_without_gradient(kind: Kind) -> Kind:
    return _gradients(kind, "critic")


@plant
def value_target_clipped_flat(kind: Kind) -> Kind:
    right = kind.algorithm.advantages

    def clipped(trajectories: Trajectories, settings: Any) -> Advantages:
        found = right(trajectories, settings)
        return dataclasses.replace(found, value_target=found.value_target.clip(-0.5, 0.5))

    return but(kind, advantages=clipped)


@plant
def actions_of_another_agent_stored(kind: Kind) -> Kind:
    """Advantages meet the action that the other one played."""

    def collect(self: Any) -> Any:
        found = kind.collect(self)
        buffers = self.rollout.groups
        if len(buffers) == 1:
            buffers[0].action[...] = np.roll(buffers[0].action, 1, axis=2)
            legal = np.take_along_axis(buffers[0].mask, buffers[0].action[..., None], axis=-1)
            first = buffers[0].mask.argmax(axis=-1)
            buffers[0].action[...] = np.where(legal[..., 0], buffers[0].action, first)
        elif len({buffer.group.actions.masks for buffer in buffers}) == 1:
            actions = [buffer.action.copy() for buffer in buffers]
            for i, buffer in enumerate(buffers):
                buffer.action[...] = actions[i - 1]
        return found

    return with_methods(kind, collect=collect)
