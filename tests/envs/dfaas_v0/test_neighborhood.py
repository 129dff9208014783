"""dfaas_v0 with observation="neighborhood", and the units of residual actions with summaries.

``test_against_scalar.py`` plays it beside the plain re-statement with few nodes; here are many.
"""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from corral.data import make_trace
from corral.envs.core import generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.dfaas_v0.features import Neighborhood
from corral.envs.dfaas_v0.network import Network
from corral.envs.dfaas_v0.plans import KEEP_ALL
from corral.envs.dfaas_v0.residual import Residual
from support.dfaas_case import load


def of_one_node(spare: list[int], capacity: int) -> list[float]:
    """The five features of a node whose neighbours report ``spare``, by counting."""
    n = len(spare)
    quartiles = []
    for share in (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)):
        enough = [x for x in spare if sum(y <= x for y in spare) >= share * n]
        quartiles.append(min(enough, default=0))
    senders = 1 + sum(x == 0 for x in spare)
    scale = max(capacity, 1)
    shares = [Fraction(x) / scale for x in (*quartiles, Fraction(sum(spare), senders))]
    return [float(Fraction(n, n + 8)), *(float(min(Fraction(4), x)) for x in shares)]


def features_of(network: Network, spare: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """The features [B, N, 21] of nodes that report ``spare``."""
    zero = np.zeros_like(spare)
    given: Any = SimpleNamespace(at=lambda state, row: (zero, capacity, zero))
    state: Any = SimpleNamespace(queue=zero)
    return Neighborhood(network).of(given, state, zero[:, 0], spare, zero)[0]


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 9, 17, 40])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_features_of_neighbours_by_counting(nodes: int, density: float) -> None:
    rng = np.random.default_rng(nodes)
    links = ~np.eye(nodes, dtype=bool) & (rng.random((nodes, nodes)) <= density)
    network = Network(links, "equal", True, None)
    assert network.complete == (density == 1 or nodes == 1)
    for most in (1, 2, 5, 1000):
        spare = rng.integers(0, most, (3, nodes))
        capacity = rng.integers(0, most + 1, (3, nodes))
        features = features_of(network, spare, capacity)
        assert features.shape == (3, nodes, 21)
        for env in range(3):
            for i in range(nodes):
                expected = of_one_node(spare[env, links[i]].tolist(), int(capacity[env, i]))
                assert features[env, i, 16:].tolist() == np.float32(expected).tolist()


def test_features_of_four_nodes_by_hand() -> None:
    """Node 0 has 3 of its own; its neighbours end the first step with 0, 5 and 2 to spare."""
    rules = DfaasRules(
        **load([[3, 9, 1, 2], [6, 0, 0, 0]], [[3, 4, 6, 4], [3, 1, 1, 1]]),
        observation="neighborhood",
    )
    state = rules.start([np.random.default_rng(0)])
    rules.step(state, np.zeros((1, 4), dtype=np.int64))
    assert state.spare[0].tolist() == [0, 0, 5, 2]
    seen = rules.observe(state)["node_0"]["observation"][0]
    # The first, the second and the third of 0, 2, 5; and 7 for two possible senders.
    expected = np.float32([3 / 11, 0, 2 / 3, 5 / 3, 7 / 6])
    np.testing.assert_allclose(seen[16:], expected, rtol=1e-6)
    summed = DfaasRules(
        **load([[3, 9, 1, 2], [6, 0, 0, 0]], [[3, 4, 6, 4], [3, 1, 1, 1]]), observation="summary"
    )
    assert summed.observe(state)["node_0"]["observation"][0].tolist() == seen[:16].tolist()


def test_two_hundred_nodes_need_no_table_of_pairs() -> None:
    nodes, envs = 200, 64
    network = Network(~np.eye(nodes, dtype=bool), "equal", True, None)
    rng = np.random.default_rng(0)
    spare = rng.integers(0, 50, (envs, nodes))
    features_of(network, spare, spare)
    tracemalloc.start()
    features_of(network, spare, spare)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < envs * nodes * nodes * 8 / 2


