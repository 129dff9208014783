"""Listen to a model of Stable-Baselines3 or sb3-contrib.

On-policy algorithms (PPO, A2C, MaskablePPO, RecurrentPPO) are heard in full: rollouts from the
buffer, and minibatches from ``evaluate_actions``. Of the others, the env steps and the optimizer
steps are heard.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch.distributions import Categorical

from corral.envs.core import Array
from corral.lab.listening.ear import Ear
from corral.lab.listening.frameworks.sb3_traps import (
    check_bounds,
    check_minibatches,
    check_plan,
    check_sb3,
    check_stored,
    check_time_limits,
)
from corral.lab.listening.frameworks.traps import place_of

__all__ = ["listen_sb3"]

OFF_POLICY_STEPS = 512
"""Env steps of an off-policy algorithm that are heard as one rollout."""

VIEWS = 32
"""Decisions of a rollout with observations that are compared with the buffer."""


def listen_sb3(model: BaseAlgorithm, ear: Ear) -> None:
    """Let ``ear`` hear a model; call it before ``model.learn()``."""
    if isinstance(model, OnPolicyAlgorithm):
        ear.policy("policy", model.policy, gamma=model.gamma, gae_lambda=model.gae_lambda)
        _OnPolicy(model, ear)
    elif isinstance(model, OffPolicyAlgorithm):
        ear.policy("policy", model.policy, gamma=model.gamma)
        _OffPolicy(model, ear)
    else:
        raise TypeError(f"{type(model).__name__}: neither an on-policy nor an off-policy algorithm")
    heard = ear.policies["policy"]
    heard.places["network"] = place_of(type(model.policy), "forward")
    check_sb3(model, heard)


class _Steps:
    """The env steps of a model's vectorized environment, in order of time."""

    def __init__(self, model: BaseAlgorithm, ear: Ear) -> None:
        self.rewards: list[Array] = []
        self.terminated: list[Array] = []
        self.truncated: list[Array] = []
        if model.env is not None:
            ear.on_call(model.env, "step_wait", self.step)

    def step(self, args: Any, kwargs: Any, result: Any) -> None:
        _, rewards, dones, infos = result
        limit = np.zeros(len(dones), dtype=bool)
        for index in np.flatnonzero(dones):
            limit[index] = bool(infos[index].get("TimeLimit.truncated", False))
        self.rewards.append(rewards.copy())  # SB3 adds to them
        self.terminated.append(dones & ~limit)
        self.truncated.append(limit)

    def pop(self) -> tuple[Array, Array, Array]:
        """Return rewards, terminated and truncated [T, B] of the steps so far; forget them."""
        rewards, terminated, truncated = (np.array(values) for values in vars(self).values())
        for values in vars(self).values():
            values.clear()
        return rewards, terminated, truncated


