"""Rows of a parametrized test that tests one thing many times: some are fast, the others slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["fast_every"]


def fast_every(step: int, rows: Iterable[Any]) -> list[Any]:
    """Return the rows for ``parametrize``: the first of every ``step`` is fast, the others slow."""
    return [
        pytest.param(row, marks=[pytest.mark.slow] if place % step else [])
        for place, row in enumerate(rows)
    ]
