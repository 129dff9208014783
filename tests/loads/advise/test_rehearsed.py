"""The rehearsal of an advice: constructed costs for every answer, and a small load."""

from __future__ import annotations

import dataclasses
import html
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import corral
from corral.data import Trace
from corral.envs.core import Array
from corral.loads.advise.advice import Advice
from corral.loads.advise.question import Question
from corral.loads.advise.rehearsed import (
    BALANCERS,
    COMPILED_REQUESTS,
    DEPENDS,
    HOLDS,
    LARGEST_PLAIN_DAY,
    PERIODS,
    PLAIN_REQUESTS,
    WORTH_COMPILING,
    Costs,
    Played,
    Rehearsed,
    Stage,
    confirmed,
    rehearsed,
    stage_of,
)
from corral.loads.advise.screen import screen_of
from corral.loads.advise.sentences import balancer_sentences, rehearsal_sentences, team_sentences
from corral.loads.advise.team import divide
from corral.loads.advise.verdict import Decision, Worth
from corral.loads.rehearsal import rehearse
from corral.trainers.evaluation.intervals import difference_interval
from support.loads import DAY, days
from support.messages import shown

LOCAL, RULE = "local/equal", "backlog=0.75/least"
WORTH = 0.001
NOISE = np.array([1.0, -2, 3, -1, 2, -3, 1, -1])
"""Differences between days, with the sum 0."""


def costs(mean: float, scale: float = 1.0, days: int = 8) -> Costs:
    """Costs of the given mean; days differ by about three times ``scale``."""
    values = mean + scale * (NOISE[:days] - NOISE[:days].mean())
    return Costs(values, values)


def played(
    promised: dict[str, float],
    equal: dict[str, float],
    exponential: dict[str, float] | None = None,
    days: int = 8,
) -> Played:
    """Costs of policies in ``days`` days with 1,000 requests each. Balancers without costs are
    expensive."""
    equal = {**dict.fromkeys(BALANCERS, 900.0), **equal}
    costs_of = {name: costs(mean, 1 + k % 3, days) for k, (name, mean) in enumerate(equal.items())}
    changed = {**equal, **(exponential or {})}
    return Played(
        requests=np.full(days, 1000),
        promised={name: costs(mean, 0, days).cost for name, mean in promised.items()},
        parts={name: parts(mean, costs_of[name].cost) for name, mean in promised.items()},
        deterministic=costs_of,
        exponential={
            name: costs(mean, 1 + k % 3, days) for k, (name, mean) in enumerate(changed.items())
        },
        windows=tuple(range(days)),
        whole=days,
        step=300.0,
    )


def parts(promised: float, cost: Array) -> dict[str, Array]:
    competition = np.full(len(cost), -5.4)
    return {
        "times": cost - promised - competition,
        "competition": competition,
        "latency": np.zeros(len(cost)),
    }


def never(balancer: str, period: float) -> tuple[Costs, Costs]:
    raise AssertionError(f"{balancer} was rehearsed again")


def judged(it: Played, plan: str = RULE, again: Any = never) -> Rehearsed:
    return rehearsed(it, plan=plan, today=LOCAL, worth=WORTH, again=again)


# --- The promise ---------------------------------------------------------------------------------


def test_a_saving_holds_if_all_signs_agree() -> None:
    it = judged(played({LOCAL: 300, RULE: 200}, {LOCAL: 320, RULE: 250}))
    assert it.promise is not None
    assert it.promise.answer == HOLDS
    assert it.promise.promised.requests == pytest.approx(100)
    assert it.promise.deterministic.requests == pytest.approx(70)
    text = shown(rehearsal_sentences(it, costs=True), 200, 250, "+55", "-5", HOLDS, 100, 70)
    assert "8 held-out days" in text


