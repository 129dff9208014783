"""Stable-Baselines3's PPO and A2C, and sb3-contrib's MaskablePPO, for teams with action masks.

This module collects rollouts for all of them; see ``corral.trainers.sb3.columns``. Each policy has
its own rollout buffer.

A time limit truncates an episode: the discounted value of the final observation is added to the
last reward, as in Stable-Baselines3 (Pardo et al., Time Limits in Reinforcement Learning, 2018).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C, PPO

from corral.adapters.sb3.policies import MaskablePolicy, MaskedPolicy
from corral.envs.core import Array
from corral.envs.masks import MASK
from corral.trainers.on_policy import saving
from corral.trainers.sb3.columns import Learner, Rollout, SB3Trainer
from corral.trainers.sb3.settings import SB3A2CSettings, SB3Settings

__all__ = ["SB3A2C", "SB3PPO", "SB3MaskablePPO"]


class SB3PPO(SB3Trainer):
    """PPO with a policy that reads the mask from the observation. See ``SB3Settings``."""

    name: ClassVar[str] = "sb3_ppo"
    Settings: ClassVar[type] = SB3Settings
    algorithm: ClassVar[type] = PPO
    policy_class: ClassVar[type] = MaskedPolicy
    arguments: ClassVar[tuple[str, ...]] = (
        *("n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range", "ent_coef"),
        *("vf_coef", "max_grad_norm", "target_kl", "device"),
    )

    def _learn_rollout(
        self, obs: dict[str, Array]
    ) -> tuple[dict[str, Array], Rollout, dict[str, float]]:
        obs, rollout = self._collect(obs)
        self.env_steps += self.rollout_steps
        with rollout.timed("learning"):
            metrics = self._update()
        return obs, rollout, metrics

    def _collect(self, obs: dict[str, Array]) -> tuple[dict[str, Array], Rollout]:
        """Fill the rollout buffers of the trained policies.

        Returns the next observations [C, ...] and the counters.
        """
        starts = self._starts
        assert starts is not None
        rollout = Rollout(np.zeros(len(self.rules.agents)))
        for learner in self._learners.values():
            learner.model.policy.set_training_mode(False)
            learner.model.rollout_buffer.reset()
        for _ in range(self.settings.n_steps):
            with rollout.timed("inference"):
                actions = np.empty(len(starts), dtype=np.int64)  # [C]
                chosen = {}
                for name, learner in self._learners.items():
                    observations = learner.own(obs)
                    chosen[name] = (observations, *self._choose(learner.model, observations))
                    actions[learner.columns] = chosen[name][1]
            with rollout.timed("env"):
                obs, rewards, dones, infos = self._step(actions, rollout)
            with rollout.timed("inference"):
                for name, learner in self._learners.items():
                    if learner.trained:
                        observations, taken, values, log_probs = chosen[name]
                        learner.model.rollout_buffer.add(
                            observations,
                            taken.reshape(-1, 1),
                            self._bootstrapped(learner, rewards, dones, infos),
                            starts[learner.columns],
                            values,
                            log_probs,
                            **self._masks(observations),
                        )
            starts = dones
        for learner in self._learners.values():
            if learner.trained:
                learner.model.rollout_buffer.compute_returns_and_advantage(
                    learner.values(learner.own(obs)), starts[learner.columns]
                )
        return obs, rollout

    def _choose(self, model: Any, observations: dict[str, Array]) -> tuple[Array, Any, Any]:
        """Return actions int64 [P], values and log-probabilities (tensors) for own [P, ...]."""
        with torch.no_grad():
            tensors, _ = model.policy.obs_to_tensor(observations)
            actions, values, log_probs = model.policy(tensors, **self._masks(observations))
        return actions.cpu().numpy(), values, log_probs

    def _masks(self, observations: dict[str, Array]) -> dict[str, Array]:
        """Return the extra arguments of policy and buffer for observations [P, ...]."""
        return {}

    def _bootstrapped(
        self, learner: Learner, rewards: Array, dones: Array, infos: list[dict[str, Any]]
    ) -> Array:
        """Return the rewards [P] of a policy's columns.

        At a time limit, the discounted value of the final observation is added.
        """
        own_rewards: Array = rewards[learner.columns].copy()
        ended = np.flatnonzero(dones[learner.columns]).tolist()
        cut = [i for i in ended if infos[learner.columns[i]]["TimeLimit.truncated"]]
        if cut:
            last = [infos[learner.columns[i]]["terminal_observation"] for i in cut]
            stacked = {key: np.stack([obs[key] for obs in last]) for key in last[0]}
            own_rewards[cut] += self.settings.gamma * learner.values(stacked).cpu().numpy().reshape(
                -1
            )
        return own_rewards

    def _update(self) -> dict[str, float]:
        """Run Stable-Baselines3's update on the rollout of each trained policy."""
        metrics: dict[str, float] = {}
        # Use the progress before this rollout. Stable-Baselines3 counts the rollout as done, so its
        # last update has a learning rate of 0.
        before = self.env_steps - self.rollout_steps
        for name, learner in self._learners.items():
            if learner.trained:
                learner.model._update_current_progress_remaining(before, self.steps)
                learner.model.train()
                metrics |= self._logged(name, learner.model)
                saving.require_finite_weights(name, learner.model.policy)
        return metrics


class SB3MaskablePPO(SB3PPO):
    """sb3-contrib's MaskablePPO, which gets, stores and applies the masks itself."""

    name: ClassVar[str] = "sb3_maskable_ppo"
    algorithm: ClassVar[type] = MaskablePPO
    policy_class: ClassVar[type] = MaskablePolicy

    def _learner(self, name: str, index: int, trained: bool) -> Learner:
        learner = super()._learner(name, index, trained)
        size = self.settings.batch_size
        decisions = len(learner.columns) * self.settings.n_steps
        if trained and decisions % size == 1:  # MaskablePPO normalizes a single advantage to NaN
            raise ValueError(
                f"batch_size={size}: a rollout of policy {name} has {decisions} decisions, so the "
                "last minibatch has only one. Pass another batch_size or n_steps"
            )
        return learner

    def _masks(self, observations: dict[str, Array]) -> dict[str, Array]:
        return {"action_masks": observations[MASK].astype(bool)}


class SB3A2C(SB3PPO):
    """A2C with a policy that reads the mask from the observation; one step per rollout."""

    name: ClassVar[str] = "sb3_a2c"
    Settings: ClassVar[type] = SB3A2CSettings
    algorithm: ClassVar[type] = A2C
    arguments: ClassVar[tuple[str, ...]] = (
        *("n_steps", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm"),
        *("use_rms_prop", "rms_prop_eps", "normalize_advantage", "device"),
    )
