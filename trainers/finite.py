"""Training stops where a number is not finite, and says where it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from corral.envs.core import Array
from corral.errors import NonFiniteError

__all__ = ["require_finite_observations", "require_finite_rewards", "require_finite_weights"]


def require_finite_rewards(rewards: Array, agents: Sequence[str]) -> None:
    """Of all columns [C], copy * N + agent."""
    wrong = ~np.isfinite(rewards)
    if wrong.any():
        column = int(np.flatnonzero(wrong)[0])
        raise NonFiniteError(f"{_place(column, agents)}: the reward is {rewards[column]}")


def require_finite_observations(
    seen: Mapping[str, Array],
    infos: Sequence[Mapping[str, Any]],
    dones: Array,
    agents: Sequence[str],
) -> None:
    """What all columns see [C, ...], and what those saw last whose episodes are over."""
    for key, values in seen.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            wrong = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)  # [C]
            _refuse(int(np.flatnonzero(wrong)[0]), key, agents)
    for column in np.flatnonzero(dones).tolist():
        for key, value in infos[column]["terminal_observation"].items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                _refuse(column, f"last {key}", agents)


def require_finite_weights(name: str, policy: Any) -> None:
    """Of a policy of torch."""
    for key, values in policy.state_dict().items():
        if not torch.isfinite(values).all():
            raise NonFiniteError(
                f"policy {name}: {key} is no longer finite. Training has diverged: try a smaller "
                "learning_rate, and look at the last rows of progress.csv"
            )


def _refuse(column: int, what: str, agents: Sequence[str]) -> None:
    raise NonFiniteError(
        f"{_place(column, agents)}: the {what} holds a number that is not finite; mend the "
        "environment"
    )


def _place(column: int, agents: Sequence[str]) -> str:
    copy, place = divmod(column, len(agents))
    return f"copy {copy}, {agents[place]}"
