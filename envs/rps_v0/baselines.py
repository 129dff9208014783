"""Reference policies of rps_v0. An opponent that predicts them can beat them, except for random.

| player | moves | best reply, from the second round on |
|---|---|---|
| random | one of the three, uniformly | any move: all are worth 0 |
| always-same | one move, drawn in the first round, in the whole episode | the move that beats it |
| copy-last | the opponent's last move; rock at first | the move that beats your last move |
| beat-last | the move that beats the opponent's last move; rock at first | see below |

After rock, beat-last plays paper, so that the best reply is scissors. After paper it is rock, and
after scissors paper. Against copy-last and beat-last, paper wins the first round too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.envs.arguments import one_of
from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, OBSERVATION
from corral.envs.policy import Decision, Heuristic, PolicyBase
from corral.envs.reference import Makers
from corral.envs.rps_v0.rules import MOVES, RpsRules

__all__ = ["AlwaysSame", "LastMove", "players_of"]

NOT_DRAWN = -1


class AlwaysSame(PolicyBase):
    """Plays the same move in every round of an episode.

    Args:
        move: "rock", "paper" or "scissors". None: the policy draws a move with ``rng`` in the first
            round of each episode, and keeps it in ``Decision.state``.
    """

    def __init__(self, move: str | None = None) -> None:
        self.move = None if move is None else MOVES.index(one_of("move", move, MOVES))

    def initial_state(self, num_envs: int) -> Array | None:
        return None if self.move is not None else np.full(num_envs, NOT_DRAWN, dtype=np.int64)

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        shape = np.shape(observation[MASK])[:-1]
        if self.move is not None:
            return Decision(np.full(shape, self.move))
        moves = np.reshape(NOT_DRAWN if state is None else state, (-1,))
        moves = np.broadcast_to(moves, (int(np.prod(shape)),))
        fresh = moves == NOT_DRAWN
        if fresh.any():
            if rng is None:
                raise ValueError("always-same draws a move: pass rng=, a numpy Generator")
            # One number for every row, so that the draw of a row is independent of other rows.
            moves = np.where(fresh, rng.integers(len(MOVES), size=len(moves)), moves)
        return Decision(moves.reshape(shape), moves)


class LastMove(Heuristic):
    """Plays the move ``ahead`` places after the opponent's last move: 0 copies it, 1 beats it.

    Plays rock in the first round.
    """

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        opponent = np.asarray(observation[OBSERVATION])[..., 1 + len(MOVES) :]  # [..., 4]
        last = opponent.argmax(axis=-1) - 1  # -1: none yet
        return np.where(last < 0, 0, (last + self.ahead) % len(MOVES))


def players_of(rules: RpsRules, agent: str) -> Makers:
    return {
        "always-same": lambda rules: AlwaysSame(),
        "copy-last": lambda rules: LastMove(0),
        "beat-last": lambda rules: LastMove(1),
    }
