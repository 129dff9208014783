"""Runs that do not know the arrivals of a step answer by plans, which play as their actions do."""

from __future__ import annotations

import copy
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.dfaas_v0.plain_rules import PlainRule, plans_of
from corral.envs.dfaas_v0.routes import ROUTES, canonical_route
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.envs.policy import Heuristic
from corral.loads.export.decider import Decider, DecisionError, OutOfRangeError
from corral.loads.export.inputs import slot_of
from support.deciding import (
    Hashing,
    Offering,
    assert_same,
    carried_out,
    moment_of,
    presented,
)
from support.dfaas_configurations import residual_configuration, wider_configuration
from support.loads import days, small_trace
from support.messages import refused
from support.thinned import fast_every


def made(seed: int, configure: Any = wider_configuration) -> tuple[DfaasRules, Offering] | None:
    """Rules of a random configuration with plans, or levels that keep, counts, means; and their
    plain re-statement."""
    config = configure(np.random.default_rng(seed))
    low, high = config["rows"] or (0, len(config["trace"]))
    if high - low == 1:  # a section of one row has no step
        config.pop("daily_mean", None)
    try:
        return DfaasRules(**config), Offering(**config)
    except ValueError:  # route "choose" with too many actions
        assert config["route"] == "choose"
        return None


@pytest.mark.parametrize("configure", [wider_configuration, residual_configuration])
@pytest.mark.parametrize("block", fast_every(4, range(8)))
def test_decisions_play_as_actions_in_random_configurations(block: int, configure: Any) -> None:
    met: Counter[str] = Counter()
    for seed in range(40 * block, 40 * block + 40):
        if (both := made(seed, configure)) is None:
            continue
        rules, scalar = both
        names = rules.trace.nodes
        played, decided = ({agent: Hashing() for agent in rules.agents} for _ in range(2))
        decider = Decider(rules, decided)
        state, memory = rules.start([np.random.default_rng(seed)]), decider.start(seed)
        scalar.draws = state.draws[0].tolist()
        scalar.reset()
        hidden = {agent: played[agent].initial_state(1) for agent in rules.agents}
        previous = None
        for _ in range(min(rules.max_cycles, 10)):
            nodes, time = moment_of(rules, state, names)
            found = decider.decide(nodes, previous, memory, **time)
            observations = rules.observe(state)
            actions = np.zeros((1, len(names)), dtype=np.int64)
            for i, agent in enumerate(rules.agents):
                seen = observations[agent]
                decision = played[agent].act(seen, hidden[agent], deterministic=True)
                actions[0, i], hidden[agent] = decision.action[0], decision.state
            expected = rules.step(copy.deepcopy(state), actions)
            forwarded = expected.info["forwarded"][0]
            scalar.step(actions[0].tolist())
            if rules.arrivals == "known":
                assert [sum(found[name].values()) for name in names] == forwarded.tolist()
                assert list(found.values()) == scalar.offers(names)
            else:
                assert_same(carried_out(rules, state, found), expected)
                met[f"unknown/{rules.route}"] += int(forwarded.sum() > 0)
                met["time"] += bool(time)
                met["counts"] += rules.last_counts > 1
            if rules.beyond == "rule":
                met["by rule"] += bool(rules.exceeds(state).any())
            state = expected.state
            previous = presented(names, spare=state.spare[0], lost=state.lost[0])
        for agent in rules.agents:
            assert decided[agent].seen == played[agent].seen
    assert sum(count for key, count in met.items() if key.startswith("unknown/")) > 5
    assert min(met["time"], met["counts"]) > 0
    assert bool(met["by rule"]) == (configure is residual_configuration)


def test_all_routes_and_levels_are_among_them() -> None:
    routes: Counter[str] = Counter()
    amounts: Counter[str] = Counter()
    for seed in range(8 * 40):
        config = wider_configuration(np.random.default_rng(seed))
        if config.get("arrivals") == "unknown":
            routes[canonical_route(config["route"])] += 1
            amount = config["amount"]
            amounts[amount if isinstance(amount, str) else "list"] += 1
    assert set(routes) == set(ROUTES)
    assert min(routes.values()) > 3
    assert set(amounts) == {"unit", "quantile", "list", "keep", "share"}


# --- Rules ---------------------------------------------------------------------------------------

AMOUNTS = (
    *("local", "static", "overflow", "threshold", "margin", "patient", "patient-margin"),
    *("backlog=0.5", "backlog=0.75,margin=0.6", "capacity=0.9", "share=0.3,margin=1"),
)
TO = ("equal", "weighted", "least", "two-choices", "fill", "all-to-shortest", "all-to-two", "spare")