@pytest.mark.parametrize("nodes", [1, 3, 40])
def test_spaces_depend_on_no_trace(nodes: int) -> None:
    more: dict[str, Any] = {
        **{"observation": "neighborhood", "arrivals": "unknown", "residual": "backlog=0.75/least"},
        **{"queue": 5, "last_counts": 2},
    }
    rules = DfaasRules(make_trace(nodes=nodes, days=1, mean=5.0 * nodes), **more)
    agent = rules.agents[-1]
    first = DfaasRules("edge3", **more)
    assert rules.observation_space(agent) == first.observation_space("node_0")
    assert rules.action_space(agent) == first.action_space("node_0")
    assert rules.observation_space(agent)["observation"].shape == (21 + 1 + 1,)
    state = rules.start([generator(0, "env", i) for i in range(3)])
    for _ in range(2):
        seen = rules.observe(state)
        assert rules.observation_space(agent).contains({k: v[0] for k, v in seen[agent].items()})
        rules.step(state, np.zeros((3, nodes), dtype=np.int64))


def test_identity_and_arguments_of_a_team() -> None:
    rules = DfaasRules("edge3", observation="neighborhood", residual="backlog=0.75/least", queue=4)
    assert rules.any_number() == "observation='neighborhood'"
    carried = rules.carried()
    assert (carried["observation"], carried["residual"]) == ("neighborhood", "backlog=0.75/least")
    assert not {"load_scale", "capacity_scale", "amount", "neighbours"} & set(carried)
    kinds = [DfaasRules("edge3", observation=kind) for kind in ("every", "summary", "neighborhood")]  # type: ignore[arg-type]
    assert len({each.identity for each in kinds}) == 3


def test_rules_play_as_by_a_summary() -> None:
    trace = make_trace(nodes=6, days=1, seed=2)
    played = []
    for kind in ("summary", "neighborhood"):
        rules = DfaasRules(trace, observation=kind, queue=9, start=0)  # type: ignore[arg-type]
        team = baseline_team("margin", rules)
        state = rules.start([np.random.default_rng(0)])
        forwarded = []
        for _ in range(50):
            seen = rules.observe(state)
            actions = [team[agent].act(seen[agent]).action for agent in rules.agents]
            info = rules.step(state, np.stack(actions, axis=1)).info
            forwarded.append(info["forwarded"][0].tolist())
        played.append(forwarded)
    assert played[0] == played[1]
    assert np.sum(played[0]) > 0


# --- Units of residual actions -------------------------------------------------------------------


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("max_level", [2, 10, 100])
def test_offsets_by_the_definition(relative: bool, max_level: int) -> None:
    """The unit is relative to c + Q of the node, or to the largest of the trace."""
    largest, queue, reach = 90, 12, 3
    residual = Residual("backlog=1/least", reach, largest + queue, max_level, relative)
    rng = np.random.default_rng(max_level)
    capacity = rng.integers(0, largest + 1, (40, 5))
    waiting = rng.integers(0, queue + 1, (40, 5))
    keep = rng.integers(0, largest + queue + 1, (40, 5))
    keep[rng.random(keep.shape) < 0.2] = KEEP_ALL
    room = capacity + queue - waiting
    unit = residual.units(capacity + queue)
    masks = residual.masks_of(keep, room, np.array([True] * 4 + [False]), unit)
    for at in np.ndindex(40, 5):
        u = max(1, math.ceil((capacity[at] + queue if relative else largest + queue) / max_level))
        k, kept = int(keep[at]), []
        for action, offset in enumerate([0, -1, 1, -2, 2, -3, 3]):
            base = room[at] if k == KEEP_ALL else k
            moved = k if offset == 0 else min(max(0, base + offset * u), room[at])
            legal = action == 0 or (at[1] < 4 and moved not in kept)
            assert masks[at][action] == legal
            one = np.full((40, 5), action)
            if legal:
                assert residual.kept(one, keep, room, unit)[at] == moved
            kept.append(moved)


def test_units_of_nodes_of_unlike_size() -> None:
    """One server of 1,000 among servers of 10: with a summary its scale is not theirs."""
    trace_of = load([[5, 5]] * 4, [[10, 1000]] * 4)
    kept = []
    for kind in ("every", "summary", "neighborhood"):
        rules = DfaasRules(**trace_of, observation=kind, residual="backlog=1/least")
        state = rules.start([np.random.default_rng(0)])
        plans, illegal = rules.residual_plans(state, np.array([[1, 1]]))
        assert not illegal.any()
        kept.append(plans.keep[0].tolist())
    assert kept == [[0, 990], [9, 990], [9, 990]]
