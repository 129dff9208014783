"""The array rules of dfaas_v0 and their plain re-statement play side by side, number by number."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.envs.core import copy_rows, generator, put_rows
from corral.envs.dfaas_v0 import ROUTES, DfaasRules, DfaasState
from corral.envs.dfaas_v0.routes import canonical_route
from support.dfaas_case import Case
from support.dfaas_cases import CASES
from support.dfaas_configurations import (
    random_actions,
    residual_configuration,
    wider_configuration,
)
from support.dfaas_scalar import INFO_KEYS, ScalarDfaas

COPIES = 3
BLOCKS = pytest.mark.parametrize(
    "block", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 16))]
)


def scalar_copy(kwargs: dict[str, Any], start: int, draws: Any) -> ScalarDfaas:
    scalar = ScalarDfaas(**{**kwargs, "start": start, "draws": draws})
    scalar.reset()
    return scalar


def assert_same_view(rules: DfaasRules, state: DfaasState, scalars: list[ScalarDfaas]) -> None:
    """Observations, masks and global state of every copy and node."""
    observations, global_state = rules.observe(state), rules.global_state(state)
    for copy, scalar in enumerate(scalars):
        for i, agent in enumerate(rules.agents):
            seen = {key: value[copy] for key, value in observations[agent].items()}
            assert seen["observation"].dtype == np.float32
            assert seen["action_mask"].dtype == np.int8
            np.testing.assert_allclose(seen["observation"], scalar.observation(i), atol=1e-6)
            np.testing.assert_array_equal(seen["action_mask"], scalar.mask(i))
            assert rules.observation_space(agent).contains(seen)
        np.testing.assert_allclose(global_state[copy], scalar.global_state(), atol=1e-6)


def play_side_by_side(seed: int, configure: Any = wider_configuration) -> int:
    """Play a random configuration to its end with both; the number of steps compared."""
    rng = np.random.default_rng(seed)
    kwargs = configure(rng)
    rules = DfaasRules(**kwargs, keep_flow=True)
    length = rules.rows[1] - rules.rows[0]
    starts = rng.integers(length, size=COPIES)
    state = rules.start_at(starts, [generator(seed, "env", copy) for copy in range(COPIES)])
    scalars = [scalar_copy(kwargs, int(starts[copy]), state.draws[copy]) for copy in range(COPIES)]
    # The copies need not be at the same step: let the first play ahead by itself.
    ahead = int(rng.integers(3)) if rules.max_cycles > 3 else 0
    for _ in range(ahead):
        compare_step(rules, state, scalars, [0], rng)
    steps = 0
    for _ in range(rules.max_cycles - ahead):
        assert_same_view(rules, state, scalars)
        compare_step(rules, state, scalars, list(range(COPIES)), rng)
        steps += COPIES
    assert_same_view(rules, state, scalars)
    return steps + ahead


def compare_step(
    rules: DfaasRules,
    state: DfaasState,
    scalars: list[ScalarDfaas],
    rows: list[int],
    rng: np.random.Generator,
) -> None:
    """Play one step with the copies ``rows`` and compare all that it yields."""
    actions = [random_actions(rng, scalars[row]) for row in rows]
    part = copy_rows(state, np.array(rows))
    outcome = rules.step(part, np.array(actions))
    put_rows(state, np.array(rows), outcome.state)
    assert not outcome.terminated.any()
    for copy, row in enumerate(rows):
        reward = scalars[row].step(actions[copy])
        np.testing.assert_allclose(outcome.reward[copy], reward, rtol=1e-5, atol=1e-7)
        for key in INFO_KEYS:
            assert outcome.info[key][copy].tolist() == scalars[row].info[key], key
        assert state.spare[row].tolist() == scalars[row].last_spare
        assert state.queue[row].tolist() == scalars[row].queues
        assert state.flow[row].tolist() == scalars[row].flows


@BLOCKS
def test_thousands_of_random_configurations_play_alike(block: int) -> None:
    steps = sum(play_side_by_side(seed) for seed in range(125 * block, 125 * (block + 1)))
    assert steps > 1_250


def test_the_random_configurations_hold_all_that_meets() -> None:
    """Every route with every kind of observation, arrivals known or not, levels, reports and what
    else is observed, among those played above."""
    played = [wider_configuration(np.random.default_rng(seed)) for seed in range(2000)]
    large = [
        {
            "route": canonical_route(each["route"]),
            "observation": each["observation"],
            "arrivals": each.get("arrivals", "known"),
            "amount": each["amount"] if isinstance(each["amount"], str) else "list",
            "links": each["link_limit"] is not None,
            "report_delay": min(each["report_delay"], 2),
            "last_counts": min(each.get("last_counts", 9), 2),
            "daily_mean": type(each.get("daily_mean", False)) is not bool,
        }
        for each in played
        if len(each["trace"].nodes) > 2 and each["max_cycles"] > 2
    ]
    kinds = {
        "observation": ("every", "summary", "neighborhood"),
        "arrivals": ("known", "unknown"),
        "amount": ("unit", "quantile", "list", "keep", "share"),
        "links": (False, True),
        "report_delay": (0, 1, 2),
        "last_counts": (0, 1, 2),
        "daily_mean": (False, True),
        "route": ROUTES,
    }
    for first, second in itertools.combinations(kinds, 2):
        for one, other in itertools.product(kinds[first], kinds[second]):
            both = {first: one, second: other}
            if both.get("observation", "every") != "every" and "keep" in both.values():
                continue  # refused
            if both.get("arrivals") == "unknown" and 0 in (
                both.get("report_delay"),
                both.get("last_counts"),
            ):
                continue  # refused as well
            assert any(both.items() <= each.items() for each in large), both
    chosen = [each for each in large if each["route"] == "choose"]
    for one, other in itertools.product(kinds["arrivals"], kinds["amount"]):
        assert any((each["arrivals"], each["amount"]) == (one, other) for each in chosen)


@settings(max_examples=40, deadline=None)
@given(st.integers(min_value=2**20, max_value=2**40))
def test_any_configuration_plays_alike(seed: int) -> None:
    assert play_side_by_side(seed) > 0


@BLOCKS
def test_offsets_to_any_rule_play_alike(block: int) -> None:
    """Masks, observations, kept requests, and numbers above the scales."""
    seeds = range(100 * block, 100 * (block + 1))
    assert sum(play_side_by_side(seed, residual_configuration) for seed in seeds) > 1_000


@pytest.mark.parametrize("case", CASES, ids=str)
def test_worked_examples(case: Case) -> None:
    """The examples worked out by hand hold for the array rules too."""
    rules = DfaasRules(**case.kwargs, keep_flow=True)
    state = rules.start([np.random.default_rng(0)])
    if case.draws is not None:
        state.draws[0, : len(case.draws)] = case.draws
    assert rules.unit == case.unit
    if case.actions is not None:
        assert rules.levels == case.actions
    if case.highest_legal is not None:
        masks = [rules.observe(state)[agent]["action_mask"][0] for agent in rules.agents]
        assert [int(mask.sum()) - 1 for mask in masks] == case.highest_legal
    assert_shown(rules, state, case.first_observations)
    for step in case.steps:
        outcome = rules.step(state, np.array([step.actions]))
        state = outcome.state
        played = {key: values[0].tolist() for key, values in outcome.info.items()}
        for key in ("forwarded", "served_local", "served_remote", "lost", "waiting"):
            assert played[key] == getattr(step, key), key
        assert state.spare[0].tolist() == step.spare
        np.testing.assert_allclose(outcome.reward[0], step.rewards, atol=1e-6)
        assert played["illegal_actions"] == (step.illegal_actions or [0] * len(step.actions))
        if step.arrivals is not None:
            assert played["arrivals"] == step.arrivals
        if step.flows is not None:
            flows = {(i, j): state.flow[0, i, j] for i, j in np.argwhere(state.flow[0])}
            assert flows == step.flows
        assert_shown(rules, state, step.observations)
        if step.global_state is not None:
            np.testing.assert_allclose(rules.global_state(state)[0], step.global_state, atol=1e-6)


def assert_shown(
    rules: DfaasRules, state: DfaasState, expected: dict[int, list[float]] | None
) -> None:
    for i, values in (expected or {}).items():
        seen = rules.observe(state)[f"node_{i}"]["observation"][0]
        np.testing.assert_allclose(seen, values, atol=1e-6)
