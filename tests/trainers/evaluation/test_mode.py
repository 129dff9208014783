"""The mode of play that a run records at its end: measured once, and then used by all players."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.envs.core import Array, Outcome
from corral.errors import RunError
from corral.trainers.callbacks.evaluation import Evaluate
from corral.trainers.cloning.teachers import find_teacher
from corral.trainers.evaluation.greedy import measured_mode
from corral.trainers.evaluation.players import Player, as_player
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.tables import tables
from corral.trainers.evaluation.validate import validate
from corral.trainers.runs.run import MODE, Run
from support.messages import refused, shown
from support.steady_rules import SteadyRules, SteadyState

ROUNDS = 2


class Differ(SteadyRules):
    """Two agents that see nothing earn 1 in every round in which their actions differ.

    With one policy for both, greedy play earns 0, and no play earns more than ROUNDS / 2.
    """

    name = "differ_v0"

    def __init__(self) -> None:
        super().__init__(max_cycles=ROUNDS)

    def step(self, state: SteadyState, action: Array) -> Outcome[SteadyState]:
        state.pay = np.repeat(0.5 * (action[:, :1] != action[:, 1:]), 2, axis=1).astype(np.float32)
        return super().step(state, action)


PLAN: dict[str, Any] = {
    **{"num_envs": 64, "n_steps": 16, "n_epochs": 1, "n_minibatches": 1, "net_arch": (4,)},
    **{"policies": "shared", "agent_id": False, "preset": "none", "progress": False},
}
STEPS = 3072


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return corral.train(Differ(), steps=STEPS, out=tmp_path_factory.mktemp("run") / "run", **PLAN)


def test_a_run_records_that_only_sampled_play_earns(run: Run) -> None:
    record = run.mode_record
    assert record is not None
    assert (record.mode, record.greedy, record.episodes) == ("sampled", 0, 15)
    assert record.sampled > 0.5
    assert not run.deterministic
    assert json.loads((run.folder / MODE).read_text()) == dataclasses.asdict(record)


@pytest.mark.parametrize("greedy", [True, False])
def test_the_best_checkpoint_plays_as_in_the_evaluations_that_selected_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], greedy: bool
) -> None:
    """The run itself plays with sampled actions: greedy play earns nothing."""
    evaluate = Evaluate(1024, episodes=20, deterministic=greedy)
    run = corral.train(Differ(), steps=STEPS, out=tmp_path / "run", callbacks=[evaluate], **PLAN)
    best = corral.load_run(f"{run.folder}@best", Differ())
    assert not run.deterministic
    assert best.deterministic == greedy
    (score,) = validate(best, episodes=20).rows
    assert score.mode == ("greedy" if greedy else "sampled")
    assert score.return_team == (best.best_by or {})["value"]
    assert ("RUN@best" in capsys.readouterr().err) == greedy
    modes = [row.mode for row in corral.evaluate(best, episodes=20)[:2]]
    assert modes == (["greedy", "sampled"] if greedy else ["sampled", "greedy"])


def test_players_of_the_run_use_the_mode(run: Run) -> None:
    rules = run.config.env_config.rules()
    assert evaluate_team(rules, run.policies, episodes=20).mode == "sampled"
    assert as_player(run.policies, rules.agents).mode == "sampled"
    assert Player(dict(run.policies)).mode == "greedy"
    assert evaluate_team(rules, Player(run.policies, True), episodes=20).return_team == 0
    assert validate(run).rows[0].mode == "sampled"
    assert validate(run, deterministic=True).value == 0
    assert not find_teacher(run, rules).deterministic
    assert corral.evaluate(run.policies, Differ(), episodes=20)[0].mode == "sampled"
    for team in (run.policies | {}, run.policies.copy()):
        assert Player(team).mode == "sampled"


def test_an_evaluation_begins_with_the_mode_and_does_not_warn(run: Run, tmp_path: Path) -> None:
    result = corral.evaluate(run, episodes=50, out=tmp_path, require="return_team>0.5")
    assert [row.mode for row in result[:2]] == ["sampled", "greedy"]
    assert result.holds
    assert "greedy_below_sampled" not in result.details
    (entry,) = result.details["plays_sampled"]
    assert entry["mode"] == "sampled"
    shown(entry["said"], "mappo", f"{entry['sampled']:.3g}", 15)
    assert entry["said"] in [*tables(result, run.config.env_config.rules())]


def test_a_run_without_a_record_plays_greedily(run: Run) -> None:
    text = (run.folder / MODE).read_bytes()
    (run.folder / MODE).unlink()
    try:
        before = corral.load_run(run.folder, Differ())
        assert before.deterministic
        assert before.mode_record is None
        result = corral.evaluate(before, episodes=30)
        assert [row.mode for row in result[:2]] == ["greedy", "sampled"]
        assert "greedy_below_sampled" in result.details
        (run.folder / MODE).write_text('{"mode": "sampled"}')
        with refused(RunError, MODE):
            _ = before.deterministic
        (run.folder / MODE).write_bytes(text.replace(b'"sampled",', b'"other",'))
        with refused(RunError, MODE):
            _ = before.deterministic
    finally:
        (run.folder / MODE).write_bytes(text)


def test_a_resumed_run_compares_again(run: Run, tmp_path: Path) -> None:
    whole = corral.train(Differ(), steps=2 * STEPS, out=tmp_path / "whole", **PLAN)
    parts = corral.train(Differ(), steps=STEPS, horizon=2 * STEPS, out=tmp_path / "parts", **PLAN)
    assert parts.mode_record is not None
    resumed = corral.resume_session(
        parts.folder, env=Differ(), steps=2 * STEPS, checkpoint_every=10 * STEPS
    )
    with resumed as session:
        next(session)
        assert parts.mode_record is not None  # the latest checkpoint is still that of the record
        session.save()
        assert parts.mode_record is None
        session.finish()
    assert parts.mode_record == whole.mode_record
    assert whole.mode_record != run.mode_record
    again = corral.resume(parts.folder, env=Differ())  # nothing is left to play
    assert again.mode_record == whole.mode_record


def test_short_runs_do_not_compare(tmp_path: Path) -> None:
    run = corral.train(Differ(), steps=1024, out=tmp_path / "run", **PLAN)
    assert run.mode_record is None


@pytest.mark.parametrize(
    ("env", "trainer"), [("rps_v0", "mappo"), ("dfaas_v0", "mappo"), ("two_step_v0", "sb3_dqn")]
)
def test_runs_whose_modes_do_not_compare(env: str, trainer: str) -> None:
    """Zero-sum games, environments that replay data, and policies that are values of actions."""
    config = corral.train(env, trainer=trainer, steps=64, dry_run=True).config
    assert measured_mode(config, config.make_trainer().policies, steps=2, episodes=20) is None


def test_an_environment_that_cannot_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run is saved: it does not fail at its end."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("the port is in use")

    monkeypatch.setattr("corral.trainers.evaluation.greedy.play", fail)
    run = corral.train(Differ(), steps=STEPS, out=tmp_path / "run", **PLAN)
    assert run.mode_record is None
    shown(capsys.readouterr().err, "the port is in use")


def test_watching_plays_in_the_mode(run: Run) -> None:
    screen: list[str] = []
    sampled, greedy = (
        corral.watch(run, text=screen.append, sampled=mode) for mode in (None, False)
    )
    shown(sampled.policies, "sampled")
    assert sum(greedy.returns.values()) == 0
    assert "sampled" not in greedy.policies
