"""corral evaluate, and corral replay with runs: rows held out, scales kept, files written."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra sb3")

from typer.testing import CliRunner

import corral
from corral.cli.app import app
from corral.data import Trace, write_trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.policy import Decision
from corral.errors import ScaleError
from corral.loads import judge
from corral.loads.judge import trained_differently
from corral.loads.replay import replay
from corral.trainers.evaluation.judge import evaluate
from corral.trainers.runs.run import Run, load_run
from support.command import run as command
from support.loads import small_trace
from support.runs import PaidRules, small_run
from support.turn_rules import MortalRules

REFERENCES = ["local/equal", "overflow/equal"]


def within(*arguments: str | Path, code: int = 0) -> str:
    """The output of ``corral ARGUMENTS``, run in this process."""
    result = CliRunner().invoke(app, [*map(str, arguments)], terminal_width=80)
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def require_80_columns(printed: str, *paths: str) -> None:
    lines = [
        line
        for line in printed.splitlines()
        if not line.startswith(("Report:", "Results:", "Replaced in"))
    ]
    assert lines
    assert max(map(len, lines)) <= 80, max(lines, key=len)


def with_loads(factor: float = 1.0, seed: int = 7, capacity: bool = True) -> Trace:
    load = small_trace(seed=seed)
    arrivals = (load.arrivals * factor).astype(int)
    return Trace(load.nodes, arrivals, load.capacity if capacity else None, load.times)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    env = {"queue": 3, "wait_cost": 0.1, "max_level": 6}
    return small_run(tmp_path_factory.mktemp("runs") / "run", updates=5, env_kwargs=env).folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Run:
    return load_run(shutil.copytree(made, tmp_path / "run"))


# --- The library ---------------------------------------------------------------------------------


def test_a_run_is_judged_on_the_rows_that_it_did_not_see(run: Run) -> None:
    result: Any = corral.evaluate(run.folder, references=REFERENCES)
    assert run.config.env_config.env_kwargs["rows"] == (0, 28)
    assert result.replay.rows == (28, 40)
    settings = result.replay.settings
    assert (settings["queue"], settings["wait_cost"]) == (3, 0.1)
    scores = {score.policy: score for score in result}
    assert set(scores) == {*REFERENCES, "sb3_ppo, greedy", "sb3_ppo, sampled", "optimum"}
    assert list(scores)[-1] == "optimum"
    costs = [score.cost for score in result[:-1]]
    assert costs == sorted(costs)
    for name, score in scores.items():
        assert score.illegal_actions == 0, name
        assert score.served + score.lost == pytest.approx(1, abs=0.3)
    greedy, sampled = scores["sb3_ppo, greedy"], scores["sb3_ppo, sampled"]
    assert (greedy.mode, sampled.mode) == ("greedy", "sampled")
    assert greedy.cost != sampled.cost
    kept = json.loads((run.folder / "results.json").read_text())
    assert {row["policy"]: row["illegal_actions"] for row in kept["rows"]} == dict.fromkeys(
        [row["policy"] for row in kept["rows"]], 0
    )
    assert kept["trace_rows"] == [28, 40]
    page = (run.folder / "report.html").read_text()
    for heading in ("<h2>Learning</h2>", "<h2>What was learned</h2>"):
        assert heading in page, [line for line in page.splitlines() if "<h2" in line]
    again: Any = evaluate(run, references=REFERENCES, out=run.folder / "again")
    assert again.rows == result.rows
    other: Any = evaluate(run, references=[], seed=1, out=run.folder / "again")
    costs = {score.policy: score.cost for score in other}
    assert costs["sb3_ppo, greedy"] == greedy.cost
    assert costs["sb3_ppo, sampled"] != sampled.cost


def test_the_best_rule_is_that_of_the_rows_that_were_trained_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load where forwarding pays on the training rows, and costs more than it saves later."""
    out = tmp_path / "out"
    found: Any = evaluate(run, references=REFERENCES, window=2, out=out)
    rule = found.replay.best_rule
    assert rule.among == 2
    shown(rule.chosen_on, "0:28")
    trained = replay(
        run.config.env_config.trace, REFERENCES, rows=(0, 28), queue=3, wait_cost=0.1, window=2
    )
    costs = {score.policy: score.cost for score in trained.scores}
    assert rule.names == [min(REFERENCES, key=costs.__getitem__)]
    monkeypatch.setattr(judge, "replay", costly_elsewhere(28))
    found = evaluate(run, references=REFERENCES, window=2, out=out)
    assert found.replay.best_rule.names == ["local/equal"]
    judged = {score.policy: score.cost for score in found}
    assert judged["overflow/equal"] < judged["local/equal"]  # and it is not chosen by that
    assert found.details["verdicts"].keys() == {"sb3_ppo, greedy", "sb3_ppo, sampled"}
    assert all("local/equal" in said for said in found.details["verdicts"].values())


