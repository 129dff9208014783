"""What all importers share: options, alignment, and limits."""

from __future__ import annotations

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
from support.messages import refused


def test_absurd_spans_are_refused_before_memory_fills(tmp_path):
    rows = ["t,v", "0001-01-01,1", "0001-01-01T00:00:01,1", "0001-01-01T00:00:02,1", "9999-01-01,1"]
    path = write(tmp_path, "a.csv", *rows)
    with refused(
        TraceError, "a.csv", "0001-01-01T00:00:02Z", "9999-01-01T00:00:00Z", "3,651,693 days"
    ):
        import_series(path, gaps="zero")
    with refused(TraceError, "0001-01-01T00:00:02Z", "9999-01-01T00:00:00Z", "3,651,693 days"):
        import_requests(path, step=1)


def test_nodes_that_cannot_be_aligned_are_refused(tmp_path):
    a = series(tmp_path, "a.csv", [1, 2, 3])
    far = series(tmp_path, "far.csv", [1, 2, 3], start=600)
    off = series(tmp_path, "off.csv", [1, 2, 3], start=2)
    with refused(TraceError, "2026-01-05T00:15:00Z", "far: 2026-01-05T10:00:00Z"):
        import_series([a, far])
    with refused(TraceError, "'a'", "2026-01-05T00:02:00Z"):
        import_series([a, off])


def test_options_out_of_range(tmp_path):
    path = series(tmp_path, "a.csv", [1, 2])
    (tmp_path / "b").mkdir()
    twin = series(tmp_path / "b", "a.csv", [1, 2])
    for call, values in (
        (lambda: import_series([]), ("path",)),
        (
            lambda: import_series(path, gaps="guess"),
            ("gaps='guess'", "refuse", "zero", "previous", "interpolate"),
        ),
        (lambda: import_series(path, step=0), ("step=0",)),
        (lambda: import_series(path, step=1.5), ("step=1.5",)),
        (lambda: import_series([path, twin]), ("'a'", "names=")),
        (lambda: import_series([path], names=["a", "b"]), ("names=['a', 'b']", 1)),
        (lambda: import_series([path], names=[" a"]), ("' a'",)),
        (
            lambda: import_requests(path, step=5, names=["a"], node_column="v"),
            ("names=", "node_column="),
        ),
        (lambda: import_access_log(path, step=5, max_malformed=2), ("max_malformed=2",)),
        (lambda: import_azure_functions(path, nodes=0), ("nodes=0", "1 to 10,000")),
        (
            lambda: import_azure_functions(path, nodes=2, by="owner"),
            ("by='owner'", "app", "function"),
        ),
        (lambda: import_azure_functions(path, nodes=2, start="x"), ("start='x'", "ISO-8601")),
    ):
        with refused(ValueError, *values):
            call()


def test_nodes_and_steps_are_bounded(monkeypatch):
    counted = Counted(60)
    for node in range(MAX_NODES):
        counted.add(f"n{node}", 7)
    with refused(TraceError, "10,000", "'one'"):
        counted.add("one", 7)
    monkeypatch.setattr(binning, "MAX_COUNTS", 3)
    counted = Counted(60)
    for second in (0, 1, 60, 120):
        counted.add("a", second)
    with refused(TraceError, 3):
        counted.add("a", 180)
