"""ZooBatch's seeds, limits and states, and what it refuses."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from corral.adapters.zoo.batch import make_zoo_batch, zoo_rules
from corral.envs.batch import Batch
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.shells import ParallelShell
from corral.errors import (
    ActionError,
    CheckpointError,
    EnvironmentFault,
    IllegalActionError,
    ResetNeededError,
    UnsupportedSpaceError,
)
from support.bits_env import STEPS, BitsEnv, bits
from support.contract import plain
from support.loads import small_trace
from support.messages import refused, shown
from support.zoo_envs import MixedEnv, RingEnv, SleepyEnv, trajectory

pytest.importorskip("pygame", reason="PettingZoo's classic games need pygame")
tictactoe_v3 = pytest.importorskip("pettingzoo.classic.tictactoe_v3")

dfaas = functools.partial(
    DfaasRules, trace=small_trace(nodes=3), max_cycles=7, queue=5, route="two", illegal="raise"
)


# --- Seeds, limits, state ------------------------------------------------------------------------


def test_64_copies_have_64_streams_and_a_seed_says_which() -> None:
    batch = make_zoo_batch(MixedEnv, 64, seed=7)
    batch.reset()
    numbers = {float(copy.env.rng.random()) for copy in batch._group._copies}  # type: ignore[attr-defined]
    assert len(numbers) == 64
    small = [make_zoo_batch(MixedEnv, 2, seed=seed) for seed in (7, 7, 8)]
    first, same, other = map(trajectory, small)
    assert first == same
    assert first != other
    unseeded = make_zoo_batch(MixedEnv, 2)
    played = trajectory(unseeded)
    assert played != first
    assert isinstance(unseeded.seed, int)
    assert trajectory(make_zoo_batch(MixedEnv, 2, unseeded.seed)) == played


def test_reset_goes_on_and_with_a_seed_begins_again() -> None:
    batch = make_zoo_batch(RingEnv, 2, seed=7)
    first = plain(batch.reset())
    assert plain(batch.reset()) != first
    assert plain(batch.reset(7)) == first
    assert plain(make_zoo_batch(RingEnv, 2, seed=8).reset(7)) == first


def test_the_time_limit_cuts_and_does_not_end() -> None:
    batch = make_zoo_batch(functools.partial(SleepyEnv, 0.0), 2, seed=0, max_cycles=3)
    batch.reset()
    steps = [batch.step(np.zeros((2, 2), int)) for _ in range(6)]
    assert [bool(step.over.all()) for step in steps] == [False, False, True] * 2
    assert all((step.truncated == step.over[:, None]).all() for step in steps)
    assert not any(step.terminated.any() for step in steps)
    assert steps[5].finished is not None
    assert steps[5].finished.returns.tolist() == [[3.0, 3.0]] * 2
    assert batch.max_cycles == 3


def test_an_environment_without_state_shows_all_observations_as_one() -> None:
    batch = make_zoo_batch(MixedEnv, 2, seed=0)
    batch.reset()
    walker, picker, late = 5, 1, 2
    assert batch.global_state().shape == (2, walker + picker + late)
    assert batch.rules.state_space().shape == (8,)
    step = batch.step(batch.sample_actions(np.random.default_rng(0)))
    seen = step.observations["walker"]["observation"]
    expected = np.concatenate([seen["place"], seen["seen"], [[1, 0, 0]] * 2], axis=1)
    assert plain(batch.global_state()) == plain(expected.astype(np.float32))
    own = make_zoo_batch(lambda: ParallelShell(dfaas()), 2, seed=0)
    assert own.rules.state_space().shape == dfaas().state_space().shape


def test_nothing_to_save() -> None:
    batch = make_zoo_batch(RingEnv, 1, seed=0)
    batch.reset()
    assert not batch.resumes_exactly
    with refused(CheckpointError, "ring_v0", "reset()"):
        batch.snapshot()
    with pytest.raises(CheckpointError, match=r"reset\(\)"):
        batch.restore({})
    assert batch.autoreset_mode == Batch.autoreset_mode


# --- Wrong actions, wrong environments -----------------------------------------------------------


def test_illegal_and_malformed_actions_change_nothing() -> None:
    batch = make_zoo_batch(tictactoe_v3.env, 2, seed=0)
    with pytest.raises(ResetNeededError):
        batch.step(np.zeros((2, 2), int))
    batch.reset()
    batch.step(np.full((2, 2), 4))
    before = plain(batch.global_state())
    with refused(IllegalActionError, "copy 0", "player_2", "action 4", "0..3, 5..8"):
        batch.step(np.full((2, 2), 4))
    with refused(ActionError, "copy 1", "player_2", "action 9", "0..8"):
        batch.step(np.array([[0, 0], [0, 9]]))
    for wrong in (np.zeros((2, 2)), np.zeros((2, 3), int), [[0], [0, 0]], {"player_1": 0}, None):
        with pytest.raises(ActionError):
            batch.step(wrong)  # type: ignore[arg-type]
    assert plain(batch.global_state()) == before
    step = batch.step(np.array([[77, 0], [-5, 0]]))  # whoever does not act may say anything
    assert step.acting[:, 0].all()


def test_malformed_box_and_multidiscrete_actions() -> None:
    batch = make_zoo_batch(MixedEnv, 2, seed=0)
    batch.reset()
    good = batch.sample_actions(np.random.default_rng(0))
    wrong: list[dict[str, Any]] = [
        {"walker": np.array([[np.nan, 0], [0, 0]])},
        {"walker": np.array([[0, 0], [1.5, 0]])},
        {"walker": np.array([[0, 0], [0, np.inf]])},
        {"walker": np.zeros(2)},
        {"walker": [["a", "b"], ["a", "b"]]},
        {"picker": np.array([[0, 4], [0, 0]])},
        {"picker": np.array([[0.0, 1.0], [0, 0]])},
        {"stranger": np.zeros(2)},
    ]
    for change in wrong:
        with pytest.raises(ActionError):
            batch.step({**good, **change})
    with refused(ActionError, "[2, ...]", "walker, picker, late"):
        batch.step(np.zeros((2, 3), int))
    assert not batch.step(good).over.any()


@pytest.mark.parametrize(
    ("lose", "values"),
    [
        ("shape", ("late", "(3,)", "Box(0, 9, (2, 1), uint8)")),
        ("values", ("late", "float64", "Box(0, 9, (2, 1), uint8)")),
        ("reward", ("reward", "walker")),
        ("vanish", ("picker", "termination", "truncation")),
        ("stranger", ("'nobody'", "possible_agents ('walker', 'picker', 'late')")),
    ],
)
def test_environments_that_break_the_rules_are_told_so(lose: str, values: tuple[str, ...]) -> None:
    batch = make_zoo_batch(functools.partial(MixedEnv, lose=lose), 2, seed=0)
    batch.reset()
    rng = np.random.default_rng(0)
    batch.step(batch.sample_actions(rng))
    with refused(EnvironmentFault, "mixed_v0", *values) as caught:
        batch.step(batch.sample_actions(rng))
    shown(caught.value.__notes__[0], "copy 0", "seed=")
    with pytest.raises(ResetNeededError, match="closed"):
        batch.reset()


class OddSpaces(SleepyEnv):
    """With spaces of choice."""

    def __init__(self, seen: Any, act: Any) -> None:
        super().__init__(0.0)
        self.seen, self.act = seen, act

    def observation_space(self, agent: str) -> Any:
        return self.seen

    def action_space(self, agent: str) -> Any:
        return self.act


BOX = spaces.Box(0, 1, (4,), np.float32)
MASKED = spaces.Dict({"observation": BOX, "action_mask": spaces.Box(0, 1, (2,), np.int8)})


@pytest.mark.parametrize(
    ("seen", "act", "values"),
    [
        (BOX, spaces.MultiBinary(2), ("action", "MultiBinary(2)")),
        (BOX, spaces.Tuple([spaces.Discrete(2)]), ("action", "Tuple(Discrete(2))")),
        (spaces.Text(4), spaces.Discrete(2), ("observation", "Text(1, 4")),
        (spaces.Tuple([spaces.Text(4)]), spaces.Discrete(2), ("observation", "Text(1, 4")),
        (MASKED, spaces.MultiDiscrete([2, 2]), ("action_mask", "MultiDiscrete([2 2])", "Discrete")),
    ],
)
def test_spaces_that_are_not_handled_are_named(
    seen: Any, act: Any, values: tuple[str, ...]
) -> None:
    with refused(UnsupportedSpaceError, "sleepy_v0, a", *values):
        make_zoo_batch(lambda: OddSpaces(seen, act), 1, seed=0)


def test_what_is_no_environment_and_arguments_out_of_range() -> None:
    with refused(UnsupportedSpaceError, "object", "ParallelEnv", "AECEnv"):
        make_zoo_batch(lambda: object(), 1, seed=0)
    wrong: dict[str, Any]
    for wrong in ({"num_envs": 0}, {"workers": -1}, {"deadline": 0.0}, {"max_cycles": 0}):
        with refused(ValueError, next(iter(wrong))):
            make_zoo_batch(RingEnv, **{"num_envs": 1, **wrong})


class ChangedMask(SleepyEnv):
    """Puts the mask where PettingZoo also allows it: into info."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        shown, _ = super().reset(seed)
        return shown, {agent: {"action_mask": np.array([0, 1])} for agent in self.agents}


