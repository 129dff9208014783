"""List the runs in folders, without importing their environments or trainers."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from corral.errors import CheckpointError, RunError
from corral.trainers.callbacks.sinks import past_rows
from corral.trainers.runs.checkpoint import named_checkpoint
from corral.trainers.runs.checkpoint_format import document
from corral.trainers.runs.folders import is_locked
from corral.trainers.runs.run import CHECKPOINTS, PROGRESS
from corral.trainers.runs.run_config import CONFIG, DAMAGE, config_values

__all__ = ["RunSummary", "list_runs"]


@dataclass(frozen=True)
class RunSummary:
    """A run as its files describe it. Values are None if they are missing or damaged."""

    folder: Path
    modified: datetime
    """Time of the last update, or of the start."""
    training: bool = False
    """Whether a process is training the run."""
    env: str | None = None
    trainer: str | None = None
    seed: int | None = None
    env_steps: int | None = None
    steps: int | None = None
    """Planned env steps."""
    return_team: float | None = None
    """Sum of all agents' returns, mean of the last 100 episodes."""
    best: float | None = None
    """Return, validation or share of points by which RUN@best was selected."""
    fault: str | None = None
    """Why config.json or progress.csv cannot be read."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; the time is ISO 8601 in UTC."""
        modified = self.modified.isoformat(timespec="seconds")
        return {**vars(self), "folder": str(self.folder), "modified": modified}


def list_runs(folders: Iterable[str | Path] = ("runs",)) -> list[RunSummary]:
    """Return the runs in ``folders`` and below, the latest first.

    A folder may be a run itself. Links are not followed. Raises FileNotFoundError for a missing
    folder.
    """
    places = {place: None for folder in folders for place in _places(Path(folder))}
    return sorted(map(_summary, places), key=lambda run: run.modified, reverse=True)


def _places(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; name one that contains runs")
    for place, below, files in os.walk(folder):
        below.sort()
        if CONFIG in files:
            below.clear()  # a run has no runs inside
            yield Path(place)


def _summary(folder: Path) -> RunSummary:
    progress = folder / PROGRESS
    written = progress if progress.is_file() else folder / CONFIG
    modified = datetime.fromtimestamp(written.stat().st_mtime, UTC)
    fields: dict[str, Any] = {}
    try:
        values = config_values(folder)
        for name, kind in (("env", str), ("trainer", str), ("seed", int), ("steps", int)):
            fields[name] = values[name] if isinstance(values.get(name), kind) else None
        final = deque(past_rows(progress, 2**31), maxlen=1)
        if final:
            fields["env_steps"] = int(float(final[0]["env_steps"]))
            fields["return_team"] = _number(final[0].get("return_team"))
    except (RunError, OSError, ValueError, OverflowError) as error:
        fields["fault"] = str(error)
    with contextlib.suppress(CheckpointError, OSError, *DAMAGE):
        checkpoint = named_checkpoint(folder / CHECKPOINTS, "best")
        fields["best"] = _number(document(checkpoint, "progress")["best_by"]["value"])
    with contextlib.suppress(OSError):
        fields["training"] = is_locked(folder)
    return RunSummary(folder, modified, **fields)


def _number(value: Any) -> float | None:
    return None if value in (None, "") else float(value)
