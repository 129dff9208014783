"""The reference policies of dfaas_v0: their amounts, and that they never play an illegal action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.envs.batch import Batch
from corral.envs.core import Observation
from corral.envs.dfaas_v0 import ROUTES, DfaasRules, baselines
from corral.envs.dfaas_v0.baselines import AMOUNTS, PAIRS, Baseline, baseline_team, split_pair
from corral.envs.dfaas_v0.plain_rules import TUNED
from corral.envs.policy import Decision
from corral.envs.shells import ParallelShell
from corral.errors import UnknownNameError
from support.dfaas_configurations import bounded, configurations, random_configuration
from support.loads import small_trace
from support.messages import refused


def rules_of(**kwargs: Any) -> DfaasRules:
    """3 nodes; loads are shown as shares of 20, capacities of 16."""
    return DfaasRules(small_trace(), load_scale=20, capacity_scale=16, queue=5, **kwargs)


def shown(
    rules: DfaasRules, a: int, c: int, q: int = 0, spares: tuple[int, int] = (0, 0)
) -> Observation:
    """What a node sees with ``a`` arrivals, capacity ``c`` and ``q`` waiting requests."""
    features = [a / 20, c / 16, q / 5, spares[0] / 16, 0.25, spares[1] / 16, 0.75]
    mask = np.arange(rules.levels) <= -(-a // rules.unit)
    return {
        "observation": np.array(features, dtype=np.float32),
        "action_mask": mask.astype(np.int8),
    }


LITERALS = [
    # a, c, q, spares: local, static, overflow, threshold, margin, patient, patient-margin
    (13, 6, 4, (3, 1), [0, 5, 7, 9, 4, 6, 4]),
    (3, 9, 0, (2, 2), [0, 1, 0, 0, 0, 0, 0]),
    (10, 0, 0, (0, 0), [0, 4, 10, 10, 0, 5, 0]),
    (10, 9, 5, (16, 16), [0, 4, 1, 3, 1, 1, 1]),  # 80 % of 9, rounded down, is 7
    (2, 0, 5, (1, 0), [0, 0, 2, 2, 1, 2, 1]),
    (0, 0, 5, (9, 9), [0, 0, 0, 0, 0, 0, 0]),
    (20, 16, 0, (0, 16), [0, 8, 4, 8, 4, 0, 0]),
]


@pytest.mark.parametrize(("a", "c", "q", "spares", "amounts"), LITERALS)
def test_amounts(a: int, c: int, q: int, spares: tuple[int, int], amounts: list[int]) -> None:
    rules = rules_of()
    assert rules.unit == 1
    names = [amount for amount in AMOUNTS if amount != "random"]
    observation = shown(rules, a, c, q, spares)
    chosen = {name: int(Baseline(name, rules).act(observation).action) for name in names}
    assert chosen == dict(zip(names, amounts, strict=True))


@pytest.mark.parametrize(
    ("a", "c", "amount", "level"),
    [
        (13, 6, "overflow", 2),  # 7 requests are two units of four
        (13, 5, "overflow", 2),  # so are 8
        (13, 4, "overflow", 3),
        (13, 0, "overflow", 4),  # four units: all 13
        (13, 6, "static", 2),
        (12, 9, "threshold", 2),  # 12 - 7 = 5
        (13, 6, "local", 0),
        (1, 0, "overflow", 1),
    ],
)
def test_amounts_are_rounded_up_to_whole_units(a: int, c: int, amount: str, level: int) -> None:
    rules = rules_of(max_level=5)
    assert (rules.unit, rules.levels) == (4, 6)
    assert int(Baseline(amount, rules).act(shown(rules, a, c)).action) == level


def observations_of(kwargs: dict[str, Any], num_envs: int = 3) -> list[dict[str, Observation]]:
    """What random legal play meets in a configuration."""
    batch = Batch(DfaasRules(**kwargs), num_envs, 0)
    rng = np.random.default_rng(0)
    met = [batch.reset()]
    for _ in range(min(kwargs["max_cycles"], 8)):
        met.append(batch.step(batch.sample_actions(rng)).observations)
    return met


@settings(max_examples=60, deadline=None)
@given(configurations())
def test_every_baseline_is_always_legal(kwargs: dict[str, Any]) -> None:
    rules = DfaasRules(**kwargs)
    rng = np.random.default_rng(1)
    for observations in observations_of(kwargs):
        for amount in AMOUNTS:
            for agent in rules.agents:
                policy = Baseline(amount, rules, agent)
                mask = observations[agent]["action_mask"]
                action = policy.act(observations[agent], rng=rng).action
                assert action.shape == (3,)
                assert action.dtype == np.int64
                assert mask[np.arange(3), action].all()


@settings(max_examples=30, deadline=None)
@given(configurations())
def test_a_batch_is_played_like_each_of_its_observations(kwargs: dict[str, Any]) -> None:
    rules = DfaasRules(**kwargs)
    for observations in observations_of(kwargs)[:4]:
        for amount in AMOUNTS:
            for agent in rules.agents:
                policy = Baseline(amount, rules, agent)
                batch = observations[agent]
                singles = [{key: part[row] for key, part in batch.items()} for row in range(3)]
                together = policy.act(batch, rng=np.random.default_rng(2)).action.tolist()
                rng = np.random.default_rng(2)
                one_by_one = [policy.act(single, rng=rng).action for single in singles]
                assert [np.shape(action) for action in one_by_one] == [()] * 3
                if amount != "random":
                    assert together == one_by_one
                again = policy.act(batch, rng=np.random.default_rng(2), deterministic=True)
                assert again.action.tolist() == together


@settings(max_examples=40, deadline=None)
@given(configurations())
def test_amounts_reach_the_environment_exactly(kwargs: dict[str, Any]) -> None:
    """Through scaled float32 observations, in whole requests, where a unit is one request."""
    trace = bounded(kwargs["trace"], 5_000)
    kwargs |= {"trace": trace, "load_scale": None, "capacity_scale": None, "capacity": None}
    kwargs |= {"max_level": 5_000, "observation": "every", "amount": "unit", "augment": None}
    kwargs["route"] = "spare" if kwargs["route"] == "choose" else kwargs["route"]
    rules = DfaasRules(**kwargs, keep_flow=True)
    assert rules.unit == 1
    low, high = rules.rows
    for amount in ("static", "overflow", "threshold", "patient"):
        batch = Batch(rules, 1, 0)
        team = baseline_team(amount, rules)
        observations = batch.reset()
        waiting = np.zeros(len(rules.agents), dtype=np.int64)
        for t in range(min(rules.max_cycles, 10)):
            row = low + (kwargs["start"] + t) % (high - low)
            a, c = trace.arrivals[row], trace.capacity[row]  # type: ignore[index]
            step = batch.step(acts(team, observations))
            due = {
                "static": a * 2 // 5,
                "overflow": np.maximum(0, a - c),
                "threshold": np.maximum(0, a - c * 4 // 5),
                "patient": np.clip(waiting + a - c - rules.queue, 0, a),
            }[amount]
            linked = rules.network.links.any(axis=1)
            assert step.info["forwarded"][0].tolist() == np.where(linked, due, 0).tolist()
            waiting = step.info["waiting"][0]
            observations = step.observations


def acts(team: Any, observations: Any, rng: np.random.Generator | None = None) -> np.ndarray:
    """Everybody's actions, [B, N]."""
    chosen = [policy.act(observations[agent], rng=rng).action for agent, policy in team.items()]
    return np.stack(chosen, axis=1)


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=2**32 - 1), st.sampled_from(ROUTES))
def test_forwarding_the_overflow_serves_all_that_can_be_served(seed: int, route: str) -> None:
    """On a complete graph with second offers: min(sum a, sum c) at every step, by any route."""
    random = random_configuration(np.random.default_rng(seed))
    trace = bounded(random["trace"], 100)
    rules = DfaasRules(
        trace, start=random["start"] % len(trace), max_cycles=10, route=route, illegal="raise"
    )
    team = baseline_team("overflow", rules)
    batch = Batch(rules, 2, seed)
    observations = batch.reset()
    for t in range(10):
        step = batch.step(acts(team, observations))
        row = (random["start"] + t) % len(trace)
        a, c = int(trace.arrivals[row].sum()), int(trace.capacity[row].sum())  # type: ignore[index]
        possible = min(a, c)
        served = step.info["served_local"] + step.info["served_remote"]
        assert served.sum(axis=1).tolist() == [possible, possible]
        assert step.info["lost"].sum(axis=1).tolist() == [a - possible] * 2
        observations = step.observations


