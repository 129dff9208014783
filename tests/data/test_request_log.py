"""A request log: exact round trips, faults with their row, and agreement with a trace."""

from __future__ import annotations

import csv
import errno
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.data import RequestLog, Trace, read_request_log, write_request_log
from corral.data.request_log import END_OF_TIME, parse_work
from corral.data.trace import is_name
from corral.errors import TraceError
from support.messages import refused, shown

START = 1767571200  # 2026-01-05


def log_of(
    *times: float, work: list[float] | None = None, node: list[int] | None = None
) -> RequestLog:
    """The log of requests at seconds after 2026-01-05, by default all of node a."""
    return RequestLog(("a", "b"), node or [0] * len(times), START + np.array(times), work)


def trace_of(arrivals: list[list[int]], **changes: object) -> Trace:
    values: dict = {"nodes": ("a", "b"), "capacity": None, "clock": "utc", "name": "load"}
    values |= {"times": START + 10 * np.arange(len(arrivals))}
    return Trace(arrivals=arrivals, **(values | changes))


def same(a: RequestLog, b: RequestLog) -> bool:
    """Whether two logs hold the same requests, with nodes in any order."""
    names_a, names_b = ([log.nodes[n] for n in log.node] for log in (a, b))
    works = [log.work is None for log in (a, b)]
    return (
        names_a == names_b
        and a.time.tolist() == b.time.tolist()
        and works[0] == works[1]
        and (a.work is None or a.work.tolist() == b.work.tolist())
    )


# --- The arrays ----------------------------------------------------------------------------------


def test_arrays_are_copied_and_read_only() -> None:
    time = np.array([1.5, 2.0])
    log = RequestLog(["a"], np.array([0, 0], dtype=np.uint8), time, [1, 2])
    time[0] = 0
    assert (log.nodes, log.time.tolist(), log.work.tolist()) == (("a",), [1.5, 2], [1, 2])
    assert (log.node.dtype, log.time.dtype, log.work.dtype) == (np.int32, np.float64, np.float64)
    for values in (log.node, log.time, log.work):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1
    assert len(log) == 2
    shown(repr(log), 2, 1)


def test_the_first_invalid_row_is_named() -> None:
    for time, work, values in (
        ([0, 2, 1, 0], None, ("row 2", "'time'", f"'{START + 1}'", START + 2)),
        ([0, np.nan], None, ("row 1", "'nan'", 1970, 2242)),
        ([0, np.inf], None, ("row 1", "'inf'", 1970, 2242)),
        ([-START - 1, 0], None, ("row 0", "'-1'", 1970)),
        ([0, END_OF_TIME], None, ("row 1", 2242)),
        ([0, 1, 2], [1, 0, -1], ("row 1", "'work'", "'0'")),
        ([0, 1, 2], [1, 1, -1], ("row 2", "'work'", "'-1'")),
        ([0, 1, 2], [np.nan, 1, 1], ("row 0", "'work'", "'nan'")),
        ([0, 1, 0], [1, np.inf, 1], ("row 1", "'work'", "'inf'")),
    ):
        with refused(TraceError, *values):
            log_of(*time, work=work)


def test_shapes_and_nodes_are_checked() -> None:
    for arguments, values in (
        ((("a",), [], []), ("request log",)),
        ((("a",), [0, 0], [1]), ("node", "(2,)", "(1,)")),
        ((("a",), [0], [1], [1, 1]), ("work", "(2,)", "(1,)")),
        ((("a",), [[0]], [[1]]), ("time", 1, 2)),
        ((("a",), [0.0], [1]), ("node", "float64")),
        ((("a",), [0, 1], [1, 1]), ("row 1", "'node'", "'1'", "0 .. 0")),
        ((("a",), [-1], [1]), ("row 0", "'-1'")),
        ((("a ",), [0], [1]), ("'a '",)),
        ((("a", "a"), [0], [1]), ("'a'",)),
    ):
        with refused(TraceError, *values):
            RequestLog(*arguments)


# --- The file ------------------------------------------------------------------------------------


