"""tictactoe_v0: worked examples, a plain re-statement, all games by enumeration, perfect play."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np
import pytest

from corral.envs import tictactoe_v0
from corral.envs.batch import Batch, make_batch
from corral.envs.core import copy_rows, generator, put_rows, state_arrays
from corral.envs.reference import RandomPolicy, reference_player, reference_players
from corral.envs.tictactoe_v0 import TicTacToeRules, TicTacToeState
from corral.envs.tictactoe_v0.baselines import Perfect, solved
from corral.errors import (
    IllegalActionError,
    IllegalActionWarning,
    InfeasibleError,
    UnknownNameError,
)
from corral.trainers.evaluation.zero_sum import evaluate_seat
from support.contract import check_contract, check_rules, plain
from support.messages import refused
from support.thinned import fast_every
from support.tictactoe_scalar import INFO_KEYS, ScalarTicTacToe

FIRST, SECOND = "player_1", "player_2"
SEATS = ((FIRST, SECOND), (SECOND, FIRST))


def played(rules: TicTacToeRules, fields: list[int]) -> Any:
    """One game, field by field; the outcome of the last move."""
    state = rules.start([np.random.default_rng(0)])
    for field in fields:
        outcome = rules.step(state, np.full((1, 2), field))
        state = outcome.state
    return outcome


# --- Worked examples -----------------------------------------------------------------------------

CASES: dict[str, tuple[dict[str, Any], list[int], list[float], str]] = {
    # arguments, moves, the last rewards, the info that is 1 besides moves
    "a row": ({}, [0, 3, 1, 4, 2], [1, -1], "won"),
    "a column, by the second player": ({}, [0, 1, 2, 4, 3, 7], [-1, 1], "won"),
    "a diagonal": ({}, [0, 1, 4, 2, 8], [1, -1], "won"),
    "the other diagonal": ({}, [2, 1, 4, 0, 6], [1, -1], "won"),
    "no line across the edge": ({}, [2, 0, 3, 1, 4], [0, 0], ""),
    "a full board": ({}, [0, 1, 2, 4, 3, 5, 7, 6, 8], [0, 0], "drawn"),
    "a win with the last stone is no draw": ({}, [0, 1, 2, 3, 4, 5, 7, 6, 8], [1, -1], "won"),
    "a field that is taken": ({}, [4, 4], [0, -1], "illegal_actions"),
    "one's own field": ({}, [4, 0, 4], [-1, 0], "illegal_actions"),
    "three of four": ({"size": 5, "line": 4}, [0, 5, 1, 6, 2], [0, 0], ""),
    "four of four, filling a gap": ({"size": 5, "line": 4}, [0, 5, 1, 6, 3, 7, 2], [1, -1], "won"),
    "five count as four": (
        {"size": 5, "line": 4},
        [0, 10, 1, 11, 3, 12, 4, 20, 2],
        [1, -1],
        "won",
    ),
    "a tall board": ({"size": (4, 2), "line": 3}, [0, 1, 2, 3, 4], [1, -1], "won"),
    "a wide board has no columns of three": (
        {"size": (2, 4), "line": 3},
        [0, 1, 4, 2, 5, 3],
        [-1, 1],
        "won",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_worked_examples(case: str) -> None:
    kwargs, fields, reward, told = CASES[case]
    outcome = played(TicTacToeRules(**kwargs), fields)
    mover = (len(fields) - 1) % 2
    info = {key: [0, 0] for key in INFO_KEYS}
    for key in filter(None, ("moves", told)):
        info[key][mover] = 1
    assert outcome.reward.tolist() == [reward]
    assert {key: values[0].tolist() for key, values in outcome.info.items()} == info
    assert outcome.terminated.tolist() == [[bool(told)] * 2]


def test_what_is_shown() -> None:
    rules = TicTacToeRules((2, 3), 3)
    state = played(rules, [1, 5]).state
    seen = rules.observe(state)
    own = [[0, 1, 0], [0, 0, 0]]
    other = [[0, 0, 0], [0, 0, 1]]
    assert seen[FIRST]["observation"][0, ..., 0].tolist() == own
    assert seen[FIRST]["observation"][0, ..., 1].tolist() == other
    assert seen[SECOND]["observation"][0, ..., 0].tolist() == other
    assert seen[FIRST]["action_mask"].tolist() == [[1, 0, 1, 1, 1, 0]]
    assert seen[SECOND]["action_mask"].tolist() == [[0] * 6]
    assert rules.global_state(state).tolist() == [[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0]]


def test_after_the_end_nothing_changes_and_nothing_is_paid() -> None:
    rules = TicTacToeRules()
    outcome = played(rules, [0, 3, 1, 4, 2])
    before = plain(state_arrays(outcome.state))
    after = rules.step(outcome.state, np.full((1, 2), 8))
    assert plain(state_arrays(after.state)) == before
    assert not after.reward.any()
    assert after.terminated.all()
    assert not any(values.any() for values in after.info.values())
    assert not rules.acting(after.state).any()


# --- As PettingZoo users see it ------------------------------------------------------------------


def last_of_each(env: Any, fields: list[int]) -> dict[str, tuple[float, bool, bool, bool]]:
    """Play ``fields``; per agent the reward, the two ends, and whether the mask is empty, as the
    loop over ``agent_iter`` shows them when the agent is last asked."""
    env.reset(seed=0)
    moves, seen = iter(fields), {}
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        seen[agent] = (reward, terminated, truncated, not observation["action_mask"].any())
        env.step(None if terminated or truncated else next(moves))
    return seen


def test_the_loser_sees_its_loss_with_the_termination() -> None:
    won = last_of_each(tictactoe_v0.env(), [0, 3, 1, 4, 2])
    assert won == {FIRST: (1.0, True, False, True), SECOND: (-1.0, True, False, True)}
    drawn = last_of_each(tictactoe_v0.env(), CASES["a full board"][1])
    assert drawn == {FIRST: (0.0, True, False, True), SECOND: (0.0, True, False, True)}
    cut = last_of_each(tictactoe_v0.env(max_cycles=3), [0, 3, 1])
    assert {seen[:3] for seen in cut.values()} == {(0.0, False, True)}
    with pytest.warns(IllegalActionWarning, match="player_2"):
        illegal = last_of_each(tictactoe_v0.env(), [4, 4])
    assert illegal == {FIRST: (0.0, True, False, True), SECOND: (-1.0, True, False, True)}


def test_the_first_player_begins_and_infos_have_the_same_keys() -> None:
    env = tictactoe_v0.env()
    env.reset(seed=0)
    assert env.agent_selection == FIRST
    assert env.infos == {agent: dict.fromkeys(INFO_KEYS, 0) for agent in (FIRST, SECOND)}
    env.step(4)
    assert env.agent_selection == SECOND
    assert env.infos[FIRST] == {**dict.fromkeys(INFO_KEYS, 0), "moves": 1}
    assert env.observe(SECOND)["action_mask"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]


def test_the_same_winner_as_in_pettingzoos_own_tictactoe() -> None:
    """Over random games; that environment counts its fields column by column."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pygame", reason="PettingZoo's tictactoe imports pygame")
        theirs = pytest.importorskip("pettingzoo.classic.tictactoe_v3").env()
    ours, rng = tictactoe_v0.env(illegal="raise"), np.random.default_rng(0)
    results = []
    for _ in range(150):
        ours.reset()
        theirs.reset()
        while not (any(ours.terminations.values()) or any(theirs.terminations.values())):
            assert ours.agent_selection == theirs.agent_selection
            seen, shown = ours.observe(ours.agent_selection), theirs.observe(ours.agent_selection)
            # A board turned over its diagonal is the same board counted the other way.
            np.testing.assert_array_equal(
                seen["observation"], shown["observation"].transpose(1, 0, 2)
            )
            field = int(rng.choice(np.flatnonzero(seen["action_mask"])))
            ours.step(field)
            theirs.step(field % 3 * 3 + field // 3)
        assert ours.rewards == theirs.rewards
        assert ours.terminations == theirs.terminations == {FIRST: True, SECOND: True}
        results.append(ours.rewards[FIRST])
    assert set(results) == {1.0, 0.0, -1.0}


# --- Against the plain re-statement --------------------------------------------------------------


def random_size(rng: np.random.Generator) -> dict[str, Any]:
    rows, columns = (int(side) for side in rng.integers(1, 6, size=2))
    rows = rows if max(rows, columns) > 1 else 2
    return {"size": (rows, columns), "line": int(rng.integers(2, max(rows, columns) + 1))}


def play_side_by_side(seed: int, num_envs: int = 12) -> np.ndarray:
    """Play random games to their end with both, now and then illegally; how they ended."""
    rng = np.random.default_rng(seed)
    kwargs = random_size(rng)
    rules = TicTacToeRules(**kwargs)
    scalars = [ScalarTicTacToe(rules.rows, rules.columns, rules.line) for _ in range(num_envs)]
    state = rules.start([generator(seed, "env", row) for row in range(num_envs)])
    counted = np.zeros(len(INFO_KEYS), dtype=int)
    while rows := [row for row in range(num_envs) if not scalars[row].over]:
        # The copies need not be at the same move: some wait.
        rows = [row for row in rows if rng.random() < 0.8]
        if not rows:
            continue
        masks = np.array([scalars[row].mask(scalars[row].mover) for row in rows])
        wild = rng.random(len(rows)) < 0.05
        chances = np.where(wild[:, None], 1, masks) * rng.random(masks.shape)
        actions = np.tile(chances.argmax(axis=1)[:, None], 2)
        actions[np.arange(len(rows)), [1 - scalars[row].mover for row in rows]] = 0  # not looked at
        part = copy_rows(state, np.array(rows))
        outcome = rules.step(part, actions)
        put_rows(state, np.array(rows), outcome.state)
        observations, everything = rules.observe(state), rules.global_state(state)
        acting = rules.acting(state)
        for place, row in enumerate(rows):
            scalar = scalars[row]
            scalar.step(int(actions[place, scalar.mover]))
            assert outcome.reward[place].tolist() == scalar.rewards
            assert outcome.terminated[place].tolist() == [scalar.over] * 2
            for key, count in zip(INFO_KEYS, range(len(INFO_KEYS)), strict=True):
                assert outcome.info[key][place].tolist() == scalar.info[key], key
                counted[count] += sum(scalar.info[key])
        for row, scalar in enumerate(scalars):
            assert acting[row].tolist() == scalar.acting()
            assert everything[row].tolist() == scalar.global_state()
            for i, agent in enumerate(rules.agents):
                assert observations[agent]["observation"][row].tolist() == scalar.observation(i)
                assert observations[agent]["action_mask"][row].tolist() == scalar.mask(i)
    return counted


@pytest.mark.parametrize("block", fast_every(3, range(3)))
def test_thousands_of_random_games_play_alike(block: int) -> None:
    counted = sum(play_side_by_side(seed) for seed in range(60 * block, 60 * (block + 1)))
    assert (counted > 50).all()  # 720 games each: moves, wins, draws, illegal moves


@pytest.mark.parametrize(
    "kwargs", [{"size": (2, 3)}, {"size": 4, "line": 3}, {"max_cycles": 4}], ids=str
)
def test_variants_keep_the_contract(kwargs: dict[str, Any]) -> None:
    make = functools.partial(tictactoe_v0.env, **kwargs)
    assert check_contract(make, chance=False, seeds=(0, 1)) > 20
    assert check_rules(functools.partial(TicTacToeRules, **kwargs)) > 3


# --- All games -----------------------------------------------------------------------------------


def all_moves(rules: TicTacToeRules, state: TicTacToeState) -> tuple[TicTacToeState, Any, Any]:
    """Play every legal move of every copy: the states, rewards [C, N] and ends [C] that come."""
    seen, acting = rules.observe(state), rules.acting(state)
    mover = acting.argmax(axis=1)
    masks = np.stack([seen[agent]["action_mask"] for agent in rules.agents], axis=1)
    row, field = np.nonzero(masks[np.arange(len(mover)), mover])
    outcome = rules.step(copy_rows(state, row), np.tile(field[:, None], 2))
    return outcome.state, outcome.reward, outcome.terminated[:, 0]


def test_there_are_255168_games_and_5478_positions() -> None:
    rules = TicTacToeRules(illegal="raise")
    state = rules.start([np.random.default_rng(0)])
    ends: dict[float, int] = {1.0: 0, 0.0: 0, -1.0: 0}
    chance = {1.0: 0.0, 0.0: 0.0, -1.0: 0.0}  # under uniformly random play
    positions = {0}
    for moves in range(9):
        state, reward, over = all_moves(rules, state)
        boards = state.stones.reshape(len(over), -1)
        positions |= set(np.unique(boards @ 2 ** np.arange(boards.shape[1])).tolist())
        for result in ends:
            count = int((over & (reward[:, 0] == result)).sum())
            ends[result] += count
            chance[result] += count * math.factorial(8 - moves) / math.factorial(9)
        state = copy_rows(state, np.flatnonzero(~over))
    assert ends == {1.0: 131_184, 0.0: 46_080, -1.0: 77_904}
    assert sum(ends.values()) == 255_168
    assert len(positions) == 5_478
    assert chance == pytest.approx({1.0: 737 / 1260, 0.0: 8 / 63, -1.0: 121 / 420})


# --- Perfect play --------------------------------------------------------------------------------


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize(("seat", "other"), SEATS)
def test_perfect_play_never_loses_against_any_reply(seat: str, other: str, greedy: bool) -> None:
    """Against all replies; where it draws among several best moves, against all of these too."""
    rules = TicTacToeRules(illegal="raise")
    perfect, place = Perfect(rules), rules.agents.index(seat)
    state = rules.start([np.random.default_rng(0)])
    ends = []
    for move in range(9):
        if move % 2 == place:
            seen = rules.observe(state)[seat]
            best = perfect.solution.best[perfect._index(seen)]
            row, field = np.nonzero(best)
            if greedy:
                row, field = np.arange(len(best)), perfect.act(seen, deterministic=True).action
            outcome = rules.step(copy_rows(state, row), np.tile(field[:, None], 2))
            state, reward, over = outcome.state, outcome.reward, outcome.terminated[:, 0]
        else:
            state, reward, over = all_moves(rules, state)
        ends += reward[over, place].tolist()
        state = copy_rows(state, np.flatnonzero(~over))
        if not len(state.t):
            break
    assert set(ends) == {0.0, 1.0}
    assert len(ends) > (50 if greedy else 500)


@pytest.mark.parametrize(
    ("size", "line", "value"),
    [
        (3, 3, 0),  # a draw
        ((2, 2), 2, 1),  # whoever begins
        ((3, 4), 3, 1),  # known: first player wins on 3 x 4
        ((2, 6), 3, 0),  # no room for two threats
        ((1, 3), 2, 1),
        ((1, 2), 2, 0),
    ],
)
def test_known_values_of_the_empty_board(size: Any, line: int, value: int) -> None:
    rules = TicTacToeRules(size, line)
    seen = rules.observe(rules.start([np.random.default_rng(0)]))[FIRST]
    assert Perfect(rules).value(seen).tolist() == [value]


def plain_value(game: ScalarTicTacToe, known: dict[Any, int]) -> int:
    """Minimax in plain recursion over the scalar rules, for the player to move."""
    key = tuple(map(tuple, game.board))
    if key not in known:
        worth = []
        for field, legal in enumerate(game.mask(game.mover)):
            if legal:
                after = ScalarTicTacToe(game.rows, game.columns, game.line)
                after.board = [list(line) for line in game.board]
                after.mover = game.mover
                after.step(field)
                paid = after.rewards[game.mover]
                worth.append(int(paid) if after.over else -plain_value(after, known))
        known[key] = max(worth)
    return known[key]


@pytest.mark.parametrize(("size", "line"), [((3, 3), 3), ((2, 4), 3), ((2, 3), 2)])
def test_values_are_those_of_plain_minimax(size: tuple[int, int], line: int) -> None:
    known: dict[Any, int] = {}
    plain_value(ScalarTicTacToe(*size, line), known)
    rules = TicTacToeRules(size, line)
    solution = solved(*size, line)
    power = 3 ** np.arange(rules.fields)
    numbers = {int((np.ravel(board) * power).sum()): value for board, value in known.items()}
    assert dict(zip(solution.position.tolist(), solution.value.tolist(), strict=True)) == numbers
    assert len(numbers) == len(known) == {(3, 3): 4_520}.get(size, len(known))


def test_it_wins_at_once_and_blocks() -> None:
    rules = TicTacToeRules()
    for fields, best in (([0, 3, 1, 4], 2), ([0, 4, 8, 2], 6), ([4, 0, 2], 6)):
        seen = rules.observe(played(rules, fields).state)[(FIRST, SECOND)[len(fields) % 2]]
        assert Perfect(rules).act(seen, deterministic=True).action.tolist() == [best]
        single = {key: value[0] for key, value in seen.items()}
        assert Perfect(rules).act(single, rng=np.random.default_rng(0)).action == best


def test_perfect_play_beats_random_play_and_draws_with_itself() -> None:
    rules = TicTacToeRules(illegal="raise")
    for seat, other in SEATS:
        perfect = reference_player("perfect", rules, seat)
        same = evaluate_seat(rules, seat, perfect, reference_player("perfect", rules, other))
        assert (same.won, same.drawn, same.lost) == (0.0, 1.0, 0.0)
        score = evaluate_seat(rules, seat, perfect, RandomPolicy(), episodes=500)
        assert score.lost == 0.0
        assert score.won > {FIRST: 0.94, SECOND: 0.7}[seat]
        assert score.illegal_actions == 0


def test_perfect_play_is_refused_where_it_is_out_of_reach() -> None:
    rules = TicTacToeRules(4, 3)
    with refused(InfeasibleError, "4 x 4", 16, "12 fields"):
        reference_player("perfect", rules, FIRST)
    made, left_out = reference_players(rules, FIRST)
    assert (list(made), list(left_out)) == (["random"], ["perfect"])
    with refused(UnknownNameError, "tictactoe_v0", "player_1", "'perfekt'", "'perfect'"):
        reference_player("perfekt", rules, FIRST)


def test_perfect_play_needs_a_position_and_for_chance_a_generator() -> None:
    rules = TicTacToeRules()
    with refused(ValueError, "rng=", "deterministic=True"):
        Perfect(rules).act(rules.observe(played(rules, [0]).state)[SECOND])
    over = rules.observe(played(rules, [0, 3, 1, 4, 2]).state)[FIRST]
    with refused(ValueError, "position"):
        Perfect(rules).act(over, deterministic=True)


# --- Larger boards, arguments --------------------------------------------------------------------


def test_a_larger_board_is_played_by_many_copies() -> None:
    batch = make_batch("tictactoe_v0", num_envs=256, seed=0, size=5, line=4, illegal="raise")
    batch.reset()
    rng = np.random.default_rng(0)
    returns = []
    for _ in range(100):
        step = batch.step(batch.sample_actions(rng))
        if step.finished is not None:
            returns += step.finished.returns.tolist()
    first = np.array(returns)[:, 0]
    assert {-1.0, 0.0, 1.0} == set(first)
    assert np.array_equal(first, -np.array(returns)[:, 1])
    assert 0.4 < (first > 0).mean() < 0.6
    assert 0.3 < (first < 0).mean() < 0.5


@pytest.mark.parametrize(
    ("kwargs", "values"),
    [
        ({"size": 0}, ("size=0", "1 to 26", "(rows, columns)")),
        ({"size": (3,)}, ("size=(3,)", "1 to 26", "(rows, columns)")),
        ({"size": (3, 27)}, ("size=(3, 27)", "1 to 26")),
        ({"size": "3"}, ("size='3'", "1 to 26")),
        ({"line": 1}, ("line=1", 2)),
        ({"line": 4}, ("line=4", "3 x 3", "2 to 3")),
        ({"max_cycles": 0}, ("max_cycles=0", 1, "None")),
        ({"illegal": "ignore"}, ("illegal='ignore'", "'penalise', 'raise'")),
    ],
)
def test_bad_arguments_are_named(kwargs: dict[str, Any], values: tuple[Any, ...]) -> None:
    with refused(ValueError, *values):
        TicTacToeRules(**kwargs)
    with refused(ValueError, *values):
        tictactoe_v0.env(**kwargs)


def test_rules_that_play_alike_have_the_same_identity() -> None:
    others: list[dict[str, Any]] = [{"size": 4}, {"size": (3, 4)}, {"line": 2}, {"max_cycles": 9}]
    assert len({TicTacToeRules(**kwargs).identity for kwargs in ({}, *others)}) == 5
    assert TicTacToeRules((3, 3), illegal="raise").identity == TicTacToeRules().identity


def test_taken_fields_raise_before_anything_changes() -> None:
    batch = Batch(TicTacToeRules(illegal="raise"), 2, 0)
    batch.reset()
    batch.step(np.array([[4, 0], [3, 0]]))
    before = plain(batch.snapshot()["arrays"])
    with refused(IllegalActionError, "copy 1", "player_2", "action 3", "0..2, 4..8"):
        batch.step(np.array([[0, 0], [0, 3]]))
    assert plain(batch.snapshot()["arrays"]) == before
