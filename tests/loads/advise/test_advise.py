"""corral.advise: from a load to an answer, and what is left behind."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import corral
from corral.data import Trace
from corral.envs.dfaas_v0.baselines import meaning
from corral.errors import ArgumentError, CorralError, TraceError, UnknownNameError
from corral.loads.advise.advice import LADDER, Advice
from corral.loads.advise.bound import MOST, bound_of
from corral.loads.advise.chosen import today_rule
from corral.loads.advise.enough import FEWEST_UPDATES
from corral.loads.advise.notes import FORESIGHT
from corral.loads.advise.question import Question
from corral.loads.advise.sentences import TEAM_RUNS
from corral.loads.advise.sentences import refused as refused_requests
from corral.loads.advise.team import divide
from corral.loads.advise.verdict import LEAST_WORTH, LOCAL, OF_CAPACITY, Decision
from corral.loads.advise.what_ifs import CAPACITY
from corral.loads.ladder import climb
from corral.loads.ladder.climb import ladder_of
from corral.loads.replay import replay
from corral.loads.text import about_knowledge
from corral.loads.textbook import fit
from corral.trainers.evaluation.judge import players
from support.loads import DAY, days
from support.messages import refused, shown

DOCS = Path(__file__).parents[3] / "docs" / "advise.md"
GAME: dict[str, Any] = {"queue": 5, "wait_cost": 0.02, "forward_cost": 0.1, "route": "equal"}
"""One route leaves few rules, so that tests are quick."""
FEW: dict[str, Any] = {
    "steps": 448,
    "training": {
        **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "n_minibatches": 1, "net_arch": (16,)}
    },
    "progress": False,
    "rehearse": False,  # see test_rehearsed.py
}


REHEARSED = {**FEW, "rehearse": True}


def of_rules(out: Path, trace: Trace, **given: Any) -> Advice:
    return corral.advise(trace, train=False, rehearse=False, out=out, **given)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    return of_rules(tmp_path_factory.mktemp("advice"), days(8), **GAME)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    pytest.importorskip("torch", reason="needs the extra mappo")
    folder = tmp_path_factory.mktemp("advice")

    def show(part: str, done: int, total: int) -> None:
        PARTS.append((part, done, total))

    return corral.advise(days(12), out=folder, show=show, **GAME, **REHEARSED)


PARTS: list[tuple[str, int, int]] = []
"""The progress of the advice with a team."""


# --- Rules ---------------------------------------------------------------------------------------


def test_each_day_is_judged_by_the_rule_that_was_best_on_the_others(rules: Advice) -> None:
    costs = {label: sums.cost for label, sums in rules.replay.sums.items()}
    load = rules.replay.sums["local/equal"].arrivals
    cost, lost, names = 0.0, 0.0, []
    for day in range(8):
        best = min(costs, key=lambda label: np.delete(costs[label], day).sum())
        names.append(best)
        cost += costs[best][day]
        lost += rules.replay.sums[best].lost[day]
    it = rules.chosen
    assert it.cost == pytest.approx(cost / load.sum())
    assert it.lost == pytest.approx(lost / load.sum())
    assert dict(it.days) == {name: names.count(name) for name in names}
    assert it.beside_local is not None
    local = costs["local/equal"].sum()
    assert it.beside_local.requests == pytest.approx((local - cost) / 8)
    assert (it.today, it.beside_today) == ("local/equal", it.beside_local)


def test_no_rule_that_played_all_days_costs_less(rules: Advice) -> None:
    book, it = rules.book, rules.chosen
    assert book.ranked()[0] == it.rule
    assert {len(cost) for cost in book.costs.values()} == {8}
    listed = rules.to_json()["rules"]
    assert [row["policy"] for row in listed] == book.ranked()
    assert listed[0]["cost"] == pytest.approx(book.costs[it.rule].sum() / book.arrivals.sum())
    assert set(rules.replay.sums) <= set(book.costs)
    for label, sums in rules.replay.sums.items():
        assert sums.cost.tolist() == book.costs[label].tolist()
    assert rules.book.tried >= len(book.costs)
    assert len(rules.replay.sums) <= 9


def test_rules_are_fitted_on_the_days_that_are_not_held_out(rules: Advice) -> None:
    assert rules.book.fitted_on == (0, 6 * DAY)
    own = {key: value for key, value in GAME.items() if key != "route"}
    found = fit(days(8), rows=(0, 6 * DAY), arrivals="unknown", route="equal", **own)
    assert rules.to_json()["fitted"] == {"rule": str(found.rule), "rows": [0, 6 * DAY]}


def test_the_verdict_stands_first_in_the_report_and_in_advice_json(rules: Advice) -> None:
    kept = json.loads((rules.folder / "advice.json").read_text())
    assert kept["verdict"] == list(rules.verdict)
    assert rules.chosen.rule in kept["verdict"][0]
    assert (kept["run"], kept["answer"], kept["team"]) == ("rule", None, None)
    assert kept["verdict"][3] == kept["no_team"] != ""
    page = (rules.folder / "report.html").read_text()
    assert page.index(html.escape(kept["verdict"][0])) < page.index("<table")
    assert f"<h1>Advice for {rules.replay.trace.name}</h1>" in page
    assert rules.lines()[:4] == list(rules.verdict)


def test_the_rule_is_told_as_pseudo_code(rules: Advice) -> None:
    assert 1 <= len(rules.pseudo_code) <= 13
    assert rules.to_json()["pseudo_code"] == list(rules.pseudo_code)
    page = (rules.folder / "report.html").read_text()
    assert html.escape(rules.pseudo_code[-1]) in page


def test_the_table_fits_80_columns_whatever_the_names(rules: Advice) -> None:
    long = "capacity=0.875+margin=1.25/all-to-shortest"
    label = rules.chosen.rule
    scores = [
        dataclasses.replace(s, policy=long, cost_per_window=123_456.0) if s.policy == label else s
        for s in rules.replay.scores
    ]
    wide = dataclasses.replace(rules, replay=dataclasses.replace(rules.replay, scores=scores))
    for advice in (rules, wide):
        assert Console(width=1000).measure(advice.table()).maximum <= 80
    assert 2 < len(wide.table().columns) < len(rules.table().columns)


@pytest.mark.parametrize("arrivals", ["known", pytest.param("unknown", marks=pytest.mark.slow)])
def test_table_page_and_file_state_what_nodes_know(tmp_path: Path, arrivals: str) -> None:
    it = of_rules(tmp_path, days(6), **GAME, arrivals=arrivals)
    kept = json.loads((it.folder / "advice.json").read_text())
    assert kept["arrivals"] == it.arrivals == kept["settings"]["arrivals"] == arrivals
    assert f"arrivals {arrivals}" in str(it.table().columns[0].header)
    stated = about_knowledge({"arrivals": arrivals})
    assert (it.folder / "report.html").read_text().count(stated) == 1
    assert stated in it.notes
    assert (FORESIGHT in it.not_considered) == (arrivals == "known")


def test_what_was_not_considered_is_listed(rules: Advice) -> None:
    assert rules.not_considered
    assert set(rules.not_considered) < set(rules.lines())


def test_the_rule_has_a_meaning(rules: Advice) -> None:
    assert rules.to_json()["meaning"] == meaning(rules.chosen.rule)


def test_refused_requests_are_spoken_of_once(rules: Advice, tmp_path: Path) -> None:
    without = of_rules(tmp_path, days(4), **GAME, second_offer=False)
    for advice, offered in ((rules, True), (without, False)):
        said = refused_requests({"second_offer": offered})
        assert sum(said in line for line in advice.verdict) == 1
        assert not any("refused" in line for line in (*advice.not_considered, *advice.notes))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("local", "local/equal"),
        ("round-robin", "overflow/equal"),
        ("least", "overflow/least"),
        ("capacity", "overflow/capacity"),
        ("two-choices", "overflow/two-choices"),
        ("shortest", "overflow/all-to-shortest"),
        ("static", "static/equal"),
        ("backlog=0.5/weighted", "backlog=0.5/weighted"),
        ("capacity=0.9/fill", "capacity=0.9/fill"),
    ],
)
def test_the_rule_of_today_may_be_a_rule_or_a_route(text: str, rule: str) -> None:
    assert today_rule(text) == rule


@pytest.mark.parametrize("text", ["choose", "nginx", "overflow/nginx", ""])
def test_what_is_no_rule_of_today(text: str) -> None:
    with pytest.raises(UnknownNameError):
        today_rule(text)


def test_the_saving_is_that_beside_the_rule_of_today(rules: Advice, tmp_path: Path) -> None:
    it = of_rules(tmp_path, days(8), **GAME, today="round-robin")
    assert (it.chosen.rule, it.chosen.today) == (rules.chosen.rule, "overflow/equal")
    assert it.chosen.beside_today is not None
    costs = it.replay.sums["overflow/equal"].cost
    share = it.chosen.beside_today.share
    assert share == pytest.approx(costs.sum() / it.book.arrivals.sum() - it.chosen.cost)
    assert it.chosen.beside_local == rules.chosen.beside_local
    same = of_rules(tmp_path / "same", days(8), **GAME, today=rules.chosen.rule)
    assert same.chosen.beside_today is None


def test_a_route_that_must_know_the_number_runs_nowhere_with_unknown_arrivals(
    tmp_path: Path,
) -> None:
    with pytest.raises(ArgumentError, match="overflow/capacity"):
        of_rules(tmp_path, days(4), today="capacity")
    assert of_rules(tmp_path, days(4), today="capacity", arrivals="known").chosen.today


def test_fresh_reports_are_played_as_those_of_the_last_step(tmp_path: Path) -> None:
    it = of_rules(tmp_path, days(4), **GAME, report_delay=0)
    assert it.replay.settings["report_delay"] == 1
    shown("\n".join(it.notes), "report_delay 0")
    known = of_rules(tmp_path / "known", days(4), **GAME, report_delay=0, arrivals="known")
    assert known.replay.settings["report_delay"] == 0
    assert not any("report_delay" in line for line in known.notes)


def test_a_load_that_grows_has_a_trend(rules: Advice, tmp_path: Path) -> None:
    assert rules.trend is None
    assert rules.to_json()["trend"] is None
    load, count = days(28), 28
    growth = np.repeat(1.0066 ** np.arange(count), DAY)[:, None]
    grown = dataclasses.replace(load, arrivals=np.rint(3 * growth * load.arrivals).astype(int))
    more = dataclasses.replace(grown, capacity=3 * load.capacity)
    it = of_rules(tmp_path, more, **GAME)
    assert it.trend is not None
    assert it.trend.slope == pytest.approx(0.0066, rel=0.3)
    assert it.chosen.beside_today is not None
    assert it.trend.saving == pytest.approx(it.chosen.beside_today.requests)
    assert it.trend.last > it.trend.saving
    assert it.to_json()["trend"]["windows"] == count
    assert len(it.verdict) == 5


def test_what_a_team_must_save_follows_from_more_capacity(rules: Advice, tmp_path: Path) -> None:
    more = next(each for each in rules.what_ifs if each.name == CAPACITY)
    part = 100 * OF_CAPACITY * more.change.share
    kept = rules.to_json()
    assert rules.worth == pytest.approx(max(LEAST_WORTH, part))
    assert kept["worth_from"] == ("capacity" if part > LEAST_WORTH else "least")
    given = of_rules(tmp_path, days(4), **GAME, worth=0.7)
    assert (given.worth, given.to_json()["worth_from"]) == (0.7, "given")


def test_every_key_of_advice_json_is_documented(team: Advice) -> None:
    table = DOCS.read_text().partition("## advice.json")[2]
    cells = re.findall(r"^\| (`.+?) \| ", table, flags=re.MULTILINE)
    documented = {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}
    assert set(team.to_json()) == documented


# --- The ladder ----------------------------------------------------------------------------------


def test_the_ladder_is_in_advice_json_and_in_the_report(rules: Advice) -> None:
    it = rules.ladder
    assert it is not None
    kept = json.loads((rules.folder / "advice.json").read_text())
    assert kept["ladder"] == it.to_json()
    assert kept["no_ladder"] == rules.no_ladder == ""
    assert it.rung("rule").policy == rules.book.rule
    assert it.rung("learned").absent
    page = (rules.folder / "report.html").read_text()
    assert page.count("<table class='ladder'>") == 1
    assert html.escape(it.answer) in page
    headings = [heading for heading, _ in rules.sections()]
    assert (headings[0], headings[-1]) == ("Verdict", LADDER)


def test_the_team_is_a_rung_of_the_ladder(team: Advice) -> None:
    it, learned = team.ladder, team.team
    assert it is not None
    assert learned is not None
    rung = it.rung("learned")
    assert rung.saving is not None
    assert rung.saving.windows == learned.saving.windows == it.windows
    assert rung.saving_fitted is not None
    assert rung.saving_fitted >= 0
    if rung.policy == "team":
        assert rung.cost == pytest.approx(learned.replay.sums["team"].cost.mean())
    else:
        assert rung.same
    page = (team.folder / "report.html").read_text()
    assert page.count("<table class='ladder'>") == 1


@pytest.mark.slow
def test_a_team_that_costs_less_on_the_days_of_the_fit_is_its_rung(
    team: Advice, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = team.team
    assert learned is not None
    question = Question(
        learned.run.config.env_config.trace, "unknown", LOCAL, None, 0, None, False, GAME
    )
    fitted = 6 * DAY // DAY
    monkeypatch.setattr(climb, "costs_on", lambda *args: np.full(fitted, -1.0))
    it = ladder_of(question, team.book, (fitted * DAY, 12 * DAY), learned)
    rung = it.rung("learned")
    assert rung.policy == "team"
    assert rung.cost == pytest.approx(learned.replay.sums["team"].cost.mean())
    assert it.rung("arrivals").policy == "team"
    assert it.rung("arrivals").same


def test_with_three_days_there_is_no_ladder(tmp_path: Path) -> None:
    it = of_rules(tmp_path, days(3), **GAME)
    assert it.ladder is None
    assert it.to_json()["ladder"] is None
    shown(it.no_ladder, 3, 4)


def test_the_costliest_day_is_explained(rules: Advice) -> None:
    mortem = rules.more["post_mortem"]
    costs = rules.replay.sums[rules.chosen.rule].cost
    assert mortem.day == costs.argmax()
    assert rules.to_json()["post_mortem"]["policy"] == rules.chosen.rule


def test_it_says_beforehand_what_it_does(tmp_path: Path) -> None:
    told: list[str] = []
    advice = of_rules(tmp_path, days(4), **GAME, begins=told.append)
    assert len(told) == 2
    shown(told[0], "4 days", "3 what-ifs")
    assert advice.chosen.rule in told[1]


# --- Teams ---------------------------------------------------------------------------------------


def test_a_team_is_judged_on_the_days_held_out_alone(team: Advice) -> None:
    it = team.team
    assert it is not None
    config = it.run.config.env_config
    assert config.held_out["rows"] == (6 * DAY, 12 * DAY)
    assert (config.env_kwargs["rows"], config.validation["rows"]) == (
        (0, 4 * DAY),
        (4 * DAY, 6 * DAY),
    )
    own = {key: value for key, value in GAME.items() if key != "route"}
    best = fit(days(12), rows=(0, 6 * DAY), arrivals="unknown", route="equal", **own)
    assert it.rule == str(best.rule) == team.book.rule
    own |= {"optimum_windows": 0, "arrivals": "unknown"}
    entry = players(it.run)[0]
    played = replay(
        days(12),
        {it.rule: it.rule, "local/equal": "local/equal", "team": entry},
        rows=(6 * DAY, 12 * DAY),
        **own,
    )
    costs = {label: sums.cost for label, sums in played.sums.items()}
    assert it.saving.requests == pytest.approx((costs[it.rule] - costs["team"]).mean())
    assert it.saving.low is not None
    assert it.beside_today is not None
    today = (costs["local/equal"] - costs["team"]).mean()
    assert it.beside_today.requests == pytest.approx(today)
    steps = int(it.run.progress.env_steps.max())
    assert (it.training.env_steps, it.training.updates) == (steps, len(it.run.progress))


def test_each_part_shows_its_progress_from_its_start_to_its_end(team: Advice) -> None:
    for part in ("rehearsal", "training, env steps"):
        first, *_, last = (told for told in PARTS if told[0] == part)
        assert first[1] == 0
        assert last[1] == last[2]
    steps = int(team.team.run.progress.env_steps.max()) if team.team else 0
    assert ("training, env steps", steps, steps) in PARTS


def test_a_short_training_is_not_held_against_a_team(team: Advice) -> None:
    assert team.team is not None
    assert team.team.training.updates < FEWEST_UPDATES
    assert team.decision is not None
    assert team.decision.answer in ("worth it", "not trained enough")
    told = team.to_json()["team"]
    assert told["training"]["updates"] == team.team.training.updates
    assert (told["too_short"], told["leans"]) == (team.decision.reason, team.decision.leans)


@pytest.mark.slow
def test_training_says_nothing_for_researchers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    told: list[str] = []
    corral.advise(days(12), out=tmp_path, **GAME, **FEW, begins=told.append)
    shown(told[0], "448 env steps")
    shown(told[2], "448 env steps")
    assert len(told) == 4
    said = capsys.readouterr().err
    for words in ("Kind of game", "critic", "preset", "are planned"):
        assert words not in said


def test_it_ends_in_an_answer_that_names_the_run(team: Advice) -> None:
    assert team.decision is not None
    assert team.decision.answer in team.verdict[-1]
    kept = json.loads((team.folder / "advice.json").read_text())
    assert kept["answer"] == team.decision.answer
    assert kept["plan"] == ("team" if team.decision.answer == "worth it" else "rule")
    assert (kept["verdict"][0] == TEAM_RUNS) == (kept["run"] == "team")
    assert corral.load_run(kept["team"]["checkpoint"]).policies
    assert kept["team"]["folder"] == str(team.folder / "team")
    results = (team.folder / "results.csv").read_text().splitlines()
    assert [line for line in results if line.startswith("team,greedy")]


def test_an_advice_goes_on_where_it_was(team: Advice) -> None:
    """As it does after a kill: the team is not trained again."""
    config = (team.folder / "team" / "config.json").read_bytes()
    again = corral.advise(days(12), out=team.folder, **GAME, **REHEARSED)
    assert again.verdict == team.verdict
    assert (team.folder / "team" / "config.json").read_bytes() == config


@pytest.mark.parametrize(
    ("trace", "game", "values"),
    [
        (days(13), GAME, ("load",)),
        (days(12), {**GAME, "queue": 6}, ("queue",)),
    ],
)
def test_a_team_of_another_game_is_not_gone_on_with(
    team: Advice, trace: Trace, game: dict[str, Any], values: tuple[str, ...]
) -> None:
    kept = (team.folder / "advice.json").read_bytes()
    with refused(ValueError, team.folder / "team", *values):
        corral.advise(trace, out=team.folder, **game, **FEW)
    assert (team.folder / "advice.json").read_bytes() == kept


def test_the_rules_are_kept_before_the_team_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("corral.loads.advise.driver.trained", stopped)
    with pytest.raises(KeyboardInterrupt):
        corral.advise(days(12), out=tmp_path, **GAME, **FEW)
    kept = json.loads((tmp_path / "advice.json").read_text())
    assert kept["no_team"] == kept["verdict"][-1] != ""
    assert kept["run"] == "rule"
    assert kept["rule"]["rule"]


@pytest.mark.parametrize(
    ("count", "held", "validated"), [(4, 1, 1), (8, 2, 2), (12, 6, 2), (14, 6, 2), (30, 9, None)]
)
def test_how_days_are_divided(count: int, held: int, validated: int | None) -> None:
    found = divide(count * DAY, DAY)
    assert found is not None
    assert found.held_out == ((count - held) * DAY, count * DAY)
    own = None if found.validation is None else found.validation[1] - found.validation[0]
    assert own == (None if validated is None else validated * DAY)
    assert divide(3 * DAY, DAY) is None


def test_the_first_line_the_file_and_what_is_served_name_the_same(team: Advice) -> None:
    """Whatever the answer: a team that is worth it runs, with what it saves on its own days."""
    assert team.team is not None
    alone = dataclasses.replace(team, rehearsed=None)
    worth_it = dataclasses.replace(alone, decision=Decision("worth it"))
    assert (worth_it.run, worth_it.to_json()["run"]) == ("team", "team")
    assert alone.run == "rule" or team.decision == Decision("worth it")


def test_a_team_is_rehearsed_with_its_rule(team: Advice) -> None:
    assert team.team is not None
    assert team.rehearsed is not None
    it = team.rehearsed.played
    assert it.promised["team"] == pytest.approx(team.team.replay.sums["team"].cost)
    assert {team.team.rule, team.chosen.rule, "team", "local/equal"} == {*it.promised}
    assert team.rehearsed.team == it.savings(team.team.rule, "team")
    told = team.to_json()["team"]
    assert told["rehearsed"]["exponential"]["share"] == team.rehearsed.team[1].share
    assert team.rehearsed.plan == ("team" if team.plan == "team" else team.chosen.rule)


# --- Loads of which little can be said -----------------------------------------------------------


def test_of_one_day_rules_are_compared_on_that_day(tmp_path: Path) -> None:
    it = corral.advise(days(1), out=tmp_path, **GAME, rehearse=False)
    assert it.chosen.rule == min(it.book.costs, key=lambda k: it.book.costs[k].sum())
    assert it.book.fitted_on == (0, DAY)
    shown(it.no_team, "1 day")
    assert it.chosen.beside_local is not None
    assert it.chosen.beside_local.low is None
    assert it.to_json()["rule"]["days"] == {}
    assert it.table().row_count == len(it.replay.sums)


def test_three_days_have_rules_and_no_team(tmp_path: Path) -> None:
    it = corral.advise(days(3), out=tmp_path, **GAME, rehearse=False)
    shown(it.no_team, "3 days")
    assert any(line.startswith("No intervals: 3 windows") for line in it.notes)


def test_one_node_has_nothing_to_choose(tmp_path: Path) -> None:
    it = corral.advise(days(8, nodes=1), out=tmp_path, rehearse=False)
    assert (it.chosen.rule, it.run, it.decision) == ("local/equal", "rule", None)
    shown(it.no_team, "node")
    assert (it.what_ifs, it.pseudo_code) == ([], ())


def test_a_constant_load_tells_nothing_of_other_days(tmp_path: Path) -> None:
    load = days(8)
    same = dataclasses.replace(load, arrivals=np.tile([20, 5, 3], (8 * DAY, 1)))
    it = corral.advise(same, out=tmp_path, route="equal", rehearse=False)
    assert it.chosen.beside_today is not None
    assert it.chosen.beside_today.constant
    shown(it.no_team, "load", "capacity", "steps")
    assert not (tmp_path / "team").exists()


def test_without_capacity_it_says_what_to_give(tmp_path: Path) -> None:
    load = dataclasses.replace(days(8), capacity=None)
    with refused(TraceError, "made", "capacity=", "'1.25x'"):
        corral.advise(load, out=tmp_path, rehearse=False)
    assert not any(tmp_path.iterdir())
    assert of_rules(tmp_path, load, capacity="1.25x").chosen.rule


def test_where_not_even_the_optimum_is_worth_it_nothing_is_trained(tmp_path: Path) -> None:
    it = corral.advise(
        days(8), out=tmp_path, route="equal", rehearse=False
    )  # no costs: overflow is the optimum
    assert it.bound is not None
    assert (it.bound.enough, it.bound.share, it.bound.windows) == (False, 0.0, 8)
    assert (it.run, it.to_json()["answer"]) == ("rule", "not worth it")
    assert not (tmp_path / "team").exists()


@pytest.mark.slow
def test_a_team_that_cannot_win_is_trained_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("corral.loads.advise.driver.trained", stopped)
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        corral.advise(
            days(8), out=tmp_path, route="equal", steps=448, rehearse=False, begins=told.append
        )
    assert any("worth" in each and "optimum" in each for each in told)
    assert json.loads((tmp_path / "advice.json").read_text())["bound"]["enough"] is False


@pytest.mark.slow
def test_the_optimum_decides_before_the_length_of_a_training(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    told: list[str] = []
    it = corral.advise(days(8), out=tmp_path, route="equal", **FEW, begins=told.append)
    assert it.team is not None
    assert it.team.training.updates < FEWEST_UPDATES
    assert (it.bound and it.bound.enough, it.run) == (False, "rule")
    assert it.to_json()["answer"] == "not worth it"
    shown(it.verdict[-1], "optimum")
    shown(told[0], "12")  # days that are needed to judge a team


def test_the_optimum_is_looked_up_until_it_is_enough() -> None:
    pytest.importorskip("scipy", reason="the optimum of queues is a linear program")
    own = {key: value for key, value in GAME.items() if key != "route"}
    base = replay(days(20), ["local/equal"], optimum_windows=0, **own)
    cost, load = base.sums["local/equal"].cost, base.sums["local/equal"].arrivals

    def nothing(what: str, done: int, total: int) -> None: ...

    early = bound_of(base, cost, 0.001, nothing)
    assert early is not None
    assert (early.enough, early.windows) == (True, 1)
    assert early.share > 0.001
    late = bound_of(base, cost, 1.0, nothing)
    assert late is not None
    assert (late.enough, late.windows) == (False, MOST)
    assert late.share < cost.sum() / load.sum()


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"worth": -1}, ("worth=-1", "%", "0")),
        ({"worth": float("nan")}, ("worth=nan", "%", "0")),
        ({"route": "best"}, ("route", "'best'", "'least'")),
        ({"queue": -1}, ("queue=-1",)),
        ({"arrivals": "guessed"}, ("arrivals='guessed'", "'known', 'unknown'")),
        ({"today": "best"}, ("today", "'best'", "'least'")),
    ],
)
def test_what_it_does_not_take(
    given: dict[str, Any], values: tuple[str, ...], tmp_path: Path
) -> None:
    with refused((ValueError, CorralError), *values):
        of_rules(tmp_path / "new", days(6), **given)
    assert not (tmp_path / "new").exists()


def test_an_advice_is_not_replaced_unasked(rules: Advice) -> None:
    with refused(ValueError, rules.folder / "advice.json", "out=", "overwrite=True"):
        of_rules(rules.folder, days(8), **GAME)
    assert of_rules(rules.folder, days(8), overwrite=True, **GAME).verdict == rules.verdict


def test_a_route_leaves_only_the_rules_with_it(tmp_path: Path) -> None:
    it = of_rules(tmp_path, days(6), **{**GAME, "route": "least"})
    assert {label.partition("/")[2] for label in it.book.costs} <= {"least", "equal"}
    assert [label for label in it.book.costs if label.endswith("/equal")] == ["local/equal"]
