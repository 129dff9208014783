"""Importing access logs: every line is counted, or named as malformed."""

from __future__ import annotations

import gzip
import time

import pytest

from corral.data import import_access_log
from corral.data.importers.log_formats import LINE
from corral.errors import TraceError
from support.import_files import MIDNIGHT, write
from support.messages import refused, shown

COMMON = '10.0.0.1 - - [05/Jan/2026:00:00:{:02d} +0000] "GET / HTTP/1.0" 200 2326'
COMBINED = '::1 - ann lee [04/Jan/2026:20:01:00 -0400] "GET /\\"x\\" HTTP/2" 304 - "-" "Agent (x)"'


def test_common_and_combined_logs_are_counted(tmp_path):
    path = write(tmp_path, "access.log", *(COMMON.format(s) for s in (0, 5, 59)), COMBINED)
    found = import_access_log(path, step=60)
    assert found.trace.nodes == ("access",)
    assert found.trace.times.tolist() == [MIDNIGHT, MIDNIGHT + 60]
    assert found.trace.arrivals[:, 0].tolist() == [3, 1]


def test_packed_logs_and_rotated_parts(tmp_path):
    new = write(tmp_path, "access.log", COMBINED)
    old = tmp_path / "access.log.1.gz"
    old.write_bytes(gzip.compress((COMMON.format(7) + "\n").encode()))
    found = import_access_log([old, new], step=60, names=["web", "web"])
    assert found.trace.nodes == ("web",)
    assert found.trace.arrivals[:, 0].tolist() == [1, 1]


MALFORMED = [
    "",
    "not a log line",
    COMMON.format(7).replace("Jan", "Foo"),
    COMMON.format(7).replace("05/", "32/"),
    COMMON.format(7).replace("00:00:07", "25:00:07"),
    COMMON.format(7).replace(" 200 2326", ""),
    COMMON.format(7).replace('"', ""),
    COMMON.format(7)[:40],
]


@pytest.mark.parametrize("bad", MALFORMED)
def test_malformed_lines_are_refused_or_told_never_dropped_in_silence(tmp_path, bad):
    path = write(tmp_path, "a.log", *[COMMON.format(5)] * 9, bad)
    with refused(TraceError, "a.log:10", "1 of 10", 0.01, "skip_malformed=True"):
        import_access_log(path, step=60)
    for allowed in ({"max_malformed": 0.1}, {"skip_malformed": True}):
        found = import_access_log(path, step=60, **allowed)
        assert found.trace.arrivals.sum() == 9
        shown(found.notes[0], "a.log", "1 of 10", "line 10")


def test_odd_bytes_in_requests_do_no_harm(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(COMMON.format(5).replace("/ ", "/\udcff ").encode(errors="surrogateescape"))
    assert import_access_log(path, step=60).trace.arrivals.sum() == 1


def test_a_log_of_nothing_but_nonsense_is_refused_even_when_skipping(tmp_path):
    with refused(TraceError, "a.log", "Common", "Combined"):
        import_access_log(write(tmp_path, "a.log", "x", "y"), step=60, skip_malformed=True)


REPEATED = {
    "times": '[05/Jan/2026:00:00:00 +0000] "',
    "ends of requests": '" 200 1',
    "brackets": "[",
    "quotes": '"',
    "words": "a ",
}


@pytest.mark.parametrize("piece", REPEATED.values(), ids=REPEATED)
def test_a_line_takes_time_in_proportion_to_its_length(piece):
    seconds = []
    for length in (2**18, 2**20):
        line = b'h i [05/Jan/2026:00:00:00 +0000] "' + (piece * (length // len(piece))).encode()
        begin = time.process_time()
        assert LINE.fullmatch(line + b'"') is None
        seconds.append(time.process_time() - begin)
    assert seconds[1] < 10 * seconds[0] + 5  # hours, were it quadratic


def test_the_first_time_of_a_line_counts(tmp_path):
    line = COMMON.format(7).replace("GET", "[05/Jan/2027:00:00:00 +0000] ")
    assert import_access_log(write(tmp_path, "a.log", line), step=1).trace.times[0] == MIDNIGHT + 7
