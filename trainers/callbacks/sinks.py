"""Sinks, the destinations of a run's rows. progress.csv and TensorBoard are two of them.

class Lines:
    def open(self, folder, config, updates): self.file = (folder / "lines.txt").open("a")
    def write(self, row, histograms): print(row, file=self.file)
    def close(self): self.file.close()

corral.train("arena_v0", sinks=[Lines()])

A package can register a sink by name with the entry-point group ``corral.sinks``:

    [project.entry-points."corral.sinks"]
    lines = "my_package:Lines"
"""

from __future__ import annotations

import collections
import csv
import importlib
import io
import itertools
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Protocol

from corral.envs.core import Array
from corral.errors import ListenerError, RunError, UnknownNameError
from corral.files import append_to, naming, read_file, reason, require_no_links, write_file
from corral.named import is_named
from corral.trainers.callbacks.protocol import made_of
from corral.trainers.runs.run import PROGRESS
from corral.trainers.runs.run_config import RunConfig

__all__ = ["CSV", "Row", "Sink", "TensorBoard", "past_rows", "sinks", "sinks_of"]

Row = dict[str, float | int | None]

GROUP = "corral.sinks"


class Sink(Protocol):
    """Receives the rows of a run, one after the other."""

    def open(self, folder: Path, config: RunConfig, updates: int) -> None:
        """Start, or continue after ``updates`` rows; later rows will be written again."""

    def write(self, row: Mapping[str, Any], histograms: Mapping[str, Array]) -> None:
        """Write a row of progress.csv: numbers by column, None for an empty cell.

        ``histograms`` has each metric's values in the episodes that ended in the update, [D].
        """

    def close(self) -> None:
        """Close the sink; called once, however training ended."""


def sinks() -> dict[str, str]:
    """Return the named sinks and the location of each."""
    builtin = {name: f"corral.trainers.callbacks.sinks:{kind.__name__}" for name, kind in OURS}
    return builtin | {point.name: point.value for point in metadata.entry_points(group=GROUP)}


