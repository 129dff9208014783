"""Functions that every environment module exports: parallel_env, raw_env and env."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pettingzoo import AECEnv

from corral.envs.arguments import known_arguments
from corral.envs.core import Observation
from corral.envs.shells import Ordered, ParallelShell, TurnShell, ordered

__all__ = ["aec_entries", "parallel_entry", "plain_shell"]

EntryT = TypeVar("EntryT", bound=Callable[..., Any])
ParallelEntry = Callable[..., ParallelShell]
AECEntry = Callable[..., AECEnv[str, Observation, int]]


def parallel_entry(rules: type[Any]) -> ParallelEntry:
    """Return the function ``parallel_env`` for the module of an environment with these rules."""

    def parallel_env(render_mode: str | None = None, **kwargs: Any) -> ParallelShell:
        known_arguments(rules, kwargs)
        return ParallelShell(rules(**kwargs), render_mode, kwargs)

    doc = f"Make {rules.name} as a PettingZoo ParallelEnv; arguments as for ``{rules.__name__}``."
    return _of_package(parallel_env, rules, doc)


def aec_entries(rules: type[Any]) -> tuple[AECEntry, AECEntry]:
    """Return the functions ``raw_env`` and ``env`` for the module of an environment."""

    def raw_env(render_mode: str | None = None, **kwargs: Any) -> AECEnv[str, Observation, int]:
        known_arguments(rules, kwargs)
        return TurnShell(rules(**kwargs), render_mode, kwargs)

    def env(render_mode: str | None = None, **kwargs: Any) -> AECEnv[str, Observation, int]:
        return ordered(raw_env(render_mode, **kwargs))

    doc = f"Make {rules.name} as a PettingZoo AECEnv"
    raw = _of_package(raw_env, rules, f"{doc}, without the wrapper that checks the order of calls.")
    return raw, _of_package(env, rules, f"{doc}; arguments as for ``{rules.__name__}``.")


def _of_package(function: EntryT, rules: type[Any], doc: str) -> EntryT:
    """Set the module that users import as the module of ``function``, so that it can be pickled."""
    function.__module__ = rules.__module__.removesuffix(".rules")
    function.__qualname__, function.__doc__ = function.__name__, doc
    return function


def plain_shell(env: Any) -> ParallelShell | TurnShell | None:
    """Return corral's environment inside ``env``; None if another wrapper is around it."""
    while type(env) is Ordered:
        env = env.env
    return env if type(env) in (ParallelShell, TurnShell) else None
