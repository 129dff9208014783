"""keep_requests: the requests of an imported trace, exactly, as a request log."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from corral.data import (
    import_access_log,
    import_requests,
    import_trace,
    read_request_log,
)
from corral.errors import TraceError
from support.import_files import MIDNIGHT, clock, write
from support.messages import refused, shown
from support.traces import public_traces

LINE = '10.0.0.1 - - [05/Jan/2026:00:{:02d}:{:02d} +0000] "GET / HTTP/1.0" 200 2326'
REQUESTS = (
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "2026-01-05 00:00:09.9999999,10,2",
    "2026-01-05 00:00:10.0000000,20,0",
    "2026-01-05 00:00:19.9,30,5",
    "2026-01-05 00:00:40,40,6",
)


def test_the_log_and_the_trace_agree(tmp_path: Path) -> None:
    path, out = write(tmp_path, "code.csv", *REQUESTS), tmp_path / "requests.csv"
    imported = import_requests(path, step=10, keep_requests=out)
    log = read_request_log(out)
    log.check_counts(imported.trace)
    assert log.nodes == ("code",)
    assert log.time.tolist() == [MIDNIGHT + at for at in (9.999999, 10, 19.9, 40)]
    assert log.work is None
    assert imported.trace == import_requests(path, step=10).trace
    shown("\n".join(imported.notes), out, "4 requests", "microseconds")


def test_times_need_not_be_sorted(tmp_path: Path) -> None:
    rows = ["when,who", f"{clock(1)},b", f"{clock(3)},b", f"{clock(0)},a", f"{clock(1)},a"]
    out = tmp_path / "requests.csv.gz"
    path = write(tmp_path, "x.csv", *rows)
    trace = import_requests(path, step=60, node_column="who", keep_requests=str(out)).trace
    log = read_request_log(out)
    log.check_counts(trace)
    assert (log.time - MIDNIGHT).tolist() == [0, 60, 60, 180]
    assert [log.nodes[node] for node in log.node] == ["a", "b", "a", "b"]  # ties as in the file


def test_trimmed_requests_are_not_kept(tmp_path: Path) -> None:
    a = write(tmp_path, "a.csv", *REQUESTS)
    b = write(tmp_path, "b.csv", "t", f"{MIDNIGHT + 15}.25", f"{MIDNIGHT + 38}")
    out = tmp_path / "requests.csv"
    trace = import_requests([a, b], step=10, keep_requests=out).trace
    assert trace.arrivals.tolist() == [[2, 1], [0, 0], [0, 1]]
    log = read_request_log(out)
    assert (log.time - MIDNIGHT).tolist() == [10, 15.25, pytest.approx(19.9), 38]
    window = log.window(trace, 0, 3)
    assert window.step.tolist() == [0, 0, 0, 2]
    assert window.node.tolist() == [0, 1, 0, 1]
    assert window.offset == pytest.approx([0, 0.525, 0.99, 0.8], abs=1e-6)


def test_any_requests_agree_with_their_trace(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    paths = []
    for name in "abc":
        times = MIDNIGHT + rng.integers(rng.integers(99), 10**9, size=200) / 1e6
        paths.append(write(tmp_path, f"{name}.csv", "t,n", *(f"{t:.6f},{t % 7}" for t in times)))
    for step in (1, 7, 60):
        trace = import_requests(
            paths,
            step=step,
            keep_requests=tmp_path / "x.csv",
            work_column="n",
            overwrite=True,
        ).trace
        log = read_request_log(tmp_path / "x.csv")
        log.check_counts(trace)
        assert len(log) == trace.arrivals.sum()
        assert log.work == pytest.approx(log.time % 7, abs=1e-6)


# --- Work ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "works"),
    [
        ("ContextTokens", [10, 20, 30, 40]),
        ("ContextTokens+GeneratedTokens", [12, 20, 35, 46]),
        (" GeneratedTokens + ContextTokens", [12, 20, 35, 46]),
    ],
)
def test_a_column_holds_the_work(tmp_path: Path, column: str, works: list[float]) -> None:
    path, out = write(tmp_path, "code.csv", *REQUESTS), tmp_path / "requests.csv"
    imported = import_requests(path, step=10, keep_requests=out, work_column=column)
    assert read_request_log(out).work.tolist() == works
    shown(imported.notes[-2], "requests.csv", "work")
    (unused,) = [note for note in imported.notes if "columns" in note] or [""]
    assert "ContextTokens" not in unused


def test_a_name_with_a_plus_is_one_column(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", "t,a+b,a", f"{clock(0)},3,1", f"{clock(1)},0.5,1")
    out = tmp_path / "out.csv"
    import_requests(path, step=60, keep_requests=out, work_column="a+b")
    assert read_request_log(out).work.tolist() == [3, 0.5]


def test_a_request_without_work_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "requests.csv"
    path = write(tmp_path, "code.csv", *REQUESTS)
    with refused(TraceError, "code.csv:3", "'GeneratedTokens'", "'0'", "above 0", "work_column="):
        import_requests(path, step=10, keep_requests=out, work_column="GeneratedTokens")
    for cell in ("0", "", "-1", "nan", "inf", "1e999", "x"):
        bad = write(tmp_path, "x.csv", "t,a,b", f"{clock(0)},1,2", f"{clock(1)},{cell},0")
        with refused(TraceError, "x.csv:3", "'a+b'", f"'{cell} + 0'", "above 0"):
            import_requests(bad, step=60, keep_requests=out, work_column="a+b")
    with refused(TraceError, "code.csv:1", "'Tokens'", "GeneratedTokens"):
        import_requests(path, step=10, keep_requests=out, work_column="ContextTokens+Tokens")
    with refused(ValueError, "work_column=ContextTokens", "keep_requests="):
        import_requests(path, step=10, work_column="ContextTokens")
    assert not out.exists()


# --- Access logs ---------------------------------------------------------------------------------


def test_an_access_log_keeps_whole_seconds(tmp_path: Path) -> None:
    rows = [LINE.format(0, 5), LINE.format(0, 5), "malformed", LINE.format(2, 59)]
    a = write(tmp_path, "a.log", LINE.format(1, 1), LINE.format(0, 7), LINE.format(3, 0))
    b = write(tmp_path, "b.log", *rows)
    out = tmp_path / "requests.csv"
    trace = import_access_log([a, b], step=60, skip_malformed=True, keep_requests=out).trace
    log = read_request_log(out)
    log.check_counts(trace)
    assert out.read_text().splitlines()[1:] == [
        f"{MIDNIGHT + 5},b",
        f"{MIDNIGHT + 5},b",
        f"{MIDNIGHT + 7},a",
        f"{MIDNIGHT + 61},a",
        f"{MIDNIGHT + 179},b",
    ]


def test_import_trace_keeps_the_requests_of_access_logs_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "a.log", LINE.format(1, 1), LINE.format(2, 7))
    out = tmp_path / "requests.csv"
    imported = import_trace(path, keep_requests=out)
    read_request_log(out).check_counts(imported.trace)
    with refused(FileExistsError, "requests.csv"):
        import_trace(path, keep_requests=out)
    import_trace(path, keep_requests=out, overwrite=True, step=30)
    out.unlink()
    for rows in (
        ("time,node,arrivals", "2026-01-05,a,1", "2026-01-06,a,1"),
        ("time,a,b", "2026-01-05,1,2", "2026-01-06,1,2"),
        ('Time,{instance="a"},{instance="b"}', "2026-01-05,1,2", "2026-01-06,1,2"),
        REQUESTS,
    ):
        table = write(tmp_path, "table.csv", *rows)
        with refused(ValueError, "keep_requests=", "corral trace import requests"):
            import_trace(table, keep_requests=out)
    assert not out.exists()


# --- Nothing is half written ---------------------------------------------------------------------


def test_an_existing_file_is_refused_before_the_import(tmp_path: Path) -> None:
    out = write(tmp_path, "requests.csv", "precious")
    for call in (import_requests, import_access_log):
        with refused(FileExistsError, "requests.csv", "overwrite=True"):
            call(tmp_path / "missing.csv", step=60, keep_requests=out)
        with refused(ValueError, "x.txt", ".csv"):
            call(tmp_path / "missing.csv", step=60, keep_requests=tmp_path / "x.txt")
    assert out.read_text() == "precious\n"


def test_a_failed_import_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = write(tmp_path, "requests.csv", "precious")
    path = write(tmp_path, "code.csv", *REQUESTS)
    with refused(ValueError, "capacity", "'many'"):
        import_requests(path, step=10, capacity="many", keep_requests=out, overwrite=True)

    def fail(*args, **options):
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr("os.replace", fail)
    with refused(OSError, "disk full", errno=errno.ENOSPC):
        import_requests(path, step=10, keep_requests=out, overwrite=True)
    assert out.read_text() == "precious\n"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["code.csv", "requests.csv"]


def test_requests_outside_the_range_of_a_log_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", "t", "1969-12-31T23:59:00Z", "1970-01-01T00:00:00Z")
    with refused(TraceError, "'time'", "'-60'", 1970):
        import_requests(path, step=60, keep_requests=tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


# --- A public trace ------------------------------------------------------------------------------


def test_language_model_requests(tmp_path: Path) -> None:
    folder = public_traces() / "azure_llm_2023"
    paths = [folder / f"AzureLLMInferenceTrace_{name}.csv" for name in ("code", "conv")]
    out = tmp_path / "requests.csv.gz"
    trace = import_requests(
        paths,
        step=60,
        names=["code", "conv"],
        keep_requests=out,
        work_column="ContextTokens+GeneratedTokens",
    ).trace
    log = read_request_log(out)
    log.check_counts(trace)
    assert len(log) == trace.arrivals.sum()
    assert log.work.min() > 1
    first = log.window(trace, 0, 1)
    assert len(first.step) == trace.arrivals[0].sum()
    assert np.bincount(first.node, minlength=2).tolist() == trace.arrivals[0].tolist()
    code = log.node == log.nodes.index("code")
    assert log.time[code][0] == 1700158623.979960  # its first row: 18:17:03.9799600,4808,10
    assert log.work[code][0] == 4808 + 10
