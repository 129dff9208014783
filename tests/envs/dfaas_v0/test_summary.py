"""dfaas_v0 with observation="summary": features and actions of one size, whatever the trace.

``test_against_scalar.py`` plays it beside the plain re-statement; here is what that cannot say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.data import make_trace
from corral.envs.core import generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import AMOUNTS, Baseline, baseline_team
from corral.envs.dfaas_v0.features import ranked
from corral.envs.dfaas_v0.network import Network
from support.dfaas_case import load
from support.dfaas_case import make_trace as trace_of
from support.messages import refused


def summary_of(*args: Any, **others: Any) -> DfaasRules:
    return DfaasRules(**load(*args, **others), observation="summary")


def test_features_of_four_nodes_by_hand() -> None:
    """Node 0 has 3 of its own; the others end the first step with 0, 5 and 2 to spare."""
    rules = summary_of([[3, 9, 1, 2], [6, 0, 0, 0]], [[3, 4, 6, 4], [3, 1, 1, 1]])
    state = rules.start([np.random.default_rng(0)])
    rules.step(state, np.zeros((1, 4), dtype=np.int64))
    assert state.spare[0].tolist() == [0, 0, 5, 2]
    assert state.lost[0].tolist() == [0, 5, 0, 0]
    seen = rules.observe(state)["node_0"]["observation"][0]
    third = np.float32(1 / 3)
    np.testing.assert_allclose(seen[:4], [2, 0, 0, 0])  # 6 arrive at a capacity of 3
    np.testing.assert_allclose(seen[4:10], np.array([7 / 3, 5, 0, 5, 2, 0]) * third, rtol=1e-6)
    np.testing.assert_allclose(seen[10:], np.array([5 / 3, 5, 0, 0, 0, 5]) * third, rtol=1e-6)
    # Node 1 has 1 of its own: 5 is clipped at 4; cyclic order 2, 3, 0.
    other = rules.observe(state)["node_1"]["observation"][0]
    np.testing.assert_allclose(other[:4], [0, 0, 0, 4])
    np.testing.assert_allclose(other[4:10], [7 / 3, 4, 0, 4, 2, 0], rtol=1e-6)


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 40])
def test_spaces_depend_on_no_trace(nodes: int) -> None:
    rules = DfaasRules(make_trace(nodes=nodes, days=1, mean=5.0 * nodes), observation="summary")
    first = DfaasRules("edge3", observation="summary")
    agent = rules.agents[-1]
    assert rules.observation_space(agent) == first.observation_space("node_0")
    assert rules.action_space(agent) == first.action_space("node_0")
    assert rules.observation_space(agent)["observation"].shape == (16,)
    state = rules.start([generator(0, "env", i) for i in range(3)])
    for _ in range(2):
        seen = rules.observe(state)
        assert rules.observation_space(agent).contains({k: v[0] for k, v in seen[agent].items()})
        rules.step(state, np.zeros((3, nodes), dtype=np.int64))


def test_a_level_is_a_share_of_the_arrivals() -> None:
    """4 levels of 10 requests are 3, 5, 8 and 10; of 2 requests 1, 1, 2 and 2."""
    rules = summary_of([[10, 2, 0]], [[0, 0, 0]], max_level=4)
    for level, forwarded in enumerate([(0, 0), (3, 1), (5, 1), (8, 2), (10, 2)]):
        state = rules.start([np.random.default_rng(0)])
        info = rules.step(state, np.array([[level, level, 0]])).info
        assert tuple(info["forwarded"][0, :2].tolist()) == forwarded
        assert info["illegal_actions"].sum() == 0
    masks = rules.observe(rules.start([np.random.default_rng(0)]))
    assert masks["node_0"]["action_mask"][0].tolist() == [1, 1, 1, 1, 1]
    assert masks["node_2"]["action_mask"][0].tolist() == [1, 0, 0, 0, 0]  # nothing has come


def test_what_a_level_is_called() -> None:
    unit, amounts = DfaasRules("edge3", observation="summary", max_level=4).amounts()
    assert (unit, amounts.tolist()) == ("% of the arrivals", [0, 25, 50, 75, 100])


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 17, 40])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_ranks_are_by_spare_with_ties_in_cyclic_order(nodes: int, density: float) -> None:
    rng = np.random.default_rng(nodes)
    links = ~np.eye(nodes, dtype=bool) & (rng.random((nodes, nodes)) <= density)
    for most in (1, 2, 5, 1000):
        spare = rng.integers(0, most, (3, nodes))
        found = ranked(Network(links, "equal", True, None), spare)
        for env in range(3):
            for i in range(nodes):
                near = [(i + d) % nodes for d in range(1, nodes) if links[i, (i + d) % nodes]]
                best = sorted(near, key=lambda j: -spare[env, j])[:3]
                assert found[env, i].tolist() == best + [-1] * (3 - len(best))


def test_rules_rank_what_is_reported() -> None:
    rules = summary_of([[0, 0, 0, 0]], [[1, 7, 2, 7]])
    state = rules.start([np.random.default_rng(0)])
    rules.step(state, np.zeros((1, 4), dtype=np.int64))
    assert ranked(rules.network, state.spare)[0].tolist() == [
        [1, 3, 2],
        [3, 2, 0],
        [3, 1, 0],
        [1, 2, 0],
    ]


# --- Reference policies --------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [name for name in AMOUNTS if name != "random"])
@pytest.mark.parametrize("queue", [0, 7])
def test_reference_policies_forward_the_same_requests(amount: str, queue: int) -> None:
    """With one capacity per node, and no more than four times as much arriving, ratios tell all."""
    rng = np.random.default_rng(0)
    room = np.array([20, 7, 31, 12])
    arrivals = rng.integers(0, 4 * room + 1, size=(60, 4))
    trace = trace_of(arrivals.tolist(), np.tile(room, (60, 1)).tolist())
    shared = {"max_level": 124, "queue": queue, "route": "spare", "max_cycles": 60, "start": 0}
    plain = DfaasRules(trace, **shared)
    summed = DfaasRules(trace, **shared, observation="summary")
    assert plain.unit == 1
    states = [rules.start([np.random.default_rng(0)]) for rules in (plain, summed)]
    for _ in range(60):
        played = []
        for rules, state in zip((plain, summed), states, strict=True):
            team, seen = baseline_team(amount, rules), rules.observe(state)
            decisions = [team[agent].act(seen[agent]) for agent in rules.agents]
            outcome = rules.step(state, np.stack([d.action for d in decisions], axis=1))
            assert outcome.info["illegal_actions"].sum() == 0
            played.append(outcome.info["forwarded"][0].tolist())
        assert played[0] == played[1]


def test_levels_that_forward_the_same_are_equally_good() -> None:
    """Of 3 requests beside a capacity of 2, the one too many goes with levels 1 to 33."""
    rules = summary_of([[3, 0]], [[2, 2]])
    seen = rules.observe(rules.start([np.random.default_rng(0)]))["node_0"]
    decision = Baseline("overflow", rules, "node_0").act(seen)
    assert np.flatnonzero(decision.extra["choices"][0]).tolist() == list(range(1, 34))
    assert decision.action.tolist() == [33]


def test_more_than_four_times_the_capacity_looks_like_four_times() -> None:
    rules = summary_of([[90, 0]], [[10, 2]])
    seen = rules.observe(rules.start([np.random.default_rng(0)]))["node_0"]
    assert seen["observation"][0, 0] == 4
    decision = Baseline("overflow", rules, "node_0").act(seen)
    assert int(decision.action[0]) == 75  # (40 - 10) of 40


def test_overflow_by_ratios_where_the_capacity_varies() -> None:
    """Capacities of 10 and 30: the amount is exact to a request, and to a level."""
    rows = [[15, 0], [45, 0], [20, 0], [31, 0]]
    room = [[10, 1], [30, 1], [10, 1], [30, 1]]
    for start, row in enumerate(rows):
        rules = DfaasRules(**{**load(rows, room), "start": start}, observation="summary")
        state = rules.start([np.random.default_rng(0)])
        decision = Baseline("overflow", rules, "node_0").act(rules.observe(state)["node_0"])
        assert "choices" not in decision.extra
        played = rules.step(state, np.array([[int(decision.action[0]), 0]])).info["forwarded"][0, 0]
        assert abs(int(played) - (row[0] - room[start][0])) <= 1


def test_a_node_without_capacity_forwards_all() -> None:
    rules = summary_of([[3, 0]], [[0, 9]])
    state = rules.start([np.random.default_rng(0)])
    decision = Baseline("overflow", rules, "node_0").act(rules.observe(state)["node_0"])
    info = rules.step(state, np.array([[int(decision.action[0]), 0]])).info
    assert info["forwarded"][0].tolist() == [3, 0]
    assert info["lost"].sum() == 0


def test_a_summary_is_read_as_a_node() -> None:
    with refused(ValueError, "agent="):
        Baseline("overflow", DfaasRules("edge3", observation="summary"))


# --- What it says of itself ----------------------------------------------------------------------


def test_what_a_team_brings_along_is_no_scale() -> None:
    rules = DfaasRules("edge3", observation="summary", route="spare")
    carried = {"max_level": 100, "observation": "summary", "route": "spare"}
    assert rules.carried() == {"arrivals": "known", **carried}
    assert rules.any_number() == "observation='summary'"
    assert DfaasRules("edge3").any_number() is None


def test_identity_tells_a_summary() -> None:
    plain, summed = DfaasRules("edge3"), DfaasRules("edge3", observation="summary")
    assert plain.identity != summed.identity
    with pytest.raises(ValueError, match="observation"):
        DfaasRules("edge3", observation="none")  # type: ignore[arg-type]