@pytest.mark.parametrize(
    ("equal", "exponential"), [(350.0, 250.0), (250.0, 350.0), (350.0, 350.0), (320.0, 250.0)]
)
def test_a_saving_with_two_signs_depends_on_the_servers(equal: float, exponential: float) -> None:
    it = judged(
        played({LOCAL: 300, RULE: 200}, {LOCAL: 320, RULE: equal}, {RULE: exponential}),
    )
    assert it.promise is not None
    assert it.promise.answer == DEPENDS
    numbers = [f"{320 - cost:.0f}" for cost in (equal, exponential)]
    shown(rehearsal_sentences(it, costs=True), DEPENDS, 100, *numbers)
    assert it.to_json()["promise"]["answer"] == DEPENDS


def test_the_rule_of_today_has_no_saving() -> None:
    it = judged(played({LOCAL: 300}, {LOCAL: 320}), plan=LOCAL)
    assert it.promise is None
    text = shown(rehearsal_sentences(it, costs=False), 300, 320)
    assert HOLDS not in text


@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0, 17.7])
def test_stated_parts_add_up(scale: float) -> None:
    it = judged(played({RULE: 20.26 * scale, LOCAL: 1}, {RULE: 31.37 * scale, LOCAL: 1}))
    text = rehearsal_sentences(it, costs=True).partition(" Its saving")[0]
    words = text.replace(";", " ").replace(",", "").replace("stands", "").split()
    numbers = [float(word.rstrip(".")) for word in words if word[0] in "+-0123456789"]
    cost, promise, *differences = numbers[1:]  # the first one is the number of days
    assert len(differences) == 3
    assert cost - promise == pytest.approx(sum(differences))


# --- A team --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equal", "exponential", "days", "answer"),
    [
        (240.0, 240.0, 8, "worth it"),
        (260.0, 240.0, 8, "not worth it"),
        (240.0, 260.0, 8, "not worth it"),
        (249.9, 240.0, 8, "not worth it"),  # the interval contains 0
        (249.9, 240.0, 4, "worth it"),  # no interval: the mean counts
    ],
)
def test_a_rehearsal_may_refuse_a_team(
    equal: float, exponential: float, days: int, answer: str
) -> None:
    it = played(
        {LOCAL: 300, RULE: 200, "team": 180},
        {LOCAL: 320, RULE: 250, "team": equal},
        {"team": exponential},
        days=days,
    )
    savings = it.savings(RULE, "team")
    decision = confirmed(Decision("worth it"), savings)
    assert decision.answer == answer
    assert decision.reason == (None if answer == "worth it" else "rehearsal")
    few = Decision("too few days", 3, "team")
    assert confirmed(few, savings) == few
    if decision.reason is not None:
        least = Worth(0.1, "least")
        text = team_sentences(
            savings[1], decision, least, RULE, None, costs=True, rehearsal=savings
        )
        shown(text, f"{savings[0].requests:.2g}", "not worth it", "95 %")


# --- A balancer ----------------------------------------------------------------------------------


def test_a_cheaper_balancer_is_recommended() -> None:
    it = judged(played({LOCAL: 300, RULE: 200}, {LOCAL: 320, RULE: 250, "choices=2": 200}))
    assert it.better is not None
    assert (it.better.name, it.better.period) == ("choices=2", None)
    assert it.better.deterministic.requests == pytest.approx(50)
    assert it.better.over_today[0].requests == pytest.approx(120)
    run, saves, needs = balancer_sentences(it.better, it, costs=True)
    shown(run, "choices=2")
    shown(saves, RULE, 50, 120)
    assert it.better.balancer.needs in needs


