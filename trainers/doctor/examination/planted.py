"""Bugs, planted in corral's trainers: each makes a broken trainer of a sound one.

    Broken = zeroed_advantages(MAPPO)
    found = examination(Broken)

``PLANTED`` are all of them by name, and in words. Which probes each of them fails is what
``corral.trainers.doctor.examination.patterns`` holds; benchmarks/planted_bugs.py measures it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, TypeAlias

import numpy as np
import torch

from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, OBSERVATION
from corral.envs.policy import Decision, Memoryless
from corral.trainers.on_policy.algorithms import gae
from corral.trainers.on_policy.records import Advantages, Losses, Trajectories
from corral.trainers.on_policy.trainer import OnPolicyTrainer

__all__ = ["PLANTED", "Plant"]

Kind: TypeAlias = type[OnPolicyTrainer]
Plant: TypeAlias = Callable[[Kind], Kind]
"""Makes a broken trainer of a sound one."""

PLANTED: dict[str, Plant] = {}
"""All planted bugs, by what they are called."""


def _planted(plant: Plant) -> Plant:
    PLANTED[plant.__name__.replace("_", " ")] = plant
    return plant


def _but(kind: Kind, **changes: Any) -> Kind:
    """Return a trainer by the same algorithm with some functions replaced."""
    return type(kind.__name__, (kind,), {"algorithm": kind.algorithm.but(**changes)})


def _with(kind: Kind, **methods: Any) -> Kind:
    return type(kind.__name__, (kind,), methods)


# --- Advantages ----------------------------------------------------------------------------------


def _advantages(kind: Kind, change: Callable[[Array], Array]) -> Kind:
    """Return a trainer whose advantages are ``change(advantages [R])`` of valid decisions."""
    right = kind.algorithm.advantages

    def changed(trajectories: Trajectories, settings: Any) -> Advantages:
        found, valid = right(trajectories, settings), trajectories.valid
        advantage = np.zeros_like(found.advantage)
        advantage[valid] = change(found.advantage[valid])
        return dataclasses.replace(found, advantage=advantage)

    return _but(kind, advantages=changed)


@_planted
def zeroed_advantages(kind: Kind) -> Kind:
    """The actor learns nothing, the critic all."""
    return _advantages(kind, np.zeros_like)


@_planted
def advantage_sign_flipped(kind: Kind) -> Kind:
    return _advantages(kind, np.negative)


@_planted
def shuffled_advantages(kind: Kind) -> Kind:
    """Minibatches pair decisions with advantages of others."""
    rng = np.random.default_rng(0)
    return _advantages(kind, rng.permutation)


@_planted
def advantages_without_the_sign(kind: Kind) -> Kind:
    return _advantages(kind, np.abs)


@_planted
def plain_normalization(kind: Kind) -> Kind:
    """Advantages are divided by their standard deviation, whatever that is: NaN ends the run."""

    def plain(trajectories: Trajectories, settings: Any) -> Advantages:
        found, valid = gae(trajectories, settings), trajectories.valid
        scaled = np.zeros_like(found.advantage)
        own = found.advantage[valid]
        with np.errstate(all="ignore"):
            scaled[valid] = (own - own.mean()) / own.std()
        return Advantages(scaled, found.value_target)

    return _but(kind, advantages=plain)


def _trajectories(kind: Kind, change: Callable[[dict[str, Array], Any], Any]) -> Kind:
    """Return a trainer that makes advantages of what ``change`` leaves of the trajectories."""
    right = kind.algorithm.advantages

    def changed(trajectories: Trajectories, settings: Any) -> Advantages:
        given = dict(vars(trajectories))
        change(given, settings)
        return right(Trajectories(**given), settings)

    return _but(kind, advantages=changed)


@_planted
def cut_taken_for_an_end(kind: Kind) -> Kind:
    """A time limit is worth nothing."""

    def change(given: dict[str, Array], settings: Any) -> None:
        given["final_obs_value"] = np.zeros_like(given["final_obs_value"])

    return _trajectories(kind, change)


@_planted
def end_taken_for_a_cut(kind: Kind) -> Kind:
    """Episodes never end: the next one's values and advantages go on from theirs."""

    def change(given: dict[str, Array], settings: Any) -> None:
        given["ended"] = np.zeros_like(given["ended"])

    return _trajectories(kind, change)


@_planted
def value_after_the_reset(kind: Kind) -> Kind:
    """A cut is worth what the next episode's first observation is, not its own last."""

    def change(given: dict[str, Array], settings: Any) -> None:
        following = np.concatenate([given["value"][1:], given["bootstrap_value"][None]])
        given["final_obs_value"] = np.where(given["final_obs_value"] != 0, following, 0)

    return _trajectories(kind, change)


@_planted
def rewards_between_moves_lost(kind: Kind) -> Kind:
    def change(given: dict[str, Array], settings: Any) -> None:
        given["reward"] = given["reward"] * given["acted"]

    return _trajectories(kind, change)


@_planted
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


@_planted
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


