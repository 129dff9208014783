"""Adapters that present environments to other libraries.

Each name is imported on first use, so using one adapter does not load the others. Names for
Stable-Baselines3 require the extra ``sb3``, and ``vectorize`` requires the extra ``supersuit``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from corral.extras import require

if TYPE_CHECKING:
    from corral.adapters.gymnasium.seat import SeatEnv
    from corral.adapters.gymnasium.vector import BatchVectorEnv
    from corral.adapters.sb3 import (
        BatchVecEnv,
        FeaturesWithoutMask,
        MaskablePolicy,
        MaskedDQN,
        MaskedPolicy,
        MaskedQPolicy,
        make_vec_env,
        normalize,
    )
    from corral.adapters.sources import make_batch
    from corral.adapters.supersuit import vectorize
    from corral.adapters.wrappers import homogenize, mask_in_info
    from corral.adapters.zoo.batch import ZooBatch, make_zoo_batch, zoo_rules
    from corral.envs.batch import Batch, BatchStep, Finished
    from corral.envs.others.base import MultiAgentEnv
    from corral.envs.others.multi_agent import from_multi_agent_env
    from corral.envs.others.single_agent import from_gymnasium

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
    "MultiAgentEnv",
    "SeatEnv",
    "ZooBatch",
    "from_gymnasium",
    "from_multi_agent_env",
    "homogenize",
    "make_batch",
    "make_vec_env",
    "make_zoo_batch",
    "mask_in_info",
    "normalize",
    "vectorize",
    "zoo_rules",
]

_NAMES = {
    "corral.adapters.gymnasium.seat": ("SeatEnv",),
    "corral.adapters.gymnasium.vector": ("BatchVectorEnv",),
    "corral.adapters.wrappers": ("homogenize", "mask_in_info"),
    "corral.adapters.zoo.batch": ("ZooBatch", "make_zoo_batch", "zoo_rules"),
    "corral.adapters.sources": ("make_batch",),
    "corral.envs.batch": ("Batch", "BatchStep", "Finished"),
    "corral.envs.others.base": ("MultiAgentEnv",),
    "corral.envs.others.multi_agent": ("from_multi_agent_env",),
    "corral.envs.others.single_agent": ("from_gymnasium",),
}
_SB3_NAMES = {
    "corral.adapters.sb3": (
        *("BatchVecEnv", "FeaturesWithoutMask", "MaskablePolicy", "MaskedDQN", "MaskedPolicy"),
        *("MaskedQPolicy", "make_vec_env", "normalize"),
    ),
    "corral.adapters.supersuit": ("vectorize",),
}


def __getattr__(name: str) -> Any:
    if any(name in names for names in _SB3_NAMES.values()):
        require("stable_baselines3", extra="sb3", purpose="make environments for Stable-Baselines3")
    for module, names in (_NAMES | _SB3_NAMES).items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
