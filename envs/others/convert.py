"""Finds out what an environment is, and makes a PettingZoo environment of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from pettingzoo import AECEnv, ParallelEnv

from corral.envs.others.base import is_multi_agent
from corral.envs.others.calls import called, lacking, short_name, takes
from corral.envs.others.multi_agent import ParallelOfMultiAgent
from corral.envs.others.single_agent import ParallelOfGymnasium
from corral.errors import ArgumentError, EnvironmentFault
from corral.hints import listed

__all__ = ["Made", "as_pettingzoo", "is_foreign"]

OURS = ("agents", "max_cycles")
"""Arguments of ``from_multi_agent_env`` and ``from_gymnasium``, where a class has no such."""


@dataclass(frozen=True)
class Made:
    """Calls a class or function of a user's, and returns what it makes as a PettingZoo environment.

    ``make`` may be a class with RLlib's interface, which is given ``kwargs`` as its config, one of
    Gymnasium or PettingZoo, or a function that returns one of these. Pickles if ``make`` does.
    Raises ArgumentError where it reads an argument that is not given.
    """

    make: Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, render_mode: str | None = None) -> Any:
        ours = {name: self.kwargs[name] for name in OURS if self._is_ours(name)}
        kwargs = {name: value for name, value in self.kwargs.items() if name not in ours}
        if render_mode is not None and takes(self.make, "render_mode"):
            kwargs["render_mode"] = render_mode
        config = isinstance(self.make, type) and is_multi_agent(self.make)
        try:
            made = called(self.make, kwargs, config=config)
        except (KeyError, TypeError) as error:
            if (lacks := lacking(error)) is None:
                raise
            where, names = lacks
            given = " ".join(f"--arg {name}=VALUE" for name in names)
            gives = "gives it" if len(names) == 1 else "give them"
            raise ArgumentError(
                f"{self}: {where} reads {listed(map(repr, names))}, not given: {given} {gives} "
                "(env_kwargs=)"
            ) from error
        return as_pettingzoo(made, ours, render_mode)

    def __str__(self) -> str:
        return short_name(self.make)

    def _is_ours(self, name: str) -> bool:
        return name in self.kwargs and not takes(self.make, name)


def is_foreign(env: Any) -> bool:
    """Return whether an object is an environment that ``as_pettingzoo`` converts."""
    if isinstance(env, type | AECEnv | ParallelEnv):
        return False
    return isinstance(env, gymnasium.Env) or is_multi_agent(type(env)) or _is_old(env)


def as_pettingzoo(
    env: Any, kwargs: Mapping[str, Any] | None = None, render_mode: str | None = None
) -> Any:
    """Return an environment as one of PettingZoo; what is none of the known kinds as it is.

    ``kwargs`` are of ``from_multi_agent_env`` or ``from_gymnasium``. Raises TypeError for arguments
    that it has no use for, EnvironmentFault for an environment of the old gym.
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
                "it is an environment of the old gym",
                "write import gymnasium as gym, let reset(seed=None, options=None) return obs, "
                "info, and step obs, reward, terminated, truncated, info",
            )
    if unused:
        raise TypeError(f"{short_name(env)} got an unexpected keyword argument {unused[0]!r}")
    return env


def _is_old(env: Any) -> bool:
    """Return whether an object derives from a class of the old gym."""
    return any(base.__module__.partition(".")[0] == "gym" for base in type(env).__mro__)
