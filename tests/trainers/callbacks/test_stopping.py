"""Evaluation while training, best by it, and what ends training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.errors import UnknownNameError
from corral.trainers import EarlyStop, Evaluate, StopWhen, evaluate_team, load_run
from corral.trainers.driver import resume, train
from corral.trainers.evaluation.validate import validation_seed
from support.loads import days
from support.runs import ROLLOUT, everything, rows, weights

MAPPO: dict[str, Any] = {
    "trainer": "mappo",
    **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "n_minibatches": 1, "net_arch": (16,)},
}


def arena(folder: Path, updates: int = 4, **given: Any) -> Any:
    """A run of mappo on arena_v0, whose episodes end within a rollout."""
    settings = {**MAPPO, "env_kwargs": {"max_cycles": 10}, **given}
    return train("arena_v0", steps=updates * ROLLOUT, out=folder, **settings)


def column(run: Any, name: str) -> list[str]:
    return [row[name] for row in rows(run)]


# --- Evaluation ----------------------------------------------------------------------------------


def test_evaluations_are_columns_and_change_nothing(tmp_path: Path) -> None:
    plain = arena(tmp_path / "plain")
    run = arena(tmp_path / "run", callbacks=[Evaluate(every=128, episodes=5)])
    assert weights(run) == weights(plain)
    assert everything(run) == everything(plain)
    assert [value != "" for value in column(run, "validation_return_team")] == [0, 1, 0, 1]
    assert column(run, "validation_mean_length")[1] == "10.0"
    seed = validation_seed()
    score = evaluate_team(plain.config.env_config.rules(), plain.policies, episodes=5, seed=seed)
    assert float(column(run, "validation_return_team")[-1]) == score.return_team
    for agent, value in score.returns.items():
        assert float(column(run, f"validation_return_{agent}")[-1]) == value
    for name, value in score.kpis.items():
        assert float(column(run, f"validation_kpi_{name}")[-1]) == value


def test_the_best_checkpoint_is_the_best_by_validation(tmp_path: Path) -> None:
    steps = []
    for seed in (1, 2):
        run = arena(
            tmp_path / f"run {seed}",
            8,
            **{**MAPPO, "n_epochs": 4, "learning_rate": 0.02, "seed": seed},
            callbacks=[Evaluate(every=1, episodes=3)],
            checkpoint_every=10**6,
            keep=1,
        )
        values = [float(value) for value in column(run, "validation_return_team")]
        steps.append((int(np.argmax(values)) + 1) * ROLLOUT)
        assert run.best_by["env_steps"] == steps[-1]
        assert run.best_by["value"] == max(values)
    assert min(steps) < 8 * ROLLOUT  # or it could be the latest
    said = (
        f"the best by the learners' mean return in 3 greedy validation episodes, {max(values):.4g}"
    )
    assert load_run(f"{run.folder}@best").source().endswith(said)
    # Without evaluations the best stays, whatever the returns of training are.
    resume(run.folder, steps=10 * ROLLOUT, checkpoint_every=1)
    assert run.best_by["env_steps"] == steps[-1]


def test_evaluations_of_a_run_that_goes_on_are_those_of_one_that_never_stopped(
    tmp_path: Path,
) -> None:
    whole = arena(tmp_path / "whole", 6, callbacks=[Evaluate(every=100, episodes=3)])
    run = arena(
        tmp_path / "run", 1, horizon=6 * ROLLOUT, callbacks=[Evaluate(every=100, episodes=3)]
    )
    for updates in (3, 6):
        resume(run.folder, steps=updates * ROLLOUT, callbacks=[Evaluate(every=100, episodes=3)])
    assert rows(run) == rows(whole)
    assert run.best_by == whole.best_by


def test_every_trainer_can_be_evaluated(tmp_path: Path) -> None:
    settings = {"trainer": "sb3_ppo", "batch_size": 64, "n_minibatches": None}
    given = {**MAPPO, **settings}
    del given["n_minibatches"]
    run = train(
        "arena_v0",
        steps=2 * ROLLOUT,
        out=tmp_path / "run",
        env_kwargs={"max_cycles": 10},
        callbacks=[Evaluate(64, 2, deterministic=False), StopWhen("validation_mean_length>=10")],
        **given,
    )
    assert column(run, "validation_mean_length") == ["10.0"]


@pytest.mark.parametrize(
    "criterion",
    [
        "validation_return_learned>=-1000000",
        "validation_kpi_fields_visited>=0",
        "validation_served>=0",
    ],
)
def test_every_documented_column_of_evaluations_can_stop_a_training(
    tmp_path: Path, criterion: str
) -> None:
    given = {"callbacks": [Evaluate(128, 2), StopWhen(criterion)]}
    name = criterion.partition(">=")[0]
    if name != "validation_served":
        run = arena(tmp_path / "run", 6, **given)
    else:
        load: dict[str, Any] = {"trace": days(10), "max_cycles": 8}
        run = train(
            "dfaas_v0", steps=6 * ROLLOUT, out=tmp_path / "run", env_kwargs=load, **MAPPO, **given
        )
    values = column(run, name)
    assert len(values) == 2  # the first update has no evaluation
    assert (values[0], values[1] != "") == ("", True)
    assert run.stopped is not None
    shown(run.stopped, criterion)


def test_an_unknown_column_of_evaluations_is_refused(tmp_path: Path) -> None:
    callbacks = [Evaluate(128, 2), StopWhen("validation_kpi_fields_visitd>=0")]
    with refused(UnknownNameError, "validation_kpi_fields_visitd", "validation_kpi_fields_visited"):
        arena(tmp_path / "run", 2, callbacks=callbacks)


@pytest.mark.parametrize("given", [{"every": 0}, {"every": 1.5}, {"every": 1, "episodes": 0}])
def test_evaluations_out_of_range_are_refused(given: dict[str, Any]) -> None:
    name = list(given)[-1]
    with refused(ValueError, f"{name}={given[name]}", 1):
        Evaluate(**given)


# --- Stop criteria -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criterion", "updates"),
    [
        ("env_steps>=128", 2),
        ("updates > 2", 3),
        ("length<=10", 1),
        ("return_team>=1e9", 4),
        ("wall_s>=0", 1),
        ("paid_max<=0", 1),
        ("kpi_new_field>=0", 1),
        ("entropy<=100", 1),
    ],
)
def test_a_criterion_ends_training_when_it_is_met(
    tmp_path: Path, criterion: str, updates: int
) -> None:
    stop = StopWhen(criterion)
    run = arena(tmp_path / "run", callbacks=[stop], metrics={"paid": lambda episode: 0})
    assert len(rows(run)) == updates
    if updates < 4:
        assert run.stopped is not None
        assert run.stopped.startswith(criterion.replace(" ", ""))
    else:
        assert run.stopped is None


def test_criteria_are_given_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = arena(tmp_path / "run", callbacks=[StopWhen("updates>=2")])
    shown(capsys.readouterr().err, "updates>=2", 2, f"corral train --resume {run.folder}")
    assert len(rows(resume(run.folder, steps=3 * ROLLOUT))) == 3
    assert len(rows(resume(run.folder, steps=9 * ROLLOUT, callbacks=[StopWhen("updates>=5")]))) == 5


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("retrun_team", "return_team"),
        ("return_agent1", "return_agent_1"),
        ("wall", "wall_s"),
        ("paid", "paid_min"),
        ("kpi_newfield", "kpi_new_field"),
    ],
)
def test_an_unknown_column_is_refused_before_training(tmp_path: Path, name: str, near: str) -> None:
    stop = StopWhen(f"{name}>=1")
    metrics = {"paid": lambda episode: 0}
    with refused(UnknownNameError, "progress.csv", f"'{name}'", f"'{near}'"):
        arena(tmp_path / "run", callbacks=[stop], metrics=metrics)
    assert list(tmp_path.iterdir()) == []


def test_a_column_that_might_be_the_trainers_is_refused_after_the_first_update(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with refused(UnknownNameError, "'approx_kl'", f"corral train --resume {folder}"):
        arena(folder, callbacks=[StopWhen("aprox_kl>=1")])
    shown(capsys.readouterr().err, 64)
    assert len(rows(folder)) == 1
    resume(folder)
    assert everything(folder) == everything(arena(tmp_path / "whole"))


def test_a_column_that_a_callback_adds_is_known_when_it_is_there(tmp_path: Path) -> None:
    class Adds(corral.Callback):
        def on_update(self, session: Any, row: dict[str, Any]) -> None:
            row["return_teams"] = row["updates"]

    run = arena(tmp_path / "run", callbacks=[StopWhen("return_teams>=2"), Adds()])
    assert len(rows(run)) == 2


@pytest.mark.parametrize("text", ["return_team", "return_team=15", ">=15", "return_team>=much"])
def test_what_is_no_criterion_is_refused(text: str) -> None:
    with refused(ValueError, repr(text), "'return_team>=15'"):
        StopWhen(text)


# --- Early stop ----------------------------------------------------------------------------------


class Script(corral.Callback):
    """Puts given values into a column."""

    columns = ("score",)

    def __init__(self, *values: float | None) -> None:
        self.values = values

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        row["score"] = self.values[row["updates"] - 1]


@pytest.mark.parametrize(
    ("values", "given", "updates"),
    [
        ((1, 2, 2, 2, 3, 4), {"patience": 2}, 4),
        ((1, 2, 2, 3, 3, 4), {"patience": 2}, 6),
        ((1, None, None, 0, None, 1), {"patience": 2}, 6),
        ((1.0, 1.05, 1.1, 1.2, 1.3, 1.4), {"patience": 2, "min_delta": 0.15}, 3),
        ((5, 4, 3, 3, 3, 2), {"patience": 2, "lower": True}, 5),
        ((-3, -4, -5, 0, 0, 0), {"patience": 2}, 3),
    ],
)
def test_training_ends_when_a_column_gets_no_better(
    tmp_path: Path, values: Any, given: dict[str, Any], updates: int
) -> None:
    run = arena(tmp_path / "run", 6, callbacks=[EarlyStop("score", **given), Script(*values)])
    assert len(rows(run)) == updates


def test_patience_is_remembered_when_a_run_goes_on(tmp_path: Path) -> None:
    script = Script(1, 2, 2, 2, 2, 2)
    run = arena(tmp_path / "run", 3, horizon=6 * ROLLOUT, callbacks=[script])
    resume(run.folder, steps=6 * ROLLOUT, callbacks=[script, EarlyStop("score", patience=3)])
    assert len(rows(run)) == 5
    shown(run.stopped, "score", 128, 2, 3)


def test_early_stops_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="patience=0"):
        EarlyStop("return_team", 0)
    with pytest.raises(ValueError, match="min_delta=-1"):
        EarlyStop("return_team", 1, -1)
