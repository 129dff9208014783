"""Opponents that are runs, or mixes: pinned checkpoints, judging, commands, and mistakes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.envs import make_rules
from corral.errors import CheckpointError, RunError, UnknownNameError
from corral.trainers.driver import resume
from corral.trainers.opponents.resolve import resolve
from corral.trainers.policies import NetworkPolicy
from corral.trainers.runs.checkpoint import latest_checkpoint
from corral.trainers.runs.run import load_run
from support.command import run as command
from support.command import within
from support.mappo_teams import ROLLOUT
from support.mix_runs import other_run, run_of
from support.runs import everything

MIX = "beat-last:2,always-same:1,copy-last:1"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return other_run(tmp_path_factory.mktemp("other") / "other")


# --- Pinned checkpoints --------------------------------------------------------------------------


@pytest.fixture
def against(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: Path) -> Path:
    """A run in runs/own that was trained against runs/other@latest, both named from here."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(other, "runs/other")
    run_of(Path("runs/own"), opponents={"player_1": "runs/other"}, checkpoint_every=ROLLOUT)
    return tmp_path / "runs"


def test_an_opponent_that_trains_on_stays_what_it_was(against: Path) -> None:
    resume(against / "other", steps=6 * ROLLOUT)
    own = corral.load_run("runs/own")
    assert own.config.opponents == {"player_1": "runs/other@256"}
    resume("runs/own", steps=3 * ROLLOUT)


def test_runs_that_move_together_or_apart_are_found(
    against: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(against)  # elsewhere: the absolute name holds
    resume("own", steps=3 * ROLLOUT)
    (tmp_path / "moved").mkdir()
    shutil.move(against, tmp_path / "moved" / "runs")  # both at once: the name holds, from there
    monkeypatch.chdir(tmp_path / "moved")
    resume("runs/own", steps=4 * ROLLOUT)


def damage(folder: Path, how: str) -> None:
    found = latest_checkpoint(folder / "checkpoints")
    if how == "gone":
        shutil.rmtree(folder)
    elif how == "checkpoint gone":
        shutil.rmtree(found)
    elif how == "weights":
        path = next(found.glob("policy_*.safetensors"))
        path.write_bytes(path.read_bytes()[:-1] + b"\1")
    elif how == "another":
        shutil.rmtree(folder)
        run_of(folder, updates=4, seed=8, memory=4)
    else:
        (folder / "config.json").write_text("{")


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("gone", ("--keep all", "--init")),
        ("checkpoint gone", ("@64", "@128", "@192", "--keep all", "--init")),
        ("weights", ("policy_shared.safetensors",)),
        ("another", ("SHA-256", "--keep all", "--init")),
        ("config", ("runs/other/config.json",)),
    ],
)
def test_a_checkpoint_that_is_gone_damaged_or_changed_ends_a_resume(
    against: Path, how: str, named: tuple[str, ...]
) -> None:
    before = everything(against / "own")
    damage(against / "other", how)
    with refused((CheckpointError, RunError), "player_1=runs/other@256", *named):
        resume("runs/own", steps=4 * ROLLOUT)
    assert everything(against / "own") == before
    # What was learned is there to be played, judged and cloned all the same.
    own = load_run("runs/own")
    assert isinstance(own.policies["player_0"], NetworkPolicy)
    found = corral.evaluate("runs/own", episodes=4)
    shown(found.details["judged"], "player_1=runs/other@256")
    if how in ("gone", "weights"):
        printed = within("evaluate", "runs/own", "--episodes", "4")
        assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.parametrize("how", ["gone", "checkpoint gone", "weights", "config"])
def test_a_new_run_against_a_damaged_one_leaves_no_folder(
    tmp_path: Path, other: Path, how: str
) -> None:
    copy = tmp_path / "other"
    shutil.copytree(other, copy)
    damage(copy, how)
    with refused((CheckpointError, RunError), f"player_1={copy}@256"):
        run_of(tmp_path / "run", opponents={"player_1": f"{copy}@256"})
    assert not (tmp_path / "run").exists()


# --- Judging and the commands --------------------------------------------------------------------


