"""Mixes of players: each episode of an environment copy is played by one of several players."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.adapters.seats import Seat
from corral.envs.core import Array, Observation
from corral.envs.policy import Decision, Policy, PolicyBase, count_rows, put_tree, take_tree
from corral.trainers.opponents.draws import EpisodeDraws

__all__ = ["FIRST_ROW", "MixPolicy", "MixSeat"]

FIRST_ROW = 2**31
"""First row of ``EpisodeDraws`` for mixes; other draws use smaller rows."""


class MixPolicy(PolicyBase):
    """Plays Discrete actions of one agent as one of its ``players``, drawn by weight.

    Its state is {"who": int64 [B], the index of the player; "states": the state of each player}. An
    index of -1 means that no player is drawn yet. The policy then draws one with ``rng`` at its
    first decision of an episode; in training ``MixSeat`` draws before. A player only gets the rows
    that it plays.
    """

    def __init__(self, players: Mapping[str, Policy], weights: Mapping[str, float]) -> None:
        """``weights`` have the same names and sum to 1."""
        self.players = dict(players)
        self.weights = {name: weights[name] for name in players}
        self._bounds = np.cumsum(list(self.weights.values()))
        self._bounds[-1] = 1.0

    def drawn(self, uniform: Array) -> Array:
        """Return the player index for each number in [0, 1): int64 of the same shape."""
        return np.searchsorted(self._bounds, uniform, side="right")

    def initial_state(self, num_envs: int) -> Any:
        """Return the state before an episode, without drawn players."""
        states = tuple(player.initial_state(num_envs) for player in self.players.values())
        return {"who": np.full(num_envs, -1, dtype=np.int64), "states": states}

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Return actions of the drawn players, int64 [B]; or one action, with a state of B = 1."""
        if self.rows(observation) is None:
            decision = self.act(take_tree(observation, None), state, rng, deterministic)
            return Decision(decision.action[0], decision.state)
        count = count_rows(observation)
        state = self.initial_state(count) if state is None else state
        index, states = state["who"], list(state["states"])
        if (index < 0).any():
            if rng is None:
                raise ValueError("a mix of players draws a player: pass rng=, a numpy Generator")
            index = np.where(index < 0, self.drawn(rng.random(count)), index)
        actions = np.zeros(count, dtype=np.int64)
        for i, player in enumerate(self.players.values()):
            rows = np.flatnonzero(index == i)
            if not len(rows):
                continue
            obs, own = take_tree(observation, rows), take_tree(states[i], rows)
            decision = player.act(obs, own, rng, deterministic=deterministic)
            actions[rows] = decision.action
            states[i] = put_tree(states[i], rows, decision.state)
        return Decision(actions, {"who": index, "states": tuple(states)})


class MixSeat(Seat):
    """A seat of a mix in training. The player depends only on the row and number of the episode."""

    policy: MixPolicy

    def __init__(
        self,
        *args: Any,
        draws: EpisodeDraws,
        column: int,
        first_episode: int = 0,
        **kwargs: Any,
    ) -> None:
        """``column``: index of this seat's number in ``draws``. Other arguments: see ``Seat``."""
        super().__init__(*args, **kwargs)
        self._draws, self._column = draws, column
        num_envs = len(self.memory["who"])
        self.episodes = np.full(num_envs, first_episode, dtype=np.int64)  # [B] of each copy
        self._draw(np.arange(num_envs))

    def forget(self, rows: Array) -> None:
        """Start the next episode in ``rows`` [R] with a newly drawn player."""
        super().forget(rows)
        self.episodes[rows] += 1
        self._draw(rows)

    def _draw(self, rows: Array) -> None:
        numbers = self._draws(rows, self.episodes[rows])[:, self._column]
        self.memory["who"][rows] = self.policy.drawn(numbers)
