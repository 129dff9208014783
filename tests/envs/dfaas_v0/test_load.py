"""Augmented days: what they are made of, and that only the training environment plays them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.data import load_trace
from corral.envs.batch import Batch
from corral.envs.core import changed, copy_rows, generator, redraw_of, redrawing
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.load import AugmentedState
from corral.trainers.runs.env_config import EnvConfig
from support.dfaas_configurations import random_actions, wider_configuration
from support.dfaas_scalar import INFO_KEYS, ScalarDfaas

ALL = "shift=12,scale=0.2,noise=0.1,mix=0.5"
DAY = 288  # steps of edge3's


def begun(rules: DfaasRules, num_envs: int, seed: int = 0) -> AugmentedState:
    state = rules.start([generator(seed, "env", row) for row in range(num_envs)])
    assert isinstance(state, AugmentedState)
    return state


def recorded(rules: DfaasRules, state: AugmentedState, what: str) -> Any:
    """The recorded rows of the same episodes, with each node's offset: int64 [B, T + 1, N]."""
    table = getattr(rules.trace, what)[slice(*rules.rows)]
    steps = np.arange(state.load.shape[1])
    rows = state.start[:, None, None] + steps[:, None] + state.offset[:, None]
    return table[rows % len(table), np.arange(table.shape[1])]


# --- Against the plain re-statement ---------------------------------------------------------------


def random_augment(rng: np.random.Generator) -> dict[str, float]:
    most = {"shift": int(rng.integers(1, 30)), "scale": 1.0, "noise": 0.5, "mix": 0.7}
    return {name: value for name, value in most.items() if rng.random() < 0.6} or {"mix": 1.0}


def play_side_by_side(seed: int) -> int:
    rng = np.random.default_rng(seed)
    kwargs = wider_configuration(rng)
    augment = random_augment(rng)
    rules = DfaasRules(**kwargs, augment=augment, keep_flow=True)
    state = begun(rules, 2, seed)
    scalars = []
    for row in range(2):
        drawn = generator(seed, "env", row)
        if rules.route == "two-choices":  # is drawn first
            drawn.integers(2**31, size=state.draws.shape[1:], dtype="i4")
        if rules.route == "two":
            high = np.maximum(rules.network.degree, 1)[:, None]
            drawn.integers(high, size=state.draws.shape[1:], dtype="i4")
        scalars.append(
            ScalarDfaas(**kwargs, augment=augment, draws=state.draws[row], rng=drawn),
        )
        scalars[-1].reset()
    for _ in range(rules.max_cycles):
        compare_views(rules, state, scalars)
        actions = [random_actions(rng, scalar) for scalar in scalars]
        outcome = rules.step(state, np.array(actions))
        for row, scalar in enumerate(scalars):
            reward = scalar.step(actions[row])
            np.testing.assert_allclose(outcome.reward[row], reward, rtol=1e-5, atol=1e-7)
            for key in INFO_KEYS:
                assert outcome.info[key][row].tolist() == scalar.info[key], key
    compare_views(rules, state, scalars)
    return 2 * rules.max_cycles


def compare_views(rules: DfaasRules, state: Any, scalars: list[ScalarDfaas]) -> None:
    observations, global_state = rules.observe(state), rules.global_state(state)
    for row, scalar in enumerate(scalars):
        for i, agent in enumerate(rules.agents):
            seen = {key: value[row] for key, value in observations[agent].items()}
            np.testing.assert_allclose(seen["observation"], scalar.observation(i), atol=1e-6)
            np.testing.assert_array_equal(seen["action_mask"], scalar.mask(i))
            assert rules.observation_space(agent).contains(seen)
        np.testing.assert_allclose(global_state[row], scalar.global_state(), atol=1e-6)


def test_random_configurations_play_as_the_plain_re_statement_does() -> None:
    # So many that routes meet most of the other arguments.
    assert sum(play_side_by_side(seed) for seed in range(80)) > 800


# --- What the parts do ---------------------------------------------------------------------------


def test_shifted_rows_are_the_nodes_own_at_other_times() -> None:
    rules = DfaasRules(augment={"shift": 12}, rows=(100, 700))
    state = begun(rules, 300)
    assert set(np.unique(state.offset)) == set(range(-12, 13))
    assert (state.offset[:, 0] != state.offset[:, 1]).mean() > 0.8  # each node by itself
    np.testing.assert_array_equal(state.load[:, :, 0], recorded(rules, state, "arrivals"))
    np.testing.assert_array_equal(state.load[:, :, 1], recorded(rules, state, "capacity"))


