"""Batch: snapshots, legal actions, and what it refuses to make."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest

from corral.envs.batch import Batch, make_batch
from corral.envs.core import Outcome, stack_agents
from corral.envs.dfaas_v0 import DfaasRules
from corral.errors import ResetNeededError, UnknownNameError
from support.batch_rules import RULES, TURNS, dfaas, mortal
from support.contract import plain
from support.loads import small_trace
from support.messages import refused
from support.steady_rules import SteadyRules, SteadyState

# --- Snapshots -----------------------------------------------------------------------------------


def play(batch: Batch, rng: np.random.Generator, steps: int) -> list[Any]:
    """All that some steps show, as plain data."""
    record = []
    for _ in range(steps):
        step = batch.step(batch.sample_actions(rng))
        shown = [plain(step.observations), plain(step.reward), plain(step.info)]
        shown += [plain(step.terminated), plain(step.truncated), plain(step.acting)]
        if step.finished is not None:
            shown += [plain(step.finished.returns), plain(step.finished.observations)]
        record.append(shown)
    return record


@pytest.mark.parametrize("name", [*RULES, *TURNS])
@pytest.mark.parametrize("before", [0, 4])
def test_a_restored_snapshot_goes_on_bit_for_bit(name: str, before: int) -> None:
    rules = {**RULES, **TURNS}[name]
    batch = Batch(rules(), 3, 8)
    batch.reset()
    play(batch, np.random.default_rng(0), before)
    observations = plain(batch._observations)
    snapshot = batch.snapshot()
    played = play(batch, np.random.default_rng(1), 20)

    fresh = Batch(rules(), 3, 99)
    assert plain(fresh.restore(copy.deepcopy(snapshot))) == observations
    assert play(fresh, np.random.default_rng(1), 20) == played
    # The snapshot is a copy: neither who took it nor who restored it changes it.
    assert plain(fresh.restore(snapshot)) == observations
    assert play(fresh, np.random.default_rng(1), 20) == played
    assert play(batch, np.random.default_rng(2), 5) == play(fresh, np.random.default_rng(2), 5)


def edited(snapshot: dict[str, Any], **arrays: Any) -> dict[str, Any]:
    return {**snapshot, "arrays": {**snapshot["arrays"], **arrays}}


def misfits(snapshot: dict[str, Any]) -> dict[str, Any]:
    arrays, generators = snapshot["arrays"], snapshot["generators"]
    philox = np.random.Philox(0).state
    return {
        "an array too few": {
            **snapshot,
            "arrays": {k: v for k, v in arrays.items() if k != "state.t"},
        },
        "an array too many": edited(snapshot, other=np.zeros(3)),
        "another dtype": edited(snapshot, elapsed=arrays["elapsed"].astype(np.int32)),
        "another shape": edited(snapshot, **{"state.queue": arrays["state.queue"][:, :2]}),
        "a generator too few": {**snapshot, "generators": generators[:-1]},
        "a generator of another kind": {**snapshot, "generators": [*generators[:-1], philox]},
        "a generator without numbers": {
            **snapshot,
            "generators": [*generators[:-1], {"bit_generator": "PCG64"}],
        },
        "no generators": {"arrays": arrays},
        "no arrays": {"generators": generators},
        "nothing": {},
        "of fewer copies": Batch(dfaas(), 2, 0),
        "of another route": Batch(dfaas(route="two"), 3, 0),
        "of another trace": Batch(dfaas(trace=small_trace(nodes=3)), 3, 0),
        "of other rules": Batch(mortal(), 3, 0),
    }


MISFITS = (
    "an array too few",
    "an array too many",
    "another dtype",
    "another shape",
    "a generator too few",
    "a generator of another kind",
    "a generator without numbers",
    "no generators",
    "no arrays",
    "nothing",
    "of fewer copies",
    "of another route",
    "of another trace",
    "of other rules",
)


@pytest.mark.parametrize("which", MISFITS)
def test_snapshots_that_do_not_fit_are_refused_and_change_nothing(which: str) -> None:
    batch, twin = Batch(dfaas(), 3, 8), Batch(dfaas(), 3, 8)
    for each in (batch, twin):
        each.reset()
        play(each, np.random.default_rng(0), 4)
    misfit = misfits(batch.snapshot())[which]
    if isinstance(misfit, Batch):
        misfit.reset()
        misfit = misfit.snapshot()
    with pytest.raises(ValueError, match=r"snapshot|state|generator"):
        batch.restore(misfit)
    assert play(batch, np.random.default_rng(1), 20) == play(twin, np.random.default_rng(1), 20)
    assert len(misfits(batch.snapshot())) == len(MISFITS)


def test_a_snapshot_may_lack_what_nothing_is_kept_in() -> None:
    batch = Batch(dfaas(), 3, 8)
    batch.reset()
    play(batch, np.random.default_rng(0), 4)
    snapshot = batch.snapshot()
    assert snapshot["arrays"].pop("state.reports").size == 0  # as rules from before report_delay
    fresh = Batch(dfaas(), 3, 99)
    fresh.restore(snapshot)
    assert play(fresh, np.random.default_rng(1), 9) == play(batch, np.random.default_rng(1), 9)

    late = Batch(dfaas(report_delay=3), 3, 8)
    late.reset()
    snapshot = late.snapshot()
    del snapshot["arrays"]["state.reports"]
    with refused(ValueError, "snapshot"):
        late.restore(snapshot)


# --- Legal actions -------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(40,) * 4, (1, 2, 7, 40)], ids=["alike", "unlike"])
def test_a_million_samples_are_legal(sizes: tuple[int, ...]) -> None:
    """Random masks from one legal action to nearly all; 250 copies, 4 agents, 1000 draws."""
    num_envs, draws = 250, 1_000
    batch = Batch(mortal(sizes, lives=(9,) * 4), num_envs, 0)
    observations = batch.reset()
    masks = [observations[agent]["action_mask"] for agent in batch.agents]
    assert min(int(mask.sum(axis=1).min()) for mask in masks) == 1
    rows = np.arange(num_envs)
    rng = np.random.default_rng(0)
    illegal = samples = 0
    for _ in range(draws):
        actions = batch.sample_actions(rng)
        assert actions.dtype == np.int64
        assert actions.shape == (num_envs, 4)
        for i, mask in enumerate(masks):
            illegal += int((mask[rows, actions[:, i]] == 0).sum())
        samples += actions.size
    assert (samples, illegal) == (1_000_000, 0)


@pytest.mark.parametrize("sizes", [(6,) * 3, (3, 6, 40)], ids=["alike", "unlike"])
def test_samples_are_uniform_over_the_legal_actions(sizes: tuple[int, ...]) -> None:
    num_envs, draws = 30, 3_000
    batch = Batch(mortal(sizes, lives=(9,) * 3), num_envs, 1)
    observations = batch.reset()
    counts = [np.zeros((num_envs, size)) for size in sizes]
    rng = np.random.default_rng(0)
    rows = np.arange(num_envs)
    for _ in range(draws):
        actions = batch.sample_actions(rng)
        for i, count in enumerate(counts):
            count[rows, actions[:, i]] += 1
    for agent, count in zip(batch.agents, counts, strict=True):
        mask = observations[agent]["action_mask"]
        legal = mask.sum(axis=1, keepdims=True)
        expected = mask * (draws / legal)
        assert (count[mask == 0] == 0).all()
        chi_square = ((count - expected) ** 2 / np.maximum(expected, 1)).sum()
        freedom = int((legal - 1).sum())
        assert freedom > 15
        assert abs(chi_square - freedom) < 5 * np.sqrt(2 * freedom)  # five standard deviations


@pytest.mark.parametrize("name", [*RULES, *TURNS])
def test_agents_that_do_not_act_are_given_0_and_may_be_given_anything(name: str) -> None:
    rules = {**RULES, **TURNS}[name]
    batch, twin = Batch(rules(), 6, 2), Batch(rules(), 6, 2)
    batch.reset()
    twin.reset()
    rng = np.random.default_rng(0)
    idle = 0
    for _ in range(20):
        actions = batch.sample_actions(rng)
        rest = ~batch.acting
        assert (actions[rest] == 0).all()
        idle += int(rest.sum())
        # Their entries are ignored, even those out of range.
        step, other = batch.step(actions), twin.step(np.where(rest, 10**6, actions))
        assert plain(step.observations) == plain(other.observations)
        assert plain(step.reward) == plain(other.reward)
    assert (idle > 0) == (not name.startswith(("dfaas", "arena")))


def test_stacked_masks_are_those_of_the_agents() -> None:
    batch = Batch(dfaas(), 5, 0)
    observations = batch.reset()
    for key in ("observation", "action_mask"):
        block = stack_agents(observations, key)
        assert block.shape[:2] == (5, 4)
        for i, agent in enumerate(batch.agents):
            np.testing.assert_array_equal(block[:, i], observations[agent][key])
        apart = {agent: {key: seen[key].copy()} for agent, seen in observations.items()}
        np.testing.assert_array_equal(stack_agents(apart, key), block)


@pytest.mark.parametrize("name", ["dfaas equal", "mortal, unlike agents"])
def test_masks_can_be_taken_out_of_the_observations(name: str) -> None:
    """Adapters move the mask elsewhere: legality does not hang on the dicts handed out."""
    batch = Batch(RULES[name](), 4, 0)
    observations = batch.reset()
    rng = np.random.default_rng(0)
    for _ in range(10):
        masks = [observations[agent].pop("action_mask") for agent in batch.agents]
        actions = batch.sample_actions(rng)
        for i, mask in enumerate(masks):
            chosen = mask[np.arange(4), actions[:, i]]
            assert (chosen[batch.acting[:, i]] == 1).all()
        observations = batch.step(actions).observations


# --- Making one ----------------------------------------------------------------------------------


def test_make_batch_takes_names_and_rules() -> None:
    named = make_batch("dfaas_v0", num_envs=3, seed=4, trace=small_trace(), max_cycles=5)
    given = make_batch(DfaasRules(trace=small_trace(), max_cycles=5), num_envs=3, seed=4)
    assert plain(named.reset()) == plain(given.reset())
    assert named.num_envs == 3
    modes = getattr(gymnasium.vector, "AutoresetMode", None)  # Gymnasium 1.0 has no names for them
    assert named.autoreset_mode == ("SameStep" if modes is None else modes.SAME_STEP)
    with refused(ValueError, "['queue']"):
        make_batch(DfaasRules(trace=small_trace()), queue=3)
    with refused(UnknownNameError, "'dfas_v0'", "'dfaas_v0'"):
        make_batch("dfas_v0")
    with pytest.raises(ValueError, match="num_envs=0"):
        make_batch("dfaas_v0", num_envs=0, trace=small_trace())


@pytest.mark.parametrize("call", ["step", "sample_actions", "global_state", "snapshot"])
def test_before_reset_there_is_nothing(call: str) -> None:
    batch = Batch(dfaas(), 2, 0)
    arguments: dict[str, tuple[Any, ...]] = {
        "step": (np.zeros((2, 4), dtype=int),),
        "sample_actions": (np.random.default_rng(0),),
    }
    with refused(ResetNeededError, "dfaas_v0", "reset()"):
        getattr(batch, call)(*arguments.get(call, ()))


def test_a_snapshot_of_other_rules_is_refused() -> None:
    """Same shapes, another game: it was taken."""
    batch = make_batch("dfaas_v0", num_envs=2, seed=0, trace=small_trace(), queue=3)
    batch.reset()
    taken = batch.snapshot()
    for other in ({"queue": 4}, {"queue": 3, "forward_cost": 0.5}, {"queue": 3, "route": "spare"}):
        misfit = make_batch("dfaas_v0", num_envs=2, seed=0, trace=small_trace(), **other)
        misfit.reset()
        with refused(ValueError, "snapshot", "dfaas_v0"):
            misfit.restore(taken)


class PaidBySeven(SteadyRules):
    """Pays 7, out of an array of the state, in which fresh episodes have 1."""

    def step(self, state: SteadyState, action: np.ndarray) -> Outcome[SteadyState]:
        state.pay[...] = 7.0
        return super().step(state, action)


def test_the_last_reward_of_an_episode_is_not_that_of_the_next() -> None:
    batch = make_batch(PaidBySeven(max_cycles=2), num_envs=3, seed=0)
    batch.reset()
    for _ in range(4):
        step = batch.step(np.zeros((3, 2), dtype=np.int64))
        assert step.reward.tolist() == [[7.0, 7.0]] * 3
    assert step.finished is not None
    assert step.finished.returns.tolist() == [[14.0, 14.0]] * 3
