"""Matches: who won, by hand and beside evaluate_seat; points against others; equal episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.envs import make_rules
from corral.envs.episode_stats import EndedEpisodes
from corral.envs.policy import RandomPolicy
from corral.envs.reference import reference_player
from corral.envs.rps_v0.baselines import AlwaysSame
from corral.trainers.evaluation.zero_sum import evaluate_seat
from corral.trainers.selfplay import matches
from corral.trainers.selfplay.matches import play_match, points_against, points_of_side
from support.messages import refused
from support.turn_rules import PileRules

SAMPLED = {"player_1": False, "player_2": False}


def team(policy: Any, *agents: str) -> dict[str, Any]:
    return dict.fromkeys(agents or ("player_1", "player_2"), policy)


def test_who_earns_more_has_won() -> None:
    returns = np.array([[1.0, -1.0], [0.0, 0.0], [-2.0, 2.0], [0.5, 0.5], [0.7, 0.3]])
    assert points_of_side(returns, [0]).tolist() == [1, 0.5, 0, 0.5, 1]
    assert points_of_side(returns, [1]).tolist() == [0, 0.5, 1, 0.5, 0]


def test_sums_of_float32_rewards_that_are_equal_are_a_draw() -> None:
    returns = np.array([[float(np.float32(0.1)) * 3, 0.3], [5.0, -5.0]])
    assert returns[0, 0] != returns[0, 1]
    assert points_of_side(returns, [0]).tolist() == [0.5, 1]


def test_sides_of_several_seats_are_compared_by_their_means() -> None:
    returns = np.array([[3.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 9.0, -8.0]])
    assert points_of_side(returns, [0, 1]).tolist() == [1, 0.5, 0]
    # One against three: 3 is more than 2 / 3; -8 is less than 3.
    assert points_of_side(returns, [0]).tolist() == [1, 0.5, 0]
    assert points_of_side(returns, [3]).tolist() == [0, 0.5, 0]


@pytest.mark.parametrize("seat", ["player_1", "player_2"])
def test_won_drawn_and_lost_are_those_of_evaluate(seat: str) -> None:
    rules = make_rules("tictactoe_v0")
    perfect, random = reference_player("perfect", rules, seat), RandomPolicy()
    score = evaluate_seat(rules, seat, perfect, random, episodes=300, deterministic=False, seed=4)
    cast = team(random) | {seat: perfect}
    match = play_match(rules, cast, SAMPLED, episodes=300, seed=4)
    i = rules.agents.index(seat)
    points = points_of_side(match.returns, [i])
    shares = [float((points == value).mean()) for value in (1, 0.5, 0)]
    assert shares == pytest.approx([score.won, score.drawn, score.lost])
    assert match.returns[:, i].mean() == pytest.approx(score.return_seat)
    assert match.lengths.mean() == pytest.approx(score.mean_length)


def test_points_against_others() -> None:
    rules = make_rules("rps_v0")
    rock, paper = (team(AlwaysSame(move), *rules.agents) for move in ("rock", "paper"))
    others = {"rock": rock, "paper": paper, "chance": team(RandomPolicy(), *rules.agents)}
    found = points_against(rules, paper, others, seats=rules.agents, episodes=400)
    assert list(found) == ["rock", "paper", "chance"]
    assert (found["rock"], found["paper"]) == (1.0, 0.5)
    assert found["chance"] == pytest.approx(0.5, abs=0.05)


def test_points_are_of_the_seats_that_are_asked_for() -> None:
    rules = make_rules("tictactoe_v0")
    chance = team(RandomPolicy())
    by_seat = [
        points_against(rules, chance, {"other": chance}, seats=[seat], episodes=600)["other"]
        for seat in rules.agents
    ]
    # 737 / 1260 won and 160 / 1260 drawn by who moves first.
    assert by_seat == pytest.approx([(737 + 80) / 1260, (363 + 80) / 1260], abs=0.06)
    both = points_against(rules, chance, {"other": chance}, seats=rules.agents, episodes=600)
    assert both["other"] == pytest.approx(np.mean(by_seat))


def test_a_team_may_play_some_of_three_seats() -> None:
    rules = make_rules("dfaas_v0", trace="edge3", max_cycles=20)
    local = {a: reference_player("local", rules, a) for a in rules.agents}
    chance = {a: reference_player("random", rules, a) for a in rules.agents}
    plan: dict[str, Any] = {"episodes": 4, "seed": 1}
    groups = [("node_0", "node_1"), "node_2"]
    together = points_against(rules, local, {"chance": chance}, seats=groups, **plan)
    each = [
        points_against(rules, local, {"chance": chance}, seats=[group], **plan)["chance"]
        for group in groups
    ]
    assert together["chance"] == pytest.approx(np.mean(each))
    only = {agent: local[agent] for agent in ("node_0", "node_1")}
    rest = {"node_2": chance["node_2"]}
    first = points_against(rules, only, {"chance": rest}, seats=groups[:1], **plan)
    assert first["chance"] == each[0]
    with refused(ValueError, "node_2"):
        points_against(rules, only, {"chance": chance}, seats=groups, **plan)


def test_a_seat_that_no_policy_plays_is_named() -> None:
    rules = make_rules("tictactoe_v0")
    chance, half = team(RandomPolicy()), {"player_1": RandomPolicy()}
    with refused(ValueError, "old", "player_2"):
        points_against(rules, chance, {"old": half}, seats=["player_1"], episodes=1)
    for seats in (["player_3"], [("player_1", "player_2")], [()]):
        with refused(ValueError, "seats=", "player_1", "player_2"):
            points_against(rules, chance, {"old": chance}, seats=seats, episodes=1)


# --- Equal episodes ------------------------------------------------------------------------------


def first_free(observation: Any) -> int:
    return int(np.argmax(observation["action_mask"]))


@pytest.mark.parametrize("episodes", [2, 64, 200])
def test_players_without_chance_play_one_episode_again_and_again(episodes: int) -> None:
    rules = make_rules("tictactoe_v0")
    assert play_match(rules, team(first_free), SAMPLED, episodes=episodes).same
    assert not play_match(rules, team(RandomPolicy()), SAMPLED, episodes=episodes).same


def test_equal_outcomes_are_not_equal_episodes() -> None:
    rules = make_rules("tictactoe_v0")
    perfect = {agent: reference_player("perfect", rules, agent) for agent in rules.agents}
    match = play_match(rules, perfect, SAMPLED, episodes=20)
    assert np.ptp(match.returns, axis=0).max() == np.ptp(match.lengths) == 0
    assert not match.same


def test_chance_of_the_game_makes_episodes_differ() -> None:
    def fixed(rules: PileRules) -> bool:
        greedy = dict.fromkeys(rules.agents, True)
        cast = team(first_free, *rules.agents)
        return play_match(rules, cast, greedy, episodes=50).same  # type: ignore[arg-type]

    assert fixed(PileRules((8, 9)))
    assert not fixed(PileRules((8, 11)))


def test_one_episode_says_nothing_of_others() -> None:
    rules = make_rules("tictactoe_v0")
    assert not play_match(rules, team(first_free), SAMPLED, episodes=1).same


def test_returns_are_in_the_order_of_the_episodes_not_of_their_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Environment 0 plays the first episodes of the plan, in whatever step they end."""
    rows, numbers = np.array([1, 0, 1, 0]), np.array([20, 10, 21, 11])
    ended = EndedEpisodes(("a", "b"), rows, np.stack([numbers, -numbers], axis=1), numbers, {})
    monkeypatch.setattr(matches, "play_episodes", lambda *args, **kwargs: (ended, np.zeros(2)))
    match = play_match(make_rules("rps_v0"), {}, {}, episodes=4)
    assert match.returns[:, 0].tolist() == match.lengths.tolist() == [10, 11, 20, 21]