@pytest.mark.parametrize(
    ("equal", "exponential", "days"),
    [
        (249.5, 200.0, 8),  # below ``worth``
        (200.0, 260.0, 8),  # in one rehearsal only
        (247.6, 200.0, 8),  # the interval contains 0
        (260.0, 260.0, 4),
    ],
)
def test_a_balancer_must_save_enough_in_both_rehearsals(
    equal: float, exponential: float, days: int
) -> None:
    it = played(
        {LOCAL: 300, RULE: 200},
        {LOCAL: 320, RULE: 250, "round-robin": equal},
        {"round-robin": exponential},
        days=days,
    )
    if equal == 247.6:
        noise = Costs(247.6 + 4 * NOISE, NOISE)
        it = dataclasses.replace(it, deterministic={**it.deterministic, "round-robin": noise})
        assert it.savings(RULE, "round-robin")[0].share > WORTH
    assert judged(it).better is None


def test_reports_may_be_as_old_as_the_saving_lasts() -> None:
    base = played({LOCAL: 300, RULE: 200}, {LOCAL: 320, RULE: 250, "room": 150, "choices=2": 240})
    asked: list[float] = []

    def again(balancer: str, period: float) -> tuple[Costs, Costs]:
        assert balancer == "room"
        asked.append(period)
        mean = 150.0 if period < 0.2 else 255.0
        return costs(mean), costs(mean)

    it = judged(base, again=again)
    assert it.better is not None
    assert (it.better.name, it.better.period) == ("room", PERIODS[2])
    assert asked == [*PERIODS[:4]]  # up to the first that is too long
    assert [fresh.beats(WORTH) for fresh in it.better.fresh] == [True, True, True, False]
    needs = balancer_sentences(it.better, it, costs=True)[2]
    shown(needs, "30 s", "100 s")
    told = it.better.to_json()
    assert [entry["period"] for entry in told["periods"]] == asked
    assert told["report_period"] == PERIODS[2]


def test_a_balancer_that_needs_the_state_of_the_moment_is_not_recommended() -> None:
    base = played({LOCAL: 300, RULE: 200}, {LOCAL: 320, RULE: 250, "room": 150, "choices=2": 240})
    it = judged(base, again=lambda balancer, period: (costs(255.0), costs(255.0)))
    assert it.better is not None
    assert (it.better.name, [*it.stale]) == ("choices=2", ["room"])
    shown(" ".join(it.notes()), "room", "1 s")


@pytest.mark.parametrize("name", ["room", "shortest-queue"])
def test_a_note_about_the_time_left_is_for_balancers_that_use_it(name: str) -> None:
    base = played({LOCAL: 300, RULE: 200}, {LOCAL: 320, RULE: 250, name: 150})
    it = judged(base, again=lambda balancer, period: (costs(155.0), costs(155.0)))
    assert it.better is not None
    assert it.better.name == name
    assert any("left" in note.split() for note in it.notes()) == (name == "room")


# --- A load --------------------------------------------------------------------------------------

GAME: dict[str, Any] = {"queue": 5, "forward_cost": 0.1}
HELD_OUT = (6 * DAY, 12 * DAY)


def busy(count: int) -> Trace:
    """Days of which a node has far more requests than it can serve."""
    load = days(count)
    arrivals = load.arrivals.copy()
    arrivals[:, 0] *= 2
    return dataclasses.replace(load, arrivals=arrivals)


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    return corral.advise(
        busy(12), train=False, route="equal", out=tmp_path_factory.mktemp("advice"), **GAME
    )


def test_the_held_out_days_are_rehearsed_as_corral_rehearse_does(advice: Advice) -> None:
    assert advice.rehearsed is not None
    it = advice.rehearsed.played
    assert (it.windows, it.whole, it.held_out) == (tuple(range(6)), 6, True)
    assert it.requests.sum() == busy(12).arrivals[slice(*HELD_OUT)].sum()
    rule = advice.chosen.rule
    assert {*it.deterministic} == {LOCAL, rule, *BALANCERS}
    for work, sums in (("deterministic", it.deterministic), ("exponential", it.exponential)):
        own = rehearse(busy(12), [rule, "room"], rows=HELD_OUT, work=work, **GAME)
        for policy in (rule, "room"):
            assert sums[policy].cost.tolist() == own.costs[policy].tolist()
            assert sums[policy].lost.tolist() == own.sums[policy].counts["lost"].tolist()
    for policy in (LOCAL, rule):
        difference = it.deterministic[policy].cost - it.promised[policy]
        assert sum(it.parts[policy].values()) == pytest.approx(difference)
        promised = advice.replay.sums[policy].cost[6:]
        assert it.promised[policy] == pytest.approx(promised)