def sinks_of(given: Iterable[Any]) -> dict[str, Sink]:
    """Return corral's own sinks and the ``given`` ones, by their names in error messages.

    An item is a sink, a sink class without arguments, a name in ``sinks()``, or "my_file.py:Name".
    Raises UnknownNameError, ListenerError.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ListenerError(f"sinks={given!r:.80}: pass a list, such as sinks=['my_file.py:Name']")
    sinks_by_name: dict[str, Any] = {name: kind() for name, kind in OURS}
    for item in given:
        name = item if isinstance(item, str) else type(item).__qualname__
        if isinstance(item, type):
            name = item.__qualname__
        if name in dict(OURS):
            continue  # every run has it already
        made = made_of(_named(item) if isinstance(item, str) else item, "sink", object)
        if lacking := [each for each in ("open", "write", "close") if not hasattr(made, each)]:
            raise ListenerError(f"sink {name} lacks {', '.join(lacking)}; see corral.trainers.Sink")
        while name in sinks_by_name:
            name += "'"
        sinks_by_name[name] = made
    return sinks_by_name


def _named(name: str) -> Any:
    """Return the class of a registered sink, or the name of one in a file."""
    if is_named(name):
        return name
    for point in metadata.entry_points(group=GROUP):
        if point.name == name:
            return point.load()
    raise UnknownNameError.of("sink", name, sinks())


# --- progress.csv --------------------------------------------------------------------------------

COLUMNS = (
    *("env_steps", "wall_s", "updates", "episodes", "return_team", "reward_per_step"),
    *("return_*", "return_of_*", "points_past", "length", "kpi_*", "env_steps_per_s"),
    *("warnings", "warning_*", "share_*", "*"),
)
"""The order of columns. A column belongs to its longest matching pattern, "*" matching any text.
Columns of one pattern are sorted by name, with numbers in names by value."""

MAX_BYTES = 2**27
"""Maximum size of progress.csv, about 300,000 updates."""


def in_order(columns: Iterable[str]) -> list[str]:
    """Return columns of progress.csv in their fixed order."""

    def key(name: str) -> tuple[int, list[tuple[int, str]], str]:
        fitting = [place for place in COLUMNS if fnmatchcase(name, place)]
        parts = re.findall(r"([0-9]+)|([^0-9]+)", name, flags=re.ASCII)
        by_value = [(int(number or 0), text) for number, text in parts]
        return COLUMNS.index(max(fitting, key=len)), by_value, name

    return sorted(columns, key=key)


def past_rows(path: Path, updates: int) -> Iterator[dict[str, str]]:
    """Yield the first ``updates`` rows of a run's progress.csv; none if the file is missing.

    An incomplete last line, as after a power cut, does not count. Raises RunError with the line
    number if the file is damaged, FileError for a link or a pipe.
    """
    if not updates:
        return
    try:
        data = read_file(path, MAX_BYTES, folder=path.parent)
    except FileNotFoundError:
        return
    whole = io.BytesIO(data[: data.rfind(b"\n") + 1])
    if not whole.getbuffer():
        return
    reader = csv.reader(io.TextIOWrapper(whole, encoding="utf-8", newline=""))
    try:
        header = next(reader, [])
        if "env_steps" not in header or len(set(header)) < len(header):
            raise ValueError("its columns")
        for row in itertools.islice(reader, updates):
            values = dict(zip(header, row, strict=True))
            int(float(values["env_steps"]))
            yield values
    except (ValueError, OverflowError, csv.Error) as error:
        line = max(1, reader.line_num)
        raise RunError(f"{path}, line {line} is damaged: {reason(error)}") from error


class CSV:
    """Writes progress.csv, with columns in the order of ``in_order``.

    Columns may appear later, for example with the first finished episode. Then the whole file is
    rewritten. On resuming, rows after the checkpoint are dropped, because training repeats them.
    """

    _file: IO[str] | None = None

    def open(self, folder: Path, config: RunConfig, updates: int) -> None:
        self.folder, self.path, self.updates = folder, folder / PROGRESS, updates
        self.columns = in_order(next(past_rows(self.path, updates), ()))

    def write(self, row: Mapping[str, Any], histograms: Mapping[str, Array]) -> None:
        """Append a row; it is on disk when this returns."""
        if self._file is None or set(row) - set(self.columns):
            columns = in_order({*self.columns, *row})
            self._begin(columns)
            self.columns = columns
        assert self._file is not None
        text = {name: "" if value is None else str(value) for name, value in row.items()}
        with naming(self.path):
            csv.DictWriter(self._file, self.columns, "", lineterminator="\n").writerow(text)
            self._file.flush()
        self.updates += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, columns: list[str]) -> None:
        """Rewrite all rows; an interruption leaves the old file unchanged."""
        self.close()
        table = io.StringIO()
        writer = csv.DictWriter(table, columns, "", lineterminator="\n")
        writer.writeheader()
        writer.writerows(past_rows(self.path, self.updates))
        write_file(self.path, table.getvalue(), folder=self.folder)
        self._file = append_to(self.path, folder=self.folder)


# --- TensorBoard ---------------------------------------------------------------------------------


class TensorBoard:
    """Writes TensorBoard's event files, if TensorBoard is installed."""

    _writer: Any = None

    def open(self, folder: Path, config: RunConfig, updates: int) -> None:
        """Raises FileError if the folder of the event files is a link."""
        self.folder, self._begun = folder / "tensorboard", False
        require_no_links(self.folder, folder)
        last = collections.deque(past_rows(folder / PROGRESS, updates), maxlen=1)
        self._after = int(float(last[0]["env_steps"])) if last else None

    def write(self, row: Mapping[str, Any], histograms: Mapping[str, Array]) -> None:
        if not self._begun:  # create the file with the first row
            self._writer, self._begun = _event_writer(self.folder, self._after), True
        if self._writer is None:
            return
        with naming(self.folder):
            self._add(row, histograms)

    def _add(self, row: Mapping[str, Any], histograms: Mapping[str, Array]) -> None:
        step = int(row["env_steps"] or 0)
        for name, value in row.items():
            if value is not None and name != "env_steps":
                self._writer.add_scalar(_tag(name, histograms), value, step)
        for name, values in histograms.items():
            if len(values):
                self._writer.add_histogram(f"metric/{name}", values, step)
        self._writer.flush()  # so that a kill loses no update that a checkpoint contains

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


OURS: tuple[tuple[str, type], ...] = (("csv", CSV), ("tensorboard", TensorBoard))
"""Sinks of every run, by name; the first one is required."""


def _event_writer(folder: Path, after: int | None) -> Any:
    """Return TensorBoard's writer, or None if TensorBoard is missing or the path is not UTF-8.

    ``after``: env steps of the resumed checkpoint.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        return None
    try:
        tensorboard = importlib.import_module("torch.utils.tensorboard")
    except ImportError:
        return None
    # TensorBoard reads event files by name: creation time in seconds, process id, counter. It sorts
    # counter 10 before 9, so two files of one second would be read in the wrong order and purged.
    while any(folder.glob(f"events.out.tfevents.{int(time.time())}.*.{os.getpid()}.*")):
        time.sleep(0.05)
    # Repeated events hide the events after the resumed checkpoint.
    return tensorboard.SummaryWriter(str(folder), purge_step=0 if after is None else after + 1)


def _tag(name: str, metrics: Mapping[str, Any]) -> str:
    """Return the name in TensorBoard, with its group before the slash."""
    if name == "reward_per_step":
        return f"return/{name}"
    for group in ("return", "kpi", "share", "validation"):
        if name.startswith(f"{group}_"):
            return f"{group}/{name.removeprefix(f'{group}_')}"
    if name.rpartition("_")[0] in metrics:
        return f"metric/{name}"
    return f"time/{name}" if name in TIMES else f"train/{name}"


TIMES = ("wall_s", "updates", "episodes", "env_steps_per_s", "length")
