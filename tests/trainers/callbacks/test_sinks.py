"""progress.csv and TensorBoard as sinks, and sinks of one's own."""

from __future__ import annotations

import contextlib
import csv
import os
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra sb3")
pytest.importorskip("tensorboard", reason="needs the extra sb3")

from tensorboard.backend.event_processing import event_accumulator as accumulators

from corral.errors import CallbackError, FileError, RunError, UnknownNameError
from corral.trainers.callbacks import sinks
from corral.trainers.callbacks.sinks import CSV, TensorBoard
from corral.trainers.driver import resume
from support.runs import ROLLOUT, everything, rows, small_run


class Log:
    """Both sinks, as a session has them; TensorBoard where a folder is given."""

    def __init__(self, path: Path, tensorboard: Path | None, *, updates: int = 0) -> None:
        self.sinks: list[Any] = [CSV(), *([TensorBoard()] if tensorboard else [])]
        for sink in self.sinks:
            sink.open(path.parent, None, updates)

    def write(self, row: dict[str, Any]) -> None:
        for sink in self.sinks:
            sink.write(row, {})

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


def write_on(path: Path, updates: int) -> None:
    with contextlib.closing(Log(path, None, updates=updates)) as log:
        log.write({"env_steps": updates + 1})


# --- Files ---------------------------------------------------------------------------------------


def test_columns_may_come_later(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    log = Log(path, None)
    log.write({"env_steps": 1, "loss": 0.1})
    log.write({"env_steps": 2, "kpi_lost": 1 / 3, "loss": None})
    log.write({"env_steps": 3, "loss": 0.3})
    log.close()
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [list(row.values()) for row in read] == [
        ["1", "", "0.1"],
        ["2", repr(1 / 3), ""],
        ["3", "", "0.3"],
    ]
    assert list(read[0]) == ["env_steps", "kpi_lost", "loss"]


LATE: list[dict[str, Any]] = [  # columns appear late, and in any order
    {"env_steps": 1, "return_node_10": 1, "return_node_9": 1, "share_env": 1, "loss": 1},
    {"env_steps": 2, "kl": 1, "warning_flat": 1, "return_node_10": 1, "loss": 1},
    {"env_steps": 3, "loss": 1, "kpi_b": 1, "kpi_a": 1, "validation_cost": 1, "length": 1},
]


@pytest.mark.parametrize("updates", [0, 1, 2])
def test_columns_have_one_order_wherever_a_run_was_resumed(tmp_path: Path, updates: int) -> None:
    path = tmp_path / "progress.csv"
    log = Log(path, None)
    for row in LATE:
        log.write(row)
    log.close()
    whole = path.read_text()
    log = Log(path, None, updates=updates)
    for row in LATE[updates:]:
        log.write(dict(reversed(row.items())))
    log.close()
    assert path.read_text() == whole
    assert whole.splitlines()[0].split(",") == [
        *("env_steps", "return_node_9", "return_node_10", "length", "kpi_a", "kpi_b"),
        *("warning_flat", "share_env", "kl", "loss", "validation_cost"),
    ]


def test_the_columns_of_a_run_follow_its_documented_order(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", metrics={"one": lambda episode: 1})
    columns = list(rows(run)[0])
    assert columns == sinks.in_order(reversed(columns))
    fixed = sinks.COLUMNS[: sinks.COLUMNS.index("return_*")]
    assert tuple(run.progress.columns[: len(fixed)]) == fixed
    assert columns.index("kpi_lost") < columns.index("approx_kl") < columns.index("one_mean")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("env_steps,loss\n1,0.5\n2\n", 3),
        ("env_steps,loss\n1,0.5,7\n2,0.5\n", 2),
        ("env_steps,loss,loss\n1,2,3\n1,2,3\n", 1),
        ("loss\n1\n2\n", 1),
        ("env_steps\n1\nnan\n", 3),
        ("env_steps," + "x" * 200_000 + "\n1,2\n2,3\n", 1),
    ],
)
def test_a_damaged_log_is_refused_by_its_line(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "progress.csv"
    path.write_text(text)
    with refused(RunError, "progress.csv", line):
        write_on(path, 2)
    assert path.read_text() == text
    with refused(RunError, "progress.csv", line):
        TensorBoard().open(tmp_path, None, 2)


@pytest.mark.parametrize("text", ["", "env_st", "env_steps\n1\n2"])
def test_a_line_without_its_end_does_not_count(tmp_path: Path, text: str) -> None:
    (tmp_path / "progress.csv").write_text(text)
    kept = list(sinks.past_rows(tmp_path / "progress.csv", 2))
    assert kept == [{"env_steps": "1"}] * (len(text) > 6)


def test_a_log_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "progress.csv").write_bytes(b"env_steps\n\xff\n")
    with pytest.raises(RunError):
        TensorBoard().open(tmp_path, None, 1)


