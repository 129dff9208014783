"""The copies of a ZooBatch in this process; and the seeds and names of copies anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from corral.adapters.zoo.copies import Actions, Look, Moved, ZooCopy, make_copy
from corral.adapters.zoo.spec import ZooSpec
from corral.envs.core import generator

__all__ = ["LocalCopies", "generators", "name_copy", "reset_seed"]


class LocalCopies:
    """Copies in this process, stepped one after the other."""

    def __init__(self, spec: ZooSpec, make_env: Callable[[], Any], num_envs: int) -> None:
        self._spec, self._make_env, self._num_envs = spec, make_env, num_envs
        self._copies: list[ZooCopy] = []
        self._seed = 0

    def reset(self, seed: int | None) -> list[Look]:
        """Begin anew in every copy; ``seed`` seeds them all, None: they go on."""
        self._seed = self._seed if seed is None else seed
        while len(self._copies) < self._num_envs:
            self._copies.append(make_copy(self._make_env(), self._spec))
        pairs = zip(self._copies, generators(seed, self._num_envs), strict=True)
        return [self._named(i, None, copy.reset, rng) for i, (copy, rng) in enumerate(pairs)]

    def step(self, actions: Sequence[Actions | None]) -> list[Moved | None]:
        """Play each copy's actions; None: it rests."""
        pairs = zip(self._copies, actions, strict=True)
        return [
            None if own is None else self._named(i, own, copy.step, own)
            for i, (copy, own) in enumerate(pairs)
        ]

    def _named(self, number: int, played: Actions | None, call: Callable[..., Any], by: Any) -> Any:
        try:
            return call(by)
        except Exception as error:
            error.add_note(f"in {name_copy(number, self._seed, played)}")
            raise

    def close(self, quiet: bool = False) -> None:
        """End it; ``quiet``: whatever the environments do about it. May be called again."""
        while self._copies:
            try:
                self._copies.pop().close()
            except Exception:
                if not quiet:
                    self.close(quiet=True)
                    raise


# --- Seeds and names ------------------------------------------------------------------------------


def generators(seed: int | None, num_envs: int) -> list[np.random.Generator | None]:
    """Return the generators that ``seed`` gives the copies; None for each: they go on."""
    return [None if seed is None else generator(seed, "env", row) for row in range(num_envs)]


def reset_seed(seed: int, copy: int) -> int:
    """Return the seed that a third-party environment gets from its generator."""
    return int(generator(seed, "env", copy).integers(2**31))


def name_copy(copy: int, seed: int, actions: Actions | None) -> str:
    """Return which copy it is, how it was seeded and what it played."""
    name = f"copy {copy} (first reset with seed={reset_seed(seed, copy)})"
    if actions is None:
        return f"{name}, which had played nothing"
    played = ", ".join(f"{agent}: {np.asarray(a).tolist()}" for agent, a in actions.items())
    return f"{name}, whose last actions were {{{played}}}"
