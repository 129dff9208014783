"""Behavior of all commands: -h, --traceback, and one-line messages for usage mistakes."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from corral.cli import mistakes
from corral.cli.output import complain
from corral.errors import CorralError, MissingPartError, show_tracebacks
from corral.extensions import missing_part
from corral.progress import without_setup_messages

__all__ = ["QUIET", "App", "Command", "Group"]


Function = TypeVar("Function", bound=Callable[..., Any])


QUIET = ("--quiet", "-q")


class App(typer.Typer):
    """A Typer application or a group of commands. Its commands are of class ``Command``."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("cls", Group)
        options.setdefault("add_completion", False)
        super().__init__(
            no_args_is_help=True,
            pretty_exceptions_enable=False,
            rich_markup_mode=None,
            context_settings={"help_option_names": ["-h", "--help"]},
            **options,
        )

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **options: Any
    ) -> Callable[[Function], Function]:
        add = super().command(name, cls=cls or Command, **options)

        def decorate(function: Function) -> Function:
            add(_without_parameters(function))
            return function

        return decorate


class Deferred(Protocol):
    """A command whose parameters are read when it is used."""

    completed: Callable[[], Callable[..., Any]]
    """Returns the command with all parameters."""


def _without_parameters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``Deferred`` with the name and help of a command.

    Reading the parameters of all commands would take a third of the time of ``corral --help``.
    """

    def command() -> None: ...

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.completed = getattr(function, "completed", lambda: function)  # type: ignore[attr-defined]
    return command


class Command(TyperCommand):
    """A command that parses its own words and suggests a correction for a usage mistake.

    This object holds only the name and help of the command; ``whole`` is the command with all
    options. They may be options of a library function, see ``corral.cli.declared``.
    """

    @functools.cached_property
    def whole(self) -> Any:
        completed = getattr(self.callback, "completed", None)
        if completed is None:
            return self
        app = App()
        try:
            command = completed()
        except ModuleNotFoundError as error:
            if (part := missing_part(error)) is None:
                raise
            message = f"this command needs {part}, which is not installed"
            raise MissingPartError(message) from None
        add = typer.Typer.command(
            app, self.name, cls=type(self), context_settings=dict(self.context_settings)
        )
        add(command)
        return typer.main.get_command(app)

    def make_context(self, *args: Any, **options: Any) -> Any:
        if self.whole is not self:
            return self.whole.make_context(*args, **options)
        return super().make_context(*args, **options)

    def get_params(self, ctx: Any) -> Any:
        return super().get_params(ctx) if self.whole is self else self.whole.get_params(ctx)

    def get_help(self, ctx: Any) -> str:
        """Return the help text, with a plain type for list arguments: <path>, not <list[Path]>."""
        listed = r"<list\[(\w+)\]>"
        # Older versions of Typer escape brackets for rich.
        text = super().get_help(ctx).replace("\\[", "[")
        return re.sub(listed, _element, text)


def _element(match: re.Match[str]) -> str:
    return f"<{match[1].lower()}>".ljust(len(match[0]))


class Group(TyperGroup):
    """A group of commands. Takes --traceback and --quiet anywhere; prints usage mistakes in one
    line."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        token = show_tracebacks.set("--traceback" in words)
        quiet = without_setup_messages() if set(words) & set(QUIET) else nullcontext()
        words = [word for word in words if word not in ("--traceback", *QUIET)]
        try:
            with quiet:
                code = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
        except (Exception, typer.Abort) as error:
            if not standalone_mode:
                raise
            sys.exit(_ended_by(error, words))
        finally:
            show_tracebacks.reset(token)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            raise CorralError(mistakes.unknown_command(ctx.command_path, args, names))
        return super().resolve_command(ctx, args)


def _ended_by(error: BaseException, words: list[str]) -> int:
    """Print the usage mistake that ended the command. Return its exit code, or raise the error."""
    if isinstance(error, typer.Abort):
        complain("stopped")
        return 1
    if isinstance(error, CorralError):
        complain(str(error))
        return 2
    if not hasattr(error, "format_message"):
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)
    else:
        complain(mistakes.usage(error, words))
    return int(getattr(error, "exit_code", 2))
