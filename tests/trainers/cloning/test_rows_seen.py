"""Rows that a run's weights have learned from, by whatever it came of, are not held out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.data import load_trace
from corral.errors import RunError
from corral.loads.judge import seen_rows as told
from corral.trainers import Run
from corral.trainers.cloning.trainer import taught_by

SMALL: dict[str, Any] = {
    "steps": 64,
    "num_envs": 4,
    "n_steps": 16,
    "n_epochs": 1,
    "net_arch": (16,),
    "preset": "none",
    "progress": False,
}
WIDE = {"held_out": (3_600, 4_032)}  # by default more is held out
REFUSED = ("edge3", "2822:4032", "--held-out 3600:4032", "held_out=(3600, 4032)")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "first"
    return corral.train("dfaas_v0", out=folder, **WIDE, **SMALL)


def trained(out: Path, **given: Any) -> Run:
    return corral.train("dfaas_v0", out=out, **{**SMALL, **given})


def cloned(out: Path, teacher: Any, **given: Any) -> Run:
    return corral.clone("dfaas_v0", teacher, out=out, episodes=1, **{**SMALL, **given})


def test_a_run_starts_from_none_that_has_seen_what_it_holds_out(first: Run, tmp_path: Path) -> None:
    """Neither the run that is started from, nor the one that it started from itself."""
    with refused(ValueError, *REFUSED):
        trained(tmp_path / "refused", init=first.folder)
    second = trained(tmp_path / "second", init=first.folder, **WIDE)
    with refused(ValueError, "second", "2736:3600", "--held-out 3600:4032"):
        trained(tmp_path / "refused", init=second.folder)
    assert not (tmp_path / "refused").exists()
    assert trained(tmp_path / "third", init=second.folder, held_out=(3_700, 4_032)).policies


def test_a_run_holds_out_nothing_that_an_opponent_has_seen(first: Run, tmp_path: Path) -> None:
    """The team that is judged on those rows has the opponent among it."""
    given: dict[str, Any] = {"opponents": {"node_1": f"{first.folder}:1,overflow:1"}}
    with refused(ValueError, *REFUSED):
        trained(tmp_path / "refused", **given)
    assert not (tmp_path / "refused").exists()
    second = trained(tmp_path / "second", **given, **WIDE)
    digest = second.config.env_config.trace.digest  # type: ignore[union-attr]
    assert second.config.seen == [[digest, *rows] for rows in _rows(first)]
    assert trained(tmp_path / "third", opponents={"node_1": "overflow"}).config.seen == []


def _rows(run: Run) -> list[tuple[int, int]]:
    env_config = run.config.env_config
    return [env_config.env_kwargs["rows"], env_config.validation["rows"]]


def test_rows_that_were_played_again_are_not_offered(tmp_path: Path) -> None:
    """A run may train on rows that it holds out, and then they are no remedy."""
    again = trained(tmp_path / "again", env_kwargs={"rows": (0, 4_032)}, **WIDE)
    with refused(ValueError, "0:3168", "edge3", "--held-out"):
        trained(tmp_path / "refused", init=again.folder)
    trained(tmp_path / "more", init=again.folder, env_kwargs={"rows": (0, 4_032)}, **WIDE)


def test_a_teacher_has_seen_its_rows_too(first: Run, tmp_path: Path) -> None:
    for given in (str(first.folder), first):
        with refused(ValueError, *REFUSED):
            cloned(tmp_path / "refused", given)
    with refused(ValueError, *REFUSED):
        trained(tmp_path / "refused", trainer=taught_by(first))
    assert not (tmp_path / "refused").exists()


def test_what_a_teacher_has_seen_is_kept_with_its_clone(first: Run, tmp_path: Path) -> None:
    """Whatever rows the clone is trained on: here the last, which do not begin with the others."""
    late = {"env_kwargs": {"rows": (3_000, 3_800)}, "held_out": (3_900, 4_032)}
    clone = cloned(tmp_path / "clone", first, **late)
    digest = first.config.env_config.trace.digest
    kept = json.loads((clone.folder / "config.json").read_text())["seen"]
    assert [digest, *first.config.env_config.env_kwargs["rows"]] in kept
    assert corral.load_run(clone.folder).config.seen == kept
    early = {"env_kwargs": {"rows": (2_000, 2_900)}, "held_out": (0, 500)}
    with refused(ValueError, "0:2736", "--held-out 3900:4032"):
        trained(tmp_path / "refused", init=clone.folder, **early)
    with refused(ValueError, "0:2736", "--held-out 3900:4032"):
        cloned(tmp_path / "refused", clone, **early)
    assert not (tmp_path / "refused").exists()


def test_who_replays_such_rows_is_told(first: Run, tmp_path: Path) -> None:
    late = {"env_kwargs": {"rows": (3_000, 3_800)}, "held_out": (3_900, 4_032)}
    clone, trace = cloned(tmp_path / "clone", first, **late), load_trace("edge3")
    shown(told("clone", clone, trace, (0, 288)), "clone", "0:2736")
    shown(told("first", first, trace, (0, 288)), "first", "0:2736")
    assert told("clone", clone, trace, (3_900, 4_032)) is None
    assert told("clone", clone, load_trace("edge8"), (0, 288)) is None


def test_teacher_and_start_count_both(first: Run, tmp_path: Path) -> None:
    start = trained(tmp_path / "start", env_kwargs={"rows": (3_000, 3_500)}, **WIDE)
    both = cloned(tmp_path / "both", first, init=start.folder, **WIDE)
    rows = [tuple(each[1:]) for each in both.config.seen]
    for run in (first, start):
        assert run.config.env_config.env_kwargs["rows"] in rows
    assert len(rows) == len(set(rows))


def test_a_run_of_what_has_seen_goes_on_and_plays(first: Run, tmp_path: Path) -> None:
    clone = cloned(tmp_path / "clone", first, **WIDE)
    further = corral.resume(clone.folder, steps=128)
    assert further.config.seen == clone.config.seen != []
    assert corral.load_run(clone.folder).policies


def test_what_has_seen_nothing_is_kept_from_nothing(first: Run, tmp_path: Path) -> None:
    """As it began, or taught by a reference team; config.json has no word of it."""
    clone = cloned(tmp_path / "clone", f"{first.folder}@0")
    assert clone.config.seen == []
    assert "seen" not in json.loads((clone.folder / "config.json").read_text())
    assert cloned(tmp_path / "overflow", "overflow/equal").config.seen == []
    other = cloned(
        tmp_path / "other", first, env_kwargs={"trace": "edge3", "max_cycles": 48}, **WIDE
    )
    assert other.policies


@pytest.mark.parametrize("seen", [0, {}, [3], [["digest", 0]], [["digest", "0", 5]], "edge3"])
def test_a_damaged_list_is_told(seen: Any, tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    path = run.folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "seen": seen}))
    with refused(RunError, path):
        corral.load_run(run.folder)
