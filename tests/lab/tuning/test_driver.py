"""corral.tune: studies that end, go on, prune, fail, and are refused."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused, shown

pytest.importorskip("safetensors", reason="needs the extra mappo")
pytest.importorskip("optuna", reason="needs the extra tune")

import corral
from corral.cli.commands.tune import _warnings
from corral.envs.policy import RandomPolicy
from corral.envs.registry import make_rules
from corral.errors import ArgumentError, RunError, StudyError
from corral.lab.jobs import Ended, is_finished
from corral.lab.tuning import trials
from corral.lab.tuning.judging import ReferencePlay, _above, measure_of
from corral.lab.tuning.phrases import in_numbers, percents
from corral.lab.tuning.plan import Plan
from corral.lab.tuning.result import Study, Trial
from corral.lab.tuning.space import Space
from corral.trainers.base import find_trainer
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.validate import Validation, validate
from corral.trainers.runs.folders import locked
from corral.trainers.runs.run import CHECKPOINTS, load_run
from support.command import within
from support.tuning import SMALL, in_this_process

GRID = {"learning_rate": "1e-3,1e-2"}
CLOCKS = ["wall_s", "env_steps_per_s", "share_env", "share_inference", "share_learning"]


def tune(folder: Path, **given: Any) -> Study:
    env = given.pop("env", "two_step_v0")
    return corral.tune(env, out=folder, **{"grid": GRID, **SMALL, **given})


def plain(study: Study) -> list[dict[str, Any]]:
    return [{**asdict(trial), "runs": [*trial.runs]} for trial in study.trials]


def forget(folder: Path, number: int) -> None:
    """Let a trial be as a killed study leaves it: not over, as Optuna has it."""
    with sqlite3.connect(folder / "study.db") as database:
        database.execute("UPDATE trials SET state='RUNNING' WHERE number=?", (number,))
        database.execute(
            "DELETE FROM trial_values WHERE trial_id IN (SELECT trial_id FROM trials "
            "WHERE number=?)",
            (number,),
        )
        database.execute(
            "DELETE FROM trial_user_attributes WHERE trial_id IN (SELECT trial_id FROM trials "
            "WHERE number=?)",
            (number,),
        )
    database.close()


def test_a_grid_is_played_once_and_its_best_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = in_this_process(monkeypatch)
    folder, told = tmp_path / "study", list[tuple[int, int]]()

    def tell(trial: Trial, study: Study) -> None:
        told.append((trial.number, study.counts["complete"]))

    study = tune(folder, seeds=2, on_trial=tell)
    assert [job.folder.name for job in begun] == [
        *("trial-0000-seed0", "trial-0000-seed1", "trial-0001-seed0", "trial-0001-seed1")
    ]
    assert told == [(0, 1), (1, 2)]
    assert [trial.parameters for trial in study.trials] == [
        *({"learning_rate": 0.001}, {"learning_rate": 0.01})
    ]
    for trial in study.trials:
        each = [validate(load_run(trial.runs[seed])).value for seed in (0, 1)]
        assert trial.value == sum(each) / 2
        assert [*trial.values.values()] == each
        assert [*trial.env_steps.values()] == [100, 100]
    best = study.best
    assert best is not None
    assert best.value == max(trial.value or 0.0 for trial in study.trials)
    assert study.to_dataframe()["value"].max() == best.value
    assert {"trials.csv", "curves.svg", "study.db"} <= {path.name for path in folder.iterdir()}
    _repeated(best.command, best.runs[1], tmp_path / "again")
    again = tune(folder, seeds=2)
    assert len(begun) == 4
    assert again.played == 0
    assert plain(again) == plain(study)


def _repeated(command: str, run: Path, folder: Path) -> None:
    """The printed command gives the same rows."""
    loop, _, line = command.partition("; do ")
    assert loop == "for seed in 0 1"
    words = shlex.split(line.removesuffix("; done").replace("$seed", "1"))
    assert words[0].startswith("OMP_NUM_THREADS=")
    assert words[1] == "corral"
    within(*words[2:], "--out", folder)
    rows = [load_run(each).progress.drop(columns=CLOCKS) for each in (run, folder)]
    assert rows[0].equals(rows[1])


@pytest.mark.slow
def test_progress_counts_the_env_steps_of_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    in_one_go = trials.play

    def play(jobs: Any, processes: int, *, watch: Any, threads: int) -> Iterator[Ended]:
        for ended in in_one_go(jobs, processes, threads=threads):
            watch(ended.job)
            yield ended

    monkeypatch.setattr(trials, "play", play)
    monkeypatch.setattr(trials, "REPORT_S", 0.0)
    reports: list[tuple[str, int, int]] = []
    tune(tmp_path / "study", progress=lambda *report: reports.append(report))
    steps = SMALL["steps"]
    assert reports == [("env steps", steps, 2 * steps), ("env steps", 2 * steps, 2 * steps)]


def test_a_killed_study_goes_on_with_the_same_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = in_this_process(monkeypatch)
    search = {"search": {"learning_rate": "log:1e-4..1e-1"}, "grid": None, "trials": 3}
    search |= {"checkpoint_every": 40, "jobs": 2}
    whole = tune(tmp_path / "whole", **search)
    parts = tmp_path / "parts"
    tune(parts, **search)
    # 0: judged, but not told; 1: with no run; 2: killed between a row and its checkpoint.
    for number in range(3):
        forget(parts, number)
    shutil.rmtree(parts / "trial-0001")
    shutil.rmtree(load_run(parts / "trial-0002").checkpoint())
    for pointer in ("latest", "best"):
        (parts / "trial-0002" / CHECKPOINTS / pointer).unlink()
    assert not is_finished(parts / "trial-0002")
    begun.clear()
    study = tune(parts, **search)
    assert [job.folder.name for job in begun] == ["trial-0001", "trial-0002"]
    assert [(t.number, t.parameters, t.value) for t in study.trials] == [
        (t.number, t.parameters, t.value) for t in whole.trials
    ]
    begun.clear()
    more = tune(parts, **{**search, "trials": 4})  # a study may have more than it had
    assert [job.folder.name for job in begun] == ["trial-0003"]
    assert len(more.trials) == 4
    assert len(tune(parts, **search).trials) == 4


def test_a_trial_that_fails_is_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a learning rate that leads to numbers that are not finite."""
    in_this_process(monkeypatch)
    study = tune(tmp_path / "study", grid={"learning_rate": "1e30,1e-2"}, max_grad_norm=1e30)
    assert [trial.state for trial in study.trials] == ["failed", "complete"]
    shown(study.trials[0].reason, "logits")
    assert study.best is not None
    assert study.best.number == 1
    assert study.counted() == "2 trials: 1 complete, 1 failed"
    none = tune(tmp_path / "none", grid={"learning_rate": "1e30"}, max_grad_norm=1e30)
    assert none.best is None
    assert none.counts["failed"] == 1


