"""The arguments of dfaas_v0: what is refused, with what advice, and what they mean."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from corral.data import Trace
from corral.envs import dfaas_v0, make
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import AMOUNTS, baseline_team
from corral.errors import ArgumentError, ScaleError, TraceError, UnknownNameError
from support.loads import small_trace
from support.messages import refused

LARGEST = int(small_trace().arrivals.max())


@pytest.mark.parametrize(
    ("arguments", "error", "values"),
    [
        ({"max_cycles": 0}, ValueError, ("max_cycles=0", 1)),
        ({"max_cycles": 2.5}, ValueError, ("max_cycles=2.5",)),
        ({"max_level": 0}, ValueError, ("max_level=0",)),
        ({"queue": -1}, ValueError, ("queue=-1", 0)),
        ({"queue": True}, ValueError, ("queue=True",)),
        ({"link_limit": -1}, ValueError, ("link_limit=-1",)),
        ({"report_delay": -1}, ValueError, ("report_delay=-1", 0)),
        ({"report_delay": None}, ValueError, ("report_delay=None",)),
        ({"forward_cost": -0.1}, ValueError, ("forward_cost=-0.1", 0)),
        ({"forward_cost": float("nan")}, ValueError, ("forward_cost=nan",)),
        ({"wait_cost": "much"}, ValueError, ("wait_cost='much'",)),
        ({"route": "nearest"}, ValueError, ("'nearest'", "'least'")),
        ({"reward": "ours"}, ValueError, ("reward='ours'", "'own', 'team'")),
        ({"illegal": "ignore"}, ValueError, ("illegal='ignore'", "'penalise', 'raise'")),
        ({"rows": (5, 5)}, ValueError, ("rows=(5, 5)", "(low, high)", 40)),
        ({"rows": (0, 10_000)}, ValueError, ("rows=(0, 10000)", "(low, high)", 40)),
        ({"start": "first"}, ValueError, ("start='first'", '"random"', "0..39")),
        ({"start": 10_000}, ValueError, ("start=10000", "0..39")),
        (
            {"load_scale": LARGEST - 1},
            ScaleError,
            (f"load_scale={LARGEST - 1}", f"load_scale={LARGEST}"),
        ),
        ({"capacity_scale": 1}, ScaleError, ("capacity_scale=1", "capacity_scale=12")),
        ({"load_scale": float("inf")}, ValueError, ("load_scale=inf",)),
        ({"capacity": -3}, ValueError, ("capacity -3",)),
        ({"capacity": "twice"}, ValueError, ("'twice'", "'1.25x'")),
        ({"neighbours": {"node_9": []}}, UnknownNameError, ("'node_9'", "node_0, node_1, node_2")),
        ({"route": "shortst"}, ValueError, ("'shortst'", "'shortest'")),
        ({"que": 3}, TypeError, ("'que'", "'queue'")),
        ({"neighbours": {"node_0": ["node_0"]}}, ValueError, ("neighbours['node_0']", "'node_0'")),
        ({"neighbours": {"node_0": "node_1"}}, ValueError, ("neighbours['node_0']='node_1'",)),
        ({"neighbours": "near"}, ValueError, ("neighbours='near'", "None")),
        ({"second_offer": "maybe"}, ValueError, ("second_offer='maybe'", "True or False")),
        ({"second_offer": None}, ValueError, ("second_offer=None", "True or False")),
        ({"render_mode": "svg"}, ValueError, ("render_mode='svg'", "'human'")),
        ({"augment": "shfit=3"}, ArgumentError, ("'shfit'", "'shift'")),
        ({"augment": ""}, ArgumentError, ("augment=''", "shift=12,scale=0.2")),
        ({"augment": 3}, ArgumentError, ("augment=3", "shift=12,scale=0.2")),
        ({"augment": "shift=1.5"}, ValueError, ("augment", "shift=1.5", 0)),
        ({"augment": {"mix": 2}}, ValueError, ("augment", "mix=2", "0 to 1")),
        ({"augment": "scale"}, ValueError, ("augment", "scale=''")),
        ({"residual": "static"}, ValueError, ("'static'",)),
        ({"residual": "random/least"}, ValueError, ("'random/least'",)),
        ({"residual": "share=0.5"}, ValueError, ("'share=0.5'",)),
        ({"residual": "patiens/least"}, UnknownNameError, ("'patiens'", "patient")),
        ({"residual": "backlog=-1"}, ArgumentError, ("backlog='-1'", 0)),
        ({"residual": "patient/nearest"}, UnknownNameError, ("'nearest'", "'least'")),
        ({"residual": "patient/choose"}, ValueError, ("'patient/choose'",)),
        ({"residual": 3}, ValueError, ("residual=3",)),
        (
            {"residual": "patient/least", "route": "spare"},
            ValueError,
            ("route='spare'", "'patient/least'"),
        ),
        ({"residual": "patient", "amount": "keep"}, ValueError, ("amount='keep'", "residual")),
        ({"residual": "patient", "amount": [0, 99]}, ValueError, ("amount=[0, 99]", "residual")),
        ({"residual": "patient", "offsets": 0}, ValueError, ("offsets=0", 1)),
        ({"residual": "patient", "offsets": 101}, ValueError, ("offsets=101", 100)),
        ({"residual": "patient", "offsets": 2.5}, ValueError, ("offsets=2.5",)),
        ({"residual": "patient", "offsets": "6"}, ValueError, ("offsets='6'",)),
        ({"residual": "patient", "offsets": True}, ValueError, ("offsets=True",)),
        ({"beyond": "rule"}, ValueError, ('"rule"', "residual", '"clip"')),
        ({"beyond": "cut"}, ValueError, ("beyond='cut'", "'rule', 'clip'")),
        ({"beyond": "clip", "load_scale": 0.5}, ValueError, ("load_scale=0.5",)),
        (
            {"residual": "patient", "load_scale": LARGEST - 1},
            ScaleError,
            (f"load_scale={LARGEST - 1}", f"load_scale={LARGEST}"),
        ),
        ({"trace": "edge4"}, UnknownNameError, ("'edge4'", "edge3, edge8")),
    ],
)
def test_what_is_refused(
    arguments: dict[str, Any], error: type[Exception], values: tuple[Any, ...]
) -> None:
    with refused(error, *values):
        dfaas_v0.parallel_env(**{"trace": small_trace(), **arguments})


def test_a_trace_without_capacity_asks_for_one() -> None:
    load = Trace(nodes=("a", "b"), arrivals=[[3, 4]], capacity=None, times=[0], name="loads")
    with refused(TraceError, "loads", "capacity=", "'1.25x'", "corral trace import", "a=N"):
        DfaasRules(load)
    assert DfaasRules(load, capacity="1.25x").trace.capacity.tolist() == [[4, 5]]
    assert DfaasRules(load, capacity=np.int64(7)).trace.capacity.tolist() == [[7, 7]]


def test_neighbours_may_be_called_as_in_the_trace() -> None:
    trace = Trace(nodes=("web", "api"), arrivals=[[3, 4]], capacity=[[1, 9]], times=[0])
    links = DfaasRules(trace, neighbours={"web": ["api"]}).network.links
    assert links.tolist() == [[False, True], [False, False]]
    with refused(ValueError, "neighbours['web']", "'node_0'"):
        DfaasRules(trace, neighbours={"web": ["node_0"]})


def test_the_identity_tells_rules_apart() -> None:
    base = DfaasRules(small_trace()).identity
    assert DfaasRules(small_trace()).identity == base
    assert DfaasRules(small_trace(), illegal="raise", keep_flow=True).identity == base
    changes: list[dict[str, Any]] = [
        {"queue": 1}, {"max_cycles": 9}, {"rows": (0, 3)}, {"start": 0}, {"load_scale": 99},
        {"capacity_scale": 99}, {"max_level": 3}, {"forward_cost": 0.1}, {"wait_cost": 0.1},
        {"route": "two"}, {"second_offer": False}, {"link_limit": 5}, {"reward": "team"},
        {"neighbours": {"node_0": ["node_1"]}}, {"capacity": 4}, {"report_delay": 0},
        {"report_delay": 2},
    ]  # fmt: skip
    found = {DfaasRules(small_trace(), **change).identity for change in changes}
    assert len(found) == len(changes)
    assert base not in found


@pytest.mark.parametrize(
    ("delay", "spares"),
    [(0, [7, 5, 3, 1]), (1, [0, 7, 0, 3]), (2, [0, 0, 7, 5]), (3, [0, 0, 0, 7]), (9, [0] * 4)],
)
def test_reports_come_after_their_delay(delay: int, spares: list[int]) -> None:
    """Node b has 7, 5, 3 and 1 to spare; a forwards as much as b reported, and loses the rest of
    its 9. Under delay 1 b ends with 7, 0 (of the 7 offered it took 5), 3 and so on. Of a's losses
    b knows as late, under delay 0 after a step."""
    trace = Trace(
        nodes=("a", "b"), arrivals=[[9, 1], [9, 3], [9, 5], [9, 7]], capacity=[[0, 8]] * 4,
        times=np.arange(4),
    )  # fmt: skip
    rules = DfaasRules(trace, start=0, max_cycles=4, report_delay=delay)
    team, state = baseline_team("margin", rules), rules.start([np.random.default_rng(0)])
    known, told_losses, losses = [], [], []
    for _ in range(4):
        seen = rules.observe(state)
        known.append(round(float(seen["node_0"]["observation"][0, 3]) * 8))
        told_losses.append(round(float(seen["node_1"]["observation"][0, 4]) * 9))
        action = np.stack([team[agent].act(seen[agent]).action for agent in rules.agents], axis=1)
        outcome = rules.step(state, action)
        state = outcome.state
        assert outcome.info["forwarded"].tolist() == [[known[-1], 0]]
        losses.append(int(outcome.info["lost"][0, 0]))
        assert rules.global_state(state)[0, 8] == np.float32(state.spare[0, 1] / 8)  # the true one
    late = max(delay, 1)
    assert known == spares
    assert told_losses == [0] * min(late, 4) + losses[: max(0, 4 - late)]


def test_numbers_of_numpy_are_numbers() -> None:
    rules = DfaasRules(small_trace(), queue=np.int64(3), forward_cost=np.float32(0.5), wait_cost=1)
    assert (rules.queue, rules.forward_cost, rules.wait_cost) == (3, 0.5, 1.0)


def test_given_scales_widen_the_actions_and_keep_the_spaces() -> None:
    narrow, wide = DfaasRules(small_trace()), DfaasRules(small_trace(), load_scale=250)
    assert (narrow.unit, narrow.levels) == (1, LARGEST + 1)
    assert (wide.unit, wide.levels) == (3, 85)  # ceil(250 / 100), ceil(250 / 3) + 1
    assert wide.action_space("node_0").n == 85
    # Part of the same trace, the same spaces: they follow from the whole.
    part = DfaasRules(small_trace(), rows=(0, 2))
    assert part.observation_space("node_0") == narrow.observation_space("node_0")


def test_windows_stay_in_their_rows() -> None:
    trace = Trace(
        nodes=("a",), arrivals=np.arange(50)[:, None], capacity=np.ones((50, 1), int),
        times=np.arange(50),
    )  # fmt: skip
    env = dfaas_v0.parallel_env(trace=trace, rows=(10, 20), max_cycles=25)
    seen, starts = set(), set()
    for seed in range(40):
        env.reset(seed=seed)
        arrivals = [env.step({"node_0": 0})[4]["node_0"]["arrivals"] for _ in range(25)]
        assert [(b - a) % 10 for a, b in itertools.pairwise(arrivals)] == [1] * 24
        seen |= set(arrivals)
        starts.add(arrivals[0])
    assert seen == set(range(10, 20))
    assert starts == set(range(10, 20))  # every row can be the first


def test_overflow_serves_eighty_of_the_hundred_and_thirty() -> None:
    """Fixed loads (20, 50, 60), capacities (30, 10, 40): 80 is all that can be served."""
    loads, capacities = [[20, 50, 60]], [[30, 10, 40]]
    trace = Trace(nodes=("a", "b", "c"), arrivals=loads, capacity=capacities, times=[0])
    served = {}
    for amount in AMOUNTS:
        env = make("dfaas_v0", trace=trace, max_cycles=20, illegal="raise")
        team, rng = baseline_team(amount, env.rules), np.random.default_rng(0)
        observations, _ = env.reset(seed=0)
        total = []
        while env.agents:
            actions = {a: int(team[a].act(observations[a], rng=rng).action) for a in env.agents}
            observations, _, _, _, infos = env.step(actions)
            total.append(sum(i["served_local"] + i["served_remote"] for i in infos.values()))
        served[amount] = total
    assert served["overflow"] == [80] * 20
    assert served["local"] == [20 + 10 + 40] * 20
    assert max(max(total) for total in served.values()) == 80
