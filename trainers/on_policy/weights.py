"""A policy of torch and its optimiser as named arrays, and back; nothing is loaded unchecked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from corral.envs.core import Array
from corral.errors import NonFiniteError
from corral.trainers.runs.checkpoint import require_arrays

__all__ = ["load_policy", "policy_arrays", "require_finite_weights"]

Expected = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


def policy_arrays(name: str, policy: Any) -> dict[str, dict[str, Array]]:
    """The files of a policy that has an Adam ``optimizer``: its weights, and Adam's moments.

    A moment is called "<place of the parameter>.<moment>"; before the first step there are none.
    """
    state = policy.optimizer.state_dict()["state"]
    moments = {f"{at}.{key}": value for at, kept in state.items() for key, value in kept.items()}
    return {
        f"policy_{name}": _arrays(policy.state_dict()),
        f"optimizer_{name}": _arrays(moments),
    }


def load_policy(name: str, policy: Any, files: Mapping[str, dict[str, Array]]) -> None:
    """Give a policy of the same shape what ``policy_arrays`` took of another.

    Raises CheckpointError, before anything changes, where names, shapes or dtypes differ, and
    KeyError where a file is missing.
    """
    weights, moments = files[f"policy_{name}"], files[f"optimizer_{name}"]
    require_arrays(f"policy_{name}", weights, _expected(policy.state_dict()))
    if moments:
        require_arrays(f"optimizer_{name}", moments, _expected_moments(policy.optimizer))
    policy.load_state_dict({key: torch.from_numpy(a.copy()) for key, a in weights.items()})
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, values in moments.items():
        place, _, moment = key.partition(".")
        state.setdefault(int(place), {})[moment] = torch.from_numpy(values.copy())
    groups = policy.optimizer.state_dict()["param_groups"]
    policy.optimizer.load_state_dict({"state": state, "param_groups": groups})


def require_finite_weights(name: str, policy: Any) -> None:
    """Raise NonFiniteError where a weight of a policy of torch is not finite."""
    for key, values in policy.state_dict().items():
        if not torch.isfinite(values).all():
            raise NonFiniteError(
                f"policy {name}: {key} is no longer finite. Training has diverged: try a smaller "
                "learning_rate, and look at the last rows of progress.csv"
            )


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    return {key: value.detach().cpu().numpy().copy() for key, value in tensors.items()}


def _expected(tensors: Mapping[str, torch.Tensor]) -> Expected:
    return {key: (a.shape, a.dtype) for key, a in _arrays(tensors).items()}


def _expected_moments(optimizer: Any) -> Expected:
    single = np.dtype(np.float32)
    found: Expected = {}
    for place, values in enumerate(optimizer.param_groups[0]["params"]):
        found[f"{place}.step"] = ((), single)
        for moment in ("exp_avg", "exp_avg_sq"):
            found[f"{place}.{moment}"] = (tuple(values.shape), single)
    return found
