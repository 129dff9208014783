"""Hostile files as traces and imports: refused or read rightly, quickly, in bounded memory.

The files are those of support.hostile_traces; each is met in a process of its own.
"""

from __future__ import annotations

import re
import warnings
from functools import partial
from pathlib import Path

import pytest

import corral
from corral.data import (
    import_access_log,
    import_azure_functions,
    import_prometheus,
    import_requests,
    import_series,
    import_table,
    import_trace,
    load_trace,
    read_trace,
)
from corral.errors import TraceError
from support import forked
from support.command import within
from support.hostile_traces import CASES, SECONDS, failures, meet, readers_of
from support.messages import refused, shown

TABLE = Path(__file__).parents[1] / "support/small_table.csv"

FAST = [name for name, each in CASES.items() if not each.slow]
SLOW = [name for name, each in CASES.items() if each.slow]


def test_there_are_many_hostile_files():
    assert len(FAST) >= 50


@pytest.mark.parametrize(
    "name", [*FAST[:8], *(pytest.param(n, marks=pytest.mark.slow) for n in FAST[8:] + SLOW)]
)
def test_a_hostile_file_neither_hangs_nor_fills_the_memory(tmp_path, name):
    path = CASES[name].build(tmp_path)
    meetings, peak = meet(path, readers_of(name))
    assert {meeting.reader for meeting in meetings} == set(readers_of(name))
    # The bar of benchmarks/loads/hostile_traces.py four times: tests run on slow machines, too, and
    # share them. A reader that hangs takes minutes.
    assert failures(name, meetings, peak, 4 * SECONDS) == []


