"""The modules of benchmarks/ can be imported by their names, as in the scripts themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (BENCHMARKS / "core", BENCHMARKS / "loads", BENCHMARKS):
        monkeypatch.syspath_prepend(str(folder))
