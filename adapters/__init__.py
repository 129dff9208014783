"""The same environments, as other libraries want them.

``vectorize`` and ``make_vec_env`` need the extra ``sb3``; they are imported when first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from corral.adapters.batch import Batch, BatchStep, Finished, make_batch
from corral.extras import require

if TYPE_CHECKING:
    from corral.adapters.sb3 import BatchVecEnv, FeaturesWithoutMask, make_vec_env
    from corral.adapters.supersuit import vectorize

__all__ = [
    "Batch",
    "BatchStep",
    "BatchVecEnv",
    "FeaturesWithoutMask",
    "Finished",
    "make_batch",
    "make_vec_env",
    "vectorize",
]

_ON_DEMAND = {
    "BatchVecEnv": "corral.adapters.sb3",
    "FeaturesWithoutMask": "corral.adapters.sb3",
    "make_vec_env": "corral.adapters.sb3",
    "vectorize": "corral.adapters.supersuit",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("stable_baselines3", extra="sb3", purpose="make environments for Stable-Baselines3")
    return getattr(importlib.import_module(_ON_DEMAND[name]), name)