def test_a_saving_is_paired_by_day(advice: Advice) -> None:
    assert advice.rehearsed is not None
    it = advice.rehearsed.played
    saving = it.savings(LOCAL, "room")[1]
    less = it.exponential[LOCAL].cost - it.exponential["room"].cost
    assert saving.requests == pytest.approx(less.mean())
    assert (saving.low, saving.high) == difference_interval(less, it.requests, season=7)
    assert saving.arrivals == pytest.approx(it.requests.mean())


def test_the_first_line_run_and_the_file_name_the_balancer(advice: Advice) -> None:
    assert advice.rehearsed is not None
    better = advice.rehearsed.better
    assert better is not None
    kept = json.loads((advice.folder / "advice.json").read_text())
    assert (advice.run, kept["run"], kept["plan"]) == ("balancer", "balancer", "rule")
    assert kept["balancer"]["name"] == better.name
    shown(advice.verdict[0], better.name)
    assert better.balancer.meaning in advice.verdict[0]
    assert advice.chosen.rule in advice.verdict[3]
    assert advice.pseudo_code
    assert "gateway" in advice.verdict[advice.code_after]
    policies = kept["rehearsal"]["policies"]
    assert policies["room"]["promised"] is None
    rule = policies[advice.chosen.rule]
    assert rule["deterministic"] == pytest.approx(rule["promised"] + sum(rule["parts"].values()))
    roles = {row.policy: row.role for row in screen_of(advice).rows}
    assert (roles[better.name], roles[advice.chosen.rule]) == ("advised", "second choice")


def test_promise_and_rehearsal_stand_side_by_side(advice: Advice) -> None:
    assert advice.rehearsed is not None
    it, rule = advice.rehearsed, advice.chosen.rule
    table = advice.table()
    assert Console(width=1000).measure(table).maximum <= 80
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table)
    lines = console.export_text().partition("held-out")[2].splitlines()
    row = next(line.split() for line in lines if line.split()[:1] == [rule])
    cost = it.cost(rule)
    assert cost is not None
    assert (row[1], row[-1]) == (
        f"{it.played.daily(it.played.promised[rule]):,.0f}",
        f"{cost:,.0f}",
    )
    page = (advice.folder / "report.html").read_text()
    for line in it.lines():
        assert html.escape(line) in page
    assert len(it.lines()) == 3 + len(it.played.deterministic)


def test_long_names_leave_room_for_interval_and_rehearsal(advice: Advice) -> None:
    long, label = "capacity=0.975/all-to-shortest", advice.chosen.rule
    scores = [
        dataclasses.replace(score, policy=long) if score.policy == label else score
        for score in advice.replay.scores
    ]
    wide = dataclasses.replace(advice, replay=dataclasses.replace(advice.replay, scores=scores))
    table = wide.table()
    assert Console(width=1000).measure(table).maximum <= 80
    headings = [str(column.header) for column in table.columns]
    assert any("interval" in heading for heading in headings)
    assert "rehearsed" in headings[-1]


def test_an_advice_without_a_rehearsal_says_so(tmp_path: Path) -> None:
    it = corral.advise(busy(4), train=False, rehearse=False, route="equal", out=tmp_path, **GAME)
    assert it.rehearsed is None
    assert it.run == "rule"
    kept = it.to_json()
    assert (kept["rehearsal"], kept["balancer"]) == (None, None)
    assert kept["no_rehearsal"] in it.notes
    assert kept["no_rehearsal"] != ""


