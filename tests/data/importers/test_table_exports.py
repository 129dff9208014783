"""Tables of operators and public traces: each kind is read with the loads that were written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from corral.data import read_trace
from support.command import within
from support.further_exports import FURTHER
from support.messages import shown
from support.table_exports import BINARY, KINDS, PUBLIC, Loads, right
from support.unlisted_exports import REFUSED, UNLISTED

README = (Path(__file__).parents[3] / "data" / "README.md").read_text(encoding="utf-8")
LINES = dict(re.findall(r"^\| ([^|]+) \| `corral trace import \S+(.*)` \|$", README, re.MULTILINE))


def test_the_public_traces_are_those_of_the_page() -> None:
    assert set(LINES) == set(PUBLIC)


ALL = KINDS | UNLISTED | FURTHER


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in REFUSED])
def test_a_kind_is_read_cell_by_cell(tmp_path: Path, kind: str) -> None:
    if kind in BINARY:
        pytest.importorskip("openpyxl" if kind == "xlsx" else "pyarrow")
    export = ALL[kind](tmp_path, Loads.draw(minutes=25))
    out = tmp_path / "trace.csv"
    options = shlex.split(LINES[kind] if kind in PUBLIC else export.options)
    if export.names or export.arrivals is None:  # the message names what is to be passed
        shown(within("trace", "import", *export.files, code=2), *export.names)
    if export.arrivals is None:
        return
    within("trace", "import", *export.files, *options, "--out", out)
    trace = read_trace(out)
    assert right(export, trace.nodes, trace.arrivals, trace.step), (trace, trace.arrivals)


@pytest.mark.parametrize("kind", REFUSED)
def test_other_kinds_are_refused(tmp_path: Path, kind: str) -> None:
    files = UNLISTED[kind](tmp_path, Loads.draw(minutes=15)).files
    assert isinstance(within("trace", "import", *files, code=2), str)