@_planted
def reward_one_step_late(kind: Kind) -> Kind:
    """Each decision is paid what the one before it earned."""

    def change(given: dict[str, Array], settings: Any) -> None:
        given["reward"] = np.concatenate([given["reward"][:1] * 0, given["reward"][:-1]])

    return _trajectories(kind, change)


@_planted
def discount_once_too_often(kind: Kind) -> Kind:
    def change(given: dict[str, Array], settings: Any) -> None:
        given["reward"] = given["reward"] * np.float32(settings.gamma)

    return _trajectories(kind, change)


@_planted
def discount_forgotten(kind: Kind) -> Kind:
    return _settings(kind, gamma=1.0)


# --- Rewards -------------------------------------------------------------------------------------


def _rewards(kind: Kind, change: Callable[[Array], Array]) -> Kind:
    """Return a trainer that learns from ``change(reward [T, B, N])``."""

    def collect(self: Any) -> Any:
        found = kind.collect(self)
        self.rollout.reward[...] = change(self.rollout.reward.copy())
        return found

    return _with(kind, collect=collect)


@_planted
def mixed_rewards(kind: Kind) -> Kind:
    """Each agent learns from the mean of all agents' rewards."""
    return _rewards(kind, lambda reward: reward.mean(axis=-1, keepdims=True))


@_planted
def reward_of_another_agent(kind: Kind) -> Kind:
    return _rewards(kind, lambda reward: np.roll(reward, 1, axis=-1))


@_planted
def rewards_clipped_to_one(kind: Kind) -> Kind:
    return _rewards(kind, lambda reward: reward.clip(-1, 1))


@_planted
def reward_scale_of_a_millionth(kind: Kind) -> Kind:
    return _rewards(kind, lambda reward: reward * 1e-6)


# --- Masks ---------------------------------------------------------------------------------------


def _distribution(kind: Kind, blind: Callable[[], bool]) -> Kind:
    """Return a trainer whose distributions know no mask where ``blind()``."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, **kwargs)
        for learner in self.learners.values():
            right = learner.distribution

            def distribution(_: Any, outputs: Any, mask: Any, right: Any = right) -> Any:
                return right(outputs, torch.ones_like(mask) if blind() else mask)

            learner.distribution = MethodType(distribution, learner)

    return _with(kind, __init__=init)


@_planted
def mask_ignored_in_rollout(kind: Kind) -> Kind:
    """Actions are drawn, and learned from, as if all were legal."""
    return _distribution(kind, lambda: True)


@_planted
def mask_lost_in_training(kind: Kind) -> Kind:
    """Play knows the mask, the update does not."""
    return _distribution(kind, torch.is_grad_enabled)


@_planted
def mask_lost_in_play(kind: Kind) -> Kind:
    """What was trained with masks is played without."""
    return _played(kind, lambda deterministic: True)


@_planted
def mask_lost_in_greedy_play(kind: Kind) -> Kind:
    return _played(kind, lambda deterministic: deterministic)


def _played(kind: Kind, blind: Callable[[bool], bool]) -> Kind:
    def policies(self: Any) -> dict[str, Any]:
        found = OnPolicyTrainer.policies.__get__(self)
        return {agent: _Unmasked(policy, blind) for agent, policy in found.items()}

    return _with(kind, policies=property(policies))


class _Unmasked(Memoryless):
    """Plays as ``policy`` would if all actions were legal, where ``blind(deterministic)``."""

    def __init__(self, policy: Any, blind: Callable[[bool], bool]) -> None:
        self.policy, self.blind = policy, blind

    def initial_state(self, num_envs: int) -> Any:
        return self.policy.initial_state(num_envs)

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        if self.blind(deterministic):
            observation = {**observation, MASK: np.ones_like(observation[MASK])}
        found: Decision = self.policy.act(observation, state, rng, deterministic)
        return found


@_planted
def mask_lost_in_entropy(kind: Kind) -> Kind:
    """The bonus is paid for the entropy over all actions, the illegal ones among them."""

    def loss(minibatch: Any, outputs: Any, settings: Any) -> Losses:
        found = kind.algorithm.loss(minibatch, outputs, settings)
        logits = outputs.distribution.logits.masked_fill(~minibatch.mask, -4.0)
        everywhere = torch.distributions.Categorical(logits=logits).entropy().mean()
        return Losses({**found.terms, "entropy_bonus": -0.1 * everywhere})

    return _but(kind, loss=loss)


# --- Observations --------------------------------------------------------------------------------

Views: TypeAlias = Mapping[str, Observation]


def _observed(kind: Kind, change: Callable[[Any, Views], Views]) -> Kind:
    """Return a trainer that learns from, and decides by, ``change(trainer, observations)``."""

    def begin(self: Any) -> None:
        kind.begin(self)
        store = self.rollout.store_obs

        def store_obs(t: int, observations: Views, *rest: Any) -> None:
            store(t, change(self, observations), *rest)

        self.rollout.store_obs = store_obs

    return _with(kind, begin=begin)


@_planted
def observation_one_step_late(kind: Kind) -> Kind:
    def late(trainer: Any, observations: Views) -> Views:
        copied = _copied(observations)
        before = vars(trainer).get("_shown", copied)
        trainer._shown = copied
        return {a: {**before[a], MASK: own[MASK]} for a, own in copied.items()}

    return _observed(kind, late)


@_planted
def observation_of_another_agent(kind: Kind) -> Kind:
    """Features change places; masks stay."""

    def swapped(trainer: Any, observations: Views) -> Views:
        copied = _copied(observations)
        others = [*list(copied)[1:], next(iter(copied))]
        shapes = {np.shape(own[OBSERVATION]) for own in copied.values()}
        if len(shapes) > 1:
            return copied
        return {
            agent: {**own, OBSERVATION: copied[other][OBSERVATION]}
            for (agent, own), other in zip(copied.items(), others, strict=True)
        }

    return _observed(kind, swapped)


def _copied(observations: Views) -> dict[str, dict[str, Array]]:
    return {a: {k: np.array(part) for k, part in own.items()} for a, own in observations.items()}


def _blinded(kind: Kind, roles: tuple[str, ...]) -> Kind:
    """Return a trainer with networks that observe which agent it is, and nothing else."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, **kwargs)
        for learner in self.learners.values():
            for role in roles:
                width = learner.group.layout.width if role == "actor" else None
                first = getattr(learner, role).layers[0]
                identities = learner.group.identities
                first.register_forward_pre_hook(_Blind(width, identities))

    return _with(kind, __init__=init)


