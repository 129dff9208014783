"""Functions that make fresh environments, of whatever an environment was given as."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from pettingzoo import AECEnv, ParallelEnv

from corral.envs.conformance.play import Make
from corral.envs.registry import PROBES, env_spec

__all__ = ["Copies", "Named", "make_of"]


@dataclass(frozen=True)
class Named:
    """Makes the environment of ``module:function``; pickles, whatever the function is."""

    module: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"

    def __call__(self) -> Any:
        return self.find()(**self.arguments)

    def find(self) -> Any:
        """Return the function. Raises ImportError or AttributeError where there is none."""
        found: Any = importlib.import_module(self.module)
        for part in self.function.split("."):
            found = getattr(found, part)
        return found


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

    A function stays as it is. An environment is copied; a module makes its ``parallel_env``, or
    its ``env`` where it has no other; a name is one of corral's, or ``module:function``. Raises
    ValueError for a module that makes none, and UnknownNameError for an unknown name.
    """
    if isinstance(env, AECEnv | ParallelEnv):
        return Copies(env)
    if isinstance(env, ModuleType):
        for function in ("parallel_env", "env"):
            if hasattr(env, function):
                return Named(env.__name__, function)
        raise ValueError(f"{env.__name__} has neither parallel_env nor env; give what makes one")
    if isinstance(env, str):
        module, colon, function = env.partition(":")
        if colon:
            return Named(module, function)
        spec = env_spec(env)
        kind = "parallel_env" if spec.simultaneous else "env"
        return Named(spec.module, kind, {"name": env} if env in PROBES else {})
    if callable(env):
        found: Make = env
        return found
    return lambda: env  # which is reported as no environment
