"""Find the inputs that affect the actor's outputs, the dead layers, and what layers take away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from corral.envs.core import Array, generator
from corral.lab.doctor.evidence.record import PolicyEvidence

__all__ = ["equal_units", "look_into"]

LOOKED_AT = 256
"""Number of decisions of the rollout that are tested."""

Parts = list[torch.Tensor]


def look_into(trainer: Any, name: str, record: PolicyEvidence) -> None:
    """Record the actor's ignored inputs, dead layers, softmax and lost sizes of inputs."""
    learner = trainer.learners[name]
    buffer = trainer.rollout.groups[list(trainer.learners).index(name)]
    acted = np.flatnonzero(buffer.acted.reshape(-1))
    if not len(acted):
        return
    rows = generator(0, "eval").permutation(acted)[:LOOKED_AT]
    parts = _parts(learner, buffer, rows)
    record.playing.dead = _dead_layers(learner.actor, parts)
    record.playing.equal_units = equal_units(learner.actor)
    if len(parts[0]) >= 2:
        record.playing.probabilities = _probabilities(learner.actor, parts, learner.group)
        record.playing.scale_free = _scale_free(learner.actor, parts, learner.group.layout.width)
    silent = _without_gradient(learner.actor, parts)
    names = _names(learner.group)
    vector = buffer.vector[:-1].reshape(-1, buffer.vector.shape[-1])[acted]
    images = [image[:-1].reshape(-1, *image.shape[3:])[acted] for image in buffer.images]
    for where in silent:
        values = vector[:, where[1]] if where[0] == 0 else images[where[0] - 1]
        has_effect = _reaches(learner, buffer, acted, values, where)
        if has_effect is not None:
            (record.playing.cut if has_effect else record.ignored).append(names[where])


Where = tuple[int, int]
"""A column of the vector (0, column), or an image (its number from 1, 0)."""


def _parts(learner: Any, buffer: Any, rows: Array) -> Parts:
    parts, _ = buffer.tensors(slice(0, -1), rows, learner.device)
    return [part.float() for part in parts]


def _without_gradient(actor: Any, parts: Parts) -> list[Where]:
    """Return the inputs without a gradient from the outputs in any row."""
    inputs = [part.clone().requires_grad_() for part in parts]
    outputs, _ = actor.step(inputs, actor.initial(len(parts[0])))
    # A random direction: a plain sum of the outputs might cancel out.
    direction = torch.from_numpy(generator(0, "eval").standard_normal(outputs.shape[-1])).float()
    silent_inputs: list[Where] = []
    if not outputs.requires_grad:
        return [(0, k) for k in range(parts[0].shape[1])] + [(k, 0) for k in range(1, len(parts))]
    (outputs @ direction.to(outputs.device)).sum().backward()
    for k, part in enumerate(inputs):
        flat = None if part.grad is None else part.grad.abs().flatten(1).amax(dim=0)
        if k == 0:
            silent = [True] * part.shape[1] if flat is None else (~(flat > 0)).tolist()
            silent_inputs += [(0, column) for column, none in enumerate(silent) if none]
        elif flat is None or not bool((flat > 0).any()):
            silent_inputs.append((k, 0))
    actor.zero_grad(set_to_none=True)
    return silent_inputs


def _reaches(learner: Any, buffer: Any, acted: Array, values: Array, where: Where) -> bool | None:
    """Return True if another value of an input changes the outputs; None if it does not vary.

    Tests decisions at which the input differs from its most common value.
    """
    flat = values.reshape(len(values), -1)
    _, first, counts = np.unique(flat, axis=0, return_index=True, return_counts=True)
    if len(first) < 2:
        return None
    usual = flat[first[counts.argmax()]]
    differs = np.flatnonzero((flat != usual).any(axis=1))[:LOOKED_AT]
    before = _parts(learner, buffer, acted[differs])
    after = [part.clone() for part in before]
    new = torch.from_numpy(usual.reshape(values.shape[1:])).float().to(learner.device)
    if where[0]:
        after[where[0]][:] = new
    else:
        after[0][:, where[1]] = new
    with torch.inference_mode():
        hidden = learner.actor.initial(len(differs))
        same = torch.equal(
            learner.actor.step(before, hidden)[0], learner.actor.step(after, hidden)[0]
        )
    return not same


