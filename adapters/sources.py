"""Resolve an environment argument to rules: a name, a module, a function, or an environment.

    rules = rules_of("classic/connect_four-v3")
    rules = rules_of(my_package.make_game, {"size": 5})
    rules = rules_of(corral.make("dfaas_v0", trace="edge3"))

An environment of corral resolves to its array code, all other environments to ``zoo_rules``. An
environment of corral in a wrapper also resolves to ``zoo_rules``, as the wrapper may change it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, overload

from pettingzoo import AECEnv, ParallelEnv

from corral.envs.arguments import require_known_arguments
from corral.envs.batch import batch_for
from corral.envs.core import Rules, third_party
from corral.envs.entries import plain_shell
from corral.envs.registry import (
    REGISTERED,
    Api,
    NamedEnv,
    env_spec,
    make_rules,
    registered_name,
    rules_class,
)

if TYPE_CHECKING:
    from corral.envs import argument_types as types

__all__ = ["EnvLike", "EnvSource", "make_batch", "resolve", "rules_of", "rules_with"]

EnvLike: TypeAlias = str | ModuleType | Callable[..., Any] | AECEnv | ParallelEnv | Rules[Any]
"""A name (see ``corral.envs.registry``), a module, a class or function that makes an environment,
an environment (PettingZoo, Gymnasium, or RLlib's MultiAgentEnv), or rules."""


@dataclass(frozen=True)
class EnvSource:
    """A resolved environment: a registered name with arguments, or rules."""

    name: str
    env_kwargs: dict[str, Any]
    rules: Rules[Any] | None = None  # None: the registry makes them from name and env_kwargs
    text: str | None = None  # the name of a third-party environment, if it has one
    api: Api | None = None


def rules_of(
    env: EnvLike, env_kwargs: Mapping[str, Any] | None = None, *, api: Api | None = None
) -> Rules[Any]:
    """Return the rules of ``env`` with the arguments ``env_kwargs``.

    Raises the errors of ``resolve``.
    """
    source = resolve(env, env_kwargs, api=api)
    return source.rules or make_rules(source.name, **source.env_kwargs)


def rules_with(
    function: Callable[..., Any], env: EnvLike, env_kwargs: Mapping[str, Any]
) -> Rules[Any]:
    """Return ``rules_of(env, env_kwargs)`` for the ``env_kwargs`` of a call of ``function``.

    Raises TypeError for an argument that is unknown to both the function and the environment. The
    hint may name an argument of the function.
    """
    name = registered_name(env) if isinstance(env, str) else None
    if name is not None:
        require_known_arguments(function, rules_class(name), env_kwargs)
    return rules_of(env, env_kwargs)


@overload
def make_batch(
    env: types.Arena, num_envs: int = 64, seed: int | None = None, **kw: Unpack[types.ArenaArgs]
) -> Any: ...


@overload
def make_batch(
    env: types.Dfaas, num_envs: int = 64, seed: int | None = None, **kw: Unpack[types.DfaasArgs]
) -> Any: ...


@overload
def make_batch(
    env: types.Rps, num_envs: int = 64, seed: int | None = None, **kw: Unpack[types.RpsArgs]
) -> Any: ...


@overload
def make_batch(
    env: types.TicTacToe,
    num_envs: int = 64,
    seed: int | None = None,
    **kw: Unpack[types.TicTacToeArgs],
) -> Any: ...


@overload
def make_batch(
    env: types.Tiles, num_envs: int = 64, seed: int | None = None, **kw: Unpack[types.TilesArgs]
) -> Any: ...


@overload
def make_batch(
    env: types.TwoStep,
    num_envs: int = 64,
    seed: int | None = None,
    **kw: Unpack[types.TwoStepArgs],
) -> Any: ...


@overload
def make_batch(
    env: types.Name, num_envs: int = 64, seed: int | None = None, **kw: Unpack[types.CommonArgs]
) -> Any: ...


@overload
def make_batch(
    env: types.Name, num_envs: int = 64, seed: int | None = None, **kw: types.Untyped
) -> Any: ...


@overload
def make_batch(
    env: types.Name, num_envs: int = 64, seed: int | None = None, **kw: Any
) -> types.WrongArgument: ...


@overload
def make_batch(env: EnvLike, num_envs: int = 64, seed: int | None = None, **kwargs: Any) -> Any: ...


def make_batch(env: EnvLike, num_envs: int = 64, seed: int | None = None, **env_kwargs: Any) -> Any:
    """Return ``num_envs`` vectorized copies: a Batch, or a ZooBatch for third-party environments.

    ``env_kwargs`` are the arguments of the environment. Raises the errors of ``resolve``.
    """
    return batch_for(rules_of(env, env_kwargs), num_envs, seed)


def resolve(
    env: EnvLike, env_kwargs: Mapping[str, Any] | None = None, *, api: Api | None = None
) -> EnvSource:
    """Return the source that ``env`` stands for.

    Copies of an environment object are made by ``copy.deepcopy``. The object itself is not changed.

    Args:
        env: see ``EnvLike``.
        env_kwargs: arguments of the environment, for a name, a module or a function.
        api: "parallel" or "aec", for an id or a module that has both.

    Raises UnknownNameError for an unknown name, TypeError for an object that is not an environment,
    and ValueError for arguments of an existing environment.
    """
    kwargs = dict(env_kwargs or {})
    if isinstance(env, ModuleType):
        env = env.__name__.removeprefix("corral.envs.")
        env = env if registered_name(env) else f"{env}:"
    if isinstance(env, str):
        return _of_text(env, kwargs, api)
    if api is not None:
        raise ValueError(f"api={api!r} is for names and modules; omit it for {env!r}")
    if not isinstance(env, AECEnv | ParallelEnv) and callable(env):
        return _of_function(env, kwargs)
    from corral.envs.others.convert import (  # imported late: corral's own games do not need it
        as_pettingzoo,
        is_foreign,
    )

    if is_foreign(env):
        return _of_object(as_pettingzoo(env, kwargs))
    if kwargs:
        raise ValueError(f"env_kwargs={kwargs}: {env!r} already exists; pass its name or function")
    if isinstance(env, AECEnv | ParallelEnv):
        return _of_object(env)
    if third_party(env):  # made by ``zoo_rules``
        rules: Any = env
        return EnvSource(rules.name, {}, rules, _text_of(rules.make_env))
    if not hasattr(env, "observe"):
        raise TypeError(_no_environment(env))
    return EnvSource(env.name, {}, env)


def _no_environment(env: Any) -> str:
    """Return the error message for an object that is not a multi-agent environment."""
    if hasattr(env, "num_envs"):
        return (
            f"{env!r} of type {type(env).__name__} is already vectorized; pass the environment "
            "itself, its name or a function that makes it, and num_envs="
        )
    if callable(getattr(env, "step", None)):
        return (
            f"{env!r} is not a known type of environment; derive {type(env).__name__} from "
            "corral.adapters.MultiAgentEnv (as in RLlib), pettingzoo.ParallelEnv or gymnasium.Env"
        )
    return (
        f"{env!r} of type {type(env).__name__} is not an environment; pass a name, a module, a "
        "class or function that makes an environment, or an environment"
    )


def _of_text(text: str, kwargs: dict[str, Any], api: Api | None) -> EnvSource:
    if registered_name(text) is None and NamedEnv.is_one(text):
        return _of_maker(NamedEnv(text, kwargs, api), kwargs, text, api)
    spec = env_spec(text)
    if api is not None:
        raise ValueError(
            f"api={api!r}: {spec.name} runs as array code, which supports both; use api= only with "
            "corral.make and with third-party environments"
        )
    return EnvSource(spec.name, kwargs)


def _of_function(make: Callable[..., Any], kwargs: dict[str, Any]) -> EnvSource:
    from corral.envs.others.convert import EnvFactory  # imported late, as above

    return _of_maker(EnvFactory(make, kwargs), kwargs, _text_of(make))


def _of_maker(
    make: Callable[[], Any], kwargs: dict[str, Any], text: str | None, api: Api | None = None
) -> EnvSource:
    example = make()
    if (plain := _unwrapped(example)) is not None:
        return plain
    if hasattr(example, "close"):
        example.close()
    return replace(_of_third_party(make), env_kwargs=kwargs, text=text, api=api)


def _of_object(env: Any) -> EnvSource:
    return _unwrapped(env) or _of_third_party(_CopyOf(env))


def _of_third_party(make: Callable[[], Any]) -> EnvSource:
    from corral.adapters.zoo.batch import zoo_rules  # late: corral's games do not need it

    rules: Any = zoo_rules(make)
    return EnvSource(rules.name, {}, rules)


def _unwrapped(env: Any) -> EnvSource | None:
    """Return the source of an unwrapped environment of corral; None for all other environments."""
    shell = plain_shell(env)
    if shell is None:
        return None
    if shell.env_kwargs is None or shell.rules.name not in REGISTERED:
        return EnvSource(shell.rules.name, {}, shell.rules)
    kwargs = dict(shell.env_kwargs)
    if shell.max_cycles != make_rules(shell.rules.name, **kwargs).max_cycles:  # set from outside
        kwargs["max_cycles"] = shell.max_cycles
    return EnvSource(shell.rules.name, kwargs)


@dataclass(frozen=True)
class _CopyOf:
    """Makes copies of an environment. Raises TypeError if it cannot be copied."""

    env: Any = field(repr=False)

    def __call__(self) -> Any:
        try:
            return copy.deepcopy(self.env)
        except Exception as error:
            raise TypeError(
                f"{self.env} cannot be copied ({type(error).__name__}: {error}); pass a function "
                "that makes it"
            ) from error


def _text_of(make: Callable[..., Any]) -> str | None:
    """Return "module:function" if it finds ``make`` in any process, else None."""
    module, path = getattr(make, "__module__", ""), getattr(make, "__qualname__", "")
    target: Any = sys.modules.get(module)
    for part in path.split("."):
        target = getattr(target, part, None)
    return f"{module}:{path}" if target is make and module != "__main__" else None