def test_masks_in_info_are_heeded() -> None:
    batch = make_zoo_batch(functools.partial(ChangedMask, 0.0), 2, seed=0)
    observations = batch.reset()
    assert observations["a"]["action_mask"].tolist() == [[0, 1]] * 2
    with pytest.raises(IllegalActionError):
        batch.step(np.zeros((2, 2), int))
    observations["a"]["action_mask"][...] = 1  # the caller's, to change at will
    with pytest.raises(IllegalActionError):
        batch.step(np.array([[0, 1]] * 2))
    assert batch.step(np.ones((2, 2), int)).observations["b"]["action_mask"].all()


# --- States --------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [False, True])
def test_a_state_that_is_gone_at_the_end_is_the_last_one(turns: bool) -> None:
    """``state()`` raises once the agents are gone, as that of PettingZoo's multiwalker."""
    with make_zoo_batch(functools.partial(bits, turns=turns, stateful=True), 2, seed=0) as batch:
        batch.reset()
        ends = 0
        for _ in range(4 * STEPS):
            before = batch.global_state()
            step = batch.step(np.zeros((2, 2), dtype=int))
            if step.finished is not None:
                ends += 1
                assert step.finished.global_state.tolist() == before.tolist()
                assert (batch.global_state()[:, 0] == 0).all()  # of the next episode
        assert ends == (2 if turns else 4)


