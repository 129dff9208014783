"""Importing public formats: counts kept, everything trimmed, filled or left out told."""

from __future__ import annotations

import gzip
import hashlib

import numpy as np
import pytest

from corral.data import (
    import_access_log,
    import_azure_functions,
    import_requests,
    import_series,
    read_trace,
    write_trace,
)
from corral.errors import TraceError
from support.traces import public_traces


def write(folder, name, *rows, end="\n"):
    path = folder / name
    path.write_text("".join(row + end for row in rows))
    return path


def clock(minute: int) -> str:
    return f"2026-01-05 {minute // 60:02d}:{minute % 60:02d}:00"


def series(folder, name, counts, start=0, step=5):
    """A timestamp,value file; a None count leaves the row out."""
    rows = [f"{clock(start + step * i)},{n}" for i, n in enumerate(counts) if n is not None]
    return write(folder, name, "timestamp,value", *rows)


MIDNIGHT = 1767571200  # 2026-01-05


# Series


def test_a_series_becomes_a_node(tmp_path):
    found = import_series(series(tmp_path, "web.csv", [1, "2.0", "3."]))
    assert found.trace.nodes == ("web",)
    assert found.trace.arrivals.tolist() == [[1], [2], [3]]
    assert found.trace.times.tolist() == [MIDNIGHT, MIDNIGHT + 300, MIDNIGHT + 600]
    assert (found.trace.clock, found.trace.capacity, found.notes) == ("utc", None, ())


def test_several_files_are_cut_to_their_common_time_and_it_is_told(tmp_path):
    a = series(tmp_path, "a.csv", [1, 2, 3, 4])
    b = series(tmp_path, "b.csv", [5, 6, 7, 8], start=5)
    found = import_series([a, b], names=["left", "right"])
    assert found.trace.nodes == ("left", "right")
    assert found.trace.arrivals.tolist() == [[2, 5], [3, 6], [4, 7]]
    assert found.notes == (
        "left: 1 steps with 1 requests before the time that all nodes have in common were trimmed",
        "right: 1 steps with 8 requests after the time that all nodes have in common were trimmed",
    )


@pytest.mark.parametrize(
    ("gaps", "counts"),
    [
        ("zero", [10, 0, 0, 17, 20]),
        ("previous", [10, 10, 10, 17, 20]),
        ("interpolate", [10, 12, 15, 17, 20]),
    ],
)
def test_gaps_are_filled_by_rule_and_counted(tmp_path, gaps, counts):
    path = series(tmp_path, "a.csv", [10, None, None, 17, 20])
    found = import_series(path, gaps=gaps)
    assert found.trace.arrivals[:, 0].tolist() == counts
    assert found.notes == (f"a: 2 missing steps were filled (gaps={gaps!r})",)


def test_gaps_are_refused_unless_a_rule_is_given(tmp_path):
    path = series(tmp_path, "a.csv", [10, None, 3, 17, 20])
    with pytest.raises(TraceError, match=r"a\.csv:3: .*1 steps are missing.*gaps='zero'"):
        import_series(path)


def test_steps_are_summed_in_whole_multiples_and_the_rest_told(tmp_path):
    found = import_series(series(tmp_path, "a.csv", [1, 2, 3, 4, 5]), step=600)
    assert found.trace.arrivals[:, 0].tolist() == [3, 7]
    assert found.trace.step == 600
    assert "the last 1 steps of 300 s with 5 requests do not fill a step of 600 s" in found.notes[0]
    with pytest.raises(TraceError, match="no multiple of the file's own step of 300"):
        import_series(tmp_path / "a.csv", step=400)


def test_files_with_different_steps_need_a_step(tmp_path):
    a = series(tmp_path, "a.csv", [1, 2, 3, 4, 5, 6])
    b = series(tmp_path, "b.csv", [10, 20, 30], step=10)
    with pytest.raises(TraceError, match=r"different steps \(\[300, 600\] seconds\): give step="):
        import_series([a, b])
    assert import_series([a, b], step=600).trace.arrivals.tolist() == [[3, 10], [7, 20], [11, 30]]


