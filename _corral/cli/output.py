"""Output of all commands: consoles, error messages, tables and progress bars."""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import os
import re
import sys
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from corral.errors import CorralError, TraceWarning, foreign_place, show_tracebacks
from corral.extensions import missing_part
from corral.progress import LogLines, is_quiet, progress_to
from corral.results import json_text
from corral.text import one_line, shortened, visible

if TYPE_CHECKING:
    from corral.loads.replay import Replay

__all__ = [
    "RESULTS",
    "check_new",
    "complain",
    "err",
    "in_options",
    "last_of",
    "log_progress",
    "out",
    "plain_streams",
    "print_json",
    "progress_bar",
    "reported",
    "show_replay",
    "show_table",
    "show_verdicts",
    "written",
]

RESULTS = ("report.html", "results.json", "results.csv")
"""Files that corral evaluate and corral replay write."""


class Screen(Console):
    """A console that prints text literally: no markup, no emoji, no raw control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        self._forced = bool(options.get("force_terminal"))

    @property
    def can_animate(self) -> bool:
        """Whether it can show a moving bar. ``is_terminal`` is also true for a log or a notebook's
        cell with FORCE_COLOR, which then has colors."""
        return self.is_terminal and (self._forced or self.file.isatty())

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)


out = Screen()
err = Screen(stderr=True)

Command = TypeVar("Command", bound=Callable[..., Any])

LARGE = 10_000_000
"""File size in bytes from which a progress bar is shown during reading."""

LINES = 200
"""Maximum number of lines of a message."""


def plain_streams() -> None:
    """Make stdout and stderr accept every character; replace one that the encoding lacks."""
    codecs.register_error("corral", _substitute)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="corral")


SUBSTITUTES = {"…": "...", "•": "*", "–": "-", "—": "-", "’": "'", "×": "x", "≥": ">=", "≤": "<="}
SUBSTITUTES |= dict(zip("▁▂▃▄▅▆▇█", ".:-=+*#@", strict=True))
SUBSTITUTES |= dict.fromkeys("─━", "-") | dict.fromkeys("│┃", "|")


def _substitute(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(SUBSTITUTES.get(sign) or _in_ascii(sign) for sign in signs), error.end


def _in_ascii(sign: str) -> str:
    """Return the base letter of an accented letter (o for ö); escape any other character."""
    letter = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode("ascii")
    return letter or sign.encode("ascii", "backslashreplace").decode("ascii")


# --- Error messages ------------------------------------------------------------------------------


def reported(command: Command) -> Command:
    """Print an error that the user can fix as one message without a traceback, and exit.

    An error raised in third-party code, such as an environment, keeps its traceback.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with warnings.catch_warnings(record=True) as caught, reading_bar():
                warnings.simplefilter("default", TraceWarning)
                result = command(*args, **kwargs)
        except Exception as error:
            place = foreign_place(error)
            if isinstance(error, ModuleNotFoundError) and (part := missing_part(error)):
                complain(f"this command needs {part}, which is not installed")
                raise typer.Exit(2) from None
            mistake = isinstance(error, CorralError | ValueError | OSError)
            if isinstance(error, typer.Exit | typer.Abort) or not (mistake or place):
                raise
            if place or show_tracebacks.get():
                _complain("".join(traceback.format_exception(error)).rstrip())
            message = in_options(str(error), kwargs)
            if place:
                message = f"{type(error).__name__} in {place}: {message}"
            complain(message)
            raise typer.Exit(1 if place else 2) from None
        for warning in caught:
            complain(str(warning.message))
        return result

    return run  # type: ignore[return-value]


def complain(message: str) -> None:
    """Print a message with the prefix "corral:" on stderr, of limited length."""
    _complain(f"corral: {message}")


