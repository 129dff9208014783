"""import_trace: columns, units and times that are easily taken for others are read or refused."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from corral.data import Imported, Trace, import_trace
from corral.errors import TraceError, TraceWarning
from support.messages import refused, shown

TIMES = [f"{datetime(2026, 3, 2) + timedelta(minutes=i)}" for i in range(20)]
LOADS = [i * i % 7 for i in range(20)]


def imported(tmp_path: Path, text: str, **options: Any) -> Imported:
    path = tmp_path / "loads.csv"
    path.write_text(text)
    return import_trace(path, **options)


def refusal(tmp_path: Path, text: str, **options: Any) -> str:
    with pytest.raises(TraceError) as caught:
        imported(tmp_path, text, **options)
    return str(caught.value)


def found(result: Imported, what: str) -> str:
    return "; ".join(guess.found for guess in result.guesses if guess.what == what)


def rows(*columns: Any) -> str:
    return "".join(",".join(map(str, cells)) + "\n" for cells in zip(*columns, strict=True))


# --- Columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", ["", "Unnamed: 0", "index", "row_id"])
def test_an_index_of_rows_is_no_server(tmp_path: Path, title: str) -> None:
    text = f"{title},time,a,b\n" + rows(range(20), TIMES, LOADS, LOADS[::-1])
    result = imported(tmp_path, text)
    assert result.trace.nodes == ("a", "b")
    assert result.trace.arrivals[:, 0].tolist() == LOADS
    assert found(result, "unused") == (title or "column 1")


def test_a_constant_column_is_no_server(tmp_path: Path) -> None:
    text = "day,time,0,1\n" + rows([0] * 20, range(0, 1200, 60), LOADS, LOADS[::-1])
    assert imported(tmp_path, text).trace.nodes == ("0", "1")
    text = text.replace("day", "shard").replace("\n0,", "\n9,")
    shown(refusal(tmp_path, text), "'shard'", "arrivals='0,1'", "arrivals='shard,0,1'")
    assert imported(tmp_path, text, arrivals="shard,0,1").trace.nodes == ("shard", "0", "1")
    idle = text.replace("\n9,", "\n0,")  # a server without load
    assert imported(tmp_path, idle).trace.nodes == ("shard", "0", "1")


def test_a_request_id_is_no_load(tmp_path: Path) -> None:
    head = "request_id,start,duration_ms,server\n"
    text = head + rows(range(20), TIMES, LOADS, "ab" * 10)
    shown(refusal(tmp_path, text), "server: a, b", "node_column=server", "one_node=True")
    result = imported(tmp_path, text, node_column="server")
    assert result.trace.arrivals.sum() == 20
    assert found(result, "layout").startswith("a table, a request log")


@pytest.mark.parametrize("title", ["cpu_percent", "memory", "latency_ms", "busy %"])
def test_other_measures_are_no_requests(tmp_path: Path, title: str) -> None:
    for text, options in (
        (f"time,{title}\n" + rows(TIMES, LOADS), {}),
        (f"time,host,{title}\n" + rows(TIMES, ["a"] * 20, LOADS), {}),
        (f"time,host,{title}\n" + rows(TIMES * 2, ["a"] * 20 + ["b"] * 20, LOADS * 2), {}),
        (
            f"time,host,{title}\n" + rows(TIMES * 2, ["a"] * 20 + ["b"] * 20, LOADS * 2),
            {"node_column": "host"},
        ),
    ):
        named = f"arrivals='{title}'" if " " in title else f"arrivals={title}"
        shown(refusal(tmp_path, text, **options), title, named, "arrivals=rows")
        assert imported(tmp_path, text, arrivals=title, **options).trace.arrivals.any()


def test_rows_of_several_quantities_are_refused(tmp_path: Path) -> None:
    text = "time,host,metric,value\n" + rows(
        TIMES, "ab" * 10, ["rps", "rps", "cpu", "cpu"] * 5, LOADS
    )
    shown(refusal(tmp_path, text), "'metric'", "where='metric=rps'", "where='metric=cpu'")


def test_no_load_is_offered_as_the_time(tmp_path: Path) -> None:
    text = "invoc_1,invoc_2,minute\n" + rows(LOADS, LOADS, [f"m{i}" for i in range(20)])
    said = refusal(tmp_path, text)
    assert "time_column=invoc_1" not in said
    shown(said, "time_column=minute", "time_column=row")
    result = imported(tmp_path, text, time_column="row", arrivals="invoc_*")
    assert result.trace.arrivals[:, 0].tolist() == LOADS
    assert result.trace.times.tolist() == list(range(20))


def test_the_column_named_after_time_is_offered_first(tmp_path: Path) -> None:
    times = [f"{datetime(2026, 3, 2) + timedelta(minutes=i):%d-%b-%y %H:%M}" for i in range(20)]
    text = "server,date,requests\n" + rows(["web-1"] * 20, times, LOADS)
    said = refusal(tmp_path, text)
    shown(said, "time_column=date", "time_format=")
    assert "time_column=server" not in said
    result = imported(tmp_path, text, time_format="%d-%b-%y %H:%M")
    assert result.trace.arrivals[:, 0].tolist() == LOADS


HOURS = ["hour", "hour_of_day", "hr", "Stunde", "heure", "час"]


@pytest.mark.parametrize("title", HOURS)
@pytest.mark.parametrize("day", ["{:%Y-%m-%d}", "{:%d.%m.%Y}"])
def test_a_date_and_an_hour_in_columns_are_one_time(tmp_path: Path, title: str, day: str) -> None:
    begin = datetime(2026, 3, 2, 22)
    times = [begin + timedelta(hours=i) for i in range(20)]
    days = [day.format(at) for at in times]
    text = f"date,{title},requests\n" + rows(days, [at.hour for at in times], LOADS)
    for options in ({}, {"time_column": f"date+{title}"}):
        trace = imported(tmp_path, text, **options).trace
        assert trace.arrivals[:, 0].tolist() == LOADS
        assert (trace.clock_text(0), trace.step) == ("2026-03-02 22:00", 3600)


def test_hours_from_1_to_24_begin_at_midnight(tmp_path: Path) -> None:
    loads = [i * i % 7 for i in range(48)]
    days = ["2026-03-02"] * 24 + ["2026-03-03"] * 24
    text = "date,hour,requests\n" + rows(days, [*range(1, 25)] * 2, loads)
    result = imported(tmp_path, text)
    assert result.trace.arrivals[:, 0].tolist() == loads
    assert result.trace.clock_text(0) == "2026-03-02 00:00"
    shown(" ".join(result.notes), 24, "00:00")
    both = text.replace("2026-03-02,1,", "2026-03-02,0,")
    shown(refusal(tmp_path, both), "hour", "0", "24")


def test_hours_from_1_to_24_count_so_in_all_files_and_rows(tmp_path: Path) -> None:
    loads = [1 + i * i % 7 for i in range(36)]
    files = [tmp_path / "1.csv", tmp_path / "2.csv"]
    for day, path, part in (("02", files[0], loads[:24]), ("03", files[1], loads[24:])):
        hours = range(1, len(part) + 1)
        path.write_text("date,hour,requests\n" + rows([f"2026-03-{day}"] * len(part), hours, part))
    for order in (files, files[::-1]):
        trace = import_trace(order, names=["x", "x"]).trace
        assert trace.arrivals[:, 0].tolist() == loads
        assert trace.clock_text(0) == "2026-03-02 00:00"
    files[1].write_text(files[1].read_text().replace("2026-03-03,1,", "2026-03-03,0,"))
    with refused(TraceError, "2.csv", "hour", "0", "24"):
        import_trace(files, names=["x", "x"])

    text = "date,hour,host,requests\n" + rows(
        ["2026-03-02"] * 24, range(1, 25), "a" * 23 + "b", loads[:24]
    )
    trace = imported(tmp_path, text, where="host=a", one_node=True).trace
    assert trace.clock_text(0) == "2026-03-02 00:00"
    both = text.replace("2026-03-02,2,a", "2026-03-02,0,b")
    shown(refusal(tmp_path, both, where="host=a", one_node=True), "hour", "0", "24")


def test_the_hour_that_ends_is_the_hour_before(tmp_path: Path) -> None:
    text = "date,hour_ending,requests\n" + rows(["2026-03-02"] * 20, range(1, 21), LOADS)
    trace = imported(tmp_path, text).trace
    assert trace.arrivals[:, 0].tolist() == LOADS
    assert trace.clock_text(0) == "2026-03-02 00:00"


def test_hour_and_minute_in_any_order_are_one_time(tmp_path: Path) -> None:
    text = "date,minute,hour,requests\n" + rows(["2026-03-02"] * 20, range(20), [9] * 20, LOADS)
    trace = imported(tmp_path, text).trace
    assert trace.arrivals[:, 0].tolist() == LOADS
    assert (trace.clock_text(0), trace.step) == ("2026-03-02 09:00", 60)


def test_requests_per_hour_are_no_hours(tmp_path: Path) -> None:
    days = [f"{datetime(2026, 3, 2) + timedelta(days=i):%Y-%m-%d}" for i in range(20)]
    trace = imported(tmp_path, "date,requests_per_hour\n" + rows(days, LOADS)).trace
    assert trace.arrivals[:, 0].tolist() == [24 * load for load in LOADS]


DAYS = [f"{datetime(2026, 3, 2) + timedelta(days=i):%Y-%m-%d}" for i in range(20)]


@pytest.mark.parametrize("title", ["peak_hour", "std", "h", "hh", "hr"])
@pytest.mark.parametrize("hours", [[4] * 20, [12 + i * 5 % 9 for i in range(20)]])
def test_a_number_beside_a_day_is_no_hour(tmp_path: Path, title: str, hours: list[int]) -> None:
    text = f"date,requests,{title}\n" + rows(DAYS, LOADS, hours)
    result = imported(tmp_path, text, arrivals=f"requests,{title}")
    assert result.trace.arrivals.T.tolist() == [LOADS, hours]
    assert (result.trace.clock_text(0), result.trace.step) == ("2026-03-02 00:00", 86_400)
    hosts = f"date,host,requests,{title}\n" + rows(
        DAYS * 2, ["a"] * 20 + ["b"] * 20, LOADS * 2, [4] * 20 + [5] * 20
    )
    result = imported(tmp_path, hosts, arrivals="requests")
    assert result.trace.nodes == ("a", "b")
    assert result.trace.arrivals.T.tolist() == [LOADS, LOADS]


def test_one_row_per_day_has_no_clear_hour(tmp_path: Path) -> None:
    for title in ("hour", "Stunde"):
        text = f"date,requests,{title}\n" + rows(DAYS, LOADS, [4] * 20)
        said = refusal(tmp_path, text)
        shown(said, f"time_column=date+{title}", "time_column=date")
        trace = imported(tmp_path, text, time_column=f"date+{title}").trace
        assert (trace.clock_text(0), trace.step) == ("2026-03-02 04:00", 86_400)
        trace = imported(tmp_path, text, time_column="date").trace
        assert trace.clock_text(0) == "2026-03-02 00:00"
        assert trace.arrivals.T.tolist() == [LOADS]
    hosts = "date,host,requests,hour\n" + rows(
        DAYS * 2, ["a"] * 20 + ["b"] * 20, LOADS * 2, [4] * 20 + [5] * 20
    )
    shown(refusal(tmp_path, hosts), "time_column=date+hour", "time_column=date")
    assert imported(tmp_path, hosts, time_column="date").trace.nodes == ("a", "b")


@pytest.mark.parametrize("title", ["host", "product"])
def test_peaks_of_two_nodes_are_no_even_times(tmp_path: Path, title: str) -> None:
    cells = [DAYS * 2, "a" * 20 + "b" * 20, LOADS * 2, [4] * 20 + [16] * 20]
    text = f"date,{title},requests,hour\n" + rows(*cells)
    shown(refusal(tmp_path, text), "time_column=date+hour", "time_column=date")
    assert imported(tmp_path, text, time_column="date").trace.nodes == ("a", "b")


def test_a_join_of_date_and_hour_is_noted(tmp_path: Path) -> None:
    text = "date,hour,requests\n" + rows(["2026-03-02"] * 20, range(20), LOADS)
    shown(" ".join(imported(tmp_path, text).notes), "date", "hour")
    assert not imported(tmp_path, text, time_column="date+hour").notes


@pytest.mark.parametrize("title", ["time", "Uhrzeit", "period"])
def test_numbers_beside_one_date_have_no_unit(tmp_path: Path, title: str) -> None:
    text = f"date,{title},requests\n" + rows(["2026-03-02"] * 20, range(20), LOADS)
    said = refusal(tmp_path, text)
    shown(said, "date", title, f"time_column=date+{title}", f"time_column={title}")
    shown(said, "time_unit=min", "epoch=YYYY-MM-DD")
    trace = imported(tmp_path, text, time_column=f"date+{title}").trace
    assert (trace.clock_text(1), trace.step) == ("2026-03-02 01:00", 3600)
    options: dict[str, Any] = {"time_column": title, "time_unit": "min", "epoch": "2026-03-02"}
    trace = imported(tmp_path, text, **options).trace
    assert (trace.clock_text(1), trace.step) == ("2026-03-02 00:01", 60)
    assert trace.arrivals[:, 0].tolist() == LOADS


def test_the_date_of_an_export_is_no_time(tmp_path: Path) -> None:
    epochs = range(1_772_409_600, 1_772_409_600 + 1200, 60)
    text = "exported,ts,requests\n" + rows(["2026-03-09"] * 20, epochs, LOADS)
    trace = imported(tmp_path, text).trace
    assert (trace.clock_text(0), trace.step) == ("2026-03-02 00:00", 60)


@pytest.mark.parametrize("mark", ["T", " "])
@pytest.mark.parametrize("num_days", [1, 2])
def test_dates_at_midnight_are_joined_with_the_hour(
    tmp_path: Path, mark: str, num_days: int
) -> None:
    days = [f"2026-03-0{2 + i}{mark}00:00:00" for i in range(num_days) for _ in range(24)]
    loads = [i * i % 7 for i in range(len(days))]
    for clock in ("{}", "{}.0", "{:02d}:00", "{:02d}:00:00"):
        hours = [clock.format(i % 24) for i in range(len(days))]
        text = "date,hour,requests\n" + rows(days, hours, loads)
        for options in ({}, {"time_column": "date+hour"}):
            trace = imported(tmp_path, text, **options).trace
            assert (trace.clock_text(0), trace.step) == ("2026-03-02 00:00", 3600)
            assert trace.arrivals[:, 0].tolist() == loads


@pytest.mark.parametrize("kind", [pd.to_datetime, lambda days: pd.to_datetime(days).date])
def test_dates_of_a_frame_are_joined_with_the_hour(kind: Any) -> None:
    days = kind(["2026-03-02"] * 20)
    frame = pd.DataFrame({"date": days, "hour": range(20), "requests": LOADS})
    with pytest.warns(TraceWarning):
        trace = Trace.from_dataframe(frame, zone="Z")
    assert (trace.clock_text(0), trace.step) == ("2026-03-02 00:00", 3600)
    assert trace.arrivals[:, 0].tolist() == LOADS


def test_midnights_beside_other_clocks_are_the_times(tmp_path: Path) -> None:
    days = [f"{day} 00:00:00" for day in DAYS]
    for title, cells in (("sunrise", ["06:12"] * 20), ("hour", [0] * 20)):
        text = f"timestamp,{title},requests\n" + rows(days, cells, LOADS)
        trace = imported(tmp_path, text).trace
        assert (trace.clock_text(0), trace.step) == ("2026-03-02 00:00", 86_400)


# --- Units ---------------------------------------------------------------------------------------


def test_the_unit_of_cells_is_named_as_written(tmp_path: Path) -> None:
    cells = [f"{load} req/min" for load in LOADS]
    result = imported(tmp_path, "Time,a,b\n" + rows(TIMES, cells, cells))
    assert result.trace.arrivals[:, 0].tolist() == LOADS
    assert found(result, "unit").startswith("requests per minute")
    mixed = imported(tmp_path, "Time,a,b\n" + rows(TIMES, cells, [f"{x} req/s" for x in LOADS]))
    assert mixed.trace.arrivals[:, 1].tolist() == [60 * load for load in LOADS]
    assert mixed.trace.arrivals[:, 0].tolist() == LOADS


def test_milliseconds_are_not_taken_for_seconds(tmp_path: Path) -> None:
    times = [i * i * 97 % 40_000 for i in range(300)]
    text = "traceid,timestamp,um\n" + rows([f"t{i}" for i in range(300)], times, ["u"] * 300)
    said = refusal(tmp_path, text, one_node=True)
    shown(said, "'timestamp'", "time_unit=s (11.1 h in all)", "time_unit=ms (39 s in all)")
    result = imported(tmp_path, text, one_node=True, time_unit="ms", step=10)
    assert result.trace.arrivals.sum() == 300
    assert result.trace.times.tolist() == [0, 10, 20, 30]
    assert result.trace.clock == "integer"


def test_a_unit_that_leads_beyond_2100_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ms.csv"
    rows = (f"{1_772_409_600_000 + 60_000 * k},{k + 5},6\n" for k in range(5))
    path.write_text("time,a,b\n" + "".join(rows))
    with refused(TraceError, "time_unit=ms"):
        import_trace(path, time_unit="s")
    assert import_trace(path, time_unit="ms").trace.step == 60


def test_a_table_in_thousands_has_another_unit(tmp_path: Path) -> None:
    text = "timestamp,a,b\n" + rows(range(0, 20 * 60_000, 60_000), LOADS, LOADS)
    shown(refusal(tmp_path, text), "time_unit=ms (19 min in all)", "epoch=")
    result = imported(tmp_path, text, time_unit="ms", epoch="2021-01-31T01:00+01:00")
    assert result.trace.step == 60
    assert result.trace.clock_text(0) == "2021-01-31 00:00"


@pytest.mark.parametrize("start", [300_000_000, 300_000_000_000])
def test_microseconds_since_a_start_are_no_epochs(tmp_path: Path, start: int) -> None:
    times = range(start, start + 20 * 300_000_000, 300_000_000)
    text = "start_time,a,b\n" + rows(times, LOADS, LOADS)
    shown(refusal(tmp_path, text), "1970", "time_unit=us (1.58 h in all)")
    result = imported(tmp_path, text, time_unit="us")
    assert result.trace.step == 300
    assert result.trace.times[0] == start // 10**6


@pytest.mark.parametrize(
    ("unit", "factor"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)]
)
def test_epochs_keep_their_unit(tmp_path: Path, unit: Any, factor: int) -> None:
    times = [(1_772_409_600 + 60 * i) * factor for i in range(20)]
    text = "time,a,b\n" + rows(times, LOADS, LOADS)
    for options in ({}, {"time_unit": unit}):
        trace = imported(tmp_path, text, **options).trace
        assert (trace.clock, trace.step) == ("utc", 60)
        assert trace.clock_text(0) == "2026-03-02 00:00"


@pytest.mark.parametrize("form", ["%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S", "%Y%m%dT%H%M%SZ"])
def test_digits_of_a_date_are_no_epochs(tmp_path: Path, form: str) -> None:
    hours = [f"{datetime(2026, 1, 31, 20) + timedelta(hours=i):{form}}" for i in range(20)]
    trace = imported(tmp_path, "timestamp,a,b\n" + rows(hours, LOADS, LOADS)).trace
    assert (trace.clock_text(0), trace.step) == ("2026-01-31 20:00", 3600)
    days = [f"{datetime(2026, 1, 20) + timedelta(days=i):%Y%m%d}" for i in range(20)]
    trace = imported(tmp_path, "day,a,b\n" + rows(days, LOADS, LOADS)).trace
    assert (trace.clock_text(19), trace.step) == ("2026-02-08 00:00", 86_400)


def test_an_epoch_needs_a_unit(tmp_path: Path) -> None:
    text = "time,a\n" + rows(range(20), LOADS)
    with refused(ValueError, "epoch=2026-01-05", "time_unit="):
        imported(tmp_path, text, epoch="2026-01-05")
    with refused(ValueError, "epoch='soon'"):
        imported(tmp_path, text, time_unit="s", epoch="soon")
    with refused(ValueError, "time_unit='fortnight'", "ms"):
        imported(tmp_path, text, time_unit="fortnight")


# --- Capacity ------------------------------------------------------------------------------------

PODS = "time,pod,requests,capacity\n" + "".join(
    f"{time},{pod},{load},100\n"
    for i, (time, load) in enumerate(zip(TIMES, LOADS, strict=True))
    for pod in ("web-0", "web-1")
    if pod == "web-0" or i % 4
)


def test_an_absent_pod_has_no_capacity(tmp_path: Path) -> None:
    result = imported(tmp_path, PODS, gaps="zero")
    capacity = result.trace.capacity
    assert capacity is not None
    assert capacity[:, 0].tolist() == [100] * 20
    assert capacity[:, 1].tolist() == [100 * bool(i % 4) for i in range(20)]
    shown(" ".join(result.notes), "5 steps", 0)
    kept = imported(tmp_path, PODS, gaps="previous").trace.capacity
    assert kept is not None
    assert kept.min() == 100


def test_a_passed_capacity_counts_in_all_steps(tmp_path: Path) -> None:
    result = imported(tmp_path, PODS, gaps="zero", capacity=100)
    assert result.trace.capacity is not None
    assert result.trace.capacity.min() == 100
    shown(" ".join(result.notes), "'web-1'", "25%")


def test_azure_files_take_the_number_of_nodes(tmp_path: Path) -> None:
    minutes = ",".join(map(str, range(1, 1441)))
    loads = ",".join(str(i % 3) for i in range(1440))
    text = f"HashOwner,HashApp,HashFunction,Trigger,{minutes}\no,a,f,http,{loads}\n"
    shown(refusal(tmp_path, text), "nodes=8")
    assert imported(tmp_path, text, nodes=1, capacity="2x").trace.arrivals.sum() == 1440


# --- Counters and sums ---------------------------------------------------------------------------


def test_counters_are_refused_or_read_as_their_growth(tmp_path: Path) -> None:
    loads = [3 + i * i % 7 for i in range(30)]
    times = [f"{datetime(2026, 3, 2) + timedelta(minutes=i)}" for i in range(30)]
    totals = [1000 + sum(loads[: i + 1]) for i in range(30)]
    totals[20:] = [sum(loads[20 : i + 1]) for i in range(20, 30)]  # a restart
    for text, nodes in (
        ("time,a,b\n" + rows(times, totals, totals), ("a", "b")),
        ("time,host,requests\n" + rows(times * 2, "a" * 30 + "b" * 30, totals * 2), ("a", "b")),
        ("time,requests_total\n" + rows(times, totals), ("loads",)),
    ):
        shown(refusal(tmp_path, text), totals[0], "counter=True", "counter=False")
        result = imported(tmp_path, text, counter=True)
        assert result.trace.nodes == nodes
        assert result.trace.arrivals[:, 0].tolist() == loads[1:]
        assert imported(tmp_path, text, counter=False).trace.arrivals[:, 0].tolist() == totals


def test_one_counter_among_loads_is_refused(tmp_path: Path) -> None:
    text = "time,a,b\n" + rows(TIMES, LOADS, [100 + 3 * i for i in range(20)])
    shown(refusal(tmp_path, text), 100, 157, "counter=True", "counter=False")


def test_a_counter_in_any_file_is_refused(tmp_path: Path) -> None:
    loads, counter = tmp_path / "p.csv", tmp_path / "q.csv"
    loads.write_text("time,requests\n" + rows(TIMES, LOADS))
    counter.write_text("time,requests\n" + rows(TIMES, range(100, 300, 10)))
    for files in ([loads, counter], [counter, loads]):
        with refused(TraceError, "100", "290", "counter=True"):
            import_trace(files, names=[path.stem for path in files])


def test_a_counter_goes_on_in_the_next_file(tmp_path: Path) -> None:
    totals = [1000 + sum(LOADS[: i + 1]) for i in range(20)]
    files = [tmp_path / "1.csv", tmp_path / "2.csv"]
    for path, part in zip(files, (slice(0, 12), slice(12, 20)), strict=True):
        path.write_text("time,a,b\n" + rows(TIMES[part], totals[part], totals[part]))
    with refused(TraceError, "counter=True"):
        import_trace(files)
    trace = import_trace(files, counter=True).trace
    assert trace.arrivals.T.tolist() == [LOADS[1:]] * 2
    assert trace.clock_text(0) == "2026-03-02 00:00"


def test_a_counter_that_ends_early_has_a_hole(tmp_path: Path) -> None:
    totals = [1000 + sum(LOADS[: i + 1]) for i in range(20)]
    text = "time,a,b\n" + rows(TIMES, totals, [*totals[:10], "", *totals[11:16], "", "", "", ""])
    with refused(TraceError, "2 holes", "2 steps"):
        imported(tmp_path, text, counter=True)
    trace = imported(tmp_path, text, counter=True, gaps="interpolate").trace
    assert trace.arrivals[:, 0].tolist() == LOADS[1:16]
    assert trace.arrivals[:, 1].sum() == sum(LOADS[1:16])


def test_a_counter_at_one_time_has_no_step(tmp_path: Path) -> None:
    text = "time,a\n" + rows([TIMES[0]] * 2, [5, 6])
    assert "step" in refusal(tmp_path, text, combine="sum", counter=True)


A, B = LOADS, [3 + i % 5 for i in range(20)]
TOTAL = [a + b for a, b in zip(A, B, strict=True)]


def test_the_sum_of_all_other_nodes_is_refused(tmp_path: Path) -> None:
    wide = "time,a,b,cluster\n" + rows(TIMES, A, B, TOTAL)
    shown(refusal(tmp_path, wide), "'cluster'", "arrivals='a,b'", "arrivals='a,b,cluster'")
    assert imported(tmp_path, wide, arrivals="a,b").trace.nodes == ("a", "b")
    named = imported(tmp_path, wide, arrivals="a,b,cluster")
    assert named.trace.nodes == ("a", "b", "cluster")
    shown(" ".join(named.notes), "cluster")
    hosts = ["a"] * 20 + ["b"] * 20 + ["all"] * 20
    long = "time,host,requests\n" + rows(TIMES * 3, hosts, A + B + TOTAL)
    said = refusal(tmp_path, long)
    shown(said, "'all'", "where='host!=all'", "node_column=host", "arrivals=requests")
    assert imported(tmp_path, long, where="host!=all").trace.nodes == ("a", "b")
    options: list[dict[str, Any]] = [
        {"node_column": "host", "arrivals": "requests"},
        {"rename": "node=host,arrivals=requests"},
    ]
    for named_columns in options:
        kept = imported(tmp_path, long, **named_columns)
        assert kept.trace.nodes == ("a", "b", "all")
        shown(" ".join(kept.notes), "all")


def test_a_sum_in_columns_of_a_pattern_is_refused_with_their_names(tmp_path: Path) -> None:
    names = [f"{kind}_{node}" for kind in ("invoc", "max") for node in ("a", "b", "c")]
    text = f"time,{','.join(names)}\n" + rows(TIMES, A, B, TOTAL, *[[9] * 20] * 3)
    shown(refusal(tmp_path, text), "'c'", "arrivals='invoc_a,invoc_b'")
    assert imported(tmp_path, text, arrivals="invoc_a,invoc_b").trace.arrivals.T.tolist() == [A, B]


def test_a_sum_that_no_option_excludes_is_noted(tmp_path: Path) -> None:
    files = []
    for name, loads in (("a", A), ("b", B), ("all", TOTAL)):
        files.append(tmp_path / f"{name}.csv")
        files[-1].write_text("time,requests\n" + rows(TIMES, loads))
    result = import_trace(files, names=["a", "b", "all"])
    assert result.trace.arrivals.T.tolist() == [A, B, TOTAL]
    shown(" ".join(result.notes), "'all'")

    hosts = ["web-1.x"] * 20 + ["web-2.x"] * 20 + ["web-3.x"] * 20
    long = "time,host,requests\n" + rows(TIMES * 3, hosts, A + B + TOTAL)
    result = imported(tmp_path, long, node_pattern="(web-[0-9]).*")
    assert result.trace.nodes == ("web-1", "web-2", "web-3")
    shown(" ".join(result.notes), "'web-3'")

    result = imported(tmp_path, 'time,"a,x",b,c\n' + rows(TIMES, A, B, TOTAL))
    assert result.trace.nodes == ("a,x", "b", "c")
    shown(" ".join(result.notes), "'c'")

    parts = [tmp_path / "1.csv", tmp_path / "2.csv"]
    parts[0].write_text("time,host,requests\n" + rows(TIMES * 2, hosts[:40], A + B))
    hosts = ["web-3.x"] * 20 + ["idle"] * 20
    parts[1].write_text("time,host,requests\n" + rows(TIMES * 2, hosts, TOTAL + [0] * 20))
    result = import_trace(parts)
    assert result.trace.nodes == ("web-1.x", "web-2.x", "web-3.x", "idle")
    shown(" ".join(result.notes), "'web-3.x'")


def test_two_equal_nodes_beside_an_idle_one_are_no_sum(tmp_path: Path) -> None:
    result = imported(tmp_path, "time,a,b,c\n" + rows(TIMES, A, A, [0] * 20))
    assert result.trace.nodes == ("a", "b", "c")
    assert not result.notes


def test_the_message_on_a_sum_lists_few_names(tmp_path: Path) -> None:
    nodes = [f"n{i}" for i in range(40)]
    loads = [[3 + i * (1 + k % 6) % 7 for i in range(20)] for k in range(40)]
    sums = [sum(column) for column in zip(*loads, strict=True)]
    said = refusal(tmp_path, f"time,{','.join(nodes)},last\n" + rows(TIMES, *loads, sums))
    shown(said, "'last'", "arrivals=")
    assert "n39" not in said