def test_zones_and_seconds_since_1970(tmp_path):
    local = write(tmp_path, "a.csv", "t,v", "1995-07-01 00:00,5", "1995-07-01 00:01,6")
    assert import_series(local, zone="-04:00").trace.times.tolist() == [804571200, 804571260]
    assert import_series(local).trace.times[0] == 804571200 - 4 * 3600
    unix = write(tmp_path, "b.csv", "t,v", "804571200,5", "804571260,6")
    assert import_series(unix).trace == import_series(local, zone="-0400", names=["b"]).trace
    with pytest.raises(ValueError, match="zone='EST' must be"):
        import_series(local, zone="EST")


def test_columns_are_chosen_by_name(tmp_path):
    path = write(tmp_path, "a.csv", "x,hits,when", f"9,1,{clock(0)}", f"9,2,{clock(1)}")
    trace = import_series(path, time_column="when", column="hits").trace
    assert trace.arrivals[:, 0].tolist() == [1, 2]
    with pytest.raises(TraceError, match=r"no column 'hit', .* did you mean 'hits'"):
        import_series(path, time_column="when", column="hit")


def test_unsorted_rows_fractions_and_a_missing_line_end_are_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"t,v\n{clock(1)},2.5\n{clock(0)},1.2\n{clock(2)},3.0")
    found = import_series(path, round_values=True)
    assert found.trace.arrivals[:, 0].tolist() == [1, 2, 3]
    assert [note.split(": ")[1] for note in found.notes] == [
        "the last line has no line end; it was taken as complete",
        "2 fractions were rounded",
        "rows were not in order of time; they were sorted",
    ]


def test_files_of_one_node_are_joined(tmp_path):
    a = series(tmp_path, "day1.csv", [1, 2])
    b = series(tmp_path, "day2.csv", [3, 4], start=10)
    found = import_series([a, b], names=["web", "web"])
    assert found.trace.nodes == ("web",)
    assert found.trace.arrivals[:, 0].tolist() == [1, 2, 3, 4]


def test_capacity_is_set_as_asked(tmp_path):
    path = series(tmp_path, "a.csv", [10, 20, 30])
    assert import_series(path, capacity="1.5x").trace.capacity.tolist() == [[30]] * 3
    assert import_series(path, capacity=7).trace.capacity.tolist() == [[7]] * 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["t,v", f"{clock(0)},1.5", f"{clock(5)},1"], r"a\.csv:2: column 'v': '1\.5': a fraction"),
        (["t,v", f"{clock(0)},0." + "9" * 30, f"{clock(5)},1"], r"a\.csv:2: .*a fraction"),
        (["t,v", f"{clock(0)},-1", f"{clock(5)},1"], r"a\.csv:2: column 'v': '-1': negative"),
        (["t,v", f"{clock(0)},nan", f"{clock(5)},1"], r"a\.csv:2: .*missing value"),
        (["t,v", f"{clock(0)},9999999999.0", f"{clock(5)},1"], r"a\.csv:2"),
        (["t,v", "soon,1", f"{clock(5)},1"], r"a\.csv:2: column 't': 'soon': not a time"),
        (["t,v", "1767571200000,1"], r"a\.csv:2: .*seconds since 1970, which have 9 or 10 digits"),
        (["t,v", f"{clock(0)}.5,1", f"{clock(5)},1"], r"a\.csv:2: .*fraction of a second"),
        (["t,v", f"{clock(0)},1,2", f"{clock(5)},1"], r"a\.csv:2: .*3 fields, the header has 2"),
        (["t,v", f"{clock(0)},1", f"{clock(0)},1"], r"a\.csv:3: .*stands there twice"),
        (
            ["t,v", *(f"{clock(m)},1" for m in (0, 5, 10, 12, 17))],
            r"a\.csv:5: .*120 s after the row before, no multiple of the usual 300 s",
        ),
        (["t,v", f"{clock(0)},1", "", f"{clock(5)},1"], r"a\.csv:3: blank line"),
        ([f"{clock(0)},1", f"{clock(5)},1"], r"a\.csv:1: .*a header is needed"),
        (["t,v", f'"{clock(0)},1', f"{clock(5)},1"], r"a\.csv:2: .*quotes"),
        (["t,v"], r"a\.csv: no rows"),
        (["t,v", f"{clock(0)},1"], "single row"),
        (["t,v", "1995-07-01,1", "1995-07-01T00:00:01,1", "2026-01-01,1"], "steps are missing"),
        (["t"], r"a\.csv:1: another column is needed"),
        ([], "empty"),
        (["t,v", f"{clock(0)},0", f"{clock(5)},0"], "no requests at all"),
    ],
)
def test_faults_of_a_series_have_their_place(tmp_path, rows, message):
    with pytest.raises(TraceError, match=message):
        import_series(write(tmp_path, "a.csv", *rows))


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


