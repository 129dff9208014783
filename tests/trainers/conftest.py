"""Trainers are tested on one thread, and end an interrupted update on slow machines as well."""

from __future__ import annotations

import pytest

from corral.trainers.runs import signals
from support.threads import one_thread

__all__ = ["one_thread"]


@pytest.fixture(autouse=True)
def _grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "GRACE_S", 60.0)
