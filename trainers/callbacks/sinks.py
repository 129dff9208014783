"""Sinks: where the rows of a run go. progress.csv and TensorBoard are two of them.

class Lines:
    def open(self, folder, config, updates): self.file = (folder / "lines.txt").open("a")
    def write(self, row, histograms): print(row, file=self.file)
    def close(self): self.file.close()

corral.train("arena_v0", sinks=[Lines()])

Another package adds one by name through the entry-point group ``corral.sinks``:

    [project.entry-points."corral.sinks"]
    lines = "my_package:Lines"
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, TextIO

from corral.envs.core import Array
from corral.errors import ListenerError, UnknownNameError
from corral.files import write_file
from corral.named import is_named
from corral.trainers.callbacks.protocol import made_of
from corral.trainers.runs.run import PROGRESS
from corral.trainers.runs.run_config import RunConfig

__all__ = ["CSV", "Row", "Sink", "TensorBoard", "past_rows", "sinks", "sinks_of"]

Row = dict[str, float | int | None]

GROUP = "corral.sinks"


class Sink(Protocol):
    """Takes the rows of a run, one after the other."""

    def open(self, folder: Path, config: RunConfig, updates: int) -> None:
        """Begin, or go on after ``updates`` rows: later ones are about to come again."""

    def write(self, row: Mapping[str, Any], histograms: Mapping[str, Array]) -> None:
        """Take a row of progress.csv: numbers by column, None where there is none yet.

        ``histograms`` has each metric's values in the episodes that ended in the update, [D].
        """

    def close(self) -> None:
        """End; is called once, however training ended."""


def sinks() -> dict[str, str]:
    """Return the sinks that can be given by name, and where each is."""
    found = {name: f"corral.trainers.callbacks.sinks:{kind.__name__}" for name, kind in OURS}
    return found | {point.name: point.value for point in metadata.entry_points(group=GROUP)}


def sinks_of(given: Iterable[Any]) -> dict[str, Sink]:
    """Return corral's own sinks and those ``given``, by the name that errors call them.

    Each is one, a class of them without arguments, a name of ``sinks()``, or "my_file.py:Name".
    Raises UnknownNameError, ListenerError.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ListenerError(f"sinks={given!r:.80}: give a list, such as sinks=['my_file.py:Name']")
    found: dict[str, Any] = {name: kind() for name, kind in OURS}
    for one in given:
        name = one if isinstance(one, str) else type(one).__qualname__
        if isinstance(one, type):
            name = one.__qualname__
        if name in dict(OURS):
            continue  # it is there
        made = made_of(_named(one) if isinstance(one, str) else one, "sink", object)
        if lacking := [each for each in ("open", "write", "close") if not hasattr(made, each)]:
            raise ListenerError(
                f"sink {name} has no {', '.join(lacking)}; see corral.trainers.Sink"
            )
        while name in found:
            name += "'"
        found[name] = made
    return found


def _named(name: str) -> Any:
    """Return the class of a sink of another package, or a text that names one in a file."""
    if is_named(name):
        return name
    for point in metadata.entry_points(group=GROUP):
        if point.name == name:
            return point.load()
    raise UnknownNameError.of("sink", name, sinks())


# --- progress.csv --------------------------------------------------------------------------------


def past_rows(path: Path, updates: int) -> list[dict[str, str]]:
    """Return the first ``updates`` rows of a progress.csv; none where there is no such file."""
    if not updates or not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))[:updates]


class CSV:
    """progress.csv.

    Columns may appear later (no episode need end in the first update): the file is then written
    anew with them. On resuming, rows after the checkpoint are dropped: they are played again.
    """

    _file: TextIO | None = None

    def open(self, folder: Path, config: RunConfig, updates: int) -> None:
        self.path = folder / PROGRESS
        self.rows = past_rows(self.path, updates)
        self.columns = list(self.rows[0]) if self.rows else []

    def write(self, row: Mapping[str, Any], histograms: Mapping[str, Array]) -> None:
        """Append a row; it is on disk when this returns."""
        text = {name: "" if value is None else str(value) for name, value in row.items()}
        if self._file is None or set(row) - set(self.columns):
            self.columns = [*row, *(name for name in self.columns if name not in row)]
            self._begin()
        assert self._file is not None
        self.rows.append(text)
        csv.DictWriter(self._file, self.columns, "", lineterminator="\n").writerow(text)
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        """Write all rows again; whatever stops that leaves the file as it was."""
        if self._file is not None:
            self._file.close()
        table = io.StringIO()
        writer = csv.DictWriter(table, self.columns, "", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_file(self.path, table.getvalue())
        self._file = self.path.open("a", newline="", encoding="utf-8")


# --- TensorBoard ---------------------------------------------------------------------------------


class TensorBoard:
    """TensorBoard's event files, where it is installed."""

    _writer: Any = None

    def open(self, folder: Path, config: RunConfig, updates: int) -> None:
        self.folder, self._begun = folder / "tensorboard", False
        self._rows = past_rows(folder / PROGRESS, updates)

    def write(self, row: Mapping[str, Any], histograms: Mapping[str, Array]) -> None:
        if not self._begun:  # not before there is something to write
            self._writer, self._begun = _event_writer(self.folder, self._rows), True
        if self._writer is None:
            return
        step = int(row["env_steps"] or 0)
        for name, value in row.items():
            if value is not None and name != "env_steps":
                self._writer.add_scalar(_tag(name, histograms), value, step)
        for name, values in histograms.items():
            if len(values):
                self._writer.add_histogram(f"metric/{name}", values, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


OURS: tuple[tuple[str, type], ...] = (("csv", CSV), ("tensorboard", TensorBoard))
"""Sinks of every run, by name; the first is the one that a run cannot do without."""


def _event_writer(folder: Path, rows: Sequence[Mapping[str, str]]) -> Any:
    """Return TensorBoard's writer, or None where it is not installed."""
    try:
        tensorboard = importlib.import_module("torch.utils.tensorboard")
    except ImportError:
        return None
    # TensorBoard reads event files by name: the second of its making, the process, and a counter in
    # it, 10 before 9. The first would be read as the second, and purge what came before.
    while any(_made(file) == (int(time.time()), os.getpid()) for file in folder.glob(EVENT_FILES)):
        time.sleep(0.05)
    # Events after the checkpoint that is resumed from are hidden by their repetition.
    purge = int(float(rows[-1]["env_steps"])) + 1 if rows else 0
    return tensorboard.SummaryWriter(str(folder), purge_step=purge)


EVENT_FILES = "events.out.tfevents.*"


def _made(file: Path) -> tuple[int, int]:
    """Return second and process of events.out.tfevents.<second>.<host>.<process>.<counter>."""
    return int(file.name.split(".")[3]), int(file.name.rsplit(".", 2)[1])


def _tag(name: str, metrics: Mapping[str, Any]) -> str:
    """Return the name in TensorBoard, grouped by what stands before the slash."""
    if name == "reward_per_step":
        return f"return/{name}"
    for group in ("return", "kpi", "share", "validation"):
        if name.startswith(f"{group}_"):
            return f"{group}/{name.removeprefix(f'{group}_')}"
    if name.rpartition("_")[0] in metrics:
        return f"metric/{name}"
    return f"time/{name}" if name in TIMES else f"train/{name}"


TIMES = ("wall_s", "updates", "episodes", "env_steps_per_s", "length")