def costly_elsewhere(first: int) -> Any:
    """A replay in which overflow play costs a thousand requests more before row ``first``."""

    def changed(*given: Any, **settings: Any) -> Any:
        result = replay(*given, **settings)
        if result.rows[0] < first:
            result.sums["overflow/equal"].cost[:] += 1000.0
        return result

    return changed


@pytest.mark.parametrize("given", [{"rows": (10, 40)}, {"trace": with_loads(0.9)}])
def test_a_rule_is_not_chosen_on_rows_that_it_is_judged_on(
    run: Run, tmp_path: Path, given: dict[str, Any]
) -> None:
    """Where the rows are those of the training, or of another load, others of them must do."""
    found: Any = evaluate(run, references=REFERENCES, window=5, out=tmp_path / "out", **given)
    shown(found.replay.best_rule.chosen_on, "windows")
    verdict = found.details["verdicts"]["sb3_ppo, greedy"]
    assert ("/equal" not in verdict) is ("rows" in given)  # no rule, no verdict


def test_what_is_held_out_is_played_with_the_capacity_of_the_training(tmp_path: Path) -> None:
    load = with_loads(capacity=False)
    env = {"trace": load, "capacity": "1.25x"}
    own = small_run(tmp_path / "run", updates=1, env_kwargs=env)
    trained = own.config.env_config.rules()
    assert isinstance(trained, DfaasRules)
    levels = np.rint(1.25 * load.arrivals[:28].mean(axis=0))
    assert (trained.trace.capacity == levels).all()
    assert not (load.with_capacity("1.25x").capacity == levels).all()
    found: Any = evaluate(own, references=REFERENCES)
    assert found.replay.trace == trained.trace
    assert found.replay.best_rule.chosen_on == "the training rows 0:28"


def test_other_rows_and_windows(run: Run, tmp_path: Path) -> None:
    result: Any = evaluate(run, references=[], rows=(3, 25), window=10, out=tmp_path / "out")
    played = result.replay
    assert (played.rows, played.window, played.windows, played.remainder) == ((3, 25), 10, 2, 2)
    assert not (run.folder / "results.json").exists()


def test_scales_stay_those_of_the_run(run: Run, tmp_path: Path) -> None:
    # Half the load, with its own scale, would show the team arrivals that seem twice as many.
    result: Any = evaluate(run, trace=with_loads(0.5), references=REFERENCES, out=tmp_path / "out")
    assert result.replay.rows == (0, 40)
    for mode in ("greedy", "sampled"):
        own = result.replay.teams[f"sb3_ppo, {mode}"].settings
        assert own["load_scale"] == run.config.env_config.env_kwargs["load_scale"] == 12
    with refused(ScaleError, run.folder, "load_scale 12", 24, "beyond='clip'"):
        evaluate(run, trace=with_loads(2.0), references=[], out=tmp_path / "out")
    with refused(ValueError, 4, run.folder, 3):
        evaluate(run, trace=small_trace(nodes=4), references=[], out=tmp_path / "out")


def test_other_environments_get_team_scores(tmp_path: Path) -> None:
    small_run(tmp_path / "run", env=PaidRules((1.0, -0.5)), updates=1)
    run = load_run(tmp_path / "run", PaidRules((1.0, -0.5)))
    scores: Any = evaluate(run, episodes=6)
    assert [score.policy for score in scores] == ["sb3_ppo, greedy", "sb3_ppo, sampled", "random"]
    for score in scores:
        assert (score.return_team, score.returns) == (2.0, {"agent_0": 4.0, "agent_1": -2.0})
        assert (score.episodes, score.mean_length, score.illegal_actions) == (6, 4, 0)
    kept = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [row["policy"] for row in kept["rows"]] == [score.policy for score in scores]
    given: dict[str, Any]
    for given in ({"trace": "edge3"}, {"rows": (0, 5)}, {"window": 3}):
        with refused(ValueError, "paid_v0"):
            evaluate(run, **given)