@pytest.mark.parametrize("arrivals", ["known", "unknown"])
@pytest.mark.parametrize("route", fast_every(2, TO))
def test_rules_decide_as_in_a_replay(route: str, arrivals: str) -> None:
    neighbours = {f"node_{i}": [f"node_{j}" for j in range(5) if j != i] for i in range(4)}
    settings: dict[str, Any] = {"queue": 15, "link_limit": 9, "neighbours": neighbours}
    settings |= {"max_cycles": 12, "start": 0, "report_delay": 2, "arrivals": arrivals}
    rules = DfaasRules(small_trace(5, steps=60, largest=60), route=route, **settings)
    trained, names = DfaasRules(rules.trace, **settings), rules.trace.nodes
    for number, amount in enumerate(AMOUNTS):
        decider = Decider.of_rule(f"{amount}/{route}", trained)
        rule = PlainRule.of(f"{amount}/{route}")
        state, memory = rules.start([np.random.default_rng(number)]), decider.start(number)
        previous, forwarding = None, 0
        for _ in range(rules.max_cycles):
            nodes, _ = moment_of(rules, state, names)
            found = decider.decide(nodes, previous, memory)
            plans = plans_of([rule], rules.inputs_of_rules(state))
            expected = rules.carry_out(copy.deepcopy(state), plans)
            forwarded = expected.info["forwarded"][0].tolist()
            if arrivals == "unknown":
                assert_same(carried_out(rules, state, found), expected)
            else:
                assert [sum(found[name].values()) for name in names] == forwarded
            forwarding += sum(forwarded)
            state = expected.state
            previous = presented(names, spare=state.spare[0], lost=state.lost[0])
        assert bool(forwarding) == (amount != "local")


def test_a_rule_of_a_run_that_knows_may_be_served_as_plans() -> None:
    rules = DfaasRules(small_trace(), queue=4, link_limit=3)
    nodes = {name: {"last_arrivals": [9, 3], "capacity": 5, "queue": 1} for name in NAMES}
    known = Decider(rules, baseline_team("local", rules))
    plans = known.by_rule("backlog=0.5/least", arrivals="unknown").decide(nodes)
    assert plans["site-1"] == {
        "keep": 6,
        "share": None,
        "most": None,
        "caps": {"site-2": 3, "site-0": 3},
        "route": "least",
        "order": None,
    }
    assert known.by_rule("overflow").arrivals == "known"
    with refused(ValueError, "random/equal", "overflow/capacity"):
        known.by_rule("random/equal", arrivals="unknown")


def test_who_has_no_neighbours_keeps_all() -> None:
    rules = DfaasRules(small_trace(), neighbours={"node_0": ["node_2"]}, arrivals="unknown")
    nodes = {name: {"last_arrivals": 9, "capacity": 5} for name in NAMES}
    for rule in ("overflow/all-to-shortest", "share=1/equal", "margin/least"):
        plans = Decider.of_rule(rule, rules).decide(nodes)
        alone = {key: value for key, value in plans["site-1"].items() if key != "route"}
        assert {**alone, "order": None} == {
            "keep": None,
            "share": None,
            "most": None,
            "caps": {} if rule.startswith("share") and rules.link_limit is not None else None,
            "order": None,
        }
    plans = Decider.of_rule("overflow/all-to-shortest", rules).decide(nodes)
    assert [plans[name]["order"] for name in NAMES] == [["site-2"], [], []]


# --- Input ---------------------------------------------------------------------------------------

NAMES = ("site-0", "site-1", "site-2")
GOOD: dict[str, Any] = {name: {"last_arrivals": 7, "capacity": 5} for name in NAMES}


def unknown(**kwargs: Any) -> Decider:
    rules = DfaasRules(kwargs.pop("trace", small_trace()), queue=4, arrivals="unknown", **kwargs)
    return Decider(rules, baseline_team("overflow", rules))


def told(**numbers: Any) -> dict[str, Any]:
    return {**GOOD, "site-1": {"capacity": 5, "last_arrivals": 7, **numbers}}


