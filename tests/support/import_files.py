"""Files in other formats, for tests that import them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

MIDNIGHT = 1767571200  # 2026-01-05


def write(folder: Path, name: str, *rows: str, end: str = "\n") -> Path:
    path = folder / name
    path.write_text("".join(row + end for row in rows))
    return path


def clock(minute: int) -> str:
    return f"2026-01-05 {minute // 60:02d}:{minute % 60:02d}:00"


def series(
    folder: Path, name: str, counts: Sequence[object], start: int = 0, step: int = 5
) -> Path:
    """A timestamp,value file; a None count leaves the row out."""
    rows = [f"{clock(start + step * i)},{n}" for i, n in enumerate(counts) if n is not None]
    return write(folder, name, "timestamp,value", *rows)