def test_sampled_and_greedy_play_is_legal_under_drawn_masks(tmp_path: Path) -> None:
    rules = MortalRules((6, 6), lives=(7, 7), illegal="penalise")
    small_run(tmp_path / "run", env=MortalRules((6, 6), lives=(7, 7), illegal="raise"))
    scores: Any = evaluate(load_run(tmp_path / "run", rules), episodes=64)
    assert [score.illegal_actions for score in scores] == [0, 0, 0]


# --- corral evaluate -----------------------------------------------------------------------------


def test_evaluate_prints_a_table_and_writes_its_files(run: Run, tmp_path: Path) -> None:
    printed = command("evaluate", run.folder, "--policies", "local,overflow/equal")
    require_80_columns(printed)
    for policy in ("sb3_ppo, greedy", "sb3_ppo, sampled", "overflow/equal", "optimum"):
        assert policy in printed
    shown(printed, "28:40", 40)
    assert "replayed rows are" not in " ".join(printed.split())
    verdict = r"sb3_ppo, greedy .* \S+/equal: [\d,]+"
    assert re.search(verdict, " ".join(printed.split()))
    assert {"report.html", "results.json", "results.csv"} <= {
        path.name for path in run.folder.iterdir()
    }
    assert "Replaced" not in printed
    again = within("evaluate", run.folder, "--policies", "local", "--out", run.folder)
    shown(again, run.folder, "report.html, results.json, results.csv")
    printed = within(
        *("evaluate", run.folder, "--policies", "local", "--rows", "10:35", "--window", "5"),
        *("--out", tmp_path / "out"),
    )
    require_80_columns(printed)
    shown(printed, "0:28")
    shown((tmp_path / "out" / "report.html").read_text(), "0:28")
    assert json.loads((tmp_path / "out" / "results.json").read_text())["trace_rows"] == [10, 35]
    elsewhere = ("evaluate", run.folder, "--policies", "local", "--out", tmp_path / "out")
    shown(within(*elsewhere, code=2), tmp_path / "out" / "report.html", "--overwrite")
    replaced = json.loads((tmp_path / "out" / "results.json").read_text())["trace_rows"]
    assert replaced == [10, 35]
    shown(within(*elsewhere, "--overwrite"), "report.html, results.json, results.csv")


def test_mistakes_of_evaluate(run: Run, tmp_path: Path) -> None:
    write_trace(with_loads(2.0), tmp_path / "large.csv")
    for arguments, message in (
        ([tmp_path], "config.json"),
        (
            [tmp_path / "large.csv"],
            "large.csv is a trace, not the folder of a run: corral evaluate RUN",
        ),
        ([run.folder, "--policies", "overflaw"], "did you mean 'overflow'"),
        ([run.folder, "--rows", "5"], "LOW:HIGH"),
        ([run.folder, "--rows", "30:50"], "40"),
        ([run.folder, "--window", "0"], "--window 0: pass 1 step or more"),
        ([run.folder, "--trace", tmp_path / "large.csv"], "load_scale"),
        ([run.folder, "--out", tmp_path / "large.csv"], f"{tmp_path / 'large.csv'} is a file"),
    ):
        printed = within("evaluate", *arguments, code=2)
        assert message in printed
        assert printed.lstrip().startswith("corral: "), printed
    assert not (run.folder / "results.json").exists()


