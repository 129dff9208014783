"""What actions of dfaas_v0 mean: tables of amounts, levels that name a neighbour, and requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.data.trace import Trace
from corral.envs.batch import Batch
from corral.envs.core import amounts_of
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import AMOUNTS, baseline_team
from corral.envs.reference import reference_team, team_arguments
from support.dfaas_case import make_trace
from support.loads import small_trace
from support.messages import refused


def trace_of(arrivals: Any, capacity: int = 10) -> Trace:
    """One node's ``arrivals``, and another one without any."""
    load = [[int(a), 0] for a in arrivals]
    return make_trace(load, [[capacity, capacity]] * len(load))


# --- Amounts -------------------------------------------------------------------------------------


def test_levels_are_quantiles_of_the_load_with_the_largest_last() -> None:
    # Of 100 requests a quarter arrives by one to three, half of them by 40, all by 50.
    load = [1] * 10 + [3] * 5 + [40] + [35]
    rules = DfaasRules(trace_of(load), max_level=4, load_scale=900, amount="quantile")
    assert rules.levels_of.requests.tolist() == [0, 3, 35, 40, 900]
    assert rules.unit == 860


def test_levels_of_a_heavy_tail_serve_more_than_equal_ones() -> None:
    load = np.minimum(np.random.default_rng(0).lognormal(2, 2, (500, 4)), 13_500).astype(np.int64)
    load[0, 0] = 13_500
    capacity = np.full(load.shape, 2 * load.mean(), dtype=np.int64)
    trace = Trace(nodes=tuple("abcd"), arrivals=load, capacity=capacity, times=np.arange(500))
    lost = {}
    for amount in ("unit", "quantile", "requests"):
        rules = DfaasRules(
            trace, start=0, max_cycles=500, amount="unit" if amount == "requests" else amount
        )
        assert (rules.levels, rules.load_scale) == (101, 13_500)
        rules = rules.in_requests() if amount == "requests" else rules
        batch, team, lost[amount] = Batch(rules, 1, 0), baseline_team("overflow", rules), 0
        observations = batch.reset()
        for _ in range(500):
            actions = [team[a].act(observations[a]).action for a in rules.agents]
            step = batch.step(np.stack(actions, axis=1))
            lost[amount] += int(step.info["lost"].sum())
            observations = step.observations
    assert lost["requests"] == np.maximum(0, load.sum(axis=1) - capacity.sum(axis=1)).sum()
    assert lost["requests"] < lost["quantile"]
    assert lost["quantile"] - lost["requests"] < 0.5 * (lost["unit"] - lost["requests"])


def test_small_loads_keep_single_requests() -> None:
    for amount in ("unit", "quantile"):
        rules = DfaasRules(trace_of([3, 90]), amount=amount)
        assert rules.levels_of.requests.tolist() == [*range(91)]
    nothing = DfaasRules(trace_of([0, 0]), load_scale=500, max_level=4, amount="quantile")
    assert nothing.levels_of.requests.tolist() == [0, 1, 2, 3, 500]


def test_a_level_is_legal_where_the_one_below_leaves_something() -> None:
    rules = DfaasRules(trace_of([0, 1, 5, 6, 60]), amount=[0, 1, 5, 60], start=0, max_cycles=5)
    batch = Batch(rules, 1, 0)
    observations = batch.reset()
    for legal, sent in ([0], 0), ([0, 1], 1), ([0, 1, 2], 5), ([0, 1, 2, 3], 6), ([0, 1, 2, 3], 60):
        assert np.flatnonzero(observations["node_0"]["action_mask"][0]).tolist() == legal
        step = batch.step(np.array([[legal[-1], 0]]))
        assert step.info["forwarded"][0].tolist() == [sent, 0]
        observations = step.observations


def test_levels_are_fixed_by_the_rows_that_are_trained_on() -> None:
    load = np.concatenate([np.arange(100), np.arange(400, 500)])
    rules = DfaasRules(trace_of(load), amount="quantile", max_level=10, max_cycles=10)
    split = rules.split(None, 0.5)
    fixed = split.train["amount"]
    assert fixed[-2:] == [75, 499]  # of rows 0:80, and the largest of all
    assert rules.levels_of.requests[-2] > 400
    judged = DfaasRules(**{**split.train, "max_level": 10, "rows": split.held_out["rows"]})
    assert judged.levels_of.requests.tolist() == fixed == judged.carried()["amount"]
    assert "amount" not in DfaasRules(trace_of(load)).split(None, 0.5).train


