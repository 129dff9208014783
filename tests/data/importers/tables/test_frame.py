"""Trace.from_dataframe: wide and long, times as an index or a column."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from corral.data import Trace
from corral.errors import TraceError, TraceWarning
from support.messages import refused, shown

TIMES = pd.date_range("2026-01-05", periods=3, freq="5min")
START = 1767571200


NAIVE = pytest.mark.filterwarnings("ignore:zone. not stated")


@NAIVE
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Rome"])
def test_a_wide_frame_with_times_as_its_index(zone: str | None) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]}, index=TIMES.tz_localize(zone))
    trace = Trace.from_dataframe(frame, name="mine")
    assert (trace.name, trace.nodes) == ("mine", ("a", "b"))
    assert trace.arrivals.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert trace.times[0] == START - (3600 if zone == "Europe/Rome" else 0)
    assert trace.step == 300


def test_a_long_frame() -> None:
    frame = pd.DataFrame(
        {
            "when": TIMES.repeat(2),
            "host": ["b", "a"] * 3,
            "rps": [0.5, 1.0, 1.5, 2.0, 2.5, 3.0],
            "limit": [2] * 6,
        }
    )
    with pytest.warns(TraceWarning) as caught:
        trace = Trace.from_dataframe(frame)
    zone, unit = (str(warning.message) for warning in caught)
    shown(zone, "zone", "UTC", "zone=Z", "zone=Europe/Rome")
    shown(unit, "unit", "'rps'", 300, "scale=300", "scale=1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Trace.from_dataframe(frame, zone="Z", scale=300).arrivals[0, 0] == 150
    assert trace.nodes == ("b", "a")
    assert trace.arrivals.tolist() == [[150, 300], [450, 600], [750, 900]]
    assert trace.capacity.tolist() == [[600, 600]] * 3  # type: ignore[union-attr]


@pytest.mark.parametrize("unit", [1, 1000])
def test_numbers_and_texts_as_times(unit: int) -> None:
    seconds = START + 300 * np.arange(3)
    for times in (seconds * unit, (seconds * unit).astype(float), [f"{t * unit}" for t in seconds]):
        frame = pd.DataFrame({"ts": times, "a": [1, 2, 3], "b": [4, 5, 6]})
        assert Trace.from_dataframe(frame).times.tolist() == seconds.tolist()


@NAIVE
def test_a_multi_index() -> None:
    index = pd.MultiIndex.from_product([TIMES, ["a", "b"]], names=["time", "node"])
    frame = pd.DataFrame({"requests": range(6)}, index=index)
    assert Trace.from_dataframe(frame).arrivals.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_what_was_done_is_warned_of() -> None:
    frame = pd.DataFrame({"a": [1, np.nan, 3], "b": [4, 5, 6], "note": list("xyz")}, index=TIMES)
    with refused(TraceError, "gaps=zero", "5 min", "2026-01-05T00:05:00Z", "(a)"):
        Trace.from_dataframe(frame)
    with pytest.warns(TraceWarning) as caught:
        trace = Trace.from_dataframe(frame, gaps="interpolate", capacity="2x", zone="Z")
    assert trace.arrivals[1].tolist() == [2, 5]
    unused, filled = (str(warning.message) for warning in caught)
    shown(unused, "note")
    shown(filled, "1 missing", "gaps=interpolate", "1 hole")


def test_what_is_no_load_is_refused() -> None:
    with refused(TraceError, "frame", "DataFrame"):
        Trace.from_dataframe(pd.DataFrame({"time": [], "a": []}))
    with refused(TraceError, "frame", "a: x; b: p", "time_column=a", "time_format="):
        Trace.from_dataframe(pd.DataFrame({"a": ["x", "y"], "b": ["p", "q"]}))
    with refused(ValueError, "DataFrame", "list"):
        Trace.from_dataframe([1, 2])  # type: ignore[arg-type]
    with refused(ValueError, "colour=", "time_column", "node_column"):
        Trace.from_dataframe(pd.DataFrame({"a": [1]}), colour="red")
