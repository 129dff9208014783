"""A bar is shown while a large file is read, and is gone when another may begin."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from corral.cli import output
from corral.data import import_series, load_trace
from support.import_files import series
from support.messages import refused


@pytest.fixture
def terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], str]:
    """A terminal on which 10 kB are large; the function gives what was printed on it."""
    screen = output.Screen(force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(output, "err", screen)
    monkeypatch.setattr(output, "LARGE", 10_000)
    return lambda: capsys.readouterr().out


def _trace(folder: Path, rows: int, name: str = "load.csv") -> Path:
    text = "time,node,arrivals\n" + "".join(f"{row},a,7\n" for row in range(rows))
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["load.csv", "load.csv.gz"])
def test_a_large_trace_has_a_bar(tmp_path, terminal, name):
    path = _trace(tmp_path, 2000, name)
    with output.reading_bar():
        assert len(load_trace(path)) == 2000
        with output.progress_bar() as show:  # rich allows one bar at a time
            show("playing", 1, 2)
            load_trace(path)
    shown = terminal()
    assert "reading" in shown
    assert "playing" in shown


def test_a_small_trace_has_none(tmp_path, terminal):
    with output.reading_bar():
        load_trace(_trace(tmp_path, 200))
    assert terminal() == ""


def test_a_large_export_has_a_bar_even_if_it_is_refused(tmp_path, terminal):
    bad = series(tmp_path, "bad.csv", ["x"] * 700)
    with output.reading_bar():
        for _ in range(2):
            with refused(ValueError, "bad.csv", "'value'", "'x'"):
                import_series(bad)
        with output.progress_bar() as show:
            show("playing", 1, 2)
    assert "playing" in terminal()
