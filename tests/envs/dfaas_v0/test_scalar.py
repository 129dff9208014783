"""The scalar dfaas_v0: worked examples, laws for every configuration, and the plain shell."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from corral.errors import ActionError, IllegalActionError, ScaleError
from support.dfaas_case import Case, make_trace
from support.dfaas_cases import CASES
from support.dfaas_configurations import (
    bounded,
    configurations,
    random_actions,
    random_configuration,
    random_draws,
)
from support.dfaas_plain_env import PlainDfaas
from support.dfaas_scalar import INFO_KEYS, ScalarDfaas
from support.messages import refused

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_worked_example(case: Case) -> None:
    rules = ScalarDfaas(**case.kwargs, draws=case.draws)
    rules.reset()
    assert rules.unit == case.unit
    if case.actions is not None:
        assert rules.actions == case.actions
    if case.highest_legal is not None:
        for i, highest in enumerate(case.highest_legal):
            assert rules.mask(i).tolist() == [1] * (highest + 1) + [0] * (
                rules.actions - highest - 1
            )
    for i, expected in (case.first_observations or {}).items():
        assert_allclose(rules.observation(i), expected, atol=1e-6)
    for step in case.steps:
        rewards = rules.step(step.actions)
        for key in ("forwarded", "served_local", "served_remote", "lost", "waiting"):
            assert rules.info[key] == getattr(step, key), key
        assert rules.info["illegal_actions"] == (step.illegal_actions or [0] * rules.n)
        assert rules.queues == step.waiting
        assert rules.last_spare == step.spare
        assert rules.last_lost == step.lost
        assert_allclose(rewards, step.rewards, atol=1e-12)
        if step.arrivals is not None:
            assert rules.info["arrivals"] == step.arrivals
        if step.flows is not None:
            assert step.flows == {
                (i, j): flow
                for i, row in enumerate(rules.flows)
                for j, flow in enumerate(row)
                if flow
            }
        for i, expected in (step.observations or {}).items():
            assert_allclose(rules.observation(i), expected, atol=1e-6)
        if step.global_state is not None:
            assert_allclose(rules.global_state(), step.global_state, atol=1e-6)


@settings(max_examples=150, deadline=None)
@given(configurations(), SEEDS)
def test_requests_are_conserved(configuration: dict, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rules = ScalarDfaas(**configuration)
    rules.draws = random_draws(rng, rules)
    rules.reset()
    for _ in range(rules.max_cycles):
        queues, capacity = list(rules.queues), rules.c
        masks = [rules.mask(i) for i in range(rules.n)]
        actions = random_actions(rng, rules)
        rules.step(actions)
        info = rules.info
        for i in range(rules.n):
            accepted = sum(rules.flows[i])
            came = info["arrivals"][i] + queues[i]
            gone = info["served_local"][i] + accepted + info["lost"][i]
            assert came == gone + info["waiting"][i]
            assert 0 <= accepted <= info["forwarded"][i] <= info["arrivals"][i]
            served = info["served_local"][i] + info["served_remote"][i]
            assert served + rules.last_spare[i] == capacity[i]
            assert rules.last_spare[i] >= 0
            assert 0 <= info["waiting"][i] <= rules.queue
            assert info["lost"][i] >= 0
            assert info["illegal_actions"][i] == 1 - masks[i][actions[i]]
            for j, flow in enumerate(rules.flows[i]):
                assert flow == 0 or j in rules.neighbours[i]
                assert flow <= (rules.link_limit if rules.link_limit is not None else flow)
        assert sum(info["served_remote"]) == sum(map(sum, rules.flows))


@settings(max_examples=100, deadline=None)
@given(configurations(), SEEDS)
def test_what_is_shown_lies_in_the_unit_interval(configuration: dict, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rules = ScalarDfaas(**configuration)
    rules.draws = random_draws(rng, rules)
    rules.reset()
    for t in range(rules.max_cycles + 1):
        shown = [*(rules.observation(i) for i in range(rules.n)), rules.global_state()]
        assert all(values.dtype == np.float32 for values in shown)
        most = 4 if rules.summary else 1
        assert all((values >= 0).all() and (values <= most).all() for values in shown)
        assert all(rules.mask(i)[0] == 1 for i in range(rules.n))
        if t < rules.max_cycles:
            rules.step(random_actions(rng, rules))


@settings(max_examples=100, deadline=None)
@given(configurations())
def test_forwarding_the_overflow_serves_all_that_can_be_served(configuration: dict) -> None:
    free = {
        "trace": bounded(configuration["trace"], 5_000),
        **{"load_scale": None, "capacity_scale": None, "capacity": None},
        "max_level": 5_000,
        "amount": "unit",
        "observation": "every",
        "augment": None,
        "queue": 0,
        "link_limit": None,
        "neighbours": None,
    }
    rules = ScalarDfaas(**configuration | free | {"second_offer": True, "route": "equal"})
    if rules.n == 1:
        return
    rules.reset()
    assert rules.unit == 1
    for _ in range(rules.max_cycles):
        a, c = rules.a, rules.c
        rules.step([max(0, a[i] - c[i]) for i in range(rules.n)])
        served = sum(rules.info["served_local"]) + sum(rules.info["served_remote"])
        assert served == min(sum(a), sum(c))


def test_configurations_cover_the_odd_ones() -> None:
    many = [random_configuration(np.random.default_rng(seed)) for seed in range(300)]
    rules = [ScalarDfaas(**configuration) for configuration in many]
    assert {r.n for r in rules} == {1, 2, 3, 4, 5, 6}
    assert {r.route for r in rules} == {"equal", "capacity", "spare", "shortest", "two", "choose"}
    assert any(r.unit == 1 and r.load_scale > 1 for r in rules)
    assert any(r.unit > 1 for r in rules)
    assert any(len(np.unique(np.diff(r.requests))) > 1 for r in rules)
    assert any(r.ways > min(map(len, r.neighbours)) > 0 for r in rules)
    assert any(r.link_limit == 0 for r in rules)
    assert any(r.n > 1 and [] in r.neighbours for r in rules)
    assert any(r.max_cycles > len(r.arrivals) > 1 for r in rules)
    assert any(
        len(r.arrivals) < len(configuration["trace"])
        for r, configuration in zip(rules, many, strict=True)
    )
    assert any(configuration["trace"].capacity is None for configuration in many)


def test_reset_starts_anew() -> None:
    rules = ScalarDfaas(make_trace([[4, 0]], [[1, 2]]), queue=3)
    rules.reset()
    first = rules.step([2, 0]), rules.observation(1).tolist(), dict(rules.info)
    rules.reset()
    assert rules.info == {key: [0, 0] for key in INFO_KEYS}
    assert (rules.step([2, 0]), rules.observation(1).tolist(), dict(rules.info)) == first


def test_what_is_refused() -> None:
    trace = make_trace([[4, 0]], [[1, 2]])
    strict = ScalarDfaas(trace, illegal="raise")
    strict.reset()
    with pytest.raises(IllegalActionError, match="node_1"):
        strict.step([4, 1])
    with pytest.raises(ActionError, match="node_0"):
        strict.step([5, 0])
    with refused(ScaleError, "load_scale=3", 4):
        ScalarDfaas(trace, load_scale=3)
    with refused(ScaleError, "capacity_scale=1", 2):
        ScalarDfaas(trace, capacity_scale=1)
    with pytest.raises(ValueError, match="capacity"):
        ScalarDfaas(make_trace([[4, 0]], None))


@pytest.mark.parametrize("route", ["equal", "two"])
def test_plain_environment_is_a_pettingzoo_environment(
    route: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = make_trace([[4, 0, 9], [3, 2, 1]], [[1, 2, 3], [4, 5, 6]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own deprecations, and advice on unusual spaces
        from pettingzoo.test import parallel_api_test

        parallel_api_test(PlainDfaas(trace, max_cycles=7, route=route), num_cycles=50)
    assert "Passed" in capsys.readouterr().out


def test_plain_environment_repeats_itself_by_seed() -> None:
    trace = make_trace([[i, 3, 9 - i] for i in range(10)], [[2, 5, 3]] * 10)
    env = PlainDfaas(trace, max_cycles=4, route="two")
    episodes = []
    for seed in (1, 1, 2, 3, 4):
        env.reset(seed=seed)
        rewards = []
        while env.agents:
            _, reward, terminated, truncated, _ = env.step(dict.fromkeys(env.agents, 2))
            rewards.append(tuple(reward.values()))
            assert not any(terminated.values())
        assert all(truncated.values())
        assert len(rewards) == 4
        episodes.append(rewards)
    assert episodes[0] == episodes[1]
    assert len({str(rewards) for rewards in episodes}) > 2


def test_plain_environment_steps_under_supersuit() -> None:
    supersuit = pytest.importorskip("supersuit")
    trace = make_trace([[4, 0, 9], [3, 2, 1]], [[1, 2, 3], [4, 5, 6]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own deprecations
        single = supersuit.pettingzoo_env_to_vec_env_v1(PlainDfaas(trace, max_cycles=3))
        env = supersuit.concat_vec_envs_v1(single, 2, num_cpus=0, base_class="gymnasium")
        observation, _ = env.reset(seed=0)
    assert observation["observation"].shape == (2 * 3, 7)
    assert observation["action_mask"].shape == (2 * 3, 10)
    for t in range(6):
        observation, reward, terminated, truncated, _ = env.step(np.zeros(6, np.int64))
        assert observation["observation"].shape == (6, 7)
        assert reward.shape == (6,)
        assert not np.any(terminated)
        assert np.all(truncated) == (t % 3 == 2)
