"""What a run goes on from, and what it learned, as named arrays; nothing is loaded unchecked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from corral.adapters.networks import describe
from corral.envs.core import Array
from corral.errors import CheckpointError, NonFiniteError
from corral.trainers.on_policy.learner import Learner
from corral.trainers.runs.checkpoint import Content, require_arrays
from corral.trainers.runs.checkpoint_format import encode_arrays, encode_document

if TYPE_CHECKING:
    from corral.trainers.on_policy.trainer import OnPolicyTrainer

__all__ = ["export", "load", "load_policy", "policy_arrays", "save"]

Shapes = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


# --- Trainers ------------------------------------------------------------------------------------


def save(trainer: OnPolicyTrainer) -> Content:
    """Return all that decides how training goes on."""
    document: dict[str, Any] = {
        "env_steps": trainer.env_steps,
        "shuffles": trainer.shuffle_rng.bit_generator.state,
        "kl_coef": {name: each.kl_coef for name, each in trainer.learners.items()},
    }
    arrays = {"generators": {"chance": trainer.action_rng.get_state().numpy().copy()}}
    for name, learner in trainer.learners.items():
        arrays |= policy_arrays(name, learner)
    if trainer.batch is not None and trainer.resumes_exactly and trainer.obs is not None:
        snapshot = dict(trainer.batch.snapshot())
        arrays["environment"] = snapshot.pop("arrays")
        document["environment"] = snapshot
        arrays["accounts"] = {key: sums.copy() for key, sums in trainer.accounts.sums.items()}
        if trainer.opponents.policies:
            document["opponents"], arrays["opponents"] = trainer.opponents.save()
        if trainer.settings.memory:
            arrays["memory"] = {key: each.copy() for key, each in _hidden_states(trainer).items()}
    return Content({"trainer": document}, arrays)


def load(trainer: OnPolicyTrainer, content: Content) -> None:
    """Let a trainer go on from what ``save`` gave.

    Raises CheckpointError where it does not fit: before anything changes, where files, names,
    shapes or dtypes differ.
    """
    try:
        document = content.documents["trainer"]
        arrays = {key: dict(values) for key, values in content.arrays.items()}
        _load(trainer, document, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"the checkpoint is not of {trainer.name}: {error!r}") from error


def _load(
    trainer: OnPolicyTrainer, document: Mapping[str, Any], arrays: Mapping[str, dict[str, Array]]
) -> None:
    chance = trainer.action_rng.get_state().numpy()
    require_arrays("generators", arrays["generators"], {"chance": (chance.shape, chance.dtype)})
    hidden = _hidden_states(trainer)
    exact = "environment" in document
    if exact and trainer.settings.memory:
        require_arrays("memory", arrays["memory"], _shapes(hidden))
    opponents = arrays.get("opponents", {})
    if exact:
        trainer.opponents.require(opponents)
    for name, learner in trainer.learners.items():
        load_policy(name, learner, arrays)
        learner.kl_coef = float(document["kl_coef"][name])
    trainer.env_steps = int(document["env_steps"])
    trainer.shuffle_rng.bit_generator.state = document["shuffles"]
    trainer.action_rng.set_state(torch.from_numpy(arrays["generators"]["chance"].copy()))
    trainer.snapshot, trainer.obs = None, None
    trainer.resumes_exactly = exact
    if exact:
        trainer.snapshot = {**document["environment"], "arrays": arrays["environment"]}
        sums = arrays["accounts"]
        trainer.accounts.sums = {key: values.copy() for key, values in sums.items()}
        if trainer.opponents.policies:
            trainer.opponents.load(document["opponents"], opponents)
    else:
        trainer.opponents.restart()
    for key, values in hidden.items():
        values[...] = arrays["memory"][key] if exact and trainer.settings.memory else 0.0


def _hidden_states(trainer: OnPolicyTrainer) -> dict[str, Array]:
    return {
        f"{name}.{kind}": values
        for name, hidden in trainer.hidden.items()
        for kind, values in (("actor", hidden.actor), ("critic", hidden.critic))
    }


def export(learners: Iterable[Learner], settings: Any, folder: Path) -> list[Path]:
    """Write each policy's actor: <policy>.safetensors, and what it is made for, .json."""
    paths = []
    for learner in learners:
        group = learner.group
        weights = _arrays(learner.actor.state_dict())
        if learner.log_std is not None:
            weights |= _arrays({"log_std": learner.log_std})
        about = {
            "agents": list(group.agents),
            "agent_id": bool(group.identities),
            "net_arch": list(settings.net_arch),
            "cnn_arch": list(settings.cnn_arch or ()) or None,
            "cnn_patch": settings.cnn_patch,
            "activation": settings.activation,
            "memory": settings.memory,
            **describe(group.layout, group.actions),
        }
        for kind, data in (
            ("safetensors", encode_arrays(f"{group.policy}.safetensors", weights)),
            ("json", encode_document(f"{group.policy}.json", about)),
        ):
            paths.append(folder / f"{group.policy}.{kind}")
            paths[-1].write_bytes(data)
    return paths


# --- Policies ------------------------------------------------------------------------------------


def policy_arrays(name: str, policy: Any) -> dict[str, dict[str, Array]]:
    """Return the files of a policy with Adam as ``optimizer``: its weights, and Adam's moments.

    A moment is called "<number of the parameter>.<moment>"; before the first step there are none.
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
    require_arrays(f"policy_{name}", weights, _shapes(_arrays(policy.state_dict())))
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


def _shapes(arrays: Mapping[str, Array]) -> Shapes:
    return {key: (a.shape, a.dtype) for key, a in arrays.items()}


def _expected_moments(optimizer: Any) -> Shapes:
    single = np.dtype(np.float32)
    found: Shapes = {}
    for place, values in enumerate(optimizer.param_groups[0]["params"]):
        found[f"{place}.step"] = ((), single)
        for moment in ("exp_avg", "exp_avg_sq"):
            found[f"{place}.{moment}"] = (tuple(values.shape), single)
    return found
