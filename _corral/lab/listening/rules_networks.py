"""Rules about the layers of a network: their inputs, outputs and modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from corral.envs.core import Array
from corral.lab.doctor.evidence.inputs import equal_units
from corral.lab.doctor.evidence.record import PolicyEvidence
from corral.lab.doctor.findings import networks
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.steps import some
from corral.lab.listening.heard import Heard
from corral.lab.listening.rules_steps import NOTHING, STEPS, largest
from corral.lab.listening.steps import place_of

__all__ = [
    "dead_layers",
    "modes_differ",
    "same_units",
    "saturated",
    "tiny_inputs",
    "unscaled_inputs",
]


def dead_layers(heard: Heard) -> Finding | None:
    """Report layers with one output for all different inputs."""
    if not heard.dead:
        return None
    rows = min((heard.layers[name].rows for name in heard.dead if name in heard.layers), default=0)
    record = PolicyEvidence(heard.policy, ())
    record.acted = [np.ones(rows, dtype=bool)]
    record.playing.dead = [_titled(heard, name) for name in heard.dead]
    heard.places["dead-layer"] = place_of(heard, heard.dead[0])
    return networks.dead_layers(record, NOTHING)


def same_units(heard: Heard) -> Finding | None:
    """Report layers in which all units have the same weights after several steps."""
    if heard.network is None or len(heard.steps) < STEPS:
        return None
    record = PolicyEvidence(heard.policy, ())
    moved = largest(step.changes for step in heard.steps)
    names = equal_units(heard.network)
    record.playing.equal_units = [name for name in names if moved.get(f"{name}.weight", 0.0) > 0]
    record.learning_rates = [0.0] * heard.updates
    if record.playing.equal_units:
        heard.places["units-alike"] = place_of(heard, record.playing.equal_units[0])
    return networks.equal_units(record, NOTHING)


def saturated(heard: Heard) -> Finding | None:
    """Report tanh and sigmoid layers at the ends of their range."""
    names = [name for name, layer in heard.layers.items() if layer.saturated > 0.95]
    if not names:
        return None
    heard.places["layer-saturated"] = place_of(heard, names[0])
    share = min(heard.layers[name].saturated for name in names)
    return Finding(
        "layer-saturated",
        "A layer is saturated: its outputs are at the ends of their range, without a gradient.",
        f"{some([_titled(heard, name) for name in names])}: {share:.0%} of the outputs are within "
        "0.01 of an end",
        "outputs between the ends for most inputs",
        "scale the observations, lower learning_rate, or start with smaller weights",
        1,
        heard.policy,
    )


def unscaled_inputs(heard: Heard) -> Finding | None:
    """Report large numbers in the network's inputs."""
    large: list[tuple[float, str, Array]] = []
    for name, layer in heard.layers.items():
        if layer.inputs is not None and layer.inputs.size and layer.inputs.max() > 30:
            large.append((float(layer.inputs.max()), name, layer.inputs))
    if not large:
        return None
    largest, name, columns = max(large, key=lambda item: item[0])
    heard.places["observation-unscaled"] = place_of(heard, name)
    return Finding(
        "observation-unscaled",
        "Observations contain large numbers, which hide the small ones.",
        f"largest input of {_titled(heard, name)} {largest:.4g}; {int((columns > 30).sum())} of "
        f"{len(columns)} columns exceed 30",
        "values of about -1 to 1",
        "divide large entries by their typical size, or normalize them with running statistics",
        2 if largest > 100 else 1,
        heard.policy,
    )


TINY = 1 / 128
"""Largest number of an input that hardly moves the outputs of a layer."""


def tiny_inputs(heard: Heard) -> Finding | None:
    """Report a layer that gets tiny numbers only from outside the network."""
    inputs = {
        name: float(layer.inputs.max())
        for name, layer in heard.layers.items()
        if layer.inputs is not None and layer.inputs.size
    }
    tiny = [name for name, size in inputs.items() if 0 < size < TINY]
    if not tiny:
        return None
    heard.places["observation-tiny"] = place_of(heard, tiny[0])
    return Finding(
        "observation-tiny",
        "A part of the observation has tiny numbers only: the network hardly sees it.",
        f"largest input of {_titled(heard, tiny[0])} {inputs[tiny[0]]:.2g}",
        "values of about -1 to 1",
        "scale it once only: pixels are divided by 255 in a wrapper or in the network, not in both",
        2 if heard.layers[tiny[0]].kind.startswith("Conv") else 1,
        heard.policy,
    )


def modes_differ(heard: Heard) -> Finding | None:
    """Report Dropout and BatchNorm layers in training mode in the loss, and not in play."""
    names = [
        name
        for name, layer in heard.layers.items()
        if layer.kind.startswith(("Dropout", "BatchNorm", "AlphaDropout", "FeatureAlphaDropout"))
        and (layer.playing, layer.learning) == ({False}, {True})
        and not _idle(heard, name)
    ]
    if not names:
        return None
    heard.places["modes-differ"] = place_of(heard, names[0])
    return Finding(
        "modes-differ",
        "Layers act differently in play and in the loss.",
        f"eval mode in play, training mode in the loss: {some([_titled(heard, n) for n in names])}",
        "the same outputs for the same inputs in play and in the loss",
        "call eval() for both, or use LayerNorm instead of BatchNorm and no Dropout",
        2,
        heard.policy,
    )


def _idle(heard: Heard, name: str) -> bool:
    """Return True for a Dropout that drops nothing."""
    module: Any = dict(heard.network.named_modules()).get(name) if heard.network else None
    return isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p == 0


def _titled(heard: Heard, name: str) -> str:
    layer = heard.layers.get(name)
    return f"{name} ({layer.kind})" if layer is not None else name
