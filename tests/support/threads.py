"""Tests that train have one thread: the same numbers on every machine, and no core taken twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

__all__ = ["one_thread"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    try:
        import torch
    except ImportError:  # the tests say themselves what they need
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
