"""On-policy algorithms as records of functions: see ``corral.trainers.on_policy.records``.

``corral.algorithms.mappo`` and ``.ippo`` are the algorithms of the trainers of those names,
``.mappo.but(...)`` replaces one of their functions, and ``.trainer_of(algorithm)`` returns a
trainer. Needs torch, as soon as one of its names is asked for.
"""

# ruff: noqa: F403, F405 (the names of records stand in __all__)

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.trainers.on_policy.records import *
    from corral.trainers.on_policy.trainer import trainer_of

__all__ = [
    "PPO_REPORTS",
    "Advantages",
    "Losses",
    "Minibatch",
    "OnPolicy",
    "Outputs",
    "Over",
    "Trajectories",
    "adam",
    "adapt_kl",
    "beyond_target_kl",
    "clip_norm",
    "gae",
    "ippo",
    "mappo",
    "normalize",
    "ppo_loss",
    "ppo_metrics",
    "reward_to_go",
    "trainer_of",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'corral.algorithms' has no attribute {name!r}")
    module = "trainer" if name == "trainer_of" else "records"
    return getattr(importlib.import_module(f"corral.trainers.on_policy.{module}"), name)


def __dir__() -> list[str]:
    return __all__
