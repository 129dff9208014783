"""rps_v0: all nine rounds, a plain re-statement played side by side, players to be beaten."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from corral.envs import rps_v0
from corral.envs.batch import Batch, make_batch
from corral.envs.core import copy_rows, generator, put_rows
from corral.envs.policy import Decision
from corral.envs.reference import RandomPolicy, reference_player, reference_players
from corral.envs.rps_v0 import RpsRules
from corral.envs.rps_v0.baselines import AlwaysSame, LastMove
from corral.errors import UnknownNameError
from corral.trainers.evaluation.zero_sum import evaluate_seat
from support.contract import check_contract, check_rules
from support.messages import refused
from support.rps_scalar import INFO_KEYS, ScalarRps

FIRST, SECOND = "player_0", "player_1"
ROCK, PAPER, SCISSORS = range(3)


# --- The rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "reward"),
    [
        (ROCK, ROCK, 0.0),
        (ROCK, PAPER, -1.0),
        (ROCK, SCISSORS, 1.0),
        (PAPER, ROCK, 1.0),
        (PAPER, PAPER, 0.0),
        (PAPER, SCISSORS, -1.0),
        (SCISSORS, ROCK, -1.0),
        (SCISSORS, PAPER, 1.0),
        (SCISSORS, SCISSORS, 0.0),
    ],
)
def test_all_nine_rounds(one: int, other: int, reward: float) -> None:
    rules = RpsRules(rounds=2)
    state = rules.start([np.random.default_rng(0)])
    outcome = rules.step(state, np.array([[one, other]]))
    assert outcome.reward.tolist() == [[reward, -reward]]
    assert not outcome.terminated.any()
    seen = rules.observe(outcome.state)
    own, others = [0.0] * 4, [0.0] * 4
    own[1 + one] = others[1 + other] = 1.0
    assert seen[FIRST]["observation"].tolist() == [own + others]
    assert seen[SECOND]["observation"].tolist() == [others + own]
    assert rules.global_state(outcome.state).tolist() == [[*own, *others, 0.5]]


def test_an_episode_as_pettingzoo_users_see_it() -> None:
    env = rps_v0.parallel_env()
    assert env.possible_agents == [FIRST, SECOND]
    observations, infos = env.reset(seed=0)
    none = [1.0, 0.0, 0.0, 0.0]
    assert observations[FIRST]["observation"].tolist() == none + none
    assert infos[FIRST] == dict.fromkeys(INFO_KEYS, 0)
    rounds, total = 0, 0.0
    while env.agents:
        observations, rewards, terminated, truncated, infos = env.step({FIRST: PAPER, SECOND: ROCK})
        assert infos[FIRST] == {"won": 1, "lost": 0, "drawn": 0, "illegal_actions": 0}
        assert infos[SECOND] == {"won": 0, "lost": 1, "drawn": 0, "illegal_actions": 0}
        rounds, total = rounds + 1, total + rewards[FIRST]
    assert (rounds, total) == (10, 10.0)
    assert terminated == {FIRST: True, SECOND: True}  # by its own rules, not by a limit
    assert truncated == {FIRST: False, SECOND: False}
    assert observations[FIRST]["action_mask"].tolist() == [0, 0, 0]


def test_a_limit_cuts_and_does_not_end() -> None:
    env = rps_v0.parallel_env(max_cycles=3)
    env.reset(seed=0)
    for _ in range(3):
        *_, terminated, truncated, _ = env.step({FIRST: ROCK, SECOND: ROCK})
    assert (set(terminated.values()), set(truncated.values())) == ({False}, {True})


def play_side_by_side(seed: int, num_envs: int = 16) -> np.ndarray:
    """Random episodes to their end with both; how often each info was seen."""
    rng = np.random.default_rng(seed)
    rules = RpsRules(rounds=int(rng.integers(1, 13)))
    scalars = [ScalarRps(rules.rounds) for _ in range(num_envs)]
    state = rules.start([generator(seed, "env", row) for row in range(num_envs)])
    counted = np.zeros(len(INFO_KEYS), dtype=int)
    while rows := [row for row in range(num_envs) if not scalars[row].over]:
        rows = [row for row in rows if rng.random() < 0.8] or rows  # not all at the same round
        actions = rng.integers(3, size=(len(rows), 2))
        outcome = rules.step(copy_rows(state, np.array(rows)), actions)
        put_rows(state, np.array(rows), outcome.state)
        observations, everything = rules.observe(state), rules.global_state(state)
        for place, row in enumerate(rows):
            scalar = scalars[row]
            scalar.step(actions[place].tolist())
            assert outcome.reward[place].tolist() == scalar.rewards
            assert outcome.terminated[place].tolist() == [scalar.over] * 2
            for count, key in enumerate(INFO_KEYS):
                assert outcome.info[key][place].tolist() == scalar.info[key], key
                counted[count] += sum(scalar.info[key])
        for row, scalar in enumerate(scalars):
            np.testing.assert_allclose(everything[row], scalar.global_state(), rtol=1e-6)
            for i, agent in enumerate(rules.agents):
                assert observations[agent]["observation"][row].tolist() == scalar.observation(i)
                assert observations[agent]["action_mask"][row].tolist() == scalar.mask()
    return counted


@pytest.mark.parametrize("block", range(2))
def test_thousands_of_random_episodes_play_alike(block: int) -> None:
    counted = sum(play_side_by_side(seed) for seed in range(70 * block, 70 * (block + 1)))
    assert (counted[:3] > 1000).all()  # 1,120 episodes each: rounds won, lost and drawn
    assert counted[3] == 0  # nothing is illegal


def test_after_the_last_round_nothing_is_paid() -> None:
    rules = RpsRules(rounds=1)
    state = rules.start([np.random.default_rng(0)])
    state = rules.step(state, np.array([[PAPER, ROCK]])).state
    after = rules.step(state, np.array([[PAPER, ROCK]]))
    assert not after.reward.any()
    assert after.terminated.all()
    assert not any(values.any() for values in after.info.values())
    assert after.state.played.tolist() == [[[PAPER], [ROCK]]]


@pytest.mark.parametrize("kwargs", [{"rounds": 1}, {"rounds": 7, "max_cycles": 3}], ids=str)
def test_variants_keep_the_contract(kwargs: dict[str, Any]) -> None:
    for kind in (rps_v0.parallel_env, rps_v0.env):
        make = functools.partial(kind, **kwargs)
        assert check_contract(make, chance=False, seeds=(0, 1)) > 3
    assert check_rules(functools.partial(RpsRules, **kwargs)) > 0


# --- Players -------------------------------------------------------------------------------------


class Reply:
    """The best reply to beat-last: what beats what beats the own last move; paper at first."""

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
        own = observation["observation"][..., :4].argmax(axis=-1) - 1
        return Decision(np.where(own < 0, self.first, (own + 2) % 3))

    first = PAPER


class BadStart(Reply):
    """Loses the first round, to show that what follows does not hang on it."""

    first = SCISSORS


@pytest.mark.parametrize(("seat", "other"), [(FIRST, SECOND), (SECOND, FIRST)])
def test_the_best_reply_to_beat_last_wins_every_round(seat: str, other: str) -> None:
    rules = RpsRules(illegal="raise")
    opponent = reference_player("beat-last", rules, other)
    score = evaluate_seat(rules, seat, Reply(), opponent, episodes=500)
    assert (score.return_seat, score.low, score.high, score.won) == (10.0, 10.0, 10.0, 1.0)
    assert score.kpis["won"] == 10.0
    late = evaluate_seat(rules, seat, BadStart(), opponent, episodes=500)
    assert late.kpis == {"won": 9.0, "lost": 1.0, "drawn": 0.0, "illegal_actions": 0.0}


def test_what_the_heuristics_show() -> None:
    batch = make_batch("rps_v0", num_envs=300, seed=0)
    seen, rng = batch.reset(), np.random.default_rng(0)
    copier, beater = LastMove(0), LastMove(1)
    same, state = AlwaysSame(), AlwaysSame().initial_state(300)
    assert copier.act(seen[SECOND]).action.tolist() == [ROCK] * 300
    assert beater.act(seen[SECOND]).action.tolist() == [ROCK] * 300
    kept = None
    for _ in range(9):
        decision = same.act(seen[SECOND], state, rng)
        state = decision.state
        kept = decision.action if kept is None else kept
        np.testing.assert_array_equal(decision.action, kept)
        moves = rng.integers(3, size=300)
        seen = batch.step(np.stack([moves, decision.action], axis=1)).observations
        np.testing.assert_array_equal(copier.act(seen[SECOND]).action, moves)
        np.testing.assert_array_equal(beater.act(seen[SECOND]).action, (moves + 1) % 3)
    counts = np.bincount(kept, minlength=3)
    assert counts.min() > 70  # drawn uniformly: 100 each, 3.7 standard errors below


def test_always_same_takes_a_move_or_draws_one_for_each_episode() -> None:
    seen = Batch(RpsRules(), 4, 0).reset()[FIRST]
    assert AlwaysSame("paper").act(seen).action.tolist() == [PAPER] * 4
    single = {key: value[0] for key, value in seen.items()}
    assert AlwaysSame("scissors").act(single).action == SCISSORS
    drawn = AlwaysSame().act(single, rng=np.random.default_rng(0))
    again = AlwaysSame().act(single, drawn.state)  # needs no generator: it is drawn
    assert drawn.action.shape == ()
    assert again.action == drawn.action
    with refused(ValueError, "always-same", "rng="):
        AlwaysSame().act(seen)
    with pytest.raises(ValueError, match="move='lizard'"):
        AlwaysSame("lizard")


def test_each_heuristic_is_beaten_and_random_play_is_not() -> None:
    rules = RpsRules(illegal="raise")
    players, left_out = reference_players(rules, SECOND)
    assert (list(players), left_out) == (["random", "always-same", "copy-last", "beat-last"], {})
    beater = reference_player("beat-last", rules, FIRST)
    for name, low, high in (("always-same", 8.5, 10.0), ("copy-last", 5.0, 5.0)):
        score = evaluate_seat(rules, FIRST, beater, players[name], episodes=200)
        assert low <= score.return_seat <= high
    score = evaluate_seat(rules, FIRST, beater, RandomPolicy(), episodes=2000)
    assert score.low is not None
    assert score.high is not None
    assert score.low - 0.1 < 0 < score.high + 0.1
    assert score.kpis["drawn"] == pytest.approx(10 / 3, abs=0.15)


def test_unknown_players_are_answered_with_the_nearest() -> None:
    with refused(UnknownNameError, "rps_v0", "player_1", "'beat_last'", "'beat-last'"):
        reference_player("beat_last", RpsRules(), SECOND)
    with refused(ValueError, "'player_2'", "player_0, player_1"):
        reference_player("random", RpsRules(), "player_2")


@pytest.mark.parametrize(
    ("kwargs", "values"),
    [
        ({"rounds": 0}, ("rounds=0", 1)),
        ({"max_cycles": 0}, ("max_cycles=0", 1, "None")),
        ({"illegal": "no"}, ("illegal='no'", "'penalise', 'raise'")),
    ],
)
def test_bad_arguments_are_named(kwargs: dict[str, Any], values: tuple[Any, ...]) -> None:
    with refused(ValueError, *values):
        rps_v0.parallel_env(**kwargs)
