"""A rule that decides for any nodes."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import PAIRS
from corral.errors import UnknownNameError
from corral.loads.export.decider import Decider, about_rules
from corral.loads.serve import rule as module
from corral.loads.serve.rule import Rule
from support.loads import small_trace

RULES = DfaasRules(small_trace(4), queue=5)
NAMES = RULES.trace.nodes
DRAWN = {pair for pair in PAIRS if pair.startswith("random")}


def drawn(
    names: Any, rng: np.random.Generator, queue: int = 40
) -> tuple[dict[str, Any], dict[str, Any]]:
    def number(most: int = 40) -> int:
        return int(rng.integers(most + 1))

    nodes = {n: {"arrivals": number(), "capacity": number(), "queue": number(queue)} for n in names}
    return nodes, {n: {"spare": number(), "lost": number()} for n in names}


@pytest.mark.parametrize("pair", sorted(set(PAIRS) - DRAWN))
def test_it_decides_as_the_rule_of_a_replay_for_some_nodes_too(pair: str) -> None:
    rule, rng = Rule(pair, about_rules(RULES)), np.random.default_rng(0)
    alone = Decider.of_rule(pair, RULES)
    for _ in range(20):
        nodes, previous = drawn(NAMES, rng, queue=RULES.queue)
        if "two" not in pair:
            assert rule.decide(nodes, previous)[0] == alone.decide(nodes, previous)
        for names in (NAMES[:2], (*NAMES, "new"), NAMES[1:2]):
            nodes, previous = drawn(names, rng)
            forward, after = rule.decide(nodes, previous)
            assert after is None
            assert forward.keys() == nodes.keys()
            for name, parts in forward.items():
                assert sum(parts.values()) <= nodes[name]["arrivals"]
                assert set(parts) <= set(names) - {name}


def test_some_of_the_nodes_keep_their_order() -> None:
    """Half of 3 requests is 1, and the odd one goes to the next in cyclic order."""
    nodes = {name: {"arrivals": 3, "capacity": 0} for name in (NAMES[3], NAMES[2], NAMES[0])}
    found = Rule("overflow", about_rules(RULES)).decide(nodes)[0]
    assert found[NAMES[2]] == {NAMES[3]: 2, NAMES[0]: 1}
    assert found[NAMES[3]] == {NAMES[0]: 2, NAMES[2]: 1}


def test_who_has_not_reported_has_nothing_to_spare() -> None:
    nodes = {name: {"arrivals": 6, "capacity": 0} for name in NAMES}
    previous = {NAMES[1]: {"spare": 3, "lost": 0}, "gone": {"spare": 9, "lost": 0}}
    found = Rule("margin/spare", about_rules(RULES)).decide(nodes, previous)[0]
    assert found[NAMES[0]] == {NAMES[1]: 3}
    assert found[NAMES[1]] == {}


def test_a_server_says_which_nodes_are_others() -> None:
    rule = Rule("overflow", about_rules(RULES))
    nodes = {name: {"arrivals": 6, "capacity": 4} for name in NAMES}
    ended = {name: {"spare": 1, "lost": 0} for name in NAMES}
    for previous in (None, ended):
        found = rule.answer(nodes, previous)
        assert (found.by, found.reason, found.detail) == ("rule", None, None)
    wrong = {"site1": nodes[NAMES[1]], NAMES[0]: nodes[NAMES[0]]}
    found = rule.answer(wrong)
    assert found.reason == "nodes"
    assert found.detail == f"unknown: site1; missing: {', '.join(NAMES[1:])}"
    assert found.forward == rule.decide(wrong)[0]
    found = rule.answer(nodes, {name: ended[name] for name in NAMES[1:]})
    assert (found.reason, found.detail) == ("nodes", f"missing: {NAMES[0]}")


def test_links_of_the_run_hold_and_a_new_node_has_none() -> None:
    rules = DfaasRules(small_trace(), neighbours={"node_0": ["node_1", "node_2"]})
    names = [*rules.trace.nodes, "new"]
    nodes = {name: {"arrivals": 4, "capacity": 0} for name in names}
    found = Rule("overflow/equal", about_rules(rules)).decide(nodes)[0]
    assert found == {names[0]: {names[1]: 2, names[2]: 2}, names[1]: {}, names[2]: {}, "new": {}}


def test_late_reports_count_as_they_come() -> None:
    rules = DfaasRules(small_trace(), report_delay=3)
    nodes = {name: {"arrivals": 4, "capacity": 0} for name in rules.trace.nodes}
    previous = {name: {"spare": 2, "lost": 0} for name in rules.trace.nodes}
    assert (
        sum(Rule("margin/equal", about_rules(rules)).decide(nodes, previous)[0][NAMES[0]].values())
        == 4
    )


@pytest.mark.parametrize(("nodes", "sets"), [(3, 40), (60, 12), (200, 3)])
def test_what_is_kept_for_sets_of_nodes_is_bounded_by_bytes(
    nodes: int, sets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An autoscaler gives new names at every step."""
    monkeypatch.setattr(module, "KEPT_BYTES", 1_500_000)
    rule = Rule("overflow", about_rules(RULES))

    def asked(names: str) -> dict[str, Any]:
        return {f"{names}-{i}": {"arrivals": 1, "capacity": 0} for i in range(nodes)}

    rule.decide(asked("first"))
    gc.collect()
    tracemalloc.start()
    for k in range(sets):
        rule.decide(asked("é" * 150 + str(k)))
    for k in range(sets):
        rule.decide(asked("second" + str(k)))
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 1_500_000
    again = rule._for(frozenset(NAMES))
    assert rule._for(frozenset(NAMES)) is again  # the run's own stay


def test_the_set_that_was_not_asked_for_longest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 3 * module.bytes_of(1))
    rule = Rule("overflow", about_rules(RULES))
    made = {name: rule._for(frozenset([name])) for name in "abc"}
    assert rule._for(frozenset("a")) is made["a"]
    rule._for(frozenset("d"))
    assert rule._for(frozenset("a")) is made["a"]
    assert rule._for(frozenset("b")) is not made["b"]


def test_no_rule() -> None:
    with pytest.raises(UnknownNameError, match="overflow"):
        Rule("overflw", about_rules(RULES))
    with pytest.raises(ValueError, match="random"):
        Rule("random/equal", about_rules(RULES))


@pytest.mark.parametrize("pair", sorted(set(PAIRS) - DRAWN))
def test_the_largest_numbers_that_a_server_takes_are_forwarded_as_what_they_are(pair: str) -> None:
    rule, rng = Rule(pair, about_rules(RULES)), np.random.default_rng(2)
    sizes = [0, 1, 7, 16_777_217, 999_999_999, 1_000_000_000]
    for _ in range(50):
        a, c, q, s, x = rng.choice(sizes, size=(5, 4)).tolist()
        nodes = {
            n: {"arrivals": a[i], "capacity": c[i], "queue": q[i]} for i, n in enumerate(NAMES)
        }
        previous = {n: {"spare": s[i], "lost": x[i]} for i, n in enumerate(NAMES)}
        for name, parts in rule.decide(nodes, previous)[0].items():
            assert sum(parts.values()) <= nodes[name]["arrivals"]
            assert min(parts.values(), default=1) > 0
            if pair.startswith("overflow") and max(a + c) < 2**23:
                overflow = nodes[name]["arrivals"] - nodes[name]["capacity"]
                assert sum(parts.values()) == max(0, overflow)
