"""The pool's files, and which checkpoint is the best."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import corral
from corral.errors import CheckpointError, PoolError
from corral.files import write_file
from corral.trainers.pool import Pool
from corral.trainers.runs.checkpoint import latest_checkpoint
from corral.trainers.runs.log import Statistics
from corral.trainers.runs.run import load_run
from corral.trainers.selfplay import keeper
from support.messages import refused, shown

SMALL: dict[str, Any] = {
    "trainer": "ippo",
    "num_envs": 8,
    "n_steps": 16,
    "net_arch": (8,),
    "progress": False,
    "preset": "none",
}


def session(folder: Path, env: Any = "tictactoe_v0", **given: Any) -> Any:
    options = {"steps": 768, "self_play": "past=0.5,every=256,keep=3,best=0", **SMALL}
    options["checkpoint_every"] = 512
    return corral.session(env, out=folder, **{**options, **given})


def trained(folder: Path, **given: Any) -> Any:
    with session(folder, **given) as training:
        return training.finish()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "pool").iterdir())


# --- Files ----------------------------------------------------------------------------------------


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


HARM: dict[str, Callable[[Path], Any]] = {
    "deleted": Path.unlink,
    "changed": changed,
    "cannot be read": replaced_by_a_folder,
}


@pytest.mark.parametrize("fault", HARM)
def test_a_snapshot_that_is_harmed_while_training_is_named_and_the_run_goes_on(
    fault: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    path = folder / "pool" / "shared@256.safetensors"

    class Harm(corral.Callback):
        def on_update(self, session: Any, row: dict[str, Any]) -> None:
            if row["env_steps"] == 384:
                HARM[fault](path)

    with refused(PoolError, path, f"corral train --resume {folder}"):
        trained(folder, callbacks=[Harm()])
    assert int(latest_checkpoint(folder / "checkpoints").name.split("_")[1]) == 512
    if path.is_dir():
        with refused(PoolError, path, os.strerror(errno.EISDIR)):
            corral.resume(folder, progress=False)
        path.rmdir()
    run = corral.resume(folder, progress=False)
    whole = trained(tmp_path / "whole")
    assert {p.name: p.read_bytes() for p in (run.folder / "pool").iterdir()} == {
        p.name: p.read_bytes() for p in (whole.folder / "pool").iterdir()
    }


def test_a_pool_folder_that_is_gone_is_written_anew_when_the_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with session(folder, steps=512) as training:
        training.finish()
    shutil.rmtree(folder / "pool")
    with corral.resume_session(folder, steps=768, progress=False) as training:
        assert names(folder)[0] == "shared@0.safetensors"


def test_files_that_are_not_the_pools_stay(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    foreign = ["other@256.safetensors", "shared@latest.safetensors", "notes.txt"]
    with session(folder, self_play="past=0.5,every=128,keep=1,best=0") as training:
        for _ in training:
            for name in foreign if not (folder / "pool" / "notes.txt").exists() else ():
                (folder / "pool" / name).write_text("mine")
            (folder / "pool" / "shared@77.safetensors").mkdir(exist_ok=True)
    assert set(foreign) <= set(names(folder))
    assert (folder / "pool" / "notes.txt").read_text() == "mine"
    assert (folder / "pool" / "shared@77.safetensors").is_dir()
    taken = [name for name in names(folder) if name.startswith("shared@") and "77" not in name]
    assert "shared@768.safetensors" in taken
    assert "shared@0.safetensors" not in taken


def test_a_pool_that_cannot_be_written_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes, **folder: Path) -> None:
        with monkeypatch.context() as disk:
            disk.setattr(os, "fsync", no_space)
            write_file(path, data, **folder)

    def no_space(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = tmp_path / "run"
    monkeypatch.setattr(keeper, "write_file", full)
    with refused(PoolError, "pool/shared@0.safetensors", os.strerror(errno.ENOSPC)):
        trained(folder)
    assert names(folder) == []  # nothing half written
    monkeypatch.undo()
    assert corral.resume(folder, progress=False).progress["env_steps"].iloc[-1] == 768

    class Takes(corral.Callback):
        def on_start(self, session: Any) -> None:
            (session.run.folder / "pool").write_text("a file")

    with refused(PoolError, "pool/shared@0.safetensors", os.strerror(errno.EEXIST)):
        trained(tmp_path / "second", callbacks=[Takes()])


@pytest.mark.parametrize("name", ["pool", "pool/shared@0.safetensors", "pool/shared@7.safetensors"])
def test_links_of_a_pool_lead_nowhere(name: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    kept = outside / "shared@1.safetensors"
    kept.write_text("theirs")

    class Links(corral.Callback):
        order = -2  # before the pool is written

        def on_start(self, session: Any) -> None:
            path = session.run.folder / name
            path.parent.mkdir(exist_ok=True)
            path.symlink_to(outside if name == "pool" else kept)

    if name == "pool":
        with pytest.raises(PoolError, match="pool"):
            trained(tmp_path / "run", callbacks=[Links()])
    else:
        trained(tmp_path / "run", callbacks=[Links()])
    assert [path.name for path in outside.iterdir()] == [kept.name]
    assert kept.read_text() == "theirs"


@pytest.mark.parametrize("harm", ["cast", "learner", "snapshot"])
def test_a_checkpoint_whose_pool_does_not_fit_is_refused(harm: str, tmp_path: Path) -> None:
    with session(tmp_path / "run", steps=256) as training:
        training.finish()
        content = training.learner.save()
        casting = content.arrays["casting"]
        if harm == "cast":
            casting["cast"][:, 0] = 9
        elif harm == "learner":
            casting["learner_at"][:] = 7
        else:
            name = next(iter(content.arrays["pool_shared"]))
            content.arrays["pool_shared"][name][0] += 1
        with pytest.raises(CheckpointError):
            training.learner.load(content)


# --- The best -------------------------------------------------------------------------------------


class Scripted:
    """Stands for ``points_against``: each moment is as strong as ``strengths`` says, and whoever
    sits in the seat of ``pool.seat`` has ``lead`` points more."""

    def __init__(self, training: Any, strengths: dict[int, float], lead: float = 0.0) -> None:
        self.training, self.strengths, self.lead = training, strengths, lead

    def __call__(self, rules: Any, team: Any, others: Any, **plan: Any) -> dict[str, float]:
        actor = next(iter(team.values())).network
        now = actor is self.training.learner.learners["shared"].actor
        best = (self.training.statistics.best_by or {}).get("env_steps")
        own = self.strengths[self.training.env_steps if now else best]
        found = {}
        for name in others:
            other = self.strengths[best] if name == "best" else 0.0
            found[name] = 0.5 + self.lead + 0.5 * (own - other)
        return found


@pytest.mark.parametrize(("seat", "lead"), [("", 0.0), (",seat=player_1", 0.2)])
def test_the_best_is_the_one_that_wins_the_duels(
    seat: str, lead: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strengths = {128: -0.4, 256: 0.5, 384: -0.5, 512: 0.4, 640: 0.5}
    best = []
    given = f"past=0.5,every=256,keep=3,best=5{seat}"
    folder = tmp_path / "run"
    with session(folder, steps=640, self_play=given, checkpoint_every=128) as training:
        monkeypatch.setattr(keeper, "points_against", Scripted(training, strengths, lead))
        for _ in training:
            best.append(training.statistics.best_by["env_steps"])
    assert best == [128, 256, 256, 512, 640]  # a little less may be chance: the later one
    told, games = load_run(f"{folder}@best").source(), 2 if seat else 4
    shown(told, 640, "duels", f"{3 * games} games", 3, games, f"{0.75 + lead:.4g}")


def test_with_duels_a_validation_saves_nothing() -> None:
    found = Statistics({"a": "shared", "b": "shared"}, pool=True)
    found.validate(3.0, "a mean", "greedy")
    found.duelled(True, "duels", 0.6)
    assert found.improved()
    assert not found.better_validated
    found.validate(4.0, "a mean", "greedy")
    assert not found.better_validated


def test_of_equals_the_latest_is_the_best_and_a_damaged_best_is_no_reason_to_lose_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    given = "past=0.5,every=256,keep=3,best=2"
    with session(
        folder, self_play=given, checkpoint_every=256, learning_rate=1e-12
    ) as training:  # it stays as it began: all duels are even but for chance, and the seeds are one
        for row in training:
            if row["env_steps"] == 384:
                assert training.statistics.best_by["env_steps"] == 256
                (damaged,) = (folder / "checkpoints").glob("step_*256/policy_shared.safetensors")
                damaged.write_bytes(b"nothing")
    shown(capsys.readouterr().err, "policy_shared.safetensors", 7, "2,560")
    assert training.statistics.best_by["env_steps"] == 768
    assert int(latest_checkpoint(folder / "checkpoints").name.split("_")[1]) == 768


def test_duels_leave_what_is_learned_as_it_is(tmp_path: Path) -> None:
    weights = []
    for best in (0, 3):
        given = Pool(past=0.5, every=256, keep=3, best=best)
        with session(tmp_path / f"run{best}", self_play=given, checkpoint_every=256) as training:
            before = torch.random.get_rng_state()
            training.finish()
            assert torch.equal(before, torch.random.get_rng_state())
            weights.append(training.weights())
    for name, values in weights[0].items():
        np.testing.assert_array_equal(values, weights[1][name], err_msg=name)