def test_without_a_second_offer_the_overflow_may_serve_less() -> None:
    """What the test above holds fails where its conditions do."""
    lost = {}
    for second_offer in (True, False):
        rules = DfaasRules(small_trace(), second_offer=second_offer, max_cycles=40, start=0)
        batch = Batch(rules, 1, 0)
        team = baseline_team("overflow", rules)
        observations = batch.reset()
        lost[second_offer] = 0
        for _ in range(40):
            step = batch.step(acts(team, observations))
            observations = step.observations
            lost[second_offer] += int(step.info["lost"].sum())
    assert lost[False] > lost[True] > 0


def test_random_is_uniform_over_the_legal_levels() -> None:
    rules = rules_of()
    policy = Baseline("random", rules)
    rng = np.random.default_rng(0)
    num_envs = 20_000
    for a in (0, 1, 6, 20):
        single = shown(rules, a, 3)
        batch = {key: np.repeat(part[None], num_envs, axis=0) for key, part in single.items()}
        counts = np.bincount(policy.act(batch, rng=rng).action, minlength=rules.levels)
        assert counts[a + 1 :].sum() == 0
        expected = num_envs / (a + 1)
        chi_square = ((counts[: a + 1] - expected) ** 2 / expected).sum()
        assert chi_square <= a + 5 * np.sqrt(2 * a)  # five standard deviations above its mean
    with refused(ValueError, "random", "rng="):
        policy.act(single)


