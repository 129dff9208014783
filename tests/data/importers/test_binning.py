"""What all importers share: options, alignment, and limits."""

from __future__ import annotations

import pytest

from corral.data import (
    import_access_log,
    import_azure_functions,
    import_requests,
    import_series,
)
from corral.data.importers import binning
from corral.data.importers.binning import Counted
from corral.data.source import MAX_NODES
from corral.errors import TraceError
from support.import_files import series, write


def test_absurd_spans_are_refused_before_memory_fills(tmp_path):
    rows = ["t,v", "0001-01-01,1", "0001-01-01T00:00:01,1", "0001-01-01T00:00:02,1", "9999-01-01,1"]
    path = write(tmp_path, "a.csv", *rows)
    with pytest.raises(TraceError, match="look for a wrong time"):
        import_series(path, gaps="zero")
    with pytest.raises(TraceError, match="look for a wrong time"):
        import_requests(path, step=1)


def test_nodes_that_cannot_be_aligned_are_refused(tmp_path):
    a = series(tmp_path, "a.csv", [1, 2, 3])
    far = series(tmp_path, "far.csv", [1, 2, 3], start=600)
    off = series(tmp_path, "off.csv", [1, 2, 3], start=2)
    with pytest.raises(TraceError, match="no time in common"):
        import_series([a, far])
    with pytest.raises(TraceError, match="'a' do not begin at 2026-01-05T00:02:00Z"):
        import_series([a, off])


def test_options_out_of_range(tmp_path):
    path = series(tmp_path, "a.csv", [1, 2])
    (tmp_path / "b").mkdir()
    twin = series(tmp_path / "b", "a.csv", [1, 2])
    for call, message in (
        (lambda: import_series([]), "no files"),
        (lambda: import_series(path, gaps="guess"), "gaps='guess' must be"),
        (lambda: import_series(path, step=0), "step=0 must be"),
        (lambda: import_series(path, step=1.5), "step=1.5 must be"),
        (lambda: import_series([path, twin]), "called 'a': give names="),
        (lambda: import_series([path], names=["a", "b"]), "must be 1 names"),
        (lambda: import_series([path], names=[" a"]), "space around"),
        (lambda: import_requests(path, step=5, names=["a"], node_column="v"), "not both"),
        (lambda: import_access_log(path, step=5, max_malformed=2), "max_malformed=2 must be"),
        (lambda: import_azure_functions(path, nodes=0), "nodes=0 must be"),
        (lambda: import_azure_functions(path, nodes=2, by="owner"), "by='owner' must be"),
        (lambda: import_azure_functions(path, nodes=2, start="x"), "start='x' must be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_nodes_and_steps_are_bounded(monkeypatch):
    counted = Counted(60)
    for node in range(MAX_NODES):
        counted.add(f"n{node}", 7)
    with pytest.raises(TraceError, match="more than 10,000 nodes, the last 'one'"):
        counted.add("one", 7)
    monkeypatch.setattr(binning, "MAX_COUNTS", 3)
    counted = Counted(60)
    for second in (0, 1, 60, 120):
        counted.add("a", second)
    with pytest.raises(TraceError, match="more than 3 steps: choose a larger step"):
        counted.add("a", 180)
