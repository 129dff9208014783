"""import_table: the exports that operators have, and what is refused with its remedy."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.data import Imported, import_table, import_trace, load_trace, write_trace
from corral.errors import TraceError
from support.messages import refused, shown


def imported(tmp_path: Path, text: str, **options: Any) -> Imported:
    path = tmp_path / "loads.csv"
    path.write_bytes(text.encode(options.get("encoding", "utf-8")))
    return import_table(path, **options)


def said_of(tmp_path: Path, text: str, **options: Any) -> str:
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
    shown(found(result, "zone"), "UTC")
    assert change(result, "zone") == "zone=Europe/Rome"
    assert found(result, "step") == "300 s (5 min)"
    assert change(result, "step") == "step=900"
    assert found(result, "gaps") == "none"
    shown(change(result, "unit"), "scale=300", "second", "scale=5", "minute")
    assert change(result, "capacity") == "capacity=a=N,b=N"


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
    shown(
        said_of(tmp_path, text),
        "arrivals='x_*'",
        "arrivals='y_*'",
        "arrivals='x_milan,x_oslo,y_milan,y_oslo'",
    )
    assert imported(tmp_path, text, arrivals="y_*").trace.arrivals.tolist() == [[3, 4], [3, 4]]
    shown(
        said_of(tmp_path, text, arrivals="z_*"),
        "arrivals='z_*'",
        "time, x_milan, x_oslo, y_milan, y_oslo",
    )
    shown(
        said_of(tmp_path, text.replace("y_oslo", "y_rome"), arrivals="x_*", capacity="y_*"),
        "capacity='y_*'",
        "oslo",
        "milan, rome",
    )


def test_numbered_servers_are_nodes_all(tmp_path: Path) -> None:
    text = "time,web-1,web-2,edge-1,edge-2\n2026-01-05,1,2,3,4\n2026-01-06,1,2,3,4\n"
    assert imported(tmp_path, text).trace.nodes == ("web-1", "web-2", "edge-1", "edge-2")


def test_a_sum_is_not_a_node(tmp_path: Path) -> None:
    text = "time,milan,oslo,total\n2026-01-05,1,2,3\n2026-01-06,1,2,3\n"
    shown(
        said_of(tmp_path, text), "'total'", "arrivals='milan,oslo'", "arrivals='milan,oslo,total'"
    )
    assert imported(tmp_path, text, arrivals="milan,oslo").trace.nodes == ("milan", "oslo")


def test_labels_name_the_nodes(tmp_path: Path) -> None:
    head = '"Time","{instance=""a:80"", job=""gw""}","{instance=""b:80"", job=""gw""}"\n'
    result = imported(tmp_path, head + "2026-01-05,1 req/s,2 req/s\n2026-01-06,3 req/s,0\n")
    assert result.trace.nodes == ("a:80", "b:80")
    assert result.trace.arrivals.tolist() == [[86_400, 172_800], [259_200, 0]]
    shown(found(result, "unit"), "second", 86400)


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
    with refused(ValueError, "rename='times=x'", "time, node, arrivals, capacity, zone"):
        imported(tmp_path, text, rename="times=x")
    with refused(ValueError, "rename=time=x", "'b'"):
        imported(tmp_path, text, rename="time=x", time_column="b")
    shown(said_of(tmp_path, text, rename="time=a c"), "rename=time='a c'", "'a b'")


def test_corrals_own_traces_come_back_equal(tmp_path: Path) -> None:
    trace = load_trace("edge3")
    write_trace(trace, tmp_path / "edge3.csv.gz")
    result = import_trace(tmp_path / "edge3.csv.gz")
    assert result.trace == trace
    shown(found(result, "layout"), "corral trace", "long")


def test_two_columns_may_name_a_node_together(tmp_path: Path) -> None:
    rows = [f"2026-01-0{d},{h},{z},{d}" for d in (1, 2) for h in "pq" for z in "xy"]
    result = imported(tmp_path, "time,hpa,az,rpm\n" + "\n".join(rows) + "\n")
    assert result.trace.nodes == ("p/x", "p/y", "q/x", "q/y")
    assert change(result, "node") == "node_column=hpa+az"


def test_two_columns_that_could_be_the_load_stop(tmp_path: Path) -> None:
    text = LONG.replace("latency_ms", "hits")
    shown(said_of(tmp_path, text), "arrivals=requests", "arrivals=hits")
    assert "arrivals=" in said_of(tmp_path, text)


def test_a_repeated_time_and_node_names_the_overlooked_column(tmp_path: Path) -> None:
    text = LONG.replace("host", "x").replace(",a,", ",b,")
    said = said_of(tmp_path, text, node_column="x", arrivals="requests")
    shown(said, "loads.csv:3", "'b'", 2)
    assert "node_column=" in said
    assert "keep" not in said


# --- Request logs --------------------------------------------------------------------------------

REQUESTS = (
    "timestamp,host,path,status\n"
    "2026-01-05T00:00:01.250Z,a,/x,200\n2026-01-05T00:00:01.900Z,b,/x,200\n"
    "2026-01-05T00:00:59.100Z,a,/y,200\n2026-01-05T00:03:05.000Z,a,/x,500\n"
    "2026-01-05T00:03:05.000Z,b,/x,200\n2026-01-05T00:03:11.000Z,b,/x,200\n"
)


def test_a_log_with_hosts_asks_which_they_are(tmp_path: Path) -> None:
    said = said_of(tmp_path, REQUESTS)
    shown(said, "host: a, b")
    shown(said, "node_column=host", "one_node=True")


def test_rows_are_counted(tmp_path: Path) -> None:
    result = imported(tmp_path, REQUESTS, node_column="host")
    assert result.trace.nodes == ("a", "b")
    assert result.trace.arrivals.tolist() == [[2, 1], [0, 0], [0, 0], [1, 2]]
    assert found(result, "unused") == "2: path, status"
    assert found(result, "layout").startswith("a request log: a row per request")
    alone = imported(tmp_path, REQUESTS, one_node=True, step=120)
    assert alone.trace.nodes == ("loads",)
    assert alone.trace.arrivals.tolist() == [[3], [3]]
    with refused(ValueError, "one_node=True", "node_column="):
        imported(tmp_path, REQUESTS, one_node=True, node_column="host")


def test_options_that_change_nothing_are_not_taken_in_silence(tmp_path: Path) -> None:
    with refused(ValueError, "scale="):
        imported(tmp_path, REQUESTS, node_column="host", scale=3)
    result = imported(tmp_path, LONG, zone="Europe/Rome")
    shown(found(result, "zone"), "zone=")


def test_a_file_without_names_of_columns(tmp_path: Path) -> None:
    said = said_of(tmp_path, WIDE.partition("\n")[2])
    shown(said, "loads.csv", "2026-01-05 00:00:00, 1, 2")


def test_uneven_times_beside_a_load_stop(tmp_path: Path) -> None:
    minutes = (0, 1, 5, 6, 17, 19, 40)
    rows = "".join(f"2026-01-05T00:{m:02d}:00Z,{m}\n" for m in minutes)
    said = said_of(tmp_path, "time,requests\n" + rows)
    shown(said, "'requests'", "arrivals=requests", "one_node=True")


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
    shown(said_of(tmp_path, text), "date_order=dmy", "date_order=mdy")
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
    said = said_of(tmp_path, WIDE + "yesterday,5,6\n")
    assert "loads.csv:4" in said
    assert "'yesterday'" in said
    assert "time_format=" in said


def test_times_off_the_grid_are_moved_when_asked_to(tmp_path: Path) -> None:
    seconds = (0, 60, 121, 180, 239, 300)
    rows = "".join(f"{START + s},{s},1\n" for s in seconds)
    assert "snap=60" in said_of(tmp_path, "ts,a,b\n" + rows)
    result = imported(tmp_path, "ts,a,b\n" + rows, snap=60)
    assert result.trace.arrivals[:, 0].tolist() == list(seconds)
    shown(" ".join(result.notes), "1 s")


def test_a_table_without_times_is_not_quoted(tmp_path: Path) -> None:
    said = said_of(tmp_path, "name,colour\nbox,red\nbag,blue\n")
    shown(said, "loads.csv", "--time-column NAME", "--time-format FORMAT")
    assert not any(word in said for word in ("colour", "box", "bag", "blue"))


# --- Zones ---------------------------------------------------------------------------------------


def hours(zone_of: list[str]) -> str:
    return "time,a,b\n" + "".join(f"{time},{i},1\n" for i, time in enumerate(zone_of, 1))


AUTUMN = [f"2026-10-25 {h:02d}:{m:02d}" for h in (1, 2, 2, 3) for m in (0, 30)]


def test_the_hour_that_comes_twice(tmp_path: Path) -> None:
    result = imported(tmp_path, hours(AUTUMN), zone="Europe/Rome")
    assert result.trace.arrivals[:, 0].tolist() == list(range(1, 9))
    assert result.trace.clock_text(0) == "2026-10-24 23:00"
    (note,) = result.notes
    shown(note, "Europe/Rome", "2026-10-25")
    backwards = imported(tmp_path, hours(AUTUMN[::-1]), zone="Europe/Rome")
    assert backwards.trace.arrivals[:, 0].tolist() == list(range(8, 0, -1))


def test_without_a_zone_the_repeated_hour_is_refused_with_it(tmp_path: Path) -> None:
    assert "zone=Europe/Rome" in said_of(tmp_path, hours(AUTUMN), arrivals="a,b")


def test_an_hour_that_is_there_once_is_a_hole(tmp_path: Path) -> None:
    once = hours(AUTUMN[:4] + AUTUMN[6:])
    said = said_of(tmp_path, once, zone="Europe/Rome")
    shown(said, "2 steps", "1 h", "2026-10-25T01:00:00Z")
    result = imported(tmp_path, once, zone="Europe/Rome", gaps="interpolate")
    shown(result.notes[0], "Europe/Rome", "2026-10-25")


def test_the_hour_that_is_left_out(tmp_path: Path) -> None:
    times = [f"2026-03-29 {h:02d}:{m:02d}" for h in (1, 3) for m in (0, 30)]
    result = imported(tmp_path, hours(times), zone="Europe/Rome")
    assert len(result.trace) == 4
    shown(" ".join(result.notes), "Europe/Rome", "2026-03-29T01:00:00Z")
    said = said_of(tmp_path, hours(times))
    shown(said, "2 steps", "1 h", "2026-03-29T02:00:00Z")
    shown(said, "zone=Europe/Rome")
    wrong = [times[0], "2026-03-29 01:30", "2026-03-29 02:00"]
    shown(
        said_of(tmp_path, hours(wrong), zone="Europe/Rome"),
        "loads.csv:4",
        "'2026-03-29T02:00:00'",
        "Europe/Rome",
        "zone=Z",
        "zone=+01:00",
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
    shown(found(result, "zone"), "tz")
    with refused(ValueError, "zone=", "'london'"):
        imported(tmp_path, text, zone={"rome": "Z"}, node_column="site")


def test_times_with_and_without_a_zone_stop(tmp_path: Path) -> None:
    text = "time,a,b\n2026-01-05T00:00:00Z,1,2\n2026-01-05T01:05:00,3,4\n"
    shown(said_of(tmp_path, text), "1 of 2", "zone=Z", "zone=Europe/Rome")
    assert imported(tmp_path, text, zone="+01:00").trace.step == 300


def test_unknown_zones_are_refused_with_the_nearest(tmp_path: Path) -> None:
    with refused(ValueError, "zone='Europe/Roma'", "Europe/Rome"):
        imported(tmp_path, WIDE, zone="Europe/Roma")


# --- Numbers and units ---------------------------------------------------------------------------


def test_excel_with_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    text = "\ufeffZeit;a;b\r\n05.01.2026 00:00;0,5;1,25\r\n05.01.2026 00:01;0,25;1,75\r\n"
    shown(said_of(tmp_path, text), 0.5, "scale=60", "scale=1")
    result = imported(tmp_path, text, scale=60)
    assert result.trace.arrivals.tolist() == [[30, 75], [15, 105]]
    assert found(result, "decimals") == "1,5 is one and a half"
    unsure = text.replace("0,5", "1.500").replace(",25", "").replace(",75", "")
    shown(said_of(tmp_path, unsure), "'1.500'", "decimal=','", "decimal='.'")
    assert imported(tmp_path, unsure, decimal=",").trace.arrivals[0, 0] == 1500


def test_other_encodings_are_named(tmp_path: Path) -> None:
    text = "sep=;\nZeit;Köln;Bonn\n05.01.2026;1;2\n06.01.2026;3;4\n"
    assert imported(tmp_path, text, encoding="cp1252").trace.nodes == ("Köln", "Bonn")
    path = tmp_path / "loads.csv"
    with pytest.raises(TraceError, match="encoding=cp1252"):
        import_table(path)
    with refused(ValueError, "encoding='klingon'", "cp1252", "utf-8"):
        import_table(path, encoding="klingon")


def test_rounding_keeps_totals(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rates = np.round(rng.random((500, 2)), 4)
    rows = "".join(f"{START + 60 * i},{a},{b}\n" for i, (a, b) in enumerate(rates.tolist()))
    result = imported(tmp_path, "ts,a,b\n" + rows, scale=1)
    running = result.trace.arrivals.cumsum(axis=0) - rates.cumsum(axis=0)
    assert np.abs(running).max() <= 0.5 + 1e-6
    assert result.trace.arrivals.min() == 0
    shown(" ".join(result.notes), "1,000 fractions")


def test_a_rate_in_the_name_of_a_column(tmp_path: Path) -> None:
    text = LONG.replace("requests", "rps")
    result = imported(tmp_path, text)
    assert result.trace.arrivals.tolist() == [[60, 120], [180, 240]]
    shown(found(result, "unit"), "second", "'rps'", 60)
    assert imported(tmp_path, text, scale=1).trace.arrivals.tolist() == [[1, 2], [3, 4]]


def test_abbreviated_cells_are_noted(tmp_path: Path) -> None:
    result = imported(tmp_path, WIDE.replace(",1,", ",1.5K,"))
    assert result.trace.arrivals[0, 0] == 1500
    shown(" ".join(result.notes), "'1.5K'")


def test_mixed_units_are_refused(tmp_path: Path) -> None:
    shown(said_of(tmp_path, WIDE.replace(",1,", ",1 req/s,")), "loads.csv:3", "'milan'", "'3'")


# --- Gaps ----------------------------------------------------------------------------------------

HOLES = (
    "time,a,b\n2026-01-05T00:00Z,2,10\n2026-01-05T00:01Z,,10\n2026-01-05T00:02Z,null,10\n"
    "2026-01-05T00:03Z,8,10\n2026-01-05T02:03Z,8,10\n2026-01-05T02:04Z,8,10\n"
)


def test_each_hole_is_told_with_its_length(tmp_path: Path) -> None:
    said = said_of(tmp_path, HOLES)
    shown(said, "2 holes", "gaps=zero", "gaps=previous", "gaps=interpolate")
    shown(said, "2 steps, 2 min", "2026-01-05T00:01:00Z (a)")
    shown(said, "119 steps, 1.98 h", "2026-01-05T00:04:00Z")


@pytest.mark.parametrize(
    ("gaps", "first"), [("zero", [0, 0]), ("previous", [2, 2]), ("interpolate", [4, 6])]
)
def test_holes_are_filled_by_the_rule(tmp_path: Path, gaps: Any, first: list[int]) -> None:
    result = imported(tmp_path, HOLES, gaps=gaps)
    assert result.trace.arrivals[1:3, 0].tolist() == first
    shown(" ".join(result.notes), 240, f"gaps={gaps}")
    assert len(result.trace) == 125


def test_a_node_that_begins_later(tmp_path: Path) -> None:
    text = "time,a,b\n2026-01-05T00:00Z,2,\n2026-01-05T00:01Z,3,7\n2026-01-05T00:02Z,4,8\n"
    shown(said_of(tmp_path, text), "1 hole", "gaps=zero", "2026-01-05T00:00:00Z (b)")
    assert imported(tmp_path, text, gaps="zero").trace.arrivals[0].tolist() == [2, 0]
    trimmed = imported(tmp_path, text, gaps="previous")
    assert trimmed.trace.arrivals.tolist() == [[3, 7], [4, 8]]
    shown(trimmed.notes[0], 1, 2)


# --- Capacity ------------------------------------------------------------------------------------


def test_capacity_of_each_node(tmp_path: Path) -> None:
    for given in ("milan=10,oslo=20", {"milan": 10, "oslo": 20}):
        trace = imported(tmp_path, WIDE, capacity=given).trace
        assert trace.capacity.tolist() == [[10, 20], [10, 20]]  # type: ignore[union-attr]
    file = tmp_path / "capacity.csv"
    file.write_text("node;capacity\noslo;20\nmilan;1.000\n".replace("1.000", "1000"))
    trace = imported(tmp_path, WIDE, capacity=str(file)).trace
    assert trace.capacity[0].tolist() == [1000, 20]  # type: ignore[index]
    with refused(ValueError, "capacity", "'oslo'", "milan, oslo"):
        imported(tmp_path, WIDE, capacity="milan=10")
    with refused(ValueError, "capacity", "'rome'", "milan, oslo"):
        imported(tmp_path, WIDE, capacity="milan=10,oslo=1.5x,rome=3")
    assert imported(tmp_path, WIDE, capacity="2x").trace.capacity[0].tolist() == [4, 6]  # type: ignore[index]


# --- Limits --------------------------------------------------------------------------------------


def test_a_column_of_ids_is_no_column_of_nodes(tmp_path: Path) -> None:
    rows = "".join(f"{START + i % 2 * 60},id{i},1\n" for i in range(10_001))
    said = said_of(tmp_path, "time,who,requests\n" + rows, node_column="who")
    shown(said, "10,001", "10,000")
    far = "time,who\n0001-01-01T00:00Z,a\n9999-12-31T00:00Z,a\n"
    shown(
        said_of(tmp_path, far, one_node=True, step=1),
        "0001-01-01T00:00:00Z",
        "9999-12-31T00:00:00Z",
        "3,652,058 days",
    )


def test_many_different_cells_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.data.importers.tables.cells.MAX_TEXTS", 5)
    shown(said_of(tmp_path, WIDE), 5, "corral trace import requests")


# --- Several files -------------------------------------------------------------------------------


def test_files_are_parts_or_nodes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv.gz"
    first.write_text(WIDE)
    second.write_bytes(gzip.compress(WIDE.replace(" 00:", " 01:").encode()))
    parts = import_table([first, second], gaps="previous")
    assert len(parts.trace) == 14
    with refused(TraceError, "a.csv", 300, "2026-01-05T00:00:00Z", "'milan'", "names="):
        import_table([first, first])
    for path in (first, tmp_path / "c.csv"):
        path.write_text("time,requests\n2026-01-05,1\n2026-01-06,2\n")
    with refused(TraceError, "names=a,c", "names=a,a"):
        import_table([first, tmp_path / "c.csv"])
    with refused(ValueError, "names="):
        imported(tmp_path, WIDE, names=["x"])
    nodes = import_table([first, tmp_path / "c.csv"], names=["x", "y"])
    assert nodes.trace.nodes == ("x", "y")


def test_rows_of_another_length_are_refused(tmp_path: Path) -> None:
    said = said_of(tmp_path, WIDE + "2026-01-05 00:10:00,1\n")
    assert "loads.csv:4" in said
    shown(said, "'2026-01-05 00:10:00,1'", 2, 3)


def test_larger_steps(tmp_path: Path) -> None:
    text = WIDE + "2026-01-05 00:10:00,5,6\n"
    result = imported(tmp_path, text, step=600)
    assert result.trace.arrivals.tolist() == [[4, 6]]
    shown(" ".join(result.notes), 1, 11, 600)
    shown(said_of(tmp_path, text, step=400), "step=400", 300)
