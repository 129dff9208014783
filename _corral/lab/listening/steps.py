"""Hear the optimizer steps of a network, with any optimizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from corral.lab.doctor.findings.updates import STILL
from corral.lab.listening.heard import Heard, Place, Step, guarded

__all__ = ["Steps", "place_of"]

STEPS = 16
"""Recorded optimizer steps of an update."""

Named = dict[str, torch.Tensor]


class Steps:
    """Records optimizer steps that change parameters of ``heard.network``. It only reads.

    Hooks on all optimizers of torch find the ones that hold parameters of the network. Hooks on
    parameters exist only while steps are recorded; torch neither copies nor saves them.
    """

    def __init__(self, heard: Heard, attends: Callable[[], bool]) -> None:
        self.heard, self.attends = heard, attends
        self.cpu = 0.0  # CPU seconds in optimizer steps
        self._names: dict[int, str] = {}  # id of a parameter -> name
        self._handles: list[RemovableHandle] = []  # on all optimizers
        self._on_parameters: list[RemovableHandle] = []
        self._room = 0  # steps still to record in this update
        self._begun: dict[int, tuple[Named, Step]] = {}  # id of an optimizer -> step in progress
        self._fresh: Named = {}  # norms after the last backward()
        self._used: set[str] = set()  # gradients that an optimizer used since the last backward()
        self._kept: Named = {}  # norms of used gradients to which backward() added
        self._optimized: set[str] = set()  # parameters in optimizers that stepped
        self._optimizers: set[int] = set()
        self._foreign = 0  # optimizers of other networks
        self._first: Named = {}  # weights before the first step of this update
        self._last: Named = {}  # and of the one before
        self._moved: set[str] = set()  # parameters that steps of this update changed
        self._moved_last: set[str] = set()
        self._put_back = False

    def start(self) -> None:
        """Begin to hear."""
        self._handles = [
            register_optimizer_step_pre_hook(guarded(self.heard, self._before_step)),
            register_optimizer_step_post_hook(guarded(self.heard, self._after_step)),
        ]
        self._attach()

    def stop(self) -> None:
        """Remove all hooks."""
        self._note_outside()
        self._detach()
        self._room = 0
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def begin_update(self) -> None:
        """Begin an update: the next steps belong to it."""
        if not self._handles:
            return
        self._note_outside()
        self._last, self._first = self._first, {}
        self._moved_last, self._moved = self._moved, set()
        self._put_back = False
        self._attach()

    def _attach(self) -> None:
        """Listen to the parameters that the network has now, if this update is recorded."""
        self._detach()
        if self.heard.network is None or not self.attends():
            self._room = 0
            return
        self._room = STEPS
        self._names = {id(p): name for name, p in self.heard.network.named_parameters()}
        for name, parameter in self.heard.network.named_parameters():
            if parameter.requires_grad and parameter.is_leaf and not is_lazy(parameter):
                before, after = self._before_gradient(name, parameter), self._after_gradient(name)
                self._on_parameters += [
                    parameter.register_hook(before),  # type: ignore[no-untyped-call]
                    parameter.register_post_accumulate_grad_hook(after),  # type: ignore[no-untyped-call]
                ]

    def _detach(self) -> None:
        for handle in self._on_parameters:
            handle.remove()
        self._on_parameters = []

    # --- backward() ------------------------------------------------------------------------------

    def _before_gradient(
        self, name: str, parameter: torch.Tensor
    ) -> Callable[[torch.Tensor], None]:
        """Return a hook that runs before a gradient is added to ``parameter.grad``."""

        def hook(_: torch.Tensor) -> None:
            used = name in self._used
            self._used.discard(name)
            if parameter.grad is None:
                self._kept.pop(name, None)
            elif used:
                self._kept[name] = _norm(parameter.grad)
            elif name in self._kept:  # a second backward() of a step; 0 if it was cleared
                self._kept[name] = torch.minimum(self._kept[name], _norm(parameter.grad))

        return hook

    def _after_gradient(self, name: str) -> Callable[[torch.Tensor], None]:
        """Return a hook that runs when a gradient was added to ``parameter.grad``."""

        def hook(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                self._fresh[name] = _norm(parameter.grad)

        return hook

    # --- step() ----------------------------------------------------------------------------------

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not self._room and not self._last and id(optimizer) in self._optimizers:
            return
        began = time.process_time()
        owned = self._owned(optimizer)
        if id(optimizer) not in self._optimizers:
            self._optimizers.add(id(optimizer))
            self._foreign += not owned
        self._optimized.update(owned)
        self._compare(owned)
        if owned and self._room and self.attends():
            with torch.no_grad():
                weights = {name: parameter.detach().clone() for name, parameter in owned.items()}
            for name in owned.keys() - self._first.keys():
                self._first[name] = weights[name]
            step = Step(
                learning_rate=max(float(group.get("lr", 0.0)) for group in optimizer.param_groups),
                gradients={},
                norm=0.0,
                update=self.heard.updates,
                weight_decay=max(
                    float(group.get("weight_decay") or 0.0) for group in optimizer.param_groups
                ),
                weights=_total(_norm(weight) for weight in weights.values()),
                uphill=any(
                    bool(group.get("maximize")) != (float(group.get("lr", 0.0)) < 0)
                    for group in optimizer.param_groups
                ),
            )
            if not _has_closure(args, kwargs):
                self._note_gradients(step, owned)
            self._begun[id(optimizer)] = weights, step
        self.cpu += time.process_time() - began

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if id(optimizer) not in self._begun:
            return
        began = time.process_time()
        before, step = self._begun.pop(id(optimizer))
        owned = self._owned(optimizer)
        if _has_closure(args, kwargs):  # backward() ran within the step
            self._note_gradients(step, owned)
        with torch.no_grad():
            sizes = [_largest(owned[name].detach() - old) for name, old in before.items()]
        step.changes = dict(zip(before, _numbers(sizes), strict=True))
        self._moved.update(name for name, change in step.changes.items() if change > STILL)
        self._used.update(name for name, p in owned.items() if p.grad is not None)
        for name in owned:
            self._fresh.pop(name, None)
            self._kept.pop(name, None)
        self.heard.steps.append(step)
        self._room -= 1
        if not self._room:
            self._detach()
        self.cpu += time.process_time() - began

    def _owned(self, optimizer: torch.optim.Optimizer) -> Named:
        """Return the parameters of the network that an optimizer has."""
        return {
            self._names[id(parameter)]: parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) in self._names
        }

    def _note_gradients(self, step: Step, owned: Named) -> None:
        """Record the gradients that an optimizer gets. A missing one counts as 0."""
        grads = {name: p.grad for name, p in owned.items() if p.grad is not None}
        sizes = _numbers(_largest(grad) for grad in grads.values())
        step.gradients = dict.fromkeys(owned, 0.0) | dict(zip(grads, sizes, strict=True))
        step.norm = _total(_norm(grad) for grad in grads.values())
        if self._fresh.keys() & grads.keys():
            step.fresh_norm = _total(
                self._fresh[name] if name in self._fresh else _norm(grad)
                for name, grad in grads.items()
            )
            kept = [self._kept[name] for name in grads if name in self._kept]
            step.kept_norm = _total(kept)
        if self.heard.minibatches and (last := self.heard.minibatches[-1].gradients):
            last.done = True

    # --- Between updates -------------------------------------------------------------------------

    def _compare(self, owned: Named) -> None:
        """Count an update with weights that went back to those before the last update."""
        for name in self._last.keys() & owned.keys():
            same = torch.equal(self._last.pop(name), owned[name].detach())
            if same and name in self._moved_last and not self._put_back:
                self._put_back = True
                self.heard.restored += 1
                self.heard.places["weights-put-back"] = place_of(self.heard, name)

    def _note_outside(self) -> None:
        """Record the parameters that get gradients from backward(), and no optimizer has them.

        If no optimizer steps at all, the user changes weights in another way.
        """
        if not self._optimized and not self._foreign:
            return
        outside = {name: self._fresh[name] for name in self._fresh if name not in self._optimized}
        sizes = _numbers(outside.values())
        recent = [name for name, size in zip(outside, sizes, strict=True) if size > 0]
        earlier = [name for name in self.heard.outside if name not in self._optimized]
        self.heard.outside = list(dict.fromkeys(earlier + recent))


def place_of(heard: Heard, name: str) -> Place:
    """Return the place of a parameter or a layer: the class of its module, and its name."""
    modules = dict(heard.network.named_modules()) if heard.network is not None else {}
    module = modules.get(name) or modules.get(name.rpartition(".")[0])
    return Place(type(module).__name__ if module is not None else "", name)


def _has_closure(args: Any, kwargs: Any) -> bool:
    """Return True if ``step(closure)`` runs backward() itself."""
    return any(callable(item) for item in (*args[1:], kwargs.get("closure")))


def _dense(values: torch.Tensor) -> torch.Tensor:
    """Return numbers of at least 32 bits; half precision overflows in norms."""
    values = values.detach()
    if values.is_sparse:
        values = values.coalesce().values()
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _norm(values: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(_dense(values))
    return norm


def _largest(values: torch.Tensor) -> torch.Tensor:
    """Return the largest absolute value, nan if there is one, 0 if there is none."""
    values = _dense(values)
    return values.abs().max() if values.numel() else values.new_zeros(())


def _numbers(values: Iterable[torch.Tensor]) -> list[float]:
    """Return numbers with one transfer from the device."""
    items = list(values)
    if not items:
        return []
    device = items[0].device
    return torch.stack([item.to(device, torch.float32) for item in items]).tolist()


def _total(norms: Iterable[torch.Tensor]) -> float:
    """Return the norm of everything, from the norms of the parts."""
    return float(sum(norm**2 for norm in _numbers(norms)) ** 0.5)
