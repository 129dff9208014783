"""Ctrl-C in the middle of an update ends training within seconds; it goes on as if it never had."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.trainers import session
from corral.trainers.driver import resume
from corral.trainers.runs import signals
from support.mappo_teams import ROLLOUT, SMALL
from support.mix_runs import run_of
from support.runs import everything, kept, rows, small_run

GIVEN: dict[str, Any] = {"env": "dfaas_v0", "checkpoint_every": 10**6, "seed": 2}
LONG_S = 600.0


class Hangs(corral.Callback):
    """Sends itself a signal and stays busy, in the rollout after so many updates."""

    def __init__(self, number: int, updates: int) -> None:
        self.number, self.updates = number, updates

    def on_rollout(self, session: Any, rollout: Any) -> None:
        if session.statistics.updates == self.updates:
            signal.raise_signal(self.number)
            end = time.monotonic() + LONG_S
            while time.monotonic() < end:
                time.sleep(0.01)


class Ends(corral.Callback):
    """Sends itself a signal after the first update."""

    def on_update(self, session: Any, row: Any) -> None:
        if row["updates"] == 1:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "GRACE_S", 0.2)
    monkeypatch.setattr(session, "SLOW_S", 0.0)


@pytest.mark.parametrize(
    ("number", "ended"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
@pytest.mark.parametrize("updates", [1, 3])
def test_a_long_update_is_given_up_and_played_again(
    tmp_path: Path, number: int, ended: type[BaseException], updates: int
) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    began = time.monotonic()
    with pytest.raises(ended):
        run_of(tmp_path / "run", updates=4, callbacks=[Hangs(number, updates)], **GIVEN)
    assert time.monotonic() - began < LONG_S / 2
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    saved = [each.name for each in (tmp_path / "run" / "checkpoints").glob("step_*")]
    assert saved == [f"step_{ROLLOUT * updates:012}"]
    resume(tmp_path / "run")
    whole = run_of(tmp_path / "whole", updates=4, **GIVEN)
    assert everything(tmp_path / "run") == everything(whole)
    assert rows(tmp_path / "run") == rows(whole)


def test_a_run_that_is_stopped_in_its_first_update_leaves_no_folder(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_of(tmp_path / "run", callbacks=[Hangs(signal.SIGINT, 0)], **GIVEN)
    assert time.monotonic() - began < LONG_S / 2
    assert not (tmp_path / "run").exists()


def test_a_slow_block_of_a_session_is_interrupted_and_saved(tmp_path: Path) -> None:
    def slow() -> None:
        with corral.session(**GIVEN, out=tmp_path / "run", trainer="mappo", **SMALL) as training:
            next(training)
            signal.raise_signal(signal.SIGINT)
            time.sleep(LONG_S)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        slow()
    assert time.monotonic() - began < LONG_S / 2
    assert len(rows(tmp_path / "run")) == 1
    assert kept(tmp_path / "run").documents["trainer"]["env_steps"] == ROLLOUT


@pytest.mark.parametrize("trainer", ["mappo", "sb3_ppo"])
def test_a_run_that_is_saved_before_it_goes_on_resumes_exactly(
    tmp_path: Path, trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "GRACE_S", 60.0)  # the update ends on a slow machine as well
    play = run_of if trainer == "mappo" else small_run
    given: dict[str, Any] = {**GIVEN, "trainer": trainer, "updates": 3}
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", callbacks=[Ends()], **given)
    before = everything(tmp_path / "run")
    with corral.resume_session(tmp_path / "run") as training:
        training.save()
        training.stop("saved")
    assert everything(tmp_path / "run") == before
    resume(tmp_path / "run")
    assert everything(tmp_path / "run") == everything(play(tmp_path / "whole", **given))
