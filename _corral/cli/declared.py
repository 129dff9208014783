"""Options of a command that a library function declares: their types, defaults and words are its.

    @declared(lambda: corral.duel)
    @reported
    def duel(players: ..., episodes: Declared = ..., seed: Declared = ...) -> None:

``Declared`` stands for the type that the function annotates, ``...`` for its default, and where an
option says no help, it is the first sentence that the function's docstring has of that argument.
Whatever else a parameter says of itself holds: ``Annotated[Declared, typer.Option("--on/--off")]``
names its own flags. The function is imported when the command is used: the list of all commands
imports none.
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
"""The type of an option that the library function annotates."""

DeclaredNumber = Annotated[Any, typer.Option()]
"""The same, of numbers that are typed in full: no 1e5 for a whole one."""

Function = TypeVar("Function", bound=Callable[..., Any])


def declared(library: Callable[[], Callable[..., Any]]) -> Callable[[Function], Function]:
    """Return a decorator for a command that leaves things to the function that ``library`` gives.

    Until the command is used its signature has the other parameters alone; ``completed`` of it
    gives the whole.
    """

    def decorate(command: Function) -> Function:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if not _is_declared(each)]
        command.completed = lambda: _completed(command, signature, library())  # type: ignore[attr-defined]
        command.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        return command

    return decorate


def _completed(
    command: Callable[..., Any], signature: inspect.Signature, function: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a command whose signature says all that it leaves to the library function."""
    theirs, hints = inspect.signature(function).parameters, get_type_hints(function)
    words = documented(function)
    parameters = []
    for name, own in signature.parameters.items():
        if _is_declared(own):
            default = theirs[name].default if own.default is ... else own.default
            option = _option(own, hints[name], default, _sentence(words[name]))
            own = own.replace(default=default, annotation=option)
        parameters.append(own)

    def run(**given: Any) -> Any:
        return command(**given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _sentence(words: str) -> str:
    """Return the first sentence of what is said of an argument, as the command line has it."""
    first = as_typed(words.replace("``", "")).partition(". ")[0]
    return first if first.endswith(".") else f"{first}."


def _is_declared(own: inspect.Parameter) -> bool:
    """Whether a parameter leaves its type, its default or its help to the library."""
    said = [each for each in get_args(own.annotation)[1:] if isinstance(each, OptionInfo)]
    return own.annotation is Declared or any(each.help is None for each in said)


def _option(own: inspect.Parameter, hint: Any, default: Any, help: str) -> Any:
    """Return the annotation of an option: what it says itself, else what is declared."""
    stated, *options = get_args(own.annotation) or (Declared,)
    kind = _typed(hint) if stated is Declared else stated
    if options:
        option = copy(options[0])
    elif kind is bool and default is False:
        option = typer.Option(option_of(own.name))
    else:
        option = whole(help) if kind is int else typer.Option()
    option.help = help
    return Annotated[kind | None if default is None else kind, option]


def _typed(hint: Any) -> Any:
    """Return what is typed for an argument: of several types the one that words can give."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    parts = tuple(part for part in parts if part is not NoneType)
    choices = (part for part in parts if get_origin(part) is Literal)
    kinds = (kind for kind in (Path, str, bool, int, float) if kind in parts)
    return next(choices, None) or next(kinds, str)
