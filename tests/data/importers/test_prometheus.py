"""Importing what Prometheus answers: series become nodes, counters become requests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.data import import_prometheus, import_trace
from corral.data.importers.binning import Guess
from corral.errors import TraceError
from support.import_files import MIDNIGHT, write
from support.messages import refused, shown


def entry(values: Sequence[Any], start: int = MIDNIGHT, step: int = 60, **labels: str) -> Any:
    """One series of an answer; a None value leaves the time out."""
    pairs = [[start + step * i, str(v)] for i, v in enumerate(values) if v is not None]
    return {"metric": labels, "values": pairs}


def answer(folder: Path, *series: Any, name: str = "loads.json") -> Path:
    path = folder / name
    data = {"resultType": "matrix", "result": list(series)}
    path.write_text(json.dumps({"status": "success", "data": data}))
    return path


A, B = {"instance": "a:9090", "job": "gw"}, {"instance": "b:9090", "job": "gw"}


def test_series_become_nodes_by_the_one_label_that_differs(tmp_path):
    path = answer(tmp_path, entry([3, 1, 2], **A), entry([5, 0, 7], **B))
    found = import_prometheus(path, capacity=9)
    assert found.trace.nodes == ("a:9090", "b:9090")
    assert found.trace.times.tolist() == [MIDNIGHT, MIDNIGHT + 60, MIDNIGHT + 120]
    assert found.trace.arrivals.tolist() == [[3, 5], [1, 0], [2, 7]]
    assert found.trace.name == "loads"
    assert found.trace == import_trace(path, capacity=9).trace
    assert Guess("nodes", "2, by label instance: a:9090, b:9090", "label=LABEL") in found.guesses


def test_the_result_alone_and_packed_answers(tmp_path):
    path = tmp_path / "alone.json.gz"
    path.write_bytes(gzip.compress(json.dumps([entry([3, 1, 2], **A)], indent=1).encode()))
    assert import_trace(path).trace.nodes == ("a:9090",)


def test_parts_of_a_series_in_several_files_are_joined(tmp_path):
    parts = [
        answer(tmp_path, entry([9, 4], MIDNIGHT + 120, **A), entry([7, 5], MIDNIGHT + 120, **B)),
        answer(tmp_path, entry([3, 1], **A), entry([2, 2], **B), name="early.json"),
    ]
    assert import_prometheus(parts).trace.arrivals.tolist() == [[3, 2], [1, 2], [9, 7], [4, 5]]
    with refused(TraceError, "loads.json", "2026-01-05T00:02:00Z", '{instance="a:9090", job="gw"}'):
        import_prometheus([parts[0], parts[0]])


def test_a_label_decides_where_several_differ(tmp_path):
    pairs = [("a", "200"), ("a", "500"), ("b", "200")]
    series = [
        entry(values, instance=instance, code=code)
        for values, (instance, code) in zip(
            [[5, 6, 4], [1, None, 2], [7, 8, 6]], pairs, strict=True
        )
    ]
    path = answer(tmp_path, *series)
    with refused(TraceError, 3, "instance (2", "code (2", "label=instance"):
        import_prometheus(path)
    found = import_prometheus(path, label="instance")
    assert found.trace.arrivals.tolist() == [[6, 7], [6, 8], [6, 6]]
    shown("\n".join(found.notes), "3 series", "2 nodes")
    shown("\n".join(found.notes), "1 sum")
    with refused(TraceError, "'pod'", '{instance="a", code="200"}', "instance, code", "label="):
        import_prometheus(path, label="pod")


def test_of_labels_that_each_name_the_series_the_likeliest_is_taken(tmp_path):
    series = [entry([3, 1, 2], zone=f"z{i}", pod=f"p{i}", instance=f"i{i}") for i in range(2)]
    assert import_prometheus(answer(tmp_path, *series)).trace.nodes == ("i0", "i1")


def test_rates_need_a_scale_and_keep_their_total(tmp_path):
    rates = np.random.default_rng(0).gamma(2.0, 1.0, 500)
    path = answer(tmp_path, entry(rates.tolist(), **A))
    with refused(TraceError, 1.83431, "scale=60", "scale=1", "60 s"):
        import_prometheus(path)
    trace = import_prometheus(path, scale=60).trace
    assert abs(trace.arrivals.sum() - 60 * rates.sum()) <= 0.5
    assert np.abs(trace.arrivals[:, 0] - 60 * rates).max() <= 1


def test_missing_and_infinite_values_are_told(tmp_path):
    path = answer(tmp_path, entry([3, "NaN", 2, "+Inf", 4], **A), entry([1, 1, 1, 1, 1], **B))
    with refused(
        TraceError,
        "2 holes",
        "gaps=zero",
        "2026-01-05T00:01:00Z (a:9090)",
        "2026-01-05T00:03:00Z (a:9090)",
    ):
        import_prometheus(path)
    found = import_prometheus(path, gaps="previous")
    assert found.trace.arrivals[:, 0].tolist() == [3, 3, 2, 2, 4]
    shown("\n".join(found.notes), "loads.json", "1 value", "NaN", "gaps=")
    shown("\n".join(found.notes), "infinite")


# --- Counters ------------------------------------------------------------------------------------

GROWING = [100, 105, 105, 112, 120, 121, 130]


def test_a_counter_is_recognized_and_asked_about(tmp_path):
    path = answer(tmp_path, entry(GROWING, **A), entry([0, 0, 1, 3, 9, 9, 12], **B))
    with refused(TraceError, 100, 130, "counter=True", "counter=False"):
        import_prometheus(path)
    assert import_prometheus(path, counter=False).trace.arrivals[:, 0].tolist() == GROWING
    found = import_prometheus(path, counter=True)
    assert found.trace.arrivals.tolist() == [[5, 0], [0, 1], [7, 2], [8, 6], [1, 0], [9, 3]]
    assert found.trace.times[0] == MIDNIGHT  # the step that begins with the first value


def test_a_counter_that_begins_again_counts_from_0(tmp_path):
    path = answer(tmp_path, entry([100, 105, 3, 10], **A))
    found = import_prometheus(path, counter=True)
    assert found.trace.arrivals[:, 0].tolist() == [5, 3, 7]
    shown("\n".join(found.notes), "1 restart")


def test_counters_of_a_node_are_summed_after_their_differences(tmp_path):
    series = [
        entry([9, 10, 0, 4], instance="a", code="200"),
        entry([1, 2, 3, 5], instance="a", code="500"),
    ]
    trace = import_prometheus(answer(tmp_path, *series), label="instance", counter=True).trace
    assert trace.arrivals[:, 0].tolist() == [2, 1, 6]


def test_a_hole_in_a_counter_keeps_the_total(tmp_path):
    path = answer(tmp_path, entry([100, 105, None, None, 120, 121, 124], **A))
    with refused(TraceError, "1 hole", "3 steps", "2026-01-05T00:01:00Z (a:9090)"):
        import_prometheus(path, counter=True)
    found = import_prometheus(path, counter=True, gaps="interpolate")
    assert found.trace.arrivals[:, 0].tolist() == [5, 5, 5, 5, 1, 3]
    shown("\n".join(found.notes), "1 hole", "counters")
    assert import_prometheus(path, counter=True, gaps="zero").trace.arrivals.sum() == 9


def test_loads_that_fall_are_no_counters(tmp_path):
    loads = np.random.default_rng(1).poisson(30, 200).tolist()
    assert len(import_prometheus(answer(tmp_path, entry(loads, **A))).trace) == 200
    ramp = answer(tmp_path, entry([1, 1, 1, 1, 1, 1, 1, 1], **A), entry(loads[:8], **B))
    assert len(import_prometheus(ramp).trace) == 8
    peak = answer(tmp_path, entry([1, 2, 5, 9, 14, 20, 26, 30, 12], **A))
    assert len(import_prometheus(peak).trace) == 9


# --- Tables --------------------------------------------------------------------------------------

TABLE = [
    '"Time","{instance=""a:9090"", job=""gw""}","{instance=""b:9090"", job=""gw""}"',
    '"2026-01-05 01:00:00","3","5"',
    '"2026-01-05 01:01:00","1","NaN"',
    '"2026-01-05 01:02:00","2","7"',
]


def test_a_table_with_labels_above_its_columns(tmp_path):
    path = write(tmp_path, "loads.csv", *TABLE)
    found = import_prometheus(path, zone="Europe/Rome", gaps="zero")
    assert found.trace.nodes == ("a:9090", "b:9090")
    assert found.trace.times[0] == MIDNIGHT
    assert found.trace.arrivals.tolist() == [[3, 5], [1, 0], [2, 7]]
    assert found.trace == import_trace(path, zone="Europe/Rome", gaps="zero").trace
    told = {guess.what: guess for guess in found.guesses}
    assert told["zone"].found == "Europe/Rome"
    told = {guess.what: guess for guess in import_prometheus(path, gaps="zero").guesses}
    shown(told["zone"].found, "UTC")
    assert told["zone"].change == "zone=Europe/Rome"


def test_counters_and_rates_in_a_table(tmp_path):
    rows = [f"{MIDNIGHT * 1000 + 60_000 * i},{value}" for i, value in enumerate(GROWING)]
    path = write(tmp_path, "loads.csv", 'Time,http_requests_total{instance="a"}', *rows)
    with refused(TraceError, "loads.csv", 100, 130, "counter=True", "counter=False"):
        import_trace(path)
    found = import_trace(path, counter=True).trace
    assert (found.nodes, found.arrivals[:, 0].tolist()) == (("a",), [5, 0, 7, 8, 1, 9])
    rates = [f"{MIDNIGHT + 60 * i},{rate} req/s" for i, rate in enumerate([0.5, 1.25, 0.1])]
    path = write(tmp_path, "rates.csv", 'Time,{instance="a"}', *rates)
    assert import_trace(path).trace.arrivals[:, 0].tolist() == [30, 75, 6]


# --- Files that are none -------------------------------------------------------------------------

NONE = {
    "empty": ("", ("loads.json", "empty")),
    "cut short": ('{"status": "success", "data": {"resultType": "matrix", "res', ("JSON", 56, 55)),
    "an error": (
        '{"status": "error", "errorType": "timeout", "error": "query timed out"}',
        ("Prometheus", "query timed out"),
    ),
    "one moment": ('{"data": {"resultType": "vector", "result": []}}', ("/api/v1/query_range",)),
    "no series": ('{"data": {"resultType": "matrix", "result": []}}', ("loads.json", "query")),
    "another document": ('{"metrics": 3}', ("Prometheus", "query_range")),
    "a list": ("[1, 2]", ("series 1", "query_range")),
    "no values": ('[{"metric": {}, "values": []}]', ("series 1", "query_range")),
    "odd values": (
        '[{"metric": {}, "values": [[1, "2"], [2, "x"]]}]',
        ("value 2", "series 1", '[2, "x"]'),
    ),
    "odd pairs": ('[{"metric": {}, "values": [7]}]', ("value 1", "series 1", 7)),
    "null": ('[{"metric": {}, "values": [[1, null]]}]', ("value 1", "series 1", "[1, null]")),
    "negative": ('[{"metric": {}, "values": [[1, "-2"]]}]', ("series 1", -2)),
    "milliseconds": (
        '[{"metric": {}, "values": [[1767571200000000, "2"]]}]',
        (1970, "1.76757e+15"),
    ),
    "endless times": ('[{"metric": {}, "values": [[1e999, "2"]]}]', (1970, "inf")),
    "histograms": ('[{"metric": {}, "histograms": [[1, {}]]}]', ("histogram_count(rate(...))",)),
    "nested": ("[" * 100_000, ("JSON", "nested")),
    "one time": ('[{"metric": {}, "values": [[1, "2"]]}]', ("two",)),
    "a trace": ("time,node,arrivals\n1,a,2\n", ("'node'", "corral trace import")),
    "brackets": ("[" + "[]," * 4_000_001, ("1,666,666 values",)),
}


@pytest.mark.parametrize(("content", "values"), NONE.values(), ids=NONE)
def test_a_file_of_another_kind_is_refused_plainly(tmp_path, content, values):
    path = tmp_path / "loads.json"
    path.write_text(content)
    with refused(TraceError, *values):
        import_prometheus(path)


def test_the_limit_on_bytes_is_named(tmp_path):
    path = answer(tmp_path, entry([3, 1, 2], **A))
    with refused(TraceError, 50, "max_bytes="):
        import_prometheus(path, max_bytes=50)
