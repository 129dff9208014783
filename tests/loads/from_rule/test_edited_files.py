"""Files of a run that begins with a rule, edited: each key, and whatever else may lie there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.errors import CorralError, FileError, RunError
from corral.loads.from_rule.driver import resume_from_rule
from corral.loads.from_rule.plan import PLAN, read_plan, write_plan
from corral.loads.from_rule.recommend import RECOMMENDATION, recommend, recommendation_of
from corral.loads.from_rule.validation import HISTORY, History
from support.edited import odd_files, require_plain_errors
from support.loads import days

SMALL: dict[str, Any] = {
    **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "n_minibatches": 1, "net_arch": (16,)},
    **{"seed": 3, "steps": 448, "progress": False, "quiet": True},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    corral.from_rule(out=out, env_kwargs={"trace": days(16), "queue": 5}, **SMALL)
    return out


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run", symlinks=True))


def recommended(run: Any) -> None:
    found = recommendation_of(run)
    assert found is not None
    assert found.lines()


def compared(folder: Path) -> None:
    import numpy as np

    history = History.read(folder)
    costs = {steps: np.array(each) for steps, each in history.costs.items()}
    recommend("local", None, np.array(history.rule), np.array(history.arrivals), costs).lines()


READERS: dict[str, Callable[[Path], Any]] = {
    RECOMMENDATION: lambda folder: recommended(corral.load_run(folder)),
    HISTORY: compared,
    PLAN: lambda folder: read_plan(folder / PLAN),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_edited_files_end_plain(name: str, folder: Path) -> None:
    run, read = corral.load_run(folder), READERS[name]
    if name == RECOMMENDATION:  # which is the run's; the rest of it is not read each time
        tried = require_plain_errors(folder / name, lambda: recommended(run))
    else:
        tried = require_plain_errors(folder / name, lambda: read(folder))
    assert tried > 60
    read(folder)  # as it was


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_ends_plain(name: str, folder: Path) -> None:
    seen = []
    for what in odd_files(folder / name):
        with pytest.raises((RunError, FileError)) as error:
            READERS[name](folder)
        assert str(folder / name) in str(error.value)
        seen.append(what)
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ('"nodes": 3', '"nodes": 0'),
        ('"seed": 3', '"seed": -1'),
        ('"settings": {', '"settings": {"init": "elsewhere", '),
        ('"residual": "', '"residual": "/etc/passwd'),
        ('"n_steps": 16', '"n_step": 16'),
        ('"steps": 448', '"steps": null'),
        ('"window": 24', '"window": 0'),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(key: str, value: str, folder: Path) -> None:
    (folder / RECOMMENDATION).unlink()
    text = (folder / PLAN).read_text()
    edited = text.replace(key, value, 1)
    assert edited != text
    (folder / PLAN).write_text(edited)
    with pytest.raises(CorralError) as error:
        resume_from_rule(folder, progress=False)
    assert str(folder / PLAN) in str(error.value)


def test_what_is_sound_goes_on(folder: Path) -> None:
    before = (folder / RECOMMENDATION).read_bytes()
    (folder / RECOMMENDATION).unlink()
    resume_from_rule(folder, progress=False)
    assert (folder / RECOMMENDATION).read_bytes() == before


@pytest.mark.parametrize("name", READERS)
def test_links_are_replaced_not_followed(name: str, folder: Path, tmp_path: Path) -> None:
    found = corral.load_run(folder).recommendation
    assert found is not None
    plan, history = read_plan(folder / PLAN), History.read(folder)
    write: dict[str, Callable[[Path], None]] = {
        RECOMMENDATION: found.write,
        HISTORY: history.write,
        PLAN: lambda folder: write_plan(plan, folder),
    }
    other = tmp_path / "other.json"
    other.write_text("theirs")
    (folder / name).unlink()
    (folder / name).symlink_to(other)
    write[name](folder)
    assert other.read_text() == "theirs"
    assert not (folder / name).is_symlink()
    READERS[name](folder)
