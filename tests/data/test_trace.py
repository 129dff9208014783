"""The Trace itself: its checks, its equality, its derived figures."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from corral.data import Trace, bundled, load_trace
from corral.errors import TraceError, UnknownNameError
from support.messages import refused


def small(**changes) -> Trace:
    values = {
        "nodes": ("a", "b"),
        "arrivals": [[1, 2], [3, 4], [5, 6]],
        "capacity": [[9, 9], [8, 8], [7, 7]],
        "times": [0, 300, 600],
        "clock": "utc",
    }
    return Trace(**(values | changes))


def test_a_trace_is_read_only_and_its_own():
    given = np.array([[1, 2], [3, 4], [5, 6]])
    trace = small(arrivals=given)
    given[0, 0] = 99
    assert trace.arrivals[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        trace.arrivals[0, 0] = 99


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({"arrivals": [[1, 2], [3, 4]]}, ("arrivals", "(2, 2)", "(3, 2)")),
        ({"arrivals": [[1, -2], [3, 4], [5, 6]]}, ("arrivals", "0 .. 2147483648")),
        ({"capacity": [[1, 2**31 + 1], [3, 4], [5, 6]]}, ("capacity", "0 .. 2147483648")),
        ({"arrivals": [[1.5, 2], [3, 4], [5, 6]]}, ("arrivals", "float64")),
        ({"arrivals": [1, 2, 3]}, ("arrivals", 2, 1)),
        ({"times": [0, 300, 700]}, ("times", "step")),
        ({"times": [600, 300, 0]}, ("times", "step")),
        ({"nodes": ("a", "a")}, ("['a', 'a']",)),
        ({"nodes": ("a", "")}, ("['']",)),
        ({"nodes": ("a", " b")}, ("[' b']",)),
        ({"nodes": ("a", "b\n")}, (r"['b\n']",)),
        ({"nodes": (), "arrivals": np.zeros((3, 0), int), "capacity": None}, ("step", "node")),
    ],
)
def test_a_malformed_trace_is_refused(changes, values):
    with refused(TraceError, *values):
        small(**changes)


def test_traces_are_equal_by_content_not_by_name():
    assert small(name="x") == small(name="y")
    assert hash(small(name="x")) == hash(small(name="y"))
    different = [
        {"nodes": ("a", "c")},
        {"times": [0, 60, 120]},
        {"clock": "integer"},
        {"arrivals": [[1, 2], [3, 4], [5, 7]]},
        {"capacity": None},
    ]
    for changes in different:
        assert small(**changes) != small(), changes


def test_digest_does_not_change_between_versions():
    literal = "1b3d9d2fac7d71875f59661f4ae0d7d0ab6d73445095b42788ca43f35736509e"
    assert small().digest == literal


def test_step_and_steps_per_day():
    assert (small().step, small().steps_per_day) == (300, 288)
    assert small(clock="integer").steps_per_day is None
    assert small(times=[0, 70, 140]).steps_per_day is None
    assert small().section(1, 2).step == 1


def test_section_keeps_the_rows_asked_for():
    part = small().section(1, 3)
    assert part.arrivals.tolist() == [[3, 4], [5, 6]]
    assert part.capacity is not None
    assert part.capacity.tolist() == [[8, 8], [7, 7]]
    assert part.times.tolist() == [300, 600]
    for low, high in ((0, 4), (-1, 2), (2, 2)):
        with refused(ValueError, f"rows {low}..{high}", "0..3"):
            small().section(low, high)


def test_with_capacity_number_and_multiple():
    assert small().with_capacity(7).capacity.tolist() == [[7, 7]] * 3
    assert small().with_capacity("1.5x").capacity.tolist() == [[4, 6]] * 3  # 1.5 * 3 rounds to even
    assert small().with_capacity("1.5x", rows=(0, 1)).capacity.tolist() == [[2, 3]] * 3
    with refused(ValueError, "rows 1..9", "0..3"):
        small().with_capacity("1.5x", rows=(1, 9))
    for bad in (-1, 1.5, True, "1.5", "x", "nanx", "-1x", "infx"):
        with pytest.raises(ValueError, match="capacity"):
            small().with_capacity(bad)


def test_a_trace_pickles():
    trace = small()
    assert pickle.loads(pickle.dumps(trace)) == trace


def test_bundled_traces_load_by_name_once():
    assert bundled() == ("edge3", "edge8")
    assert load_trace("edge3") is load_trace("edge3")
    assert load_trace("edge3").name == "edge3"
    trace = small()
    assert load_trace(trace) is trace


def test_unknown_names_and_missing_paths_differ(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(UnknownNameError, "'edge33'", "'edge3'", "edge3, edge8"):
        load_trace("edge33")
    for path in ("loads.csv", "./edge3", "some/loads", tmp_path / "loads"):
        with refused(TraceError, Path(path), "edge3, edge8"):
            load_trace(path)
    (tmp_path / "loads").write_text("time,node,arrivals\n0,a,1\n")
    assert load_trace("loads").nodes == ("a",)
    (tmp_path / "edge3").write_text("time,node,arrivals\n0,b,1\n")
    assert load_trace("./edge3").nodes == ("b",)
    assert load_trace("edge3").nodes == ("milan", "oslo", "porto")
