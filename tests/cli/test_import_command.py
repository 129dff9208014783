"""``corral trace import FILE``: it looks, says what it understood, and writes when told to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corral.data import read_request_log, read_trace
from support.command import within
from support.messages import shown

WIDE = (
    "Zeit;invoc_milan;invoc_oslo;max_milan;max_oslo;cpu\n"
    "05.01.2026 00:00;0,5;2;1;2;3\n05.01.2026 00:05;1,5;3;1;2;4\n05.01.2026 00:10;1;3;1;2;4\n"
)
LOG = "timestamp,host\n2026-01-05T00:00:01Z,a\n2026-01-05T00:01:01Z,b\n2026-01-05T00:03:01Z,a\n" * 2


def test_it_looks_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text(WIDE)
    seen = within("trace", "import", path, "--scale", "300")
    lines = seen.splitlines()
    for label, *named in (
        ("layout", "wide"),
        ("time", "Zeit", "day.month.year", "[--time-column Zeit]"),
        ("arrivals", 2, "invoc_milan", "invoc_oslo", "[--arrivals 'invoc_*']"),
        ("capacity", 2, "max_milan", "max_oslo", "[--capacity 'max_*']"),
        ("unused", "cpu"),
        ("zone", "UTC", "[--zone Europe/Rome]"),
        ("decimals", "1,5", "[--decimal '.']"),
        ("nodes", 2, "milan", "oslo"),
        ("step", 300, 5, "[--step 900]"),
        ("gaps", "none"),
    ):
        shown(next(line for line in lines if line.split()[:1] == [label]), *named)
    assert ["2026-01-05", "00:00", "milan", "150", "300"] in [line.split() for line in lines]
    shown(seen, 3, 2, "3,300")
    again = f"  corral trace import {path} --scale 300 --out loads.csv"
    assert again in lines
    assert list(tmp_path.iterdir()) == [path]
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80


def test_it_writes_what_it_showed(tmp_path: Path) -> None:
    path, out = tmp_path / "export.csv", tmp_path / "loads.csv"
    path.write_text(WIDE)
    options = ["--arrivals", "invoc_*", "--capacity", "max_*", "--scale", "300"]
    seen = within("trace", "import", "--out", out, *options, path)
    shown(seen, out, 3, 2)
    assert "--out" not in seen  # nothing is left to type
    assert read_trace(out).arrivals.tolist() == [[150, 600], [450, 900], [300, 900]]
    shown(within("trace", "import", path, "--out", out, code=2), "--overwrite")


def test_where_it_stops_it_says_what_it_understood(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text(WIDE)
    said = within("trace", "import", path, code=2)
    assert ["unused", "cpu"] in [line.split() for line in said.splitlines()]
    said = " ".join(said.split())
    shown(said, "--scale 300", "--scale 5")
    path.write_text(LOG)
    said = within("trace", "import", path, code=2)
    shown(said, "timestamp", "ISO-8601", "--node-column host", "--one-node")
    counted = within("trace", "import", path, "--one-node")
    shown(counted, 4, 1, 6, "export.csv")


def test_files_of_no_layout_are_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear all\nthe servers are slow\n")
    said = within("trace", "import", path, code=2)
    shown(said, "notes.txt")
    assert "servers" not in said
    shown(within("trace", "import", tmp_path / "none.csv", code=2), "none.csv")


def test_names_of_formats_stay_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("series").write_text(WIDE)
    shown(within("trace", "import", "./series", "--scale", "1"), "invoc_milan", 2)
    assert "missing" in within("trace", "import", "series", code=2)  # the command
    said = within("trace", "import", "request", "x.csv", code=2)
    shown(said, "'request'", "'requests'")
    listed = within("trace", "import", "--help")
    for command in ("file", "series", "requests", "access-log", "azure-functions"):
        assert f"  {command}" in listed
    helped = within("trace", "import", "series.csv", "--help")
    assert "--node-column" in helped


def test_hostile_names_are_shown_as_text(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text("time,\x1b[31mred,b\n2026-01-05,1,2\n2026-01-06,1,2\n")
    said = within("trace", "import", path, code=2)
    assert "\x1b" not in said
    assert "\\x1b" in said


def test_options_without_a_meaning_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_text('192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326\n' * 2)
    shown(within("trace", "import", path), 1, 2)
    said = within("trace", "import", path, "--decimal", ",", code=2)
    shown(said, "--decimal", "--step")


def test_json_that_is_no_answer_of_prometheus(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps({"hello": [1, 2]}))
    said = within("trace", "import", path, code=2)
    shown(said, "some.json")
    assert "hello" not in said


def test_what_comes_next_is_printed(tmp_path: Path) -> None:
    path, out = tmp_path / "export.csv", tmp_path / "loads.csv"
    path.write_text("time,a,b\n2026-01-05T00:00Z,10,20\n2026-01-05T00:05Z,30,40\n")
    seen = within("trace", "import", path).splitlines()
    assert f"  corral trace import {path} --capacity a=N,b=N --out loads.csv" in seen
    seen = within("trace", "import", path, "--out", out).splitlines()
    again = f"  corral trace import {path} --capacity a=N,b=N --out {out} --overwrite"
    assert seen.index(again) < next(i for i, line in enumerate(seen) if "1.25x" in line)
    out.unlink()
    seen = within("trace", "import", path, "--out", out, "--capacity", "100").splitlines()
    assert f"Next: corral advise {out}" in seen
    assert not any("placeholder" in line for line in seen)
    out.unlink()
    seen = within("trace", "import", path, "--out", out, "--capacity", "1.25x").splitlines()
    assert any(line.startswith("capacity ") and "placeholder" in line for line in seen)


def test_a_bundled_trace_needs_no_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = within("trace", "import", "edge3", code=2)
    shown(said, "edge3", "corral trace show edge3")


def test_capacities_are_checked(tmp_path: Path) -> None:
    path, capacities = tmp_path / "export.csv", tmp_path / "capacity.csv"
    path.write_text("time,a,b,c\n2026-01-05T00:00Z,10,20,5\n2026-01-05T00:05Z,30,40,6\n")
    said = " ".join(within("trace", "import", path, "--capacity", "a=1,bb=2", code=2).split())
    shown(said, "'bb'", "'b', 'c'")
    for form in ("220/min", "1,25x", "220 per min"):
        said = " ".join(within("trace", "import", path, "--capacity", form, code=2).split())
        shown(said, form, "1.25x", "a=100,b=80")
    capacities.write_text("a,100\nb,80\nc,60\n")
    said = " ".join(within("trace", "import", path, "--capacity", capacities, code=2).split())
    shown(said, "node,capacity")
    seen = " ".join(within("trace", "import", path, "--capacity", "a=1,b=1,c=1").split())
    shown(seen, "2 of 2", "300 s")


ACCESS = '192.0.2.1 - - [10/Oct/2000:13:{}:36 -0700] "GET / HTTP/1.0" 200 2326\n'


def test_requests_are_kept(tmp_path: Path) -> None:
    path, out, kept = (tmp_path / name for name in ("export.csv", "loads.csv", "requests.csv"))
    rows = [row for row in LOG.split() if row != "timestamp,host"]
    path.write_text("time,host,tokens,more\n" + "".join(f"{row},7,1\n" for row in rows))
    options = ["--step", "60", "--node-column", "host", "--out", out, "--keep-requests", kept]
    seen = within("trace", "import", "requests", path, *options, "--work-column", "tokens+more")
    shown(seen, kept, 6, out)
    log = read_request_log(kept)
    log.check_counts(read_trace(out))
    assert log.work.tolist() == [8] * 6
    out.unlink()
    said = within("trace", "import", "requests", path, *options, code=2)
    shown(said, kept, "--overwrite")
    within("trace", "import", "requests", path, *options, "--overwrite")
    assert read_request_log(kept).work is None
    out.unlink()
    options = [*options[:-2], "--work-column", "more"]
    said = within("trace", "import", "requests", path, *options, code=2)
    shown(said, "--work-column more", "--keep-requests")


def test_requests_of_access_logs_are_kept(tmp_path: Path) -> None:
    path, out, kept = (tmp_path / name for name in ("web.log", "loads.csv", "requests.csv.gz"))
    path.write_text(ACCESS.format("55") + ACCESS.format("57"))
    options = ["--out", out, "--keep-requests", kept]
    within("trace", "import", "access-log", path, "--step", "60", *options)
    read_request_log(kept).check_counts(read_trace(out))
    said = within("trace", "import", path, *options, code=2)
    shown(said, out, "--overwrite")
    out.unlink()
    said = within("trace", "import", path, *options, code=2)
    shown(said, kept, "--overwrite")
    assert not out.exists()
    kept.unlink()
    seen = within("trace", "import", path, *options)
    read_request_log(kept).check_counts(read_trace(out))
    again = f"  corral trace import {path} --keep-requests {kept} --capacity web=N --out {out}"
    assert f"{again} --overwrite" in seen.splitlines()


def test_requests_are_kept_with_a_trace_alone(tmp_path: Path) -> None:
    path, out, kept = (tmp_path / name for name in ("web.log", "loads.csv", "requests.csv"))
    path.write_text(ACCESS.format("55") + ACCESS.format("57"))
    for options, values in (
        (["--keep-requests", kept], ("--keep-requests", "--out")),
        (["--out", out, "--keep-requests", out], ("--keep-requests", "--out", out)),
        (["--out", out, "--keep-requests", tmp_path], ("--keep-requests", tmp_path)),
        (["--out", out, "--keep-requests", tmp_path / "x.txt"], ("x.txt", ".csv")),
        (["--out", tmp_path / "x.txt", "--keep-requests", kept], ("x.txt", ".csv")),
    ):
        shown(within("trace", "import", path, *options, code=2), *values)
        assert list(tmp_path.iterdir()) == [path]
    path.write_text("time,a,b\n2026-01-05T00:00Z,10,20\n2026-01-05T00:05Z,30,40\n")
    said = within("trace", "import", path, "--out", out, "--keep-requests", kept, code=2)
    shown(" ".join(said.split()), "--keep-requests", "corral trace import requests")
    assert list(tmp_path.iterdir()) == [path]


OWN = "2026-01-05 00:0{0}:07 INFO backend={1} took=9\n"
RECORD = '{{"at": {{"ms": {0}}}, "by": "{1}", "n": {{"in": {2}, "out": 9}}}}\n'


def test_logs_are_read_by_a_pattern(tmp_path: Path) -> None:
    path, out = tmp_path / "own.log", tmp_path / "loads.csv"
    path.write_text("".join(OWN.format(m, n) for m in range(3) for n in "aab"))
    said = within("trace", "import", path, code=2)
    shown(said, "own.log", "--format", "--pattern")
    pattern = r"(?P<time>\S+ \S+) .* backend=(?P<node>\w+) took=(?P<duration>\d+)"
    seen = within("trace", "import", path, "--pattern", pattern, "--zone", "Z", "--out", out)
    shown(seen, "duration", 9)
    trace = read_trace(out)
    assert (trace.nodes, trace.arrivals.tolist()) == (("a", "b"), [[2, 1]] * 3)
    path.write_text(path.read_text() + "restarted\n")
    options = ["--pattern", pattern, "--capacity", "a=9,b=8", "--out", out, "--overwrite"]
    shown(within("trace", "import", path, *options, code=2), "--skip-malformed")
    seen = within("trace", "import", path, *options, "--skip-malformed")
    shown(seen, "1 of 10", f"Next: corral advise {out}")
    assert within("trace", "import", path, "--format", "alb", code=2)


def test_json_is_read_by_paths(tmp_path: Path) -> None:
    path, out = tmp_path / "own.jsonl", tmp_path / "loads.csv"
    times = [1767571200000 + 60_000 * minute for minute in range(3)]
    path.write_text("".join(RECORD.format(t, n, i + 1) for t in times for i, n in enumerate("ab")))
    paths = ["--time-path", "at.ms", "--node-path", "by", "--value-path", "n.in", "--out", out]
    seen = within("trace", "import", path, *paths)
    assert "Prometheus" not in seen
    trace = read_trace(out)
    assert (trace.nodes, trace.arrivals.tolist()) == (("a", "b"), [[1, 2]] * 3)
    options = ["--format", "json", *paths[:4], "--out", out, "--overwrite"]
    within("trace", "import", path, *options)  # an entry is a request
    assert read_trace(out).arrivals.tolist() == [[1, 1]] * 3
    said = within("trace", "import", path, "--time-path", "at.s", code=2)
    shown(said, "at.s", "at.ms")
