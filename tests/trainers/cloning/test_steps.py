"""Recorded steps: what is written is read; whatever is wrong is named, before anything learns."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.envs.registry import make_rules
from corral.errors import StepsError
from corral.trainers import agreement
from corral.trainers.cloning import steps as steps_module
from corral.trainers.cloning.steps import read_steps, recorded_arguments
from corral.trainers.runs import inherited
from support.edited import edits, odd_files, require_plain_errors

Arrays = dict[str, Any]
SMALL: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "n_epochs": 2, "progress": False}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corral.record(
        "tictactoe_v0", "perfect", out=tmp_path_factory.mktemp("steps") / "steps.npz", episodes=12
    )


def arrays_of(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def rewritten(path: Path, folder: Path, change: Callable[[Arrays], Any]) -> Path:
    arrays = arrays_of(path)
    change(arrays)
    target = folder / "changed.npz"
    np.savez(target, **arrays)
    return target


def test_what_is_recorded_is_read(recorded: Path) -> None:
    rules = make_rules("tictactoe_v0")
    steps = read_steps(recorded, rules)
    assert len(steps.lengths) == 12
    assert len(steps) == steps.lengths.sum()
    assert set(steps.lengths.tolist()) == {9}  # perfect players draw
    acted = steps.arrays["player_1/action_mask"].any(axis=1)
    assert acted.sum() == 12 * 5
    ends = steps.arrays["player_1/terminated"]
    assert ends.sum() == 12
    assert ends[np.cumsum(steps.lengths) - 1].all()
    assert steps.header["teacher"] == "perfect"


def test_the_same_seed_records_the_same_file(recorded: Path, tmp_path: Path) -> None:
    again = corral.record("tictactoe_v0", "perfect", out=tmp_path / "again.npz", episodes=12)
    rules = make_rules("tictactoe_v0")
    assert read_steps(again, rules).digest == read_steps(recorded, rules).digest
    other = corral.record("tictactoe_v0", "perfect", out=tmp_path / "o.npz", episodes=12, seed=1)
    assert read_steps(other, rules).digest != read_steps(again, rules).digest


def test_the_recorded_player_agrees_with_its_record(recorded: Path) -> None:
    from corral.envs.reference import reference_team

    rules = make_rules("tictactoe_v0")
    found = agreement(reference_team("perfect", rules), str(recorded), rules)
    assert found.share == 1.0
    assert found.episodes == 12
    assert found.rows[-1].decisions == 12 * 9


def test_rewards_and_amounts_are_those_that_were_played(tmp_path: Path) -> None:
    path = corral.record(
        "dfaas_v0",
        "overflow",
        out=tmp_path / "steps.npz",
        episodes=3,
        env_kwargs={"max_cycles": 10, "rows": (0, 500)},
    )
    arrays = arrays_of(path)
    assert arrays["lengths"].tolist() == [10, 10, 10]
    assert len(arrays["state"]) == 30
    assert arrays["node_0/truncated"].sum() == 3
    assert np.isfinite(arrays["node_0/reward"]).all()
    assert json.loads(str(arrays["header"]))["env_kwargs"] == {"max_cycles": 10, "rows": [0, 500]}


def test_steps_are_cloned_and_compared_on_episodes_left_out(recorded: Path, tmp_path: Path) -> None:
    run = corral.clone("tictactoe_v0", recorded, steps=256, out=tmp_path / "run", **SMALL)
    found = json.loads((run.folder / "agreement.json").read_text())
    assert found["episodes"] == 2  # a fifth of 12
    assert run.config.settings["teacher"] == str(recorded)
    again = corral.resume(run.folder, steps=320, progress=False)
    assert again.progress["env_steps"].iloc[-1] == 320


def test_steps_made_by_hand_need_few_entries(recorded: Path, tmp_path: Path) -> None:
    def strip(arrays: Arrays) -> None:
        for name in list(arrays):
            if name.endswith(("reward", "terminated", "truncated", "choices")) or name == "state":
                del arrays[name]
        header = {"format": "corral steps", "version": 1, "env": "tictactoe_v0"}
        arrays["header"] = json.dumps(header)

    path = rewritten(recorded, tmp_path, strip)
    run = corral.clone(
        "tictactoe_v0", path, steps=64, out=tmp_path / "r", critic_input="observations", **SMALL
    )
    assert len(run.progress) == 1
    with refused(StepsError, "state", "critic_input='observations'"):
        corral.clone("tictactoe_v0", path, steps=64, out=tmp_path / "s", **SMALL)
    assert not (tmp_path / "s").exists()


# --- What is wrong -------------------------------------------------------------------------------


def illegal(arrays: Arrays) -> None:
    mask, action = arrays["player_1/action_mask"], arrays["player_1/action"]
    row = int(np.flatnonzero(mask.any(axis=1))[1])
    action[row] = int((mask[row] == 0).argmax())
    del arrays["player_1/choices"]


def set_row(name: str, row: int, value: Any) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name][row] = value

    return change


def put(name: str, make: Callable[[Any], Any]) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name] = make(arrays.get(name))

    return change


def header(**changes: Any) -> Callable[[Arrays], None]:
    return put("header", lambda old: json.dumps({**json.loads(str(old)), **changes}))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (illegal, ("player_1/action", "mask")),
        (set_row("player_1/action", 0, 99), ("player_1/action[0]", 99, "0..8")),
        (set_row("player_1/reward", 3, np.nan), ("player_1/reward[3]",)),
        (set_row("player_1/action_mask", 2, 3), ("player_1/action_mask[2]", 0, 1)),
        (set_row("player_2/choices", 1, False), ("player_2/choices[1]",)),
        (set_row("lengths", 0, 0), ("lengths[0]", 0, 1)),
        (put("lengths", lambda old: old[:-1]), ("lengths", "sum")),
        (put("lengths", lambda old: old[:0]), ("lengths", "int64", "(0,)", "[E]")),
        (put("player_1/action", lambda old: old.astype(float)), ("player_1/action", "float64")),
        (
            put("player_1/observation", lambda old: old[:, 0]),
            ("player_1/observation", "float32", "shape"),
        ),
        (put("player_1/observation", lambda old: old * 5), ("player_1/observation[1]", 0, 1)),
        (
            put("player_9/action", lambda old: np.zeros(3)),
            ("player_9/action", "tictactoe_v0", "player_1", "player_2"),
        ),
        (lambda arrays: arrays.pop("player_2/action"), ("player_2/action",)),
        (lambda arrays: arrays.pop("header"), ("header", "JSON", '"format"')),
        (header(env="rps_v0"), ("header", "'rps_v0'", "tictactoe_v0")),
        (header(spaces="0" * 64), ("header", "tictactoe_v0", "{}")),
        (header(version=9), ("header", 9, 1)),
        (header(format="other"), ("header", '"format"', "'corral steps'")),
    ],
)
def test_a_fault_is_named_and_leaves_no_folder(
    change: Callable[[Arrays], Any], named: tuple[object, ...], recorded: Path, tmp_path: Path
) -> None:
    path = rewritten(recorded, tmp_path, change)
    with refused(StepsError, *named):
        read_steps(path, make_rules("tictactoe_v0"))
    with refused(StepsError, *named):
        corral.clone("tictactoe_v0", path, steps=64, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_all_faults_are_collected(recorded: Path, tmp_path: Path) -> None:
    def several(arrays: Arrays) -> None:
        illegal(arrays)
        arrays["player_2/reward"][4] = np.inf
        del arrays["player_2/action_mask"]

    with pytest.raises(StepsError) as caught:
        read_steps(rewritten(recorded, tmp_path, several), make_rules("tictactoe_v0"))
    found = {fault.entry for fault in caught.value.faults}
    assert found == {"player_1/action", "player_2/reward", "player_2/action_mask"}
    assert len(pickle.loads(pickle.dumps(caught.value)).faults) == 3


class Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path("owned").touch, ())


def test_pickles_are_not_opened(recorded: Path, tmp_path: Path) -> None:
    arrays = arrays_of(recorded)
    arrays["player_1/action"] = np.array([Payload()], dtype=object)
    np.savez(tmp_path / "bad.npz", **arrays)
    with refused(StepsError, "player_1/action"):
        read_steps(tmp_path / "bad.npz", make_rules("tictactoe_v0"))
    assert not Path("owned").exists()


@pytest.mark.parametrize("data", [b"", b"no zip at all", b"PK\x03\x04" + b"\0" * 40])
def test_other_files_are_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(data)
    with refused(StepsError, "x.npz", "corral record"):
        read_steps(tmp_path / "x.npz", make_rules("tictactoe_v0"))


def test_a_cut_file_is_refused(recorded: Path, tmp_path: Path) -> None:
    whole = recorded.read_bytes()
    for share in (0.3, 0.9, 0.999):
        (tmp_path / "x.npz").write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(StepsError):
            read_steps(tmp_path / "x.npz", make_rules("tictactoe_v0"))


def test_flipped_bytes_are_refused_or_change_nothing(recorded: Path, tmp_path: Path) -> None:
    rules, whole = make_rules("tictactoe_v0"), recorded.read_bytes()
    digest, rng = read_steps(recorded, rules).digest, np.random.default_rng(0)
    for at in rng.integers(len(whole), size=60):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "x.npz").write_bytes(bytes(flipped))
        try:
            assert read_steps(tmp_path / "x.npz", rules).digest == digest
        except StepsError:
            continue


def test_nothing_is_unpacked_past_a_bound(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_module, "MAX_BYTES", 1000)
    with refused(StepsError, "34,288", "1,000"):
        read_steps(recorded, make_rules("tictactoe_v0"))


def test_a_header_that_claims_more_than_there_is_is_refused(tmp_path: Path) -> None:
    data = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        data, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    )
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("lengths.npy", data.getvalue())
    with refused(StepsError, "lengths", "8,000,000,000,000"):
        read_steps(tmp_path / "x.npz", make_rules("tictactoe_v0"))


def test_a_recording_overwrites_nothing(recorded: Path) -> None:
    with pytest.raises(FileExistsError, match="exists"):
        corral.record("tictactoe_v0", "perfect", out=recorded)
    with refused(ValueError, "steps.txt", ".npz"):
        corral.record("tictactoe_v0", "perfect", out=recorded.with_suffix(".txt"))


def test_an_empty_file_is_only_that(tmp_path: Path) -> None:
    place = tmp_path / "steps.npz"
    place.touch()
    with pytest.raises(StepsError) as found:
        corral.clone("tictactoe_v0", str(place), steps=64, out=tmp_path / "a", progress=False)
    assert len(found.value.faults) == 1
    shown(str(found.value), "corral record")


# --- Files that are none, and places that lead elsewhere -----------------------------------------


def test_what_is_no_file_ends_plain(recorded: Path, tmp_path: Path) -> None:
    path, rules = tmp_path / "steps.npz", make_rules("tictactoe_v0")
    path.write_bytes(recorded.read_bytes())
    for what in odd_files(path):
        if what != "a link":  # it was typed, and leads where it leads
            with pytest.raises(StepsError, match=r"steps\.npz"):
                read_steps(path, rules)
            assert recorded_arguments(str(path), "tictactoe_v0") == {}


def test_an_edited_header_ends_plain(recorded: Path, tmp_path: Path) -> None:
    rules, tried = make_rules("tictactoe_v0"), 0
    text = str(arrays_of(recorded)["header"])
    arrays = arrays_of(recorded)
    for words, data in edits(text):
        target = tmp_path / "changed.npz"
        np.savez(target, **{**arrays, "header": np.array(data.decode(errors="replace"))})
        recorded_arguments(str(target), "tictactoe_v0")
        try:
            read_steps(target, rules)
        except StepsError:
            pass
        except Exception as error:
            raise AssertionError(words) from error
        tried += 1
    assert tried > 50


def test_steps_are_written_whole_or_not_at_all(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"steps\.npz"):
        corral.record("tictactoe_v0", "perfect", out=tmp_path / "steps.npz", episodes=2)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_a_start_reads_no_edited_run_raw(tmp_path: Path) -> None:
    run = corral.train("two_step_v0", out=tmp_path / "run", steps=64, **SMALL)
    path = run.folder / "config.json"
    require_plain_errors(path, lambda: inherited._config_of(run.folder))
    for _ in odd_files(path):
        assert inherited._config_of(run.folder) is None
