"""Check a model of Stable-Baselines3 for known traps, before it trains."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from corral.lab.listening.frameworks.masks import mask_key
from corral.lab.listening.frameworks.traps import sprung, trap
from corral.lab.listening.heard import Heard

__all__ = ["check_sb3", "check_time_limits"]

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
        _check_bounds(env.action_space, heard)


def _mask_of(env: VecEnv) -> str:
    """Describe where the environment has an action mask; "" if it has none."""
    views = env.observation_space
    if isinstance(views, spaces.Dict) and (key := mask_key(views.spaces)) is not None:
        return f"observation[{key!r}] is a mask"
    return "the environment has action_masks()" if env.has_attr("action_masks") else ""


def _check_bounds(space: spaces.Box, heard: Heard) -> None:
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