@pytest.mark.parametrize(
    ("amount", "values"),
    [
        ("quantiles", ("amount='quantiles'", "'quantile'")),
        (7, ("amount=7", "[0, 1, 5]")),
        ([0], ("amount=[0]", "[0, 1, 5]")),
        ([0, 2.5, 50], ("amount=[0, 2.5, 50]", "[0, 1, 5]")),
        ([[0], [1, 2]], ("amount=[[0], [1, 2]]", "[0, 1, 5]")),
        ([1, 50], ("amount=[1, 50]", 0)),
        ([0, 5, 5, 50], ("amount=[0, 5, 5, 50]", "larger")),
        ([0, 9, 3, 50], ("amount=[0, 9, 3, 50]", "larger")),
        ([0, 5, 49], ("amount=[0, 5, 49]", 50)),
        ([0, 1, 2, 3, 4, 50], ("[0, 1, 2, 3, ...]", "6 amounts", "max_level=4", "max_level=5")),
    ],
)
def test_amounts_that_are_refused(amount: Any, values: tuple[Any, ...]) -> None:
    with refused(ValueError, *values):
        DfaasRules(trace_of([50, 3]), amount=amount, max_level=4)


def test_baselines_take_the_next_level_above() -> None:
    rules = DfaasRules(trace_of([20, 12, 60]), amount=[0, 1, 5, 60], start=0, max_cycles=3)
    batch = Batch(rules, 1, 0)
    team, observations = baseline_team("overflow", rules), batch.reset()
    for sent in (20, 5, 60):  # of an overflow of 10, 2 and 50
        actions = [team[agent].act(observations[agent]).action for agent in rules.agents]
        step = batch.step(np.stack(actions, axis=1))
        assert step.info["forwarded"][0, 0] == sent
        observations = step.observations


# --- Requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", AMOUNTS)
def test_references_in_requests_play_as_on_levels_of_single_requests(amount: str) -> None:
    links = {"node_0": ["node_1"], "node_1": ["node_0", "node_2"]}  # node_2 has nobody
    exact = DfaasRules(small_trace(), queue=3, max_cycles=20, neighbours=links)
    for rules in (exact, DfaasRules(small_trace(), queue=3, max_cycles=20, max_level=1,
                                    neighbours=links)):  # fmt: skip
        found = rules.in_requests()
        assert found.observation_space("node_0")["action_mask"].shape == (2,)
        assert found.action_space("node_0").n == exact.levels
        played = []
        for each in (exact, found):
            batch, rng = Batch(each, 4, 0), np.random.default_rng(0)
            team, observations = baseline_team(amount, each), batch.reset()
            for _ in range(20):
                actions = [team[a].act(observations[a], rng=rng).action for a in each.agents]
                step = batch.step(np.stack(actions, axis=1))
                played.append({key: values.tolist() for key, values in step.info.items()})
                observations = step.observations
        assert played[:20] == played[20:]
        assert all(not np.any(info["illegal_actions"]) for info in played)


def test_more_requests_than_came_are_illegal() -> None:
    rules = DfaasRules(trace_of([5, 9]), start=0, max_cycles=2).in_requests()
    info = rules.step(rules.start([np.random.default_rng()]), np.array([[6, 0]])).info
    assert info["illegal_actions"].tolist() == [[1, 0]]
    assert info["forwarded"].tolist() == [[5, 0]]


# --- Route "choose" ------------------------------------------------------------------------------

LINKS = {"node_0": ["node_3", "node_1"], "node_1": ["node_0"], "node_2": []}  # node_3: nobody


def chosen_rules(**kwargs: Any) -> DfaasRules:
    """Four nodes, two neighbours at most; levels are 0, 1, 5 and 12 requests."""
    trace = make_trace([[12, 3, 4, 0]] * 4, [[2, 9, 9, 9]] * 4)
    own = {
        "route": "choose",
        "amount": [0, 1, 5, 12],
        "neighbours": LINKS,
        "start": 0,
        "max_cycles": 4,
    }
    return DfaasRules(trace, **{**own, **kwargs})