# Requests

REQUESTS = (
    "TIMESTAMP,ContextTokens",
    "2026-01-05 00:00:09.9999999,10",
    "2026-01-05 00:00:10.0000000,10",
    "2026-01-05 00:00:19.9,10",
    "2026-01-05 00:00:40,10",
)


def test_requests_are_counted_into_steps(tmp_path):
    found = import_requests(write(tmp_path, "code.csv", *REQUESTS, end="\r\n"), step=10)
    assert found.trace.nodes == ("code",)
    assert found.trace.times[0] == MIDNIGHT
    assert found.trace.arrivals[:, 0].tolist() == [1, 2, 0, 0, 1]
    assert found.notes[0] == "code: 2 of 5 steps have no request"


def test_two_files_of_requests_are_cut_and_the_loss_is_told(tmp_path):
    a = write(tmp_path, "a.csv", *REQUESTS)
    b = write(tmp_path, "b.csv", "t", f"{MIDNIGHT + 15}.25", f"{MIDNIGHT + 38}")
    found = import_requests([a, b], step=10)
    assert found.trace.arrivals.tolist() == [[2, 1], [0, 0], [0, 1]]
    assert found.notes[0].startswith("a: 1 steps with 1 requests before")
    assert found.notes[1].startswith("a: 1 steps with 1 requests after")


def test_a_column_may_name_the_node(tmp_path):
    rows = ["when,who", f"{clock(0)},b", f"{clock(1)},a", f"{clock(3)},b"]
    trace = import_requests(write(tmp_path, "x.csv", *rows), step=60, node_column="who").trace
    assert trace.nodes == ("b", "a")
    assert trace.arrivals.tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]


def test_faults_of_requests_have_their_place(tmp_path):
    for row, message in (
        ("noon,a", r"x\.csv:3: column 'when': 'noon': not a time"),
        (f"{clock(0)},", r"x\.csv:3: column 'who': '': empty node name"),
        (f"{clock(0)}", r"x\.csv:3: .*1 fields"),
    ):
        path = write(tmp_path, "x.csv", "when,who", f"{clock(0)},a", row)
        with pytest.raises(TraceError, match=message):
            import_requests(path, step=60, node_column="who")
    with pytest.raises(TraceError, match="no rows below the header"):
        import_requests(write(tmp_path, "x.csv", "when"), step=60)


# Access logs

COMMON = '10.0.0.1 - - [05/Jan/2026:00:00:{:02d} +0000] "GET / HTTP/1.0" 200 2326'
COMBINED = '::1 - ann lee [04/Jan/2026:20:01:00 -0400] "GET /\\"x\\" HTTP/2" 304 - "-" "Agent (x)"'


def test_common_and_combined_logs_are_counted(tmp_path):
    path = write(tmp_path, "access.log", *(COMMON.format(s) for s in (0, 5, 59)), COMBINED)
    found = import_access_log(path, step=60)
    assert found.trace.nodes == ("access",)
    assert found.trace.times.tolist() == [MIDNIGHT, MIDNIGHT + 60]
    assert found.trace.arrivals[:, 0].tolist() == [3, 1]


