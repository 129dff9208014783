"""Turn the ``env`` argument of ``check_env`` into a function that returns fresh environments."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pettingzoo import AECEnv, ParallelEnv

from corral.envs.conformance.play import Make
from corral.envs.others.convert import EnvFactory, as_pettingzoo, is_foreign
from corral.envs.registry import NamedEnv, env_spec, make

__all__ = ["Copies", "make_of"]


@dataclass(frozen=True, eq=False)
class Copies:
    """Return deep copies of an environment; the original is not played."""

    env: Any

    def __str__(self) -> str:
        return type(self.env).__name__

    def __call__(self) -> Any:
        return copy.deepcopy(self.env)


def make_of(env: Any) -> Make:
    """Return a function that returns fresh environments of ``env``.

    A class or function is called; an environment is deep-copied. A module or a text is resolved by
    ``NamedEnv``, or by ``corral.make`` for corral's environments. Raises UnknownNameError for an
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
        return env if isinstance(env, NamedEnv) else EnvFactory(env)
    return lambda: env  # reported later as not an environment