def test_no_link_is_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "run", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "file").write_text("env_steps\n1\n")
    (folder / "progress.csv").symlink_to(outside / "file")
    for sink in (CSV(), TensorBoard()):
        with pytest.raises(FileError):
            sink.open(folder, None, 1)  # type: ignore[arg-type]
    log = Log(folder / "progress.csv", None)
    log.write({"env_steps": 2})  # replaces the link
    log.close()
    assert not (folder / "progress.csv").is_symlink()
    (folder / "tensorboard").symlink_to(outside)
    with pytest.raises(FileError):
        TensorBoard().open(folder, None, 0)  # type: ignore[arg-type]
    assert [each.name for each in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "env_steps\n1\n"


def test_a_log_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "progress.csv")
    with pytest.raises(FileError):
        CSV().open(tmp_path, None, 1)  # type: ignore[arg-type]


def test_event_files_with_odd_names_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    (folder / "events.out.tfevents.x").touch()
    (folder / "events.out.tfevents.").touch()
    log = Log(tmp_path / "progress.csv", folder)
    log.write({"env_steps": 1, "loss": 1.0})
    log.close()
    assert scalars(tmp_path)["train/loss"] == [(1, 1.0)]


def test_rows_after_the_checkpoint_are_played_again(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    log = Log(path, None)
    for step in (1, 2, 3):
        log.write({"env_steps": step, "loss": 0.5 * step})
    log.close()
    before = path.read_text()
    log = Log(path, None, updates=2)
    log.close()
    assert path.read_text() == before  # nothing is lost before there is something new
    log = Log(path, None, updates=2)
    log.write({"env_steps": 3, "loss": 9.0})
    log.close()
    assert path.read_text().splitlines() == ["env_steps,loss", "1,0.5", "2,1.0", "3,9.0"]
    assert [each.name for each in tmp_path.iterdir()] == ["progress.csv"]


def test_a_failure_to_write_anew_leaves_the_rows_there_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "progress.csv"
    log = Log(path, None)
    log.write({"env_steps": 1})
    before = path.read_text()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sinks.csv.DictWriter, "writerows", full)
    with pytest.raises(OSError):
        log.write({"env_steps": 2, "kpi_lost": 1.0})
    assert path.read_text() == before


# --- TensorBoard ---------------------------------------------------------------------------------


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = accumulators.EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def test_tensorboard_holds_the_same_numbers(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=3)
    resume(run.folder, steps=5 * ROLLOUT)
    seen, events = run.progress, scalars(run.folder)
    assert len(seen) == 5
    assert len(events) == len(seen.columns) - 1  # all but env_steps, which is the step
    tags = {tag.split("/", 1)[1]: tag for tag in events}
    for name in seen.columns:
        if name == "env_steps":
            continue
        short = re.sub(r"^(return|kpi|share)_", "", name)
        told = seen[["env_steps", name]].dropna()
        steps, values = zip(*events[tags[short]], strict=True)
        assert list(steps) == told["env_steps"].tolist(), name
        assert list(values) == pytest.approx(told[name].tolist(), rel=1e-6), name
    groups = {tag.partition("/")[0] for tag in events}
    assert groups == {"return", "kpi", "share", "time", "train"}