def test_options_of_loads_are_refused_in_other_games(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run", env="arena_v0", updates=1, env_kwargs={}).folder
    (folder / "results.json").write_text("{}")
    printed = within("evaluate", folder, "--policies", "nonsense", code=2)
    shown(printed.replace("\n", ""), "--policies nonsense", "arena_v0", "corral duel", "nonsense")
    shown(within("evaluate", folder, "--rows", "0:5", code=2), "--rows 0:5", "arena_v0")
    assert (folder / "results.json").read_text() == "{}"


# --- corral replay with runs ---------------------------------------------------------------------


def test_replay_takes_runs_as_policies(run: Run, tmp_path: Path) -> None:
    write_trace(with_loads(), tmp_path / "loads.csv")
    printed = within(
        *("replay", tmp_path / "loads.csv", "--policies", f"overflow/equal,{run.folder}"),
        *("--split", "0.5", "--out", tmp_path / "out"),
    )
    require_80_columns(printed)
    for policy in ("sb3_ppo, greedy", "sb3_ppo, sampled", "overflow/equal", "optimum"):
        assert policy in printed
    kept = json.loads((tmp_path / "out" / "results.json").read_text())
    assert kept["settings"] == {"queue": 3, "wait_cost": 0.1}  # those of the run
    assert kept["trace_rows"] == [20, 40]
    evaluated: Any = evaluate(run, references=[], rows=(20, 40), out=tmp_path / "other")
    own = {score.policy: score.cost for score in evaluated}
    for row in kept["rows"]:
        if row["policy"].startswith("sb3_ppo"):
            assert row["cost"] == pytest.approx(own[row["policy"]])
            assert row["illegal_actions"] == 0


def test_replay_says_which_rows_a_run_has_seen(run: Run, tmp_path: Path) -> None:
    load = run.config.env_config.trace
    assert load is not None
    write_trace(load, tmp_path / "loads.csv")
    low, high = run.config.env_config.env_kwargs["rows"]
    words = ["replay", tmp_path / "loads.csv", "--policies", run.folder]
    arguments = [*words, "--out", tmp_path / "o", "--overwrite"]
    said = f"{low}:{high}"
    assert said in within(*arguments)
    assert said in within(*arguments, "--rows", f"{high - 1}:{high + 1}")
    assert said not in within(*arguments, "--rows", f"{high}:{len(load)}")
    (tmp_path / "folder").mkdir()
    printed = within("replay", "edge3", "--policies", tmp_path / "folder", code=2)
    shown(printed.replace("\n", ""), tmp_path / "folder")


def test_replay_of_runs_that_differ_asks_which_game(run: Run, tmp_path: Path) -> None:
    write_trace(with_loads(), tmp_path / "loads.csv")
    env = {"queue": 4, "wait_cost": 0.1}
    other = small_run(tmp_path / "other", updates=1, env_kwargs=env)
    arguments = ["replay", tmp_path / "loads.csv", "--policies", f"{run.folder},{other.folder}"]
    printed = within(*arguments, "--out", tmp_path / "out", code=2)
    shown(printed, "--queue 3", "--queue 4")
    changed = ["--queue", "2", "--report-delay", "3"]
    printed = within(*arguments, *changed, "--out", tmp_path / "out")
    said = " ".join(printed.split())
    for name, queue in (("run", 3), ("other", 4)):
        shown(said, name, f"--queue {queue}, --report-delay 1", "--queue 2, --report-delay 3")
    printed = within(*arguments, "--queue", "3", "--capacity", "9", "--out", tmp_path / "more")
    said = " ".join(printed.split())
    shown(said, "run", "--capacity 9")
    for name in ("run", "other"):
        assert f"{name}, greedy" in printed
        assert f"{name}, sampled" in printed
    kept = json.loads((tmp_path / "out" / "results.json").read_text())
    assert kept["settings"]["queue"] == 2
    del other.config.env_config.env_kwargs["report_delay"]  # as a run from before there was any
    now = other.config.env_config.env_kwargs | {"report_delay": 3}
    shown(trained_differently("other", other, now), "other", "report_delay=1", "report_delay=3")


def test_runs_that_differ_are_told_apart_by_their_settings(run: Run, tmp_path: Path) -> None:
    write_trace(with_loads(), tmp_path / "loads.csv")
    env = {"queue": 4, "wait_cost": 0.2, "max_level": 5}
    other = small_run(tmp_path / "other", updates=1, env_kwargs=env)
    printed = within("evaluate", run.folder, other.folder, code=2)
    shown(printed, "queue", 3, 4, "max_level", 6, 5)
    words = ["replay", tmp_path / "loads.csv", "--policies", f"{run.folder},{other.folder}"]
    printed = within(*words, "--out", tmp_path / "out", code=2)
    shown(printed, "--queue 3", "--queue 4", "--wait-cost 0.1", "--wait-cost 0.2")


def test_third_party_environments_are_judged_by_worker_processes_too(tmp_path: Path) -> None:
    env = "support.bits_env:BitsEnv"
    settings = ("--steps", "64", "--num-envs", "4", "--n-steps", "16", "--net-arch", "16")
    folder = tmp_path / "run"
    within("train", env, "--trainer", "mappo", *settings, "--out", folder)
    plan = ("evaluate", folder, "--env", env, "--episodes", "5")
    alone = within(*plan, "--out", tmp_path / "alone")
    both = within(*plan, "--workers", "2", "--out", tmp_path / "both")
    shown(both, "mappo, greedy")
    rows = [
        json.loads((tmp_path / name / "results.json").read_text()) for name in ("alone", "both")
    ]
    assert rows[0] == rows[1]
    assert "random" in alone


class Wavering:
    """Forwards nothing when it plays greedily, and mostly all when it draws."""

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, state: Any = None, rng: Any = None, **how: Any) -> Any:
        mask = observation["action_mask"]
        most = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
        keep = rng.random(len(mask)) < (1.0 if how.get("deterministic", False) else 0.05)
        return Decision(np.where(keep, 0, most))


