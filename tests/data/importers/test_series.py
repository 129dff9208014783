"""Importing timestamp,value files: counts kept; what is trimmed, filled or left out is told."""

from __future__ import annotations

import pytest

from corral.data import import_series, read_trace, write_trace
from corral.errors import TraceError
from support.import_files import MIDNIGHT, clock, series, write
from support.messages import refused, shown
from support.traces import public_traces


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
    before, after = found.notes
    shown(before, "left: 1 step", "1 request before")
    shown(after, "right: 1 step", "8 requests after")


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
    (note,) = found.notes
    shown(note, "a: 2 missing", f"gaps={gaps!r}")


def test_gaps_are_refused_unless_a_rule_is_given(tmp_path):
    path = series(tmp_path, "a.csv", [10, None, 3, 17, 20])
    with refused(
        TraceError,
        "a.csv:3",
        "'2026-01-05T00:10:00Z'",
        600,
        300,
        "gaps='zero'",
        "'previous'",
        "'interpolate'",
    ):
        import_series(path)


def test_steps_are_summed_in_whole_multiples_and_the_rest_told(tmp_path):
    found = import_series(series(tmp_path, "a.csv", [1, 2, 3, 4, 5]), step=600)
    assert found.trace.arrivals[:, 0].tolist() == [3, 7]
    assert found.trace.step == 600
    shown(found.notes[0], "1 step", "300 s", "5 requests")
    with refused(TraceError, "step=400", 300):
        import_series(tmp_path / "a.csv", step=400)


def test_files_with_different_steps_need_a_step(tmp_path):
    a = series(tmp_path, "a.csv", [1, 2, 3, 4, 5, 6])
    b = series(tmp_path, "b.csv", [10, 20, 30], step=10)
    with refused(TraceError, "[300, 600]", "step="):
        import_series([a, b])
    assert import_series([a, b], step=600).trace.arrivals.tolist() == [[3, 10], [7, 20], [11, 30]]


def test_zones_and_seconds_since_1970(tmp_path):
    local = write(tmp_path, "a.csv", "t,v", "1995-07-01 00:00,5", "1995-07-01 00:01,6")
    assert import_series(local, zone="-04:00").trace.times.tolist() == [804571200, 804571260]
    assert import_series(local).trace.times[0] == 804571200 - 4 * 3600
    unix = write(tmp_path, "b.csv", "t,v", "804571200,5", "804571260,6")
    assert import_series(unix).trace == import_series(local, zone="-0400", names=["b"]).trace
    with refused(ValueError, "zone='EST'", "-04:00"):
        import_series(local, zone="EST")


def test_columns_are_chosen_by_name(tmp_path):
    path = write(tmp_path, "a.csv", "x,hits,when", f"9,1,{clock(0)}", f"9,2,{clock(1)}")
    trace = import_series(path, time_column="when", column="hits").trace
    assert trace.arrivals[:, 0].tolist() == [1, 2]
    with refused(TraceError, "'hit'", "x, hits, when", "'hits'"):
        import_series(path, time_column="when", column="hit")


