"""Time limits count computing and sleep, and not the work of other processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from corral import clock
from corral.clock import PATIENCE, Clock, count_child

TOLD = clock.SCHEDULED.exists()


def compute(seconds: float) -> None:
    before = time.process_time()
    while time.process_time() < before + seconds:
        pass


def test_computing_counts() -> None:
    one = Clock()
    compute(0.1)
    assert one.seconds() >= 0.1


@pytest.mark.skipif(not TOLD, reason="the system does not tell how long a process waits for a CPU")
def test_sleep_counts() -> None:
    one = Clock()
    time.sleep(0.3)
    assert one.seconds() >= 0.25


def test_a_share_of_sleep_counts_on_any_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for content in (None, "", "1", "a b c"):
        file = tmp_path / "schedstat"
        if content is not None:
            file.write_text(content)
        monkeypatch.setattr(clock, "SCHEDULED", file)
        one, began = Clock(), time.monotonic()
        time.sleep(0.1)
        assert 0.1 / PATIENCE <= one.seconds() < (time.monotonic() - began) / 2


def test_a_child_counts_as_its_own_work() -> None:
    one, began = Clock(), time.monotonic()
    time.sleep(0.2)
    elapsed = time.monotonic() - began
    count_child(elapsed / 10, elapsed)
    assert elapsed / 10 <= one.seconds() < 0.7 * elapsed


@pytest.mark.skipif(not TOLD, reason="the system does not tell how long a process waits for a CPU")
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot share one CPU")
def test_other_processes_do_not_count() -> None:
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    others = [multiprocessing.Process(target=compute, args=(30,), daemon=True) for _ in range(3)]
    try:
        for other in others:
            other.start()
        one, began = Clock(), time.monotonic()
        compute(0.3)
        assert one.seconds() < 0.8 * (time.monotonic() - began)
        assert one.seconds() >= 0.3
    finally:
        for other in others:
            other.kill()
            other.join()
        os.sched_setaffinity(0, cpus)
