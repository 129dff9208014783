"""two_step_v0: the whole game worked out by hand, and its known answers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from corral.envs import two_step_v0
from corral.envs.batch import make_batch
from corral.envs.two_step_v0 import TwoStepRules
from support.messages import refused

START, GAME_A, GAME_B = [1, 0, 0], [0, 1, 0], [0, 0, 1]
PAYS = {0: [[7, 7], [7, 7]], 1: [[0, 1], [1, 8]]}
"""By agent_0's first action, then by both second actions."""

PAIRS = list(itertools.product((0, 1), repeat=2))


@pytest.mark.parametrize("first", PAIRS)
@pytest.mark.parametrize("second", PAIRS)
def test_every_game_there_is(first: tuple[int, int], second: tuple[int, int]) -> None:
    env = two_step_v0.parallel_env()
    seen, infos = env.reset(seed=0)
    assert [s["observation"].tolist() for s in seen.values()] == [START] * 2
    assert infos == {agent: {"illegal_actions": 0} for agent in env.possible_agents}
    seen, rewards, terminated, truncated, _ = env.step(dict(zip(env.agents, first, strict=True)))
    game = GAME_B if first[0] else GAME_A
    assert [s["observation"].tolist() for s in seen.values()] == [game] * 2
    assert [s["action_mask"].tolist() for s in seen.values()] == [[1, 1]] * 2
    assert env.state().tolist() == game
    assert set(rewards.values()) == {0.0}
    assert not any({**terminated, **truncated}.values())
    seen, rewards, terminated, truncated, _ = env.step(dict(zip(env.agents, second, strict=True)))
    paid = PAYS[first[0]][second[0]][second[1]]
    assert rewards == {"agent_0": paid / 2, "agent_1": paid / 2}
    assert sum(rewards.values()) == paid
    assert all(terminated.values())
    assert not any(truncated.values())
    assert [s["action_mask"].tolist() for s in seen.values()] == [[0, 0]] * 2
    assert env.agents == []


def test_the_answers_that_the_manual_gives() -> None:
    plays = [PAYS[a][b][c] for a, b, c in itertools.product((0, 1), repeat=3)]
    assert max(plays) == 8
    assert np.mean(plays) == 4.75
    assert np.mean(PAYS[0]) == 7
    assert np.mean(PAYS[1]) == 2.5
    assert np.mean(PAYS[1][1]) == 4.5
    manual = two_step_v0.__doc__ or ""
    assert all(number in manual for number in ("4.75", "= 2.5", "4.5", ": 8", ": 7"))


def test_copies_play_on_and_return_what_the_team_was_paid() -> None:
    batch = make_batch("two_step_v0", num_envs=3, seed=0)
    batch.reset()
    for _ in range(2):  # the second episodes are like the first
        batch.step(np.array([[0, 0], [1, 0], [1, 1]]))
        step = batch.step(np.array([[0, 1], [1, 1], [1, 0]]))
        assert step.finished is not None
        assert step.finished.returns.sum(axis=1).tolist() == [7, 8, 1]
        assert step.finished.lengths.tolist() == [2, 2, 2]
        assert step.finished.observations["agent_1"]["observation"].tolist() == [
            GAME_A,
            GAME_B,
            GAME_B,
        ]
        assert step.observations["agent_1"]["observation"].tolist() == [START] * 3
        assert step.terminated.all()
        assert not step.truncated.any()


def test_a_time_limit_cuts_it() -> None:
    env = two_step_v0.parallel_env(max_cycles=1)
    env.reset(seed=0)
    _, _, terminated, truncated, _ = env.step({"agent_0": 1, "agent_1": 0})
    assert not any(terminated.values())
    assert all(truncated.values())
    with refused(ValueError, "max_cycles=0", 1, "None"):
        TwoStepRules(max_cycles=0)
    with refused(TypeError, "'max_cycle'", "'max_cycles'"):
        two_step_v0.parallel_env(max_cycle=3)


PICTURES = [
    (
        [],
        [
            "  game A    game B",
            "  7   7     0   1",
            "  7   7     1   8",
            "agent_0 chooses the game",
        ],
    ),
    (
        [[1, 0]],
        [
            "  game A   [game B]",
            "  7   7     0   1",
            "  7   7     1   8",
            "agent_0 chose game B; both choose a row and a column",
        ],
    ),
    (
        [[1, 0], [1, 1]],
        [
            "  game A   [game B]",
            "  7   7     0   1",
            "  7   7     1  [8]",
            "row 1 and column 1 were played: the team gets 8",
        ],
    ),
    (
        [[0, 0], [0, 1]],
        [
            " [game A]   game B",
            "  7  [7]    0   1",
            "  7   7     1   8",
            "row 0 and column 1 were played: the team gets 7",
        ],
    ),
]


@pytest.mark.parametrize(("moves", "lines"), PICTURES)
def test_the_picture_shows_both_games_and_what_is_played(
    moves: list[list[int]], lines: list[str]
) -> None:
    env = two_step_v0.parallel_env(render_mode="ansi")
    env.reset(seed=0)
    for move in moves:
        env.step(dict(zip(env.possible_agents, move, strict=True)))
    assert env.render().split("\n") == lines


def test_the_drawn_picture_differs_as_the_text_does() -> None:
    pytest.importorskip("PIL", reason="pictures need Pillow")
    drawn: list[Any] = []
    for moves, _ in PICTURES:
        env = two_step_v0.parallel_env(render_mode="rgb_array")
        env.reset(seed=0)
        for move in moves:
            env.step(dict(zip(env.possible_agents, move, strict=True)))
        drawn.append(env.render())
        assert (drawn[-1].shape, drawn[-1].dtype) == ((150, 480, 3), np.uint8)
        assert (drawn[-1] < 128).mean() > 0.01  # letters
    assert len({picture.tobytes() for picture in drawn}) == len(PICTURES)
