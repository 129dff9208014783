"""The post-mortem of a day: parts worked out by hand, and what they add up to."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np
import pytest

from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.policy import Decision, RandomPolicy
from corral.errors import ActionError
from corral.loads.advise.hindsight import costs_of_rules, reads_reports
from corral.loads.advise.post_mortem import PostMortem, post_mortem
from corral.loads.advise.words import number
from corral.loads.replay import Replay, replay
from corral.trainers.evaluation.players import Player
from corral.trainers.runs.run import Run
from support.loads import small_trace
from support.messages import refused, shown

SHORTEST = "overflow/shortest"


def by_hand(names: tuple[str, ...] = ("a", "b", "c", "d")) -> Trace:
    """Four nodes that can serve 5 each, in three steps.

    1. a has 4 too many, c has room for 4. Nobody has reported anything, so that the first, b, gets
       them, and all 4 are lost. Who knows the present spare loses none.
    2. a and b have 2 too many each, c and d room for 2 each. Both send to c: 2 are lost, whether
       they know the present spare or not; only who knows what the other does loses none.
    3. All have 4 too many: 16 are lost, whatever is done.
    """
    arrivals = np.array([[9, 5, 1, 5], [7, 7, 3, 3], [9, 9, 9, 9]])
    times = 1_767_571_200 + 8 * 3600 * np.arange(3)  # 2026-01-05
    return Trace(names, arrivals, np.full((3, 4), 5), times, clock="utc")


def played(trace: Trace, policies: Any, **settings: Any) -> Replay:
    return replay(trace, policies, optimum_windows=0, second_offer=False, **settings)


def days(*beyond: int) -> Trace:
    """Two nodes that can serve 5 each, two steps a day; on day k one has ``beyond[k]`` too many in
    each step, and the other as much room."""
    arrivals = np.repeat([[5 + k, 5 - k] for k in beyond], 2, axis=0)
    times = 1_767_571_200 + 12 * 3600 * np.arange(len(arrivals))
    return Trace(("a", "b"), arrivals, np.full(arrivals.shape, 5), times, clock="utc")


def parts(found: PostMortem) -> dict[str, list[float]]:
    return {key: values.tolist() for key, values in found.parts.items()}


def test_missing_knowledge_and_play_are_worked_out_by_hand() -> None:
    result = played(by_hand(), ["local/equal", SHORTEST])
    rule = post_mortem(result, SHORTEST, rules=[SHORTEST])
    assert rule.cost.tolist() == [4, 2, 16]
    assert parts(rule) == {
        "play": [0, 0, 0],
        "late_reports": [4, 0, 0],
        "clairvoyance": [0, 2, 0],
        "unavoidable": [0, 0, 16],
    }
    local = post_mortem(result, "local/equal", rules=[SHORTEST])
    assert local.cost.tolist() == [4, 4, 16]
    assert parts(local) == parts(rule) | {"play": [0, 2, 0]}
    first, second, third = local.worst
    assert (first.time, first.arrivals, first.capacity) == ("2026-01-05 16:00", 36, 20)
    assert (second.time, second.node, second.node_cost) == ("2026-01-05 00:00", "a", 4)
    assert (third.row, third.play, third.clairvoyance) == (1, 2, 2)
    assert local.exact_by_step
    assert not any("queues" in note for note in local.notes())


def test_where_reports_are_present_nothing_is_lost_by_late_ones() -> None:
    result = played(by_hand(), [SHORTEST], report_delay=0)
    found = post_mortem(result, SHORTEST, rules=[SHORTEST])
    assert found.cost.tolist() == [0, 2, 16]
    assert found.parts["late_reports"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("delay", "late"), [(1, False), (3, True)])
def test_with_unknown_arrivals_reports_are_compared_with_those_of_the_last_step(
    delay: int, late: bool
) -> None:
    pytest.importorskip("scipy", reason="the optimum with a queue is a linear program")
    pairs = ["local/equal", "overflow/least", "backlog=0.5/all-to-shortest"]
    trace = small_trace(steps=40)
    settings: dict[str, Any] = {"arrivals": "unknown", "queue": 2, "report_delay": delay}
    result = replay(trace, pairs, window=20, optimum_windows=0, **settings)
    found = post_mortem(result, "overflow/least", day=1, rules=pairs)
    assert ("late_reports" in found.parts) == late
    assert sum(found.parts.values()) == pytest.approx(found.cost)
    assert found.cost.sum() == pytest.approx(result.sums["overflow/least"].cost[1])
    fresh = replay(trace, pairs, window=20, optimum_windows=0, **settings | {"report_delay": 1})
    best = min(float(sums.cost[1]) for sums in fresh.sums.values())
    assert found.informed_cost.sum() == pytest.approx(best)
    assert (found.fresh, found.to_json()["freshest_reports"]) == (1, 1)
    assert max(map(len, found.lines())) <= 80
    every = post_mortem(result, "overflow/least", day=1)
    assert every.compared < post_mortem(played(trace, pairs, queue=2), pairs[1]).compared


def test_the_best_rules_are_those_of_least_cost_that_day() -> None:
    result = played(by_hand(), ["local/equal"])
    found = post_mortem(result, "local/equal", rules=["local/equal", "overflow/equal", SHORTEST])
    # An equal split finds room for 1 of 4 in step 1, and in step 2 for all but what b gets of a.
    assert (found.rule, found.rule_cost.tolist()) == ("overflow/equal", [3, 1, 16])
    assert (found.informed, found.informed_cost.tolist()) == (SHORTEST, [0, 2, 16])
    assert parts(found)["late_reports"] == [3, -1, 0]  # below 0: it did better
    every = post_mortem(result, "local/equal")
    assert every.rule_cost.sum() <= 20
    assert every.informed_cost.sum() <= every.rule_cost.sum()
    assert every.compared == 21  # without a queue nobody is patient


@pytest.mark.parametrize("queue", [0, 3])
@pytest.mark.parametrize("label", ["overflow/two", "margin/spare", "team"])
def test_parts_add_up_to_what_the_replay_counted(queue: int, label: str) -> None:
    if queue:
        pytest.importorskip("scipy", reason="the optimum of queues is a linear program")
    settings: dict[str, Any] = {"queue": queue, "forward_cost": 0.2, "wait_cost": 0.1 * bool(queue)}
    trace = small_trace(steps=50)
    team = baseline_team("threshold", DfaasRules(trace, queue=queue))
    policies = {"overflow/two": "overflow/two", "margin/spare": "margin/spare", "team": team}
    result = played(trace, policies, window=20, route="capacity", rows=(3, 50), seed=5, **settings)
    for day in range(3):  # the last of them is shorter
        found = post_mortem(
            result, label, team if label == "team" else None, day=day, rules=["margin/spare"]
        )
        assert sum(found.parts.values()) == pytest.approx(found.cost)
        assert found.cost.sum() == pytest.approx(result.sums[label].cost[day])
        assert found.rows == (3 + 20 * day, min(23 + 20 * day, 50))
        assert found.exact_by_step == (queue == 0)
        assert any("queues" in note for note in found.notes()) == (queue > 0)


@pytest.mark.parametrize("nodes", [3, 9])  # of many nodes all are asked at once
def test_rules_cost_what_they_cost_in_the_replay(nodes: int) -> None:
    pairs = ["overflow/two", "threshold/two", "margin/two", "static/spare", "patient-margin/spare"]
    trace = small_trace(nodes, steps=30)
    for delay in (0, 1, 2):
        result = played(trace, pairs, window=20, queue=2, seed=3, report_delay=delay)
        for day, episode in ((0, (3, 0)), (1, (4, 0))):
            rows = (20 * day, min(20 * day + 20, 30))
            found = costs_of_rules(result, pairs, episode, lambda *told: None, rows=rows)
            sums = {pair: cost.sum() for pair, cost in found.items()}
            assert sums == {pair: result.sums[pair].cost[day] for pair in pairs}
    assert [pair for pair in pairs if not reads_reports(pair)] == []
    assert not any(map(reads_reports, ["local", "static/equal", "overflow/capacity"]))


def test_sampled_play_is_drawn_anew_and_says_so() -> None:
    result = played(small_trace(), {"chance": Player(_chance(), deterministic=False)}, window=20)
    found = post_mortem(result, "chance", Player(_chance(), deterministic=False), rules=["local"])
    assert found.mode == "sampled"
    assert found.cost.sum() != found.replayed
    shown("\n".join(found.notes()), number(found.replayed))


def _chance() -> dict[str, Any]:
    return {f"node_{i}": RandomPolicy() for i in range(3)}


def test_the_costliest_day_is_the_default_and_a_day_can_be_named() -> None:
    result = played(days(1, 4, 2), ["local/equal"])
    found = post_mortem(result, "local/equal", rules=["local/equal"])
    assert (found.day, found.cost.sum(), found.rows) == (1, 8, (2, 4))
    for day in (2, "2", "2026-01-07"):
        found = post_mortem(result, "local/equal", day=day, rules=["local/equal"])
        assert (found.day, found.times[0]) == (2, "2026-01-07 00:00")


@pytest.mark.parametrize(
    ("day", "values"),
    [
        (3, ("day=3", "0 to 2", "date")),
        (-1, ("day=-1", "0 to 2")),
        (True, ("day=True", "0 to 2")),
        ("2026-01-08", ("day='2026-01-08'", "0 to 2", "2026-01-05 to 2026-01-07")),
        ("yesterday", ("day='yesterday'", "2026-01-05 to 2026-01-07")),
    ],
)
def test_a_day_that_is_not_there_is_refused(day: Any, values: tuple[str, ...]) -> None:
    result = played(days(1, 4, 2), ["local/equal"])
    with refused(ValueError, *values):
        post_mortem(result, "local/equal", day=day)


def test_a_trace_without_dates_says_so() -> None:
    result = played(small_trace(), ["local/equal"], window=20)
    with refused(ValueError, "day='2026-01-05'", "0 to 1", "dates"):
        post_mortem(result, "local/equal", day="2026-01-05")
    found = post_mortem(result, "local/equal", day=1, rules=["local"])
    assert found.times[0] == "20"
    assert any(line.startswith(f"{found.worst[0].row}  ") for line in found.lines())


@pytest.mark.parametrize(
    ("label", "given", "values"),
    [
        ("margin/equal", {}, ("'margin/equal'", "local/equal, team")),
        ("team", {}, ("policy team", "run")),
        ("local/equal", {"rules": []}, ("rules=[]", "amount/route")),
        ("local/equal", {"rules": "local"}, ("rules='local'", "amount/route")),
        ("local/equal", {"rules": ["random"]}, ("random", "rule")),
        ("local/equal", {"steps": 0}, ("steps=0", "1")),
    ],
)
def test_mistakes_are_told(label: str, given: dict[str, Any], values: tuple[str, ...]) -> None:
    trace = by_hand()
    team = baseline_team("overflow", DfaasRules(trace))
    result = played(trace, {"local/equal": "local/equal", "team": team})
    with refused(ValueError, *values):
        post_mortem(result, label, **given)


class Nonsense:
    """Plays an action that is none, or a masked one."""

    def __init__(self, action: Any) -> None:
        self.action = action

    def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
        return Decision(np.full(len(observation["action_mask"]), self.action))


def test_a_policy_that_returns_nonsense_is_named() -> None:
    trace = by_hand()
    result = played(trace, {"mine": baseline_team("local", DfaasRules(trace))})
    with refused(ActionError, "policy mine", "node_0", "float64 (1,)", "shape (1,)"):
        post_mortem(result, "mine", Nonsense(0.5), rules=["local"])
    illegal = post_mortem(result, "mine", Nonsense(9), rules=["local"])
    # c and d twice, a never, b once: those who have fewer than 9 arrivals.
    assert illegal.illegal_actions == 3 + 4
    shown("\n".join(illegal.notes()), "7 of", "illegal")


def test_a_run_of_another_environment_is_refused() -> None:
    result = played(by_hand(), {"mine": baseline_team("local", DfaasRules(by_hand()))})
    run = object.__new__(Run)
    run.folder = "runs/tic"  # type: ignore[assignment]
    run.config = type("C", (), {"env_config": type("E", (), {"env": "tictactoe_v0"})})  # type: ignore[assignment]
    with refused(ValueError, "runs/tic", "tictactoe_v0", "dfaas_v0"):
        post_mortem(result, "mine", run)


def test_a_teams_own_neighbours_are_those_of_the_rules() -> None:
    pytest.importorskip("scipy", reason="the optimum of few links is a linear program")
    trace = by_hand()
    nobody: dict[str, Any] = {"neighbours": {}}
    team = Player(baseline_team("overflow", DfaasRules(trace, **nobody)), settings=nobody)
    found = post_mortem(played(trace, {"alone": team}), "alone", team, rules=[SHORTEST])
    assert found.cost.tolist() == [4, 4, 16]
    assert parts(found)["unavoidable"] == [4, 4, 16]
    assert parts(found)["play"] == [0, 0, 0]


def test_without_scipy_a_linear_program_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    found = post_mortem(played(by_hand(), [SHORTEST], queue=2), SHORTEST, rules=[SHORTEST])
    assert found.optimum_cost is None
    assert list(found.parts) == ["play", "late_reports"]
    assert found.worst[0].unavoidable is None
    shown("\n".join(found.notes()), "scipy")
    assert max(map(len, found.lines())) <= 80
    json.dumps(found.to_json(), allow_nan=False)


def test_lines_fit_the_screen_whatever_the_names() -> None:
    names = tuple(f"{letter * 70}" for letter in "abcd")
    found = post_mortem(played(by_hand(names), ["local/equal"]), "local/equal")
    lines = found.lines()
    assert max(map(len, lines)) <= 80
    shown("\n".join(lines), "2026-01-05 00:00", "2026-01-05 16:00", "0 of 1", "0:3")
    assert any(line.startswith("16:00  aaaaaa") for line in lines)
    assert any(re.search(r"\b16 +unavoidable\b", line) for line in lines)


@pytest.mark.parametrize(
    ("factor", "unit"), [(10_000, "thousands of requests"), (2 * 10**8, "millions of requests")]
)
def test_large_loads_fit_the_screen(factor: int, unit: str) -> None:
    small = by_hand(tuple(f"{letter * 70}" for letter in "abcd"))
    assert small.capacity is not None
    counts = small.arrivals * factor - 1, small.capacity * factor
    trace = Trace(small.nodes, *counts, small.times + 1, clock="utc")  # with seconds
    found = post_mortem(played(trace, ["local/equal"], forward_cost=0.13), "local/equal")
    assert max(map(len, found.lines())) <= 80
    assert f"The 3 costliest steps, in {unit}:" in found.lines()


def test_a_day_that_cost_nothing_says_so() -> None:
    trace = days(0, 0)
    found = post_mortem(played(trace, ["local/equal"]), "local/equal", rules=["local"])
    assert found.worst == []
    shown("\n".join(found.lines()), "No step")


def test_json_and_table_hold_the_same_steps() -> None:
    found = post_mortem(
        played(by_hand(), ["local/equal"]), "local/equal", rules=[SHORTEST], steps=2
    )
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert [step["cost"] for step in told["steps"]] == [16, 4]
    assert told["parts"] == {"play": 2, "late_reports": 4, "clairvoyance": 2, "unavoidable": 16}
    table = found.to_dataframe()
    assert table["cost"].tolist() == [4, 4, 16]
    assert table.loc[0, "late_reports"] == told["steps"][1]["late_reports"] == 4
