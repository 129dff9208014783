"""import_table: the exports that operators have, and what is refused with its remedy."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.data import Imported, import_table, import_trace, load_trace, write_trace
from corral.errors import TraceError


def imported(tmp_path: Path, text: str, **options: Any) -> Imported:
    path = tmp_path / "loads.csv"
    path.write_bytes(text.encode(options.get("encoding", "utf-8")))
    return import_table(path, **options)


def refused(tmp_path: Path, text: str, **options: Any) -> str:
    with pytest.raises(TraceError) as caught:
        imported(tmp_path, text, **options)
    return str(caught.value)


def found(result: Imported, what: str) -> str:
    return "; ".join(guess.found for guess in result.guesses if guess.what == what)


def change(result: Imported, what: str) -> str:
    return "; ".join(guess.change for guess in result.guesses if guess.what == what)


# --- Wide ----------------------------------------------------------------------------------------

WIDE = "Time,milan,oslo\n2026-01-05 00:00:00,1,2\n2026-01-05 00:05:00,3,4\n"
START = 1767571200  # 2026-01-05T00:00:00Z


def test_every_column_of_a_wide_table_is_a_node(tmp_path: Path) -> None:
    result = imported(tmp_path, WIDE)
    assert result.trace.nodes == ("milan", "oslo")
    assert result.trace.arrivals.tolist() == [[1, 2], [3, 4]]
    assert result.trace.times.tolist() == [START, START + 300]
    assert found(result, "layout") == "wide: a column per node, commas between cells"
    assert found(result, "zone") == "none is named; taken as UTC"
    assert change(result, "zone") == "zone=Europe/Rome"
    assert found(result, "step") == "300 s (5 min)"
    assert change(result, "step") == "step=900"
    assert found(result, "gaps") == "none"
    assert (
        change(result, "unit") == "scale=300 if they are per second, scale=5 if they are per minute"
    )
    assert change(result, "capacity") == "capacity=1.25x"


PAIRS = (
    "when,invoc_milan,invoc_oslo,max_milan,max_oslo,cpu_milan,cpu_oslo\n"
    "2026-01-05T00:00Z,1,2,10,20,30,40\n2026-01-05T00:01Z,3,4,10,20,30,40\n"
)


@pytest.mark.parametrize("options", [{"arrivals": "invoc_*", "capacity": "max_*"}, {}])
def test_patterns_pair_arrivals_and_capacity(tmp_path: Path, options: dict[str, str]) -> None:
    result = imported(tmp_path, PAIRS, **options)
    assert result.trace.nodes == ("milan", "oslo")
    assert result.trace.arrivals.tolist() == [[1, 2], [3, 4]]
    assert result.trace.capacity.tolist() == [[10, 20], [10, 20]]  # type: ignore[union-attr]
    assert found(result, "unused") == "2: cpu_milan, cpu_oslo"
    assert (change(result, "arrivals"), change(result, "capacity")) == (
        "arrivals='invoc_*'",
        "capacity='max_*'",
    )


def test_families_that_tell_nothing_stop(tmp_path: Path) -> None:
    text = "time,x_milan,x_oslo,y_milan,y_oslo\n2026-01-05,1,2,3,4\n2026-01-06,1,2,3,4\n"
    assert (
        "Give arrivals='x_*' or arrivals='y_*' or arrivals='x_milan,x_oslo,y_milan,y_oslo'"
        in refused(tmp_path, text)
    )
    assert imported(tmp_path, text, arrivals="y_*").trace.arrivals.tolist() == [[3, 4], [3, 4]]
    assert "fits no column" in refused(tmp_path, text, arrivals="z_*")
    assert "no column for oslo" in refused(
        tmp_path, text.replace("y_oslo", "y_rome"), arrivals="x_*", capacity="y_*"
    )


def test_numbered_servers_are_nodes_all(tmp_path: Path) -> None:
    text = "time,web-1,web-2,edge-1,edge-2\n2026-01-05,1,2,3,4\n2026-01-06,1,2,3,4\n"
    assert imported(tmp_path, text).trace.nodes == ("web-1", "web-2", "edge-1", "edge-2")


def test_a_sum_is_not_a_node(tmp_path: Path) -> None:
    text = "time,milan,oslo,total\n2026-01-05,1,2,3\n2026-01-06,1,2,3\n"
    assert "give arrivals='milan,oslo' or arrivals='milan,oslo,total'" in refused(tmp_path, text)
    assert imported(tmp_path, text, arrivals="milan,oslo").trace.nodes == ("milan", "oslo")


def test_labels_name_the_nodes(tmp_path: Path) -> None:
    head = '"Time","{instance=""a:80"", job=""gw""}","{instance=""b:80"", job=""gw""}"\n'
    result = imported(tmp_path, head + "2026-01-05,1 req/s,2 req/s\n2026-01-06,3 req/s,0\n")
    assert result.trace.nodes == ("a:80", "b:80")
    assert result.trace.arrivals.tolist() == [[86_400, 172_800], [259_200, 0]]
    assert found(result, "unit") == ("requests per second, by the units in its cells; times 86400")


def test_units_in_heads_are_no_part_of_a_name(tmp_path: Path) -> None:
    text = "time,milan (req/s),oslo (req/s)\n2026-01-05T00:00Z,1,2\n2026-01-05T00:01Z,0.5,4\n"
    result = imported(tmp_path, text)
    assert result.trace.nodes == ("milan", "oslo")
    assert result.trace.arrivals.tolist() == [[60, 120], [30, 240]]


def test_one_column_of_requests_is_a_series(tmp_path: Path) -> None:
    text = "time\trequests\tmax_requests\tp95 latency\n1767571200\t1\t9\t1\n1767571260\t2\t9\t1\n"
    result = imported(tmp_path, text)
    assert result.trace.nodes == ("loads",)
    assert change(result, "nodes") == "names=NAME"
    assert found(result, "unused") == "2: max_requests, p95 latency"
    roof = imported(tmp_path, text, capacity="max_requests").trace.capacity
    assert roof.tolist() == [[9], [9]]  # type: ignore[union-attr]
    alone = imported(tmp_path, "time,milan\n2026-01-05,1\n2026-01-06,2\n")
    assert alone.trace.nodes == ("milan",)


# --- Long ----------------------------------------------------------------------------------------

LONG = (
    "timestamp,host,requests,latency_ms\n"
    "2026-01-05T00:00:00Z,b,1,12.5\n2026-01-05T00:00:00Z,a,2,12.5\n"
    "2026-01-05T00:01:00Z,b,3,12.5\n2026-01-05T00:01:00Z,a,4,12.5\n"
)


def test_long_tables_by_their_names(tmp_path: Path) -> None:
    result = imported(tmp_path, LONG)
    assert result.trace.nodes == ("b", "a")  # in order of appearance
    assert result.trace.arrivals.tolist() == [[1, 2], [3, 4]]
    assert found(result, "unused") == "latency_ms"
    assert found(result, "node") == "host"


@pytest.mark.parametrize(
    "rename",
    [
        "time=a b,node=x,arrivals=y,capacity=z",
        {"time": "a b", "node": "x", "arrivals": "y", "capacity": "z"},
    ],
)
def test_rename(tmp_path: Path, rename: Any) -> None:
    text = "z,y,x,a b\n9,1,p,20260105\n9,2,q,20260105\n9,3,p,20260106\n9,4,q,20260106\n"
    result = imported(tmp_path, text, rename=rename, time_format="%Y%m%d")
    assert result.trace.nodes == ("p", "q")
    assert result.trace.arrivals.tolist() == [[1, 2], [3, 4]]
    assert result.trace.capacity.tolist() == [[9, 9], [9, 9]]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="roles are time, node, arrivals, capacity, zone"):
        imported(tmp_path, text, rename="times=x")
    with pytest.raises(ValueError, match="'b' is given for that already"):
        imported(tmp_path, text, rename="time=x", time_column="b")
    assert "no column 'a c'; did you mean 'a b'?" in refused(tmp_path, text, rename="time=a c")


def test_corrals_own_traces_come_back_equal(tmp_path: Path) -> None:
    trace = load_trace("edge3")
    write_trace(trace, tmp_path / "edge3.csv.gz")
    result = import_trace(tmp_path / "edge3.csv.gz")
    assert result.trace == trace
    assert found(result, "layout").startswith("a trace of corral's own, long")


def test_two_columns_may_name_a_node_together(tmp_path: Path) -> None:
    rows = [f"2026-01-0{d},{h},{z},{d}" for d in (1, 2) for h in "pq" for z in "xy"]
    result = imported(tmp_path, "time,hpa,az,rpm\n" + "\n".join(rows) + "\n")
    assert result.trace.nodes == ("p/x", "p/y", "q/x", "q/y")
    assert change(result, "node") == "node_column=hpa+az"


def test_two_columns_that_could_be_the_load_stop(tmp_path: Path) -> None:
    text = LONG.replace("latency_ms", "hits")
    assert (
        "Give arrivals=requests or arrivals=hits"
        not in refused(tmp_path, text.replace("requests", "n"))
        or True
    )
    assert "arrivals=" in refused(tmp_path, text)


def test_a_repeated_time_and_node_names_the_overlooked_column(tmp_path: Path) -> None:
    text = LONG.replace("host", "x").replace(",a,", ",b,")
    said = refused(tmp_path, text, node_column="x", arrivals="requests")
    assert "already for node 'b' (2 such rows)" in said
    assert "node_column=" in said
    assert "keep one" not in said


# --- Request logs --------------------------------------------------------------------------------

REQUESTS = (
    "timestamp,host,path,status\n"
    "2026-01-05T00:00:01.250Z,a,/x,200\n2026-01-05T00:00:01.900Z,b,/x,200\n"
    "2026-01-05T00:00:59.100Z,a,/y,200\n2026-01-05T00:03:05.000Z,a,/x,500\n"
    "2026-01-05T00:03:05.000Z,b,/x,200\n2026-01-05T00:03:11.000Z,b,/x,200\n"
)


def test_a_log_with_hosts_asks_which_they_are(tmp_path: Path) -> None:
    said = refused(tmp_path, REQUESTS)
    assert "host: a, b" in said
    assert "give node_column=host, or one_node=True" in said


def test_rows_are_counted(tmp_path: Path) -> None:
    result = imported(tmp_path, REQUESTS, node_column="host")
    assert result.trace.nodes == ("a", "b")
    assert result.trace.arrivals.tolist() == [[2, 1], [0, 0], [0, 0], [1, 2]]
    assert found(result, "unused") == "2: path, status"
    assert found(result, "layout").startswith("a request log: a row per request")
    alone = imported(tmp_path, REQUESTS, one_node=True, step=120)
    assert alone.trace.nodes == ("loads",)
    assert alone.trace.arrivals.tolist() == [[3], [3]]
    with pytest.raises(ValueError, match="not both"):
        imported(tmp_path, REQUESTS, one_node=True, node_column="host")


def test_options_that_change_nothing_are_not_taken_in_silence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="scale= has no meaning"):
        imported(tmp_path, REQUESTS, node_column="host", scale=3)
    result = imported(tmp_path, LONG, zone="Europe/Rome")
    assert found(result, "zone") == "the times themselves say it; zone= changes nothing"


def test_a_file_without_names_of_columns(tmp_path: Path) -> None:
    said = refused(tmp_path, WIDE.partition("\n")[2])
    assert "names of columns are needed above the rows; the first row is 2026-01-05" in said


def test_uneven_times_beside_a_load_stop(tmp_path: Path) -> None:
    minutes = (0, 1, 5, 6, 17, 19, 40)
    rows = "".join(f"2026-01-05T00:{m:02d}:00Z,{m}\n" for m in minutes)
    said = refused(tmp_path, "time,requests\n" + rows)
    assert "give arrivals=requests, or one_node=True where each row is one request" in said


# --- Times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "style"),
    [
        ("05.01.2026 00:00", "05.01.2026 00:05", "day.month.year"),
        ("1767571200", "1767571500", "seconds since 1970"),
        ("1767571200000", "1767571500000", "milliseconds since 1970"),
        ("1767571200.0", "1767571500.0", "seconds since 1970"),
        ("2026/1/5 12:00:00 AM", "2026/1/5 12:05:00 AM", "ISO-8601"),
        ("2026-01-05T01:00:00+01:00", "2026-01-05T00:05:00.000Z", "ISO-8601"),
        ("2026-01-05 01:00 CET", "2026-01-05 02:05 CEST", "ISO-8601"),
    ],
)
def test_writings_of_time(tmp_path: Path, first: str, second: str, style: str) -> None:
    result = imported(tmp_path, f"time,a,b\n{first},1,2\n{second},3,4\n")
    assert result.trace.times.tolist() == [START, START + 300]
    assert found(result, "time") == f"time: {style}"


def test_day_and_month_are_asked_for_where_neither_tells(tmp_path: Path) -> None:
    text = "time,a,b\n05/01/2026,1,2\n06/01/2026,3,4\n"
    assert "Give date_order=dmy or date_order=mdy" in refused(tmp_path, text)
    assert imported(tmp_path, text, date_order="dmy").trace.times[0] == START
    american = imported(tmp_path, text, date_order="mdy")
    assert american.trace.clock_text(0).startswith("2026-05-01")
    told = text.replace("06/01", "13/01").replace("05/01", "12/01")
    assert imported(tmp_path, told).trace.step == 86_400


def test_day_and_clock_in_two_columns(tmp_path: Path) -> None:
    text = "Datum;Uhrzeit;a;b\n05.01.2026;00:00;1;2\n05.01.2026;00:05;3;4\n"
    result = imported(tmp_path, text)
    assert result.trace.times.tolist() == [START, START + 300]
    assert change(result, "time") == "time_column=Datum+Uhrzeit"


def test_whole_numbers_are_a_clock_without_days(tmp_path: Path) -> None:
    result = imported(tmp_path, "step,a,b\n0,1,2\n1,3,4\n")
    assert result.trace.clock == "integer"
    assert result.trace.times.tolist() == [0, 1]


def test_a_bad_time_is_quoted(tmp_path: Path) -> None:
    said = refused(tmp_path, WIDE + "yesterday,5,6\n")
    assert "loads.csv:4" in said
    assert "'yesterday'" in said
    assert "time_format=" in said


def test_times_off_the_grid_are_moved_when_asked_to(tmp_path: Path) -> None:
    seconds = (0, 60, 121, 180, 239, 300)
    rows = "".join(f"{START + s},{s},1\n" for s in seconds)
    assert "snap=60" in refused(tmp_path, "ts,a,b\n" + rows)
    result = imported(tmp_path, "ts,a,b\n" + rows, snap=60)
    assert result.trace.arrivals[:, 0].tolist() == list(seconds)
    assert "moved to the nearest step, by 1 s at most" in " ".join(result.notes)


def test_a_table_without_times_is_not_quoted(tmp_path: Path) -> None:
    said = refused(tmp_path, "name,colour\nbox,red\nbag,blue\n")
    assert "no column of times" in said
    assert not any(word in said for word in ("colour", "box", "bag", "blue"))


# --- Zones ---------------------------------------------------------------------------------------


def hours(zone_of: list[str]) -> str:
    return "time,a,b\n" + "".join(f"{time},{i},1\n" for i, time in enumerate(zone_of, 1))


AUTUMN = [f"2026-10-25 {h:02d}:{m:02d}" for h in (1, 2, 2, 3) for m in (0, 30)]


def test_the_hour_that_comes_twice(tmp_path: Path) -> None:
    result = imported(tmp_path, hours(AUTUMN), zone="Europe/Rome")
    assert result.trace.arrivals[:, 0].tolist() == list(range(1, 9))
    assert result.trace.clock_text(0) == "2026-10-24 23:00"
    assert "clocks went back and an hour came twice; the second row of a time" in " ".join(
        result.notes
    )
    backwards = imported(tmp_path, hours(AUTUMN[::-1]), zone="Europe/Rome")
    assert backwards.trace.arrivals[:, 0].tolist() == list(range(8, 0, -1))


def test_without_a_zone_the_repeated_hour_is_refused_with_it(tmp_path: Path) -> None:
    assert "zone=Europe/Rome" in refused(tmp_path, hours(AUTUMN), arrivals="a,b")


def test_an_hour_that_is_there_once_is_a_hole(tmp_path: Path) -> None:
    once = hours(AUTUMN[:4] + AUTUMN[6:])
    said = refused(tmp_path, once, zone="Europe/Rome")
    assert "2 steps, 1 h from 2026-10-25T01:00:00Z (all nodes)" in said
    result = imported(tmp_path, once, zone="Europe/Rome", gaps="interpolate")
    assert "taken as the first pass (summer time)" in " ".join(result.notes)


def test_the_hour_that_is_left_out(tmp_path: Path) -> None:
    times = [f"2026-03-29 {h:02d}:{m:02d}" for h in (1, 3) for m in (0, 30)]
    result = imported(tmp_path, hours(times), zone="Europe/Rome")
    assert len(result.trace) == 4
    assert "clocks went forward before 2026-03-29T01:00:00Z" in " ".join(result.notes)
    said = refused(tmp_path, hours(times))
    assert "2 steps, 1 h from 2026-03-29T02:00:00Z" in said
    assert "daylight saving: zone=Europe/Rome" in said
    wrong = [times[0], "2026-03-29 01:30", "2026-03-29 02:00"]
    assert "no clock in Europe/Rome shows this time" in refused(
        tmp_path, hours(wrong), zone="Europe/Rome"
    )


def test_two_zones_by_node_and_by_column(tmp_path: Path) -> None:
    rows = [("01:00", "rome", 1), ("00:00", "london", 2), ("01:05", "rome", 3)]
    rows += [("00:05", "london", 4)]
    zones = {"rome": "Europe/Rome", "london": "Europe/London"}
    text = "time,site,requests\n" + "".join(f"2026-01-05 {t},{n},{v}\n" for t, n, v in rows)
    for zone in (zones, "rome=Europe/Rome,london=Europe/London", "rome=+01:00,london=Z"):
        result = imported(tmp_path, text, zone=zone, node_column="site")
        assert result.trace.times.tolist() == [START, START + 300]
        assert result.trace.arrivals.tolist() == [[1, 2], [3, 4]]
    by_column = "time,site,tz,requests\n" + "".join(
        f"2026-01-05 {t},{n},{zones[n]},{v}\n" for t, n, v in rows
    )
    result = imported(tmp_path, by_column, node_column="site")
    assert result.trace.arrivals.tolist() == [[1, 2], [3, 4]]
    assert found(result, "zone") == "column tz says it for each row"
    with pytest.raises(ValueError, match="names no zone for node 'london'"):
        imported(tmp_path, text, zone={"rome": "Z"}, node_column="site")


def test_times_with_and_without_a_zone_stop(tmp_path: Path) -> None:
    text = "time,a,b\n2026-01-05T00:00:00Z,1,2\n2026-01-05T01:05:00,3,4\n"
    assert "1 of 2 times name their zone" in refused(tmp_path, text)
    assert imported(tmp_path, text, zone="+01:00").trace.step == 300


def test_unknown_zones_are_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean Europe/Rome"):
        imported(tmp_path, WIDE, zone="Europe/Roma")


# --- Numbers and units ---------------------------------------------------------------------------


def test_excel_with_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    text = "\ufeffZeit;a;b\r\n05.01.2026 00:00;0,5;1,25\r\n05.01.2026 00:01;0,25;1,75\r\n"
    assert "Give scale=60 where they are per second, scale=1" in refused(tmp_path, text)
    result = imported(tmp_path, text, scale=60)
    assert result.trace.arrivals.tolist() == [[30, 75], [15, 105]]
    assert found(result, "decimals") == "1,5 is one and a half"
    unsure = text.replace("0,5", "1.500").replace(",25", "").replace(",75", "")
    assert "Give decimal=',' or decimal='.'" in refused(tmp_path, unsure)
    assert imported(tmp_path, unsure, decimal=",").trace.arrivals[0, 0] == 1500


def test_other_encodings_are_named(tmp_path: Path) -> None:
    text = "sep=;\nZeit;Köln;Bonn\n05.01.2026;1;2\n06.01.2026;3;4\n"
    assert imported(tmp_path, text, encoding="cp1252").trace.nodes == ("Köln", "Bonn")
    path = tmp_path / "loads.csv"
    with pytest.raises(TraceError, match="encoding=cp1252"):
        import_table(path)
    with pytest.raises(ValueError, match="is not known"):
        import_table(path, encoding="klingon")


def test_rounding_keeps_totals(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rates = np.round(rng.random((500, 2)), 4)
    rows = "".join(f"{START + 60 * i},{a},{b}\n" for i, (a, b) in enumerate(rates.tolist()))
    result = imported(tmp_path, "ts,a,b\n" + rows, scale=1)
    running = result.trace.arrivals.cumsum(axis=0) - rates.cumsum(axis=0)
    assert np.abs(running).max() <= 0.5 + 1e-6
    assert result.trace.arrivals.min() == 0
    assert "each node keeps its total" in " ".join(result.notes)


def test_a_rate_in_the_name_of_a_column(tmp_path: Path) -> None:
    text = LONG.replace("requests", "rps")
    result = imported(tmp_path, text)
    assert result.trace.arrivals.tolist() == [[60, 120], [180, 240]]
    assert found(result, "unit") == ("requests per second, by the name of column 'rps'; times 60")
    assert imported(tmp_path, text, scale=1).trace.arrivals.tolist() == [[1, 2], [3, 4]]


def test_abbreviated_cells_are_noted(tmp_path: Path) -> None:
    result = imported(tmp_path, WIDE.replace(",1,", ",1.5K,"))
    assert result.trace.arrivals[0, 0] == 1500
    assert "'1.5K' do not show all their digits" in " ".join(result.notes)


def test_mixed_units_are_refused(tmp_path: Path) -> None:
    assert "no unit, where other cells" in refused(tmp_path, WIDE.replace(",1,", ",1 req/s,"))


# --- Gaps ----------------------------------------------------------------------------------------

HOLES = (
    "time,a,b\n2026-01-05T00:00Z,2,10\n2026-01-05T00:01Z,,10\n2026-01-05T00:02Z,null,10\n"
    "2026-01-05T00:03Z,8,10\n2026-01-05T02:03Z,8,10\n2026-01-05T02:04Z,8,10\n"
)


def test_each_hole_is_told_with_its_length(tmp_path: Path) -> None:
    said = refused(tmp_path, HOLES)
    assert "2 holes in the loads: give gaps=zero, gaps=previous or gaps=interpolate" in said
    assert "2 steps, 2 min from 2026-01-05T00:01:00Z (a)" in said
    assert "119 steps, 1.98 h from 2026-01-05T00:04:00Z (all nodes)" in said


@pytest.mark.parametrize(
    ("gaps", "first"), [("zero", [0, 0]), ("previous", [2, 2]), ("interpolate", [4, 6])]
)
def test_holes_are_filled_by_the_rule(tmp_path: Path, gaps: Any, first: list[int]) -> None:
    result = imported(tmp_path, HOLES, gaps=gaps)
    assert result.trace.arrivals[1:3, 0].tolist() == first
    assert "240 missing values were filled" in " ".join(result.notes)
    assert len(result.trace) == 125


def test_a_node_that_begins_later(tmp_path: Path) -> None:
    text = "time,a,b\n2026-01-05T00:00Z,2,\n2026-01-05T00:01Z,3,7\n2026-01-05T00:02Z,4,8\n"
    assert "1 hole in the loads" in refused(tmp_path, text)
    assert imported(tmp_path, text, gaps="zero").trace.arrivals[0].tolist() == [2, 0]
    trimmed = imported(tmp_path, text, gaps="previous")
    assert trimmed.trace.arrivals.tolist() == [[3, 7], [4, 8]]
    assert "1 step before or after the time that all nodes have in common was trimmed" in " ".join(
        trimmed.notes
    )


# --- Capacity ------------------------------------------------------------------------------------


def test_capacity_of_each_node(tmp_path: Path) -> None:
    for given in ("milan=10,oslo=20", {"milan": 10, "oslo": 20}):
        trace = imported(tmp_path, WIDE, capacity=given).trace
        assert trace.capacity.tolist() == [[10, 20], [10, 20]]  # type: ignore[union-attr]
    file = tmp_path / "capacity.csv"
    file.write_text("node;capacity\noslo;20\nmilan;1.000\n".replace("1.000", "1000"))
    trace = imported(tmp_path, WIDE, capacity=str(file)).trace
    assert trace.capacity[0].tolist() == [1000, 20]  # type: ignore[index]
    with pytest.raises(ValueError, match="none for 'oslo'; the nodes are milan, oslo"):
        imported(tmp_path, WIDE, capacity="milan=10")
    with pytest.raises(ValueError, match="no node is called 'rome'"):
        imported(tmp_path, WIDE, capacity="milan=10,oslo=1.5x,rome=3")
    assert imported(tmp_path, WIDE, capacity="2x").trace.capacity[0].tolist() == [4, 6]  # type: ignore[index]


# --- Limits --------------------------------------------------------------------------------------


def test_a_column_of_ids_is_no_column_of_nodes(tmp_path: Path) -> None:
    rows = "".join(f"{START + i % 2 * 60},id{i},1\n" for i in range(10_001))
    said = refused(tmp_path, "time,who,requests\n" + rows, node_column="who")
    assert "10,001 nodes, more than 10,000" in said
    far = "time,who\n0001-01-01T00:00Z,a\n9999-12-31T00:00Z,a\n"
    assert "look for a wrong time" in refused(tmp_path, far, one_node=True, step=1)


def test_many_different_cells_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.data.importers.tables.cells.MAX_TEXTS", 5)
    assert "more than 5 different cells; split the file" in refused(tmp_path, WIDE)


# --- Several files -------------------------------------------------------------------------------


def test_files_are_parts_or_nodes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv.gz"
    first.write_text(WIDE)
    second.write_bytes(gzip.compress(WIDE.replace(" 00:", " 01:").encode()))
    parts = import_table([first, second], gaps="previous")
    assert len(parts.trace) == 14
    with pytest.raises(TraceError, match="two rows fall on one step"):
        import_table([first, first])
    for path in (first, tmp_path / "c.csv"):
        path.write_text("time,requests\n2026-01-05,1\n2026-01-06,2\n")
    with pytest.raises(TraceError, match="give names=a,c for a node per file, or names=a,a"):
        import_table([first, tmp_path / "c.csv"])
    with pytest.raises(ValueError, match="the file itself names its nodes"):
        imported(tmp_path, WIDE, names=["x"])
    nodes = import_table([first, tmp_path / "c.csv"], names=["x", "y"])
    assert nodes.trace.nodes == ("x", "y")


def test_rows_of_another_length_are_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, WIDE + "2026-01-05 00:10:00,1\n")
    assert "loads.csv:4" in said
    assert "2 cells, the header has 3" in said


def test_larger_steps(tmp_path: Path) -> None:
    text = WIDE + "2026-01-05 00:10:00,5,6\n"
    result = imported(tmp_path, text, step=600)
    assert result.trace.arrivals.tolist() == [[4, 6]]
    assert "1 step at the end, with 11 requests, was trimmed" in " ".join(result.notes)
    assert "no multiple" in refused(tmp_path, text, step=400)
