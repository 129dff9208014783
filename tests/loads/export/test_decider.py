"""Decisions on the numbers of the moment are what the environment and the policies play."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from corral.envs.core import Array
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.envs.policy import Decision, PolicyBase
from corral.errors import ActionError, IllegalActionError, UnknownNameError
from corral.loads.export.core import NodeDecider
from corral.loads.export.decider import Decider, DecisionError, OutOfRangeError
from support.deciding import Hashing, Offering, presented
from support.dfaas_configurations import random_configuration
from support.loads import small_trace
from support.messages import refused
from support.thinned import fast_every


def episode(
    rules: DfaasRules, decider: Decider, seed: int, team: Mapping[str, Any], scalar: Any
) -> Iterator[tuple[dict[str, dict[str, int]], Array]]:
    """Play an episode with ``team``, and yield decisions and forwarded requests."""
    state = rules.start([np.random.default_rng(seed)])
    scalar.draws = state.draws[0].tolist()
    scalar.reset()
    memory = decider.start(seed)
    hidden = {agent: team[agent].initial_state(1) for agent in rules.agents}
    previous = None
    for _ in range(rules.max_cycles):
        arrivals, capacity, _ = rules.load.at(state, rules._row(state))[:, 0]
        given = presented(decider.nodes, arrivals=arrivals, capacity=capacity, queue=state.queue[0])
        decided = decider.decide(given, previous, memory)
        seen = rules.observe(state)
        actions = np.zeros((1, len(rules.agents)), dtype=np.int64)
        for i, agent in enumerate(rules.agents):
            rng = np.random.default_rng(0)
            decision = team[agent].act(seen[agent], hidden[agent], rng, deterministic=True)
            actions[0, i], hidden[agent] = decision.action[0], decision.state
        scalar.step(actions[0].tolist())
        outcome = rules.step(state, actions)
        state = outcome.state
        yield decided, outcome.info["forwarded"][0]
        previous = presented(decider.nodes, spare=state.spare[0], lost=state.lost[0])


@pytest.mark.parametrize("block", fast_every(4, range(8)))
def test_it_plays_as_the_environment_in_random_configurations(block: int) -> None:
    forwarding, routes = 0, set()
    for seed in range(40 * block, 40 * block + 40):
        config = random_configuration(np.random.default_rng(seed))
        nodes = len(config["trace"].nodes)
        names = tuple(f"site {i}" for i in range(nodes))
        object.__setattr__(config["trace"], "nodes", names)
        try:
            rules = DfaasRules(**config)
        except ValueError:  # route "choose" with too many actions
            assert config["route"] == "choose"
            continue
        played, decided = ({agent: Hashing() for agent in rules.agents} for _ in range(2))
        decider = Decider(rules, decided)
        scalar = Offering(**config)
        for offers, forwarded in episode(rules, decider, seed, played, scalar):
            assert list(offers) == list(names)
            assert [sum(offers[name].values()) for name in names] == forwarded.tolist()
            assert list(offers.values()) == scalar.offers(names)
            forwarding += int(forwarded.any())
        for agent in rules.agents:
            assert decided[agent].seen == played[agent].seen
        routes.add(config["route"])
    assert forwarding > 50
    assert len(routes) == 6


@pytest.mark.parametrize("pair", ["overflow/two", "patient-margin/spare", "margin/shortest"])
@pytest.mark.parametrize("delay", [0, 1, 3])
def test_a_rule_forwards_to_the_request(pair: str, delay: int) -> None:
    amount, _, route = pair.partition("/")
    trace = small_trace(steps=60, largest=500)
    config: dict[str, Any] = {"max_cycles": 60, "start": 0, "queue": 100, "route": route}
    config |= {"report_delay": delay, "max_level": 10}
    rules = DfaasRules(trace, **config).in_requests()
    decider = Decider.of_rule(pair, DfaasRules(trace, **config | {"route": "equal"}))
    sums, any_more = 0, 0
    scalar = Offering(trace, **config | {"max_level": 1_000})  # levels of one request
    for offers, forwarded in episode(rules, decider, 5, baseline_team(amount, rules), scalar):
        assert [sum(row.values()) for row in offers.values()] == forwarded.tolist()
        assert list(offers.values()) == scalar.offers(trace.nodes)
        sums += int(forwarded.sum())
        any_more += int((forwarded % 50 != 0).any())
    assert sums > 0
    assert any_more  # not in levels


# --- Input ---------------------------------------------------------------------------------------

RULES = DfaasRules(small_trace(), queue=4)  # site-0 .. site-2, loads and capacities up to 12
GOOD = {f"site-{i}": {"arrivals": 7, "capacity": 5} for i in range(3)}
ENDED = {f"site-{i}": {"spare": 1, "lost": 0} for i in range(3)}


def decider_of_rules(**kwargs: Any) -> Decider:
    rules = DfaasRules(small_trace(), queue=4, **kwargs)
    return Decider(rules, baseline_team("overflow", rules))


@pytest.mark.parametrize(
    ("wrong", "field", "values"),
    [
        ({"site-1": {"arrivals": 13}}, "nodes.site-1.arrivals", ("13", "12", "by_rule")),
        ({"site-1": {"capacity": 13}}, "nodes.site-1.capacity", ("13", "12", "by_rule")),
        ({"site-1": {"queue": 5}}, "nodes.site-1.queue", ("5", "4", "by_rule")),
        ({"site-1": {"arrivals": -1}}, "nodes.site-1.arrivals", ("-1", "0 to 12")),
        ({"site-1": {"arrivals": 1.5}}, "nodes.site-1.arrivals", ("1.5", "0 to 12")),
        ({"site-1": {"arrivals": float("nan")}}, "nodes.site-1.arrivals", ("nan", "0 to 12")),
        ({"site-1": {"arrivals": "7"}}, "nodes.site-1.arrivals", ("'7'", "0 to 12")),
        ({"site-1": {"arrivals": True}}, "nodes.site-1.arrivals", ("True", "0 to 12")),
        ({"site-1": {"arrivals": None}}, "nodes.site-1.arrivals", ("None", "0 to 12")),
        (
            {"site-1": {"load": 3}},
            "nodes.site-1.load",
            ("unknown", "arrivals, capacity, queue"),
        ),
        ({"site-9": {"arrivals": 3}}, "nodes", ("site-9 unknown", "site-0, site-1, site-2")),
    ],
)
def test_mistakes_are_told_by_their_field_and_nothing_has_changed(
    wrong: dict[str, dict[str, Any]], field: str, values: tuple[str, ...]
) -> None:
    decider = decider_of_rules(report_delay=3)
    state = decider.start()
    given = {name: {**GOOD.get(name, {}), **wrong.get(name, {})} for name in {**GOOD, **wrong}}
    with refused(DecisionError, *values, field=field) as raised:
        decider.decide(given, None, state)
    assert isinstance(raised.value, OutOfRangeError) == ("above" in str(raised.value))
    assert state.t == 0
    assert not state.reports.any()


def test_what_is_missing_is_named() -> None:
    decider = decider_of_rules()
    with refused(DecisionError, "site-2 missing", "site-0, site-1, site-2", field="nodes"):
        decider.decide({name: GOOD[name] for name in ("site-0", "site-1")})
    with refused(DecisionError, "missing", field="nodes.site-0.capacity"):
        decider.decide(GOOD | {"site-0": {"arrivals": 1}})
    with refused(DecisionError, "missing", field="previous.site-0.lost"):
        decider.decide(GOOD, ENDED | {"site-0": {"spare": 1}})
    with refused(DecisionError, "[7, 5]", "arrivals", field="nodes.site-0"):
        decider.decide(GOOD | {"site-0": [7, 5]})  # type: ignore[dict-item]
    with refused(DecisionError, "list", field="nodes"):
        decider.decide(list(GOOD))  # type: ignore[arg-type]


def test_whole_numbers_of_any_kind_will_do() -> None:
    decider = decider_of_rules()
    numbers = {name: {"arrivals": np.int32(7), "capacity": 5.0} for name in GOOD}
    assert decider.decide(numbers) == decider.decide(GOOD)  # type: ignore[arg-type]
    assert sum(decider.decide(GOOD)["site-0"].values()) == 2


def test_a_memory_cannot_be_forgotten() -> None:
    with refused(ValueError, "previous=", "state = start()", "state=state"):
        decider_of_rules(report_delay=2).decide(GOOD, ENDED)
    rules = DfaasRules(small_trace())
    with refused(ValueError, "previous=", "state = start()", "state=state"):
        Decider(rules, {agent: Hashing() for agent in rules.agents}).decide(GOOD, ENDED)
    decider_of_rules(report_delay=2).decide(GOOD)  # a start
    decider_of_rules(report_delay=0).decide(GOOD, ENDED)  # remembers nothing
    other = DfaasRules(small_trace(nodes=4))
    state = Decider(other, baseline_team("local", other)).start()
    with refused(ValueError, "state", "site-0, site-1, site-2, site-3", "start()"):
        decider_of_rules().decide(GOOD, ENDED, state)


def test_a_start_is_one_with_reports_of_nothing() -> None:
    rules = DfaasRules(small_trace(), route="shortest")
    decider = Decider(rules, baseline_team("overflow", rules))
    nothing = {name: {"spare": 0, "lost": 0} for name in GOOD}
    assert decider.decide(GOOD) == decider.decide(GOOD, nothing)
    assert decider.decide(GOOD) != decider.decide(
        GOOD, nothing | {"site-2": {"spare": 3, "lost": 0}}
    )


def test_pairs_are_drawn_by_the_seed() -> None:
    many = DfaasRules(small_trace(nodes=6), route="two")
    decider = Decider(many, baseline_team("overflow", many))
    nodes = {name: {"arrivals": 12, "capacity": 1} for name in decider.nodes}

    def drawn(seed: int) -> list[Any]:
        state = decider.start(seed)
        return [decider.decide(nodes, None, state) for _ in range(5)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert len({str(each) for each in drawn(1)}) > 1
    assert len({str(decider.decide(nodes)) for _ in range(20)}) > 1  # without a state, too


class Answering(PolicyBase):
    def __init__(self, action: Any) -> None:
        self.action = action

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, *_: Any, **__: Any) -> Decision:
        return Decision(self.action)


@pytest.mark.parametrize(
    ("action", "error", "values"),
    [
        (np.array([99]), ActionError, ("action 99", "0..12")),
        (np.array([0.5]), ActionError, ("0.5", "float64", "0..12")),
        (None, ActionError, ("action None", "NoneType", "0..12")),
        (np.array([1, 2]), ActionError, ("array([1, 2])", "ndarray", "0..12")),
        (np.array([12]), IllegalActionError, ("action 12", "0..7")),
    ],
)
def test_nonsense_of_a_policy_is_told(
    action: Any, error: type[Exception], values: tuple[str, ...]
) -> None:
    decider = Decider(RULES, {agent: Answering(action) for agent in RULES.agents})
    state = decider.start()
    with refused(error, "node_0", *values):
        decider.decide(GOOD, None, state)
    assert state.t == 0


def test_a_rule_takes_more_than_was_ever_seen() -> None:
    decider = Decider.of_rule("overflow/capacity", RULES)
    nodes = GOOD | {"site-0": {"arrivals": 5_000, "capacity": 10, "queue": 80}}
    assert decider.decide(nodes)["site-0"] == {"site-1": 2_495, "site-2": 2_495}
    assert Decider(RULES, baseline_team("local", RULES)).by_rule("overflow/capacity").decide(
        nodes
    ) == decider.decide(nodes)


def test_what_is_no_rule_to_decide_by() -> None:
    for pair in ("random/equal", "overflow/choose"):
        with refused(ValueError, pair, "overflow/capacity"):
            Decider.of_rule(pair, RULES)
    with refused(UnknownNameError, "'overflw'", "'overflow'"):
        Decider.of_rule("overflw", RULES)


def test_threads_may_share_a_decider() -> None:
    decider, wrong = decider_of_rules(), []
    cases = [{name: {"arrivals": a, "capacity": 3} for name in GOOD} for a in range(13)]
    expected = [decider.decide(case) for case in cases]

    def ask() -> None:
        for _ in range(40):
            wrong.extend(i for i, case in enumerate(cases) if decider.decide(case) != expected[i])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_export_of_an_earlier_corral_decides_as_it_did() -> None:
    """Its about.json has none of the keys that came with plans."""
    newer = {"amount", "arrivals", "last_counts", "daily_mean", "link_limit", "caps"}
    about = Decider(RULES, baseline_team("local", RULES)).about
    old = NodeDecider({key: value for key, value in about.items() if key not in newer}, Last())
    new = NodeDecider(about, Last())
    assert old.decide(GOOD, ENDED) == new.decide(GOOD, ENDED)
    assert sum(new.decide(GOOD)["site-0"].values()) == 7
    assert old.by_rule("overflow").decide(GOOD) == new.by_rule("overflow").decide(GOOD)
    with refused(ValueError, "backlog=0.5/least", "link limit"):
        old.by_rule("backlog=0.5/least")
    assert old.by_rule("overflow/least", "unknown").arrivals == "unknown"


class Last:
    """Forwards as much as is legal."""

    def initial(self) -> None:
        return None

    def act(self, features: Array, masks: Array, hidden: Any, rng: Any) -> tuple[Array, None]:
        return masks.shape[1] - 1 - masks[:, ::-1].argmax(axis=1), None
