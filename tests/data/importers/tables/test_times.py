"""Times of tables: the quick ways read what the slow ones do."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from corral.data.importers.tables import times
from corral.data.importers.tables.cells import Column, Table

WRITINGS = [
    "2026-01-05T00:05:00Z",
    "2026-1-5 0:05",
    "2026/01/05 10:05:09.5 PM",
    "2026-01-05",
    "2026.12.31T23:59:59+01:00",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-11:00",
    "2026-01-05 10:05 CET",
]


def test_a_time_is_the_same_in_parts():
    rng = random.Random(1)
    taken = 0
    for _ in range(20_000):
        signs = list(rng.choice(WRITINGS))
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(signs) + 1)
            signs[at : at + rng.choice((0, 1, 1))] = rng.choice("019-/: TZ+")
        text = "".join(signs)
        parsed = times._iso(text)
        assert times._iso_in_parts(text) == parsed
        taken += parsed is not None
    assert taken > 4000


@pytest.mark.parametrize("digits", [9, 10, 12, 13, 15, 16, 18])
def test_epochs_of_a_column_are_those_of_its_cells(monkeypatch, digits):
    rng = random.Random(digits)
    cells = [str(rng.randrange(10 ** (digits - 1), 10**digits)) for _ in range(500)]
    column = Column("t", np.arange(500, dtype=np.int32)[::-1], cells)
    table = Table(Path("x"), {"t": column}, np.arange(500), ",")
    quick = times.times_of(table, column, order=None, time_format=None)
    assert times._whole_epochs(cells, quick.style) is not None
    monkeypatch.setattr(times, "_whole_epochs", lambda *_: None)
    slow = times.times_of(table, column, order=None, time_format=None)
    assert (quick.seconds == slow.seconds).all()
    assert (quick.zoned == slow.zoned).all()
    assert (quick.style, quick.cut) == (slow.style, slow.cut)


def written(rng: random.Random) -> str:
    """Return a time that may be invalid."""
    year = rng.choice(["2026", "0001", "9999", "2024", "0000"])
    day = f"{rng.randrange(1, 13):02d}-{rng.randrange(28, 33):02d}"
    clock = f"{rng.randrange(26):02d}:{rng.randrange(62):02d}:{rng.randrange(62):02d}"
    fraction = rng.choice(["", "", ".5", ",25", ".000", ".1234567890", f".{rng.randrange(10**6)}"])
    return f"{year}-{day}{rng.choice('T t')}{clock}{fraction}{rng.choice(['', 'Z', 'Z', '+01:00'])}"


def test_iso_times_of_a_column_are_those_of_its_cells():
    rng = random.Random(5)
    num_read = 0
    for _ in range(20_000):
        cells = [written(rng) for _ in range(rng.randint(1, 2))]
        block = times._iso_columns(cells)
        if block is None:
            continue
        num_read += 1
        parsed = [times._iso_in_parts(cell) for cell in cells]
        assert None not in parsed, cells
        assert [p[:2] for p in parsed] == list(zip(block[0], block[1], strict=True))
        assert block[2] == any(p[2] for p in parsed)
    assert num_read > 1000


def test_epochs_that_are_not_plain_are_left_to_the_slow_way():
    for cells in (["1767571200", "1767571200.5"], ["1767571200", ""], ["²767571200"], ["9" * 19]):
        for style in times._EPOCH:
            assert times._whole_epochs(cells, style) is None


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("Mon, 02 Mar 2026 10:00:00 GMT", 10),
        ("02-Mar-2026 10:00:00 UTC", 10),
        ("March 2, 2026 10:00 PM EST", 27),
        ("Mon Mar 02 10:00:00 CET 2026", 9),
    ],
)
def test_a_date_with_the_name_of_the_month_has_a_zone(text, hour):
    assert times.style_of([text]) == times.NAMED_STYLE
    midnight = 1_772_409_600  # 2026-03-02T00:00Z
    assert times.reader_of(times.NAMED_STYLE, None)(text) == (midnight + hour * 3600, True, False)


@pytest.mark.parametrize(
    "text",
    [
        "02 Mar 2026 GET",
        "02 Mar 2026 5 ERRORS",
        "02 Mar 2026 10:00 Utc",
        "02 Mar 2026 10:00 UTC GET",
        "02-Mar-2026 10:00:00 web-1",
    ],
)
def test_words_after_a_date_are_no_zone(text):
    assert times.style_of([text]) is None


def test_a_month_with_an_unknown_zone_is_no_time():
    assert times.reader_of(times.NAMED_STYLE, None)("02 Mar 2026 10:00 XYZ") is None