def test_packed_logs_and_rotated_parts(tmp_path):
    new = write(tmp_path, "access.log", COMBINED)
    old = tmp_path / "access.log.1.gz"
    old.write_bytes(gzip.compress((COMMON.format(7) + "\n").encode()))
    found = import_access_log([old, new], step=60, names=["web", "web"])
    assert found.trace.nodes == ("web",)
    assert found.trace.arrivals[:, 0].tolist() == [1, 1]


MALFORMED = [
    "",
    "not a log line",
    COMMON.format(7).replace("Jan", "Foo"),
    COMMON.format(7).replace("05/", "32/"),
    COMMON.format(7).replace("00:00:07", "25:00:07"),
    COMMON.format(7).replace(" 200 2326", ""),
    COMMON.format(7).replace('"', ""),
    COMMON.format(7)[:40],
]


@pytest.mark.parametrize("bad", MALFORMED)
def test_malformed_lines_are_refused_or_told_never_dropped_in_silence(tmp_path, bad):
    path = write(tmp_path, "a.log", *[COMMON.format(5)] * 9, bad)
    with pytest.raises(TraceError, match=r"a\.log:10: .*\n.*1 of 10 lines are malformed"):
        import_access_log(path, step=60)
    for allowed in ({"max_malformed": 0.1}, {"skip_malformed": True}):
        found = import_access_log(path, step=60, **allowed)
        assert found.trace.arrivals.sum() == 9
        told = "a.log: 1 of 10 lines are malformed and were left out, the first is line 10"
        assert found.notes[0] == told


