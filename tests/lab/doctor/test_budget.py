"""The parts of a diagnosis share one CPU time, and say what they left out."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.adapters.snapshots.forks import Fork
from corral.adapters.zoo.batch import zoo_rules
from corral.clock import Clock
from corral.lab.doctor import looking
from corral.lab.doctor.looking import PART_SECONDS, Looking
from support.chance_envs import Busy
from support.messages import shown

SMALL: dict[str, Any] = {"num_envs": 8, "n_steps": 32, "net_arch": (16,), "preset": "none"}


class Passed(Clock):
    """A clock at a given time."""

    now = 0.0

    def seconds(self) -> float:
        return self.now


def test_a_part_gets_its_share_of_the_rest() -> None:
    look = Looking(None, 0, lambda what, done, total: None)  # type: ignore[arg-type]
    look.clock = clock = Passed()
    whole = {part: look.seconds_for(part) for part in PART_SECONDS}
    assert sum(PART_SECONDS[part] for part in PART_SECONDS) >= looking.SECONDS >= whole["play"]
    for now in range(0, 60, 5):
        clock.now = now
        first = look.seconds_for("play")
        assert looking.LEAST <= first <= PART_SECONDS["play"]
        if first > looking.LEAST:  # the same share of every part
            shares = sum(PART_SECONDS[part] for part in PART_SECONDS) * first / PART_SECONDS["play"]
            assert shares == pytest.approx(looking.SECONDS - now)
    look.seconds, clock.now = 10 * looking.SECONDS, 0.0
    assert look.seconds_for("choices") == 10 * PART_SECONDS["choices"]
    look.seconds, clock.now = looking.SECONDS, looking.SECONDS + 100
    assert {look.seconds_for(part) for part in PART_SECONDS} == {looking.LEAST}


def test_a_slow_environment_is_examined_in_the_time_and_the_cuts_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "LEAST", 0.5)
    run = corral.train(Busy, out=tmp_path / "run", steps=512, progress=False, **SMALL)
    before = Busy.steps
    diagnosis = corral.diagnose(run, seconds=8.0)
    assert (Busy.steps - before) * Busy.seconds < 25  # without a limit: about 200
    assert diagnosis.learning is not None
    assert diagnosis.learning.limit is not None  # episodes were cut
    shown(" ".join(diagnosis.not_looked_at), "corral check")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")
def test_the_time_of_forked_games_counts() -> None:
    way = Fork(zoo_rules(Busy))
    try:
        game = way.make()
        game.begin(np.random.default_rng(0))
        clock, before = Clock(), time.process_time()
        for _ in range(200):
            game.play({"agent_0": 0, "agent_1": 0})
        own = time.process_time() - before
        assert clock.seconds() - own >= 0.9 * 200 * Busy.seconds
    finally:
        way.close()
