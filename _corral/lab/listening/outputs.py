"""Hear the gradients of the user's loss with regard to outputs of the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from corral.envs.core import Array
from corral.lab.listening.heard import Gradients, Minibatch, as_array

__all__ = ["watch_outputs"]

OUTPUTS = {
    "new_log_probs": "log_probs",
    "values": "values",
    "entropy": "entropy",
    "logits": "logits",
}
"""Field of a minibatch -> field of its gradients."""

SHAPES = ("View", "Squeeze", "Unsqueeze", "UnsafeView", "ReshapeAlias", "Alias", "ToCopy", "Clone")
"""Operations that keep all numbers: the loss may use the tensor before or after them."""

NODES = 20_000
"""Visited nodes of a graph; a recurrent network has several for each step."""


def watch_outputs(minibatch: Minibatch, data: Mapping[str, Any]) -> None:
    """Fill ``minibatch.gradients`` when the user's ``backward()`` runs. It changes nothing."""
    tensors = {name: data[name] for name in OUTPUTS if isinstance(data.get(name), torch.Tensor)}
    if not any(tensor.requires_grad for tensor in tensors.values()):
        return
    gradients = minibatch.gradients = Gradients()
    for name, tensor in tensors.items():
        field = OUTPUTS[name]
        if not tensor.requires_grad:
            gradients.cut.append(field)
            continue
        gradients.watched.append(field)
        if minibatch.first:
            gradients.reach[field] = _parameters_of(tensor)
        _watch(tensor, _adds(gradients, field, tuple(tensor.shape)))


def _adds(
    gradients: Gradients, field: str, shape: tuple[int, ...]
) -> Callable[[torch.Tensor], None]:
    """Return a function that adds a gradient to a field."""

    def add(gradient: torch.Tensor) -> None:
        gradients.done = True
        if gradient.numel() == _size(shape):
            before: Array | None = getattr(gradients, field)
            now = as_array(gradient.detach().float()).reshape(shape)
            setattr(gradients, field, now if before is None else before + now)

    return add


def _watch(tensor: torch.Tensor, add: Callable[[torch.Tensor], None]) -> None:
    """Call ``add`` with the gradient of a tensor, or of the tensor of which it is another shape."""
    node, output = tensor.grad_fn, tensor.output_nr
    if node is None:  # a parameter: the hook must not stay on it
        handles: list[RemovableHandle] = []

        def once(gradient: torch.Tensor) -> None:
            add(gradient)
            handles.pop().remove()

        handles.append(tensor.register_hook(once))  # type: ignore[no-untyped-call]
        return
    while type(node).__name__.rstrip("0123456789").removesuffix("Backward") in SHAPES:
        before, index = node.next_functions[0]
        if before is None or not before.next_functions:  # a parameter
            break
        node, output = before, index

    def hook(gradients: tuple[torch.Tensor | None, ...]) -> None:
        if (gradient := gradients[output]) is not None:
            add(gradient)

    node.register_prehook(hook)


def _parameters_of(tensor: torch.Tensor) -> frozenset[int]:
    """Return the ids of the parameters that a tensor depends on."""
    parameters: set[int] = set()
    visited: set[Any] = set()
    todo: list[Any] = [tensor.grad_fn]
    if tensor.is_leaf:
        parameters.add(id(tensor))
    while todo and len(visited) < NODES:
        node = todo.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if type(node).__name__ == "AccumulateGrad":
            parameters.add(id(node.variable))
        todo += [before for before, _ in node.next_functions]
    return frozenset(parameters)


def _size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
