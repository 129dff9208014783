"""The same environments, as other libraries want them.

What is for Stable-Baselines3 needs the extra ``sb3``, and is imported when first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from corral.adapters.batch import Batch, BatchStep, Finished, make_batch
from corral.adapters.gymnasium import SeatEnv, register_with_gymnasium
from corral.adapters.gymnasium_vector import BatchVectorEnv
from corral.adapters.mask_in_info import mask_in_info
from corral.adapters.zoo import ZooBatch, make_zoo_batch, zoo_rules
from corral.extras import require

if TYPE_CHECKING:
    from corral.adapters.sb3 import BatchVecEnv, make_vec_env
    from corral.adapters.sb3_dqn import MaskedDQN, MaskedQPolicy
    from corral.adapters.sb3_policies import (
        FeaturesWithoutMask,
        MaskablePolicy,
        MaskedPolicy,
        normalize,
    )
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
    "make_batch",
    "make_vec_env",
    "make_zoo_batch",
    "mask_in_info",
    "normalize",
    "vectorize",
    "zoo_rules",
]

_ON_DEMAND = {
    "BatchVecEnv": "corral.adapters.sb3",
    "FeaturesWithoutMask": "corral.adapters.sb3_policies",
    "MaskablePolicy": "corral.adapters.sb3_policies",
    "MaskedDQN": "corral.adapters.sb3_dqn",
    "MaskedPolicy": "corral.adapters.sb3_policies",
    "MaskedQPolicy": "corral.adapters.sb3_dqn",
    "make_vec_env": "corral.adapters.sb3",
    "normalize": "corral.adapters.sb3_policies",
    "vectorize": "corral.adapters.supersuit",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("stable_baselines3", extra="sb3", purpose="make environments for Stable-Baselines3")
    return getattr(importlib.import_module(_ON_DEMAND[name]), name)


register_with_gymnasium()