def test_mixed_nodes_have_another_day_at_the_same_time() -> None:
    rules = DfaasRules(augment="mix=0.5", rows=(0, 5 * DAY + 40))
    state = begun(rules, 400)
    assert (state.offset % DAY == 0).all()
    assert abs((state.offset != 0).mean() - 0.5) < 0.05
    played = state.start[:, None] + state.offset
    assert played.min() >= 0
    assert played.max() < 5 * DAY + 40
    assert len(np.unique(played // DAY)) == 6  # the days drawn; of the last only 40 rows
    np.testing.assert_array_equal(state.load[:, :, 0], recorded(rules, state, "arrivals"))
    np.testing.assert_array_equal(state.load[:, :, 1], recorded(rules, state, "capacity"))


def test_where_there_is_but_one_day_none_is_mixed() -> None:
    rules = DfaasRules(augment="mix=1", rows=(0, DAY))
    assert not begun(rules, 20).offset.any()


def test_without_a_clock_any_other_row_can_be_mixed_in() -> None:
    trace = load_trace("edge3")
    times = np.arange(len(trace))
    without = type(trace)(trace.nodes, trace.arrivals, trace.capacity, times, name="no clock")
    rules = DfaasRules(without, augment="mix=1", max_cycles=5)
    offset = begun(rules, 200).offset
    assert (offset != 0).all()
    assert len(np.unique(offset)) > 500


def test_scaled_loads_rise_together_by_half() -> None:
    rules = DfaasRules(augment="scale=0.3", load_scale=10_000, max_cycles=3)
    state = begun(rules, 3000)
    logs = np.log(state.factor)
    np.testing.assert_allclose(logs.std(axis=0), 0.3, rtol=0.06)
    np.testing.assert_allclose(np.corrcoef(logs.T)[np.triu_indices(3, 1)], 0.5, atol=0.06)
    expected = np.rint(recorded(rules, state, "arrivals") * state.factor[:, None])
    np.testing.assert_array_equal(state.load[:, :, 0], expected)
    np.testing.assert_array_equal(state.load[:, :, 1], recorded(rules, state, "capacity"))


def test_noise_is_of_each_row_by_itself() -> None:
    rules = DfaasRules(augment="noise=0.2", load_scale=10**9, trace=busy_trace())
    state = begun(rules, 40)
    logs = np.log(state.load[:, :, 0] / recorded(rules, state, "arrivals"))
    assert abs(logs.std() - 0.2) < 0.005
    assert abs(np.mean(logs[:, 1:] * logs[:, :-1])) < 0.002
    assert abs(np.mean(logs[..., 0] * logs[..., 1])) < 0.002


def busy_trace() -> Any:
    trace = load_trace("edge3")
    return type(trace)(trace.nodes, 1000 + trace.arrivals, trace.capacity, trace.times, trace.clock)


def test_loads_are_cut_at_the_scale() -> None:
    rules = DfaasRules(augment="scale=1,noise=1")
    state = begun(rules, 50)
    assert state.load[:, :, 0].max() == rules.load_scale
    assert state.load[:, :, 0].min() == 0
    assert rules.load.at(state, state.start).dtype == np.int64


# --- Chance --------------------------------------------------------------------------------------


def test_what_was_drawn_before_stays_as_it_was() -> None:
    plain, rules = DfaasRules(route="two"), DfaasRules(route="two", augment=ALL)
    own = plain.start([generator(3, "env", row) for row in range(6)])
    state = begun(rules, 6, seed=3)
    np.testing.assert_array_equal(state.start, own.start)
    np.testing.assert_array_equal(state.draws, own.draws)


@pytest.mark.parametrize("nothing", [None, {"shift": 0}, "scale=0,noise=0.0"])
def test_an_augmentation_of_nothing_is_none(nothing: Any) -> None:
    rules = DfaasRules(augment=nothing)
    assert rules.identity == DfaasRules().identity
    assert type(rules.start([generator(0, "env")])).__name__ == "DfaasState"


def test_rules_that_play_other_loads_have_another_identity() -> None:
    found = {DfaasRules(augment=each).identity for each in (None, "shift=1", "shift=2", "mix=1")}
    assert len(found) == 4
    assert DfaasRules(augment="shift=1").identity == DfaasRules(augment={"shift": 1}).identity


def test_episodes_differ_and_a_snapshot_goes_on_bit_for_bit() -> None:
    rules = DfaasRules(augment=ALL, max_cycles=7, queue=4)
    batch, rng = Batch(rules, 3, seed=1), np.random.default_rng(0)
    batch.reset()
    loads = [batch.step(batch.sample_actions(rng)).info["arrivals"] for _ in range(30)]
    assert len({load.tobytes() for load in loads}) > 25
    other = Batch(rules, 3, seed=9)
    other.restore(batch.snapshot())
    for _ in range(20):  # over the end of episodes
        actions = batch.sample_actions(rng)
        ours, theirs = batch.step(actions), other.step(actions)
        np.testing.assert_array_equal(ours.reward, theirs.reward)
        for agent in rules.agents:
            for key, values in ours.observations[agent].items():
                np.testing.assert_array_equal(values, theirs.observations[agent][key])


def test_rules_without_a_limit_play_on() -> None:
    rules = changed(DfaasRules(augment=ALL), max_cycles=None)
    state = begun(rules, 1)
    state.t[:] = 10_000
    first = rules.step(state, np.zeros((1, 3), dtype=np.int64)).info["arrivals"]
    np.testing.assert_array_equal(first, state.load[:, 10_000, 0])
    rules.observe(state)


def test_a_picture_shows_the_load_that_is_played() -> None:
    rules = DfaasRules(augment="scale=0.5", capacity=20)
    state = begun(rules, 1)
    assert rules.frame(state, rules.info(state)).arrivals == tuple(state.load[0, 0, 0])
    outcome = rules.step(state, np.zeros((1, 3), dtype=np.int64))
    assert rules.frame(state, outcome.info).arrivals == tuple(state.load[0, 0, 0])


def test_a_place_says_that_its_load_is_not_the_recorded_one() -> None:
    rules = DfaasRules(rows=(1000, 3000), start=204, augment="shift=3")
    assert rules.places(begun(rules, 1)) == ["row 1,204, augmented"]


# --- Other days ----------------------------------------------------------------------------------


def test_other_days_are_augmented_as_the_own_one() -> None:
    rules = DfaasRules(augment=ALL, rows=(0, 9 * DAY), route="two")
    others = redrawing(rules)
    redraw = redraw_of(others)
    assert isinstance(others, DfaasRules)
    assert redraw is not None
    batch = Batch(rules, 8, seed=0)
    batch.reset()
    for _ in range(30):
        batch.step(batch.sample_actions(np.random.default_rng(0)))
    state = batch.moments(np.arange(8))[0]
    new = redraw(copy_rows(state, slice(None)), np.random.default_rng(1).spawn(8), False)
    for agent, seen in others.observe(new).items():
        for key, values in rules.observe(state)[agent].items():
            np.testing.assert_array_equal(seen[key], values)
    np.testing.assert_array_equal(new.load[:, :31, 0], state.load[:, :31, 0])
    assert (new.load[:, 31:, 0] != state.load[:, 31:, 0]).mean() > 0.5
    days = new.offset - state.offset
    assert (days % DAY == 0).all()
    assert (days == days[:, :1]).all()
    assert days.all()
    expected = recorded(rules, new, "arrivals")[:, 31:] * new.factor[:, None]
    ratio = new.load[:, 31:, 0].sum() / expected.sum()
    assert abs(ratio - 1) < 0.03  # the noise aside, it is the other day as the own one was changed


# --- Who plays it --------------------------------------------------------------------------------


def test_only_training_plays_augmented_days(tmp_path: Path) -> None:
    config = EnvConfig.of("dfaas_v0", {"augment": ALL})
    saved = json.loads(json.dumps(config.write(tmp_path)))
    read = EnvConfig.read(saved, tmp_path)
    for each in (config, read):
        assert each.rules().augment is not None
        assert each.rules().identity == config.rules().identity
        assert each.validation_rules().augment is None
        assert each.held_out_rules().augment is None
        assert each.validation["rows"] != each.env_kwargs["rows"]


def test_a_run_without_it_is_written_as_before() -> None:
    config = EnvConfig.of("dfaas_v0", {})
    assert "augment" not in config.held_out
    assert "augment" not in config.validation
