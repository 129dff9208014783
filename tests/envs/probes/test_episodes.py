"""Episodes of the probes, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.envs import PROBES, probes
from corral.envs.probes.base import Probe

# --- Episodes worked out by hand -----------------------------------------------------------------


def played(rules: Probe, drawn: list[int], moves: list[list[int]]) -> dict[str, Any]:
    """What an episode with these chance moves and actions shows; lists, one entry a step."""
    state = rules.situations([0], [drawn] if drawn else None)
    found: dict[str, Any] = {"seen": [], "acting": [], "reward": [], "ended": []}
    for move in moves:
        seen = rules.observe(state)
        found["seen"].append([seen[agent]["observation"][0].tolist() for agent in rules.agents])
        found["acting"].append(rules.acting(state)[0].tolist())
        outcome = rules.step(state, np.array([move]))
        state = outcome.state
        found["reward"].append(outcome.reward[0].tolist())
        found["ended"].append(outcome.terminated[0].tolist())
    found["last"] = [
        rules.observe(state)[agent]["observation"][0].tolist() for agent in rules.agents
    ]
    return found


BOTH, NONE = [True, True], [False, False]

EPISODES: list[tuple[Probe, list[int], list[list[int]], dict[str, Any]]] = [
    (
        probes.ConstantReward(),
        [],
        [[1, 0]],
        {"seen": [[[1], [1]]], "acting": [BOTH], "reward": [[1, -2]], "ended": [BOTH]},
    ),
    (probes.ShownReward(), [0], [[0, 1]], {"seen": [[[-1], [-1]]], "reward": [[-1, 1]]}),
    (probes.ShownReward(), [1], [[0, 1]], {"seen": [[[1], [1]]], "reward": [[1, -1]]}),
    (
        probes.LaterReward(),
        [0],
        [[0, 0], [1, 1]],
        {
            "seen": [[[-1, 0]] * 2, [[-1, 1]] * 2],
            "reward": [[0, 0], [-1, 1]],
            "ended": [NONE, BOTH],
        },
    ),
    (probes.WhoPlays(), [], [[0, 1]], {"seen": [[[1], [1]]], "reward": [[1, 1]]}),
    (probes.WhoPlays(), [], [[1, 0]], {"reward": [[0, 0]]}),
    (probes.BitOrOpposite(), [1, 0], [[1, 1]], {"seen": [[[1], [-1]]], "reward": [[1, 1]]}),
    (probes.BitOrOpposite(), [0, 1], [[1, 1]], {"seen": [[[-1], [1]]], "reward": [[0, 0]]}),
    # Mask 5 of 1 .. 15 is 0b101: actions 0 and 2; mask 8 is action 3 alone.
    (probes.FifteenMasks(), [4, 7], [[2, 3]], {"seen": [[[1], [1]]], "reward": [[2, 3]]}),
    (probes.FifteenMasks(), [4, 7], [[1, 0]], {"reward": [[-100, -100]]}),
    (probes.Credit(), [], [[0, 1]], {"reward": [[1, 0]]}),
    (probes.Credit(), [], [[1, 0]], {"reward": [[0, 2]]}),
    (probes.Credit(reward="team"), [], [[0, 1]], {"reward": [[0.5, 0.5]]}),
    (probes.Credit(reward="team"), [], [[1, 0]], {"reward": [[1, 1]]}),
    (probes.OtherSees(), [0], [[0, 0]], {"seen": [[[1], [-1]]], "reward": [[-1, 0]]}),
    (
        probes.CutOrEnd(),
        [],
        [[0, 0]] * 4,
        {
            "seen": [[[0], [0]], [[1], [1]], [[1], [2]], [[1], [3]]],
            "reward": [[0, 1], [1, 1], [1, 1], [1, 1]],
            "ended": [NONE, NONE, NONE, [False, True]],
            "last": [[1], [4]],
        },
    ),
    (
        probes.Death(),
        [],
        [[0, 0]] * 4,
        {
            "acting": [BOTH, BOTH, [False, True], [False, True]],
            "reward": [[1, 1], [1, 1], [0, 1], [0, 1]],
            "ended": [NONE, [True, False], [True, False], BOTH],
            "last": [[0, 0, 0, 0, 1]] * 2,
        },
    ),
    (
        probes.UnlikeAgents(),
        [1, 4],
        [[1, 1]],
        {"seen": [[[0, 1], [0, 0, 0, 0, 1]]], "reward": [[1, 1]]},
    ),
    (probes.UnlikeAgents(), [0, 2], [[1, 0]], {"reward": [[0, 0]]}),
    (
        probes.ReplyPays(),
        [],
        [[0, 1], [1, 1]],
        {
            "seen": [[[1, 0, 0, 0]] * 2, [[0, 1, 0, -1]] * 2],
            "acting": [[True, False], [False, True]],
            "reward": [[0, 0], [-1, 1]],
            "ended": [NONE, BOTH],
        },
    ),
    (
        probes.ReplyPays(replies=2),
        [],
        [[1, 0], [0, 0], [0, 1]],
        {
            "seen": [[[1, 0, 0, 0]] * 2, [[0, 1, 0, 1]] * 2, [[0, 0, 1, 1]] * 2],
            "acting": [[True, False], [False, True], [False, True]],
            "reward": [[0, 0], [0, 0], [1, -1]],
            "ended": [NONE, NONE, BOTH],
        },
    ),
    (
        probes.EarlyGift(),
        [],
        [[0, 0], [0, 0]],
        {
            "acting": [[True, False], [False, True]],
            "reward": [[0, 0.5], [0, 1]],
            "ended": [NONE, BOTH],
        },
    ),
    (
        probes.Memory(),
        [0, 1, 1, 1],
        [[0, 0]] * 5,
        {
            "seen": [[[-1, 0], [1, 0]], *[[[0, 0]] * 2] * 3, [[0, 1]] * 2],
            "reward": [*[[0, 0]] * 4, [1, -1]],
            "ended": [*[NONE] * 4, BOTH],
        },
    ),
    (
        probes.Memory(cue="last"),
        [0, 1, 1, 1],
        [[0, 1]] * 5,
        {
            "seen": [[[0, 1]] * 2, *[[[0, 0]] * 2] * 3, [[-1, 0], [1, 0]]],
            "reward": [[-1, 1], *[[0, 0]] * 4],
            "ended": [*[NONE] * 4, BOTH],
        },
    ),
    (
        probes.Accounts(),
        [],
        [[0, 1, 0]] * 5,
        {"reward": [[1, 10, 100]] * 5, "ended": [*[[False] * 3] * 4, [True] * 3]},
    ),
    (probes.OneLegal(), [2, 0, 1, 0], [[2, 0]], {"seen": [[[1], [1]]], "reward": [[1, -1]]}),
    (probes.OneLegal(), [2, 0, 1, 0], [[1, 1]], {"reward": [[-100, -100]]}),
    (probes.EqualAdvantages(), [], [[1]], {"reward": [[1]], "ended": [[True]]}),
    *(
        (probes.RockPaperScissors(), [], [[a, b]], {"reward": [[won, -won]]})
        for (a, b), won in {
            (0, 0): 0, (0, 1): -1, (0, 2): 1,
            (1, 0): 1, (1, 1): 0, (1, 2): -1,
            (2, 0): -1, (2, 1): 1, (2, 2): 0,
        }.items()
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "drawn", "moves", "expected"),
    EPISODES,
    ids=[f"{rules.name}-{k}" for k, (rules, *_) in enumerate(EPISODES)],
)
def test_an_episode_worked_out_by_hand(
    rules: Probe, drawn: list[int], moves: list[list[int]], expected: dict[str, Any]
) -> None:
    found = played(rules, drawn, moves)
    assert {key: found[key] for key in expected} == expected


def test_every_probe_has_an_episode_worked_out() -> None:
    assert {rules.name for rules, *_ in EPISODES} == set(PROBES)
