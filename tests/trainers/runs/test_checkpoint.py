"""Checkpoints come back as they were saved, and hold nothing that could not be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.checkpoints import content_of, names, same, saved, step_of
from support.messages import refused

pytest.importorskip("safetensors", reason="needs the extra mappo")

from corral.errors import CheckpointError
from corral.trainers.content import require_arrays
from corral.trainers.runs import checkpoint_format
from corral.trainers.runs.checkpoint import (
    Content,
    best_checkpoint,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)

# --- What is saved comes back --------------------------------------------------------------------


def test_content_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "runs" / "one", 12345, content_of(12345))
    assert path == tmp_path / "runs" / "one" / "step_000000012345"
    verify_checkpoint(path)
    assert same(load_checkpoint(path), content_of(12345))
    assert not same(load_checkpoint(path), content_of(12346))


def test_arrays_of_every_dtype_layout_and_shape_come_back_writable(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {str(d): rng.integers(0, 2, (3, 4)).astype(d) for d in checkpoint_format.DTYPES}
    arrays |= {
        "transposed": rng.standard_normal((3, 4)).T,
        "strided": rng.standard_normal((8, 6))[::2, ::-3],
        "big endian": np.arange(5, dtype=">i4"),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), dtype=np.float32),
        "extreme": np.array([np.finfo(np.float64).max, -0.0, 5e-324]),
    }
    path = save_checkpoint(tmp_path, 0, Content({}, {"all": arrays, "none": {}}))
    found = load_checkpoint(path).arrays
    assert found["none"] == {}
    assert found["all"].keys() == arrays.keys()
    for name, array in arrays.items():
        back = found["all"][name]
        assert back.dtype == array.dtype.newbyteorder("="), name
        assert back.shape == array.shape, name
        assert back.flags.writeable, name
        np.testing.assert_array_equal(back, array, err_msg=name)
    assert np.signbit(found["all"]["extreme"][1])


def test_documents_come_back(tmp_path: Path) -> None:
    value = {
        "none": None,
        "numbers": [True, 2**127 - 1, -0.1, 5e-324, 1.7976931348623157e308],
        "text": 'é \ud800 "quoted" \n',
        "nested": {"": [[], {}]},
    }
    path = save_checkpoint(tmp_path, 0, Content({"run": value, "list": [1], "tuple": (1, 2)}, {}))
    assert load_checkpoint(path).documents == {"run": value, "list": [1], "tuple": [1, 2]}


def test_importing_it_brings_neither_torch_nor_safetensors() -> None:
    heavy = "{'torch', 'safetensors'}"
    code = f"import sys, corral.trainers.runs.checkpoint; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_missing_safetensors_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=r"'\.\[mappo\]'"):
        saved(tmp_path, 1)
    assert names(tmp_path) == []


# --- Which stay, and which is the latest ---------------------------------------------------------


def test_the_newest_stay_and_the_best(tmp_path: Path) -> None:
    for step in range(1, 7):
        save_checkpoint(tmp_path, step, content_of(step, 20), keep=2, best=step == 2)
    kept = ["step_000000000002", "step_000000000005", "step_000000000006"]
    assert names(tmp_path) == ["best", "latest", *kept]
    assert latest_checkpoint(tmp_path) == tmp_path / kept[2]
    assert best_checkpoint(tmp_path) == tmp_path / kept[0]
    save_checkpoint(tmp_path, 7, content_of(7, 20), keep=1, best=True)
    assert names(tmp_path) == ["best", "latest", "step_000000000007"]


def test_no_best_is_none_and_no_checkpoint_an_error(tmp_path: Path) -> None:
    assert best_checkpoint(tmp_path) is None
    for folder in (tmp_path, tmp_path / "missing"):
        with refused(CheckpointError, folder):
            latest_checkpoint(folder)


def test_without_the_file_latest_the_newest_complete_one_is_found(tmp_path: Path) -> None:
    path = saved(tmp_path, 9, 10)
    (tmp_path / "latest").unlink()
    (tmp_path / "step_000000000011").mkdir()
    assert latest_checkpoint(tmp_path) == path


def test_the_same_content_again_keeps_the_directory(tmp_path: Path) -> None:
    path = saved(tmp_path, 1, 2)
    before = (path / "manifest.json").stat()
    assert saved(tmp_path, 2) == path
    after = (path / "manifest.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert names(tmp_path) == ["latest", "step_000000000001", "step_000000000002"]


def test_other_content_at_the_same_step_replaces_it(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    for number in (2, 3):
        path = save_checkpoint(tmp_path, 2, content_of(20 + number, 20))
        assert path.name == f"step_000000000002_{number}"
        assert names(tmp_path) == ["latest", "step_000000000001", path.name]
        assert latest_checkpoint(tmp_path) == path
        assert same(load_checkpoint(path), content_of(20 + number, 20))


def test_a_damaged_one_at_the_same_step_is_replaced(tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    (path / "run.json").write_text("{}")
    again = saved(tmp_path, 1)
    assert again.name == "step_000000000001_2"
    assert same(load_checkpoint(latest_checkpoint(tmp_path)), content_of(1, 20))


def test_a_run_that_went_back_leaves_later_checkpoints_alone(tmp_path: Path) -> None:
    saved(tmp_path, 100, 200, 300)
    for step in (150, 160, 170, 180):
        path = save_checkpoint(tmp_path, step, content_of(step, 20), keep=2)
        assert latest_checkpoint(tmp_path) == path
    steps = [step_of(path) for path in sorted(tmp_path.glob("step_*"))]
    assert steps == [170, 180, 200, 300]


def test_what_dead_processes_left_is_removed_and_what_lives_is_not(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for name in (f".writing-{ended.pid}-step_000000000001", f".removing-{os.getpid()}-x"):
        (folder / name).mkdir()
        (folder / name / "run.json").touch()
    (folder / f".writing-{ended.pid}-latest").touch()
    (folder / f".writing-{ended.pid}-link").symlink_to(outside)
    alive, foreign = f".writing-{os.getppid()}-step_000000000001", ".writing-notes"
    for name in (alive, foreign):
        (folder / name).mkdir()
    saved(folder, 1)
    assert names(folder) == sorted([alive, foreign, "latest", "step_000000000001"])
    assert names(outside) == ["file"]


# --- Content that may not be saved ---------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_non_finite_arrays_stop_the_save(tmp_path: Path, bad: float, dtype: str) -> None:
    array = np.ones((2, 3), dtype=dtype)
    array[1, 2] = bad
    content = Content({}, {"networks": {"fine": np.ones(2), "actor.0": array}})
    with refused(CheckpointError, "networks.safetensors", "'actor.0'", "(1, 2)"):
        save_checkpoint(tmp_path / "new", 1, content)
    assert names(tmp_path) == []


DEEP: list[Any] = []
for _ in range(200):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"a": [1.0, {"b": float("nan")}]}, ("run.json", "a[1].b", "nan")),
        (float("inf"), ("run.json", "inf")),
        ({1: 2}, ("run.json", 1, "str(key)")),
        ({"a": np.float32(1)}, ("run.json", "float32", "JSON")),
        ({"a": np.ones(2)}, ("run.json", "ndarray", "JSON")),
        ({"a": {1, 2}}, ("run.json", "set", "JSON")),
        ({"a": 10**5000}, ("16,610", "10,000")),
        (DEEP, ("levels",)),
        ("," * 2_000_001, ("2,000,001", "2,000,000")),
        ("x" * 2**26, ("67,108,866", "67,108,864")),
    ],
)
def test_documents_that_json_cannot_hold_stop_the_save(
    tmp_path: Path, document: Any, named: tuple[object, ...]
) -> None:
    with refused(CheckpointError, *named):
        save_checkpoint(tmp_path / "new", 1, Content({"run": document}, {}))
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "array", "named"),
    [
        ("a", np.array([{}]), ("'a'", "object")),
        ("a", np.array(["text"]), ("'a'", "<U4")),
        ("a", np.ones(2, dtype=complex), ("'a'", "complex128")),
        ("a", np.zeros(2, dtype=[("x", "f4")]), ("'a'", "[('x', '<f4')]")),
        ("a", [1.0], ("'a'", "list")),
        ("a", np.float64(1), ("'a'", "float64")),
        ("__metadata__", np.ones(2), ("networks.safetensors", "name")),
        (1, np.ones(2), ("networks.safetensors", "name")),
        ("\ud800", np.ones(2), ("networks.safetensors", "utf-8")),
    ],
)
def test_arrays_that_safetensors_cannot_hold_stop_the_save(
    tmp_path: Path, name: Any, array: Any, named: tuple[object, ...]
) -> None:
    saved(tmp_path, 1)
    with refused(CheckpointError, *named):
        save_checkpoint(tmp_path, 2, Content({}, {"networks": {name: array}}))
    assert names(tmp_path) == ["latest", "step_000000000001"]


@pytest.mark.parametrize("name", ["manifest", "", "../x", "A", "x" * 101, "a.b", "a\n", "é"])
def test_names_of_files_are_bounded(tmp_path: Path, name: str) -> None:
    for content in (Content({name: 1}, {}), Content({}, {name: {}})):
        if name == "manifest" and content.arrays:
            continue
        with refused(CheckpointError, 100, "a-z"):
            save_checkpoint(tmp_path, 1, content)
    assert names(tmp_path) == []


@pytest.mark.parametrize("step", [-1, 10**12, 1.0, True, None])
def test_steps_and_keep_are_whole_numbers(tmp_path: Path, step: Any) -> None:
    with pytest.raises(CheckpointError, match="step="):
        save_checkpoint(tmp_path, step, content_of(1, 5))
    with pytest.raises(CheckpointError, match="keep=0"):
        save_checkpoint(tmp_path, 1, content_of(1, 5), keep=0)


@pytest.mark.parametrize(("cap", "value"), [("MAX_ARRAY_BYTES", 1000), ("MAX_FILES", 3)])
def test_what_is_too_large_to_load_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: str, value: int
) -> None:
    monkeypatch.setattr(checkpoint_format, cap, value)
    with refused(CheckpointError, f"{value:,}"):
        saved(tmp_path, 1)
    assert names(tmp_path) == []


# --- What a network or an environment expects ----------------------------------------------------


def test_every_difference_of_arrays_is_named() -> None:
    given = {
        "same": np.zeros((2, 3), dtype=np.float32),
        "shape": np.zeros((2, 3)),
        "dtype": np.zeros(2, dtype=np.int32),
        "extra": np.zeros(1),
    }
    single, double = np.dtype(np.float32), np.dtype(np.float64)
    expected = {
        "same": ((2, 3), single),
        "shape": ((3, 2), double),
        "dtype": ((2,), np.dtype(np.int64)),
        "missing": ((1,), double),
    }
    require_arrays("networks", {"same": given["same"]}, {"same": expected["same"]})
    with pytest.raises(CheckpointError) as caught:
        require_arrays("networks", given, expected)
    message = str(caught.value)
    assert message.startswith("networks: ")
    for part in (
        "'missing' is missing",
        "'extra' is unexpected",
        "'shape' is float64 (2, 3), expected float64 (3, 2)",
        "'dtype' is int32 (2,), expected int64 (2,)",
    ):
        assert part in message
    assert "'same'" not in message