def test_events_after_the_checkpoint_are_hidden(tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard"
    log = Log(tmp_path / "progress.csv", folder)
    for step in (1, 2, 3):
        log.write({"env_steps": step, "loss": 1.0 * step})
    log.close()
    log = Log(tmp_path / "progress.csv", folder, updates=1)
    log.write({"env_steps": 2, "loss": 20.0})
    log.close()
    assert scalars(tmp_path)["train/loss"] == [(1, 1.0), (2, 20.0)]


def test_a_run_resumed_within_the_second_is_read_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard numbers the event files of a second 0, 1, ..., 10 and reads 10 before 9."""
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    counter = writer.AtomicCounter(9)
    monkeypatch.setattr(writer, "_global_uid", counter)
    folder = tmp_path / "tensorboard"
    for step in (1, 2):
        log = Log(tmp_path / "progress.csv", folder, updates=step - 1)
        log.write({"env_steps": step, "loss": 1.0 * step})
        log.close()
    names = [file.name for file in folder.iterdir()]
    assert sorted(int(name.rsplit(".", 1)[1]) for name in names) == [9, 10]
    assert scalars(tmp_path)["train/loss"] == [(1, 1.0), (2, 2.0)]


# --- Sinks of one's own --------------------------------------------------------------------------


class Kept:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def open(self, folder: Path, config: Any, updates: int) -> None:
        self.told.append(("open", folder.name, config.trainer, updates))

    def write(self, row: Any, histograms: Any) -> None:
        self.told.append(
            (dict(row), {name: values.tolist() for name, values in histograms.items()})
        )

    def close(self) -> None:
        self.told.append("close")


def test_a_sink_gets_every_row(tmp_path: Path) -> None:
    kept = Kept()
    run = small_run(tmp_path / "run", metrics={"one": lambda episode: 1}, sinks=[kept, "csv"])
    assert kept.told[0] == ("open", "run", "sb3_ppo", 0)
    assert kept.told[-1] == "close"
    written = [
        {k: "" if v is None else str(v) for k, v in row.items()} for row, _ in kept.told[1:-1]
    ]
    assert len(written) == 3
    for row, own in zip(rows(run), written, strict=True):
        assert row.items() <= {**dict.fromkeys(row, ""), **own}.items()
    assert [values for _, values in kept.told[1:-1]] == [
        {"one": []},
        {"one": [1.0] * 4},
        {"one": []},
    ]
    again = Kept()
    resume(run.folder, steps=4 * ROLLOUT, sinks=[again])
    assert again.told[0] == ("open", "run", "sb3_ppo", 3)
    assert len(again.told) == 3


class Broken(Kept):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def open(self, folder: Path, config: Any, updates: int) -> None:
        super().open(folder, config, updates)
        if self.where == "open":
            raise ConnectionError("no server")

    def write(self, row: Any, histograms: Any) -> None:
        super().write(row, histograms)
        if self.where == "write" and row["updates"] == 2:
            raise ConnectionError("no server")

    def close(self) -> None:
        super().close()
        if self.where == "close":
            raise ConnectionError("no server")


def test_a_sink_that_fails_is_named_and_the_run_goes_on_later(tmp_path: Path) -> None:
    kept = Kept()
    with refused(CallbackError, "Broken", 2, 128, "ConnectionError"):
        small_run(tmp_path / "run", sinks=[kept, Broken("write")], checkpoint_every=10**6)
    assert kept.told[-1] == "close"
    assert len(rows(tmp_path / "run")) == 2
    resume(tmp_path / "run")
    assert everything(tmp_path / "run") == everything(small_run(tmp_path / "whole"))
    with refused(CallbackError, "Broken"):
        small_run(tmp_path / "other", sinks=[Broken("open")])
    assert not (tmp_path / "other").exists()
    with refused(CallbackError, "Broken", 3):
        small_run(tmp_path / "third", sinks=[Broken("close"), kept])
    assert kept.told[-1] == "close"
    assert len(rows(tmp_path / "third")) == 3


def test_a_full_disk_ends_training_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is not in progress.csv is in no checkpoint either."""
    write = CSV.write

    def full(self: Any, row: Any, histograms: Any) -> None:
        if row["updates"] == 3:
            raise OSError(28, "No space left on device")
        write(self, row, histograms)

    with monkeypatch.context() as patched:
        patched.setattr(CSV, "write", full)
        with refused(OSError, errno=28):
            small_run(tmp_path / "run", checkpoint_every=1)
    assert len(rows(tmp_path / "run")) == 2
    resume(tmp_path / "run")
    whole = small_run(tmp_path / "whole")
    assert rows(tmp_path / "run") == rows(whole)
    assert everything(tmp_path / "run") == everything(whole)


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        ("csv", TypeError, ("sinks='csv'", "sinks=['my_file.py:Name']")),
        ([3], TypeError, ("int", "open", "write", "close", "corral.trainers.Sink")),
        (
            ["tensorbord"],
            UnknownNameError,
            ("'tensorbord'", "'tensorboard'"),
        ),
        (["nowhere.py:f"], UnknownNameError, ("nowhere.py",)),
        ([Broken], TypeError, ("Broken.__init__()", "'where'")),
    ],
)
def test_what_is_no_sink_is_refused_before_a_folder_is_made(
    tmp_path: Path, given: Any, error: type[Exception], named: tuple[object, ...]
) -> None:
    with refused(error, *named):
        small_run(tmp_path / "run", sinks=given)
    assert list(tmp_path.iterdir()) == []


def test_packages_add_sinks_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("kept", f"{__name__}:Kept", sinks.GROUP)

    class Found:
        name, value = point.name, point.value

        def load(self) -> Any:
            return Kept

    monkeypatch.setattr(sinks.metadata, "entry_points", lambda group: [Found()])
    assert list(sinks.sinks()) == ["csv", "tensorboard", "kept"]
    found = sinks.sinks_of(["kept", "tensorboard"])
    assert list(found) == ["csv", "tensorboard", "kept"]
    assert isinstance(found["kept"], Kept)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
def test_a_row_that_does_not_fit_on_the_disk_names_the_file(tmp_path: Path) -> None:
    import resource
    import signal

    path = tmp_path / "progress.csv"
    log = Log(path, None)
    log.write({"env_steps": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
    try:
        with refused(OSError, filename=str(path)):
            log.write({"env_steps": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    log.close()
