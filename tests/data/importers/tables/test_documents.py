"""JSON as a table: known answers, paths, and what is refused without a word of its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corral.data import import_trace
from corral.data.importers.tables.columns import quoted
from corral.errors import TraceError
from support.import_files import MIDNIGHT
from support.messages import refused, shown


def iso(minute: int) -> str:
    return f"2026-01-05T00:{minute:02d}:00Z"


def document(folder: Path, content: Any) -> Path:
    path = folder / "x.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def azure(*dimensions: list[str], unit: str = "Count", metrics: int = 1) -> dict[str, Any]:
    timeseries = [
        {
            "metadatavalues": [{"name": {"value": "x"}, "value": value} for value in values],
            "data": [{"timeStamp": iso(m), "total": m + 1} for m in range(len(values))],
        }
        for values in dimensions
    ]
    return {"value": [{"unit": unit, "timeseries": timeseries}] * metrics}


def test_dimensions_are_joined_and_never_paired_with_times(tmp_path: Path) -> None:
    trace = import_trace(document(tmp_path, azure(["a", "x"], ["b", "x"]))).trace
    assert trace.nodes == ("a/x", "b/x")
    assert trace.arrivals.tolist() == [[1, 1], [2, 2]]


def test_the_path_of_a_known_time_changes_nothing(tmp_path: Path) -> None:
    path = document(tmp_path, azure(["a", "x"], ["b", "x"]))
    named = import_trace(path, time_column="value[].timeseries[].data[].timeStamp").trace
    assert named == import_trace(path).trace


def test_minutes_without_a_total_are_holes(tmp_path: Path) -> None:
    answer = azure(["a", "x"])
    answer["value"][0]["timeseries"][0]["data"] += [
        {"timeStamp": iso(2)},
        {"timeStamp": iso(3), "total": 7},
    ]
    path = document(tmp_path, answer)
    with refused(TraceError, "gaps=zero"):
        import_trace(path)
    assert import_trace(path, gaps="zero").trace.arrivals.tolist() == [[1], [2], [0], [7]]


def statistics(**more: Any) -> dict[str, Any]:
    points = [{"Timestamp": iso(m), "Average": 2.0, "Unit": "Count", **more} for m in (2, 0, 1)]
    return {"Label": "RequestCount", "Datapoints": points}


def google(kind: str) -> dict[str, Any]:
    points = [{"interval": {"endTime": iso(m)}, "value": {"int64Value": str(m)}} for m in (2, 1)]
    labels = {"instance": "a"}
    return {"timeSeries": [{"metricKind": kind, "resource": {"labels": labels}, "points": points}]}


REFUSED = {
    "two metrics": (azure(["a", "x"], metrics=2), "repeats"),
    "a unit that is no count": (azure(["a", "x"], unit="Percent"), "percent"),
    "statistics of a rate": (statistics(Sum=3.0, Unit="Count/Second"), "count/second"),
    "cumulative values": (google("CUMULATIVE"), "cumulative"),
    "lists that differ in length": (
        {"MetricDataResults": [{"Label": "a", "Timestamps": [iso(0), iso(1)], "Values": [1.0]}]},
        "length",
    ),
    "two lists of entries": (
        {"a": [{"time": iso(0), "n": 1}], "b": [{"time": iso(1), "m": 2}]},
        "time_column='a[].time'",
    ),
    "a list in an entry with a time": (
        [{"time": iso(m), "host": "a", "tags": [{"k": 1}, {"k": 2}]} for m in range(4)],
        "time_column=time",
    ),
    "no entries": ({"Datapoints": [], "Label": "RequestCount"}, "x.json"),
    "objects in objects": ('{"b":{},"a":' * 500 + "{}" + "}" * 500, "time_column="),
    "cut": ('{"items": [{"timestamp": "20260', "truncated"),
    "a line that is cut": (f'{{"time": "{iso(0)}", "n": 1}}\n{{"time": "20', "x.json:2"),
    "a value that is no number": ([{"time": iso(m), "n": "12345678x"[m]} for m in range(9)], "n"),
}


@pytest.mark.parametrize(("content", "named"), REFUSED.values(), ids=REFUSED)
def test_documents_that_are_refused(tmp_path: Path, content: Any, named: str) -> None:
    with refused(TraceError, "x.json", named) as caught:
        import_trace(document(tmp_path, content))
    assert "Prometheus" not in str(caught.value)


def test_a_value_that_is_named_is_read_as_it_is(tmp_path: Path) -> None:
    path = document(tmp_path, statistics(Sum=3.0, Unit="Count/Second"))
    trace = import_trace(
        path, arrivals="Datapoints[].Average", time_column="Datapoints[].Timestamp"
    ).trace
    assert trace.arrivals.tolist() == [[2], [2], [2]]
    assert import_trace(path, arrivals="Datapoints[].Average").trace == trace


def test_a_path_chooses_among_lists(tmp_path: Path) -> None:
    entries = [
        {"time": iso(m), "host": "a", "n": m, "tags": [{"k": 1}, {"k": 2}]} for m in range(4)
    ]
    for content in (entries, {"rows": entries, "more": [{"x": 1}]}):
        prefix = "rows[]." if isinstance(content, dict) else ""
        path = document(tmp_path, content)
        trace = import_trace(path, time_column=f"{prefix}time", arrivals=f"{prefix}n").trace
        assert trace.arrivals.tolist() == [[0], [1], [2], [3]]
    pairs = [[MIDNIGHT + 60 * m, m + 1] for m in range(4)]
    assert import_trace(document(tmp_path, pairs)).trace.arrivals.tolist() == [[1], [2], [3], [4]]


def test_a_cumulative_series_with_its_end_alone_may_be_a_gauge(tmp_path: Path) -> None:
    imported = import_trace(document(tmp_path, google("GAUGE")))
    assert imported.trace.arrivals.tolist() == [[1], [2]]
    shown(" ".join(imported.notes), "Google")


def test_labels_that_could_name_the_node_are_asked_for(tmp_path: Path) -> None:
    result = [
        {"stream": {"pod": p, "zone": z}, "values": [[f"{MIDNIGHT + 60 * i}000000000", "x"]] * 2}
        for i, (p, z) in enumerate((("a", "x"), ("b", "x"), ("c", "y")))
    ]
    path = document(
        tmp_path, {"status": "success", "data": {"resultType": "streams", "result": result}}
    )
    with refused(TraceError, "node_column=stream.pod", "node_column=stream.zone"):
        import_trace(path)
    trace = import_trace(path, node_column="stream.zone").trace
    assert (trace.nodes, trace.arrivals.tolist()) == (("x", "y"), [[2, 0], [2, 0], [0, 2]])


def test_monthly_times_of_wikimedia_are_no_seconds_since_1970(tmp_path: Path) -> None:
    items = [{"article": "Cat", "timestamp": f"202601{d:02d}00", "views": d} for d in (5, 6, 7)]
    trace = import_trace(document(tmp_path, {"items": items})).trace
    assert (trace.times[0], trace.step) == (MIDNIGHT, 86_400)


def test_limits_of_documents(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"time": iso(m), "a": m, "b": 1}) + "\n" for m in range(9))
    path = document(tmp_path, rows)
    assert len(import_trace(path, max_cells=450).trace) == 9
    for limits in ({"max_cells": 440}, {"max_bytes": 80}):
        with refused(TraceError, *(f"{name}=" for name in limits)):
            import_trace(path, **limits)


# --- Times, names and titles beside the values ---------------------------------------------------

NAMES = ("fra-01", "lon-01")
COUNTS = [[3 + 2 * m + n * m % 5 for n in range(2)] for m in range(12)]
ROWS = list(zip(map(iso, range(12)), COUNTS, strict=True))
POINTS = {name: [[at, row[n]] for at, row in ROWS] for n, name in enumerate(NAMES)}
BY_NODE = {name: dict(points) for name, points in POINTS.items()}
LISTS = {name: [n for _, n in points] for name, points in POINTS.items()}
STAMPS = [1000 * (MIDNIGHT + 60 * m) for m in range(12)]


def by_name(row: list[int]) -> dict[str, int]:
    return dict(zip(NAMES, row, strict=True))


NESTED = {
    "time, node": {at: by_name(row) for at, row in ROWS},
    "seconds, node": {str(MIDNIGHT + 60 * m): by_name(row) for m, row in enumerate(COUNTS)},
    "node, time": BY_NODE,
    "time, node in an answer": {"status": "ok", "data": {at: by_name(row) for at, row in ROWS}},
    "node, time in an answer": {"meta": {"unit": "count"}, "series": BY_NODE},
    "time, node, measure": {
        at: {name: {"requests": n, "errors": 0} for name, n in by_name(row).items()}
        for at, row in ROWS
    },
    "time, list of nodes": {
        at: [{"host": name, "requests": n} for name, n in by_name(row).items()] for at, row in ROWS
    },
    "node, pairs": POINTS,
    "node, objects": {
        name: [{"time": at, "requests": n} for at, n in points] for name, points in POINTS.items()
    },
    "a list per column": {"time": [at for at, _ in ROWS], **LISTS},
    "two lists per line": "".join(
        json.dumps({"metric": {"host": name}, "values": LISTS[name], "timestamps": STAMPS}) + "\n"
        for name in NAMES
    ),
    "two lists per node": {
        name: {"at": [at for at, _ in ROWS], "requests": LISTS[name]} for name in NAMES
    },
    "an object per entry": [{"time": at, "hosts": by_name(row)} for at, row in ROWS],
    "rows below a header": [["time", *NAMES], *([at, *row] for at, row in ROWS)],
    "rows beside titles": {"labels": ["time", *NAMES], "data": [[at, *row] for at, row in ROWS]},
    "rows beside fields": {
        "meta": [{"name": name, "type": "x"} for name in ("time", *NAMES)],
        "data": [[at, *row] for at, row in ROWS],
    },
    "rows beside titles and times": {"columns": NAMES, "index": STAMPS, "data": COUNTS},
    "columns by number of the row": {
        "time": {str(m): at for m, (at, _) in enumerate(ROWS)},
        **{name: {str(m): n for m, n in enumerate(column)} for name, column in LISTS.items()},
    },
    "rows by their number": {
        str(m): {"time": at, **by_name(row)} for m, (at, row) in enumerate(ROWS)
    },
}


@pytest.mark.parametrize("content", NESTED.values(), ids=NESTED)
def test_nodes_have_the_names_in_the_document(tmp_path: Path, content: Any) -> None:
    trace = import_trace(document(tmp_path, content)).trace
    assert trace.nodes == NAMES
    assert trace.arrivals.tolist() == COUNTS
    assert (trace.times[0], trace.step) == (MIDNIGHT, 60)


LISTED = {
    "objects": dict(ROWS),
    "entries": [{"time": at, "values": row} for at, row in ROWS],
}


@pytest.mark.parametrize("content", LISTED.values(), ids=LISTED)
def test_a_list_of_loads_has_a_node_for_each_place(tmp_path: Path, content: Any) -> None:
    trace = import_trace(document(tmp_path, content)).trace
    assert trace.nodes == ("values[0]", "values[1]")
    assert trace.arrivals.tolist() == COUNTS


def test_a_list_of_numbers_beside_another_number_is_asked_for(tmp_path: Path) -> None:
    entries = [{"time": at, "requests": sum(row), "sizes": row} for at, row in ROWS]
    path = document(tmp_path, entries)
    with refused(TraceError, "arrivals=requests", "arrivals='sizes[*]'"):
        import_trace(path)
    assert import_trace(path, arrivals="sizes[*]").trace.arrivals.tolist() == COUNTS
    assert import_trace(path, arrivals="requests").trace.arrivals.sum() == sum(map(sum, COUNTS))


def test_measures_as_keys_are_no_nodes(tmp_path: Path) -> None:
    content = {"requests": BY_NODE["fra-01"], "errors": BY_NODE["lon-01"]}
    path = document(tmp_path, content)
    with refused(TraceError, "'metric=requests'", "'metric=errors'"):
        import_trace(path)
    trace = import_trace(path, where="metric=requests").trace
    assert trace.arrivals[:, 0].tolist() == LISTS["fra-01"]


def test_a_list_in_each_entry_is_named_in_the_refusal(tmp_path: Path) -> None:
    entries = [
        {"time": at, "servers": [{"name": k, "requests": n} for k, n in by_name(row).items()]}
        for at, row in ROWS
    ]
    path = document(tmp_path, entries)
    with refused(TraceError, "servers[].requests", "time_column=time"):
        import_trace(path)
    trace = import_trace(
        path, time_column="time", node_column="servers[].name", arrivals="servers[].requests"
    ).trace
    assert (trace.nodes, trace.arrivals.tolist()) == (NAMES, COUNTS)


def test_lists_without_times_are_steps_in_order(tmp_path: Path) -> None:
    path = document(tmp_path, LISTS)
    with refused(TraceError, "time_column=row"):
        import_trace(path)
    trace = import_trace(path, time_column="row").trace
    assert (trace.nodes, trace.arrivals.tolist()) == (NAMES, COUNTS)


def test_a_path_may_be_the_name_of_its_column(tmp_path: Path) -> None:
    series = [{"name": name, "points": points} for name, points in POINTS.items()]
    path = document(tmp_path, {"series": series})
    for start in ("", "series[]."):
        trace = import_trace(path, arrivals=f"{start}points[][1]").trace
        assert (trace.nodes, trace.arrivals.tolist()) == (NAMES, COUNTS)


def test_a_constant_of_an_answer_is_not_its_load(tmp_path: Path) -> None:
    series = [{"name": name, "points": points} for name, points in POINTS.items()]
    assert import_trace(document(tmp_path, {"step": 60, "series": series})).trace.nodes == NAMES
    path = document(tmp_path, {"requests": 2, "series": series})
    with refused(TraceError, "arrivals=requests", "arrivals='points[][1]'"):
        import_trace(path)


# --- Texts and numbers beside the values ---------------------------------------------------------


def datadog(*hosts: str, **more: Any) -> dict[str, Any]:
    unit = [{"family": "network", "name": "request"}, {"family": "time", "name": "second"}]
    series = [
        {
            "metric": "nginx.requests",
            "scope": f"host:{host}",
            "unit": unit,
            "tag_set": ["data:x", f"host:{host}"],
            "pointlist": [[at, row[n]] for at, row in zip(STAMPS, COUNTS, strict=True)],
            **more,
        }
        for n, host in enumerate(hosts)
    ]
    return {"status": "ok", "series": series}


@pytest.mark.parametrize("more", [{}, {"unit": []}, {"tag_set": []}])
@pytest.mark.parametrize("hosts", ["a", "ab"])
def test_units_and_tags_beside_pairs_are_no_titles(
    tmp_path: Path, hosts: str, more: dict[str, Any]
) -> None:
    trace = import_trace(document(tmp_path, datadog(*hosts, **more))).trace
    assert trace.arrivals.tolist() == [row[: len(hosts)] for row in COUNTS]
    assert len(hosts) == 1 or trace.nodes == ("host:a", "host:b")


def test_tags_before_the_titles_of_rows_are_skipped(tmp_path: Path) -> None:
    content = {"tags": ["x", "y", "z"], **NESTED["rows beside titles"]}
    assert import_trace(document(tmp_path, content)).trace.nodes == NAMES


NUMBERED = {
    "times as keys": {str(n): BY_NODE[name] for n, name in enumerate(NAMES)},
    "pairs": {str(n): POINTS[name] for n, name in enumerate(NAMES)},
    "objects": {str(n): NESTED["node, objects"][name] for n, name in enumerate(NAMES)},
    "two lists": {str(n): NESTED["two lists per node"][name] for n, name in enumerate(NAMES)},
}


@pytest.mark.parametrize("content", NUMBERED.values(), ids=NUMBERED)
def test_numbers_as_keys_of_series_are_nodes(tmp_path: Path, content: Any) -> None:
    trace = import_trace(document(tmp_path, content)).trace
    assert (trace.nodes, trace.arrivals.tolist()) == (("0", "1"), COUNTS)


def test_numbers_as_keys_of_pairs_are_rows(tmp_path: Path) -> None:
    pairs = {str(m): [at, n] for m, (at, n) in enumerate(POINTS["fra-01"])}
    trace = import_trace(document(tmp_path, pairs)).trace
    assert trace.arrivals[:, 0].tolist() == LISTS["fra-01"]


def test_numbered_series_with_differing_keys_are_asked_for(tmp_path: Path) -> None:
    series = {**NUMBERED["objects"], "2": [{"time": at, "requests": 1, "x": 2} for at, _ in ROWS]}
    with refused(TraceError, "time_column="):
        import_trace(document(tmp_path, series))


AT = [at for at, _ in ROWS]
UNEQUAL = {
    "a shorter list": {"time": AT, "a": LISTS["fra-01"], "b": LISTS["lon-01"][:-1]},
    "a longer list": {"time": AT, "a": LISTS["fra-01"], "b": [*LISTS["lon-01"], 1]},
    "a list without a number": {"time": AT, "a": LISTS["fra-01"], "b": []},
    "a list with null": {"time": AT, "a": LISTS["fra-01"], "b": [1, None]},
    "other times": {"time": AT, "a": LISTS["fra-01"], "b": AT[:-1]},
    "in an answer": {
        "ok": True,
        "data": {"time": AT, "a": LISTS["fra-01"], "b": LISTS["lon-01"][:-1]},
    },
}


@pytest.mark.parametrize("content", UNEQUAL.values(), ids=UNEQUAL)
def test_lists_that_differ_in_length_are_refused(tmp_path: Path, content: Any) -> None:
    path = document(tmp_path, content)
    start = "data." if "data" in content else ""
    with refused(TraceError, f"{start}b[]", f"arrivals='{start}a[]'"):
        import_trace(path)
    trace = import_trace(path, arrivals=f"{start}a[]").trace
    assert trace.arrivals[:, 0].tolist() == LISTS["fra-01"]


def test_texts_beside_lists_of_numbers_are_skipped(tmp_path: Path) -> None:
    path = document(tmp_path, {"time": AT, **LISTS, "tags": ["x", "y", "z"]})
    assert import_trace(path).trace.nodes == NAMES


def test_an_empty_list_is_no_column(tmp_path: Path) -> None:
    entries = [{"time": at, "of": [{"requests": row[0], "tags": []}], "x": []} for at, row in ROWS]
    imported = import_trace(document(tmp_path, entries))
    assert imported.trace.arrivals[:, 0].tolist() == LISTS["fra-01"]
    assert "tags" not in str(imported.guesses)


# --- Days ----------------------------------------------------------------------------------------

DAYS = ("2026-01-05", "2026-01-06")
HOURLY = [3 + h * h % 11 for h in range(48)]
KEYS = {
    "hours": [str(h) for h in range(24)],
    "hours with zeros": [f"{h:02d}" for h in range(24)],
    "hours from 1": [str(h + 1) for h in range(24)],
    "clocks": [f"{h:02d}:00" for h in range(24)],
}


def by_day(numbers: list[int]) -> dict[str, list[int]]:
    return {day: numbers[24 * d : 24 * d + 24] for d, day in enumerate(DAYS)}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_hours_in_days_are_times(tmp_path: Path, keys: list[str]) -> None:
    of_day = {day: dict(zip(keys, numbers, strict=True)) for day, numbers in by_day(HOURLY).items()}
    nodes = {
        day: {k: {"a": n, "b": 1 + n % 3} for k, n in of.items()} for day, of in of_day.items()
    }
    for content in (of_day, {"a": of_day, "b": of_day}, nodes):
        trace = import_trace(document(tmp_path, content)).trace
        assert (trace.times[0], trace.step) == (MIDNIGHT, 3600)
        assert trace.arrivals[:, 0].tolist() == HOURLY
        assert len(trace.nodes) == (1 if content is of_day else 2)


LISTS_OF_DAYS = {
    "day, list": (by_day(HOURLY), "values[*]"),
    "entries with lists": (
        [{"date": day, "values": numbers} for day, numbers in by_day(HOURLY).items()],
        "values[*]",
    ),
    "entries with clocks": (
        [
            {"date": f"{day}T00:00:00Z", "of": dict(zip(KEYS["clocks"], numbers, strict=True))}
            for day, numbers in by_day(HOURLY).items()
        ],
        "of.*",
    ),
    "numbers of quarters of an hour": (
        {day: {str(q): q * q % 7 + d for q in range(96)} for d, day in enumerate(DAYS)},
        ",".join(map(str, range(96))),
    ),
    "rows without titles": (
        [[day, *numbers] for day, numbers in by_day(HOURLY).items()],
        ",".join(f"[][{at}]" for at in range(1, 25)),
    ),
    "ranges of times": (
        {
            day: {f"{h:02d}:00-{h + 1:02d}:00": n for h, n in enumerate(numbers)}
            for day, numbers in by_day(HOURLY).items()
        },
        ",".join(f"{h:02d}:00-{h + 1:02d}:00" for h in range(24)),
    ),
    "two ranges": (
        {day: {"09:00-10:00": 3, "10:00-11:00": d} for d, day in enumerate(DAYS)},
        "09:00-10:00,10:00-11:00",
    ),
    "a list for each part of an hour": (
        {day: [q * q % 7 + d for q in range(288)] for d, day in enumerate(DAYS)},
        "values[*]",
    ),
}


@pytest.mark.parametrize(("content", "arrivals"), LISTS_OF_DAYS.values(), ids=LISTS_OF_DAYS)
def test_numbers_that_may_be_the_hours_of_a_day_are_refused(
    tmp_path: Path, content: Any, arrivals: str
) -> None:
    path = document(tmp_path, content)
    with refused(TraceError, f"arrivals={quoted(arrivals)}"):
        import_trace(path)
    trace = import_trace(path, arrivals=arrivals).trace
    assert (len(trace), trace.step) == (2, 86_400)


def test_addresses_are_no_hours(tmp_path: Path) -> None:
    nodes = [f"10.0.0.{n}:9090" for n in range(24)]
    content = {
        day: dict(zip(nodes, numbers, strict=True)) for day, numbers in by_day(HOURLY).items()
    }
    assert len(import_trace(document(tmp_path, content)).trace.nodes) == len(nodes)


def test_few_numbers_as_keys_of_days_are_not_taken_for_nodes(tmp_path: Path) -> None:
    content = {f"2026-01-{d:02d}": {"1": d, "2": 2 * d % 7, "3": 4} for d in range(5, 15)}
    with refused(TraceError, "gaps=zero"):
        import_trace(document(tmp_path, content))
