"""Formats of logs: what is recognized, what is no server, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from corral.data import import_access_log, import_trace, read_request_log
from corral.data.importers.access_log import ONE_BALANCER
from corral.data.importers.log_formats import FORMATS, recognized
from corral.errors import TraceError
from support.import_files import MIDNIGHT, write
from support.messages import refused, shown

COMBINED = '10.0.0.29 - - [05/Jan/2026:00:00:{:02d} +0000] "GET / HTTP/1.1" 200 87 "-" "curl"'
ALB = (
    "http 2026-01-05T00:00:{:02d}.192792Z app/lb/5 10.0.0.1:2817 {} 0.001 0.029 0.000 200 200 34 "
    '366 "GET http://a/ HTTP/1.1" "curl" - -'
)
HAPROXY = (
    "10.0.1.2:33317 [05/Jan/2026:00:00:{:02d}.192] in web/{} 10/0/30/29/109 200 2750 - - ---- "
    '1/1/1/1/0 0/0 "GET / HTTP/1.1"'
)

ONE_NODE = {
    "an agent with a port": '10.0.0.29 - - [{0}] "GET /" 200 87 "-" "curl" ua="10.0.0.0:80"',
    "a client with a port at the end": (
        '10.0.0.29 - - [{0}] "GET / HTTP/1.1" 200 87 "-" "curl" "10.0.0.{1}:51234"'
    ),
    "a client with a port in front": '10.0.0.{1}:51234 - - [{0}] "GET / HTTP/1.1" 200 87',
    "a client of IPv6, a user of two words": '::1 - ann lee [{0}] "GET / HTTP/1.1" 200 87',
    "a request with an upstream": '10.0.0.29 - - [{0}] "GET /a:80 b:80" 200 87 "x:1" "y:80 z:80"',
    "a duration at the end": '10.0.0.29 - - [{0}] "GET / HTTP/1.1" 200 87 "-" "curl" 0.029 -',
}


@pytest.mark.parametrize("line", ONE_NODE.values(), ids=ONE_NODE)
def test_a_log_without_servers_is_one_node(tmp_path: Path, line: str) -> None:
    rows = [line.format(f"05/Jan/2026:00:00:{s:02d} +0000", s) for s in range(30)]
    trace = import_trace(write(tmp_path, "web.log", *rows)).trace
    assert trace.nodes == ("web",)
    assert trace.arrivals.tolist() == [[30]]


def test_clients_at_the_end_are_no_servers(tmp_path: Path) -> None:
    rows = [f"{COMBINED.format(s)} 10.0.0.{s}:51234" for s in range(30)]
    assert import_trace(write(tmp_path, "web.log", *rows)).trace.nodes == ("web",)


UNSERVED = {
    "NGINX": (
        [f"{COMBINED.format(s)} 0.029 a:80" for s in range(4)],
        f"{COMBINED.format(5)} 0.0 -",
    ),
    "ALB": ([ALB.format(s, "a:80") for s in range(4)], ALB.format(5, "-")),
    "HAProxy": ([HAPROXY.format(s, "a:80") for s in range(4)], HAPROXY.format(5, "<NOSRV>")),
}


@pytest.mark.parametrize(("rows", "unserved"), UNSERVED.values(), ids=UNSERVED)
def test_requests_without_a_server_are_left_out_and_counted(
    tmp_path: Path, rows: list[str], unserved: str
) -> None:
    path = write(tmp_path, "lb.log", *rows, unserved)
    imported = import_trace(path)
    assert imported.trace.nodes == ("a:80",)
    assert imported.trace.arrivals.tolist() == [[4]]
    shown(imported.notes[0], "lb.log", 1, 5)
    assert imported.notes[-1] == ONE_BALANCER
    named = import_trace(path, names=["web"])  # then the servers are not read
    assert (named.trace.nodes, named.trace.arrivals.tolist()) == (("web",), [[5]])
    assert ONE_BALANCER not in named.notes


def test_a_log_in_which_no_line_names_a_server_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "lb.log", *(ALB.format(s, "-") for s in range(4)))
    with refused(TraceError, "lb.log"):
        import_trace(path)


@pytest.mark.parametrize("rows", [rows for rows, _ in UNSERVED.values()], ids=UNSERVED)
def test_malformed_lines_are_refused_above_a_share(tmp_path: Path, rows: list[str]) -> None:
    path = write(tmp_path, "lb.log", *rows, "server a is down")
    with refused(TraceError, "lb.log:5", "1 of 5", 0.01, "skip_malformed=True"):
        import_trace(path)
    imported = import_trace(path, skip_malformed=True)
    assert imported.trace.arrivals.tolist() == [[4]]
    shown(imported.notes[0], "1 of 5")


def test_several_files_of_balancers_are_joined(tmp_path: Path) -> None:
    first = write(tmp_path, "1.log", *(ALB.format(s, "a:80") for s in range(4)))
    second = write(
        tmp_path, "2.log", *(ALB.format(s, "b:80") for s in range(3)), ALB.format(9, "a:80")
    )
    trace = import_trace([first, second], step=5, capacity="a:80=9,b:80=8").trace
    assert trace.nodes == ("a:80", "b:80")
    assert trace.arrivals.tolist() == [[4, 3], [1, 0]]
    assert trace.capacity is not None
    assert trace.capacity.tolist() == [[9, 8], [9, 8]]


def test_requests_of_servers_are_kept(tmp_path: Path) -> None:
    path = write(
        tmp_path, "lb.log", ALB.format(1, "a:80"), ALB.format(3, "b:80"), ALB.format(4, "-")
    )
    trace = import_access_log(path, step=2, keep_requests=tmp_path / "kept.csv").trace
    log = read_request_log(tmp_path / "kept.csv")
    log.check_counts(trace)
    assert log.time.tolist() == [MIDNIGHT + 1, MIDNIGHT + 3]


# --- Patterns ------------------------------------------------------------------------------------


def test_a_pattern_counts_and_names_nodes(tmp_path: Path) -> None:
    rows = [
        f"2026-01-05 00:0{m}:07 web={n} n={c}"
        for m, n, c in ((0, "a", 3), (0, "b", 0), (1, "b", 9))
    ]
    path = write(tmp_path, "own.log", *rows)
    pattern = r"(?P<time>\S+ \S+) web=(?P<node>\S+) n=(?P<count>\d+)"
    imported = import_trace(path, pattern=pattern, zone="+01:00")
    assert imported.trace.nodes == ("a", "b")
    assert imported.trace.arrivals.tolist() == [[3, 0], [0, 9]]
    assert imported.trace.times[0] == MIDNIGHT - 3600
    named = import_trace(path, pattern=r"(?P<time>\S+ \S+) ", time_format="%Y-%m-%d %H:%M:%S").trace
    assert (named.nodes, named.arrivals.tolist()) == (("own",), [[2], [1]])


def test_the_named_option_reads_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, "lb.log", *(HAPROXY.format(s, "a") for s in range(3)))
    imported = import_trace(path)
    (change,) = (guess.change for guess in imported.guesses if guess.what == "format")
    assert change == "format=haproxy"
    again = import_trace(path, format="haproxy").trace
    assert again.arrivals.tolist() == imported.trace.arrivals.tolist()


WRONG_OPTIONS = {
    "no group": ({"pattern": r"\S+"}, "(?P<time>...)"),
    "no pattern": ({"pattern": "(?P<time>"}, "pattern='(?P<time>'"),
    "both": ({"pattern": "(?P<time>.)", "format": "alb"}, "format="),
    "an unknown format": ({"format": "apache"}, "apache"),
    "a column of a pattern": ({"node_column": "host"}, "node_column="),
    "an unknown zone": ({"format": "haproxy", "zone": "Europe/Roma"}, "Rome"),
}


@pytest.mark.parametrize(("options", "named"), WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, str], named: str) -> None:
    path = write(tmp_path, "lb.log", *(HAPROXY.format(s, "a") for s in range(3)))
    with refused(ValueError, named):
        import_trace(path, **options)


def test_an_unknown_log_names_the_options(tmp_path: Path) -> None:
    path = write(tmp_path, "own.log", "Jan 5 hello=hunter2", "Jan 5 hello=hunter2")
    with refused(TraceError, "own.log", "format=", "pattern=") as caught:
        import_trace(path)
    assert "hunter2" not in str(caught.value)
    with refused(TraceError, "own.log") as caught:
        import_trace(path, format="envoy")
    assert "hunter2" not in str(caught.value)


UNKNOWN = [
    "[2026-01-05 00:00:0{0}] hunter2 GET /hunter2 200",
    '2026-01-05T00:00:0{0}Z;GET /hunter2 HTTP/1.1;200;"a;b"',
    '10.0.0.1, hunter2 2026/01/05 00:00:0{0} "GET /hunter2" 200',
]


@pytest.mark.parametrize("line", UNKNOWN)
def test_a_log_that_looks_like_a_table_names_the_options(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, "own.log", *(line.format(s) for s in range(9)))
    with refused(TraceError, "own.log", "format=", "pattern=") as caught:
        import_trace(path)
    assert "hunter2" not in str(caught.value)
    table = write(tmp_path, "t.csv", "time;request;status;x", *(line.format(s) for s in range(9)))
    if ";" in line:  # a header makes it a table
        assert import_trace(table, one_node=True, step=3).trace.arrivals.tolist() == [[3]] * 3


def test_zones_that_differ_in_a_file_are_refused(tmp_path: Path) -> None:
    rows = ["2026-01-05T00:00:00 a", "2026-01-05T00:00:01Z a"]
    with refused(TraceError, "own.log"):
        import_trace(write(tmp_path, "own.log", *rows), pattern=r"(?P<time>\S+) (?P<node>\S+)")


def test_the_hour_that_comes_twice_is_read_twice(tmp_path: Path) -> None:
    hours = ["02:30:00", "02:59:00", "02:10:00", "03:00:00"]
    rows = [
        HAPROXY.format(0, "a").replace("05/Jan/2026:00:00:00", f"25/Oct/2026:{h}") for h in hours
    ]
    path = write(tmp_path, "lb.log", *rows)
    trace = import_trace(path, zone="Europe/Rome", step=3600).trace
    assert trace.arrivals.tolist() == [[2], [1], [1]]


# --- Fields and JSON lines -----------------------------------------------------------------------


def test_fields_may_change_within_a_file(tmp_path: Path) -> None:
    rows = ["#Fields: date time s-ip", "2026-01-05 00:00:01 a", "2026-01-05 00:00:02 b"]
    more = ["#Fields: s-ip x date time", "a - 2026-01-05 00:01:01", "a - 2026-01-05 00:01:01"]
    path = write(tmp_path, "u_ex.log", *rows, *more)
    trace = import_trace(path).trace
    assert (trace.nodes, trace.arrivals.tolist()) == (("a", "b"), [[1, 1], [2, 0]])
    with refused(TraceError, "host", "s-ip"):
        import_trace(path, node_column="host")
    path = write(
        tmp_path, "u.log", "#Fields: date time x", *(f"2026-01-05 00:0{m}:01 -" for m in (0, 1))
    )
    assert import_trace(path).trace.nodes == ("u",)


def entry(second: int, **more: object) -> str:
    return json.dumps({"time": MIDNIGHT + second, "status": 200, "path": "/", **more})


def test_keys_that_could_name_the_node_are_asked_for(tmp_path: Path) -> None:
    rows = [entry(s, pod="ab"[s % 2], region="xy"[s // 2 % 2]) for s in range(8)]
    path = write(tmp_path, "app.log", *rows)
    with refused(TraceError, "node_column=pod", "node_column=region") as caught:
        import_trace(path)
    assert "Prometheus" not in str(caught.value)
    assert import_trace(path, node_column="region").trace.nodes == ("x", "y")


def test_a_load_that_is_named_makes_a_table_of_json_lines(tmp_path: Path) -> None:
    rows = [entry(60 * m, server=n, served=m + 1) for m in range(5) for n in ("a", "b")]
    path = write(tmp_path, "s.jsonl", *rows)
    assert import_trace(path).trace.arrivals.tolist() == [[1, 1]] * 5
    loads = import_trace(path, node_column="server", arrivals="served").trace.arrivals
    assert loads.tolist() == [[m + 1] * 2 for m in range(5)]


def test_lines_of_json_that_are_no_requests_are_counted(tmp_path: Path) -> None:
    rows = [entry(s, server="a") for s in range(4)]
    path = write(tmp_path, "app.log", *rows, '{"msg": "started"}', "{", "[1]", entry(5, server={}))
    with refused(TraceError, "app.log:5", "4 of 8"):
        import_trace(path)
    assert import_trace(path, skip_malformed=True).trace.arrivals.tolist() == [[4]]


def test_one_row_per_status_is_no_log_of_requests(tmp_path: Path) -> None:
    rows = [entry(60 * m, server=n, requests=5) for m in range(5) for n in ("a", "b")]
    assert recognized([row.encode() for row in rows]) is None
    assert import_trace(write(tmp_path, "s.jsonl", *rows)).trace.arrivals.tolist() == [[5, 5]] * 5


# --- Time ----------------------------------------------------------------------------------------

REPEATED = [
    '[05/Jan/2026:00:00:00 +0000] "',
    '" 200 1',
    "[",
    '"',
    "a ",
    ":",
    "a:1 ",
    '" "',
    ' ua="',
    "\\",
    "/",
    "1 ",
]


@pytest.mark.parametrize("piece", REPEATED)
def test_a_line_takes_time_in_proportion_to_its_length(piece: str) -> None:
    starts = [
        b"",
        b"a:1 b.c - - ",
        b'h i [05/Jan/2026:00:00:00 +0000] "',
        COMBINED.format(0).encode() + b" ",
    ]
    starts += [
        ALB.format(0, "a:1").encode(),
        HAPROXY.format(0, "a").encode(),
        b'[2026-01-05T00:00:00Z] "',
    ]
    for log_format in FORMATS.values():
        for pattern in filter(None, (log_format.pattern, log_format.certain)):
            seconds = []
            for length in (2**14, 2**16):
                rest = (piece * (length // len(piece))).encode()
                begin = time.process_time()
                for start in starts:
                    pattern.fullmatch(start + rest + b"\x00")
                seconds.append(time.process_time() - begin)
            assert seconds[1] < 8 * seconds[0] + 2, log_format.name


def test_deep_json_is_no_log() -> None:
    """Some depths are few enough for the parser, and too many for the search of its leaves."""
    for depth in range(800, 1000):
        assert recognized([b'{"b":{},"a":' * depth + b"{}" + b"}" * depth]) is None
