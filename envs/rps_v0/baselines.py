"""Reference players of rps_v0, each of which can be beaten by who watches it.

| player | shows | the best reply, from the second round on |
|---|---|---|
| random | one of the three, uniformly | there is none: any play is worth 0 |
| always-same | one move, drawn in the first round, all episode | what beats it |
| copy-last | what the other showed last; rock at first | what beats one's own last move |
| beat-last | what beats the other's last move; rock at first | what beats that: see below |

Who showed rock meets paper from beat-last, and should show scissors next; after paper rock, after
scissors paper. Against copy-last and beat-last the first round can be won too, by paper.
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
    """Shows the same move in every round of an episode.

    Args:
        move: "rock", "paper" or "scissors"; None: drawn with the policy's ``rng`` in the first
            round of each episode, and is ``Decision.state``.
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
                raise ValueError("always-same draws its move: pass rng=, a numpy Generator")
            # One number for every row, so that what a row draws does not hang on the others.
            moves = np.where(fresh, rng.integers(len(MOVES), size=len(moves)), moves)
        return Decision(moves.reshape(shape), moves)


class LastMove(Heuristic):
    """Shows what is ``ahead`` moves after the other's last one: 0 copies it, 1 beats it.

    Before the first round it shows rock.
    """

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        other = np.asarray(observation[OBSERVATION])[..., 1 + len(MOVES) :]  # [..., 4]
        last = other.argmax(axis=-1) - 1  # -1: none yet
        return np.where(last < 0, 0, (last + self.ahead) % len(MOVES))


def players_of(rules: RpsRules, agent: str) -> Makers:
    return {
        "always-same": lambda rules: AlwaysSame(),
        "copy-last": lambda rules: LastMove(0),
        "beat-last": lambda rules: LastMove(1),
    }
