"""The formats of ``run.export``, by name."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Any

from corral.errors import ArgumentError
from corral.files import write_folder

__all__ = ["FORMATS", "export_run"]

FORMATS = {
    "numpy": "corral.loads.export.numpy_folder:export_numpy",
    "onnx": "corral.loads.export.onnx:export_onnx",
    "weights": f"{__name__}:export_weights",
}
"""Format -> module:function(run, folder) -> paths. What it stands on is imported when asked for."""


def export_run(
    run: Any, format: str, folder: str | Path | None = None, *, overwrite: bool = False
) -> list[Path]:
    """Write a run, or a recommendation, in a format: see ``Run.export``."""
    if format not in FORMATS:
        raise ArgumentError(
            f"format={str(format)!r}: give {', '.join(map(repr, FORMATS))}; the folder comes "
            'second, as in run.export("numpy", "gateway")'
        )
    write = pkgutil.resolve_name(FORMATS[format])
    target = run.results / "export" / format if folder is None else Path(folder)
    return write_folder(target, lambda place: write(run, place), overwrite=overwrite)


def export_weights(run: Any, folder: Path) -> list[Path]:
    """Write what the library that trained a run reads."""
    return list(run._trained().export(folder))