@pytest.mark.parametrize("pair", PAIRS)
def test_every_pair_plays_an_episode_without_an_illegal_action(pair: str) -> None:
    amount, route = split_pair(pair)
    rules = DfaasRules(small_trace(), route=route, queue=3, max_cycles=20, illegal="raise")
    env = ParallelShell(rules)
    team = baseline_team(amount, rules)
    rng = np.random.default_rng(0)
    observations, _ = env.reset(seed=0)
    forwarded = steps = 0
    while env.agents:
        actions = {a: team[a].act(observations[a], rng=rng).action for a in env.agents}
        observations, _, _, _, infos = env.step(actions)
        forwarded += sum(info["forwarded"] for info in infos.values())
        steps += 1
    assert steps == 20
    assert (forwarded > 0) == (amount != "local")


def test_a_team_is_the_same_policy_at_every_node() -> None:
    rules = rules_of()
    team = baseline_team("margin", rules)
    assert tuple(team) == rules.agents
    assert {type(policy) for policy in team.values()} == {Baseline}
    assert {policy.amount for policy in team.values()} == {"margin"}
    assert team["node_0"].initial_state(4) is None
    decision = team["node_0"].act(shown(rules, 9, 2, spares=(1, 1)), state=None)
    assert decision == Decision(action=decision.action)
    assert int(decision.action) == 2


def test_pairs_are_split_and_the_route_is_equal_by_default() -> None:
    assert split_pair("overflow/two") == ("overflow", "two")
    assert split_pair("patient-margin/spare") == ("patient-margin", "spare")
    assert split_pair("static") == ("static", "equal")
    assert split_pair("static/") == ("static", "equal")
    assert {split_pair(pair)[0] for pair in PAIRS} == set(AMOUNTS)
    left_out = {"choose", "fill", "two-choices"}  # the last is slow: a loop over requests
    assert {split_pair(pair)[1] for pair in PAIRS} == set(ROUTES) - left_out
    assert len(set(PAIRS)) == len(PAIRS)


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (lambda: split_pair("overflw/two"), ("'overflw'", "'overflow'")),
        (lambda: split_pair("overflow/too"), ("'too'", "'two'")),
        (lambda: split_pair("overflow/two/three"), ("'two/three'", "least, round-robin")),
        (lambda: Baseline("marign", rules_of()), ("'marign'", "'margin'")),
        (
            lambda: baseline_team("patient_margin", rules_of()),
            ("'patient_margin'", "'patient-margin'"),
        ),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(call: Any, values: tuple[Any, ...]) -> None:
    with refused(UnknownNameError, *values):
        call()


def test_every_amount_and_route_is_told_in_words() -> None:
    assert set(baselines.OF_AMOUNT) == {*baselines.AMOUNTS, *TUNED}
    assert set(baselines.OF_ROUTE) == set(ROUTES)
    told = "a node forwards arrivals beyond its capacity, in equal parts to its neighbors"
    assert baselines.meaning("overflow/equal") == told
    assert baselines.meaning("local/equal").startswith("a node forwards nothing")