class _OnPolicy:
    """Hears the rollout buffer and the loss of an on-policy algorithm."""

    def __init__(self, model: OnPolicyAlgorithm, ear: Ear) -> None:
        self.model, self.ear = model, ear
        self.steps = _Steps(model, ear)
        self.samples: Any = None  # the last minibatch
        self.distribution: Any = None  # the last distribution
        self.minibatches: list[int] = []  # of each update
        self.views: list[Array] = []  # observations of the first decisions of a rollout
        buffer, policy = model.rollout_buffer, model.policy
        for instance, name, heard in (
            (buffer, "compute_returns_and_advantage", self.rollout),
            (buffer, "_get_samples", self.sampled),
            (policy, "_get_action_dist_from_latent", self.distributed),
            (policy, "evaluate_actions", self.evaluated),
            (policy, "forward", self.decided),
        ):
            ear.on_call(instance, name, heard)

    def rollout(self, args: Any, kwargs: Any, result: Any) -> None:
        """Hear a complete rollout: the buffer's arrays are [T, B] until the first minibatch."""
        buffer, (paid, terminated, truncated) = self.model.rollout_buffer, self.steps.pop()
        rewards = np.asarray(buffer.rewards, dtype=np.float64)
        self.check(paid, truncated)
        complete = paid.shape == rewards.shape  # no callback stopped the rollout before
        final_values = None
        if complete:
            # At time limits SB3 adds gamma V(final observation) to the reward.
            added = np.where(truncated, rewards - paid, 0.0)
            final_values = added / (self.model.gamma or 1.0)
            rewards = rewards - added
        last = kwargs.get("last_values", args[0] if args else None)
        self.ear.rollout(
            obs=buffer.observations,
            actions=_actions(buffer.actions, self.model),
            mask=_masks(vars(buffer).get("action_masks"), rewards.shape),
            rewards=rewards,
            terminated=terminated if complete else None,
            truncated=truncated if complete else None,
            values=buffer.values,
            final_values=final_values,
            log_probs=buffer.log_probs,
            advantages=buffer.advantages,
            returns=buffer.returns,
            last_values=None if last is None else last.detach().flatten(),
        )
        check_time_limits(self.ear.policies["policy"])

    def check(self, paid: Array, truncated: Array) -> None:
        """Compare the buffer with play, and the last update with its plan."""
        heard, buffer = self.ear.policies["policy"], self.model.rollout_buffer
        if paid.shape == buffer.rewards.shape:
            check_stored("reward", buffer.rewards[~truncated], paid[~truncated], heard)
        if self.views and isinstance(buffer.observations, np.ndarray):
            views = np.array(self.views)
            stored = buffer.observations[: len(views)].reshape(views.shape)
            lead = len(views) * self.model.n_envs
            check_stored("observation", stored.reshape(lead, -1), views.reshape(lead, -1), heard)
        if isinstance(self.model.action_space, Box) and not self.model.policy.squash_output:
            check_bounds(self.model.action_space, buffer.actions, heard)
        if isinstance(self.model, PPO):
            check_minibatches(self.model, self.minibatches, heard)
        self.views, self.minibatches = [], [*self.minibatches, 0]

    def decided(self, args: Any, kwargs: Any, result: Any) -> None:
        """Keep the observations of a rollout's first decisions, as the policy gets them."""
        if args and len(self.views) < VIEWS and isinstance(args[0], torch.Tensor):
            self.views.append(args[0].cpu().numpy().copy())

    def sampled(self, args: Any, kwargs: Any, result: Any) -> None:
        self.samples = result
        if self.minibatches:
            self.minibatches[-1] += 1

    def distributed(self, args: Any, kwargs: Any, result: Any) -> None:
        self.distribution = result

    def evaluated(self, args: Any, kwargs: Any, result: Any) -> None:
        """Hear the outputs in the loss of the last minibatch."""
        samples, self.samples = self.samples, None
        if samples is None or not self.ear.attends():
            return
        values, log_probs, entropy = result
        count = len(samples.advantages)
        padded = "lstm_states" in samples._fields

        def valid(part: Any) -> Any:
            """Drop padding after sequences, and the graph: gradients would have rows for it."""
            if not padded:
                return part
            rows = samples.mask > 1e-8
            return None if part is None or isinstance(part, dict) else part[rows].detach()

        self.ear.batch(
            obs=valid(samples.observations),
            actions=valid(_actions(samples.actions, self.model)),
            mask=valid(_masks(samples._asdict().get("action_masks"), (count,))),
            log_probs=valid(samples.old_log_prob),
            new_log_probs=valid(log_probs),
            logits=valid(_logits(self.distribution)),
            entropy=valid(entropy),
            values=valid(values.flatten()),
            advantages=valid(samples.advantages),
            returns=valid(samples.returns),
        )


class _OffPolicy:
    """Hears the env steps of an algorithm with a replay buffer."""

    def __init__(self, model: OffPolicyAlgorithm, ear: Ear) -> None:
        self.model, self.ear, self.steps = model, ear, _Steps(model, ear)
        self.obs: list[Any] = []
        self.actions: list[Array] = []
        self.after: list[tuple[Array, Array]] = []  # next observations: stored, and returned
        if model.replay_buffer is not None:
            ear.on_call(model.replay_buffer, "add", self.added)

    def added(self, args: Any, kwargs: Any, result: Any) -> None:
        """Hear a step when it is stored; rollouts of ``OFF_POLICY_STEPS`` are passed on."""
        obs, after, action = args[0], args[1], args[2]
        buffer: Any = self.model.replay_buffer
        if isinstance(after, np.ndarray) and "next_observations" in vars(buffer):
            self.after.append((buffer.next_observations[buffer.pos - 1].copy(), after.copy()))
        self.obs.append(obs)
        self.actions.append(np.array(action))
        if len(self.actions) < OFF_POLICY_STEPS // max(1, self.model.n_envs):
            return
        rewards, terminated, truncated = self.steps.pop()
        heard = self.ear.policies["policy"]
        if self.after:
            stored, returned = (np.array(part) for part in zip(*self.after, strict=True))
            check_stored("observation", stored.reshape(returned.shape), returned, heard)
        if isinstance(self.model, DQN):
            check_plan(self.model, heard)
        if len(rewards) == len(self.actions):
            flat = not isinstance(obs, dict)
            self.ear.rollout(
                obs=np.array(self.obs) if flat else None,
                actions=np.array(self.actions),
                rewards=rewards,
                terminated=terminated,
                truncated=truncated,
            )
        self.obs, self.actions, self.after = [], [], []


def _actions(actions: Any, model: BaseAlgorithm) -> Any:
    """Drop the last axis of single discrete actions."""
    discrete = type(model.action_space).__name__ == "Discrete"
    return actions.reshape(actions.shape[:-1]) if discrete and actions.ndim > 1 else actions


def _masks(masks: Any, lead: tuple[int, ...]) -> Any:
    """Return masks [..., A]; sb3-contrib's buffer keeps them as [T, B, A] or [R, A] floats."""
    return None if masks is None else masks.reshape(*lead, -1) > 0.5


def _logits(distribution: Any) -> Any:
    """Return the logits [R, A] of one categorical distribution, with the mask applied."""
    inner = vars(distribution).get("distribution") if distribution is not None else None
    return inner.logits if isinstance(inner, Categorical) and inner.logits.ndim == 2 else None
