"""Functions that make fresh environments, of whatever an environment was given as."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pettingzoo import AECEnv, ParallelEnv

from corral.envs.conformance.play import Make
from corral.envs.others.convert import Made, as_pettingzoo, is_foreign
from corral.envs.registry import NamedEnv, env_spec, make

__all__ = ["Copies", "make_of"]


@dataclass(frozen=True, eq=False)
class Copies:
    """Makes deep copies of an environment, which itself is not played."""

    env: Any

    def __str__(self) -> str:
        return type(self.env).__name__

    def __call__(self) -> Any:
        return copy.deepcopy(self.env)


def make_of(env: Any) -> Make:
    """Return what makes fresh environments of ``env``.

    A class or function is called, an environment is copied. A module or a text makes what
    ``NamedEnv`` makes of it; of corral's own, ``corral.make``. Raises UnknownNameError for an
    unknown name.
    """
    if isinstance(env, AECEnv | ParallelEnv) or is_foreign(env):
        return Copies(as_pettingzoo(env))
    if isinstance(env, ModuleType | str):
        text = f"{env.__name__}:" if isinstance(env, ModuleType) else env
        if NamedEnv.is_one(text):
            named = NamedEnv(text)
            named.find()
            return named
        return functools.partial(make, env_spec(text).name)
    if callable(env):
        return env if isinstance(env, NamedEnv) else Made(env)
    return lambda: env  # which is reported as no environment
