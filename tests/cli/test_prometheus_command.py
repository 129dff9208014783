"""``corral trace import`` of an answer of Prometheus: what is asked, and the flags that answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corral.data import read_trace
from support.command import within
from support.messages import shown

START = 1767571200  # 2026-01-05


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    result = [
        {
            "metric": {"__name__": "http_requests_total", "instance": name},
            "values": [[START + 60 * i, str(each * 7 * i)] for i in range(8)],
        }
        for each, name in enumerate(("a:9090", "b:9090"), start=1)
    ]
    path = tmp_path / "answer.json"
    path.write_text(json.dumps({"data": {"resultType": "matrix", "result": result}}))
    return path


def test_a_counter_is_asked_about_in_options(answer: Path) -> None:
    shown(within("trace", "import", answer, code=2), "--counter", "--no-counter")
    seen = within("trace", "import", answer, "--no-counter")
    written = f"corral trace import {answer} --no-counter --capacity "
    assert written.replace(" ", "") in "".join(seen.split())
    shown(seen, "instance", "a:9090", "b:9090")


@pytest.mark.parametrize("words", [[], ["prometheus"]])
def test_both_commands_write_the_same(tmp_path: Path, answer: Path, words: list[str]) -> None:
    out = tmp_path / "loads.csv"
    within("trace", "import", *words, answer, "--counter", "--capacity", "9", "--out", out)
    trace = read_trace(out)
    assert (trace.nodes, trace.arrivals.tolist()) == (("a:9090", "b:9090"), [[7, 14]] * 7)


def test_the_strict_reader_names_the_importer(answer: Path) -> None:
    seen = within("trace", "show", answer, code=2)
    assert f"corral trace import {answer}" in seen.replace("\n", "")