def test_a_large_file_is_no_capacity_file_and_is_not_parsed(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("node,capacity\n" + "".join(f"n{row},1\n" for row in range(100_001)))
    with refused(TraceError, path, "100,000"):
        import_table(TABLE, capacity=str(path))


PIPES = ["a named pipe", "a socket", "an endless device", "a folder", "4 GB of nothing"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPES)
def test_a_command_refuses_what_is_no_regular_file_at_once(tmp_path, name):
    path = CASES[name].build(tmp_path)
    for command in (["trace", "check"], ["trace", "import"], ["trace", "show"], ["replay"]):
        done = forked.run(["-m", "corral", *command, path])
        assert done.returncode in (1, 2)
        assert str(path) in done.stderr
        assert "Traceback" not in done.stderr


# --- Gaps of years -------------------------------------------------------------------------------

OF_YEARS = [name for name in CASES if name.startswith("26 years") and name != "26 years: a log"]


@pytest.mark.parametrize("name", OF_YEARS)
def test_a_gap_of_years_is_named_and_no_log(tmp_path, name):
    path = CASES[name].build(tmp_path)
    options = {"counter": True} if path.suffix == ".json" else {}
    one_column = name.endswith("one column")  # is told by nothing but its command
    read = partial(import_requests, step=60) if one_column else partial(import_trace, **options)
    with pytest.raises(TraceError) as caught:
        read(path)
    assert re.search(r"9,49\d", shown(str(caught.value), "2026-01-01T00:00:00Z", "26 years"))


def test_a_gap_of_years_in_a_log_or_between_files(tmp_path):
    log = CASES["26 years: a log"].build(tmp_path)
    with refused(TraceError, "2000-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "9,497 days"):
        import_access_log(log, step=60)
    paths = []
    for year in (2000, 2026):
        paths.append(tmp_path / f"{year}.csv")
        rows = "".join(f"{year}-01-01T00:0{m}:00Z,1\n" for m in range(5))
        paths[-1].write_text("time,value\n" + rows)
    with refused(TraceError, "2000-01-01T00:04:00Z", "2026-01-01T00:00:00Z", "9,496 days"):
        import_table(paths, names=["a", "a"])


def test_a_gap_within_a_year_is_a_hole_as_before(tmp_path):
    path = tmp_path / "a.csv"
    days = ["2025-01-01", "2025-01-02", "2025-01-03", "2025-12-31"]
    path.write_text("time,value\n" + "".join(f"{day}T00:00:00Z,1\n" for day in days))
    assert len(import_table(path, arrivals="value", gaps="zero").trace) == 365


# --- Nothing is quoted of a file that is no trace ------------------------------------------------

PASSWD = "".join(
    f"{user}:x:{uid}:{uid}:{user},,,secret{uid}:/home/{user}:/bin/bash\n"
    for uid, user in enumerate(["rootuser", "daemonuser", "mailman", "alicename", "bobname"], 1000)
)
SECRETS = {
    "passwords": PASSWD,
    "one line": "token=hunter2hunter2\n",
    "no line end": "token=hunter2hunter2",
    "a table of people": "surname,mail,cardholder\n" + "smithson,smithson@mail,visa\n" * 6,
    "tabs": "hostsecret\tusersecret\n" * 6,
    "quotes": 'alpha"secret,"beta\n' * 4,
    "settings": "[default]\naws_secret = hunter2hunter2\nregion = europe\n",
    "a key": "-----BEGIN PRIVATE KEY-----\nMIIEvQsecretsecret\n-----END PRIVATE KEY-----\n",
    "JSON": '{"status": "hunter2", "password": "hunter2hunter2"}\n',
    "JSON, nearly Prometheus": '{"status": "ok", "data": {"resultType": "hunter2hunter2"}}\n',
    "JSON, a list": '[{"metric": "hunter2", "values": "secretsecret"}]\n',
    "JSON of values": '{"status": "x", "data": [{"values": ["hunter2hunter2"]}]}\n',
    "no UTF-8": "token=h\xfcnter2hunter2\n",
    "controls": "token=\x07hunter2hunter2\n",
}

READERS = [
    read_trace,
    load_trace,
    import_trace,
    import_table,
    import_series,
    import_prometheus,
    lambda path: import_requests(path, step=60),
    lambda path: import_access_log(path, step=60),
    lambda path: import_azure_functions(path, nodes=2),
    lambda path: import_table(TABLE, capacity=path),
    lambda path: corral.make("dfaas_v0", trace=path),
]


def words_in(content: str) -> set[str]:
    """The words of a file that a message might give away."""
    plain = "".join(c if c.isalnum() else " " for c in content)
    return {word for word in plain.split() if len(word) > 4} - {"status", "values", "metric"}


def secret(folder: Path, content: str) -> Path:
    path = folder / "x.csv"
    path.write_bytes(content.encode("latin-1"))
    return path


@pytest.mark.parametrize("content", SECRETS.values(), ids=SECRETS)
def test_nothing_is_quoted_of_a_file_that_is_no_trace(tmp_path, content):
    path = secret(tmp_path, content)
    for read in READERS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(ValueError) as raised:
                read(str(path))
        told = " ".join([str(raised.value), repr(raised.value), *(str(w.message) for w in caught)])
        assert not [word for word in words_in(content) if word in told.replace(str(path), "")]


@pytest.mark.parametrize("name", ["passwords", "a table of people", "JSON", "quotes"])
def test_no_command_quotes_a_file_that_is_no_trace(tmp_path, name):
    path = secret(tmp_path, SECRETS[name])
    for command, code in (
        (["trace", "check"], 1),
        (["trace", "show"], 2),
        (["trace", "import"], 2),
        (["trace", "import", "series", "--out", tmp_path / "out.csv"], 2),
        (["replay"], 2),
    ):
        said = within(*command, path, code=code).replace(str(path), "")
        assert not [word for word in words_in(SECRETS[name]) if word in said]


def test_a_slip_in_an_honest_file_is_quoted_as_ever(tmp_path):
    path = tmp_path / "loads.csv"
    rows = [f"2026-01-05T00:0{m}:00Z,milan,{m}\n" for m in range(6)]
    rows[3] = "2026-01-05T00:03:00Z,milan,tree\n"
    path.write_text("time,node,arrivals\n" + "".join(rows))
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    (fault,) = caught.value.faults
    assert (fault.line, fault.column, fault.value) == (5, "arrivals", "tree")
    with pytest.raises(TraceError) as caught:
        import_table(path, node_column="node", arrivals="arrivals")
    (fault,) = caught.value.faults
    assert (fault.line, fault.column, fault.value) == (5, "arrivals", "tree")
    path.write_text("Zeit,node,arivals\n" + "".join(rows))
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    (fault,) = caught.value.faults
    assert (fault.line, fault.value) == (1, "Zeit,node,arivals")


# --- Limits of imports ---------------------------------------------------------------------------


def test_the_limits_of_imports_can_be_raised(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("time,value\n" + "".join(f"{1767571200 + 60 * i},1\n" for i in range(9)))
    for read in (import_table, import_series, import_trace):
        assert len(read(path, max_cells=100).trace) == 9
        with refused(TraceError, 99, "max_cells="):
            read(path, max_cells=99)
        with refused(TraceError, 50, "max_bytes="):
            read(path, max_bytes=50)
    said = within("trace", "import", path, "--max-cells", 99, code=2)
    shown(said, "--max-cells")
    out = tmp_path / "out.csv"
    within("trace", "import", "series", path, "--max-cells", 100, "--out", out)
    assert len(read_trace(out)) == 9