def test_without_a_division_the_last_days_are_rehearsed(tmp_path: Path) -> None:
    it = corral.advise(busy(3), train=False, route="equal", out=tmp_path, **GAME)
    assert it.rehearsed is not None
    played = it.rehearsed.played
    assert (played.held_out, len(played.windows)) == (False, 1)
    assert played.requests.tolist() == [busy(3).arrivals[2 * DAY :].sum()]
    assert it.rehearsed.played.savings(LOCAL, it.chosen.rule)[0].low is None


def test_one_day_has_a_table_with_the_rehearsal(tmp_path: Path) -> None:
    it = corral.advise(busy(1), train=False, route="equal", out=tmp_path, **GAME)
    assert it.rehearsed is not None
    table = it.table()
    assert table.row_count == len(it.replay.sums) + 1 + len(it.rehearsed.played.deterministic)
    assert len(table.columns) == 5


# --- The windows ---------------------------------------------------------------------------------


def stage(load: Trace, numba: bool = False, **given: Any) -> Stage | str:
    fields: dict[str, Any] = {"arrivals": "unknown", "today": LOCAL, "window": None, "seed": 0}
    question = Question(load, **{**fields, "worth": None, "late": False, "settings": {}, **given})
    return stage_of(question, divide(len(load), question.steps), silent, numba=numba)


def silent(part: str, done: int, total: int) -> None: ...


def larger(factor: int, count: int = 20) -> Trace:
    load = days(count)
    return dataclasses.replace(load, arrivals=factor * load.arrivals)


def test_days_are_drawn_so_that_their_requests_stay_in_the_budget() -> None:
    for factor, numba in ((1, False), (60, False), (60, True), (1200, True)):
        load = larger(factor)
        it = stage(load, numba)
        assert isinstance(it, Stage)
        requests = load.arrivals[slice(*it.rows)].sum(axis=1).reshape(-1, DAY).sum(axis=1)
        budget = COMPILED_REQUESTS if numba else PLAIN_REQUESTS
        largest = np.sort(requests)[::-1].cumsum()
        assert it.whole == len(requests) == 6
        assert it.windows == max(1, (largest <= budget).sum())
        assert it.compiled == (numba and requests.mean() * it.windows > WORTH_COMPILING)
    few = stage(larger(60))
    assert isinstance(few, Stage)
    assert 1 < few.windows < few.whole


def test_drawn_days_are_named_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.loads.advise.rehearsed.PLAIN_REQUESTS", 4_000)
    it = stage(busy(12), seed=3)
    assert isinstance(it, Stage)
    drawn = it.play({name: name for name in (LOCAL, *BALANCERS)})
    assert 1 <= len(drawn.windows) < drawn.whole == 6
    assert drawn.requests.sum() <= 4_000
    told = " ".join(judged(drawn, LOCAL, it.again).notes())
    shown(told, f"{len(drawn.windows)} of {drawn.whole}", f"{drawn.requests.sum():,}")


@pytest.mark.parametrize(
    ("load", "given", "values"),
    [
        (days(8), {"arrivals": "known"}, ("known",)),
        (days(8, nodes=1), {}, ("node",)),
        (days(8), {"today": "random/equal"}, ("random/equal",)),
        (larger(1000), {}, ("numba", "'corral[rehearse]'")),
    ],
)
def test_no_rehearsal_has_a_reason(
    load: Trace, given: dict[str, Any], values: tuple[str, ...]
) -> None:
    why = stage(load, **given)
    assert isinstance(why, str)
    shown(why, *values)


def test_one_large_day_needs_numba() -> None:
    load = larger(1000)
    assert load.arrivals[:DAY].sum() > LARGEST_PLAIN_DAY
    assert isinstance(stage(load, numba=True), Stage)
    assert isinstance(stage(larger(400)), Stage)
