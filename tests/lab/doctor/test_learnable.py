"""Do choices matter: planted games are found out, sound ones raise no alarm, numbers are right."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import corral
from corral.adapters.snapshots import proof
from corral.adapters.snapshots.games import Pickled, Replay
from corral.envs.masks import MASK
from corral.envs.registry import make, make_rules
from corral.lab.doctor.choices import Learnable, learnable
from corral.lab.doctor.choices.gains import Gain, mean_of
from corral.lab.doctor.choices.scripts import (
    CERTAIN,
    Fixed,
    chance_of_all,
    nearest_legal,
    play_scripts,
    spread_actions,
)
from corral.lab.doctor.choices.verdict import notes_of, verdict_of
from corral.trainers.evaluation.episodes import Interval
from support.arena_scalar import PlainArena
from support.messages import shown
from support.planted_choices import BlindArena, DeafArena, Guess, Lottery, OneCounts, Swapped
from support.zoo_envs import MixedEnv

PLENTY = 60.0
"""Seconds: small games need far less, and a slow machine must not change what is found."""


def causes(found: Learnable) -> set[str]:
    return {fault.cause for fault in found.faults}


@functools.cache
def found_in(name: str, seconds: float = PLENTY) -> Learnable:
    return learnable(name, seconds=seconds)


@functools.cache
def shown_guess() -> Learnable:
    return learnable(Guess(shown=True), seconds=PLENTY)


# --- Planted -------------------------------------------------------------------------------------


@pytest.mark.slow  # learns
def test_a_budget_at_which_every_tile_is_sent_anyway() -> None:
    found = learnable("tiles_v0", levels=1, budget=48, seconds=PLENTY)
    shown(found.verdict)
    assert causes(found) == {"order-only"}
    assert found.scripts.negligible
    assert found.scripts.moved
    [tile] = found.forked  # level_0 has one action
    assert abs(tile.at_the_end.mean) < 0.1 * tile.best.mean
    assert any("level_0" in each for each in found.not_asked)


@pytest.mark.slow
def test_an_observation_that_never_changes() -> None:
    found = learnable(BlindArena(), seconds=10)
    assert "constant-observation" in causes(found)
    assert found.verdict == "Choices matter, but an observation never changes."


@pytest.mark.slow  # learns
def test_a_reward_that_no_action_moves() -> None:
    found = learnable(DeafArena(), seconds=10)
    assert causes(found) == {"no-choice"}
    assert found.verdict.startswith("No choice matters")
    assert not found.scripts.moved
    assert not any(each.moved for each in found.forked)


@pytest.mark.slow  # learns
def test_a_best_action_that_the_observation_does_not_show() -> None:
    found = learnable(Guess(shown=False), seconds=PLENTY)
    assert causes(found) == {"hidden"}
    assert found.verdict == "Choices matter, but the observation does not show which."
    assert [each.best.mean for each in found.forked] == pytest.approx([0.5, 0.5])
    for each in found.forked:
        assert abs(each.shown.mean) < 4 * each.shown.error


def test_the_same_game_where_it_is_shown_is_sound() -> None:
    found = shown_guess()
    assert found.faults == ()
    assert found.verdict == "Choices matter, and the observation shows which."
    for each in found.forked:
        assert each.shown.mean == pytest.approx(0.5, abs=0.02)
        assert abs(each.constant.mean) < 4 * each.constant.error


def test_pay_by_lot() -> None:
    found = learnable(Lottery(), seconds=PLENTY)
    assert causes(found) == {"chance-only"}
    assert found.scripts.moved
    assert not found.scripts.certain


def test_rewards_of_the_other_agent() -> None:
    found = learnable(Swapped(), seconds=PLENTY)
    assert causes(found) == {"others-only"}
    assert [each.moves_others for each in found.forked[:2]] == [("agent_1",), ("agent_0",)]
    shown(found.faults[0].text, "agent_0", "agent_1")
    shown(found.verdict)


def test_an_agent_whose_actions_are_wired_to_nothing() -> None:
    found = learnable(OneCounts(), seconds=PLENTY)
    assert causes(found) == {"idle"}
    shown(found.faults[0].text, "agent_1")
    shown(found.verdict)


# --- Sound, or rightly found to have no choice ---------------------------------------------------


@pytest.mark.parametrize(
    ("probe", "expected", "verdict"),
    [
        # A command is asked about it in tests/cli/test_check_learnable.py.
        pytest.param(1, "no-choice", "No choice matters", marks=pytest.mark.slow),
        (5, None, "the observation shows which"),
        (6, None, "the same action is best nearly always"),
        # agent_1's actions change nothing there.
        pytest.param(7, "idle", "those of an agent do not", marks=pytest.mark.slow),
        (14, None, "earlier observations show which"),
        pytest.param(16, "no-choice", "No choice matters", marks=pytest.mark.slow),
        pytest.param(18, None, "depends on how the others play", marks=pytest.mark.slow),
    ],
)
def test_probes_are_told_rightly(probe: int, expected: str | None, verdict: str) -> None:
    found = found_in(f"probe_p{probe:02}_v0")
    assert causes(found) == ({expected} if expected else set())
    assert verdict in found.verdict


def test_one_action_is_not_best_if_playing_it_is_worse_than_random_play() -> None:
    found = found_in("probe_p06_v0")
    worse = [
        dataclasses.replace(row, interval=Interval(-2.0, -1.0)) if row.name != "random" else row
        for row in found.scripts.rows
    ]
    scripts = dataclasses.replace(found.scripts, rows=tuple(worse))
    assert verdict_of(found.scripts, found.forked, ()) == found.verdict
    assert verdict_of(scripts, found.forked, ()) != found.verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("tictactoe_v0", "the observation shows which"),
        ("arena_v0", "Choices matter"),
        ("tiles_v0", "Choices matter"),
        ("dfaas_v0", "Choices matter"),
    ],
)
def test_no_false_alarm(name: str, verdict: str) -> None:
    found = found_in(name, 8.0)
    assert found.faults == ()
    assert verdict in found.verdict


def test_one_step_is_told_from_many() -> None:
    said = " ".join(found_in("probe_p05_v0").notes)
    shown(said, "agent_0", "agent_1", "bandit")
    assert "gamma" not in said  # there is no later reward
    said = " ".join(shown_guess().notes)
    shown(said, "bandit", "gamma")  # four steps, each for itself
    first = found_in("two_step_v0").forked[0]
    assert (first.agent, first.reach, first.one_step) == ("agent_0", 2, False)


def test_gamma_is_noted_only_for_a_gain_beyond_its_error() -> None:
    found = found_in("two_step_v0")
    fork = found.forked[0]
    unsure = dataclasses.replace(fork, best=Gain(0.0098, 0.0045))
    sure = dataclasses.replace(fork, others="greedy", best=Gain(0.5, 0.05))
    choices = {fork.agent: 2.0}
    assert notes_of(found.scripts, [unsure], [], choices) == ()
    noted = notes_of(found.scripts, [unsure, sure], [], choices)
    [gamma] = [note for note in noted if "gamma" in note]
    # The table also has a row for random play, with a gain within its error.
    shown(gamma, fork.agent, "greedy", "about")


def test_worth_in_two_step_is_known() -> None:
    """agent_0 picks 7 or, of random players, (0 + 1 + 1 + 8) / 4: half of each is its own."""
    first = found_in("two_step_v0").forked[0]
    assert first.to_the_end
    assert first.others == "random"
    # At the start it gains (7 - 2.5) / 2 / 2; in game A nothing; in game B (8 + 1 - 1) / 2 / 2 / 2.
    assert first.best.mean == pytest.approx((1.125 + (0 + 1.0) / 2) / 2, abs=5 * first.best.error)
    assert first.shown.mean == pytest.approx(first.best.mean, abs=0.1)


# --- Environments of others ----------------------------------------------------------------------


def test_actions_that_are_not_discrete_are_tried_by_scripts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("corral.lab.doctor.choices.scripts.EPISODES", 16)  # which ones is tested
    found = learnable(MixedEnv, seconds=30)  # MultiDiscrete and Box actions, Dict observations
    assert found.forked == ()
    shown(" ".join(found.not_asked), "walker", "Discrete")
    names = {row.name for row in found.scripts.rows}
    assert {"random", "lowest legal", "highest legal", "middle"} <= names


@pytest.mark.slow
def test_a_third_party_reward_that_no_action_moves() -> None:
    wrapped = functools.partial(_unmoved)
    found = learnable(wrapped, seconds=10)
    assert causes(found) == {"no-choice"}
    assert found.forked  # of both agents, if the machine has the time
    assert not any(fork.moved for fork in found.forked)


@pytest.mark.slow
@pytest.mark.parametrize("way", [Pickled, Replay])
def test_states_of_a_plain_class_are_forked(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "WAYS", (way,))
    plain = functools.partial(PlainArena, width=4, height=4, max_cycles=12)
    found = learnable(plain, seconds=12)
    shown(" ".join(found.notes), way.name)
    explorer = next(fork for fork in found.forked if fork.agent == "agent_1")
    assert explorer.matters
    assert explorer.moments >= 24
    exact = learnable("arena_v0", width=4, height=4, max_cycles=12, seconds=PLENTY)
    twin = next(fork for fork in exact.forked if fork.agent == "agent_1")
    if explorer.decisions == twin.decisions:
        error = np.hypot(explorer.best.error, twin.best.error)
        assert abs(explorer.best.mean - twin.best.mean) < 4 * error


@pytest.mark.slow
def test_an_agent_without_a_choice_in_a_plain_class() -> None:
    found = learnable(functools.partial(Deaf, width=3, height=3, max_cycles=4), seconds=10)
    assert "idle" in causes(found)
    assert {fork.agent for fork in found.forked if not fork.moved} >= {"agent_2"}


class Deaf(PlainArena):
    """The second agent plays, but always the same action."""

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        return super().step({**actions, "agent_2": 0})


def _unmoved() -> Any:
    from pettingzoo.utils import BaseParallelWrapper

    class Unmoved(BaseParallelWrapper[str, Any, Any]):
        def step(self, actions: Any) -> Any:
            observations, rewards, *rest = self.env.step(actions)
            return observations, dict.fromkeys(rewards, 1.0), *rest

    return Unmoved(make("arena_v0", max_cycles=10))


# --- Parts ---------------------------------------------------------------------------------------


def test_scripts_play_legal_actions() -> None:
    mask = np.array([[0, 1, 0, 1, 1], [1, 0, 0, 0, 1]], dtype=np.int8)
    space = spaces.Discrete(5)

    def played(**given: Any) -> list[int]:
        return Fixed(space, **given).act({MASK: mask}).action.tolist()  # type: ignore[no-any-return]

    assert played(share=0.0) == [1, 0]
    assert played(share=1.0) == [4, 4]
    assert played(action=2) == [1, 0]  # of two that are equally near, the lower
    assert played(action=3) == [3, 4]
    assert nearest_legal(mask != 0, np.array([0, 4])).tolist() == [[1, 4], [0, 4]]
    assert spread_actions(3, 8).tolist() == [0, 1, 2]
    assert spread_actions(101, 3).tolist() == [0, 50, 100]


def test_many_worthless_scripts_are_not_taken_for_a_good_one() -> None:
    """With 95 % intervals of each alone, nearly two in three of such sets would hold one."""
    rng = np.random.default_rng(0)
    alarms = sum(
        bool((chance_of_all(rng.normal(size=(20, 32)), seed) < CERTAIN).any()) for seed in range(40)
    )
    assert alarms <= 3
    differences = rng.normal(size=(20, 32))
    differences[7] += 1.5
    assert np.flatnonzero(chance_of_all(differences, 0) < CERTAIN).tolist() == [7]


def test_errors_count_environments_not_moments() -> None:
    values = np.repeat(np.random.default_rng(0).normal(size=50), 10)
    cluster = np.repeat(np.arange(50), 10)
    assert mean_of(values, cluster).error > 2.5 * mean_of(values, np.arange(500)).error


def test_zero_sum_agents_are_scripted_one_at_a_time() -> None:
    scripts = play_scripts(make_rules("tictactoe_v0"), seconds=PLENTY)
    assert scripts.alone
    assert {row.agent for row in scripts.rows} == {"player_1", "player_2"}
    best = max(scripts.rows, key=lambda row: row.difference)
    assert best.name == "perfect" == scripts.best


def test_time_that_is_over_is_said() -> None:
    found = learnable("dfaas_v0", seconds=0.5)
    assert any("time" in each for each in found.not_asked)
    with pytest.raises(ValueError, match="seconds=0"):
        learnable("dfaas_v0", seconds=0)


def test_it_is_public_and_says_all_at_80_columns() -> None:
    found = found_in("two_step_v0")
    assert corral.learnable is learnable
    assert found.faults == ()
    lines = found.text().splitlines()
    assert lines[0] == f"two_step_v0: {found.verdict}"
    assert max(map(len, lines)) <= 80
    assert found.to_json()["scripts"]["rows"][0]["name"] == "random"
