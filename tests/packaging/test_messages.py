"""What stands in for sentences in tests can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corral.errors import UnknownNameError
from support import messages
from support.messages import RECORD, golden, refused, shown, write_record


def test_a_value_that_is_missing_fails() -> None:
    with pytest.raises(AssertionError), refused(ValueError, "horizon", 17):
        raise ValueError("horizon is 170")
    with pytest.raises(AssertionError):
        shown("largest 1.15", 15)
    shown("horizon=17: at least 1", "horizon", 17, 1)


def test_a_field_that_differs_fails() -> None:
    with pytest.raises(AssertionError), refused(UnicodeDecodeError, start=2):
        raise UnicodeDecodeError("utf-8", b"x", 1, 2, "why")


def test_another_class_fails() -> None:
    with pytest.raises(KeyError), refused(UnknownNameError, "a"):
        raise KeyError("a")


def test_texts_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "record"
    monkeypatch.setenv(RECORD, str(record))
    monkeypatch.setattr(messages, "_lines", [])  # those of other tests are not lost
    with refused(ValueError, "steps"):
        raise ValueError(f"steps in {tmp_path}/run")
    shown("a screen")
    shown("a screen")
    write_record()
    page = golden(record.read_text().splitlines())
    assert "FOLDER/run" in page
    assert page.count("a screen") == 1
    assert len(record.read_text().splitlines()) == 3
    assert json.loads(record.read_text().splitlines()[0])[1] == "ValueError"
