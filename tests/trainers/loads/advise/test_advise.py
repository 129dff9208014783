"""corral.advise: from a load to an answer, and what is left behind."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.data import Trace
from corral.envs.dfaas_v0.baselines import meaning
from corral.errors import CorralError, TraceError
from corral.trainers.loads.advise.advice import Advice
from corral.trainers.loads.advise.team import divide
from corral.trainers.loads.replay import replay
from support.loads import DAY, days

DOCS = Path(__file__).parents[4] / "docs" / "advise.md"
GAME: dict[str, Any] = {"queue": 5, "wait_cost": 0.02, "forward_cost": 0.1, "route": "equal"}
"""One route leaves few rules, so that tests are quick."""
FEW: dict[str, Any] = {
    "steps": 448,
    "training": {
        **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "n_minibatches": 1, "net_arch": (16,)}
    },
    "progress": False,
}


def of_rules(out: Path, trace: Trace, **given: Any) -> Advice:
    return corral.advise(trace, train=False, out=out, **given)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    return of_rules(tmp_path_factory.mktemp("advice"), days(8), **GAME)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    pytest.importorskip("torch", reason="needs the extra mappo")
    return corral.advise(days(12), out=tmp_path_factory.mktemp("advice"), **GAME, **FEW)


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


def test_the_verdict_stands_first_in_the_report_and_in_advice_json(rules: Advice) -> None:
    kept = json.loads((rules.folder / "advice.json").read_text())
    assert kept["verdict"] == list(rules.verdict)
    assert kept["verdict"][0].startswith(f"Run {rules.chosen.rule}: it costs as much as losing ")
    assert (kept["run"], kept["answer"], kept["team"]) == ("rule", None, None)
    assert kept["verdict"][1] == kept["no_team"] == "No learned team was asked for."
    page = (rules.folder / "report.html").read_text()
    said = kept["verdict"][0].partition(" (95")[0]
    assert page.index(said) < page.index("<table")
    assert f"<h1>Advice for {rules.replay.trace.name}</h1>" in page
    assert rules.lines()[-2:] == list(rules.verdict)
    assert "Cost, in lost requests: lost + 0.1 x forwarded + 0.02 x waiting." in rules.notes


def test_what_was_not_considered_is_said(rules: Advice) -> None:
    assert any("before it chooses" in line for line in rules.not_considered)
    assert set(rules.not_considered) < set(rules.lines())


def test_the_rule_is_explained_in_plain_words(rules: Advice, tmp_path: Path) -> None:
    rule = rules.chosen.rule
    assert rules.to_json()["meaning"] == meaning(rule)
    assert rules.notes[0] == f"{rule}: {meaning(rule)}."
    assert f"{meaning(rule)}." in (rules.folder / "report.html").read_text()
    offered = "A request that is refused is offered to the others once more"
    assert any(line.startswith(offered) for line in rules.not_considered)
    without = of_rules(tmp_path, days(4), **GAME, second_offer=False)
    assert not any(line.startswith(offered) for line in without.not_considered)


def test_every_key_of_advice_json_is_documented(team: Advice) -> None:
    documented = set(re.findall(r"^\| `(\w+)`", DOCS.read_text(), flags=re.MULTILINE))
    assert set(team.to_json()) <= documented


def test_the_costliest_day_is_explained(rules: Advice) -> None:
    mortem = rules.more["post_mortem"]
    costs = rules.replay.sums[rules.chosen.rule].cost
    assert mortem.day == costs.argmax()
    assert rules.to_json()["post_mortem"]["policy"] == rules.chosen.rule


def test_it_says_beforehand_what_it_does(tmp_path: Path) -> None:
    told: list[str] = []
    advice = of_rules(tmp_path, days(4), **GAME, begins=told.append)
    assert told == [
        f"{len(advice.replay.sums)} rules play 4 days and 4 what-ifs",
        f"the best rule is {advice.chosen.rule}: what if the days were others?",
    ]


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
    before = replay(days(12), [it.rule, "local/equal"], rows=(0, 6 * DAY), **GAME)
    assert before.sums[it.rule].cost.sum() <= before.sums["local/equal"].cost.sum()
    own: dict[str, Any] = {**GAME, "optimum_windows": 0}
    played = replay(
        days(12),
        {it.rule: it.rule, "team": it.run.policies},
        rows=(6 * DAY, 12 * DAY),
        **own,
    )
    costs = {label: sums.cost for label, sums in played.sums.items()}
    assert it.saving.requests == pytest.approx((costs[it.rule] - costs["team"]).mean())
    assert it.saving.low is not None
    steps = int(it.run.progress.env_steps.max())
    assert any(line.startswith(f"It was trained for {steps:,} env steps.") for line in team.notes)


def test_training_says_nothing_for_researchers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    told: list[str] = []
    corral.advise(days(12), out=tmp_path, **GAME, **FEW, begins=told.append)
    assert "7 rules play 12 days and 4 what-ifs; then a team trains for 448 env steps" in told
    assert told[2:] == [
        "a team trains for 448 env steps",
        "the team is judged on the days held out, and looked into",
    ]
    said = capsys.readouterr().err
    for words in ("Kind of game", "critic", "preset", "are planned"):
        assert words not in said


def test_it_ends_in_an_answer_that_names_the_run(team: Advice) -> None:
    assert team.decision is not None
    assert team.verdict[1].startswith("A learned team ")
    assert team.decision.answer in team.verdict[1]
    kept = json.loads((team.folder / "advice.json").read_text())
    assert kept["answer"] == team.decision.answer
    assert kept["run"] == ("team" if team.decision.answer == "worth it" else "rule")
    assert corral.load_run(kept["team"]["checkpoint"]).policies
    assert kept["team"]["folder"] == str(team.folder / "team")
    assert (team.folder / "rules" / "report.html").is_file()
    results = (team.folder / "results.csv").read_text().splitlines()
    assert [line for line in results if line.startswith("team,greedy")]


def test_it_says_what_puts_the_verdict_to_work(team: Advice, rules: Advice) -> None:
    for advice in (team, rules):
        assert advice.files()[-1] == f"Put it to work: corral serve {advice.folder}"


def test_an_advice_goes_on_where_it_was(team: Advice) -> None:
    """As it does after a kill: the team is not trained again."""
    config = (team.folder / "team" / "config.json").read_bytes()
    again = corral.advise(days(12), out=team.folder, **GAME, **FEW)
    assert again.verdict == team.verdict
    assert (team.folder / "team" / "config.json").read_bytes() == config


@pytest.mark.parametrize(
    ("trace", "game", "message"),
    [
        (days(13), GAME, "holds a team for another load"),
        (days(12), {**GAME, "queue": 6}, "holds a team for another queue"),
    ],
)
def test_a_team_of_another_game_is_not_gone_on_with(
    team: Advice, trace: Trace, game: dict[str, Any], message: str
) -> None:
    kept = (team.folder / "advice.json").read_bytes()
    with pytest.raises(ValueError, match=message):
        corral.advise(trace, out=team.folder, **game, **FEW)
    assert (team.folder / "advice.json").read_bytes() == kept


def test_the_rules_are_kept_before_the_team_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("corral.trainers.loads.advise.driver.trained", stopped)
    with pytest.raises(KeyboardInterrupt):
        corral.advise(days(12), out=tmp_path, **GAME, **FEW)
    kept = json.loads((tmp_path / "advice.json").read_text())
    assert "in training" in kept["no_team"]
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


# --- Loads of which little can be said -----------------------------------------------------------


def test_of_one_day_rules_are_compared_on_that_day(tmp_path: Path) -> None:
    it = corral.advise(days(1), out=tmp_path, **GAME)
    assert it.chosen.rule == min(it.replay.sums, key=lambda k: it.replay.sums[k].cost.sum())
    assert "may look better than it is" in it.notes[1]
    assert "1 day cannot be divided" in it.verdict[1]
    assert "95 %" not in it.verdict[0]
    assert it.to_json()["rule"]["days"] == {}


def test_three_days_have_rules_and_no_team(tmp_path: Path) -> None:
    it = corral.advise(days(3), out=tmp_path, **GAME)
    assert "3 days cannot be divided into days to learn from" in it.verdict[1]
    assert any(line.startswith("No intervals: 3 windows") for line in it.notes)


def test_one_node_has_nothing_to_choose(tmp_path: Path) -> None:
    it = corral.advise(days(8, nodes=1), out=tmp_path)
    assert it.verdict[0].startswith("Serve locally: that loses ")
    assert it.verdict[1] == (
        "No rule and no learned team can make a difference (one node: there is nobody to forward "
        "to)."
    )
    assert it.what_ifs == []


def test_a_constant_load_tells_nothing_of_other_days(tmp_path: Path) -> None:
    load = days(8)
    same = dataclasses.replace(load, arrivals=np.tile([20, 5, 3], (8 * DAY, 1)))
    it = corral.advise(same, out=tmp_path, route="equal")
    assert "(the same every day)" in it.verdict[0]
    assert "the same in every step" in it.verdict[1]
    assert "Every day is alike: no interval tells of other days." in it.notes


def test_without_capacity_it_says_what_to_give(tmp_path: Path) -> None:
    load = dataclasses.replace(days(8), capacity=None)
    with pytest.raises(TraceError, match="pass capacity="):
        corral.advise(load, out=tmp_path)
    assert not any(tmp_path.iterdir())
    assert of_rules(tmp_path, load, capacity="1.25x").chosen.rule


def test_where_not_even_the_optimum_is_worth_it_nothing_is_trained(tmp_path: Path) -> None:
    it = corral.advise(days(8), out=tmp_path, route="equal")  # no costs: overflow is the optimum
    assert it.chosen.rule == "overflow/equal"
    assert it.verdict[1] == (
        "A learned team is not worth it: not even the optimum, which knows the future, would save "
        "a request."
    )
    assert (it.run, it.to_json()["answer"]) == ("rule", "not worth it")
    assert not (tmp_path / "team").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"worth": -1}, "worth=-1"),
        ({"worth": float("nan")}, "worth=nan"),
        ({"route": "best"}, "route"),
        ({"queue": -1}, "queue"),
    ],
)
def test_what_it_does_not_take(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, CorralError), match=message):
        of_rules(tmp_path, days(6), **given)


def test_an_advice_is_not_replaced_unasked(rules: Advice) -> None:
    with pytest.raises(ValueError, match="exists: give another out="):
        of_rules(rules.folder, days(8), **GAME)
    assert of_rules(rules.folder, days(8), overwrite=True, **GAME).verdict == rules.verdict


def test_a_route_leaves_only_the_rules_with_it(tmp_path: Path) -> None:
    it = of_rules(tmp_path, days(6), **{**GAME, "route": "two"})
    assert {label.partition("/")[2] for label in it.replay.sums} == {"two"}
    assert it.chosen.beside_local is None
    assert "serving locally" not in it.verdict[0]
