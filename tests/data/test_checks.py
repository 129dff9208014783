"""What is said of rows that give one node one time twice: never to throw one away unseen."""

from __future__ import annotations

import pytest

from corral.data import read_trace
from corral.errors import TraceError
from support.trace_files import write


def _fault(folder, rows) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(write(folder, "time,node,arrivals\n" + "".join(f"{row}\n" for row in rows)))
    return str(caught.value)


def test_equal_rows_are_one_too_many(tmp_path):
    found = _fault(tmp_path, ["0,a,1", "1,a,2", "1,a,2", "2,a,3"])
    assert "node 'a' already has this time on line 3, with the same numbers; remove one" in found


def test_unequal_rows_may_be_two_servers(tmp_path):
    found = _fault(tmp_path, ["0,a,1", "1,a,2", "1,a,7", "2,a,3"])
    assert "two servers" in found
    assert "keep one" not in found


@pytest.mark.parametrize("servers", [2, 4])
def test_where_every_time_stands_there_often_a_column_is_missing(tmp_path, servers):
    rows = [f"{time},web,{server}" for time in range(9) for server in range(servers)]
    found = _fault(tmp_path, rows)
    assert found.count("\n") == 0  # said once
    assert (
        f"{9 * servers - 9} of {9 * servers} rows have a time that their node already has" in found
    )
    assert "such as the server's name" in found
    assert "keep one" not in found