def test_unsorted_rows_fractions_and_a_missing_line_end_are_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"t,v\n{clock(1)},2.5\n{clock(0)},1.2\n{clock(2)},3.0")
    found = import_series(path, round_values=True)
    assert found.trace.arrivals[:, 0].tolist() == [1, 2, 3]
    cut, rounded, unsorted = found.notes
    shown(cut, "line end")
    shown(rounded, "2 fractions")
    shown(unsorted, "sorted")


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
    ("rows", "values"),
    [
        (["t,v", f"{clock(0)},1.5", f"{clock(5)},1"], ("a.csv:2", "'v'", "'1.5'", "--round")),
        (
            ["t,v", f"{clock(0)},0." + "9" * 30, f"{clock(5)},1"],
            ("a.csv:2", "0." + "9" * 30, "--round"),
        ),
        (["t,v", f"{clock(0)},-1", f"{clock(5)},1"], ("a.csv:2", "'v'", "'-1'")),
        (["t,v", f"{clock(0)},nan", f"{clock(5)},1"], ("a.csv:2", "'v'", "'nan'")),
        (["t,v", f"{clock(0)},9999999999.0", f"{clock(5)},1"], ("a.csv:2", "'9999999999.0'")),
        (["t,v", "soon,1", f"{clock(5)},1"], ("a.csv:2", "'t'", "'soon'", "ISO-8601")),
        (["t,v", "1767571200000,1"], ("a.csv:2", "'1767571200000'", 1970, 9, 10)),
        (["t,v", f"{clock(0)}.5,1", f"{clock(5)},1"], ("a.csv:2", "'2026-01-05 00:00:00.5'")),
        (["t,v", f"{clock(0)},1,2", f"{clock(5)},1"], ("a.csv:2", "3 fields", 2)),
        (["t,v", f"{clock(0)},1", f"{clock(0)},1"], ("a.csv:3", "'2026-01-05T00:00:00Z'", "twice")),
        (
            ["t,v", *(f"{clock(m)},1" for m in (0, 5, 10, 12, 17))],
            ("a.csv:5", "120 s", "300 s"),
        ),
        (["t,v", f"{clock(0)},1", "", f"{clock(5)},1"], ("a.csv:3", "blank")),
        ([f"{clock(0)},1", f"{clock(5)},1"], ("a.csv:1", "header")),
        (["t,v", f'"{clock(0)},1', f"{clock(5)},1"], ("a.csv:2", "quotes")),
        (["t,v"], ("a.csv", "rows")),
        (["t,v", f"{clock(0)},1"], ("a.csv", "single")),
        (
            ["t,v", "1995-07-01,1", "1995-07-01T00:00:01,1", "2026-01-01,1"],
            ("11,141 days", "1995-07-01T00:00:01Z", "2026-01-01T00:00:00Z"),
        ),
        (["t"], ("a.csv:1", "column")),
        ([], ("a.csv", "empty")),
        (["t,v", f"{clock(0)},0", f"{clock(5)},0"], ("requests",)),
    ],
)
def test_faults_of_a_series_have_their_place(tmp_path, rows, values):
    with refused(TraceError, *values):
        import_series(write(tmp_path, "a.csv", *rows))


# --- The public files themselves ------------------------------------------------------------------


def test_the_load_balancer_has_eight_gaps():
    path = public_traces() / "nab" / "elb_request_count_8c0756.csv"
    with refused(TraceError, "8 steps", "gaps='zero'"):
        import_series(path)
    found = import_series(path, gaps="interpolate", capacity="1.25x")
    assert found.trace.arrivals.shape == (4040, 1)
    assert found.trace.arrivals.max() == 656
    shown(" ".join(found.notes), "8 missing steps")


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


def test_a_time_twice_is_never_told_to_be_thrown_away_unseen(tmp_path):
    rows = ["2026-01-05 00:00:00,3", "2026-01-05 00:05:00,4", "2026-01-05 00:05:00,{}"]
    for other, values in (("4", ("a.csv:4", "remove")), ("9", ("a.csv:4", "servers"))):
        path = write(tmp_path, "a.csv", "time,value", *(row.format(other) for row in rows))
        with refused(TraceError, *values):
            import_series(path)
    path = write(tmp_path, "b.csv", "time,value,ho{st", *(row.format(9) + ",a" for row in rows))
    with refused(TraceError, "b.csv:4", "(ho{st)", "--node-column NAME"):
        import_series(path)


def test_further_columns_are_never_dropped_in_silence(tmp_path):
    rows = [f"{clock(5 * i)},{i},{2 * i},x" for i in range(3)]
    path = write(tmp_path, "wide.csv", "time,a,b,remark", *rows)
    with refused(TraceError, "wide.csv:1", "(b)", "column=", "corral trace import"):
        import_series(path)
    found = import_series(path, column="b")
    assert found.trace.arrivals[:, 0].tolist() == [0, 2, 4]
    shown("\n".join(found.notes), "wide.csv", "a, remark")
