"""Small models of Stable-Baselines3 and sb3_contrib with corral's masked policies."""

from __future__ import annotations

from typing import Any

LEARNERS = ("PPO", "A2C", "MaskablePPO")

_SHORT: dict[str, dict[str, Any]] = {
    "PPO": {"n_steps": 16, "batch_size": 32, "n_epochs": 2},
    "A2C": {"n_steps": 8},
    "MaskablePPO": {"n_steps": 16, "batch_size": 32, "n_epochs": 2},
}


def policy_of(name: str) -> Any:
    """The class of corral's policy for the learner of that name."""
    from corral.adapters import MaskablePolicy, MaskedPolicy

    return MaskablePolicy if name == "MaskablePPO" else MaskedPolicy


def learner(
    name: str,
    vec_env: Any,
    policy: Any = None,
    settings: dict[str, Any] | None = None,
    **policy_kwargs: Any,
) -> Any:
    """A small model; ``policy`` in place of ours and ``settings`` of the algorithm, if given."""
    import sb3_contrib
    import stable_baselines3

    algorithm = getattr(sb3_contrib if name == "MaskablePPO" else stable_baselines3, name)
    return algorithm(
        policy or policy_of(name),
        vec_env,
        seed=0,
        device="cpu",
        policy_kwargs={"net_arch": [8], **policy_kwargs},
        **(settings or _SHORT[name]),
    )
