"""``corral trace``: check, show, make, import."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corral.data import TraceSpec, make_trace, read_trace
from support.command import within
from support.messages import shown


def test_check_says_what_is_wrong_and_where(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("time,node,arrivals\n0,a,5\n1,a,6\n")
    bad.write_text("time,node,arrivals\n0,a,5\n1,a,-6\n2,a,x\n")
    shown(within("trace", "check", good, "edge3"), "good.csv", 2, 1, "edge3")
    output = within("trace", "check", good, bad, code=1)
    assert f"{bad}:3: column 'arrivals': '-6'" in output
    assert f"{bad}:4: column 'arrivals': 'x'" in output


def test_show_fits_80_columns(tmp_path: Path) -> None:
    for trace in ("edge3", "edge8"):
        seen = within("trace", "show", trace)
        assert max(map(len, seen.splitlines())) <= 80
        shown(seen, trace)
    path = tmp_path / "one.csv"
    path.write_text("time,node,arrivals\n0,a node with a long name,5\n")
    seen = within("trace", "show", path)
    shown(seen, 1, "one")
    assert max(map(len, seen.splitlines()[1:])) <= 80


def test_names_of_servers_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "six.csv"
    names = [f"2001:db8:85a3:8d3:1319:8a2e:370:734{i}" for i in (1, 2)]
    path.write_text("time,node,arrivals\n" + "".join(f"0,{name},5\n" for name in names))
    seen = within("trace", "show", path)
    assert "2001:db8…70:7341" in seen
    assert "2001:db8…70:7342" in seen
    shown(seen, 0, 5)


def test_times_like_those_of_unix_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "unix.csv"
    path.write_text("time,node,arrivals,capacity\n1767571200,a,5,4\n1767571500,a,6,4\n")
    replayed = ["replay", path, "--policies", "local", "--out", tmp_path / "out"]
    for words in (["trace", "check", path], ["trace", "show", path], replayed):
        shown(" ".join(within(*words).split()), "Unix")
    assert "Unix" not in within("trace", "check", "edge3")


def test_make_takes_every_field_of_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "made.csv.gz"
    within("trace", "make", "--out", path, "--nodes", "2", "--days", "1", "--set", "bursts=0")
    assert read_trace(path) == make_trace(nodes=2, days=1, bursts=0)
    folder = path.parent
    shown(within("trace", "make", "--out", folder, "--overwrite", code=2), f"--out {folder}")
    (path.parent / "link.csv").symlink_to(path.parent / "nowhere.csv")
    link = path.parent / "link.csv"
    shown(within("trace", "make", "--out", link, code=2), "link.csv", "--overwrite")
    assert "exists" in within("trace", "make", "--out", path, code=2)
    within("trace", "make", "--out", path, "--days", "1", "--seed", "4", "--overwrite")
    assert read_trace(path) == make_trace(TraceSpec(days=1, seed=4))
    wrong = within("trace", "make", "--out", path, "--set", "burst=0", "--overwrite", code=2)
    shown(wrong, "'burst'", "'bursts'")
    other = tmp_path / "other.csv"
    assert "NAME=VALUE" in within("trace", "make", "--out", other, "--set", "bursts", code=2)


def test_import_series(tmp_path: Path) -> None:
    for name, values in (("a", (5, 6, 7)), ("b", (1, 2, 3))):
        rows = "".join(f"2026-01-01 00:0{i}:00,{v}.0\n" for i, v in enumerate(values))
        (tmp_path / f"{name}.csv").write_text("timestamp,value\n" + rows)
    out = tmp_path / "out.csv"
    files = (tmp_path / "a.csv", tmp_path / "b.csv")
    within("trace", "import", "series", *files, "--out", out, "--capacity", "4")
    trace = read_trace(out)
    assert trace.nodes == ("a", "b")
    assert trace.arrivals.tolist() == [[5, 1], [6, 2], [7, 3]]
    assert trace.capacity is not None
    assert (trace.capacity == 4).all()


def test_import_says_how_to_fill_gaps(tmp_path: Path) -> None:
    path = tmp_path / "gap.csv"
    rows = {0: 5, 1: 6, 2: 6, 4: 8, 5: 9}
    lines = [f"2026-01-01 00:0{minute}:00,{load}" for minute, load in rows.items()]
    path.write_text("\n".join(["timestamp,value", *lines, ""]))
    out = tmp_path / "out.csv"
    told = within("trace", "import", "series", path, "--out", out, code=2)
    shown(told, 1, "--gaps", "interpolate")  # spelt as on the command line
    assert not out.exists()
    noted = within("trace", "import", "series", path, "--out", out, "--gaps", "interpolate")
    shown(noted, "gap", 1)
    assert read_trace(out).arrivals[:, 0].tolist() == [5, 6, 6, 7, 8, 9]


def test_import_says_what_a_file_is_or_lacks(tmp_path: Path) -> None:
    path, out = tmp_path / "file.csv", tmp_path / "out.csv"
    path.write_text("time,node,arrivals\n2026-01-01,a,1\n2026-01-02,a,1\n")
    told = within("trace", "import", "series", path, "--out", out, code=2)
    shown(told, f"corral replay {path}")
    path.write_text("timestamp,value\n2026-01-01,1.5\n2026-01-02,1\n")
    told = within("trace", "import", "series", path, "--out", out, code=2)
    shown(told, "--round")
    shown(within("trace", "import", "series", path, "--out", out, "--round"), 1)


def test_an_existing_file_stops_an_import_before_its_notes(tmp_path: Path) -> None:
    path = tmp_path / "gap.csv"
    path.write_text("timestamp,value\n2026-01-01 00:00,1\n2026-01-01 00:01,1\n")
    refused = within("trace", "import", "series", path, "--out", path, code=2)
    shown(refused, path, "--overwrite")


def test_import_requests_and_access_logs(tmp_path: Path) -> None:
    requests = tmp_path / "requests.csv"
    times = ["00:00:01.5", "00:00:02.0", "00:01:59.9"]
    requests.write_text("TIMESTAMP\n" + "".join(f"2026-01-01 {t}\n" for t in times))
    log = tmp_path / "access.log"
    line = 'host - - [01/Jan/2026:00:0{}:30 +0000] "GET / HTTP/1.0" 200 10\n'
    log.write_text("".join(line.format(minute) for minute in (0, 0, 1)))
    for kind, path in (("requests", requests), ("access-log", log)):
        out = tmp_path / f"{kind}_trace.csv"
        within("trace", "import", kind, path, "--out", out, "--step", "60")
        assert read_trace(out).arrivals[:, 0].tolist() == [2, 1]


@pytest.mark.parametrize("pick", ["hash", "top"])
def test_import_azure_functions(tmp_path: Path, pick: str) -> None:
    path = tmp_path / "day1.csv"
    minutes = ",".join(str(minute) for minute in range(1, 1441))
    rows = "".join(f"o,app{i},f{i},http,{','.join([str(i + 1)] * 1440)}\n" for i in range(4))
    path.write_text(f"HashOwner,HashApp,HashFunction,Trigger,{minutes}\n{rows}")
    out = tmp_path / "out.csv"
    within(
        *("trace", "import", "azure-functions", path, "--out", out, "--nodes", "2"),
        *("--pick", pick, "--step", "3600"),
    )
    trace = read_trace(out)
    assert trace.arrivals.shape == (24, 2)
    total = {"hash": 1 + 2 + 3 + 4, "top": 3 + 4}[pick]
    assert np.unique(trace.arrivals.sum(axis=1)).tolist() == [60 * total]
