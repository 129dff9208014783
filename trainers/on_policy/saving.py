"""Checkpoints of in-house trainers as named arrays, validated before loading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from corral.adapters.networks import describe
from corral.envs.core import Array
from corral.errors import CheckpointError, NonFiniteError
from corral.named import source_digest
from corral.text import dotted_name
from corral.trainers.content import Content, Shapes, checkpoint_of, require_arrays, shapes_of
from corral.trainers.on_policy.algorithms import adam
from corral.trainers.on_policy.learner import Learner, load_moments
from corral.trainers.runs.checkpoint_format import encode_arrays, encode_document

__all__ = [
    "arrays_of",
    "export",
    "load",
    "load_policy",
    "policy_arrays",
    "require_finite_weights",
    "save",
    "set_weights",
    "weights_of",
    "write_actor",
]

# --- Trainers ------------------------------------------------------------------------------------


def save(trainer: Any) -> Content:
    """Return the complete training state of an OnPolicyTrainer."""
    document: dict[str, Any] = {
        "env_steps": trainer.env_steps,
        "shuffles": trainer.shuffle_rng.bit_generator.state,
        "kl_coef": {name: learner.kl_coef for name, learner in trainer.learners.items()},
    }
    if stays := {
        n: learner.stay_coef for n, learner in trainer.learners.items() if learner.start is not None
    }:
        document["stay_coef"] = stays
    arrays = {"generators": {"chance": trainer.action_rng.get_state().numpy().copy()}}
    for name, learner in trainer.learners.items():
        arrays |= policy_arrays(name, learner)
    # loaded, but training has not started
    snapshot = None if trainer.snapshot is None else dict(trainer.snapshot)
    if trainer.batch is not None and trainer.resumes_exactly and trainer.obs is not None:
        snapshot = dict(trainer.batch.snapshot())
    if snapshot is not None:
        arrays["environment"] = snapshot.pop("arrays")
        document["environment"] = snapshot
        arrays["accounts"] = {key: sums.copy() for key, sums in trainer.episode_stats.sums.items()}
        if trainer.opponents.policies:
            document["opponents"], arrays["opponents"] = trainer.opponents.save()
        if hidden := _hidden_states(trainer):
            arrays["memory"] = {key: values.copy() for key, values in hidden.items()}
    if trainer.casting is not None:
        document["self_play"], files = trainer.casting.save()
        arrays |= files
    return Content({"trainer": document}, arrays)


def load(trainer: Any, content: Content) -> None:
    """Restore a trainer from the result of ``save``.

    Raises CheckpointError if the content does not fit. Different files, names, shapes or dtypes are
    detected before the trainer changes.
    """
    with checkpoint_of(trainer.name):
        _load(trainer, content.documents["trainer"], content.arrays)


def _load(
    trainer: Any, document: Mapping[str, Any], arrays: Mapping[str, dict[str, Array]]
) -> None:
    chance = trainer.action_rng.get_state().numpy()
    require_arrays("generators", arrays["generators"], {"chance": (chance.shape, chance.dtype)})
    hidden = _hidden_states(trainer)
    exact = "environment" in document
    if exact and hidden:
        require_arrays("memory", arrays["memory"], shapes_of(hidden))
    opponents = arrays.get("opponents", {})
    if exact:
        trainer.opponents.require(opponents)
    for name, learner in trainer.learners.items():
        load_policy(name, learner, arrays)
        learner.set_penalties(kl_coef=float(document["kl_coef"][name]))
        if learner.start is not None:
            learner.set_penalties(stay_coef=float(document["stay_coef"][name]))
        if document["env_steps"]:
            learner.gradient_checks.clear()  # these checks apply only to the first update
    trainer.shuffle_rng.bit_generator.state = document["shuffles"]
    trainer.action_rng.set_state(torch.from_numpy(arrays["generators"]["chance"].copy()))
    snapshot = {**document["environment"], "arrays": arrays["environment"]} if exact else None
    trainer.go_on_from(int(document["env_steps"]), snapshot)
    if exact:
        sums = arrays["accounts"]
        trainer.episode_stats.sums = {key: values.copy() for key, values in sums.items()}
        if trainer.opponents.policies:
            trainer.opponents.load(document["opponents"], opponents)
    else:
        trainer.opponents.restart(trainer.env_steps)
    for key, values in hidden.items():
        values[...] = arrays["memory"][key] if exact else 0.0
    if trainer.casting is not None:
        trainer.casting.load(document["self_play"], arrays, exact=exact)


def _hidden_states(trainer: Any) -> dict[str, Array]:
    states: dict[str, Array] = {}
    for name, hidden in trainer.hidden.items():
        states |= {f"{name}.actor": hidden.actor, f"{name}.critic": hidden.critic}
        if (start := trainer.learners[name].start) is not None:
            states[f"{name}.start"] = start.hidden.actor
    return {key: values for key, values in states.items() if values.shape[1]}  # only with memory


def export(learners: Iterable[Learner], folder: Path, model: Any = None) -> list[Path]:
    """Write the actors of ``learners``: see ``write_actor``. ``model`` built their encoders."""
    paths = []
    for learner in learners:
        group, settings = learner.group, learner.settings
        layers: dict[str, Any] = {
            "net_arch": list(settings.net_arch),
            "cnn_arch": list(settings.cnn_arch or ()) or None,
            "cnn_patch": settings.cnn_patch,
            "grid_arch": list(settings.grid_arch or ()) or None,
            "activation": settings.activation,
        }
        if model is not None:
            layers = {"model": {"name": dotted_name(model), "sha256": source_digest(model)}}
        weights = arrays_of(learner.actor.state_dict())
        if learner.log_std is not None:
            weights |= arrays_of({"log_std": learner.log_std})
        about = {
            "agents": list(group.agents),
            "agent_id": bool(group.identities),
            **layers,
            "memory": settings.memory,
            **describe(group.layout, group.actions),
        }
        paths += write_actor(folder, group.policy, weights, about)
    return paths


def weights_of(trainer: Any) -> dict[str, Array]:
    """Return copies of all weights of an OnPolicyTrainer, named "<policy>.<name>"."""
    return {
        f"{name}.{key}": array
        for name, learner in trainer.learners.items()
        for key, array in arrays_of(learner.state_dict()).items()
    }


def set_weights(trainer: Any, weights: Mapping[str, Array]) -> None:
    """Set the ``weights`` of an OnPolicyTrainer, in the format of ``weights_of``.

    Optimizers keep their state. Raises CheckpointError if names, shapes or dtypes differ, and
    NonFiniteError for NaN or infinity, both before the weights change.
    """
    arrays = {key: np.asarray(array) for key, array in weights.items()}
    require_arrays("weights", arrays, shapes_of(weights_of(trainer)))
    for key, array in arrays.items():
        if not np.isfinite(array).all():
            raise NonFiniteError(f"weights: {key!r} contains NaN or infinity")
    for name, learner in trainer.learners.items():
        selected = {key: arrays[f"{name}.{key}"] for key in learner.state_dict()}
        learner.load_state_dict({key: torch.from_numpy(a.copy()) for key, a in selected.items()})


# --- Policies of any trainer ---------------------------------------------------------------------


def write_actor(
    folder: Path, policy: str, weights: Mapping[str, Array], about: Mapping[str, Any]
) -> list[Path]:
    """Write a policy's actor to <policy>.safetensors, and its description ``about`` to .json."""
    paths = [folder / f"{policy}.{kind}" for kind in ("safetensors", "json")]
    paths[0].write_bytes(encode_arrays(paths[0].name, weights))
    paths[1].write_bytes(encode_document(paths[1].name, about))
    return paths


