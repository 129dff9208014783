"""Output that all commands share: consoles, messages of mistakes, and tables."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from corral.errors import CorralError, TraceWarning

if TYPE_CHECKING:
    from corral.trainers.loads.replay import Replay

__all__ = [
    "RESULTS",
    "check_new",
    "err",
    "in_options",
    "out",
    "progress_bar",
    "reported",
    "show_replay",
    "show_table",
]

RESULTS = ("report.html", "results.json", "results.csv")
"""Files that evaluate and replay write."""

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Command = TypeVar("Command", bound=Callable[..., Any])


def reported(command: Command) -> Command:
    """Mistakes that a user can mend end the command in one message, without a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("default", TraceWarning)
                result = command(*args, **kwargs)
        except (CorralError, ValueError, OSError) as error:
            message = in_options(str(error), inspect.signature(command).parameters)
            err.print(f"corral: {message}", markup=False, soft_wrap=True)
            raise typer.Exit(2) from None
        for warning in caught:
            err.print(f"corral: {warning.message}", markup=False, soft_wrap=True)
        return result

    return run  # type: ignore[return-value]


def in_options(message: str, names: Iterable[str]) -> str:
    """A message of the library, with arguments as this command spells them: queue=-1 -> --queue."""
    for name in names:
        option = "--" + name.replace("_", "-")
        message = re.sub(rf"\b{name}=(?=[,;.])", option, message)
        message = re.sub(rf"\b{name}=", f"{option} ", message)
    return message


def show_table(table: Table) -> None:
    """Print a table as wide as it is: a terminal may wrap its lines, but no number is cut."""
    width = Measurement.get(out, out.options.update(width=10_000), table).maximum
    Console(width=max(out.width, width), highlight=False).print(table)


def show_replay(replay: Replay) -> None:
    """Print the table of a replay, and how it was played."""
    from corral.trainers.loads.text import describe, score_tables

    for table in score_tables(replay):
        show_table(table)
    for line in describe(replay):
        out.print(line, style="dim")


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on stderr; give the function that moves it: what goes on, how much of how much."""
    with Progress(
        TextColumn("{task.description:22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    ) as bar:
        task = bar.add_task("reading", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield show


def check_new(
    path: Path, *, folder: bool = False, files: Iterable[str] = (), overwrite: bool = False
) -> None:
    """Raise ValueError, before any work is done, where ``path`` could not be written.

    Of a folder: where one of its ``files`` would be replaced.
    """
    if folder and path.exists() and not path.is_dir():
        raise ValueError(f"--out {path} is a file; give a folder")
    if not folder and path.is_dir():
        raise ValueError(f"--out {path} is a folder; give a file")
    for file in [path / name for name in files] if folder else [path]:
        if os.path.lexists(file) and not overwrite:
            raise ValueError(f"{file} exists; --overwrite replaces it")
    parent = path.absolute() if folder else path.absolute().parent
    while folder and not parent.exists():
        parent = parent.parent
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise ValueError(f"--out {path}: {parent} is no folder that can be written to")
