"""The probes: they keep the contract, play as worked out by hand, and their answers hold."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import corral
from corral.envs import PROBES, make_rules, probes
from corral.envs.batch import make_batch
from corral.envs.core import best_returns_of, copy_rows, generator
from corral.envs.probes.base import Probe, ProbeState
from corral.envs.registry import ENVIRONMENTS
from corral.errors import UnknownNameError
from support.command import within
from support.contract import check_contract, check_rules
from support.messages import refused, shown

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in PROBES),
    ("probe_p07_v0", {"reward": "team"}),
    ("probe_p12_v0", {"replies": 2}),
    ("probe_p14_v0", {"cue": "last"}),
]

variants = pytest.mark.parametrize(
    ("name", "kwargs"),
    VARIANTS,
    ids=[f"{n} {k}" if k else n for n, k in VARIANTS],
)


# --- The registry and the contract ---------------------------------------------------------------


def test_the_registry_names_the_probes_that_there_are() -> None:
    assert list(PROBES) == list(probes.PROBES) == [f"probe_p{n:02}_v0" for n in range(1, 19)]
    assert not set(PROBES) & set(ENVIRONMENTS)
    for name, spec in PROBES.items():
        rules = probes.PROBES[name]
        assert (spec.rules, spec.simultaneous) == (rules.__name__, rules.simultaneous)
        assert f"| ``{name}`` | {spec.summary} |" in (probes.__doc__ or "")
        assert (rules.__doc__ or "").startswith(f"P{int(name[7:9])}")
        assert type(make_rules(name)) is rules


@variants
def test_probes_keep_the_contract(name: str, kwargs: dict[str, Any]) -> None:
    kinds = ("parallel_env", "env") if PROBES[name].simultaneous else ("env",)
    for kind in kinds:
        make = functools.partial(getattr(probes, kind), name, **kwargs)
        # A bit is drawn alike by some seeds: how probes draw is tested below.
        assert check_contract(make, seeds=(0,), chance=False, other_process=False) > 4
    assert check_rules(functools.partial(make_rules, name, **kwargs), num_envs=3) > 0


def test_another_process_plays_the_same_probe() -> None:
    """Of the one probe whose generators are stepped back."""
    make = functools.partial(probes.parallel_env, "probe_p14_v0", cue="last")
    assert check_contract(make, other_process=True) > 100


def test_probes_are_made_by_name() -> None:
    assert corral.make("probe_p01_v0").metadata["name"] == "probe_p01_v0"
    env = corral.make("probe_p12_v0", replies=2, render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "probe_p12_v0 step 0, played - -"
    env.step(1)
    assert env.render() == "probe_p12_v0 step 1, played 1 -"
    drawn = probes.parallel_env("probe_p02_v0", render_mode="ansi")
    drawn.reset(seed=0)
    assert drawn.render() in {f"probe_p02_v0 step 0, drawn {o}, played - -" for o in (0, 1)}
    with refused(UnknownNameError, "'probe_p81_v0'", "'probe_p18_v0'"):
        corral.make("probe_p81_v0")
    with refused(UnknownNameError, "'p01'", "probe_p01_v0, probe_p02_v0"):
        probes.env("p01")
    with refused(ValueError, "probe_p13_v0", "env()", "raw_env()"):
        probes.parallel_env("probe_p13_v0")
    with refused(TypeError, "'reply'", "'replies'"):
        corral.make("probe_p12_v0", reply=2)
    with refused(ValueError, "replies=3", "1 or 2"):
        corral.make("probe_p12_v0", replies=3)


def test_the_command_lists_the_probes_in_one_line() -> None:
    listed = within("envs")
    assert "two_step_v0" in listed
    shown(listed, "probe_p01_v0 .. probe_p18_v0")
    assert "probe_p05_v0" not in listed
    manual = within("envs", "probe_p12_v0")
    shown(manual, "P12")
    assert "replies" in manual
    assert "P11" not in manual


def test_rules_that_play_otherwise_have_another_identity() -> None:
    identities = {make_rules(name, **kwargs).identity for name, kwargs in VARIANTS}  # type: ignore[attr-defined]
    assert len(identities) == len(VARIANTS)
    same = {make_rules("probe_p01_v0", illegal=i).identity for i in ("raise", "penalise")}  # type: ignore[attr-defined]
    assert len(same) == 1


# --- Chance --------------------------------------------------------------------------------------


@variants
def test_all_that_can_be_drawn_is_drawn_alike_often(name: str, kwargs: dict[str, Any]) -> None:
    rules = probes.PROBES[name](**kwargs)
    num_envs = 4_000
    drawn = rules.start([generator(7, "env", row) for row in range(num_envs)]).drawn
    assert drawn.shape == (num_envs, len(rules.draws))
    for column, size in zip(drawn.T, rules.draws, strict=True):
        counts = np.bincount(column, minlength=size)
        assert len(counts) == size
        expected = num_envs / size
        assert (abs(counts - expected) < 5 * np.sqrt(expected)).all()
    if len(rules.draws) > 1:  # and independently of each other
        unlike = np.corrcoef(drawn.T) - np.eye(len(rules.draws))
        assert abs(unlike).max() < 0.08


def test_the_last_cue_is_that_of_the_episode_before() -> None:
    rules = probes.Memory(cue="last")
    rngs = [generator(1, "env", row) for row in range(50)]
    states = [rules.start(rngs).drawn for _ in range(5)]
    for before, now in itertools.pairwise(states):
        np.testing.assert_array_equal(now[:, 2:], before[:, :2])
        assert (now[:, :2] != now[:, 2:]).any()


def test_the_masks_of_p6_are_the_fifteen() -> None:
    rules = probes.FifteenMasks()
    state = rules.situations([0] * 15, np.arange(15).repeat(2).reshape(15, 2))
    masks = rules.observe(state)["agent_0"]["action_mask"]
    assert len({tuple(mask) for mask in masks.tolist()}) == 15
    assert masks.any(axis=1).all()
    highest = [max(np.flatnonzero(mask)) for mask in masks]
    assert sum(highest) == 34
    assert np.mean([np.flatnonzero(mask).mean() for mask in masks]) == pytest.approx(1.5)


def test_agents_of_p9_end_in_different_ways() -> None:
    batch = make_batch("probe_p09_v0", num_envs=2, seed=0)
    batch.reset()
    for t in range(8):
        step = batch.step(np.zeros((2, 2), dtype=np.int64))
        last = t % 4 == 3
        assert step.terminated.tolist() == [[False, last]] * 2
        assert step.truncated.tolist() == [[last, False]] * 2
        assert (step.finished is not None) is last
        if step.finished is not None:
            assert step.finished.observations["agent_0"]["observation"].tolist() == [[1], [1]]
            assert step.finished.global_state.tolist() == [[1], [1]]
            assert step.finished.returns.tolist() == [[3, 4]] * 2
            assert step.observations["agent_0"]["observation"].tolist() == [[0], [0]]


def test_what_agent_1_of_p13_is_given_is_in_its_return() -> None:
    env = probes.env("probe_p13_v0")
    env.reset(seed=0)
    returns = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        _, reward, terminated, _, _ = env.last()
        returns[agent] += reward
        env.step(None if terminated else 0)
    assert returns == {"agent_0": 0.0, "agent_1": 1.5}


# --- Answers: what the rules themselves pay for the best play ------------------------------------


def value_of(rules: Probe, state: ProbeState, first: np.ndarray, gamma: float) -> np.ndarray:
    """Discounted rewards [K, N] from ``state`` on, after ``first`` actions and then action 0.

    An agent's time is its own decisions: rewards count undiscounted until its next one.
    """
    state = copy_rows(state, slice(None))
    decisions = -np.ones(first.shape)
    total = np.zeros(first.shape)
    action = first
    for _ in range(400):
        decisions += rules.acting(state)
        outcome = rules.step(state, action)
        total += np.where(decisions >= 0, gamma ** np.maximum(decisions, 0) * outcome.reward, 0)
        state, action = outcome.state, np.zeros_like(first)
    return total


@pytest.mark.parametrize("gamma", [0.9, 0.5])
@variants
def test_the_values_are_those_of_the_best_play(
    name: str, kwargs: dict[str, Any], gamma: float
) -> None:
    rules = probes.PROBES[name](illegal="raise", **kwargs)
    answer = rules.answer(gamma)
    shape = (len(answer.state.t), len(rules.agents))
    assert (answer.value.shape, answer.best.shape) == (shape, shape)
    assert len(rules.tolerance) == len(rules.agents)
    found = value_of(rules, answer.state, np.maximum(answer.best, 0), gamma)
    if name in ("probe_p06_v0", "probe_p16_v0"):
        # Critics do not see the mask, nor what it pays: they learn the mean over the situations.
        paid = value_of(rules, everything(rules), best_of(rules, everything(rules)), gamma)
        found = np.broadcast_to(paid.mean(axis=0), shape)
    known = ~np.isnan(answer.value)
    assert known.any() or name == "probe_p14_v0"
    np.testing.assert_allclose(found[known], answer.value[known], atol=1e-9)


def everything(rules: Probe) -> ProbeState:
    """All beginnings that chance can make."""
    drawn = np.stack(np.meshgrid(*map(np.arange, rules.draws), indexing="ij"), axis=-1)
    drawn = drawn.reshape(-1, len(rules.draws))
    return rules.situations([0] * len(drawn), drawn)


def best_of(rules: Probe, state: ProbeState) -> np.ndarray:
    """The highest legal actions."""
    seen = rules.observe(state)
    masks = np.stack([seen[agent]["action_mask"] for agent in rules.agents], axis=1)
    return np.asarray(masks.shape[-1] - 1 - masks[..., ::-1].argmax(axis=-1))


@variants
def test_who_leaves_the_best_action_gets_less(name: str, kwargs: dict[str, Any]) -> None:
    rules = probes.PROBES[name](**kwargs)
    answer = rules.answer()
    best = np.maximum(answer.best, 0)
    reached = value_of(rules, answer.state, best, 0.9)
    tried = 0
    for i, size in enumerate(rules.actions):
        for action in range(size):
            other = best.copy()
            other[:, i] = action
            changed = (answer.best[:, i] >= 0) & (action != answer.best[:, i])
            if name == "probe_p18_v0" and i == 1:
                continue  # that one is frozen
            less = value_of(rules, answer.state, other, 0.9)[:, i] < reached[:, i]
            assert less[changed].all()
            tried += np.count_nonzero(changed)
    assert (tried > 0) == (answer.best >= 0).any()


# --- The best return of the team -----------------------------------------------------------------

OPTIMA = {
    **{1: -1, 2: 0, 3: 0, 4: 2, 5: 2, 7: 2, 8: 0, 9: 7, 10: 6, 11: 2, 12: 0, 13: 1.5, 14: 2},
    **{15: 555, 16: 0, 17: 1, 18: 0},
}
"""Of P2, P8 and P16 the mean over their draws."""


def optimum_of(name: str, episodes: int = 64, **kwargs: Any) -> Any:
    rngs = [generator(0, "env", row) for row in range(episodes)]
    return best_returns_of(make_rules(name, **kwargs), rngs)


@pytest.mark.parametrize("number", OPTIMA)
def test_the_optimum_of_a_probe_is_that_of_its_arithmetic(number: int) -> None:
    best = optimum_of(f"probe_p{number:02}_v0")
    if number in (8, 16):  # it is drawn
        assert set(best) == ({-1, 1} if number == 8 else {-2, 0, 2})
    else:
        assert set(best) == {OPTIMA[number]}


def test_the_optimum_of_p6_is_the_highest_legal_action() -> None:
    rules = make_rules("probe_p06_v0")
    state = rules.start([generator(0, "env", row) for row in range(64)])
    masks = np.stack(rules.legal(state), axis=1)  # [B, N, A]
    highest = 3 - masks[:, :, ::-1].argmax(axis=2)
    assert optimum_of("probe_p06_v0").tolist() == highest.sum(axis=1).tolist()


def test_the_optimum_knows_the_arguments() -> None:
    assert set(optimum_of("probe_p07_v0", reward="team")) == {2}
    assert optimum_of("probe_p14_v0", cue="last") is None
