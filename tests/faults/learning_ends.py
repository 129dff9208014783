"""Mistakes at the ends of episodes, and in how far ahead is looked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from corral import algorithms as alg
from corral.trainers.on_policy.trainer import MAPPO
from corral.trainers.runs.run import Run
from faults.fault import fault, trained
from faults.learning_advantages import own_gae, with_advantages


@fault("limit-taken-for-end")
def limit_taken_for_end(folder: Path) -> Run:
    """The value is set to 0 wherever an episode is done, by a time limit too."""

    def advantages(trajectories, settings):
        after = np.zeros_like(trajectories.final_obs_value)
        return alg.gae(replace(trajectories, final_obs_value=after), settings)

    return with_advantages(folder, alg.normalize(advantages))


@fault("end-taken-for-limit")
def end_taken_for_limit(folder: Path) -> Run:
    """Nothing is ever taken for an end: V(next) counts where the rules end an episode."""

    def advantages(trajectories, settings):
        following = np.concatenate([trajectories.value[1:], trajectories.bootstrap_value[None]])
        after = np.where(trajectories.ended, following, 0.0).astype(np.float32)
        return alg.gae(replace(trajectories, final_obs_value=after), settings)

    return with_advantages(folder, alg.normalize(advantages), env="tictactoe_v0")


@fault("end-ignored", "end-taken-for-limit")
def end_ignored(folder: Path) -> Run:
    """GAE does not know of ends: episodes run into each other."""

    def advantages(trajectories, settings):
        found = own_gae(
            trajectories.reward,
            trajectories.value,
            trajectories.bootstrap_value,
            np.ones_like(trajectories.reward),
            settings.gamma,
            settings.gae_lambda,
        )
        return alg.Advantages(found, found + trajectories.value)

    return with_advantages(folder, alg.normalize(advantages), env="probe_p09_v0")


@fault("end-taken-for-limit")
def ends_worth_the_last_value(folder: Path) -> Run:
    """Whatever ends an episode, the value before its last step follows."""

    def advantages(trajectories, settings):
        after = np.where(trajectories.ended, trajectories.value, 0.0).astype(np.float32)
        return alg.gae(replace(trajectories, final_obs_value=after), settings)

    return with_advantages(folder, alg.normalize(advantages), env="tictactoe_v0")


@fault("bootstraps-from-reset")
def bootstraps_from_reset(folder: Path) -> Run:
    """Where a time limit cuts, V of what autoreset returned is used."""

    def advantages(trajectories, settings):
        following = np.concatenate([trajectories.value[1:], trajectories.bootstrap_value[None]])
        cut = trajectories.ended & (trajectories.final_obs_value != 0)
        after = np.where(cut, following, 0.0).astype(np.float32)
        return alg.gae(replace(trajectories, final_obs_value=after), settings)

    return with_advantages(folder, alg.normalize(advantages))


class Forgets(MAPPO):
    """Sets the flag of time limits with that of ends, as ``done`` of old Gym did."""

    def update_policy(self, i, learner):
        self.rollout.terminated |= self.rollout.truncated
        return super().update_policy(i, learner)


@fault("limit-taken-for-end")
def done_of_old_gym(folder: Path) -> Run:
    """The trainer keeps one flag for both: done = terminated or truncated."""
    return trained(folder, "dfaas_v0", trainer=Forgets)


@fault("myopic")
def gamma_zero(folder: Path) -> Run:
    """The discount is 0, and the reward comes at the end."""
    return trained(folder, "tictactoe_v0", trainer="mappo", gamma=0.0)
