"""Writing a trace: exact round trips, the same bytes, nothing overwritten or half done."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.data import Trace, load_trace, make_trace, read_trace, write_trace
from corral.data.trace import is_name
from corral.errors import TraceError
from support.messages import refused


def test_the_file_is_as_the_format_says(tmp_path):
    trace = Trace(
        nodes=("a", "b,c"),
        arrivals=[[1, 2], [3, 4]],
        capacity=[[5, 6], [7, 8]],
        times=[1767571200, 1767571500],
        clock="utc",
    )
    write_trace(trace, tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_bytes() == (
        b"time,node,arrivals,capacity\n"
        b"2026-01-05T00:00:00Z,a,1,5\n"
        b'2026-01-05T00:00:00Z,"b,c",2,6\n'
        b"2026-01-05T00:05:00Z,a,3,7\n"
        b'2026-01-05T00:05:00Z,"b,c",4,8\n'
    )


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
@pytest.mark.parametrize("source", ["edge3", "edge8"])
def test_bundled_traces_survive_a_round_trip(tmp_path, name, source):
    write_trace(load_trace(source), tmp_path / name)
    assert read_trace(tmp_path / name) == load_trace(source)


names = st.lists(
    st.text(min_size=1, max_size=9).filter(is_name), min_size=1, max_size=4, unique=True
)


@settings(max_examples=100, deadline=None, database=None)
@given(
    nodes=names,
    rows=st.integers(1, 5),
    start=st.integers(-(10**10), 10**10),
    step=st.integers(1, 10**6),
    clock=st.sampled_from(["integer", "utc"]),
    capacity=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_trace_survives_a_round_trip(
    tmp_path_factory, nodes, rows, start, step, clock, capacity, seed
):
    rng = np.random.default_rng(seed)
    shape = (rows, len(nodes))
    trace = Trace(
        nodes=tuple(nodes),
        arrivals=rng.integers(1, 2**31 + 1, size=shape),
        capacity=rng.integers(0, 2**31 + 1, size=shape) if capacity else None,
        times=start + step * np.arange(rows),
        clock=clock,
    )
    path = tmp_path_factory.mktemp("round") / "x.csv"
    write_trace(trace, path)
    assert read_trace(path) == trace


def test_packed_bytes_depend_on_the_trace_alone(tmp_path):
    trace = make_trace(days=1)
    write_trace(trace, tmp_path / "x.csv.gz")
    write_trace(trace, tmp_path / "y.csv.gz")
    packed = (tmp_path / "x.csv.gz").read_bytes()
    assert packed == (tmp_path / "y.csv.gz").read_bytes()
    assert packed[3] == 0  # no flags: no name in the header
    assert packed[4:8] == bytes(4)  # no time either
    write_trace(trace, tmp_path / "x.csv")
    assert gzip.decompress(packed) == (tmp_path / "x.csv").read_bytes()


def test_nothing_is_overwritten_unless_asked(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_trace(load_trace("edge3"), path)
    assert path.read_text() == "precious"
    write_trace(load_trace("edge3"), path, overwrite=True)
    assert read_trace(path) == load_trace("edge3")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_text("precious")

    def fail(*args, **options):
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr("os.replace", fail)
    with refused(OSError, "disk full", errno=errno.ENOSPC):
        write_trace(load_trace("edge3"), path, overwrite=True)
    assert path.read_text() == "precious"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.csv"]


def test_what_no_file_can_hold_is_refused(tmp_path):
    def one(**changes):
        values = {"nodes": ("a",), "arrivals": [[1]], "capacity": None, "times": [0]}
        return Trace(**(values | changes))

    path = tmp_path / "x.csv"
    for trace, values in (
        (one(arrivals=[[0]]), ("x.csv", "arrivals", 0, "read_trace")),
        (one(times=[10**18]), ("18 digits",)),
        (one(times=[-(10**18)]), ("18 digits",)),
        (one(times=[10**12], clock="utc"), ("1 to 9999",)),
        (one(times=[-(10**12)], clock="utc"), ("1 to 9999",)),
        (one(times=[2**62], clock="utc"), ("1 to 9999",)),
    ):
        with refused(TraceError, *values):
            write_trace(trace, path)
    with refused(ValueError, "x.txt", ".csv", ".csv.gz"):
        write_trace(one(), tmp_path / "x.txt")
    assert not list(tmp_path.iterdir())


def test_text_of_a_small_made_trace_is_stable(tmp_path):
    write_trace(make_trace(days=1, step=3600, nodes=2), tmp_path / "x.csv")
    digest = hashlib.sha256((tmp_path / "x.csv").read_bytes()).hexdigest()
    assert digest == "374a1c5a43f28595353f076ee9f2564f1a61acc21df5ea2c987b1ae96bf75107"


def test_a_planted_link_is_neither_followed_nor_met(tmp_path):
    """Neither a link of the file's own name, nor one of the name that it was written under."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = tmp_path / "x.csv"
    path.symlink_to(victim)
    (tmp_path / f".x.csv.{os.getpid()}.part").symlink_to(victim)
    write_trace(load_trace("edge3"), path, overwrite=True)
    assert victim.read_text() == "precious"
    assert not path.is_symlink()
    assert read_trace(path) == load_trace("edge3")
