"""How many runs there are, and how long they take, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.lab.comparing.training import jobs_of, pace_of
from corral.lab.pace import Pace
from support.messages import shown


def test_what_is_said_before_and_after_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 50.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    pace = Pace(8, 4096, 2)
    assert pace.planned() == "8 runs of 4,096 env steps, 2 at a time"
    text = pace.ended()
    assert text is not None
    shown(text, "40 s", "2 min")
    assert pace.ended() is None


def test_runs_that_all_fit_at_once_have_none_left() -> None:
    assert Pace(1, 500, 4).planned() == "1 run of 500 env steps"
    assert Pace(2, 500, 2).ended() is None


def test_a_comparison_counts_what_is_missing(tmp_path: Path) -> None:
    def planned(*options: str) -> str:
        return pace_of(jobs_of(tmp_path, "arena_v0", ["mappo", "ippo"], 2), 2, options).planned()

    assert planned() == "4 runs of 100,000 env steps, 2 at a time"
    assert planned("--gamma", "1", "--steps", "64") == "4 runs of 64 env steps, 2 at a time"
    assert planned("--steps=128") == "4 runs of 128 env steps, 2 at a time"
