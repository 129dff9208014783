"""Environments for Stable-Baselines3: a VecEnv over Batch, and policies that apply masks."""

from corral.adapters.sb3.dqn import MaskedDQN, MaskedQPolicy
from corral.adapters.sb3.policies import (
    FeaturesWithoutMask,
    MaskablePolicy,
    MaskedPolicy,
    normalize,
)
from corral.adapters.sb3.vec_env import BatchVecEnv, make_vec_env

__all__ = [
    "BatchVecEnv",
    "FeaturesWithoutMask",
    "MaskablePolicy",
    "MaskedDQN",
    "MaskedPolicy",
    "MaskedQPolicy",
    "make_vec_env",
    "normalize",
]
