"""The textbook: plain rules played side by side, and fitted to a load."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np
import pytest

from corral.data import Trace, TraceSpec, make_trace
from corral.envs.dfaas_v0.network import Network
from corral.envs.dfaas_v0.plain_rules import PlainRule, Seen, plans_of
from corral.envs.dfaas_v0.routes import ROUTE_NAMES, canonical_route
from corral.errors import ArgumentError, UnknownNameError
from corral.loads.replay import replay
from corral.loads.textbook import TODAY, fit, play_rules, pseudo_code_of, race, sentence_of
from corral.loads.textbook.words import WIDTH, short_of
from support.messages import shown

HARD: dict[str, Any] = {
    "second_offer": False,
    "forward_cost": 0.2,
    "wait_cost": 0.05,
    "queue": 7,
    "link_limit": 4,
}
SOFT: dict[str, Any] = {"forward_cost": 0.1, "queue": 0, "report_delay": 3}
RULES = (
    *("local/equal", "random/least", "random/equal", "overflow/two-choices", "patient/all-to-two"),
    *("patient-margin/equal", "static/all-to-shortest", "margin/weighted", "backlog=0.6/least"),
    *("backlog=1.5+margin=1.2/fill", "capacity=0.9+margin=0.5/all-to-two", "share=0.3/equal"),
    *("capacity=1.1/two-choices", "backlog=0.3/equal", "threshold/least", "backlog=1/least"),
)


def random_trace(steps: int = 100, nodes: int = 3, seed: int = 0) -> Trace:
    rng = np.random.default_rng(seed)
    return Trace(
        nodes=tuple(f"n{i}" for i in range(nodes)),
        arrivals=rng.integers(0, 21, (steps, nodes)),
        capacity=rng.integers(0, 21, (steps, nodes)),
        times=np.arange(steps),
        clock="integer",
    )


@pytest.mark.parametrize("arrivals", ["known", "unknown"])
@pytest.mark.parametrize("settings", [HARD, SOFT], ids=["hard", "soft"])
def test_sums_are_those_of_a_replay(settings: Any, arrivals: str) -> None:
    split = ("overflow/capacity", "backlog=1/spare") if arrivals == "known" else ()
    rules = [*RULES, *split]
    same: dict[str, Any] = {"window": 20, "seed": 5, "arrivals": arrivals, **settings}
    trace = random_trace(50)  # the last window is shorter
    found = play_rules(trace, rules, **same)
    wanted = replay(trace, rules, optimum_windows=0, **same).sums
    assert list(found) == rules
    for rule in rules:
        for key, values in vars(wanted[rule]).items():
            np.testing.assert_array_equal(vars(found[rule])[key], values, f"{rule} {key}")


def test_rows_and_settings_of_teams_are_taken() -> None:
    trace, rules = random_trace(90), ["local/equal", "patient/two", "share=0.2/least"]
    same: dict[str, Any] = {"rows": (10, 80), "window": 30, "seed": 2, **HARD}
    wanted = replay(trace, rules, optimum_windows=0, **same).sums
    more = {"amount": "quantile", "max_level": 5, "observation": "summary", "route": "choose"}
    found = play_rules(trace, [PlainRule.of(rule) for rule in rules], **same, **more)
    for rule, wanted_rule in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(found[rule].cost, wanted[wanted_rule].cost, rule)


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    play_rules(random_trace(60), RULES, window=30, progress=lambda *what: told.append(what), **HARD)
    assert told[-1][1:] == (len(RULES), len(RULES))


# --- Fitting -------------------------------------------------------------------------------------


def made_trace(days: int = 6, **spec: Any) -> Trace:
    """Return a small load with days and bursts: steps of half an hour."""
    own = {"nodes": 3, "step": 1800, "seed": 3, "mean": 16, "largest": 60, "headroom": 1.2}
    return make_trace(TraceSpec(days=days, **{**own, "bursts": 3, **spec}))


LOADS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "links": ({}, {"queue": 16, "forward_cost": 0.2, "link_limit": 7, "second_offer": False}),
    "no queue": ({"seed": 4, "nodes": 4, "spread": 0.4}, {"forward_cost": 0.3, "report_delay": 2}),
    "overloaded": (
        {"seed": 5, "headroom": 0.95},
        {"queue": 5, "wait_cost": 0.1, "forward_cost": 0.25, "second_offer": False},
    ),
}
ROUTES = ("equal", "weighted", "least", "two-choices", "fill", "all-to-shortest", "all-to-two")


def fine_grid(queue: int) -> list[str]:
    """Return rules of a fine grid, those without a number among them."""
    amounts = [f"capacity={w:.2f}" for w in np.arange(0.5, 1.6, 0.05)]
    amounts += [f"share={s:.2f}" for s in np.arange(0.05, 0.8, 0.05)]
    if queue:
        amounts += [f"backlog={x:.2f}" for x in np.arange(0, 2.01, 0.1)]
    margins = ("", "+margin=0.5", "+margin=1", "+margin=2")
    tuned = [f"{a}{m}/{r}" for a in amounts for m in margins for r in ROUTES]
    return [*TODAY, *tuned]


@pytest.mark.parametrize(
    ("load", "arrivals"),
    [
        ("links", "unknown"),
        pytest.param("no queue", "known", marks=pytest.mark.slow),
        ("overloaded", "unknown"),
        pytest.param("links", "known", marks=pytest.mark.slow),
    ],
)
def test_no_rule_of_a_fine_grid_is_better(load: str, arrivals: str) -> None:
    spec, settings = LOADS[load]
    trace = made_trace(**spec)
    fitted = fit(trace, arrivals=arrivals, **settings)
    grid = fine_grid(settings.get("queue", 0))
    if arrivals == "unknown":
        grid = [rule for rule in grid if rule.split("/")[1] not in ("capacity", "spare")]
    sums = play_rules(trace, grid, arrivals=arrivals, **settings)
    best = min(each.cost.sum() for each in sums.values())
    assert fitted.costs[str(fitted.rule)].sum() <= best + 0.001 * trace.arrivals.sum()


@pytest.mark.slow
def test_a_few_windows_lead_to_the_same_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, settings = LOADS["links"]
    trace = made_trace(days=12, **spec)
    every = fit(trace, **settings)
    monkeypatch.setattr(race, "WORK", 0)
    few = fit(trace, **settings)
    assert few.days_played < every.days_played
    costs = (found.costs[str(found.rule)].sum() for found in (few, every))
    assert next(costs) <= next(costs) + 0.001 * trace.arrivals.sum()


@pytest.mark.slow
def test_a_fit_is_the_same_each_time_and_tells_what_it_played() -> None:
    spec, settings = LOADS["links"]
    trace = made_trace(**spec)
    always = ("local/equal", "random/least", "overflow/two")
    told: list[tuple[str, int, int]] = []

    def show(what: str, done: int, total: int) -> None:
        told.append((what, done, total))

    one, two = (fit(trace, always=always, seed=1, progress=show, **settings) for _ in range(2))
    assert (one.rule, list(one.costs)) == (two.rule, list(two.costs))
    sums = play_rules(trace, list(one.costs), seed=1, **settings)
    for label, cost in one.costs.items():
        np.testing.assert_array_equal(cost, sums[label].cost)
        np.testing.assert_array_equal(one.lost[label], sums[label].lost)
    assert {str(PlainRule.of(rule)) for rule in always} <= set(one.costs)
    best = one.best_of_others()
    assert best is not None
    assert best.cost.sum() >= one.costs[str(one.rule)].sum()
    assert one.days_played >= len(one.costs) * len(one.arrivals)
    done, total = np.array([line[1:] for line in told]).T
    assert (done <= total).all()
    assert done[-1] == total[-1]


def test_one_route_alone() -> None:
    spec, settings = LOADS["links"]
    for route in ("equal", "two-choices", "all-to-two"):
        fitted = fit(made_trace(**spec), route=route, arrivals="unknown", **settings)
        assert fitted.rule.route == canonical_route(route)
    with pytest.raises(ArgumentError, match="spare"):
        fit(made_trace(**spec), route="spare", arrivals="unknown", **settings)
    with pytest.raises(UnknownNameError):
        fit(made_trace(**spec), route="leest", **settings)


def test_where_forwarding_cannot_pay_the_rule_is_local() -> None:
    settings = LOADS["links"][1]
    fitted = fit(made_trace(headroom=4.0, bursts=0, noise=0.0), **settings)
    assert fitted.rule.amount == "local"
    assert fitted.costs["local/equal"].sum() == 0
    assert pseudo_code_of(fitted.rule, settings) == fitted.pseudo_code


def test_of_equal_rules_the_one_within_the_links_is_named() -> None:
    # Without a price of forwarding, requests beyond the links are lost here or there.
    trace = made_trace(days=2)
    limited = fit(trace, queue=5, link_limit=3, always=("patient/equal",))
    assert (limited.costs["patient/equal"] == limited.costs["backlog=1/equal"]).all()
    assert limited.rule.within_links
    free = fit(trace, queue=0)
    assert free.rule.number is None or free.rule.number != 1


def test_random_is_played_and_never_the_best() -> None:
    trace = random_trace(60)
    fitted = fit(trace, window=20, always=("random/equal",), forward_cost=0.2)
    assert "random/equal" in fitted.costs
    assert fitted.rule.amount != "random"
    best = fitted.best_of_others()
    assert best is not None
    assert "random/equal" not in best.labels


# --- Words ---------------------------------------------------------------------------------------

WORDED = (
    *("local", "overflow", "threshold", "margin", "patient", "patient-margin", "static"),
    *("backlog=0", "backlog=0.6", "backlog=2", "capacity=1", "capacity=0.85", "share=0.3"),
    *("backlog=0.5+margin=1", "capacity=1.2+margin=0.7", "share=0.6+margin=2"),
)


def run(code: str, given: dict[str, Any], arrivals: int) -> list[Any]:
    """Run pseudo-code: return where each of the arrivals goes, None for those that stay."""
    began, _, each = code.partition("at each request:\n")
    where: list[Any] = []
    names: dict[str, Any] = {**given, "where": where, "floor": math.floor, "ceil": math.ceil}
    each = each.replace("serve here", "where.append(None)").replace("send to n", "where.append(n)")
    exec(textwrap.dedent(began.replace("at each step:\n", "")), names)
    request = compile(textwrap.dedent(each), "request", "exec")
    for _ in range(arrivals):
        exec(request, names)
    return where


@pytest.mark.parametrize("route", ["equal", "weighted", "least", "fill", "all-to-shortest"])
@pytest.mark.parametrize("limit", [None, 3])
def test_pseudo_code_does_what_the_rule_does(route: str, limit: int | None) -> None:
    rng = np.random.default_rng(7)
    nodes, num_envs, queue = 4, 8, 9
    links = rng.random((nodes, nodes)) < 0.8
    links[0] = True
    np.fill_diagonal(links, False)
    arrivals, capacity, spare = rng.integers(0, 25, (3, num_envs, nodes))
    waiting = rng.integers(0, queue + 1, (num_envs, nodes))
    network = Network(links, canonical_route(route), False, limit)
    seen = Seen(capacity, waiting, spare, links, queue, limit)
    basis = capacity if route == "weighted" else spare
    for text in WORDED:
        rule = PlainRule.of(f"{text}/{route}")
        plans = plans_of([rule], seen)
        forwarded = plans.forwarded(arrivals, network)
        offered = network.by(rule.route).offered(forwarded, basis, None, plans.caps)
        code = pseudo_code_of(rule, {"queue": queue, "link_limit": limit})
        assert max(map(len, code.splitlines())) <= WIDTH
        for b, i in np.ndindex(num_envs, nodes):
            near = [j % nodes for j in range(i + 1, i + nodes) if links[i, j % nodes]]
            given = {"c": capacity[b, i], "q": waiting[b, i], "neighbours": near}
            for name, values in (("spare", spare), ("capacity", capacity)):
                given[name] = {n: int(values[b, n]) for n in near}
            if near:
                where = run(code, given, arrivals[b, i])
                assert [where.count(n) for n in range(nodes)] == offered[b, i].tolist(), code


@pytest.mark.parametrize("route", ROUTE_NAMES)
def test_every_rule_has_words(route: str) -> None:
    if route == "choose":
        return
    for text in (*WORDED, "random"):
        rule = PlainRule.of(f"{text}/{route}")
        for settings in ({"queue": 16, "link_limit": 7}, {"queue": 0, "link_limit": None}, {}):
            sentence = sentence_of(rule, settings)
            assert sentence[0] + sentence[-1] == "A."
            assert "  " not in sentence
            lines = pseudo_code_of(rule, settings).splitlines()
            assert len(lines) <= 13
            assert max(map(len, lines)) <= WIDTH <= 76


def test_a_share_of_five_sixths_in_turn_spreads_all_requests_evenly() -> None:
    """Each of six nodes keeps a sixth of its requests and offers a sixth to each other node."""
    nodes = 6
    links = ~np.eye(nodes, dtype=bool)
    arrivals = np.array([[600, 0, 1200, 300, 60, 6000]])
    rule = PlainRule.of("share=0.8333/equal")
    network = Network(links, canonical_route("equal"), False, None)
    some = np.full((1, nodes), 50)
    plans = plans_of([rule], Seen(some, 0 * some, some, links, 0, None))
    forwarded = plans.forwarded(arrivals, network)
    offered = network.by(rule.route).offered(forwarded, some, None, plans.caps)
    received = arrivals - forwarded + offered.sum(axis=1)
    assert np.abs(received - arrivals.sum() / nodes).max() <= nodes


def test_rules_in_short_say_which_requests_stay() -> None:
    assert short_of(PlainRule.of("overflow/round-robin")) == "local first, overflow in turn"
    shown(short_of(PlainRule.of("share=0.8333/equal")), "83.33 %")
    assert "queue" in short_of(PlainRule.of("patient/least"))
