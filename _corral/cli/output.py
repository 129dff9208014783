"""Output that all commands share: consoles, messages of mistakes, and tables."""

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
from contextvars import ContextVar
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

from corral.errors import CorralError, TraceWarning
from corral.extensions import missing_part
from corral.progress import telling
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
    "out",
    "plain_streams",
    "print_json",
    "progress_bar",
    "reported",
    "show_replay",
    "show_table",
    "show_tracebacks",
    "show_verdicts",
    "written",
]

RESULTS = ("report.html", "results.json", "results.csv")
"""Files that evaluate and replay write."""


class Screen(Console):
    """A console to which every text is plain: no markup, no emoji, no raw control character."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)


out = Screen()
err = Screen(stderr=True)

Command = TypeVar("Command", bound=Callable[..., Any])

LARGE = 10_000_000
"""Bytes of a file from which on a bar shows how far it is read."""

LINES = 200
"""Lines of a message that are shown."""


def plain_streams() -> None:
    """Let stdout and stderr take every character: where an encoding lacks one, its nearest sign."""
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
    """Return o for ö; the escape of a sign that is no letter with an accent."""
    letter = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode("ascii")
    return letter or sign.encode("ascii", "backslashreplace").decode("ascii")


# --- Mistakes ------------------------------------------------------------------------------------

show_tracebacks = ContextVar("show_tracebacks", default=False)
"""Whether --traceback was given."""


def reported(command: Command) -> Command:
    """End the command with one message, without a traceback, at mistakes that a user can mend.

    An error that comes out of somebody else's code, such as a third-party environment's, keeps its
    traceback.
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
                complain(f"this is done by {part}, which is not installed")
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
    """Print a message of corral on stderr, of bounded length."""
    _complain(f"corral: {message}")


def _complain(text: str) -> None:
    lines = shortened(text).split("\n")
    if len(lines) > LINES:
        cut = f"... ({len(lines) - LINES:,} more lines) ..."
        lines = [*lines[: LINES // 2], cut, *lines[-LINES // 2 :]]
    err.print("\n".join(lines), soft_wrap=True)


def foreign_place(error: BaseException) -> str | None:
    """Return file and line of the innermost code in an error's traceback that is neither corral's
    nor of Python and the libraries that corral calls; None where there is none.

    The error's cause does not count: what corral raises from it says all there is to say.
    """
    place = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        module = str(frame.f_globals.get("__name__", ""))
        if not (f"{module}.".startswith(OWN) or file.startswith("<")):
            place = f"{file}:{line}"
    if isinstance(error, SyntaxError) and error.filename:  # no frame: nothing of it ran
        place = f"{error.filename}:{error.lineno}"
    return place


CALLED = (
    *("PIL", "gymnasium", "imageio_ffmpeg", "numpy", "pandas", "pettingzoo.utils", "pygame"),
    *("ray", "rich", "safetensors", "sb3_contrib", "scipy", "stable_baselines3", "supersuit"),
    *("tensorboard", "torch", "typer"),
)
OWN = ("corral.", *(f"{name}." for name in (*CALLED, *sys.stdlib_module_names)))
"""Packages whose errors may be due to what a user gave corral."""


def in_options(message: str, names: Iterable[str]) -> str:
    """A message of the library, with arguments as this command spells them: queue=-1 -> --queue."""
    for name in names:
        option = "--" + name.replace("_", "-")
        message = re.sub(rf"{option} \({name}=(True)?\)", option, message)  # says both
        message = re.sub(rf" \({name}=\)", "", message)
        message = re.sub(rf"\b{name}=True\b", option, message)
        message = re.sub(rf"\b{name}=False\b", option.replace("--", "--no-"), message)
        message = re.sub(rf"\b{name}=(?=[,;:) ]|\.(?!\.)|$)", option, message)
        message = re.sub(rf"\b{name}=", f"{option} ", message)
    return re.sub(r"\['[\w-]+'(?:, '[\w-]+')*\]", _with_commas, message)


def _with_commas(found: re.Match[str]) -> str:
    return found[0][1:-1].replace("'", "")


def last_of(episodes: int) -> str:
    """Return which of so many episodes a mean of the log is over."""
    from corral.trainers.runs.log import RECENT

    every = f"{episodes:,} episode" + "s" * (episodes != 1)
    return every if episodes <= RECENT else f"the last {RECENT} of {every}"


def print_json(values: Any) -> None:
    """Print JSON values, each on a line of its own."""
    out.print(json_text(values, 1).rstrip(), soft_wrap=True)


def show_table(table: Table) -> None:
    """Print a table as wide as it is: a terminal may wrap its lines, but no number is cut."""
    width = Measurement.get(out, out.options.update(width=10_000), table).maximum
    Screen(width=max(out.width, width)).print(table)


def show_replay(replay: Replay, options: Iterable[str] = ()) -> None:
    """Print the tables of a replay, and how it was played; settings are spelled as ``options``."""
    from corral.loads.text import describe, score_tables

    for table in score_tables(replay):
        show_table(table)
    for line in describe(replay):
        out.print(in_options(line, options), style="dim")


def show_verdicts(replay: Replay) -> None:
    """Print what each team costs beside the best rule."""
    from corral.loads.paired import verdicts

    for number, said in enumerate(verdicts(replay).values()):
        out.print(f"\n{said}" if number == 0 else said)


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on stderr; give the function that moves it: what goes on, how much of how much."""
    if not err.is_terminal:  # even a disabled bar leaves an empty line in a file, with rich 13.0
        yield lambda what, done, total: None
        return
    with _bar(MofNCompleteColumn()) as bar, telling(None):  # there is room for one bar
        task = bar.add_task("reading", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=one_line(what), completed=done, total=total)

        yield show


@contextlib.contextmanager
def reading_bar() -> Iterator[None]:
    """Show a bar on stderr while a large trace or export is read, by whatever runs inside."""
    if not err.is_terminal:
        yield
        return
    with contextlib.ExitStack() as stack:
        bars: list[Progress] = []

        def show(what: str, done: int, total: int) -> None:
            if total <= LARGE:
                return
            if not bars and done < total:
                bars.append(stack.enter_context(_bar(DownloadColumn())))
                bars[0].add_task(what, total=total)
            for bar in bars:
                bar.update(bar.task_ids[0], completed=done, total=total)
            if done >= total:  # what follows may show a bar of its own
                stack.close()
                bars.clear()

        with telling(show):
            yield


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


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """Return which results are in a folder, and what tells each from another of its name."""
    found = {name: folder / name for name in RESULTS if (folder / name).exists()}
    return {name: (p.stat().st_ino, p.stat().st_mtime_ns) for name, p in found.items()}