def test_an_evaluation_has_a_row_against_each_player_of_the_mix(
    tmp_path: Path, other: Path
) -> None:
    mix = {other: 2, f"{other}@64": 1, "beat-last": 1}
    run = run_of(tmp_path / "run", opponents={"player_1": mix})
    found = corral.evaluate(run, episodes=5)
    rows_of = Counter(row.opponent for row in found if row.mode == "greedy")
    expected = ["random", "always-same", "copy-last", "beat-last", f"{other}@256", f"{other}@64"]
    assert rows_of == dict.fromkeys(expected, 1)
    assert {row.seat for row in found} == {"player_0"}
    beside = corral.evaluate(run, episodes=5, beside=[other])
    assert {row.opponent for row in beside} > set(expected)


def test_a_team_is_judged_with_each_player_of_the_mix(tmp_path: Path) -> None:
    kwargs = {"width": 3, "height": 3, "max_cycles": 9}
    run = run_of(
        *(tmp_path / "run", "arena_v0"),
        opponents={"agent_2": "chase:1,still:1"},
        env_kwargs=kwargs,
    )
    found = corral.evaluate(run, episodes=4, zero_sum=False)
    names = [row.policy for row in found]
    assert names[:2] == ["mappo, greedy", "mappo, sampled"]
    assert names[2:6] == [
        f"mappo, {mode}, agent_2={player}"
        for player in ("chase", "still")
        for mode in ("greedy", "sampled")
    ]
    assert names[-1] == "random"


@pytest.mark.slow
def test_the_command_takes_runs_and_mixes(tmp_path: Path, other: Path) -> None:
    small = ("--num-envs", "4", "--n-steps", "16", "--net-arch", "16", "--steps", "128")
    words = ("train", "rps_v0", "--trainer", "mappo", *small)
    mix = f"{other}@best:2,beat-last"
    printed = command(*words, "--opponent", f"player_1={mix}", "--out", tmp_path / "run")
    shown(printed, "player_0")
    run = load_run(tmp_path / "run")
    mixed = run.config.opponents["player_1"]
    assert mixed.startswith(f"{other}@")
    assert mixed.endswith(":2,beat-last:1")
    assert "best" not in mixed
    # Its own config.json repeats it.
    command("train", "--config", run.folder / "config.json", "--out", tmp_path / "again")
    assert everything(tmp_path / "again") == everything(run)
    within("watch", run.folder, "--ansi")
    within("doctor", run.folder, "--no-audit", code=1)  # two updates are too few to learn


# --- Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opponents", "error", "named"),
    [
        (
            "{other}@77",
            CheckpointError,
            ("player_1=", 77, "@64", "--keep all"),
        ),
        ("{other}@besst", RunError, ("player_1=", "@besst", "other@best", "@latest")),
        ("runs/nothing", RunError, ("player_1=runs/nothing", "RUN@best", "random")),
        ("runs/nothing@best", RunError, ("player_1=runs/nothing@best", "RUN@best", "random")),
        ("beat-lst:2,random", UnknownNameError, ("'beat-lst'", "'beat-last'", "RUN@best")),
        ("random:0", ValueError, ("random", "'0'", "beat-last:2,runs/mine@best:1")),
        ({"random": "x"}, ValueError, ("random", "'x'", "beat-last:2,runs/mine@best:1")),
        (lambda obs: 0, ValueError, ("lambda", "RUN@best")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_mistakes_are_named_before_a_folder_is_made(
    tmp_path: Path, other: Path, opponents: Any, error: Any, named: tuple[object, ...]
) -> None:
    if isinstance(opponents, str):
        opponents = opponents.format(other=other)
    with refused(error, *named):
        run_of(tmp_path / "run", opponents={"player_1": opponents})
    assert not (tmp_path / "run").exists()


def test_a_run_that_does_not_fit_is_refused(tmp_path: Path, other: Path) -> None:
    with refused(RunError, "player_2", "rps_v0", "tictactoe_v0"):
        run_of(tmp_path / "run", "tictactoe_v0", opponents={"player_2": str(other)})
    small = run_of(tmp_path / "small", "tictactoe_v0", updates=1, env_kwargs={"size": 4})
    with refused(RunError, "player_1", "(4, 4, 2)", "(3, 3, 2)"):
        run_of(tmp_path / "run", "tictactoe_v0", opponents={"player_1": small.name})
    played = run_of(tmp_path / "played", updates=1, opponents={"player_1": "beat-last"})
    with refused(RunError, f"player_1={played.folder}@64", "beat-last"):
        run_of(tmp_path / "run", opponents={"player_1": played.name})
    with refused(RunError, "player_1", "rps_v0", "tictactoe_v0"):
        resolve(str(other), "player_1", make_rules("tictactoe_v0"))
    assert not (tmp_path / "run").exists()