def _complain(text: str) -> None:
    lines = shortened(text).split("\n")
    if len(lines) > LINES:
        cut = f"... ({len(lines) - LINES:,} more lines) ..."
        lines = [*lines[: LINES // 2], cut, *lines[-LINES // 2 :]]
    err.print("\n".join(lines), soft_wrap=True)


RULE = r"[\d.]+(?:[+,]margin=[\d.]+)?/[a-z]"
"""Text after the "=" in the name of a rule, such as capacity=1/equal; not an option."""


def in_options(message: str, names: Iterable[str]) -> str:
    """Replace arguments of the library in a message by options: queue=-1 by --queue -1."""
    for name in names:
        option = "--" + name.replace("_", "-")
        message = re.sub(rf"{option} \({name}=(True)?\)", option, message)  # the message names both
        message = re.sub(rf" \({name}=\)", "", message)
        message = re.sub(rf"\b{name}=True\b", option, message)
        message = re.sub(rf"\b{name}=False\b", option.replace("--", "--no-"), message)
        message = re.sub(rf"\b{name}=(?=[,;:) ]|\.(?!\.)|$)", option, message)
        message = re.sub(rf"\b{name}=(?!{RULE})", f"{option} ", message)
    return re.sub(r"\['[\w-]+'(?:, '[\w-]+')*\]", _with_commas, message)


def _with_commas(match: re.Match[str]) -> str:
    return match[0][1:-1].replace("'", "")


def last_of(episodes: int) -> str:
    """Return which episodes a mean in the log covers, in words."""
    from corral.trainers.runs.log import RECENT

    count = f"{episodes:,} episode" + "s" * (episodes != 1)
    return count if episodes <= RECENT else f"the last {RECENT} of {count}"


def print_json(values: Any) -> None:
    """Print values as indented JSON."""
    out.print(json_text(values, 1).rstrip(), soft_wrap=True)


def show_table(table: Table) -> None:
    """Print a table at its full width. The terminal may wrap lines, but no number is cut."""
    width = Measurement.get(out, out.options.update(width=10_000), table).maximum
    Screen(width=max(out.width, width)).print(table)


def show_replay(replay: Replay, options: Iterable[str] = ()) -> None:
    """Print a replay's tables and how it was played, with settings spelled as ``options``."""
    from corral.loads.text import describe, score_tables

    for table in score_tables(replay):
        show_table(table)
    for line in describe(replay):
        out.print(in_options(line, options), style="dim")


def show_verdicts(replay: Replay) -> None:
    """Print each team's cost compared with the best rule."""
    from corral.loads.paired import verdicts

    for number, sentence in enumerate(verdicts(replay).values()):
        out.print(f"\n{sentence}" if number == 0 else sentence)


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on stderr. Yield the function that updates it: label, amount done, total.

    In a log, prints lines with the remaining time; with --quiet, nothing.
    """
    if is_quiet():
        yield lambda label, done, total: None
        return
    if not err.can_animate:
        with progress_to(None):
            yield LogLines(_log)
        return
    with _bar(MofNCompleteColumn()) as bar, progress_to(None):  # only one bar is shown at a time
        task = bar.add_task("reading", total=None)

        def show(label: str, done: int, total: int) -> None:
            bar.update(task, description=one_line(label), completed=done, total=total)

        yield show


def log_progress() -> Callable[[str, int, int], None]:
    """Return a function that prints lines with the remaining time in a log: label, amount done,
    total. In a terminal, and with --quiet, it prints nothing."""
    silent = is_quiet() or err.can_animate
    return (lambda label, done, total: None) if silent else LogLines(_log)


@contextlib.contextmanager
def reading_bar() -> Iterator[None]:
    """Show a bar on stderr while code in this block reads a large trace or export.

    In a log, prints lines with the remaining time of every long task; with --quiet, nothing.
    """
    if is_quiet() or not err.can_animate:
        with progress_to(None if is_quiet() else LogLines(_log)):
            yield
        return
    with contextlib.ExitStack() as stack:
        bars: list[Progress] = []

        def show(label: str, done: int, total: int) -> None:
            if total <= LARGE:
                return
            if not bars and done < total:
                bars.append(stack.enter_context(_bar(DownloadColumn())))
                bars[0].add_task(label, total=total)
            for bar in bars:
                bar.update(bar.task_ids[0], completed=done, total=total)
            if done >= total:  # the code that follows may show another bar
                stack.close()
                bars.clear()

        with progress_to(show):
            yield


def _log(line: str) -> None:
    err.print(one_line(line), soft_wrap=True)


def _bar(amount: ProgressColumn) -> Progress:
    return Progress(
        TextColumn("{task.description:22}", markup=False),
        BarColumn(),
        amount,
        TimeRemainingColumn(),
        console=err,
        transient=True,
    )


def check_new(
    path: Path,
    *,
    folder: bool = False,
    files: Iterable[str] = (),
    overwrite: bool = False,
    option: str = "--out",
) -> None:
    """Raise ValueError if ``path``, the value of ``option``, cannot be written.

    Call it before any work is done. For a folder, also raise if one of its ``files`` exists and
    ``overwrite`` is False.
    """
    if folder and path.exists() and not path.is_dir():
        raise ValueError(f"{option} {path} is a file; name a folder")
    if not folder and path.is_dir():
        raise ValueError(f"{option} {path} is a folder; name a file")
    for file in [path / name for name in files] if folder else [path]:
        if os.path.lexists(file) and not overwrite:
            raise ValueError(f"{file} already exists; pass --overwrite to replace it")
    parent = path.absolute() if folder else path.absolute().parent
    while folder and not parent.exists():
        parent = parent.parent
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise ValueError(f"{option} {path}: {parent} is not a writable folder")


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """Return each result file in a folder with its inode and time, which identify the version."""
    paths = {name: folder / name for name in RESULTS if (folder / name).exists()}
    return {name: (path.stat().st_ino, path.stat().st_mtime_ns) for name, path in paths.items()}
