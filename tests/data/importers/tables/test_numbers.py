"""Numbers in cells: decimal commas, thousands, units, and what is refused."""

from __future__ import annotations

import pytest

from corral.data.importers.tables.numbers import decimal_of, parse_number, per_seconds


@pytest.mark.parametrize(
    ("cell", "decimal", "value", "seconds"),
    [
        ("12", ".", 12, None),
        ("1.22 req/s", ".", 1.22, 1),
        ("1.5K", ".", 1500, None),
        ("3 Mil", ".", 3e6, None),
        ("90 rpm", ".", 90, 60),
        ("7 requests/min", ".", 7, 60),
        ("12 requests", ".", 12, None),
        ("1,234,567", ".", 1234567, None),
        ("1.234,5", ",", 1234.5, None),
        ("1 234,5", ",", 1234.5, None),
        ("0,25 Anfragen/s", ",", 0.25, 1),
        ("2.5e3", ".", 2500, None),
        (17, ".", 17, None),
    ],
)
def test_numbers(cell: object, decimal: str, value: float, seconds: int | None) -> None:
    found = parse_number(cell, decimal)  # type: ignore[arg-type]
    assert found is not None
    assert found[:2] == (pytest.approx(value), seconds)


@pytest.mark.parametrize("cell", ["12 ms", "a", "1.2.3", "12 %", "0x10", "1_000", "5 GB", True])
def test_what_is_no_number_of_requests(cell: object) -> None:
    assert parse_number(cell) is None


def test_abbreviated_numbers_are_told() -> None:
    assert [parse_number(cell)[2] for cell in ("3K", "3")] == [True, False]  # type: ignore[index]


@pytest.mark.parametrize(
    ("cells", "delimiter", "mark"),
    [
        (["1", "2"], ";", "."),
        (["1,5", "2"], ";", ","),
        (["1.234,5"], ";", ","),
        (["1,234.5"], ",", "."),
        (["1.234.567"], ";", ","),
        (["1.234", "0.5"], ";", "."),
        (["1.234"], ",", "."),  # three decimals, as English exports have them
        (["1.234"], ";", None),
        (["1,234"], ",", None),
        (["0,125"], ";", ","),
    ],
)
def test_the_mark_before_decimals(cells: list[str], delimiter: str, mark: str | None) -> None:
    assert decimal_of(cells, delimiter) == mark


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("rps", 1),
        ("current_rps", 1),
        ("load (req/s)", 1),
        ("requests_per_minute", 60),
        ("rpm", 60),
        ("requests/h", 3600),
        ('sum(rate(http_requests_total{instance="a"}[5m]))', 1),
        ("requests", None),
        ("corps", None),
        ("rates", None),
    ],
)
def test_units_in_names_of_columns(name: str, seconds: int | None) -> None:
    assert per_seconds(name) == seconds