def test_a_state_that_raises_in_mid_episode_is_the_environments_fault() -> None:
    class Broken(BitsEnv):
        def state(self) -> Any:
            if self.t == 2:
                raise AttributeError("no state")
            return super().state()

    batch = make_zoo_batch(functools.partial(Broken, stateful=True), 1, seed=0)
    batch.reset()
    batch.step(np.zeros((1, 2), dtype=int))
    with refused(AttributeError, "no state"):
        batch.step(np.zeros((1, 2), dtype=int))


def test_rules_without_a_state_ask_for_none() -> None:
    class Costly(BitsEnv):
        def state(self) -> Any:
            raise AssertionError("nobody needs it")

    rules = zoo_rules(functools.partial(BitsEnv, stateful=True))
    assert rules.state_space().shape == (3,)
    rules = dataclasses.replace(rules.without_state(), make_env=Costly)
    assert rules.state_space().shape == (0,)
    with rules.make_batch(2, 0) as batch:
        batch.reset()
        for _ in range(STEPS):
            step = batch.step(batch.sample_actions(np.random.default_rng(0)))
        assert step.finished.global_state.shape == (2, 0)


def test_copies_at_rest_are_not_stepped() -> None:
    with make_zoo_batch(BitsEnv, 3, seed=0) as batch, make_zoo_batch(BitsEnv, 3, seed=0) as twin:
        batch.reset()
        twin.reset()
        steps = [each.step(np.zeros((3, 2), dtype=int)) for each in (batch, twin)]
        batch.rest(np.array([1]))
        for _ in range(2 * STEPS):
            steps = [each.step(np.zeros((3, 2), dtype=int)) for each in (batch, twin)]
            assert steps[0].acting.tolist() == [[True] * 2, [False] * 2, [True] * 2]
            rows = [0, 2]
            for key in ("reward", "terminated", "acting"):
                one, other = (getattr(step, key) for step in steps)
                assert one[rows].tolist() == other[rows].tolist()
            assert not steps[0].reward[1].any()
        assert batch._group._copies[1].env.t == 1  # type: ignore[union-attr]
        assert batch.reset() is not None  # all begin anew
        assert batch.acting.all()
