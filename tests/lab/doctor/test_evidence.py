"""What is noted of an environment and a rollout, case by case."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.envs.batch import make_batch
from corral.lab.doctor.evidence.environment import COPIES, twins_of
from corral.lab.doctor.evidence.witness import Witness, flat_tree, join_trees
from corral.lab.doctor.findings.agents import late_obs
from faults.sound import Depots, depots
from faults.views import LateDepots, OwnOnly


def twins(kind: type) -> Any:
    return twins_of(lambda: depots(kind).make_batch(COPIES, 0))


# --- The witness ---------------------------------------------------------------------------------


def test_a_witness_keeps_copies_of_what_was_said() -> None:
    witness = Witness(make_batch("arena_v0", num_envs=3, seed=0, max_cycles=4))
    shown = witness.reset()
    kept = witness.observations[0]["agent_1"]["observation"]
    before = kept.copy()
    shown["agent_1"]["observation"][...] = 7  # as an environment does that uses an array again
    np.testing.assert_array_equal(kept, before)
    actions = np.zeros((3, 2), np.int64)
    witness.step(actions)
    actions[...] = 3
    assert not witness.actions[0].any()
    assert len(witness.observations) == len(witness.steps) + 1 == len(witness.states)


def test_a_witness_adds_up_returns_of_whole_episodes() -> None:
    witness = Witness(make_batch("arena_v0", num_envs=2, seed=0, max_cycles=3))
    witness.reset()
    rewards = [witness.step(np.zeros((2, 2), np.int64)).reward for _ in range(3)]
    np.testing.assert_allclose(witness.ended, np.sum(rewards, axis=0), rtol=1e-6)
    saved = witness.snapshot()
    witness.begin()
    witness.step(np.zeros((2, 2), np.int64))
    witness.restore(saved)
    for _ in range(3):
        witness.step(np.zeros((2, 2), np.int64))
    assert np.isnan(witness.ended).all()  # their beginning was not seen


def test_trees_are_joined_and_flattened() -> None:
    one = {"b": np.arange(4).reshape(2, 2), "a": (np.array([5, 6]),)}
    both = join_trees([one, one])
    assert both["b"].shape == (4, 2)
    np.testing.assert_array_equal(flat_tree(both)[2], [5, 0, 1])


# --- Twins ---------------------------------------------------------------------------------------


def test_twins_of_a_sound_environment_show_actions_at_once() -> None:
    told = twins(Depots)
    assert told.soon > 20
    assert told.late == 0
    assert (np.diag(told.reached) > 0.5 * told.moments).all()


def test_twins_show_actions_a_step_late() -> None:
    told = twins(LateDepots)
    assert told.soon == 0
    assert told.late > 20


def test_twins_show_whom_actions_reach() -> None:
    told = twins(OwnOnly)
    share = told.reached / told.moments[:, None]
    assert share.argmax(axis=1).tolist() == [1, 2, 0]
    assert np.diag(share).max() == 0


class Unseeded(Depots):
    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=np.random.default_rng().integers(2**31), options=options)


def test_twins_say_nothing_where_a_seed_repeats_nothing() -> None:
    assert twins(Unseeded) is None


@pytest.mark.parametrize(("paid", "cause"), [(0, "actions-late"), (1, "observation-late")])
def test_effects_a_step_late_are_the_observations_if_rewards_are_prompt(
    paid: int, cause: str
) -> None:
    told = dataclasses.replace(twins(LateDepots), paid=np.full((3, 3), paid))
    playing = SimpleNamespace(repeats=[])
    record = SimpleNamespace(obs=[], acted=[], playing=playing, agents=("a",), policy="a")
    env = SimpleNamespace(states=[], begins=[], twins=told)
    finding = late_obs(record, SimpleNamespace(env=env, policies={"a": record}))  # type: ignore[arg-type]
    assert finding is not None
    assert (finding.cause, finding.certainty) == (cause, 1)


# --- Late observations ---------------------------------------------------------------------------


def late(shown: Any, states: Any) -> Any:
    """What is found where one agent is shown [T, B, F] while the global state is [T, B, G]."""
    steps, envs, _ = shown.shape
    begins = np.zeros((steps, envs), dtype=bool)
    begins[0] = True
    playing = SimpleNamespace(repeats=[])
    found = SimpleNamespace(
        obs=[(shown, shown)], acted=[], agents=("a",), playing=playing, policy="a"
    )
    said = SimpleNamespace(states=[states], begins=[begins], twins=None)
    return late_obs(found, SimpleNamespace(env=said, policies={"a": found}))  # type: ignore[arg-type]


def test_what_stood_in_the_state_before_is_late() -> None:
    states = np.random.default_rng(0).random((9, 16, 4)).astype(np.float32)
    assert late(states, states) is None
    finding = late(np.concatenate([states[:1], states[:-1]]), states)
    assert (finding.cause, finding.certainty) == ("observation-late", 2)


@pytest.mark.parametrize(("turns", "cause"), [(False, "observation-late"), (True, None)])
def test_an_agent_that_waits_for_its_turn_may_see_the_same_again(
    turns: bool, cause: str | None
) -> None:
    """Episodes of 9 steps: the second observation is that of the first step, later ones differ."""
    repeats, acted = np.zeros((9, 16), bool), np.ones((9, 16), bool)
    repeats[1], acted[1::2] = True, not turns
    begins = np.zeros((9, 16), bool)
    begins[0] = True
    playing = SimpleNamespace(repeats=[repeats])
    found = SimpleNamespace(obs=[], acted=[acted], agents=("a",), playing=playing, policy="a")
    said = SimpleNamespace(states=[], begins=[begins], twins=None)
    finding = late_obs(found, SimpleNamespace(env=said, policies={"a": found}))  # type: ignore[arg-type]
    assert (finding.cause if finding else None) == cause


def test_columns_that_never_change_are_not_late() -> None:
    """A part of the state that is 0 until the last step is like a part of the view that stays 0."""
    states = np.random.default_rng(0).random((9, 16, 4)).astype(np.float32)
    states[..., 3] = 0.0
    states[-1, :, 3] = 1.0
    shown = np.concatenate([states[..., :2], np.zeros((9, 16, 6), np.float32)], axis=-1)
    assert late(shown, states) is None
