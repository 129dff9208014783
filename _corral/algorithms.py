"""On-policy algorithms as records of functions, and the functions they consist of.

    from corral import algorithms as alg

    careful = alg.a2c.but(name="careful", loss=my_loss)
    corral.train("dfaas_v0", trainer=careful)

``mappo``, ``ippo``, ``ppo_kl``, ``a2c``, ``pg`` and ``pg_episode`` are the algorithms of the
trainers with these names. ``.but(...)`` replaces single functions of an algorithm.
``corral.trainers.on_policy.records`` documents the inputs of these functions, and
docs/algorithms.md explains how to write one. Using a name of this module requires torch.
"""

# ruff: noqa: F403, F405 (__all__ lists the names)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.trainers.on_policy.algorithms import *
    from corral.trainers.on_policy.records import *
    from corral.trainers.on_policy.settings import *
    from corral.trainers.on_policy.trainer import trainer_of
    from corral.trainers.settings import setting

__all__ = [
    "PPO_REPORTS",
    "A2CSettings",
    "Advantages",
    "IPPOSettings",
    "Losses",
    "MAPPOSettings",
    "Minibatch",
    "OnPolicy",
    "OnPolicySettings",
    "Outputs",
    "Over",
    "PGSettings",
    "PPOKLSettings",
    "Trajectories",
    "a2c",
    "adam",
    "adapt_kl",
    "adapt_penalties",
    "also",
    "approx_kl",
    "beyond_target_kl",
    "clip_fraction",
    "clip_norm",
    "entropy",
    "entropy_bonus",
    "episode_return",
    "exact_kl",
    "gae",
    "ippo",
    "mappo",
    "no_change",
    "normalize",
    "one_epoch",
    "pg",
    "pg_episode",
    "played_distribution",
    "policy_gradient_loss",
    "ppo_kl",
    "ppo_kl_loss",
    "ppo_loss",
    "ppo_metrics",
    "reward_to_go",
    "setting",
    "stay_kl",
    "stay_penalty",
    "trainer_of",
    "value_loss",
    "without_baseline",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'corral.algorithms' has no attribute {name!r}")
    if name == "setting":
        from corral.trainers.settings import setting

        return setting
    from corral.trainers.on_policy import algorithms, records, settings, trainer

    modules = (algorithms, records, settings, trainer)
    return next(getattr(module, name) for module in modules if name in module.__all__)


def __dir__() -> list[str]:
    return __all__
