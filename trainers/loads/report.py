"""Write a replay down: report.html (one self-contained file), results.json, results.csv."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corral.trainers.loads.policy_picture import Picture
from corral.trainers.loads.replay import Replay
from corral.trainers.loads.scores import Score
from corral.trainers.report.page import page
from corral.trainers.report.plots import LearningCurve
from corral.trainers.report.text import counted, describe, ordered, versions

__all__ = ["LearningCurve", "counted", "describe", "ordered", "versions", "write_report"]


def write_report(
    replay: Replay,
    folder: Path,
    *,
    learning: Sequence[LearningCurve] = (),
    levels: Mapping[str, float] | None = None,
    pictures: Sequence[Picture] = (),
) -> dict[str, Path]:
    """Write the three files into ``folder`` (made if missing); their paths by name.

    Each file is written whole or not at all.

    Args:
        learning: how the runs learned; a section of the page where there are any.
        levels: returns to compare the curves with, by name (random, local, ...), in the units of
            the curves: per episode as the runs played it, not per window of the replay.
        pictures: what the teams have learned, as ``corral.trainers.loads.policy_picture`` draws it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results = json.dumps(_results(replay), indent=2, allow_nan=False, default=_plain)
    contents = {
        "report.html": page(replay, learning, levels or {}, pictures),
        "results.json": results + "\n",
        "results.csv": _table_csv(replay),
    }
    for name, text in contents.items():
        _write(folder / name, text)
    return {name: folder / name for name in contents}


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, and mappings, for JSON."""
    return dict(value) if isinstance(value, Mapping) else value.tolist()


def _write(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="", dir=path.parent, delete=False
    ) as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    os.replace(file.name, path)


def _results(replay: Replay) -> dict[str, Any]:
    return {
        "environment": "dfaas_v0",
        "trace": {"name": replay.trace.name, "digest": replay.trace.digest},
        "settings": replay.settings,
        "trace_rows": list(replay.rows),
        "window": replay.window,
        "windows": replay.windows,
        "remainder": replay.remainder,
        "optimum": {"method": replay.optimum_method, "windows": list(replay.optimum_windows)},
        "teams": {label: dataclasses.asdict(note) for label, note in replay.teams.items()},
        "versions": versions(),
        "rows": [dataclasses.asdict(score) for score in ordered(replay.scores)],
    }


def _table_csv(replay: Replay) -> str:
    names = [field.name for field in dataclasses.fields(Score)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(score) for score in ordered(replay.scores))
    return text.getvalue()
