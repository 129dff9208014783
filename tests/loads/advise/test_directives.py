"""The directives of proxies for an advice: which policies have some, and the numbers in them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from corral.loads.advise.directives import EXACT, NONE, directive_of_balancer, directive_of_rule
from corral.loads.advise.rehearsed import BALANCERS, Better, Costs, Played, Rehearsed
from corral.loads.rehearsal.balancers import balancer_of
from support.messages import shown

GATEWAY = Path(__file__).parents[3] / "docs" / "gateway.md"


def recommended(name: str, costs: dict[str, float]) -> Rehearsed:
    """A rehearsal of three days in which a balancer is recommended; today's rule costs 100."""
    cost_of = {**dict.fromkeys(BALANCERS, 900.0), "local/equal": 100.0, **costs}
    played = {label: Costs(np.full(3, cost), np.full(3, cost)) for label, cost in cost_of.items()}
    days = Played(np.full(3, 1_000), {}, {}, played, played, (0, 1, 2), 3)
    gain = days.savings("local/equal", name)
    better = Better(balancer_of(name), *gain, gain, None)
    return Rehearsed(days, "overflow/equal", "local/equal", None, better)


def test_a_balancer_has_its_directive_or_the_cheapest_one() -> None:
    for name in EXACT:
        assert directive_of_balancer(recommended(name, {name: 50.0})).endswith(f"{EXACT[name]}.")
    text = directive_of_balancer(recommended("room", {"room": 50.0, "choices=2": 80.0}))
    assert text.startswith(NONE)
    shown(text, "choices=2", 80, EXACT["choices=2"])
    dear = directive_of_balancer(recommended("room", {"room": 50.0}))
    assert dear.startswith(NONE)
    assert not any(directives in dear for directives in EXACT.values())


def test_a_balancer_that_counts_shares_the_counts_of_workers() -> None:
    for name in {*EXACT} - {"round-robin"}:
        shown(EXACT[name], "zone", "LEAST_REQUEST", "equal weights")


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ("backlog=0.7/least", ("11", "least_conn", "zone", "leastconn")),
        ("patient/equal", ("16", "max_conns=S", "roundrobin")),
        ("overflow/weighted", ("max_conns=S", "in proportion to capacity")),
        ("share=0.8333/equal", ("1 to 1", "load_balancing_weight")),
        ("share=0.1/equal", ("45 to 1",)),
        ("share=0.35/equal", ("65 to 7",)),
        ("share=0.999/equal", ("1 to 200", "HAProxy: weight")),
        ("share=0.01/equal", ("495 to 1", "HAProxy: none", "256")),
        ("share=1/equal", (EXACT["round-robin"],)),
        ("overflow/fill", ("NGINX: none", "first", "maxconn=S")),
        ("capacity=0.5/equal", ("50 %", "max_conns=S")),
        ("backlog=0.5+margin=1/least", (NONE,)),
        ("patient-margin/equal", (NONE,)),
        ("random/equal", (NONE,)),
        ("overflow/all-to-shortest", (NONE,)),
    ],
)
def test_a_rule_has_the_nearest_directives(rule: str, values: tuple[str, ...]) -> None:
    shown(directive_of_rule(rule, {"queue": 16}, 6), *values)


def test_local_play_needs_no_directive() -> None:
    assert directive_of_rule("local/equal", {}, 3) == ""
    assert directive_of_rule("share=0/equal", {}, 3) == ""


def test_the_page_has_the_same_directives() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (NGINX.*) \|$", GATEWAY.read_text(), re.M)
    assert dict(rows) == EXACT
    assert {*BALANCERS} - {*EXACT} == {"overflow", "room"}