def policy_arrays(name: str, policy: Any) -> dict[str, dict[str, Array]]:
    """Return the files of a policy: its weights, and the moments of its ``optimizer``.

    A moment is named "<number of the parameter>.<moment>"; there are no moments before the first
    step. Raises CheckpointError for an optimizer state that is not a tensor or a number.
    """
    state = policy.optimizer.state_dict()["state"]
    moments = {
        f"{at}.{key}": value for at, entries in state.items() for key, value in entries.items()
    }
    tensors = {key: _tensor_of(key, value) for key, value in moments.items() if value is not None}
    return {
        f"policy_{name}": arrays_of(policy.state_dict()),
        f"optimizer_{name}": arrays_of(tensors),
    }


def _tensor_of(key: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor | int | float):
        raise CheckpointError(
            f"the optimizer state {key} has type {type(value).__name__}: checkpoints support only "
            "tensors and numbers; use another optimizer"
        )
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return torch.as_tensor(value)


def load_policy(name: str, policy: Any, files: Mapping[str, dict[str, Array]]) -> None:
    """Set a policy's weights and moments from the result of ``policy_arrays``.

    Raises CheckpointError if names, shapes or dtypes differ, before the policy changes, and
    KeyError for a missing file.
    """
    weights, moments = files[f"policy_{name}"], files[f"optimizer_{name}"]
    require_arrays(f"policy_{name}", weights, shapes_of(arrays_of(policy.state_dict())))
    if moments:
        require_arrays(f"optimizer_{name}", moments, _expected_moments(policy, moments))
    policy.load_state_dict({key: torch.from_numpy(a.copy()) for key, a in weights.items()})
    state: dict[int, dict[str, Any]] = {}
    for key, values in moments.items():
        number, _, moment = key.partition(".")
        tensor = torch.from_numpy(values.copy())
        number_alone = tensor.dtype in (torch.float64, torch.int64) and not tensor.dim()
        state.setdefault(int(number), {})[moment] = tensor.item() if number_alone else tensor
    if isinstance(policy, Learner):
        policy.begin_from(state)
    else:
        load_moments(policy.optimizer, state)


