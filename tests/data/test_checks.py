"""What is said of rows that give one node one time twice: never to throw one away unseen."""

from __future__ import annotations

import pytest

from corral.data import read_trace
from corral.errors import TraceError
from support.messages import shown
from support.trace_files import write


def _fault(folder, rows) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(write(folder, "time,node,arrivals\n" + "".join(f"{row}\n" for row in rows)))
    return str(caught.value)


def test_equal_rows_are_one_too_many(tmp_path):
    found = _fault(tmp_path, ["0,a,1", "1,a,2", "1,a,2", "2,a,3"])
    shown(found, "'a'", "line 3", "remove")


def test_unequal_rows_may_be_two_servers(tmp_path):
    found = _fault(tmp_path, ["0,a,1", "1,a,2", "1,a,7", "2,a,3"])
    shown(found, "servers")
    assert "keep" not in found
    assert "remove" not in found


@pytest.mark.parametrize("servers", [2, 4])
def test_where_every_time_stands_there_often_a_column_is_missing(tmp_path, servers):
    rows = [f"{time},web,{server}" for time in range(9) for server in range(servers)]
    found = _fault(tmp_path, rows)
    assert found.count("\n") == 0  # said once
    shown(found, f"{9 * servers - 9} of {9 * servers}", "server")
    assert "keep" not in found
    assert "remove" not in found