@pytest.mark.parametrize(
    ("counts", "numbers", "field", "values"),
    [
        (1, {"last_arrivals": 13}, "last_arrivals", ("13", "12", "by_rule")),
        (1, {"last_arrivals": -1}, "last_arrivals", ("-1", "0 to 12")),
        (1, {"last_arrivals": "7"}, "last_arrivals", ("'7'", "0 to 12")),
        (1, {"last_arrivals": [1.5]}, "last_arrivals", ("1.5", "0 to 12")),
        (1, {"last_arrivals": True}, "last_arrivals", ("True", "0 to 12")),
        (1, {"last_arrivals": None}, "last_arrivals", ("None", "0 to 12")),
        (1, {"last_arrivals": [3, 4]}, "last_arrivals", ("2 counts", "1")),
        (3, {"last_arrivals": [3, 4, 13]}, "last_arrivals.2", ("13", "12", "by_rule")),
        (3, {"last_arrivals": [3] * 4}, "last_arrivals", ("4 counts", "3")),
        (3, {"last_arrivals": 3}, "last_arrivals", ("list", "3 counts")),
        (1, {"arrivals": 3}, "arrivals", ("last_arrivals",)),
        (1, {"load": 3}, "load", ("unknown", "last_arrivals, capacity, queue")),
        (1, {"queue": 5}, "queue", ("5", "4", "by_rule")),
    ],
)
def test_mistakes_are_told_by_their_field_and_nothing_has_changed(
    counts: int, numbers: dict[str, Any], field: str, values: tuple[str, ...]
) -> None:
    decider = unknown(last_counts=counts, report_delay=3)
    state = decider.start()
    nodes = told(**numbers)
    if counts > 1:
        nodes = {name: {"last_arrivals": [], **node} for name, node in nodes.items()}
        nodes["site-0"] = nodes["site-2"] = {"last_arrivals": [], "capacity": 5}
    with refused(DecisionError, *values, field=f"nodes.site-1.{field}") as raised:
        decider.decide(nodes, None, state)
    assert isinstance(raised.value, OutOfRangeError) == ("above" in str(raised.value))
    assert state.t == 0


def test_the_other_form_is_refused_by_the_right_field() -> None:
    known = {name: {"arrivals": 7, "capacity": 5} for name in NAMES}
    with refused(DecisionError, "last_arrivals", field="nodes.site-0.arrivals"):
        unknown().decide(known)
    rules = DfaasRules(small_trace())
    for decider in (Decider(rules, baseline_team("local", rules)), Decider.of_rule("local", rules)):
        with refused(DecisionError, "arrivals", field="nodes.site-0.last_arrivals"):
            decider.decide(GOOD)
        mixed = {**known, "site-2": {"arrivals": 7, "last_arrivals": 7, "capacity": 5}}
        with refused(DecisionError, "arrivals", field="nodes.site-2.last_arrivals"):
            decider.decide(mixed)
    nothing = {name: {"capacity": 5} for name in NAMES}
    with refused(DecisionError, "missing", field="nodes.site-0.last_arrivals"):
        unknown().decide(nothing)


def test_counts_that_are_missing_at_a_start_are_0() -> None:
    decider = unknown(last_counts=3)

    def asked(*counts: int) -> Any:
        nodes = {name: {"last_arrivals": list(counts), "capacity": 5} for name in NAMES}
        return decider.seen(decider._moment(decider.inputs.load(nodes), *ZERO, decider.start()))[0]

    assert asked(4).tolist() == asked(4, 0, 0).tolist()
    assert asked().tolist() == asked(0, 0).tolist() != asked(4).tolist()
    assert asked(1, 2, 3).tolist() != asked(3, 2, 1).tolist()


ZERO = np.zeros((2, 1, 3), dtype=np.int64)


def test_known_arrivals_and_past_counts_go_together() -> None:
    rules = DfaasRules(small_trace(), last_counts=2)
    decider = Decider(rules, baseline_team("overflow", rules))
    nodes = {name: {"arrivals": 7, "last_arrivals": [3], "capacity": 5} for name in NAMES}
    assert decider.decide(nodes)["site-0"] == {"site-1": 1, "site-2": 1}
    assert decider.by_rule("overflow").decide(nodes) == decider.decide(nodes)
    with refused(DecisionError, "missing", field="nodes.site-0.last_arrivals"):
        decider.decide({name: {"arrivals": 7, "capacity": 5} for name in NAMES})


