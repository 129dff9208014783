"""A file that is no trace file: its header is refused, and what reads it is named."""

from __future__ import annotations

import time

import pytest

from corral.data import read_trace
from corral.errors import TraceError
from support.messages import shown
from support.trace_files import write

ISO = "2026-01-05T00:00:00Z"

OTHERS = {
    "wide": (f"time,srv-a,srv-b\n{ISO},1,2\n", "wide"),
    "wide with units": (f"Time,a,b\n{ISO},1.22 req/s,2 req/s\n", "wide"),
    "epoch ms": ("ts,a,b\n1767571200000,1,2\n", "wide"),
    "days first": ("Datum,a,b\n05.01.2026 00:00,1,2\n", "wide"),
    "long": (f"ts,host,reqs\n{ISO},a,2\n", "names"),
    "one server": (f"timestamp,value\n{ISO},2\n", "one server"),
    "requests": (f"TIMESTAMP,path,verb\n{ISO},/,GET\n", "row per request"),
    "semicolons": (f"time;a;b\n{ISO};1;2\n", "semicolons"),
    "tabs": (f"time\ta\tb\n{ISO}\t1\t2\n", "tabs"),
    "JSON": ('{"status":"success","data":{"resultType":"matrix"}}\n', "JSON"),
    "JSON, long": ('{"status":"success","data":[' + "1," * 40_000 + "1]}", "JSON"),
    "access log": ('::1 - - [05/Jan/2026:00:00:00 +0000] "GET /" 200 1\n', "access log"),
    "neither": ("Dear all,\nthe servers are slow,\n", "trace"),
}


@pytest.mark.parametrize(("content", "word"), OTHERS.values(), ids=OTHERS)
def test_the_importer_that_would_do_is_named(tmp_path, content, word):
    path = write(tmp_path, content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert word in caught.value.faults[0].rule
    assert f"corral trace import {path}" in caught.value.faults[0].rule


def test_a_slip_of_the_pen_is_corrected_here(tmp_path):
    with pytest.raises(TraceError) as caught:
        read_trace(write(tmp_path, f"Time,node,arivals\n{ISO},a,1\n"))
    shown(str(caught.value), "'arrivals'")
    assert "import" not in str(caught.value)


@pytest.mark.parametrize(
    "header", ["," * 65_000, ",".join(f"s{i}" for i in range(9000)), ",".join("ab" * 16_000)]
)
def test_a_header_of_many_fields_is_refused_at_once(tmp_path, header):
    path = write(tmp_path, header + "\n" + header + "\n")
    begin = time.process_time()
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert time.process_time() - begin < 10  # a third of a second on an idle machine
    assert len(str(caught.value)) < 1500
