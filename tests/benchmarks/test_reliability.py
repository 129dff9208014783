"""What the reliability page counts: kills, comparisons of runs, tests, and missing benchmarks."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")
pytest.importorskip("tensorboard", reason="needs the extra sb3")

from support.mix_runs import run_of

# --- Kills ---------------------------------------------------------------------------------------

WRITER = """
import os, sys
for at in range(5):
    with open(f"{sys.argv[1]}/{at}", "w") as file:
        file.write("x")
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{sys.argv[1]}/{at}", f"{sys.argv[1]}/done-{at}")
"""


@pytest.mark.parametrize(
    ("at", "left"),
    [
        (1, []),  # before the first open
        (3, ["0"]),  # before the first rename
        (6, ["1", "done-0"]),  # before the second rename
        (0, [f"done-{at}" for at in range(5)]),
    ],
)
def test_a_kill_strikes_before_the_file_call_of_its_number(
    tmp_path: Path, at: int, left: list[str]
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    command = [sys.executable, "-c", WRITER, str(tree)]
    with import_module("resume_kills").Watched(command, tree, tmp_path / "mark", at) as process:
        process.working()
        assert process.ended() == (at == 0)
        if not at:
            assert process.calls() == 15
    assert sorted(path.name for path in tree.iterdir()) == left


def test_a_case_that_fails_is_an_error(tmp_path: Path) -> None:
    kills = import_module("resume_kills")
    with (
        kills.Watched([sys.executable, "-c", "1 / 0"], tmp_path, tmp_path / "mark") as process,
        pytest.raises(kills.subprocess.CalledProcessError),
    ):
        process.ended()


def test_every_trainer_has_a_case_or_a_reason() -> None:
    kills = import_module("resume_kills")
    assert kills.trainers().keys() <= kills.CASES.keys() | kills.NOT_EXACT.keys()


# --- Comparisons ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    run_of(folder / "run", seed=3)
    return folder


def swapped(run: Path) -> None:
    """Another order of columns."""
    place = run / "progress.csv"
    lines = [line.split(",") for line in place.read_text().splitlines()]
    place.write_text("".join(",".join([*line[1:], line[0]]) + "\n" for line in lines))


def digit(run: Path) -> None:
    values = json.loads((run / "config.json").read_text())
    values["seed"] += 1
    (run / "config.json").write_text(json.dumps(values))


def weight(run: Path) -> None:
    place = next((run / "checkpoints").glob("step_*/policy_*.safetensors"))
    data = bytearray(place.read_bytes())
    data[-1] ^= 1
    place.write_bytes(data)
    (run / "checkpoints" / "latest").unlink()  # its manifest would not let it be loaded
    shutil.rmtree(run / "checkpoints" / "best", ignore_errors=True)
    (run / "checkpoints" / "best").unlink(missing_ok=True)


def event(run: Path) -> None:
    shutil.rmtree(run / "tensorboard")
    run_of(run.with_name("other"), seed=4)
    shutil.move(run.with_name("other") / "tensorboard", run / "tensorboard")
    shutil.rmtree(run.with_name("other"))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (swapped, "progress.csv"),
        (digit, "config.json"),
        (weight, ".safetensors"),
        (event, "tensorboard"),
        (lambda run: (run / "config.json").unlink(), "config.json"),
    ],
)
def test_a_difference_is_seen(
    tree: Path, tmp_path: Path, change: Callable[[Path], Any], name: str
) -> None:
    values = import_module("resume_kills").values
    shutil.copytree(tree, tmp_path / "tree")
    before = values(tmp_path / "tree")
    change(tmp_path / "tree" / "run")
    after = values(tmp_path / "tree")
    unequal = [key for key in before | after if before.get(key) != after.get(key)]
    assert any(key.endswith(name) for key in unequal)


def test_clocks_and_the_place_of_a_tree_are_no_difference(tree: Path, tmp_path: Path) -> None:
    values = import_module("resume_kills").values
    run_of(tmp_path / "tree" / "run", seed=3)
    assert values(tmp_path / "tree") == values(tree)


# --- Rows ----------------------------------------------------------------------------------------


def test_tests_are_counted_and_drawn() -> None:
    reliability = import_module("reliability")
    file = "trainers/callbacks/test_sinks.py::test_a_line_without_its_end_does_not_count"
    assert reliability.tests(file)(1.0) == reliability.Outcome(3, 3)
    assert reliability.tests(file)(0.05) == reliability.Outcome(1, 1)
    lacking = reliability.tests("envs/test_masks.py -k no_such_test")(0.05)
    assert (lacking.tries, len(lacking.not_held)) == (0, 1)


def test_a_benchmark_that_is_missing_or_fails_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reliability = import_module("reliability")
    monkeypatch.setattr(import_module("common"), "HERE", tmp_path)
    monkeypatch.setattr(reliability, "RESULTS", tmp_path)
    (tmp_path / "fails.py").write_text("1 / 0")
    rows = [{"what": "a", "tries": 3, "held": 2, "not_held": ["x"]}]
    rows += [{"what": "b", "tries": 5, "held": 5, "not_held": []}]
    (tmp_path / "works.py").write_text("")
    (tmp_path / "works.json").write_text(json.dumps({"rows": rows}))
    for name, what, tries, faults in (
        ("missing", (), 0, 1),
        ("fails", (), 0, 1),
        ("works", ("c",), 0, 1),
        ("works", ("b",), 5, 0),
        ("works", (), 8, 1),
    ):
        outcome = reliability.rows_of(name, *what)(1.0)
        assert (outcome.tries, len(outcome.not_held)) == (tries, faults), (name, what)


def test_every_row_is_on_the_page_tried_or_not() -> None:
    reliability = import_module("reliability")
    first = reliability.ROWS[0]
    kept = {"tries": 7, "held": 6, "not_held": ["a|b"], "share": 0.5, "date": "d", "commit": "c"}
    page = reliability.page({first.what: kept})
    assert f"| {first.what} | 7 | 6 | a/b | {first.by} | 0.5, d, c |" in page
    assert page.count("not tried yet") == len(reliability.ROWS) - 1
    assert len({row.what for row in reliability.ROWS}) == len(reliability.ROWS)