def test_a_report_says_where_greedy_play_is_far_below(run: Run, tmp_path: Path) -> None:
    vars(run)["policies"] = dict.fromkeys(run.config.policies, Wavering())
    options: dict[str, Any] = {"out": tmp_path / "out", "window": 5, "rows": (0, 40)}
    result = evaluate(run, references=["random/equal"], **options)
    (gap,) = result.details["greedy_below_sampled"]
    scores = {score.mode: score for score in result if score.mode}
    assert gap["greedy"] == pytest.approx(scores["greedy"].return_team)
    assert gap["sampled"] == pytest.approx(scores["sampled"].return_team)
    assert gap["episodes"] == 8
    assert result.details["notes"][-1] == gap["said"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert html.escape(gap["said"]) in page
    # Without random play there is nothing to measure the gap with.
    result = evaluate(run, references=["local/equal"], **options)
    assert "greedy_below_sampled" not in result.details


def test_what_was_learned_is_shown_of_each_run(run: Run, tmp_path: Path) -> None:
    env = {"queue": 3, "wait_cost": 0.1, "max_level": 6}
    other = small_run(tmp_path / "other", updates=2, seed=1, env_kwargs=env)
    found = evaluate(run, beside=[other], references=REFERENCES, out=tmp_path / "out")
    assert found.details["notes"] == []
    page = (tmp_path / "out" / "report.html").read_text()
    learned = page.partition("<h2>What was learned</h2>")[2].partition("<h2>")[0]
    for label in ("run", "other"):
        assert f">{label}<" in learned
    learning = page.partition("<h2>Learning</h2>")[2].partition("<h2>")[0]
    assert ">overflow<" in learning  # what references earn in the episodes of both
    kwargs = {**env, "max_cycles": 8, "rows": (20, 40)}
    shorter = small_run(tmp_path / "shorter", updates=2, env_kwargs=kwargs)
    found = evaluate(run, beside=[shorter], references=REFERENCES, out=tmp_path / "out")
    assert found.details["notes"] == [
        "shorter was trained on rows 20:32 and validated on rows 32:40 of this load: some "
        "replayed rows are not held out."
    ]
    page = (tmp_path / "out" / "report.html").read_text()
    learning = page.partition("<h2>Learning</h2>")[2].partition("<h2>")[0]
    assert ">shorter<" in learning
    assert ">overflow<" not in learning  # which of the two would they be of?


def test_of_a_run_on_a_probe_it_says_what_must_come_out(tmp_path: Path) -> None:
    small = {"num_envs": 4, "n_steps": 4, "device": "cpu", "gamma": 0.5}
    corral.train(
        "probe_p03_v0", trainer="ippo", steps=32, out=tmp_path / "run", progress=False, **small
    )
    printed = within("evaluate", tmp_path / "run", "--episodes", "2")
    require_80_columns(printed)
    shown(printed, "P3")
    own = ["0.50", "±", "0.1"]  # by the run's own discount
    lines = (line for line in printed.splitlines() if "agent_0" in line)
    (first,) = (line for line in lines if line.split()[-4:-1] == own)
    assert first.startswith("no")
    found = (line for line in printed.splitlines() if {"illegal", "sampled"} <= {*line.split()})
    (legal,) = found
    assert legal.split()[-2:] == ["0", "0.00"]