def require_finite_weights(name: str, policy: Any) -> None:
    """Raise NonFiniteError if a weight of a torch policy is not finite."""
    for key, values in policy.state_dict().items():
        if not torch.isfinite(values).all():
            raise NonFiniteError(
                f"policy {name}: {key} is no longer finite. Training has diverged: try a smaller "
                "learning_rate, and check the last rows of progress.csv"
            )


def arrays_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """Return copies of ``tensors`` as NumPy arrays."""
    return {key: value.detach().cpu().numpy().copy() for key, value in tensors.items()}


def _expected_moments(policy: Any, moments: Iterable[str]) -> Shapes:
    """Return the expected moments of parameters that have any of ``moments``; the other parameters
    may never have had a gradient. Moments are those of Adam, or found by a trial step."""
    numbers = {key.partition(".")[0] for key in moments}
    of_a_step = isinstance(policy, Learner) and policy.make_optimizer is not adam
    shapes = _moments_of_a_step(policy) if of_a_step else _usual_moments(policy)
    return {key: shape for key, shape in shapes.items() if key.partition(".")[0] in numbers}


def _usual_moments(policy: Any) -> Shapes:
    """Return the moments of Adam, or of RMSprop if the policy uses it."""
    single = np.dtype(np.float32)
    shapes: Shapes = {}
    # Accessing a learner's optimizer would create it, which imports torch's compiler.
    rms_prop = not isinstance(policy, Learner) and isinstance(policy.optimizer, torch.optim.RMSprop)
    moments = ("square_avg",) if rms_prop else ("exp_avg", "exp_avg_sq")
    for number, values in enumerate(
        parameter for parameter in policy.parameters() if parameter.requires_grad
    ):
        shapes[f"{number}.step"] = ((), single)
        for moment in moments:
            shapes[f"{number}.{moment}"] = (tuple(values.shape), single)
    return shapes


def _moments_of_a_step(learner: Learner) -> Shapes:
    """Return the moments of a learner's optimizer after one step on copies of the parameters."""
    learned = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    copies = [torch.nn.Parameter(torch.zeros_like(parameter)) for parameter in learned]
    for parameter in copies:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = learner.make_optimizer(copies, learner.settings)
    optimizer.step()
    state = optimizer.state_dict()["state"]
    moments = {
        f"{at}.{key}": value for at, entries in state.items() for key, value in entries.items()
    }
    tensors = {key: _tensor_of(key, value) for key, value in moments.items() if value is not None}
    return shapes_of(arrays_of(tensors))