def _names(group: Any) -> dict[Where, str]:
    """Return the name of each input, for example "observation[3]"."""
    names: dict[Where, str] = {}
    image = 0
    for entry in group.layout.entries:
        key = entry.key or "observation"
        if entry.axes is not None:
            image += 1
            names[(image, 0)] = f"the image {key}"
            continue
        for column in range(entry.low, entry.high):
            names[(0, column)] = f"{key}[{column - entry.low}]"
    for k in range(group.identities):
        names[(0, group.layout.width + k)] = f"agent id ({group.agents[k]})"
    return names


def _dead_layers(network: Any, parts: Parts) -> list[str]:
    """Return the layers with varying inputs and constant outputs.

    A function that is not a module shows in the next layer: that layer's input is 0 throughout.
    This second test is skipped if an input of the network itself is 0 throughout.
    """
    dead: list[str] = []
    blank = any(not part.any() for part in parts[1:]) or not parts[0].any(dim=0).all()
    hooks = []
    varied: list[bool] = [False]  # whether any layer output varied so far

    def hear(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            before = [item for item in inputs if isinstance(item, torch.Tensor)]
            if not before or not isinstance(output, torch.Tensor) or len(output) < 2:
                return
            lost = varied[0] and not blank and not before[0].any()
            if (_varies(before[0], 1e-3) and not _varies(output)) or lost:
                dead.append(name)
            varied[0] |= _varies(output)

        return hook

    for name, module in network.named_modules():
        if not list(module.children()):
            hooks.append(module.register_forward_hook(hear(name)))
    try:
        with torch.inference_mode():
            network.step(parts, network.initial(len(parts[0])))
    finally:
        for item in hooks:
            item.remove()
    return dead


def equal_units(network: Any) -> list[str]:
    """Return the layers in which all units have the same weights, so that they learn the same."""
    names = []
    for name, weight in network.named_parameters():
        rows = weight.detach()
        if rows.ndim >= 2 and len(rows) >= 4 and not _varies(rows, 1e-4) and rows.any():
            names.append(name.removesuffix(".weight"))
    return names


def _probabilities(network: Any, parts: Parts, group: Any) -> int:
    """Return the number of decisions if the inputs of the last layer are probabilities, else 0.

    The agent's one-hot ID may follow a custom network's features.
    """
    last: list[torch.Tensor] = []

    def hear(module: nn.Module, inputs: Any, output: Any) -> None:
        last[:] = [item for item in inputs if isinstance(item, torch.Tensor)]

    leaves = [module for module in network.modules() if not list(module.children())]
    hooks = [module.register_forward_hook(hear) for module in leaves]
    try:
        with torch.inference_mode():
            network.step(parts, network.initial(len(parts[0])))
    finally:
        for item in hooks:
            item.remove()
    if not last or last[0].ndim != 2 or last[0].shape[1] < 2 or not _varies(last[0]):
        return 0
    sums = last[0].sum(dim=1)
    possible = (1.0, 2.0) if group.identities else (1.0,)
    are = any(torch.allclose(sums, torch.full_like(sums, one), atol=1e-4) for one in possible)
    return len(sums) if are and bool((last[0] >= 0).all()) else 0


def _scale_free(network: Any, parts: Parts, width: int) -> int:
    """Return the number of decisions if outputs ignore scale and level of the inputs, else 0.

    The first ``width`` columns of the vector are the observation.
    """
    scaled = parts[0].clone()
    scaled[:, :width] = 3 * scaled[:, :width] + 1
    with torch.inference_mode():
        hidden = network.initial(len(parts[0]))
        before, after = (
            network.step([vector, *parts[1:]], hidden)[0] for vector in (parts[0], scaled)
        )
    if width < 2 or not _varies(before):
        return 0
    spread = (before - before.mean(dim=0)).abs().max()
    same = ((after - before).abs().amax(dim=1) < 0.05 * spread).float().mean()
    # A normalization divides by at least a small constant, which matters for nearly equal inputs.
    return len(before) if bool(same > 0.9) else 0


def _varies(values: torch.Tensor, least: float = 0.0) -> bool:
    """Return True if the rows of ``values`` [R, ...] differ by more than ``least`` of the
    maximum."""
    far = (values - values[:1]).abs().max()
    return bool(far > least * values.abs().max())
