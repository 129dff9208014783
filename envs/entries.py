"""Functions that every environment module exports: parallel_env, raw_env and env."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload

from pettingzoo import AECEnv

from corral.envs.arguments import known_arguments
from corral.envs.core import Observation
from corral.envs.shells import Ordered, ParallelShell, TurnShell, ordered

__all__ = ["Entry", "aec_entries", "parallel_entry", "plain_shell"]

P = ParamSpec("P")
EnvT = TypeVar("EnvT", covariant=True)
EntryT = TypeVar("EntryT", bound=Callable[..., Any])
AECShell: TypeAlias = "AECEnv[str, Observation, int]"


class Entry(Protocol[P, EnvT]):
    """A function that makes an environment from ``render_mode`` and the arguments of its rules.

    Type checkers report wrong arguments by name, but not next to ``render_mode=``: a ParamSpec
    cannot be extended by an argument that is passed by name (PEP 612). They accept arguments by
    position, which raise an error.
    """

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> EnvT: ...
    @overload
    def __call__(self, render_mode: str | None, /, *args: P.args, **kwargs: P.kwargs) -> EnvT: ...
    @overload
    def __call__(self, *, render_mode: str | None, **kwargs: Any) -> EnvT: ...


def parallel_entry(kind: Callable[P, Any]) -> Entry[P, ParallelShell]:
    """Return the function ``parallel_env`` for the module of an environment with these rules."""
    rules: Any = kind

    def parallel_env(render_mode: str | None = None, **kwargs: Any) -> ParallelShell:
        known_arguments(rules, kwargs)
        return ParallelShell(rules(**kwargs), render_mode, kwargs)

    doc = f"Make {rules.name} as a PettingZoo ParallelEnv; arguments as for ``{rules.__name__}``."
    return cast("Entry[P, ParallelShell]", _of_package(parallel_env, rules, doc))


def aec_entries(kind: Callable[P, Any]) -> tuple[Entry[P, AECShell], Entry[P, AECShell]]:
    """Return the functions ``raw_env`` and ``env`` for the module of an environment."""
    rules: Any = kind

    def raw_env(render_mode: str | None = None, **kwargs: Any) -> AECShell:
        known_arguments(rules, kwargs)
        return TurnShell(rules(**kwargs), render_mode, kwargs)

    def env(render_mode: str | None = None, **kwargs: Any) -> AECShell:
        return ordered(raw_env(render_mode, **kwargs))

    doc = f"Make {rules.name} as a PettingZoo AECEnv"
    raw = _of_package(raw_env, rules, f"{doc}, without the wrapper that checks the order of calls.")
    checked = _of_package(env, rules, f"{doc}; arguments as for ``{rules.__name__}``.")
    return cast("Entry[P, AECShell]", raw), cast("Entry[P, AECShell]", checked)


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
