"""Two ways through a trace file: what the fast one takes, the careful one takes too, and alike."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.data import read_trace
from corral.data.checks import Table, assemble
from corral.data.read import _Careful
from corral.data.scan import scan
from corral.errors import TraceError
from support.trace_files import GOOD, QUOTED, THREE, write


def outcome(table: Table | None, data: bytes):
    """The trace, or the faults, with or without a warning."""
    if table is None:
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            trace = assemble(table, data, name="x")
            return trace.nodes, trace.clock, trace.digest, len(caught)
        except TraceError as error:
            return str(error)


def assert_agreement(data: bytes) -> bool:
    """Whether the fast way took ``data``; fails where the careful one differs."""
    fast = scan(data, file="x", max_nodes=100)
    if fast is None:
        return False
    careful = _Careful("x").read(data)  # must not raise
    assert outcome(fast, data) == outcome(careful, data)
    return True


def test_the_fast_way_is_taken_by_plain_files(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("the careful way was taken")

    monkeypatch.setattr("corral.data.read._Careful.read", refuse)
    for count, clock in ((3, "integer"), (40, "iso")):
        times = [
            str(60 * t) if clock == "integer" else f"2026-01-{t // 24 + 1:02d}T{t % 24:02d}:00:00Z"
            for t in range(200)
        ]
        names = [f"node-{n}-in-a-long-street" if n % 2 else f"é{n}" for n in range(count)]
        for end in ("\n", "\r\n"):
            rows = [f"{t},{n},{len(n)},2147483648" for t in times for n in names]
            content = end.join(["time,node,arrivals,capacity", *rows, ""])
            trace = read_trace(write(tmp_path, content))
            assert trace.arrivals.shape == (200, count)
            assert trace.nodes == tuple(names)
    with pytest.raises(AssertionError, match="careful"):
        read_trace(write(tmp_path, GOOD.replace("b,", '"b""c",')))
    monkeypatch.setattr("corral.data.read._Careful.read", refuse)
    assert read_trace(write(tmp_path, QUOTED)) == read_trace(write(tmp_path, GOOD))
    with_comma = read_trace(write(tmp_path, GOOD.replace("b,", '"b,c",')))
    assert with_comma.nodes == ("a", "b,c")


def test_mutated_files_are_read_alike_both_ways():
    rng = random.Random(1)
    iso = GOOD.replace("\n120,", "\n2026-01-01T00:02:00Z,").replace("\n60,", "\n2026-01-01T00:01Z,")
    iso = iso.replace("\n0,", "\n2026-01-01,")
    quoted = GOOD.replace("b,", '"b,c",')
    seeds = [GOOD, THREE, QUOTED, quoted, GOOD.replace("\n", "\r\n"), iso, GOOD.replace("b", "é")]
    pieces = b'0 1 5 9 12 - , \n \r " . a b e T Z : + 99999999999 \t \0 \x7f'.split(b" ")
    pieces += [b"\xc3", b"\xa0", b"\xc2\x85"]
    pieces += [b"", b" ", b"0", b"7", b"3"]
    taken = 0
    for _ in range(8000):
        data = bytearray(rng.choice(seeds).encode())
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.choice((0, 1, 1, 2, 9))] = rng.choice(pieces)
        taken += assert_agreement(bytes(data))
    assert taken > 250  # enough of the mutants were plain


names = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1, max_size=20
).filter(lambda text: "," not in text)


@settings(max_examples=150, deadline=None, database=None)
@given(
    names=st.lists(names, min_size=1, max_size=4, unique=True),
    start=st.integers(-(10**9), 10**9),
    step=st.integers(1, 10**6),
    rows=st.integers(1, 5),
    data=st.data(),
)
def test_drawn_files_are_read_alike_both_ways(names, start, step, rows, data):
    cells = [(t, n) for t in range(rows) for n in names]
    counts = data.draw(
        st.lists(st.integers(0, 2**31 + 1), min_size=len(cells), max_size=len(cells))
    )
    order = data.draw(st.permutations(range(len(cells))))
    text = "time,node,arrivals\n" + "".join(
        f"{start + step * cells[i][0]},{cells[i][1]},{counts[i]}\n" for i in order
    )
    plain = all(c <= 2**31 for c in counts) and all(
        n.isprintable() and n.strip() == n and '"' not in n for n in names
    )
    taken = assert_agreement(text.encode())
    assert taken == plain or any('"' in name for name in names)  # of a quoted name


def test_the_fast_way_reads_what_was_written():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 2**31 + 1, size=(500, 3)) >> rng.integers(0, 32, size=(500, 3))
    counts[0] = (0, 2**31, 10)
    text = "time,node,arrivals,capacity\n" + "".join(
        f"{t},n{i},{counts[t, i]},{counts[t, -i]}\n" for t in range(500) for i in range(3)
    )
    table = scan(text.encode(), file="x", max_nodes=100)
    assert table is not None
    assert table.capacity is not None
    assert table.arrivals.reshape(500, 3).tolist() == counts.tolist()
    assert table.capacity.reshape(500, 3).tolist() == counts[:, [0, -1, -2]].tolist()
