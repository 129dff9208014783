"""Estimate the memory that settings require, before any of it is allocated.

The estimate is a lower bound. It counts the environment copies, the observations of a rollout and
of a replay buffer, the layers with Adam's moments, and the activations of a minibatch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

from gymnasium import spaces

from corral.adapters.spaces import grid_of, image_of, width_of
from corral.envs.core import Rules
from corral.errors import SizeError
from corral.memory import COPY, PROCESS, require_memory
from corral.text import shortened
from corral.trainers.runs.checkpoint_format import MAX_ARRAYS
from corral.trainers.settings import Size, about

__all__ = ["memory_of", "require_sizes"]

BYTES_PER_NUMBER = 4  # float32
BYTES_PER_WEIGHT = 20
"""Bytes per weight: the weight, its gradient, Adam's two moments, and a second network's weight."""

ARRAYS_PER_LAYER = 12
"""Per layer: weight and bias, of actor and critic, each with its value and Adam's two moments."""


def require_sizes(
    rules: Rules[Any],
    settings: Any,
    settings_of: Mapping[str, Mapping[str, Any]],
    policies: Collection[str],
) -> None:
    """Raise SizeError if settings need more memory than is free, or more layers than a checkpoint
    can hold.

    ``settings_of`` are the settings of single policies: policy -> setting -> value.
    """
    for policy in policies:
        values = dataclasses.replace(settings, **settings_of.get(policy, {}))
        for name, widths in _layers(values):
            maximum = MAX_ARRAYS // (ARRAYS_PER_LAYER * len(policies))
            if len(widths) > maximum:
                raise SizeError(
                    f"{name} has {len(widths):,} layers, but a checkpoint holds at most "
                    f"{maximum:,} for each policy here; use fewer layers"
                )
        require_memory(memory_of(rules, values, len(policies)))


def memory_of(rules: Rules[Any], settings: Any, policies: int) -> dict[str, int]:
    """Return a lower bound of the bytes needed, by "name=value" of the settings.

    ``policies`` is the number of policies that share the rollout. Layers count for one policy.
    """
    observations = [rules.observation_space(agent) for agent in rules.agents]
    agent_bytes = [sum(map(_bytes_of, _leaves(space))) for space in observations]
    images = any(image_of(leaf) for space in observations for leaf in _leaves(space))
    fields = min(sum(map(_fields_of, _leaves(space))) for space in observations)
    features = min(sum(map(_features_of, _leaves(space))) for space in observations)
    if fields and (filters := dict(_layers(settings)).get("grid_arch")):
        features += fields * filters[-1]
    copies, processes = _numbers(settings, "copies"), _numbers(settings, "processes")
    steps, stored = _numbers(settings, "steps"), _numbers(settings, "kept")
    sampled, tried = _numbers(settings, "drawn"), _numbers(settings, "tried")
    rows = math.prod(copies.values())
    rollout = rows * math.prod(steps.values())
    needed = {
        _label(copies): rows * (COPY + sum(agent_bytes)),
        _label(processes): PROCESS * sum(processes.values()),
        _label(copies | steps): rollout * sum(agent_bytes),
        _label(stored): sum(stored.values()) * min(agent_bytes),
        _label(sampled): sum(sampled.values()) * min(agent_bytes),
        _label(tried): rows * sum(tried.values()) * 8,
    }
    decisions = rollout // policies
    if (batch_size := getattr(settings, "batch_size", None)) is None:
        decisions //= getattr(settings, "n_minibatches", 1)
    else:  # with a replay buffer it may exceed the rollout
        decisions = batch_size if stored else min(batch_size, decisions)
    for name, widths in _layers(settings):
        repeats = {"net_arch": 1, "grid_arch": fields}.get(name, int(images))
        if repeats:
            inputs = features if name == "net_arch" else 1
            size = BYTES_PER_WEIGHT * sum(a * b for a, b in pairwise((inputs, *widths)))
            size += BYTES_PER_NUMBER * decisions * sum(widths) * repeats
            needed[f"{name}={shortened(str(list(widths)), 80)}"] = size
    for name, units in _numbers(settings, "units").items():
        weights = 3 * units * units if name == "memory" else units * len(rules.agents)
        needed[f"{name}={units}"] = BYTES_PER_WEIGHT * weights
    return {name: size for name, size in needed.items() if size}


# --- Parts ---------------------------------------------------------------------------------------


def _numbers(settings: Any, sizes: Size) -> dict[str, int]:
    """Return the settings that scale one kind of memory: name -> value."""
    return {
        one.name: int(getattr(settings, one.name) or 0)
        for one in fields(settings)
        if about(one).get("sizes") == sizes
    }


def _layers(settings: Any) -> Iterator[tuple[str, Sequence[int]]]:
    for one in fields(settings):
        if about(one).get("sizes") == "layers" and (widths := getattr(settings, one.name)):
            yield one.name, widths


def _label(numbers: Mapping[str, int]) -> str:
    return " x ".join(f"{name}={value}" for name, value in numbers.items())


def _leaves(space: spaces.Space[Any]) -> Iterator[spaces.Space[Any]]:
    if isinstance(space, spaces.Dict):
        for part in space.spaces.values():
            yield from _leaves(part)
    elif isinstance(space, spaces.Tuple):
        for part in space.spaces:
            yield from _leaves(part)
    else:
        yield space


def _bytes_of(space: spaces.Space[Any]) -> int:
    """Return the bytes of one observation as network input: pixels uint8, features float32."""
    if image_of(space):
        return math.prod(space.shape or ())
    return BYTES_PER_NUMBER * _features_of(space)


def _fields_of(space: spaces.Space[Any]) -> int:
    """Return the number of fields of a grid; 0 for other spaces."""
    grid = grid_of(space)
    return math.prod(grid.image[1:]) if grid else 0


def _features_of(space: spaces.Space[Any]) -> int:
    return 0 if image_of(space) else width_of(space) or 0