@pytest.mark.slow
def test_pruning_follows_from_rows_and_not_from_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks while these are trained: who is below the median is pruned all the same."""
    in_this_process(monkeypatch)
    given: dict[str, Any] = {
        "grid": {"learning_rate": "1e-2,2e-2,3e-2,4e-2,0.0"},
        "steps": 200,
        "prune": True,
    }
    study = tune(tmp_path / "study", **given)
    states = [trial.state for trial in study.trials]
    assert states[:4] == ["complete"] * 4
    assert states[4] == "pruned"  # it learns nothing
    shown(study.trials[4].reason, "median")
    assert study.trials[4].value is None
    assert study.best is not None
    assert study.best.number != 4
    # Even a look that comes when all is over finds the same.
    forget(tmp_path / "study", 4)
    assert [trial.state for trial in tune(tmp_path / "study", **given).trials] == states


@pytest.mark.slow
def test_another_study_and_a_damaged_one_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = in_this_process(monkeypatch)
    folder = tmp_path / "study"
    study = tune(folder, grid={"learning_rate": "1e-2"})
    for name, other, named in (
        ("env", "rps_v0", "corral train rps_v0"),
        ("trainer", "ippo", "--trainer ippo"),
        ("gamma", 0.5, "--gamma 0.5"),
        ("seeds", 2, "seeds=[0, 1]"),
    ):
        with refused(StudyError, folder / "study.json", named, "--out"):
            tune(folder, **{"grid": {"learning_rate": "1e-2"}, name: other})
    with locked(folder), refused(RunError, folder, os.getpid()):
        tune(folder, grid={"learning_rate": "1e-2"})
    # What is in a run is what counts: without the database it is judged again.
    (folder / "study.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4000)
    with refused(StudyError, folder / "study.db"):
        tune(folder, grid={"learning_rate": "1e-2"})
    (folder / "study.db").unlink()
    again = tune(folder, grid={"learning_rate": "1e-2"})
    assert plain(again) == plain(study)
    assert len(begun) == 1
    # A trial that is complete, and has no values.
    with sqlite3.connect(folder / "study.db") as database:
        database.execute("DELETE FROM trial_user_attributes")
    database.close()
    with refused(StudyError, folder / "study.db", "seeds", 0):
        tune(folder, grid={"learning_rate": "1e-2"})
    # A run that is none of the study's.
    (folder / "study.db").unlink()
    tune(tmp_path / "other", grid={"learning_rate": "0.5"})
    shutil.rmtree(folder / "trial-0000")
    (tmp_path / "other" / "trial-0000").rename(folder / "trial-0000")
    with refused(StudyError, folder / "trial-0000", "learning_rate=0.5", 0.01, "--out"):
        tune(folder, grid={"learning_rate": "1e-2"})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    (tmp_path / "compared").mkdir()
    (tmp_path / "compared" / "study.json").write_text('{"env": "two_step_v0", "options": []}')
    with pytest.raises(StudyError, match=r"compared/study\.json"):
        tune(tmp_path / "compared")
    with refused(StudyError, tmp_path / "full", "--out"):
        tune(tmp_path / "full")


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        ({"grid": {"num_envs": "4,64"}, "num_envs": 4}, ValueError, ("num_envs",)),
        ({"n_steps": 1000}, ValueError, ("steps=100", "4,000")),
        ({"grid": {"gamma": "0.9,1.5"}}, ValueError, ("gamma=1.5", "0", "1")),
        ({"trials": 1}, ValueError, ("trials=1", 2)),
        ({"jobs": 0}, ValueError, ("jobs=0",)),
        ({"env": "dfaas_v0", "validation": 0, "steps": 9000}, ValueError, ("validation=0",)),
        ({"env": "tictactoe_v0", "prune": True, "steps": 9000}, ValueError, ("--evaluate-every",)),
        (
            {"callbacks": [print]},
            ArgumentError,
            ("callbacks=<built-in function print>", "file.py:name"),
        ),
        ({"gama": 0.9}, TypeError, ("'gama'", "'gamma'")),
    ],
)
def test_what_makes_no_study_is_refused_before_a_folder_is_made(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], named: tuple[object, ...]
) -> None:
    with refused(error, *named):
        tune(tmp_path / "study", **given)
    assert not (tmp_path / "study").exists()


def test_a_zero_sum_game_is_judged_seat_by_seat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    study = tune(tmp_path / "study", env="rps_v0", grid={"learning_rate": "1e-2"})
    shown(study.measure, "reference", 64)
    assert study.trials[0].value is not None
    assert study.trials[0].value == validate(load_run(study.trials[0].runs[0])).value


def test_players_are_named_only_where_there_are_some(tmp_path: Path) -> None:
    def words(env: str) -> str:
        out = tmp_path / env
        with corral.session(
            env, steps=200, num_envs=4, n_steps=5, progress=False, out=out
        ) as begun:
            return measure_of(begun.config, evaluated=False, prune=False)

    shown(words("rps_v0"), "reference", "random", 64)
    assert "reference" not in shown(words("classic/tictactoe-v3"), "random", 64)


def test_what_matters_in_a_grid_is_an_analysis_of_variance(tmp_path: Path) -> None:
    space = Space.of(find_trainer("mappo").kind, [], {"gamma": "0.5,1", "n_epochs": "1,2"}, {}, ())
    plan = Plan(("arena_v0",), space, 4, (0, 1), 1, 1)

    def study(*values: tuple[float, float]) -> Study:
        trials = [
            Trial(at, point, "complete", dict(enumerate(each)), {}, {})
            for at, (point, each) in enumerate(zip(space.listed(), values, strict=True))
        ]
        return Study(tmp_path, plan, "", (), trials)

    alone = study((0, 0), (0, 0), (4, 4), (4, 4)).importance
    assert alone == {"gamma": 1.0, "n_epochs": 0.0, "seeds": 0.0, "interaction of settings": 0.0}
    mixed = study((0, 2), (3, 5), (5, 7), (8, 10)).importance  # 25 + 9 between, 8 / 8 within
    assert mixed["gamma"] == pytest.approx(50 / 76)
    assert mixed["n_epochs"] == pytest.approx(18 / 76)
    assert mixed["seeds"] == pytest.approx(8 / 76)
    together = study((1, 1), (0, 0), (0, 0), (1, 1)).importance
    assert together["interaction of settings"] == pytest.approx(1.0)
    assert study((1, 1), (1, 1), (1, 1), (1, 1)).importance == {}


def test_random_play_stands_beside_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    study = tune(tmp_path / "study", grid={"learning_rate": "1e-2"})
    assert study.best is not None
    assert study.reference_play is not None
    run = load_run(study.best.run)
    assert study.reference_play.random == validate(run, RandomPolicy()).value
    assert study.reference_play.greedy == study.best.value
    few = Trial(0, {}, "complete", {0: 1.0}, {}, {0: study.best.run})
    poor = dataclasses.replace(study, trials=[few], reference_play=ReferencePlay(2.5, 9.0, 1.0))
    below_random, sampled = _warnings(poor)
    shown(below_random, "random", "(2.5)")
    shown(sampled, "(9)", "(1,")
    assert [
        *_warnings(dataclasses.replace(poor, reference_play=ReferencePlay(0.5, None, 1.0)))
    ] == []


def test_sampled_play_is_told_where_its_interval_is_above(tmp_path: Path) -> None:
    """A learner that greedily repeats one action, and knows better by chance."""
    score = evaluate_team(make_rules("two_step_v0"), RandomPolicy(), episodes=8)

    def found(low: float, high: float) -> Validation:
        row = dataclasses.replace(score, low=low, high=high)
        return Validation((row,), {"return_learned": (low + high) / 2})

    assert _above(found(2, 3), found(0, 1))
    assert not _above(found(1, 3), found(0, 2))
    assert not _above(found(0, 1), found(2, 3))


def bare(folder: Path, *values: float, learning_rates: str = "1e-3,1e-2") -> Study:
    """A study whose trials have these values, and no runs."""
    kind = find_trainer("mappo").kind
    space = Space.of(kind, [], {"learning_rate": learning_rates}, {}, ())
    plan = Plan(("arena_v0", "--trainer", "mappo"), space, len(values), (0,), 1, 1)
    trials = [
        Trial(at, {"learning_rate": 0.1}, "complete", {0: value}, {0: 9}, {0: folder})
        for at, value in enumerate(values)
    ]
    return Study(folder, plan, "mean return", ("agent_1", "agent_2"), trials)


def test_curves_are_drawn_where_there_are_some(tmp_path: Path) -> None:
    (tmp_path / "curves.svg").write_text("of what was there before")
    study = bare(tmp_path, 1.0, 2.0)
    progress = "env_steps,return_agent_1,return_agent_2\n"
    for rows in (f"{progress}100,,\n200,,\n", f"{progress}100,1,2\n"):
        (tmp_path / "progress.csv").write_text(rows)
        assert [*study.write()] == ["trials.csv", "trials.json"]
        assert not (tmp_path / "curves.svg").exists()
    (tmp_path / "progress.csv").write_text(f"{progress}100,1,2\n200,3,4\n")
    assert [*study.write()] == ["trials.csv", "trials.json", "curves.svg"]


def test_equal_trials_are_told(tmp_path: Path) -> None:
    assert bare(tmp_path, 1.0, 2.0).equal == []
    equal = bare(tmp_path, 2.0, 1.0, 2.0)
    assert equal.equal == [0, 2]
    assert in_numbers(equal.equal) == "trials 0 and 2"


def test_values_are_written_without_the_noise_of_float32(tmp_path: Path) -> None:
    bare(tmp_path, -40.50000014901161, float("nan")).write()
    rows = (tmp_path / "trials.csv").read_text().splitlines()
    assert rows[1] == "0,complete,-40.5,0.1,-40.5,9,"


def test_shares_in_percent_sum_to_100() -> None:
    assert percents([0.083, 0.083, 0.567, 0.267]) == [8, 8, 57, 27]
    assert percents([1 / 3, 1 / 3, 1 / 3]) == [34, 33, 33]
    assert percents([]) == []


# --- Settings without an effect, and sampled play ------------------------------------------------


def test_a_setting_that_every_policy_overrides_is_refused(tmp_path: Path) -> None:
    own = {policy: {"learning_rate": 1e-3} for policy in ("agent_0", "agent_1")}
    given: dict[str, Any] = {"env": "two_step_v0", "policies": "separate"}
    with refused(ValueError, "learning_rate", "--set", "agent_0, agent_1"):
        tune(tmp_path / "study", **given, settings_of=own)
    assert not (tmp_path / "study").exists()


@pytest.mark.slow
def test_trials_may_be_judged_by_sampled_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    study = tune(tmp_path / "study", deterministic=False)
    assert study.best is not None
    assert study.best.value == validate(load_run(study.best.run), deterministic=False).value
    shown(study.measure, "sampled")
    with refused(StudyError, "deterministic=false", "deterministic=true", "--out"):
        tune(tmp_path / "study")
    assert tune(tmp_path / "study", deterministic=False).played == 0
