"""The formats of ``run.export``, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import corral
from corral.errors import ArgumentError
from corral.files import require_no_links, write_file, write_folder
from corral.loads.export.manifest import MANIFEST, encode_manifest

__all__ = ["FORMATS", "export_run"]

FORMATS = ("numpy", "onnx", "weights")

Write = Callable[[Any, Path], list[Path]]
"""Writes a run into a folder, and returns the files."""


def export_run(
    run: Any, format: str, folder: str | Path | None = None, *, overwrite: bool = False
) -> list[Path]:
    """Write a run, or a recommendation, in a format, with a manifest of the files: see
    ``Run.export``."""
    if format not in FORMATS:
        raise ArgumentError(
            f"format={str(format)!r}: pass {', '.join(map(repr, FORMATS))}; the folder is the "
            'second argument, as in run.export("numpy", "gateway")'
        )
    write = _writer(format)
    target = run.results / "export" / format if folder is None else Path(folder)
    if folder is None:
        require_no_links(target, run.results)

    def write_all(place: Path) -> list[Path]:
        paths: list[Path] = write(run, place)
        files = {path.relative_to(place).as_posix(): path.read_bytes() for path in paths}
        data = encode_manifest(files, corral.__version__)
        return [*paths, write_file(place / MANIFEST, data)]

    return write_folder(target, write_all, overwrite=overwrite)


def _writer(format: str) -> Write:
    """Return the writer of a format, and import its dependencies."""
    if format == "numpy":
        from corral.loads.export.numpy_folder import export_numpy

        return export_numpy
    if format == "onnx":
        from corral.loads.export.onnx import export_onnx

        return export_onnx
    return export_weights


def export_weights(run: Any, folder: Path) -> list[Path]:
    """Write the files that the library of the run's trainer reads."""
    return list(run._trained().export(folder))
