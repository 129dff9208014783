"""Check a model of Stable-Baselines3 for known traps, before it trains."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from corral.envs.core import Array
from corral.lab.listening.frameworks.masks import mask_key
from corral.lab.listening.frameworks.traps import sprung, trap
from corral.lab.listening.heard import Heard

__all__ = [
    "check_bounds",
    "check_minibatches",
    "check_plan",
    "check_sb3",
    "check_stored",
    "check_time_limits",
]

FAR = 10.0
"""Bound of continuous actions that a Gaussian with a deviation of 1 rarely reaches."""


def check_sb3(model: BaseAlgorithm, heard: Heard) -> None:
    """Add the traps that the spaces and settings of a model show."""
    env = model.env
    if env is None:
        return
    if not type(model).__name__.startswith("Maskable") and (where := _mask_of(env)):
        sprung(trap("sb3", "mask-lost"), f"{where}, and {type(model).__name__} trains", heard)
    if isinstance(env.action_space, spaces.Box):
        _check_scale(env.action_space, heard)


def _mask_of(env: VecEnv) -> str:
    """Describe where the environment has an action mask; "" if it has none."""
    views = env.observation_space
    if isinstance(views, spaces.Dict) and (key := mask_key(views.spaces)) is not None:
        return f"observation[{key!r}] is a mask"
    return "the environment has action_masks()" if env.has_attr("action_masks") else ""


def _check_scale(space: spaces.Box, heard: Heard) -> None:
    """Report bounds of actions that a standard Gaussian does not fit, if they are finite."""
    low, high = float(np.min(space.low)), float(np.max(space.high))
    if not np.isfinite([low, high]).all() or (-FAR <= low <= -0.5 and 0.5 <= high <= FAR):
        return
    sprung(trap("sb3", "unscaled-actions"), f"actions from {low:g} to {high:g}", heard)


def check_time_limits(heard: Heard) -> None:
    """Report episodes that all end after the same number of steps, by a termination."""
    lengths: Any = heard.lengths[:64]
    truncated = any(part.truncated is not None and part.truncated.any() for part in heard.rollouts)
    if len(lengths) < 8 or min(lengths) != max(lengths) or lengths[0] < 50 or truncated:
        return
    measured = f"{len(heard.lengths)} episodes of {lengths[0]} steps end by termination"
    sprung(trap("sb3", "ignored-truncation"), measured, heard)


def check_stored(name: str, stored: Array, returned: Array, heard: Heard) -> None:
    """Report stored numbers [R, ...] that differ from those at play, in most decisions."""
    if stored.shape != returned.shape or not len(stored):
        return
    equal = np.isclose(stored.astype(np.float64), returned, rtol=1e-5, atol=1e-6, equal_nan=True)
    rows = np.asarray(~np.asarray(equal).reshape(len(stored), -1).all(axis=1))
    if rows.mean() > 0.5:
        measured = f"{name}: {rows.mean():.0%} of {len(rows):,} stored rows differ"
        sprung(trap("sb3", f"{name}-changed"), measured, heard)


def check_bounds(space: spaces.Box, actions: Array, heard: Heard) -> None:
    """Report sampled actions [T, B, D] that are nearly all outside of the action space."""
    outside = float(((actions < space.low) | (actions > space.high)).mean())
    if outside > MOST_ACTIONS:
        measured = f"{outside:.0%} of {actions.size:,} numbers of actions"
        sprung(trap("sb3", "actions-clipped"), measured, heard)


MOST_ACTIONS = 0.8
"""Share of actions outside of the bounds from which nearly all play is at a bound."""


def check_minibatches(model: PPO, counts: list[int], heard: Heard) -> None:
    """Report updates that target_kl ends after a fourth of the planned minibatches."""
    rows = model.n_steps * model.n_envs
    planned = model.n_epochs * -(-rows // model.batch_size)
    if model.target_kl is None or len(counts) < 4 or 4 * max(counts) > planned:
        return
    measured = f"at most {max(counts)} of {planned} minibatches in {len(counts)} updates"
    sprung(trap("sb3", "updates-cut-short"), f"{measured}; target_kl {model.target_kl:g}", heard)


def check_plan(model: DQN, heard: Heard) -> None:
    """Report settings of DQN that do not fit the planned number of env steps."""
    planned = model._total_timesteps
    if not planned > 0:
        return
    if model.learning_starts >= planned:
        measured = f"learning_starts {model.learning_starts:,}, {planned:,} env steps"
        sprung(trap("sb3", "never-learns"), measured, heard)
    elif model.target_update_interval >= planned:
        measured = f"target_update_interval {model.target_update_interval:,}"
        sprung(trap("sb3", "target-network-fixed"), f"{measured}, {planned:,} env steps", heard)
