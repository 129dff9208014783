"""corral.recheck: an advice on later days, with constructed and with played savings."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import corral
from corral.data import Trace
from corral.errors import RunError, TraceError
from corral.loads.advise.verdict import Saving
from corral.loads.recheck import Recheck
from corral.loads.recheck.result import HOLDS, LAPSED, OPEN, Check, answer_of
from corral.loads.recheck.stated import StatedSaving
from corral.loads.rehearsal import rehearse
from corral.loads.replay import replay
from corral.trainers.evaluation.intervals import difference_interval
from corral.trainers.evaluation.judge import players
from support.loads import DAY, days, small_trace
from support.messages import refused, shown

GAME: dict[str, Any] = {"queue": 5, "forward_cost": 0.1}
LOCAL = "local/equal"
FIRST = 8
"""Days of the advice; the later days follow."""


def after(count: int = 7, seed: int = 9, **changes: Any) -> Trace:
    """Days after those of the advice."""
    trace = days(count, seed=seed)
    return changed(trace, times=trace.times + FIRST * DAY * 3600, **changes)


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advice")
    corral.advise(days(FIRST), train=False, rehearse=False, out=folder, **GAME)
    return folder


@pytest.fixture(scope="module")
def result(advice: Path) -> Recheck:
    return corral.recheck(advice, after())


def kept(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "advice.json").read_text())
    return values


def edited(advice: Path, folder: Path, **changes: Any) -> Path:
    """A copy of the advice with other values; a dict is merged."""
    shutil.copytree(advice, folder, dirs_exist_ok=True)
    values = kept(advice)
    for key, value in changes.items():
        both = isinstance(values.get(key), dict) and isinstance(value, dict)
        values[key] = {**values[key], **value} if both else value
    (folder / "advice.json").write_text(json.dumps(values))
    return folder


def printed(result: Recheck) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(result.table())
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


# --- The answer ----------------------------------------------------------------------------------


def saving(mean: float, half: float | None, arrivals: float = 1000.0) -> Saving:
    """A saving in requests a day, of 1,000 arrivals."""
    ends = (None, None) if half is None else (mean - half, mean + half)
    low, high = (None if end is None else end / arrivals for end in ends)
    return Saving(mean / arrivals, low, high, 0.0, 8, arrivals, "a day")


STATED = StatedSaving(50.0, 40.0, 60.0, 8)


@pytest.mark.parametrize(
    ("mean", "half", "worth", "answer"),
    [
        (48, 10, 0.0, HOLDS),
        (20, 10, 0.0, HOLDS),  # less than stated, but a saving
        (90, 10, 0.0, HOLDS),
        (20, 10, 0.025, OPEN),  # above 0, and perhaps worth it; 30 is below 40: see below
        (5, 10, 0.0, LAPSED),  # excludes the stated interval, and not 0
        (5, 40, 0.0, OPEN),
        (-20, 10, 0.0, LAPSED),
        (10, 5, 0.02, LAPSED),  # a saving, but not worth it
        (48, None, 0.0, OPEN),
        (0, 0, 0.0, LAPSED),
    ],
)
def test_a_saving_holds_if_its_interval_is_above_0(
    mean: float, half: float | None, worth: float, answer: str
) -> None:
    if (mean, worth) == (20, 0.025):
        assert answer_of(STATED, saving(mean, half), worth) == LAPSED
        assert answer_of(None, saving(mean, half), worth) == answer
        return
    assert answer_of(STATED, saving(mean, half), worth) == answer


def test_a_check_compares_the_mean_with_the_stated_interval_in_requests() -> None:
    for mean, inside, shrunken in ((48, True, False), (61, False, False), (20, False, True)):
        current = saving(mean, 10, arrivals=2000.0)
        check = Check("rule", LOCAL, "replay", STATED, current, answer_of(STATED, current))
        assert (check.inside, check.shrunken) == (inside, shrunken)
    bare = StatedSaving(50.0, None, None, 3)
    check = Check("rule", LOCAL, "replay", bare, saving(20, 10), HOLDS)
    assert (check.inside, check.shrunken) == (None, True)
    assert answer_of(bare, saving(5, 10)) == OPEN


# --- Rules ---------------------------------------------------------------------------------------


def test_the_stated_saving_is_that_of_the_advice(advice: Path, result: Recheck) -> None:
    (check,) = result.checks
    stated = kept(advice)["rule"]["beside_today"]
    assert (check.policy, check.other) == (kept(advice)["rule"]["rule"], LOCAL)
    assert check.stated.mean == pytest.approx(stated["requests"])
    assert check.stated.low == pytest.approx(stated["requests_low"])
    assert check.stated.high == pytest.approx(stated["requests_high"])


def test_the_later_days_are_paired_by_day(advice: Path, result: Recheck) -> None:
    (check,) = result.checks
    again = replay(after(), [LOCAL, check.policy], arrivals="unknown", optimum_windows=0, **GAME)
    less = again.sums[LOCAL].cost - again.sums[check.policy].cost
    load = again.sums[LOCAL].arrivals
    assert len(load) == result.windows == 7
    assert check.current.requests == pytest.approx(less.mean())
    ends = check.current.low, check.current.high
    assert ends == pytest.approx(tuple(difference_interval(less, load, season=7)))
    assert result.answer == answer_of(check.stated, check.current) == check.answer
    assert result.arrivals == pytest.approx(load.mean())
    for label in (LOCAL, check.policy):
        cost, lost = result.costs[label]
        assert cost == pytest.approx(again.sums[label].cost.mean())
        assert lost == pytest.approx(again.sums[label].lost.sum() / load.sum())


def test_the_best_rule_of_the_later_days_is_a_benchmark(result: Recheck) -> None:
    fresh, (check,) = result.fresh, result.checks
    assert fresh.tried > 10
    cheapest = result.costs[fresh.rule][0]
    assert cheapest == min(cost for cost, _ in result.costs.values())
    if fresh.saving is None:
        assert fresh.rule == check.policy
    else:
        assert fresh.saving.requests <= result.costs[check.policy][0] - cheapest + 1e-9
    assert not result.advise_again


def test_a_load_that_turned_asks_for_another_advice(advice: Path, tmp_path: Path) -> None:
    """Where all arrive at one node, local play loses what the fitted rule of other days saves."""
    folder = edited(advice, tmp_path / "advice", rule={"rule": LOCAL, "beside_today": None})
    result = corral.recheck(folder, after())
    assert not result.checks
    assert result.policy == LOCAL
    assert result.advise_again
    assert result.answer == LAPSED
    assert result.fresh.saving is not None
    assert result.fresh.saving.low is not None
    assert result.fresh.saving.low > 0
    costs = replay(after(), list(result.costs), arrivals="unknown", optimum_windows=0, **GAME).sums
    assert result.costs[result.fresh.rule][0] == pytest.approx(costs[result.fresh.rule].cost.mean())
    shown("\n".join(result.lines()), result.fresh.rule, LOCAL)


def test_fewer_than_six_days_have_no_answer(advice: Path) -> None:
    result = corral.recheck(advice, after(), rows=(0, 4 * DAY), write=False)
    assert (result.windows, result.answer) == (4, OPEN)
    assert all(check.current.low is None for check in result.checks)
    shown("\n".join(result.lines()), "4 days", 6)


@pytest.mark.slow
def test_few_days_that_confirm_todays_rule_have_no_answer(tmp_path: Path) -> None:
    advice = corral.advise(days(FIRST), train=False, rehearse=False, out=tmp_path / "a", **GAME)
    rule = advice.chosen.rule
    folder = tmp_path / "b"
    corral.advise(days(FIRST), today=rule, train=False, rehearse=False, out=folder, **GAME)
    for seed in range(9, 12):
        assert corral.recheck(folder, after(2, seed), write=False).answer == OPEN


def test_a_capacity_that_was_replaced_is_played_again(tmp_path: Path) -> None:
    corral.advise(days(FIRST), capacity=30, train=False, rehearse=False, out=tmp_path, **GAME)
    assert kept(tmp_path)["capacity"] == [30, 30, 30]
    again = corral.recheck(tmp_path, after(), write=False)
    assert (again.trace.capacity == 30).all()
    assert again.costs == corral.recheck(tmp_path, after(), capacity=30, write=False).costs
    with refused(RunError, "capacity"):
        corral.recheck(edited(tmp_path, tmp_path / "edited", capacity=[30]), after())


def test_an_advice_with_one_route_is_compared_with_rules_of_this_route(tmp_path: Path) -> None:
    options: dict[str, Any] = {"train": False, "rehearse": False, **GAME}
    corral.advise(days(FIRST), route="least", out=tmp_path, **options)
    again = corral.recheck(tmp_path, after(), write=False)
    assert again.fresh.rule.endswith("/least")
    assert (
        again.fresh.tried
        < corral.recheck(edited(tmp_path, tmp_path / "all", route=None), after()).fresh.tried
    )
    with refused(RunError, "route", "sideways"):
        corral.recheck(edited(tmp_path, tmp_path / "edited", route="sideways"), after())


def test_days_before_the_advice_are_not_later(advice: Path) -> None:
    trace = days(7, seed=9)
    earlier = changed(trace, times=trace.times - 30 * DAY * 3600)
    with refused(ValueError, advice):
        corral.recheck(advice, earlier)


def test_a_saving_that_vanished_no_longer_holds(advice: Path, tmp_path: Path) -> None:
    quiet = after()  # no node has more than it can serve
    quiet = changed(quiet, arrivals=quiet.arrivals // 4)
    result = corral.recheck(edited(advice, tmp_path / "advice"), quiet)
    (check,) = result.checks
    assert check.current.share == 0
    assert (check.inside, check.answer, result.answer) == (False, LAPSED, LAPSED)


def test_the_result_is_written_beside_the_advice(advice: Path, result: Recheck) -> None:
    values = json.loads((advice / "recheck.json").read_text())
    assert values == result.to_json()
    assert values["answer"] == result.answer
    assert values["checks"][0]["current"]["requests"] == result.checks[0].current.requests
    assert values["checks"][0]["inside"] == result.checks[0].inside
    assert values["trace"]["digest"] == after().digest
    frame = result.to_dataframe()
    assert frame["current"].tolist() == [check.current.requests for check in result.checks]
    assert frame["answer"].tolist() == [result.answer]


def test_the_screen_has_80_columns(result: Recheck) -> None:
    text = printed(result)
    assert max(map(len, text.splitlines())) <= 80
    shown(text, result.checks[0].policy, f"{result.checks[0].stated.mean:,.0f}")
    assert result.lines()[-1] == result.verdict()


# --- Balancers and teams -------------------------------------------------------------------------


def of(mean: float, half: float) -> dict[str, Any]:
    """A saving as in advice.json."""
    return saving(mean, half).to_json()


def by_work(mean: float, half: float) -> dict[str, Any]:
    return {"deterministic": of(mean, half), "exponential": of(mean - 1, half)}


def test_a_balancer_is_rehearsed_beside_the_plan(advice: Path, tmp_path: Path) -> None:
    balancer = {"name": "room", "over_plan": by_work(20, 9), "over_today": by_work(90, 9)}
    folder = edited(advice, tmp_path / "advice", run="balancer", balancer=balancer)
    result, rule = corral.recheck(folder, after()), kept(advice)["rule"]["rule"]
    checks = {(check.other, check.play): check for check in result.checks}
    assert len(checks) == 5
    assert result.policy == "room"
    works = {"deterministic": "equal work", "exponential": "exponential work"}
    for work, play in works.items():
        rehearsed = rehearse(after(), [LOCAL, rule, "room"], work=work, parts=False, **GAME)
        for other in (rule, LOCAL):
            less = rehearsed.costs[other] - rehearsed.costs["room"]
            assert checks[other, play].current.requests == pytest.approx(less.mean())
    assert checks[rule, "exponential work"].stated.mean == pytest.approx(19)
    assert not checks[LOCAL, "replay"].decides
    answers = {check.answer for check in result.checks if check.decides}
    assert result.answer == next(answer for answer in (LAPSED, OPEN, HOLDS) if answer in answers)
    assert result.fresh.play == "equal work"
    assert max(map(len, printed(result).splitlines())) <= 80


def test_a_team_is_played_beyond_its_scales(advice: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    rule = "backlog=0.75/least"
    folder = edited(
        advice,
        tmp_path / "advice",
        run="team",
        plan="team",
        team={
            "folder": "elsewhere",  # never opened
            "rule": rule,
            "saving": of(10, 5),
            "beside_today": of(90, 5),
            "rows": {"held_out": [120, 192]},
        },
    )
    with refused(RunError, str(folder / "team")):
        corral.recheck(folder, after())
    corral.train(
        "dfaas_v0",
        trainer="ippo",
        env_kwargs={
            **{"trace": days(FIRST), "max_cycles": DAY, "arrivals": "unknown", "beyond": "rule"},
            **{"residual": rule, "offsets": 2, **GAME},
        },
        num_envs=2,
        n_steps=DAY,
        n_epochs=1,
        n_minibatches=1,
        steps=2 * DAY,
        validation=0.2,
        out=folder / "team",
        progress=False,
    )
    grown = after()
    grown = changed(grown, arrivals=grown.arrivals * 2)
    result = corral.recheck(folder, grown)
    checks = {check.other: check for check in result.checks if check.policy == "team"}
    assert list(checks) == [rule, LOCAL]
    assert result.policy == "team"
    assert [check.policy for check in result.checks if not check.decides] == [
        kept(advice)["rule"]["rule"]
    ]
    player = players(corral.load_run(f"{folder}/team@best"))[0]
    again = replay(grown, {"team": player, rule: rule, LOCAL: LOCAL}, arrivals="unknown", **GAME)
    for other, check in checks.items():
        less = again.sums[other].cost - again.sums["team"].cost
        assert check.current.requests == pytest.approx(less.mean(), abs=1e-9)
    assert checks[rule].answer == answer_of(
        StatedSaving(10, 5, 15, 8), checks[rule].current, kept(advice)["worth"] / 100
    )
    beyond, steps = result.exceeding["team"]
    assert beyond == "rule"
    assert steps == again.teams["team"].exceeding
    assert 0 < steps < len(grown)
    shown("\n".join(result.lines()), steps)
    clipped = corral.recheck(folder, grown, beyond="clip", write=False)
    assert clipped.exceeding["team"][0] == "clip"


# --- Errors --------------------------------------------------------------------------------------


def test_days_of_the_advice_cannot_judge_it(advice: Path) -> None:
    first, second = days(FIRST), after()
    columns = {
        name: np.concatenate([vars(first)[name], vars(second)[name]])
        for name in ("arrivals", "capacity", "times")
    }
    whole = changed(first, **columns)
    cut = len(first)
    with refused(ValueError, f"{cut:,}", f"{cut}:{len(whole)}", "rows"):
        corral.recheck(advice, whole)
    with refused(ValueError, DAY):
        corral.recheck(advice, whole, rows=(cut - DAY, len(whole)))
    result = corral.recheck(advice, whole, rows=(cut, len(whole)), write=False)
    assert result.checks[0].current == corral.recheck(advice, second, write=False).checks[0].current
    assert result.rows == (cut, len(whole))


def test_other_loads_are_refused(advice: Path) -> None:
    later = after()
    with refused(ValueError, "site-9", "site-0"):
        corral.recheck(advice, changed(later, nodes=("site-0", "site-1", "site-9")))
    with refused(ValueError, "steps", 1800, 3600):
        times = later.times[0] + 1800 * np.arange(len(later))
        corral.recheck(advice, changed(later, times=times))
    with refused(ValueError, "integer", "utc"):
        corral.recheck(advice, small_trace(steps=200))
    with refused(TraceError, "capacity"):
        corral.recheck(advice, changed(later, capacity=None))
    with refused(ValueError, DAY - 1, DAY):
        corral.recheck(advice, later, rows=(0, DAY - 1))
    with refused(ValueError, "made"):
        corral.recheck(advice, changed(later, capacity=np.zeros_like(later.arrivals)))


def test_a_missing_capacity_can_be_given(advice: Path) -> None:
    later = after()
    bare = corral.recheck(advice, changed(later, capacity=None), capacity=14, write=False)
    assert bare.checks == corral.recheck(advice, later, write=False).checks


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"rule": {"beside_today": 7}}, "rule.beside_today"),
        ({"rule": {"today": "nothing/equal"}}, "nothing"),
        ({"window": "a day"}, "window"),
        ({"window": 0}, "window"),
        ({"worth": None}, "worth"),
        ({"trace": {"from": "yesterday"}}, "trace.from"),
        ({"trace": {"rows": [0, 0]}}, "trace.rows"),
        ({"trace": {"rows": []}}, "rows"),
        ({"run": "balancer", "balancer": {"name": "room"}}, "balancer.over_plan"),
        ({"run": "team", "plan": "team", "team": None}, "team"),
        ({"format": 2}, "format"),
    ],
    ids=str,
)
def test_a_damaged_advice_is_named(
    advice: Path, tmp_path: Path, change: dict[str, Any], value: str
) -> None:
    folder = edited(advice, tmp_path / "advice", **change)
    with refused(RunError, "advice.json", value):
        corral.recheck(folder, after())
    with refused(RunError, str(tmp_path / "nothing" / "advice.json")):
        corral.recheck(tmp_path / "nothing", after())