class _Blind:
    def __init__(self, width: int | None, identities: int) -> None:
        self.width, self.identities = width, identities

    def __call__(self, module: Any, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        seen = given[0].clone()
        seen[..., : seen.shape[-1] - self.identities] = 0
        return (seen,)


@_planted
def actor_does_not_look(kind: Kind) -> Kind:
    return _blinded(kind, ("actor",))


@_planted
def critic_does_not_look(kind: Kind) -> Kind:
    return _blinded(kind, ("critic",))


# --- Networks and steps --------------------------------------------------------------------------


def _settings(kind: Kind, **changes: Any) -> Kind:
    """Return a trainer for which some settings are others, whatever is given."""

    def init(self: Any, rules: Any, settings: Any, **kwargs: Any) -> None:
        kind.__init__(self, rules, dataclasses.replace(settings, **changes), **kwargs)

    return _with(kind, __init__=init)


@_planted
def shared_policy_without_agent_id(kind: Kind) -> Kind:
    return _settings(kind, agent_id=False)


@_planted
def learning_rate_zero(kind: Kind) -> Kind:
    return _settings(kind, learning_rate=0.0)


@_planted
def too_few_steps(kind: Kind) -> Kind:
    """A tenth of what the probes allow."""

    def init(self: Any, *args: Any, steps: int, **kwargs: Any) -> None:
        kind.__init__(self, *args, steps=steps // 10, **kwargs)

    return _with(kind, __init__=init)


@_planted
def entropy_bonus_too_large(kind: Kind) -> Kind:
    return _settings(kind, ent_coef=3.0)


def _gradients(kind: Kind, role: str) -> Kind:
    right = kind.algorithm.gradients

    def gradients(learner: Any, settings: Any) -> Any:
        for parameter in getattr(learner, role).parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        return right(learner, settings)

    return _but(kind, gradients=gradients)


@_planted
def actor_without_gradient(kind: Kind) -> Kind:
    return _gradients(kind, "actor")


@_planted
def critic_without_gradient(kind: Kind) -> Kind:
    return _gradients(kind, "critic")


@_planted
def value_target_clipped_flat(kind: Kind) -> Kind:
    right = kind.algorithm.advantages

    def clipped(trajectories: Trajectories, settings: Any) -> Advantages:
        found = right(trajectories, settings)
        return dataclasses.replace(found, value_target=found.value_target.clip(-0.5, 0.5))

    return _but(kind, advantages=clipped)


@_planted
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

    return _with(kind, collect=collect)


# --- Memory, accounts ----------------------------------------------------------------------------


@_planted
def memory_outlives_episodes(kind: Kind) -> Kind:
    """Recurrent state is not reset, in play nor in training."""

    def begin(self: Any) -> None:
        kind.begin(self)
        over = self.rollout.over

        def never(group: Any) -> Array:
            return np.zeros((len(over), over.shape[1] * len(group.agents)), dtype=bool)

        self.rollout.begins = never
        for hidden in self.hidden.values():
            hidden.reset = lambda env_rows: None

    return _with(kind, begin=begin)


@_planted
def memory_lost_in_training(kind: Kind) -> Kind:
    """Each decision is learned from as if an episode began with it."""

    def begin(self: Any) -> None:
        kind.begin(self)
        over = self.rollout.over

        def always(group: Any) -> Array:
            return np.ones((len(over), over.shape[1] * len(group.agents)), dtype=bool)

        self.rollout.begins = always

    return _with(kind, begin=begin)


def returns_cut_with_the_rollout(kind: Kind) -> Kind:
    """Returns forget the rewards from before the rollout's beginning."""

    def collect(self: Any) -> Any:
        self.batch._returns[...] = 0
        return kind.collect(self)

    return _with(kind, collect=collect)
