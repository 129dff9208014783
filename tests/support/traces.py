"""Where tests find the public load traces, which are not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["public_traces"]


def public_traces() -> Path:
    """The folder named by CORRAL_TRACES, or shared/traces beside the repository, else a skip."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
    folder = Path(os.environ.get("CORRAL_TRACES") or beside)
    if not folder.is_dir():
        pytest.skip(f"no public traces in {folder}: set CORRAL_TRACES to their folder")
    return folder
