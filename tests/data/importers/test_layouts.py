"""import_trace: a file is looked at, and read as what it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from corral.data import import_access_log, import_trace
from corral.data.importers import layouts
from corral.data.importers.binning import Guess
from corral.data.importers.layouts import Layout, looks_like
from corral.errors import TraceError
from support.messages import refused

LOG = """\
192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326
192.0.2.1 - - [10/Oct/2000:13:56:36 -0700] "GET / HTTP/1.0" 200 2326
"""


def test_an_access_log_is_told_by_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_text(LOG)
    imported = import_trace(path, capacity=3)
    assert imported.trace == import_access_log(path, step=60, capacity=3).trace
    assert Guess("layout", "an access log") in imported.guesses
    assert Guess("step", "60 s", "step=300") in imported.guesses
    assert import_trace(path, step=30).trace.step == 30


def test_options_without_a_meaning_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_text(LOG)
    with refused(ValueError, "gaps=", "step=", "names="):
        import_trace(path, gaps="zero")


def test_a_file_of_no_layout_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear all\n\nthe servers are slow.\nBest\nA\n")
    with refused(TraceError, "letter.txt", "Prometheus", "Azure Functions") as caught:
        looks_like(path)
    assert "servers" not in str(caught.value)
    path.write_text("\n")
    with refused(TraceError, "letter.txt", "empty"):
        looks_like(path)


def test_a_new_layout_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, other = tmp_path / "web.log", tmp_path / "long.json"
    log.write_text(LOG)
    other.write_text('{"magic": 1, "x": "' + "x" * 100_000 + '"}')

    def load(paths, *, guesses):
        guesses.append(Guess("unit", "apples"))
        return replace(import_access_log(log, step=60), notes=(str(paths[0]),))

    magic = Layout("a magic file", lambda head: head.data.startswith(b'{"magic'), load)
    monkeypatch.setattr(layouts, "LAYOUTS", [magic, *layouts.LAYOUTS])
    imported = import_trace(other)
    assert imported.guesses == (Guess("layout", "a magic file"), Guess("unit", "apples"))
    assert imported.notes == (str(other),)
    with refused(TraceError, "web.log", "long.json"):
        import_trace([other, log])


def test_days_of_azure_name_their_command(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("HashOwner,HashApp,HashFunction,Trigger,1,2\n")
    with refused(TraceError, "day.csv", "corral trace import azure-functions FILES --nodes 8"):
        import_trace(path)
