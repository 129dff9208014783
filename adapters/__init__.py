"""The same environments, as other libraries want them.

What is for Stable-Baselines3 needs the extra ``sb3``, and is imported when first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from corral.adapters.gymnasium.seat import SeatEnv, register_with_gymnasium
from corral.adapters.gymnasium.vector import BatchVectorEnv
from corral.adapters.wrappers import homogenize, mask_in_info
from corral.adapters.zoo.batch import ZooBatch, make_zoo_batch, zoo_rules
from corral.envs.batch import Batch, BatchStep, Finished, make_batch
from corral.extras import require

if TYPE_CHECKING:
    from corral.adapters.sb3.dqn import MaskedDQN, MaskedQPolicy
    from corral.adapters.sb3.policies import (
        FeaturesWithoutMask,
        MaskablePolicy,
        MaskedPolicy,
        normalize,
    )
    from corral.adapters.sb3.vec_env import BatchVecEnv, make_vec_env
    from corral.adapters.supersuit import vectorize

__all__ = [
    "Batch",
    "BatchStep",
    "BatchVecEnv",
    "BatchVectorEnv",
    "FeaturesWithoutMask",
    "Finished",
    "MaskablePolicy",
    "MaskedDQN",
    "MaskedPolicy",
    "MaskedQPolicy",
    "SeatEnv",
    "ZooBatch",
    "homogenize",
    "make_batch",
    "make_vec_env",
    "make_zoo_batch",
    "mask_in_info",
    "normalize",
    "vectorize",
    "zoo_rules",
]

_ON_DEMAND = {
    "BatchVecEnv": "corral.adapters.sb3.vec_env",
    "FeaturesWithoutMask": "corral.adapters.sb3.policies",
    "MaskablePolicy": "corral.adapters.sb3.policies",
    "MaskedDQN": "corral.adapters.sb3.dqn",
    "MaskedPolicy": "corral.adapters.sb3.policies",
    "MaskedQPolicy": "corral.adapters.sb3.dqn",
    "make_vec_env": "corral.adapters.sb3.vec_env",
    "normalize": "corral.adapters.sb3.policies",
    "vectorize": "corral.adapters.supersuit",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("stable_baselines3", extra="sb3", purpose="make environments for Stable-Baselines3")
    return getattr(importlib.import_module(_ON_DEMAND[name]), name)


register_with_gymnasium()
