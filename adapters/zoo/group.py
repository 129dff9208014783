"""The copies of a ZooBatch in this process, and seeds and names of copies in any process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from corral.adapters.zoo.copies import Actions, CopyStep, Observed, ZooCopy, make_copy
from corral.adapters.zoo.spec import ZooSpec
from corral.envs.core import generator

__all__ = ["LocalCopies", "generators", "name_copy", "reset_seed"]


class LocalCopies:
    """Copies in this process, stepped one after another."""

    def __init__(self, spec: ZooSpec, make_env: Callable[[], Any], num_envs: int) -> None:
        self._spec, self._make_env, self._num_envs = spec, make_env, num_envs
        self._copies: list[ZooCopy] = []
        self._seed = 0

    def reset(self, seed: int | None) -> list[Observed]:
        """Begin an episode in every copy. ``seed`` seeds all; None continues their streams."""
        self._seed = self._seed if seed is None else seed
        while len(self._copies) < self._num_envs:
            self._copies.append(make_copy(self._make_env(), self._spec, checked=True))
        pairs = zip(self._copies, generators(seed, self._num_envs), strict=True)
        return [self._named(i, None, copy.reset, rng) for i, (copy, rng) in enumerate(pairs)]

    def step(self, actions: Sequence[Actions | None]) -> list[CopyStep | None]:
        """Play the actions of each copy; None: do not step the copy."""
        pairs = zip(self._copies, actions, strict=True)
        return [
            None if own_actions is None else self._named(i, own_actions, copy.step, own_actions)
            for i, (copy, own_actions) in enumerate(pairs)
        ]

    def _named(self, number: int, played: Actions | None, call: Callable[..., Any], by: Any) -> Any:
        try:
            return call(by)
        except Exception as error:
            error.add_note(f"in {name_copy(number, self._seed, played)}")
            raise

    def close(self, quiet: bool = False) -> None:
        """Close the environments; with ``quiet``, ignore their errors. May be called again."""
        while self._copies:
            try:
                self._copies.pop().close()
            except Exception:
                if not quiet:
                    self.close(quiet=True)
                    raise


# --- Seeds and names ------------------------------------------------------------------------------


def generators(seed: int | None, num_envs: int) -> list[np.random.Generator | None]:
    """Return the generators of the copies for ``seed``. Without a seed, return None for each."""
    return [None if seed is None else generator(seed, "env", row) for row in range(num_envs)]


def reset_seed(seed: int, copy: int) -> int:
    """Return the seed of the first reset of a third-party environment."""
    return int(generator(seed, "env", copy).integers(2**31))


def name_copy(copy: int, seed: int, actions: Actions | None) -> str:
    """Return a description of a copy: its number, seed and last actions."""
    name = f"copy {copy} (first reset with seed={reset_seed(seed, copy)})"
    if actions is None:
        return f"{name}, without actions so far"
    played = ", ".join(f"{agent}: {np.asarray(a).tolist()}" for agent, a in actions.items())
    return f"{name}, last actions {{{played}}}"