@pytest.mark.parametrize(
    "time",
    [
        "1970-01-02T05:30:00Z",
        "1970-01-02T05:30",
        "1970-01-02T07:30:00+02:00",
        "1970-01-01 05:59:59",
    ],
)
def test_a_time_is_that_of_the_table(time: str) -> None:
    trace = days(3)
    decider = unknown(trace=trace, daily_mean=True)
    when = datetime(1970, 1, 1, 5, 30, tzinfo=UTC)
    slots = [slot_of(each, 24) for each in (time, when, when.replace(tzinfo=None))]
    assert slots == [5, 5, 5]
    nodes = {name: {"last_arrivals": 7, "capacity": 5} for name in decider.nodes}
    decider.decide(nodes, time=time)
    moment = decider._moment(decider.inputs.load(nodes), *ZERO, decider.start())
    moment.mean = decider.daily_mean[[slots[0]]]
    features = decider.seen(moment)[0]
    expected = trace.arrivals[5::24].mean(axis=0) / decider.load_scale
    assert features[0, :, -1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("time", [None, "yesterday", "", 12, "2026-13-01", "1970-01-01T25:00", [1]])
def test_a_time_that_is_none_is_refused(time: Any) -> None:
    decider = unknown(trace=days(3), daily_mean=True)
    nodes = {name: {"last_arrivals": 7, "capacity": 5} for name in decider.nodes}
    state = decider.start()
    with pytest.raises(DecisionError, match="ISO-8601") as raised:
        decider.decide(nodes, None, state, time)
    assert raised.value.field == "time"
    assert state.t == 0


def test_who_observes_no_time_may_be_told_it_with_plans_alone() -> None:
    decider = unknown()
    assert decider.decide(GOOD, time="2026-03-01T12:00Z") == decider.decide(GOOD)
    with pytest.raises(DecisionError, match="ISO-8601"):
        decider.decide(GOOD, time="noon")
    rules = DfaasRules(small_trace())
    known = {name: {"arrivals": 7, "capacity": 5} for name in NAMES}
    with refused(DecisionError, "time", field="time"):
        Decider(rules, baseline_team("local", rules)).decide(known, time="2026-03-01")


def test_two_choices_of_known_arrivals_draw_for_so_many_requests_alone() -> None:
    rules = DfaasRules(small_trace())
    decider = Decider.of_rule("overflow/two-choices", rules)
    nodes = {name: {"arrivals": 7, "capacity": 5} for name in NAMES}
    assert sum(decider.decide(nodes)["site-0"].values()) == 2
    with refused(
        OutOfRangeError, "1,000,000", "100,000", "two-choices", field="nodes.site-0.arrivals"
    ):
        decider.decide({**nodes, "site-0": {"arrivals": 10**6, "capacity": 5}})
    plans = decider.by_rule("overflow/two-choices", "unknown")
    many = {name: {"last_arrivals": 10**9, "capacity": 5} for name in NAMES}
    assert plans.decide(many)["site-0"]["keep"] == 5


# --- Offsets to a rule, and numbers above the scales ----------------------------------------------


def residual(rule: str = "backlog=0.5/least", **kwargs: Any) -> Decider:
    """A team whose nodes keep one unit more than the rule, where that is legal."""
    rules = DfaasRules(small_trace(), queue=4, residual=rule, **kwargs)
    return Decider(rules, dict.fromkeys(rules.agents, More()))


class More(Heuristic):
    """Keeps one unit more than the rule of a residual policy, if that is legal."""

    def choose(self, observation: Any, rng: Any) -> Any:
        return np.where(observation["action_mask"][:, 2] != 0, 2, 0)


def test_a_plan_keeps_so_many_more_than_the_rule() -> None:
    nodes = {name: {"last_arrivals": 7, "capacity": 5, "queue": 1} for name in NAMES}
    team = residual(arrivals="unknown", link_limit=3)
    plan = {**dict.fromkeys(("share", "most", "order")), "route": "least"}
    caps = {"site-2": 3, "site-0": 3}
    assert team.decide(nodes)["site-1"] == {**plan, "keep": 7, "caps": caps}  # 5 + 2 - 1 + 1
    rule = team.by_rule("backlog=0.5/least")
    assert rule.decide(nodes)["site-1"] == {**plan, "keep": 6, "caps": caps}
    # A node that is full keeps what the rule keeps, and no more.
    full = {name: {"last_arrivals": 7, "capacity": 0, "queue": 4} for name in NAMES}
    assert team.decide(full)["site-1"] == {**plan, "keep": 0, "caps": caps}
    local = residual("local", arrivals="unknown")
    assert local.decide(nodes)["site-1"]["keep"] == 8  # all that there is room for
    assert local.decide(full)["site-1"]["keep"] is None


@pytest.mark.parametrize("beyond", [None, "clip", "rule"])
@pytest.mark.parametrize("arrivals", ["known", "unknown"])
@pytest.mark.parametrize(
    ("number", "value"),
    [("arrivals", 13), ("capacity", 13), ("spare", 13), ("lost", 13), ("lost", 2**31)],
)
def test_numbers_above_the_scales(number: str, value: int, arrivals: str, beyond: Any) -> None:
    """The largest load and capacity of the trace are 12; one node sends a larger number."""
    unknown_arrivals = arrivals == "unknown"
    counts = 3 if unknown_arrivals else None
    team = residual(arrivals=arrivals, beyond=beyond, last_counts=counts)
    rule = team.by_rule("backlog=0.5/least")
    name = "last_arrivals" if unknown_arrivals else "arrivals"
    for odd in ({}, {"site-2": value}):
        nodes: Any = {each: {"capacity": 5, name: 9} for each in NAMES}
        ended = {each: {"spare": 3, "lost": 1} for each in NAMES}
        for site, large in odd.items():
            place = nodes if number in ("arrivals", "capacity") else ended
            place[site] |= {name if number == "arrivals" else number: large}
        if unknown_arrivals:
            for node in nodes.values():  # the large count is not the newest
                node["last_arrivals"] = [1, node["last_arrivals"], 3]
        if odd and beyond is None:
            back = ".1" if unknown_arrivals and number == "arrivals" else ""
            key = f"{name}{back}" if number == "arrivals" else number
            top = "previous" if number in ("spare", "lost") else "nodes"
            with refused(OutOfRangeError, 12, field=f"{top}.site-2.{key}"):
                team.decide(nodes, ended)
            continue
        by_rule = bool(odd) and beyond == "rule"
        assert (team.decide(nodes, ended) == rule.decide(nodes, ended)) == by_rule


@pytest.mark.parametrize("beyond", ["clip", "rule"])
def test_the_largest_numbers_are_accepted_and_larger_ones_refused(beyond: Any) -> None:
    for team in (
        residual(arrivals="unknown", beyond=beyond),
        residual(beyond=beyond),
        residual("patient-margin/fill", beyond=beyond),
        residual("capacity=2+margin=3/spare", beyond=beyond, observation="summary"),
    ):
        assert team.limits == {"arrivals": 2**31, "capacity": 2**31, "queue": 4}
        name = "last_arrivals" if team.arrivals == "unknown" else "arrivals"
        nodes = {each: {"capacity": 2**31, name: 2**31} for each in NAMES}
        ended = {each: {"spare": 2**31, "lost": 2**31} for each in NAMES}
        assert set(team.decide(nodes, ended)) == set(NAMES)
        nodes["site-0"]["capacity"] += 1
        with refused(OutOfRangeError, f"{2**31:,}", field="nodes.site-0.capacity"):
            team.decide(nodes, ended)
        nodes["site-0"] |= {"capacity": 5, "queue": 5}
        with refused(OutOfRangeError, 4, field="nodes.site-0.queue"):
            team.decide(nodes, ended)


def test_a_route_that_draws_for_each_request_accepts_no_more_than_a_rule() -> None:
    nodes = {name: {"arrivals": 100_001, "capacity": 5} for name in NAMES}
    team = residual("overflow/two-choices", beyond="rule")
    assert team.limits["arrivals"] == team.by_rule("overflow/two-choices").limits["arrivals"]
    with refused(OutOfRangeError, "100,001", "100,000", field="nodes.site-0.arrivals"):
        team.decide(nodes)
    assert residual("overflow/two-choices", beyond="rule", arrivals="unknown").limits == {
        "arrivals": 2**31, "capacity": 2**31, "queue": 4,
    }  # fmt: skip


def test_the_number_of_a_rule_keeps_its_digits() -> None:
    """A rule of a third: floor(c + Q / 3) at Q = 3 is c + 1."""
    trace = small_trace()
    for text in ("backlog=0.3333333333333333", "backlog=0.3333333333333333+margin=0.12345678"):
        assert PlainRule.of(str(PlainRule.of(f"{text}/least"))) == PlainRule.of(f"{text}/least")
        rules = DfaasRules(trace, queue=3, residual=text, arrivals="unknown")
        team = Decider(rules, dict.fromkeys(rules.agents, More()))
        nodes = {name: {"last_arrivals": 7, "capacity": 5, "queue": 3} for name in NAMES}
        by_rule = Decider.of_rule(text, rules).decide(nodes)
        assert [plan["keep"] for plan in by_rule.values()] == [3] * 3
        assert [plan["keep"] for plan in team.decide(nodes).values()] == [4] * 3
    assert str(PlainRule.of("backlog=0.75+margin=2/least")) == "backlog=0.75+margin=2/least"
