"""Capacities beside an import: what they count is said, and what looks like a rate is noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corral.data import import_table
from support.messages import refused, shown

RATES = "time,a,b\n2026-01-05T00:00Z,1.5,2\n2026-01-05T00:05Z,2.5,3\n"


def import_text(tmp_path: Path, text: str, **options: Any) -> tuple[dict[str, str], str]:
    """Return the guesses by what they are of, and the notes."""
    (tmp_path / "rates.csv").write_text(text)
    imported = import_table(tmp_path / "rates.csv", **options)
    return {g.what: g.found for g in imported.guesses}, "\n".join(imported.notes)


def test_a_capacity_is_said_to_be_per_step(tmp_path: Path) -> None:
    told, notes = import_text(tmp_path, RATES, scale=300, capacity="25")
    shown(told["capacity"], 25, "300 s")
    shown(notes, "25 of 'a'", 600, "capacity=7500")
    told, notes = import_text(tmp_path, RATES, scale=300, capacity="a=900,b=25")
    shown(told["capacity"], "a=900,b=25", "300 s")
    shown(notes, "25 of 'b'")
    assert notes.endswith(" 7500")
    told, notes = import_text(tmp_path, RATES, scale=300, capacity="1.5x")
    shown(told["capacity"], "1.5x")
    assert "tenth" not in notes


def test_a_capacity_that_is_no_whole_number_is_refused_as_such(tmp_path: Path) -> None:
    with refused(ValueError, "capacity=2.5"):
        import_text(tmp_path, RATES, scale=300, capacity="2.5")


def test_what_a_column_of_capacity_is_multiplied_by_is_shown(tmp_path: Path) -> None:
    text = "time,rps,limit\n2026-01-05T00:00Z,1.5,2\n2026-01-05T00:05Z,2.5,3\n"
    shown(import_text(tmp_path, text)[0]["capacity"], 300)
    text = text.replace("limit", "limit (req/min)")
    shown(import_text(tmp_path, text)[0]["capacity"], "minute", "'limit (req/min)'", 5)