def test_the_file_is_as_the_format_says(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    log = RequestLog(("b,c", "a"), [1, 0, 1], [START, START + 0.25, START + 9], [10, 0.5, 1e-5])
    write_request_log(log, path)
    assert path.read_bytes() == (
        b'time,node,work\n1767571200,a,10\n1767571200.25,"b,c",0.5\n1767571209,a,1e-05\n'
    )
    assert same(read_request_log(path), log)
    assert read_request_log(path).nodes == ("a", "b,c")
    write_request_log(RequestLog(log.nodes, log.node, log.time), path, overwrite=True)
    assert path.read_bytes() == b'time,node\n1767571200,a\n1767571200.25,"b,c"\n1767571209,a\n'
    assert read_request_log(path).work is None


@settings(max_examples=60, deadline=None, database=None)
@given(
    names=st.lists(
        st.text(min_size=1, max_size=9).filter(is_name), min_size=1, max_size=4, unique=True
    ),
    micros=st.lists(st.integers(0, END_OF_TIME * 10**6 - 1), min_size=1, max_size=20),
    works=st.lists(st.floats(0, exclude_min=True, allow_infinity=False), min_size=20, max_size=20),
    has_work=st.booleans(),
    packed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_log_survives_a_round_trip(
    tmp_path_factory, names, micros, works, has_work, packed, seed
) -> None:
    node = np.random.default_rng(seed).integers(0, len(names), size=len(micros))
    time = np.array(sorted(micros)) / 1e6
    log = RequestLog(tuple(names), node, time, works[: len(micros)] if has_work else None)
    path = tmp_path_factory.mktemp("round") / ("x.csv.gz" if packed else "x.csv")
    write_request_log(log, path)
    assert same(read_request_log(path), log)


def test_a_time_is_never_rounded_to_the_next_second(tmp_path: Path) -> None:
    just_before = float(np.nextafter(START + 10, 0))
    write_request_log(RequestLog(("a",), [0], [just_before]), tmp_path / "x.csv")
    assert read_request_log(tmp_path / "x.csv").time.tolist() == [START + 9.999999]


def test_lines_are_read_the_same_at_once_and_one_by_one(tmp_path: Path) -> None:
    """A doubled quote needs the careful reader; a CRLF, a comma in a name and quotes do not."""
    rows = [[f"{START + i / 4}", ("a,b", "ä", "c")[i % 3], f"{i + 1}.5"] for i in range(99)]
    logs = []
    for end, quoting, quote in (
        ("\n", csv.QUOTE_MINIMAL, ""),
        ("\r\n", csv.QUOTE_ALL, ""),
        ("\n", csv.QUOTE_MINIMAL, '"'),
    ):
        path = tmp_path / "x.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            file.write(f"time,node,work{end}")
            named = [[time, name + quote, work] for time, name, work in rows]
            csv.writer(file, lineterminator=end, quoting=quoting).writerows(named)
        log = read_request_log(path)
        nodes = tuple(name.removesuffix('"') for name in log.nodes)
        logs.append(RequestLog(nodes, log.node, log.time, log.work))
    assert logs[0].nodes == ("a,b", "ä", "c")
    assert same(logs[0], logs[1])
    assert same(logs[0], logs[2])


def test_blocks_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.data.request_log.CHUNK", 64)
    monkeypatch.setattr("corral.data.request_log.ROWS", 7)
    time = START + np.arange(100) / 8
    log = RequestLog(("a", 'q"'), np.arange(100) // 40 % 2, time, 1 + np.arange(100))
    write_request_log(log, tmp_path / "x.csv")
    assert same(read_request_log(tmp_path / "x.csv"), log)
    lines = (tmp_path / "x.csv").read_text().splitlines()
    lines[90] = "noon,a,1"
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    with refused(TraceError, "x.csv:91", "'noon'"):
        read_request_log(tmp_path / "x.csv")


def test_faults_have_their_line(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    good = f"{START},a,1\n"
    for row, values in (
        (f"{START - 1},a,1\n", ("x.csv:3", "'time'", f"'{START - 1}'", START)),
        ("2026-01-05T00:00:00Z,a,1\n", ("x.csv:3", "'time'", "'2026-01-05T00:00:00Z'", 1970)),
        (f"{START}.1234567,a,1\n", ("x.csv:3", "'time'", 6)),
        ("-1,a,1\n", ("x.csv:3", "'-1'")),
        ("nan,a,1\n", ("x.csv:3", "'nan'")),
        ("9999999999,a,1\n", ("x.csv:3", "'9999999999'", 2242)),
        (f"{START},,1\n", ("x.csv:3", "'node'")),
        (f"{START}, a,1\n", ("x.csv:3", "' a'")),
        (f"{START},a,0\n", ("x.csv:3", "'work'", "'0'", "above 0")),
        (f"{START},a,-1\n", ("x.csv:3", "'work'", "'-1'", "above 0")),
        (f"{START},a,\n", ("x.csv:3", "'work'", "above 0")),
        (f"{START},a,inf\n", ("x.csv:3", "'inf'")),
        (f"{START},a,1e999\n", ("x.csv:3", "'inf'")),
        (f"{START},a,1_0\n", ("x.csv:3", "'1_0'")),
        (f"{START},a\n", ("x.csv:3", "2 fields", 3)),
        (f"{START},a,1,2\n", ("x.csv:3", "4 fields", 3)),
        (f'{START},"a,1\n', ("x.csv:3", "quote")),
        (f"\n{START},a,1\n", ("x.csv:3", "blank")),
        (f"{START},a\t,1\n", ("x.csv:3", "control")),
        (f"{START},a,1", ("x.csv:3", "line end")),
    ):
        path.write_text("time,node,work\n" + good + row)
        with refused(TraceError, *values):
            read_request_log(path)
    path.write_bytes(b"time,node\n1767571200,\xff\n")
    with refused(TraceError, "x.csv:2", "UTF-8"):
        read_request_log(path)
    path.write_text("time,node\n" + "noon,a\n" * 20)
    with refused(TraceError, "x.csv:2", "x.csv:9") as caught:
        read_request_log(path)
    assert len(caught.value.faults) == 8


def test_files_of_other_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for text, values in (
        ("", ("empty",)),
        ("time,node\n", ("header",)),
        ("time,node,arrivals\n0,a,1\n", ("trace",)),
        ("secret,text\n1,a\n", ("time,node,work", "--keep-requests")),
    ):
        path.write_text(text)
        with refused(TraceError, "x.csv", *values) as caught:
            read_request_log(path)
        assert "secret" not in str(caught.value)
    with refused(TraceError, "missing.csv"):
        read_request_log(tmp_path / "missing.csv")


def test_limits_apply(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("time,node\n" + "".join(f"{START},n{i}\n" for i in range(9)))
    assert len(read_request_log(path, max_cells=90, max_nodes=9)) == 9
    with refused(TraceError, "x.csv", 89, "max_cells="):
        read_request_log(path, max_cells=89)
    with refused(TraceError, "x.csv:10", "'n8'", "max_nodes", 8):
        read_request_log(path, max_nodes=8)
    with refused(TraceError, "x.csv", 99, "max_bytes="):
        read_request_log(path, max_bytes=99)


# --- Nothing is half written ---------------------------------------------------------------------


def test_nothing_is_overwritten_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("precious")
    with refused(FileExistsError, "x.csv", "overwrite=True"):
        write_request_log(log_of(0), path)
    assert path.read_text() == "precious"
    write_request_log(log_of(0), path, overwrite=True)
    assert same(read_request_log(path), log_of(0))
    with refused(ValueError, "x.txt", ".csv", ".csv.gz"):
        write_request_log(log_of(0), tmp_path / "x.txt")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.csv"]


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"precious"))

    def fail(*args, **options):
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr("os.replace", fail)
    with refused(OSError, "disk full", errno=errno.ENOSPC):
        write_request_log(log_of(0), path, overwrite=True)
    assert gzip.decompress(path.read_bytes()) == b"precious"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.csv.gz"]


# --- With a trace --------------------------------------------------------------------------------

TIMES = (0, 2.5, 9.999999, 10, 25, 25)
ARRIVALS = [[2, 1], [1, 0], [0, 2]]
NODES = [0, 0, 1, 0, 1, 1]


def test_a_log_agrees_with_its_trace() -> None:
    log = log_of(*TIMES, node=NODES, work=[1, 2, 3, 4, 5, 6])
    log.check_counts(trace_of(ARRIVALS))
    window = log.window(trace_of(ARRIVALS), 0, 3)
    assert window.step.tolist() == [0, 0, 0, 1, 2, 2]
    assert window.node.tolist() == NODES
    assert window.offset == pytest.approx([0, 0.25, 0.9999999, 0, 0.5, 0.5], abs=1e-7)
    assert window.work.tolist() == [1, 2, 3, 4, 5, 6]
    assert [values.dtype for values in window] == [np.int64, np.int64, np.float64, np.float64]
    window = log.window(trace_of(ARRIVALS), 1, 2)
    assert [values.tolist() for values in window] == [[1], [0], [0], [4]]


def test_the_order_of_nodes_is_that_of_the_trace() -> None:
    flipped = trace_of([row[::-1] for row in ARRIVALS], nodes=("b", "a"))
    window = log_of(*TIMES, node=NODES).window(flipped, 0, 3)
    assert window.node.tolist() == [1 - node for node in NODES]
    assert window.work is None


def test_requests_around_the_trace_are_ignored() -> None:
    log = log_of(-1, *TIMES, 30, node=[1, *NODES, 0])
    log.check_counts(trace_of(ARRIVALS))
    assert len(log.window(trace_of(ARRIVALS), 0, 3).step) == len(TIMES)


def test_an_offset_stays_below_one() -> None:
    log = RequestLog(("a", "b"), [0, 1], [np.nextafter(1, 0), 1.5])
    for times in ([0, 1], [-3599, 1]):
        window = log.window(trace_of([[1, 0], [0, 1]], times=times), 0, 2)
        assert window.step.tolist() == [0, 1]
        assert 0.99 < window.offset[0] < 1


def test_a_different_count_is_refused() -> None:
    log = log_of(*TIMES, node=NODES)
    for row, column, at in ((1, 0, "2026-01-05 00:00:10"), (2, 1, "2026-01-05 00:00:20")):
        arrivals = [list(counts) for counts in ARRIVALS]
        arrivals[row][column] += 1234
        values = (f"{'ab'[column]!r}", at, ARRIVALS[row][column], arrivals[row][column])
        with refused(TraceError, "load", values[0], at, values[2], f"{values[3]:,}"):
            log.check_counts(trace_of(arrivals))
        log.window(trace_of(arrivals), 0, row)  # the rows before it agree


def test_a_trace_of_other_nodes_or_times_is_refused() -> None:
    log = log_of(*TIMES, node=NODES)
    for trace, values in (
        (trace_of(ARRIVALS, nodes=("a", "c")), ("'a', 'c'", "'a', 'b'")),
        (trace_of([[*row, 1] for row in ARRIVALS], nodes=("a", "b", "c")), ("'c'",)),
        (trace_of(ARRIVALS, clock="integer"), ("UTC",)),
        (trace_of(ARRIVALS[:1]), ("load", "one step")),
    ):
        with refused(TraceError, *values):
            log.check_counts(trace)
    log.check_counts(trace_of([[*row, 0] for row in ARRIVALS], nodes=("a", "b", "idle")))
    for low, high in ((0, 4), (-1, 1), (2, 2)):
        with refused(ValueError, f"{low}..{high}", "0..3"):
            log.window(trace_of(ARRIVALS), low, high)


def test_works_are_plain_numbers() -> None:
    assert [parse_work(text) for text in ("12", "0.5", "1e3", "0")] == [12, 0.5, 1000, 0]
    for text in ("", "-1", "+1", "nan", "inf", "1e999", "1_0", " 1", "0x1", "1.", ".5", "١"):
        assert parse_work(text) is None, text