def test_odd_bytes_in_requests_do_no_harm(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(COMMON.format(5).replace("/ ", "/\udcff ").encode(errors="surrogateescape"))
    assert import_access_log(path, step=60).trace.arrivals.sum() == 1


def test_a_log_of_nothing_but_nonsense_is_refused_even_when_skipping(tmp_path):
    with pytest.raises(TraceError, match="no line is in the Common or Combined"):
        import_access_log(write(tmp_path, "a.log", "x", "y"), step=60, skip_malformed=True)


# Azure Functions

AZURE_HEADER = "HashOwner,HashApp,HashFunction,Trigger," + ",".join(map(str, range(1, 1441)))


def azure(folder, name, functions):
    """A day: (app, function) -> {minute from 1: count}."""
    rows = [
        f"o,{app},{function},http," + ",".join(str(counts.get(m, 0)) for m in range(1, 1441))
        for (app, function), counts in functions.items()
    ]
    return write(folder, name, AZURE_HEADER, *rows)


def drawn(key: str, nodes: int) -> int:
    return int(hashlib.sha256(key.encode()).hexdigest()[:16], 16) % nodes


def test_azure_functions_are_grouped_by_a_stable_hash(tmp_path):
    one = azure(tmp_path, "d01.csv", {("a1", "f1"): {1: 5}, ("a2", "f2"): {1440: 7}})
    two = azure(tmp_path, "d02.csv", {("a1", "f3"): {2: 9}, ("a3", "f4"): {2: 1}})
    found = import_azure_functions([one, two], nodes=2)
    expected = np.zeros((2880, 2), dtype=int)
    for minute, app, count in ((0, "a1", 5), (1439, "a2", 7), (1441, "a1", 9), (1441, "a3", 1)):
        expected[minute, drawn(app, 2)] += count
    assert found.trace.arrivals.tolist() == expected.tolist()
    assert expected.any(axis=0).all()  # the apps above fall onto both nodes
    assert found.trace.times[:2].tolist() == [1563148800, 1563148860]  # 2019-07-15
    by_function = import_azure_functions([one, two], nodes=2, by="function").trace
    assert by_function.arrivals[0, drawn("f1", 2)] == 5
    assert by_function.arrivals.sum() == expected.sum()


def test_azure_functions_of_the_busiest_tell_what_is_left_out(tmp_path):
    day = {("a1", "f1"): {1: 5}, ("a2", "f2"): {1: 7}, ("a2", "f3"): {2: 1}, ("a3", "f4"): {3: 2}}
    found = import_azure_functions(azure(tmp_path, "d.csv", day), nodes=2, pick="top", step=300)
    assert found.trace.nodes == ("a2", "a1")
    assert found.trace.arrivals[0].tolist() == [8, 5]
    assert found.trace.arrivals.shape == (288, 2)
    assert "2 of 3 were picked; they carry 13 of 15 invocations" in found.notes[0]


def test_faults_of_azure_functions_have_their_place(tmp_path):
    path = azure(tmp_path, "d.csv", {("a", "f"): {3: "x", 4: 2**40}})
    with pytest.raises(TraceError, match=r"d\.csv:2: column '3': 'x': not a whole number"):
        import_azure_functions(path, nodes=1)
    path = write(tmp_path, "d.csv", AZURE_HEADER.replace("HashApp", "App"))
    with pytest.raises(TraceError, match=r"d\.csv:1: the header must be HashOwner"):
        import_azure_functions(path, nodes=1)
    path = write(tmp_path, "d.csv", AZURE_HEADER, "o,,f,http" + ",1" * 1440)
    with pytest.raises(TraceError, match=r"d\.csv:2: column 'HashApp': '': empty"):
        import_azure_functions(path, nodes=1)


# The public files themselves


def test_the_load_balancer_has_eight_gaps():
    path = public_traces() / "nab" / "elb_request_count_8c0756.csv"
    with pytest.raises(TraceError, match="8 steps are missing"):
        import_series(path)
    found = import_series(path, gaps="interpolate", capacity="1.25x")
    assert found.trace.arrivals.shape == (4040, 1)
    assert found.trace.arrivals.max() == 656
    assert "8 missing steps were filled" in " ".join(found.notes)


def test_twitter_is_three_aligned_nodes(tmp_path):
    folder = public_traces() / "nab"
    paths = [folder / f"Twitter_volume_{name}.csv" for name in ("AAPL", "AMZN", "GOOG")]
    found = import_series(paths, names=["AAPL", "AMZN", "GOOG"])
    assert found.trace.arrivals.shape == (15831, 3)
    assert found.trace.arrivals[0].tolist() == [104, 57, 35]
    assert [note.partition(":")[0] for note in found.notes] == ["AAPL", "GOOG"]  # trimmed
    write_trace(found.trace, tmp_path / "twitter.csv.gz")
    assert read_trace(tmp_path / "twitter.csv.gz") == found.trace


def test_the_web_server_month_is_whole():
    path = public_traces() / "nasa_http_1995" / "nasa_http_jul1995_per_minute.csv"
    found = import_series(path, zone="-04:00", step=300)
    assert found.notes == ()
    assert found.trace.arrivals.shape == (27 * 288, 1)
    counts = [int(line.rpartition(",")[2]) for line in path.read_text().splitlines()[1:]]
    assert found.trace.arrivals.sum() == sum(counts)


def test_language_model_requests_keep_their_number():
    folder = public_traces() / "azure_llm_2023"
    paths = [folder / f"AzureLLMInferenceTrace_{name}.csv" for name in ("code", "conv")]
    for path in paths:
        one = import_requests(path, step=60)
        assert one.trace.arrivals.sum() == path.read_bytes().count(
            b"\n"
        )  # header, no last line end
        assert any("taken as complete" in note for note in one.notes)
    both = import_requests(paths, step=60, names=["code", "conv"])
    trimmed = [note.split(" steps with ")[1] for note in both.notes if "trimmed" in note]
    lost = sum(int(note.split(" requests")[0].replace(",", "")) for note in trimmed)
    total = sum(path.read_bytes().count(b"\n") for path in paths)
    assert both.trace.arrivals.sum() + lost == total
