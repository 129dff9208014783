"""Columns as they are asked for, and what is said where that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral.data import Imported, import_table
from corral.errors import TraceError
from support.messages import refused


def imported(tmp_path: Path, text: str, **options: Any) -> Imported:
    path = tmp_path / "loads.csv"
    path.write_text(text)
    return import_table(path, **options)


def test_a_star_that_stands_for_a_space_as_well(tmp_path: Path) -> None:
    text = "time,Web 1,Web 2\n2026-01-05,1,2\n2026-01-06,1,2\n"
    assert imported(tmp_path, text, arrivals="Web*").trace.nodes == ("1", "2")


def test_a_space_that_tells_columns_apart_is_kept(tmp_path: Path) -> None:
    text = "time,Web2,Web 2\n2026-01-05,1,2\n2026-01-06,1,2\n"
    with refused(TraceError, "loads.csv", "' 2'"):
        imported(tmp_path, text, arrivals="Web*")


@pytest.mark.parametrize("role", ["time", "node", "arrivals", "capacity", "zone"])
def test_a_renamed_column_that_is_missing(tmp_path: Path, role: str) -> None:
    text = "time,a,b\n2026-01-05,1,2\n2026-01-06,1,2\n"
    with refused(TraceError, f"rename={role}=x", "'x'", "time, a, b"):
        imported(tmp_path, text, rename=f"{role}=x")


def test_a_wide_table_whose_times_repeat_is_asked_for_its_zone(tmp_path: Path) -> None:
    hours = [0, 1, 2, 2, 3, 4]
    rows = "".join(f"2025-10-26 {hour:02}:00,1,2\n" for hour in hours)
    with pytest.raises(TraceError, match="zone=Europe/Rome") as caught:
        imported(tmp_path, "time,a,b\n" + rows)
    assert "node_column" not in str(caught.value)
    assert "one_node" not in str(caught.value)
    assert len(imported(tmp_path, "time,a,b\n" + rows, zone="Europe/Rome").trace) == 6
