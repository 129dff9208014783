"""From the best rule to a recommendation: what is chosen, what is kept, and that it goes on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.data import Trace
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.errors import CorralError, RunError
from corral.loads.advise.enough import training_of
from corral.loads.from_rule.preset import FROM_RULE
from corral.loads.from_rule.validation import Validated
from corral.loads.replay import replay
from corral.loads.textbook import TODAY, fit
from corral.trainers.evaluation.judge import run_players
from support.command import within
from support.loads import DAY, days
from support.messages import refused, shown
from support.runs import everything

SMALL: dict[str, Any] = {
    **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "n_minibatches": 1, "net_arch": (16,)},
    **{"seed": 3, "steps": 448, "progress": False},
}


def begun(out: Path, trace: Trace | None = None, **given: Any) -> corral.trainers.Run:
    kwargs = {"trace": days(16) if trace is None else trace, "queue": 5, "wait_cost": 0.02}
    own = {"env_kwargs": {**kwargs, **given.pop("env_kwargs", {})}}
    return corral.from_rule(out=out, **{**SMALL, **own, **given})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> corral.trainers.Run:
    return begun(tmp_path_factory.mktemp("runs") / "run")


def test_the_rule_is_the_best_of_all_days_that_are_not_held_out(run: Any) -> None:
    kwargs, config = run.config.env_config.env_kwargs, run.config.env_config
    assert (kwargs["rows"], config.validation["rows"]) == ((0, 5 * DAY), (5 * DAY, 11 * DAY))
    plan: dict[str, Any] = {"rows": (0, 11 * DAY), "queue": 5, "wait_cost": 0.02}
    plan |= {"arrivals": "unknown", "optimum_windows": 0}
    rule = run.recommendation.rule
    played = replay(config.trace, list(dict.fromkeys([rule, *TODAY])), **plan)
    costs = {score.policy: score.cost for score in played.scores}
    assert costs[rule] == min(costs.values())
    assert kwargs["route"] == PlainRule.of(rule).route
    assert (kwargs["arrivals"], kwargs["residual"]) == ("unknown", rule)
    assert (kwargs["max_cycles"], kwargs["reward"]) == (DAY, "team")


def test_the_rule_is_the_best_of_all_routes(tmp_path: Path) -> None:
    game = {"queue": 5, "second_offer": False, "link_limit": 3}
    run = begun(tmp_path / "run", steps=64, env_kwargs={**game, "wait_cost": 0})
    fitted = fit(days(16), rows=(0, 11 * DAY), window=DAY, arrivals="unknown", **game)
    assert run.recommendation.rule == str(fitted.rule)
    assert fitted.rule.route == run.config.env_config.env_kwargs["route"] == "least"


def test_the_team_starts_as_its_rule_and_is_validated_during_training(run: Any) -> None:
    history = json.loads((run.folder / "validation.json").read_text())
    assert len(history["rule"]) == len(history["arrivals"]) == 6  # days
    assert history["costs"]["0"] == history["rule"]
    steps = [int(step) for step in history["costs"]]
    assert len(steps) >= 4
    best = min(steps, key=lambda step: sum(history["costs"][str(step)]))
    assert run.best_by["env_steps"] == run.recommendation.checkpoint == best


def test_scales_leave_room_for_later_days(run: Any) -> None:
    kwargs, config = run.config.env_config.env_kwargs, run.config.env_config
    rows = slice(*kwargs["rows"])  # of training alone
    assert kwargs["load_scale"] == 1.5 * config.trace.arrivals[rows].max()
    assert kwargs["capacity_scale"] == 1.5 * config.trace.capacity[rows].max()
    assert kwargs["beyond"] == "rule"
    later = dataclasses.replace(config.trace, arrivals=4 * config.trace.arrivals)
    plan: dict[str, Any] = {"rows": (0, DAY), "arrivals": "unknown", "optimum_windows": 0}
    played = replay(later, run_players({"team": run}), queue=5, **plan)
    assert played.scores[0].cost > 0


def test_the_same_begun_twice_is_one_configuration(run: Any, tmp_path: Path) -> None:
    """Wherever they lie, and whenever they were trained."""
    other = begun(tmp_path / "elsewhere" / "run")
    assert other.folder != run.folder
    assert other.config.canonical() == run.config.canonical()
    digests = [
        json.loads((each.checkpoint() / "manifest.json").read_text())["files"]["configuration.json"]
        for each in (run, other)
    ]
    assert digests[0] == digests[1]


def test_the_recommendation_is_what_a_replay_finds(run: Any) -> None:
    it, low, high = run.recommendation, 5 * DAY, 11 * DAY
    best = corral.load_run(f"{run.folder}@best")
    players: dict[str, Any] = {
        it.rule: it.rule,
        "team": run_players({"team": best})["team, greedy"],
    }
    plan: dict[str, Any] = {"rows": (low, high), "queue": 5, "wait_cost": 0.02}
    plan |= {"arrivals": "unknown", "optimum_windows": 0}
    costs = [100 * s.cost for s in replay(run.config.env_config.trace, players, **plan).scores]
    assert it.rule_cost == pytest.approx(costs[0])
    assert it.difference == pytest.approx(costs[1] - costs[0])
    assert set(it.policies) == {"node_0", "node_1", "node_2"}


def test_a_stopped_run_is_resumed_as_if_it_had_not_stopped(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, steps = Validated.on_update, 128

    def cut(self: Any, session: Any, row: dict[str, Any]) -> None:
        whole(self, session, row)
        if session.env_steps == steps:
            raise RuntimeError("cut")

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Validated, "on_update", cut)
        with pytest.raises(CorralError, match="cut"):
            begun(folder)
    stopped = corral.load_run(folder)
    assert (stopped.recommendation, len(stopped.progress)) == (None, steps // 64)
    with pytest.raises(RunError, match=r"corral\.resume_from_rule"):
        corral.resume(stopped.folder)
    assert len(corral.load_run(stopped.folder).progress) == steps // 64
    again = corral.resume_from_rule(stopped.folder)
    assert again.recommendation == run.recommendation
    assert (folder / "validation.json").read_text() == (run.folder / "validation.json").read_text()
    assert everything(folder) == everything(run.folder)
    assert corral.resume_from_rule(folder).recommendation == run.recommendation


def test_the_export_names_what_it_recommends(run: corral.trainers.Run, tmp_path: Path) -> None:
    printed = within("export", run.folder, "--recommended", "--out", tmp_path / "gateway")
    it = run.recommendation
    shown(printed, it.rule if it.play == "rule" else "team", str(tmp_path / "gateway"))


def test_a_start_that_was_killed_is_repeated_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (".lock", ".lock.pid", "made.csv.gz"):  # before config.json
        (folder / name).touch()
    run = begun(folder, days(8), steps=64, rule="overflow/equal")
    assert run.recommendation.rule == "overflow/equal"
    assert not (folder / "made.csv.gz").exists()
    with refused(RunError, folder):
        begun(folder, rule="overflow/equal")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").touch()
    with refused(RunError, tmp_path / "notes"):
        begun(tmp_path / "notes", rule="overflow/equal")


@pytest.mark.slow
def test_a_run_is_replaced_if_that_is_requested(tmp_path: Path) -> None:
    folder, small = tmp_path / "run", {"steps": 64, "rule": "overflow/equal"}
    begun(folder, days(8), **small)
    (folder / "notes.txt").write_text("old")
    run = begun(folder, days(8), **{**small, "seed": 4, "overwrite": True})
    assert (run.folder, run.config.seed) == (folder, 4)
    assert not (folder / "notes.txt").exists()
    assert run.recommendation.rule == "overflow/equal"


def test_minutes_bound_a_training_and_steps_set_its_length(tmp_path: Path) -> None:
    preset = dataclasses.replace(FROM_RULE, updates=1)
    run = begun(tmp_path / "whole", steps=None, preset=preset)
    assert run.config.steps == 4 * 128  # nodes: 3
    assert (run.stopped, len(run.progress)) == (None, 8)
    assert training_of(run).too_short(0.001) == "updates"
    run = begun(tmp_path / "cut", steps=10**7, minutes=0.01)
    assert run.progress.env_steps.max() < run.config.steps == 10**7 // 64 * 64
    plan = json.loads((run.folder / "from_rule.json").read_text())
    assert plan["minutes"] == 0.01
    assert plan["spent"] > 0.01 * 60
    assert run.recommendation.play == "rule"
    assert run.stopped is not None
    assert training_of(run).too_short(0.001) == "minutes"


def test_all_days_may_be_trained_on(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", days(8), held_out=0, steps=128)
    config = run.config.env_config
    assert (config.env_kwargs["rows"], config.validation["rows"]) == (
        (0, 2 * DAY),
        (2 * DAY, 8 * DAY),
    )
    assert config.held_out["rows"] == (0, 8 * DAY)


def test_rows_that_are_given_stay(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", days(12), env_kwargs={"rows": (DAY, 9 * DAY)}, steps=128)
    config = run.config.env_config
    assert (config.env_kwargs["rows"], config.validation["rows"]) == (
        (DAY, 3 * DAY),
        (3 * DAY, 9 * DAY),
    )
    assert config.held_out["rows"] == (9 * DAY, 12 * DAY)


def test_few_days_leave_fewer_windows_and_the_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    it = begun(tmp_path / "run", days(6), steps=128).recommendation
    assert (it.play, it.windows) == ("rule", 2)
    told = capsys.readouterr().err
    shown(told, "2 of these 4 days", "below 6")
    shown(it.why, "2 validation windows")


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ({"nodes": ("a",), "columns": 1}, ("one node",)),
        ({"arrivals": 0}, ("no request",)),
        ({"capacity": 0}, ("capacity", "0")),
    ],
)
def test_where_nothing_matters_it_is_said(
    change: dict[str, Any], values: tuple[str, ...], tmp_path: Path
) -> None:
    trace = days(10, nodes=change.get("columns", 3))
    for name in ("arrivals", "capacity"):
        if name in change:
            trace = dataclasses.replace(trace, **{name: np.zeros_like(trace.arrivals)})
    with refused(ValueError, trace.name, *values):
        begun(tmp_path / "run", trace)
    assert not any(tmp_path.iterdir())


def test_what_is_given_goes_before_the_preset(tmp_path: Path) -> None:
    given: dict[str, Any] = {"gamma": 0.3, "n_epochs": 2, "net_arch": (8,), "steps": 128}
    run = begun(tmp_path / "run", env_kwargs={"route": "two"}, **given)
    settings = run.config.settings
    assert (settings["gamma"], settings["net_arch"], settings["num_envs"]) == (0.3, [8], 4)
    assert settings["n_epochs"] == 2
    assert settings["lookahead"] == FROM_RULE.team["lookahead"]
    assert PlainRule.of(run.recommendation.rule).route == "two"


def test_the_preset_counts_decisions() -> None:
    for nodes, num_envs in ((2, 128), (8, 48), (16, 24), (300, 8)):
        assert FROM_RULE.team_settings(nodes)["num_envs"] == num_envs
        assert FROM_RULE.steps(nodes) == 64 * 4 * num_envs


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"trainer": "ippo"}, ("trainer=", "from_rule")),
        ({"teacher": "overflow"}, ("teacher=", "from_rule")),
        ({"minutes": 0}, ("minutes=0",)),
        ({"env_kwargs": {"residual": "overflow/equal"}}, ("residual",)),
        ({"env_kwargs": {"amount": "keep"}}, ("amount",)),
        ({"rule": "patient/equal", "env_kwargs": {"route": "least"}}, ("'patient/equal'", "least")),
        ({"env": "arena_v0"}, ("dfaas_v0", "arena_v0")),
        ({"env_kwargs": {"route": "best"}}, ("route", "'best'", "'least'")),
    ],
)
def test_what_it_does_not_take(
    given: dict[str, Any], values: tuple[str, ...], tmp_path: Path
) -> None:
    with refused(ValueError, *values):
        begun(tmp_path / "run", **given)


def test_nothing_that_was_begun_otherwise_is_gone_on_with(tmp_path: Path) -> None:
    with refused(RunError, tmp_path, "from_rule"):
        corral.resume_from_rule(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with refused(RunError, tmp_path / "there"):
        begun(tmp_path / "there")


@pytest.mark.slow
def test_what_is_recommended_costs_no_more_on_days_that_nobody_used(tmp_path: Path) -> None:
    """What is recommended costs no more than the rule on days that nobody used."""
    load = days(100, nodes=4, seed=5)
    low, high = 40 * DAY, 100 * DAY
    given: dict[str, Any] = {"forward_cost": 0.2, "wait_cost": 0.05, "queue": 10}
    given |= {"second_offer": False, "load_scale": 60, "capacity_scale": 14}
    run = corral.from_rule(
        env_kwargs={"trace": load.section(0, low), **given}, steps=20_000, out=tmp_path / "run"
    )
    it = run.recommendation
    assert json.loads((run.folder / "validation.json").read_text())["checks"] == 10
    best = corral.load_run(f"{run.folder}@best")
    assert it.difference is not None
    plan: dict[str, Any] = {"rows": (low, high), "optimum_windows": 0, **given}
    team_player = run_players({"team": best})["team, greedy"]
    players: dict[str, Any] = {it.rule: it.rule, "team": team_player}
    played = replay(load, players, arrivals="unknown", **plan)
    rule, team = (100 * score.cost for score in played.scores)
    assert (team if it.play == "team" else rule) < rule + 0.1
    assert it.play == "rule"  # a fitted counter with margins is ahead


def test_a_run_that_observes_means_is_evaluated(run: Any) -> None:
    table = run.config.env_config.env_kwargs["daily_mean"]
    assert np.shape(table) == (DAY, 3)
    assert isinstance(table, list)  # as config.json holds it
    config = run.config.env_config
    rows = config.trace.arrivals[slice(*config.env_kwargs["rows"])]  # whole days, of training alone
    np.testing.assert_allclose(table, rows.reshape(-1, DAY, 3).mean(axis=0))
    labels = [score.policy for score in corral.evaluate(run, references=["local/equal"])]
    assert {"local/equal", run.recommendation.rule} <= set(labels)
    assert any("greedy" in label for label in labels)
