"""Logs and JSON of operators: each kind is read with the loads that were written, cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.data import import_trace
from support.log_exports import DOCUMENTS, LOGS, START, Loads

KINDS = LOGS | DOCUMENTS


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_read_cell_by_cell(tmp_path: Path, kind: str) -> None:
    export = KINDS[kind](tmp_path, Loads.draw(minutes=9))
    trace = import_trace(export.files, **export.options).trace
    assert sorted(trace.nodes) == sorted(export.nodes)
    columns = [trace.nodes.index(node) for node in export.nodes]
    assert trace.arrivals[:, columns].tolist() == export.arrivals.tolist()
    assert trace.times[0] == START.timestamp()
    assert trace.clock == "utc"
