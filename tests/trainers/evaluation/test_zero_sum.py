"""Zero-sum games judged seat by seat: shares by hand, reference players, the command's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.envs import make_rules
from corral.envs.policy import Decision
from corral.envs.reference import (
    RandomPolicy,
    reference_player,
    reference_players,
    teams_of,
)
from corral.envs.registry import ENVIRONMENTS
from corral.envs.rps_v0.baselines import AlwaysSame
from corral.errors import IllegalActionWarning
from corral.registration import EXTENSIONS
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.zero_sum import evaluate_seat, evaluate_seats, is_zero_sum
from support.command import within
from support.messages import refused, shown
from support.turn_rules import MortalRules, PileRules

FIRST, SECOND = "player_1", "player_2"


class FirstFree:
    """Takes the first legal action."""

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
        return Decision(np.asarray(observation["action_mask"]).argmax(axis=-1))


class Taken(FirstFree):
    """Takes field 0, whatever the mask says."""

    def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
        return Decision(np.zeros(len(observation["action_mask"]), dtype=np.int64))


# --- By hand -------------------------------------------------------------------------------------


def test_a_game_of_two_that_take_the_first_field() -> None:
    """0, 1, 2, 3, ...: player_1 gets 0, 2, 4 and then 6, a diagonal."""
    rules = make_rules("tictactoe_v0", illegal="raise")
    score = evaluate_seat(rules, FIRST, FirstFree(), FirstFree(), episodes=9)
    assert (score.return_seat, score.low, score.high) == (1.0, 1.0, 1.0)
    assert (score.won, score.drawn, score.lost, score.mean_length) == (1.0, 0.0, 0.0, 7.0)
    assert score.kpis == {"moves": 4.0, "won": 1.0, "drawn": 0.0, "illegal_actions": 0.0}
    other = evaluate_seat(rules, SECOND, FirstFree(), FirstFree(), episodes=9)
    assert (other.return_seat, other.won, other.drawn, other.lost) == (-1.0, 0.0, 0.0, 1.0)
    assert other.kpis == {"moves": 3.0, "won": 0.0, "drawn": 0.0, "illegal_actions": 0.0}


def test_illegal_actions_are_those_of_the_seat() -> None:
    rules = make_rules("tictactoe_v0")
    with pytest.warns(IllegalActionWarning):
        score = evaluate_seat(rules, SECOND, Taken(), FirstFree(), episodes=6, num_envs=2)
    assert (score.illegal_actions, score.lost) == (6, 1.0)
    with pytest.warns(IllegalActionWarning):
        other = evaluate_seat(rules, FIRST, FirstFree(), Taken(), episodes=6, num_envs=2)
    # The other's illegal move ends the game, and pays nothing: to nobody's credit.
    assert (other.illegal_actions, other.drawn, other.return_seat) == (0, 1.0, 0.0)


def test_random_games_end_as_often_as_is_known() -> None:
    rules = make_rules("tictactoe_v0", illegal="raise")
    score = evaluate_seat(rules, FIRST, RandomPolicy(), RandomPolicy(), episodes=4000, num_envs=500)
    assert score.won == pytest.approx(737 / 1260, abs=0.03)  # 4 standard errors
    assert score.lost == pytest.approx(121 / 420, abs=0.03)
    assert score.won + score.drawn + score.lost == pytest.approx(1.0)
    assert score.low is not None
    assert score.high is not None
    assert score.low < score.won - score.lost < score.high


def test_the_opponent_plays_with_chance_even_if_the_policy_is_greedy() -> None:
    rules = make_rules("tictactoe_v0", illegal="raise")
    perfect = reference_player("perfect", rules, FIRST)
    score = evaluate_seat(rules, SECOND, FirstFree(), perfect, episodes=50)
    assert score.mean_length != round(score.mean_length)  # not always the same game


def test_games_that_are_no_duels() -> None:
    assert is_zero_sum(make_rules("tictactoe_v0"))
    assert is_zero_sum(make_rules("rps_v0"))
    assert not any(is_zero_sum(make_rules(name)) for name in ("arena_v0", "two_step_v0"))
    assert not is_zero_sum(PileRules())
    with refused(ValueError, "seat='player_3'", "player_1", "player_2"):
        evaluate_seat(make_rules("tictactoe_v0"), "player_3", FirstFree(), FirstFree())
    with pytest.raises(ValueError, match="seat='agent_0'"):
        evaluate_seat(MortalRules(), "agent_0", FirstFree(), FirstFree())


def test_scores_are_the_same_as_those_of_the_team() -> None:
    rules = make_rules("rps_v0", illegal="raise")
    team = {"player_0": AlwaysSame(), "player_1": RandomPolicy()}
    whole = evaluate_team(rules, Player(team, deterministic=False), episodes=70, seed=3)
    for seat, other in (("player_0", "player_1"), ("player_1", "player_0")):
        own = evaluate_seat(
            rules, seat, team[seat], team[other], episodes=70, seed=3, deterministic=False
        )
        assert own.return_seat == whole.returns[seat]
    assert whole.return_team == 0.0
    assert sum(whole.kpis.values()) == pytest.approx(20.0)  # won + lost + both drawn


# --- All reference players -----------------------------------------------------------------------


def test_every_reference_player_is_a_row_and_a_column() -> None:
    rules = make_rules("rps_v0", illegal="raise")
    scores = evaluate_seats(rules, {"first": FirstFree()}, episodes=8)
    names = ["random", "always-same", "copy-last", "beat-last"]
    assert [(s.seat, s.policy, s.opponent) for s in scores] == [
        (seat, policy, opponent)
        for seat in rules.agents
        for policy in ("first", *names)
        for opponent in names
    ]
    assert {s.mode for s in scores if s.policy == "first"} == {"greedy"}
    assert {s.mode for s in scores if s.policy != "first"} == {""}
    only = evaluate_seats(rules, {}, seats=["player_1"], episodes=8)
    assert len(only) == 16
    assert {s.seat for s in only} == {"player_1"}


def test_players_out_of_reach_are_left_out() -> None:
    rules = make_rules("tictactoe_v0", size=5, line=4, illegal="raise")
    scores = evaluate_seats(rules, {"first": FirstFree()}, episodes=8)
    assert {(s.policy, s.opponent) for s in scores} == {("first", "random"), ("random", "random")}


@pytest.mark.parametrize("name", [*ENVIRONMENTS, "probe_p06_v0"])
def test_reference_players_play_their_environment(name: str) -> None:
    """Every one of them, in its seat, beside random play; legally."""
    given: dict[str, Any] = {"max_cycles": 9} if name in ("dfaas_v0", "arena_v0") else {}
    rules = make_rules(name, illegal="raise", **given)
    for agent in rules.agents[:2]:
        players, left_out = reference_players(rules, agent)
        assert not left_out
        assert next(iter(players)) == "random"
        assert (len(players) > 1) is (f"players.{name}" in EXTENSIONS)
        for policy in players.values():
            team = {**dict.fromkeys(rules.agents, RandomPolicy()), agent: policy}
            score = evaluate_team(rules, Player(team, deterministic=False), episodes=3)
            assert score.illegal_actions == 0


def test_teams_of_reference_players() -> None:
    teams = teams_of(make_rules("arena_v0"))
    assert list(teams) == [
        *("random/still", "random/chase"),
        *("nearest/random", "nearest/still", "nearest/chase"),
    ]
    assert teams_of(make_rules("two_step_v0")) == {}


# --- corral evaluate -----------------------------------------------------------------------------


def small_run(folder: Path, environment: str, **given: Any) -> Any:
    pytest.importorskip("torch", reason="needs the extra mappo")
    from corral.trainers.driver import train

    small = {"num_envs": 4, "n_steps": 16, "net_arch": (16,), "n_minibatches": 1}
    return train(environment, trainer="mappo", steps=64, out=folder, **small, **given)


def test_evaluate_shows_a_table_for_each_seat(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "tictactoe_v0")
    printed = within("evaluate", run.folder, "--episodes", "20")
    lines = [line for line in printed.splitlines() if not line.startswith("Results:")]
    assert max(map(len, lines)) <= 80
    for seat in (FIRST, SECOND):
        (head,) = (line for line in lines if line.strip().startswith(f"{seat}, against"))
        assert head.split()[2:] == ["random", "perfect"]
    rows = json.loads((run.folder / "results.json").read_text())["rows"]
    assert len(rows) == 2 * 4 * 2
    # What is printed are the rows of the file.
    for row in rows:
        counts = "/".join(str(round(20 * row[key])) for key in ("won", "drawn", "lost"))
        assert f"{row['return_seat']:+.2f} {counts}" in printed
    best = [row for row in rows if row["policy"] == "perfect"]
    assert all(row["lost"] == 0 for row in best)
    assert {row["policy"] for row in rows} == {
        *("mappo, greedy", "mappo, sampled"),
        *("random", "perfect"),
    }


def test_evaluate_says_who_is_left_out(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", "tictactoe_v0", env_kwargs={"size": 4})
    printed = " ".join(within("evaluate", run.folder, "--episodes", "4").split())
    shown(printed, 16, 12, "mappo, greedy")


def test_other_games_are_judged_beside_their_teams_of_reference_players(tmp_path: Path) -> None:
    from corral.trainers.evaluation.judge import evaluate

    run = small_run(
        tmp_path / "run", "arena_v0", env_kwargs={"width": 3, "height": 3, "max_cycles": 9}
    )
    scores: Any = evaluate(run, episodes=5)
    assert [score.policy for score in scores] == [
        *("mappo, greedy", "mappo, sampled"),
        *("random/still", "random/chase", "nearest/random", "nearest/still", "nearest/chase"),
        "random",
    ]
    assert [score.mode for score in scores] == ["greedy", "sampled", "", "", "", "", "", ""]
