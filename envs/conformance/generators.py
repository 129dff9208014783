"""Random generators that ``reset`` puts back into one state, whatever the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["fixed_generators"]

LAYERS = 16
"""Maximum number of wrappers that are searched for generators."""


def fixed_generators(env: Any) -> tuple[str, ...]:
    """Return the names of generators that have the same state after resets with two seeds.

    Each generator draws a number between the resets, so that one which ``reset`` leaves alone is
    not among them. ``env`` has the interface of PettingZoo or Gymnasium; it is reset twice. The
    global generators of Python and NumPy keep their states.
    """
    kept = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        env.reset(seed=1)
        before = {name: _state(generator) for name, generator in _generators(env)}
        for _, generator in _generators(env):
            generator.random()
        env.reset(seed=2)
        after = {name: _state(generator) for name, generator in _generators(env)}
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
    return tuple(name for name, state in before.items() if after.get(name) == state)


def _generators(env: Any) -> Iterator[tuple[str, Any]]:
    """Yield the global generators, and those among the attributes of an environment."""
    yield "random", random
    yield "np.random", np.random
    seen: set[int] = set()
    layer = env
    for _ in range(LAYERS):
        if layer is None or id(layer) in seen:
            return
        seen.add(id(layer))
        for name, value in vars(layer).items():
            if isinstance(value, np.random.Generator | np.random.RandomState | random.Random):
                yield f"{type(layer).__name__}.{name}", value
        layer = next(
            (vars(layer)[name] for name in ("env", "aec_env", "par_env") if name in vars(layer)),
            None,
        )


def _state(generator: Any) -> str:
    if isinstance(generator, np.random.Generator):
        return str(generator.bit_generator.state)
    if generator is np.random or isinstance(generator, np.random.RandomState):
        state: Any = generator.get_state()
        return f"{state[1].tobytes()!r} {state[2:]}"
    return str(generator.getstate())
