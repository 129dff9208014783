"""The memory that settings ask for, estimated before any of it is taken.

The estimate is a lower bound: the copies of the environment, the observations of a rollout and of a
replay buffer, the layers with the moments of Adam, and the activations of a minibatch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

from gymnasium import spaces

from corral.adapters.spaces import image_of, width_of
from corral.envs.core import Rules
from corral.errors import SizeError
from corral.memory import COPY, PROCESS, require_memory
from corral.text import shortened
from corral.trainers.runs.checkpoint_format import MOST_ARRAYS
from corral.trainers.settings import Size, about

__all__ = ["memory_of", "require_sizes"]

OF_A_NUMBER = 4  # float32
OF_A_WEIGHT = 20
"""Bytes of a weight: itself, its gradient, two moments of Adam, and a second network's."""

ARRAYS_OF_A_LAYER = 12
"""Of a weight and a bias, of actor and critic: the values, and two moments of each."""


def require_sizes(
    rules: Rules[Any],
    settings: Any,
    settings_of: Mapping[str, Mapping[str, Any]],
    policies: Collection[str],
) -> None:
    """Raise SizeError where settings ask for more memory than is free, or for more layers than a
    checkpoint holds.

    ``settings_of`` are those that single ``policies`` have for themselves.
    """
    for policy in policies:
        own = dataclasses.replace(settings, **settings_of.get(policy, {}))
        for name, widths in _layers(own):
            most = MOST_ARRAYS // (ARRAYS_OF_A_LAYER * len(policies))
            if len(widths) > most:
                raise SizeError(
                    f"{name} has {len(widths):,} layers: a checkpoint holds at most {most:,} for "
                    "each policy here; give fewer"
                )
        require_memory(memory_of(rules, own, len(policies)))


def memory_of(rules: Rules[Any], settings: Any, policies: int) -> dict[str, int]:
    """Return the bytes that sizes ask for, at the least, by "name=value" of the settings.

    ``policies`` share the rollout; layers are those of one policy.
    """
    observations = [rules.observation_space(agent) for agent in rules.agents]
    of_agents = [sum(map(_bytes_of, _leaves(space))) for space in observations]
    images = any(image_of(leaf) for space in observations for leaf in _leaves(space))
    features = min(sum(map(_features_of, _leaves(space))) for space in observations)
    copies, processes = _numbers(settings, "copies"), _numbers(settings, "processes")
    steps, kept = _numbers(settings, "steps"), _numbers(settings, "kept")
    drawn, tried = _numbers(settings, "drawn"), _numbers(settings, "tried")
    rows = math.prod(copies.values())
    rollout = rows * math.prod(steps.values())
    needed = {
        _words(copies): rows * (COPY + sum(of_agents)),
        _words(processes): PROCESS * sum(processes.values()),
        _words(copies | steps): rollout * sum(of_agents),
        _words(kept): sum(kept.values()) * min(of_agents),
        _words(drawn): sum(drawn.values()) * min(of_agents),
        _words(tried): rows * sum(tried.values()) * 8,
    }
    decisions = rollout // policies
    if (batch_size := getattr(settings, "batch_size", None)) is None:
        decisions //= getattr(settings, "n_minibatches", 1)
    else:  # of a replay buffer it may be larger than a rollout
        decisions = batch_size if kept else min(batch_size, decisions)
    for name, widths in _layers(settings):
        if name == "net_arch" or images:
            inputs = features if name == "net_arch" else 1
            size = OF_A_WEIGHT * sum(a * b for a, b in pairwise((inputs, *widths)))
            size += OF_A_NUMBER * decisions * sum(widths)
            needed[f"{name}={shortened(str(list(widths)), 80)}"] = size
    for name, units in _numbers(settings, "units").items():
        weights = 3 * units * units if name == "memory" else units * len(rules.agents)
        needed[f"{name}={units}"] = OF_A_WEIGHT * weights
    return {name: size for name, size in needed.items() if size}


# --- Parts ---------------------------------------------------------------------------------------


def _numbers(settings: Any, sizes: Size) -> dict[str, int]:
    """Return the numbers that scale one kind of memory, by name."""
    return {
        one.name: int(getattr(settings, one.name) or 0)
        for one in fields(settings)
        if about(one).get("sizes") == sizes
    }


def _layers(settings: Any) -> Iterator[tuple[str, Sequence[int]]]:
    for one in fields(settings):
        if about(one).get("sizes") == "layers" and (widths := getattr(settings, one.name)):
            yield one.name, widths


def _words(numbers: Mapping[str, int]) -> str:
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
    """Return the bytes of one observation as networks take it in: pixels as uint8, else float32."""
    if image_of(space):
        return math.prod(space.shape or ())
    return OF_A_NUMBER * _features_of(space)


def _features_of(space: spaces.Space[Any]) -> int:
    return 0 if image_of(space) else width_of(space) or 0
