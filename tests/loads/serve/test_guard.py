"""The guard: the rule decides where the team should not, and each reason is counted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from corral.envs.dfaas_v0 import DfaasRules
from corral.loads.export.decider import about_rules
from corral.loads.serve.guard import Guard, Ranges, nonsense
from support.loads import small_trace
from support.messages import refused, shown

RULES = DfaasRules(small_trace(), queue=5, load_scale=20, capacity_scale=20)
NAMES = RULES.trace.nodes
NODES = {name: {"arrivals": 6, "capacity": 4, "queue": 1} for name in NAMES}
PREVIOUS = {name: {"spare": 2, "lost": 1} for name in NAMES}
BY_TEAM = {NAMES[0]: {NAMES[1]: 2}, NAMES[1]: {}, NAMES[2]: {}}
BY_RULE = {NAMES[0]: {}, NAMES[1]: {}, NAMES[2]: {NAMES[0]: 1}}


def seen_by(rules: DfaasRules, margin: float = 0.1) -> Ranges:
    return Ranges.seen(about_rules(rules), margin)


def guard_of(team: Callable[..., Any] | None = None, margin: float = 0.1) -> Guard:
    def rule(nodes: Any, previous: Any, state: Any) -> tuple[Any, None]:
        return BY_RULE, None

    default = lambda nodes, previous, state: (BY_TEAM, "after")  # noqa: E731
    return Guard(team or default, rule, seen_by(RULES, margin))


def changed(given: dict[str, dict[str, int]], key: str, value: int) -> dict[str, dict[str, int]]:
    found = copy.deepcopy(given)
    found[NAMES[1]][key] = value
    return found


def test_inside_the_ranges_the_team_decides() -> None:
    guard = guard_of()
    found = guard.decide(NODES, PREVIOUS, "before")
    assert (found.forward, found.by, found.reason, found.state) == (BY_TEAM, "team", None, "after")
    assert guard.decide(NODES).by == "team"
    assert guard.counts == {}


@pytest.mark.parametrize(
    ("key", "value", "inside"),
    [
        ("arrivals", 14, 13),  # 12 are the most of the trace, and 10 % of them the margin
        ("capacity", 14, 13),
        ("queue", 6, 5),
        ("spare", 14, 13),
        ("lost", 14, 13),
    ],
)
def test_outside_of_them_the_rule_does(key: str, value: int, inside: int) -> None:
    guard = guard_of()

    def ask(number: int) -> Any:
        if key in ("spare", "lost"):
            return guard.decide(NODES, changed(PREVIOUS, key, number), "before")
        return guard.decide(changed(NODES, key, number), PREVIOUS, "before")

    assert ask(inside).by == "team"
    found = ask(value)
    assert (found.forward, found.by, found.reason) == (BY_RULE, "rule", key)
    assert found.detail.startswith(f"{NAMES[1]}: {key} {value}, not in 0 to ")
    assert found.state == "before"  # the team goes on with what it remembers
    assert guard.counts == {key: 1}


def test_a_wider_margin_lets_more_in_and_none_less() -> None:
    beyond = changed(NODES, "arrivals", 14)
    assert guard_of(margin=0.2).decide(beyond).by == "team"
    assert guard_of(margin=0).decide(changed(NODES, "arrivals", 13)).by == "rule"
    assert guard_of(margin=0).decide(changed(NODES, "arrivals", 12)).by == "team"


def test_low_numbers_are_outside_where_training_had_none() -> None:
    rules = DfaasRules(small_trace(), capacity=10, capacity_scale=20)
    ranges = seen_by(rules)
    assert ranges.of[NAMES[0]]["capacity"] == (9, 11)
    reason = ranges.outside({name: {"arrivals": 1, "capacity": 8} for name in NAMES}, None)
    assert reason == ("capacity", f"{NAMES[0]}: capacity 8, not in 9 to 11")


def test_no_margin_goes_beyond_what_the_team_takes() -> None:
    """A network has an input for numbers up to the scales, and refuses larger ones."""
    rules = DfaasRules(small_trace(), queue=50)
    ranges = seen_by(rules, margin=0.5)
    found = {key: high for key, (_, high) in ranges.of[NAMES[0]].items()}
    assert found == {"arrivals": 12, "capacity": 12, "queue": 50, "spare": 12, "lost": 12}
    beyond = {name: {"arrivals": 3, "capacity": 13} for name in NAMES}
    assert ranges.outside(beyond, None) == ("capacity", f"{NAMES[0]}: capacity 13, not in 0 to 12")
    seen = DfaasRules(small_trace(), observation="summary", queue=50)
    assert seen_by(seen, margin=0.5).of[NAMES[0]]["arrivals"][1] == 18


def test_only_the_rows_of_the_training_count() -> None:
    trace = small_trace()
    rules = DfaasRules(trace, rows=(1, 4), max_cycles=3)
    highest = trace.arrivals[1:4, 0].max()
    assert highest < trace.arrivals[:, 0].max()
    assert seen_by(rules, 0).of[NAMES[0]]["arrivals"][1] == highest


def test_an_augmented_load_goes_further_as_far_as_its_scale() -> None:
    rules = DfaasRules(small_trace(), augment={"scale": 0.1}, load_scale=14)
    low, high = seen_by(rules, 0).of[NAMES[0]]["arrivals"]
    assert high == 14  # 12 exp(0.2) = 14.7, and no more than the scale
    assert low == 0


@pytest.mark.parametrize(
    ("nodes", "previous", "detail"),
    [
        ({name: NODES[name] for name in NAMES[:2]}, None, f"missing: {NAMES[2]}"),
        ({**NODES, "new": NODES[NAMES[0]]}, None, "unknown: new"),
        (NODES, {NAMES[0]: PREVIOUS[NAMES[0]]}, f"missing: {NAMES[1]}, {NAMES[2]}"),
    ],
)
def test_other_nodes_are_for_the_rule(nodes: Any, previous: Any, detail: str) -> None:
    guard = guard_of()
    found = guard.decide(nodes, previous)
    assert (found.by, found.reason, found.detail) == ("rule", "nodes", detail)
    assert guard.counts == {"nodes": 1}


def test_a_team_that_raises_is_covered() -> None:
    def team(nodes: Any, previous: Any, state: Any) -> Any:
        raise RuntimeError("weights are gone")

    guard = guard_of(team)
    found = guard.decide(NODES, PREVIOUS, "before")
    assert (found.forward, found.by, found.reason) == (BY_RULE, "rule", "raised")
    assert found.detail == "RuntimeError: weights are gone"
    assert found.state is None  # it begins anew
    assert guard.counts == {"raised": 1}


@pytest.mark.parametrize(
    ("forward", "values"),
    [
        (None, ("each node",)),
        ({}, ("each node",)),
        ({**BY_TEAM, "new": {}}, ("each node",)),
        ({**BY_TEAM, NAMES[1]: 3}, (NAMES[1], "3", "requests by node")),
        ({**BY_TEAM, NAMES[1]: {NAMES[0]: -1}}, (NAMES[1], "-1 requests", NAMES[0])),
        ({**BY_TEAM, NAMES[1]: {NAMES[0]: 1.0}}, (NAMES[1], "1.0 requests", NAMES[0])),
        ({**BY_TEAM, NAMES[1]: {NAMES[0]: float("nan")}}, (NAMES[1], "nan requests", NAMES[0])),
        ({**BY_TEAM, NAMES[1]: {NAMES[0]: True}}, (NAMES[1], "True requests", NAMES[0])),
        ({**BY_TEAM, NAMES[1]: {NAMES[1]: 1}}, (NAMES[1], "1 requests", "neighbor")),
        ({**BY_TEAM, NAMES[1]: {"new": 1}}, (NAMES[1], "1 requests", "new", "neighbor")),
        ({**BY_TEAM, NAMES[1]: {NAMES[0]: 4, NAMES[2]: 3}}, (NAMES[1], "7 of 6")),
    ],
)
def test_nonsense_is_for_the_rule(forward: Any, values: tuple[str, ...]) -> None:
    guard = guard_of(lambda nodes, previous, state: (forward, "after"))
    found = guard.decide(NODES, PREVIOUS)
    assert (found.forward, found.by, found.reason) == (BY_RULE, "rule", "nonsense")
    shown(found.detail, *values)
    assert guard.counts == {"nonsense": 1}


def test_requests_go_to_linked_nodes_alone() -> None:
    rules = DfaasRules(small_trace(), neighbours={"node_0": ["node_1"]})
    neighbours = seen_by(rules).neighbours
    assert neighbours == {NAMES[0]: {NAMES[1]}, NAMES[1]: set(), NAMES[2]: set()}
    assert nonsense(BY_TEAM, NODES, neighbours) is None
    there = {NAMES[0]: {NAMES[2]: 1}, NAMES[1]: {}, NAMES[2]: {}}
    shown(str(nonsense(there, NODES, neighbours)), NAMES[0], NAMES[2], "neighbor")


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf"), True])
def test_a_margin_is_a_number_from_0(margin: float) -> None:
    with refused(ValueError, f"margin={margin}", 0):
        seen_by(RULES, margin)
