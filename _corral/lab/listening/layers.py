"""Hear the layers of a network: dead and saturated ones, their inputs, and their modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from corral.lab.listening.heard import Heard, Layer, as_array, guarded

__all__ = ["Layers"]

ROWS = 256
"""Rows of an input that are looked at."""

LEAST = 16
"""Rows of an input, at least."""

DIFFERENT = 8
"""Different rows among them, at least."""

TRIES = 4
"""Calls of a layer in an update that are looked at until one has enough different rows."""

CALLS = 16
"""Calls of a layer in an update that are counted."""

OUTPUTS = 16
"""Calls of the whole network in an update of which the output is heard."""

AT_END = 0.01
"""Distance from the ends of tanh or sigmoid at which an output is saturated."""

SQUASHING = (nn.Tanh, nn.Sigmoid, nn.Softsign, nn.Hardtanh, nn.Hardsigmoid)


class Layers:
    """Records the calls of the layers of ``heard.network``. It only reads.

    The hook is global, because torch copies and saves hooks on modules with them.
    """

    def __init__(self, heard: Heard, attends: Callable[[], bool]) -> None:
        self.heard, self.attends = heard, attends
        self._names: dict[int, str] = {}
        self._tries: dict[str, int] = {}
        self._calls: dict[str, int] = {}  # still to count in this update
        self._outputs = 0  # calls of the whole network, still to hear in this update
        self._handle: RemovableHandle | None = None
        self._started = False

    def start(self) -> None:
        """Begin to hear."""
        self._started = True
        self.begin_update()

    def stop(self) -> None:
        """Remove the hook."""
        self._started = False
        self._detach()

    def begin_update(self) -> None:
        """Begin an update: look at each layer again, if this update is recorded."""
        self._detach()
        if not self._started or self.heard.network is None or not self.attends():
            return
        modules = dict(self.heard.network.named_modules())
        leaves = {name: item for name, item in modules.items() if not list(item.children())}
        self._names = {id(module): name for name, module in leaves.items()}
        self._tries = dict.fromkeys(leaves, TRIES)
        self._calls = dict.fromkeys(leaves, CALLS)
        self._outputs = OUTPUTS
        for name, module in leaves.items():
            self.heard.layers.setdefault(name, Layer(type(module).__name__))
        self._handle = register_module_forward_hook(guarded(self.heard, self._hear))

    def _detach(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _hear(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if module is self.heard.network and torch.is_grad_enabled():
            self._outputs -= 1
            if isinstance(output, torch.Tensor) and output.ndim == 2:
                self.heard.output = output.detach()
        name = self._names.get(id(module))
        if name is None:
            if not self._names and self._outputs <= 0:
                self._detach()
            return
        self._calls[name] -= 1
        if self._calls[name] <= 0:  # a network that plays has many calls
            self._calls.pop(name)
            self._names.pop(id(module))
            if not self._names and self._outputs == OUTPUTS:  # the parts alone are called
                self._detach()
            return
        layer = self.heard.layers[name]
        layer.calls += 1
        if not torch.is_grad_enabled():
            layer.playing.add(module.training)
            return
        layer.graph = True
        layer.learning.add(module.training)
        if not self._tries[name]:
            return
        entered = next((item for item in inputs if isinstance(item, torch.Tensor)), None)
        made = output[0] if isinstance(output, tuple) and output else output
        if entered is None or not isinstance(made, torch.Tensor):
            return
        if (entered.ndim < 2 and not isinstance(module, nn.Embedding)) or len(entered) < LEAST:
            return
        self._tries[name] -= 1
        with torch.no_grad():
            self._measure(name, layer, module, entered, made)

    def _measure(
        self, name: str, layer: Layer, module: nn.Module, entered: torch.Tensor, made: torch.Tensor
    ) -> None:
        hidden = entered.requires_grad
        entered, made = entered.detach()[:ROWS].float(), made.detach()[:ROWS].float()
        if not hidden and entered.ndim >= 2 and not isinstance(module, nn.Embedding):
            columns = (
                entered.reshape(-1, entered.shape[-1])
                if entered.ndim == 2
                else entered.reshape(-1, 1)
            )
            layer.inputs = as_array(columns.abs().amax(dim=0))
        if not torch.isfinite(entered).all() or not torch.isfinite(made).all():
            return  # masked logits, or training that diverges
        empty = hidden and not entered.any()  # such as after a function relu() that no unit passes
        rows = _different(entered)
        if rows < DIFFERENT and not empty:
            return
        self._tries[name] = 0
        layer.rows = rows
        still = len(made) == len(entered) and _varies(entered, 1e-3) and not _varies(made)
        layer.dead = layer.dead + 1 if still or empty else 0
        weighted = any(True for _ in module.parameters(recurse=False))
        # A head of zeros is a usual start: its first step changes that.
        dead = layer.dead >= (2 if weighted or empty else 1)
        self.heard.dead = [item for item in self.heard.dead if item != name] + [name] * dead
        if isinstance(module, SQUASHING):
            low, high = made.min(), made.max()
            bottom = 0.0 if isinstance(module, nn.Sigmoid | nn.Hardsigmoid) else -1.0
            ends = (made > 1.0 - AT_END) | (made < bottom + AT_END)
            layer.saturated = float(ends.float().mean()) if high > low or ends.all() else 0.0
        one = made.ndim == 2 and made.shape[1] > 1 and bool((made >= 0).all())
        one = one and bool(((made.sum(dim=1) - 1).abs() < 1e-4).all())
        layer.probabilities = as_array(made) if one else None


def _different(rows: torch.Tensor) -> int:
    """Return the number of different rows [R, ...]; equal sums of weighted columns count once."""
    flat = rows.reshape(len(rows), -1).double()
    weights = torch.linspace(1.0, 2.0, flat.shape[1], dtype=flat.dtype, device=flat.device)
    return int(torch.unique(flat @ weights.sqrt()).numel())


def _varies(values: torch.Tensor, least: float = 0.0) -> bool:
    """Return True if the rows of ``values`` differ by more than ``least`` of the maximum."""
    far = (values - values[:1]).abs().max()
    return bool(far > least * values.abs().max())