def test_an_action_names_a_level_and_a_neighbour_in_cyclic_order() -> None:
    rules = chosen_rules(keep_flow=True)
    assert rules.action_space("node_0").n == rules.levels == 1 + 3 * 2
    observed = rules.observe(rules.start([np.random.default_rng()]))
    masks = {agent: observed[agent]["action_mask"][0].tolist() for agent in rules.agents}
    assert masks == {
        "node_0": [1, 1, 1, 1, 1, 1, 1],
        "node_1": [1, 1, 0, 1, 0, 0, 0],  # one neighbour, and three arrivals
        "node_2": [1, 0, 0, 0, 0, 0, 0],
        "node_3": [1, 0, 0, 0, 0, 0, 0],
    }
    for action, (to, sent) in {1: (1, 1), 2: (3, 1), 3: (1, 5), 6: (3, 12)}.items():
        state = rules.start([np.random.default_rng()])
        outcome = rules.step(state, np.array([[action, 0, 0, 0]]))
        assert outcome.info["forwarded"][0].tolist() == [sent, 0, 0, 0]
        offered = min(sent, 6 if to == 1 else 9)  # what the named one has room for
        assert outcome.state.flow[0, 0, to] == offered
        assert outcome.state.flow[0, 0].sum() == sent  # the rest goes to the other one
        assert not outcome.info["illegal_actions"].any()


def test_illegal_choices_forward_all_arrivals_to_the_neighbour_they_come_round_to() -> None:
    rules = chosen_rules(keep_flow=True, second_offer=False)
    state = rules.start([np.random.default_rng()])
    outcome = rules.step(state, np.array([[0, 2, 3, 1]]))  # node_1 has no second neighbour
    assert outcome.info["illegal_actions"][0].tolist() == [0, 1, 1, 1]
    assert outcome.info["forwarded"][0].tolist() == [0, 3, 4, 0]
    assert outcome.info["lost"][0].tolist() == [10, 3, 4, 0]  # node_0 has no room for them
    state = rules.start([np.random.default_rng()])
    outcome = rules.step(state, np.array([[6, 5, 0, 0]]))  # a level above the arrivals
    assert outcome.info["illegal_actions"][0].tolist() == [0, 1, 0, 0]
    assert outcome.info["forwarded"][0].tolist() == [12, 3, 0, 0]
    assert outcome.state.flow[0, 1].tolist() == [2, 0, 0, 0]


def test_a_mask_that_is_too_long_says_what_to_give_instead() -> None:
    trace = make_trace([[900] * 60], [[9] * 60])
    with refused(ValueError, "5,901", "4,096", "max_level=69", 'observation="summary"'):
        DfaasRules(trace, route="choose", max_level=100)
    assert DfaasRules(trace, route="choose", max_level=69).levels <= 4096


@pytest.mark.parametrize("amount", AMOUNTS)
def test_references_choose_the_neighbour_with_the_largest_reported_spare(amount: str) -> None:
    """Which is what route "shortest" does with what they forward."""
    kwargs: dict[str, Any] = {"queue": 3, "max_cycles": 30, "illegal": "raise"}
    kwargs["neighbours"] = LINKS | {"node_3": ["node_2", "node_0", "node_1"]}
    infos: dict[str, list[Any]] = {}
    for route in ("choose", "shortest"):
        rules = DfaasRules(small_trace(4), route=route, **kwargs)
        batch, rng = Batch(rules, 3, 0), np.random.default_rng(0)
        team, observations = reference_team(f"{amount}/{route}", rules), batch.reset()
        infos[route] = []
        for _ in range(30):
            actions = [team[a].act(observations[a], rng=rng).action for a in rules.agents]
            step = batch.step(np.stack(actions, axis=1))
            infos[route].append({key: values.tolist() for key, values in step.info.items()})
            observations = step.observations
    assert (infos["choose"] == infos["shortest"]) is (amount != "random")
    assert team_arguments("dfaas_v0", f"{amount}/choose") == {"route": "choose"}


def test_choices_are_no_amounts() -> None:
    assert amounts_of(chosen_rules()) == (None, None)
    unit, requests = amounts_of(chosen_rules(route="equal"))
    assert unit == "requests"
    assert requests is not None
    assert requests.tolist() == [0, 1, 5, 12]
