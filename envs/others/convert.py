"""Detect the kind of an environment and convert it into a PettingZoo environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from pettingzoo import AECEnv, ParallelEnv

from corral.envs.others.base import is_multi_agent
from corral.envs.others.calls import accepts, construct, missing_arguments, short_name
from corral.envs.others.multi_agent import ParallelOfMultiAgent
from corral.envs.others.single_agent import ParallelOfGymnasium
from corral.errors import ArgumentError, EnvironmentFault
from corral.hints import listed

__all__ = ["EnvFactory", "as_pettingzoo", "is_foreign"]

OURS = ("agents", "max_cycles")
"""Arguments for ``from_multi_agent_env`` and ``from_gymnasium``, unless the class accepts them."""


@dataclass(frozen=True)
class EnvFactory:
    """Call a user's class or function and convert the result into a PettingZoo environment.

    ``make`` may be a class with RLlib's interface, which gets ``kwargs`` as its config; a class of
    Gymnasium or PettingZoo; or a function that returns such an environment. Pickles if ``make``
    does. Raises ArgumentError if ``make`` reads a missing argument.
    """

    make: Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, render_mode: str | None = None) -> Any:
        ours = {name: self.kwargs[name] for name in OURS if self._is_ours(name)}
        kwargs = {name: value for name, value in self.kwargs.items() if name not in ours}
        if render_mode is not None and accepts(self.make, "render_mode"):
            kwargs["render_mode"] = render_mode
        config = isinstance(self.make, type) and is_multi_agent(self.make)
        try:
            made = construct(self.make, kwargs, config=config)
        except (KeyError, TypeError) as error:
            if (missing := missing_arguments(error)) is None:
                raise
            place, names = missing
            options = " ".join(f"--arg {name}=VALUE" for name in names)
            pronoun = "it" if len(names) == 1 else "them"
            raise ArgumentError(
                f"{self}: {place} needs {listed(map(repr, names))}, which "
                f"{'is' if len(names) == 1 else 'are'} missing. Pass {pronoun} with {options} "
                "(in Python: env_kwargs=)"
            ) from error
        return as_pettingzoo(made, ours, render_mode)

    def __str__(self) -> str:
        return short_name(self.make)

    def _is_ours(self, name: str) -> bool:
        return name in self.kwargs and not accepts(self.make, name)


def is_foreign(env: Any) -> bool:
    """Return True if ``as_pettingzoo`` converts this environment."""
    if isinstance(env, type | AECEnv | ParallelEnv):
        return False
    return isinstance(env, gymnasium.Env) or is_multi_agent(type(env)) or _is_old(env)


def as_pettingzoo(
    env: Any, kwargs: Mapping[str, Any] | None = None, render_mode: str | None = None
) -> Any:
    """Convert an environment into a PettingZoo environment. An unknown kind is returned unchanged.

    ``kwargs`` are arguments of ``from_multi_agent_env`` or ``from_gymnasium``. Raises TypeError for
    unused arguments, and EnvironmentFault for an environment of the old gym package.
    """
    kwargs = dict(kwargs or {})
    if isinstance(env, AECEnv | ParallelEnv):
        unused = list(kwargs)
    elif is_multi_agent(type(env)):
        return ParallelOfMultiAgent(env, render_mode=render_mode, **kwargs)
    elif isinstance(env, gymnasium.Env):
        unused = [name for name in kwargs if name != "max_cycles"]
        if not unused:
            return ParallelOfGymnasium(env, **kwargs)
    else:
        unused = list(kwargs)
        if _is_old(env):
            raise EnvironmentFault.of(
                short_name(env),
                "it derives from the old gym package",
                "write `import gymnasium as gym`, return obs, info from reset(seed=None, "
                "options=None), and return obs, reward, terminated, truncated, info from step()",
            )
    if unused:
        raise TypeError(f"{short_name(env)} got an unexpected keyword argument {unused[0]!r}")
    return env


def _is_old(env: Any) -> bool:
    """Return True if an object derives from a class of the old gym package."""
    return any(base.__module__.partition(".")[0] == "gym" for base in type(env).__mro__)
