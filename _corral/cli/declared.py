"""Options of a command that copy the type, default and help of a library function's arguments.

    @declared(lambda: corral.duel)
    @reported
    def duel(players: ..., episodes: Declared = ..., seed: Declared = ...) -> None:

``Declared`` stands for the type annotation of the library function, ``...`` for its default. The
help of an option without a help text is the first sentence of the argument's entry in the
function's docstring. A parameter may override these. For example,
``Annotated[Declared, typer.Option("--on/--off")]`` sets the names of the flags. The library
function is imported when its command is used, so listing the commands imports no library function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from corral.cli.help import as_typed, documented
from corral.cli.mistakes import option_of
from corral.cli.options import whole

__all__ = ["Declared", "DeclaredNumber", "declared"]

Declared = Any
"""Type of an option that has the annotation of the library function."""

DeclaredNumber = Annotated[Any, typer.Option()]
"""The same for a number that must be written in full: 100000, not 1e5."""

Function = TypeVar("Function", bound=Callable[..., Any])


def declared(library: Callable[[], Callable[..., Any]]) -> Callable[[Function], Function]:
    """Return a decorator for a command that takes option types from the function of ``library``.

    The attribute ``completed`` of the command returns the command with all option types.
    """

    def decorate(command: Function) -> Function:
        command.completed = lambda: _completed(command, library())  # type: ignore[attr-defined]
        return command

    return decorate


def _completed(command: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with a signature that includes the library function's declarations."""
    signature = inspect.signature(command, eval_str=True)
    library_parameters, hints = inspect.signature(function).parameters, get_type_hints(function)
    docs = documented(function)
    parameters = []
    for name, parameter in signature.parameters.items():
        if _is_declared(parameter):
            default = (
                library_parameters[name].default if parameter.default is ... else parameter.default
            )
            option = _option(parameter, hints[name], default, _sentence(docs[name]))
            parameter = parameter.replace(default=default, annotation=option)
        parameters.append(parameter)

    def run(**arguments: Any) -> Any:
        return command(**arguments)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _sentence(text: str) -> str:
    """Return the first sentence of an argument's documentation, in command line spelling."""
    first = as_typed(text.replace("``", "")).partition(". ")[0]
    return first if first.endswith(".") else f"{first}."


def _is_declared(parameter: inspect.Parameter) -> bool:
    """Whether a parameter takes its type, default or help from the library function."""
    options = [
        option for option in get_args(parameter.annotation)[1:] if isinstance(option, OptionInfo)
    ]
    return parameter.annotation is Declared or any(option.help is None for option in options)


def _option(parameter: inspect.Parameter, hint: Any, default: Any, help: str) -> Any:
    """Return the annotation of an option. Its own declarations override the library function's."""
    annotated, *options = get_args(parameter.annotation) or (Declared,)
    kind = _typed(hint) if annotated is Declared else annotated
    if options:
        option = copy(options[0])
    elif kind is bool and default is False:
        option = typer.Option(option_of(parameter.name))
    else:
        option = whole(help) if kind is int else typer.Option()
    option.help = help
    return Annotated[kind | None if default is None else kind, option]


def _typed(hint: Any) -> Any:
    """Return the option type for a type hint. For a union, choose a type that text can express."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    parts = tuple(part for part in parts if part is not NoneType)
    choices = (part for part in parts if get_origin(part) is Literal)
    kinds = (kind for kind in (Path, str, bool, int, float) if kind in parts)
    return next(choices, None) or next(kinds, str)
