"""Mixes at play: each episode of an env copy is played by one of several players."""

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
"""Where the rows of ``EpisodeDraws`` begin for mixes; what is drawn besides takes those before."""


class MixPolicy(PolicyBase):
    """Plays Discrete actions of one agent as one of its ``players``, drawn by weight.

    Its state is {"who": int64 [B], which of the players; "states": the state of each}. Where nobody
    was drawn yet (-1), it draws with ``rng`` when it is first asked in an episode; in training
    ``MixSeat`` draws before. Only the rows that a player plays are shown to it.
    """

    def __init__(self, players: Mapping[str, Policy], weights: Mapping[str, float]) -> None:
        """``weights`` of the same names sum to 1."""
        self.players = dict(players)
        self.weights = {name: weights[name] for name in players}
        self._bounds = np.cumsum(list(self.weights.values()))
        self._bounds[-1] = 1.0

    def drawn(self, uniform: Array) -> Array:
        """Return which player numbers in [0, 1) draw: int64 of their shape."""
        return np.searchsorted(self._bounds, uniform, side="right")

    def initial_state(self, num_envs: int) -> Any:
        """Return the state before an episode: nobody is drawn."""
        states = tuple(each.initial_state(num_envs) for each in self.players.values())
        return {"who": np.full(num_envs, -1, dtype=np.int64), "states": states}

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Return the actions of those who play, int64 [B]; or one action, with a state of B = 1."""
        if self.rows(observation) is None:
            found = self.act(take_tree(observation, None), state, rng, deterministic)
            return Decision(found.action[0], found.state)
        count = count_rows(observation)
        state = self.initial_state(count) if state is None else state
        who, states = state["who"], list(state["states"])
        if (who < 0).any():
            if rng is None:
                raise ValueError("a mix of players needs rng=, a numpy Generator")
            who = np.where(who < 0, self.drawn(rng.random(count)), who)
        actions = np.zeros(count, dtype=np.int64)
        for i, player in enumerate(self.players.values()):
            rows = np.flatnonzero(who == i)
            if not len(rows):
                continue
            obs, own = take_tree(observation, rows), take_tree(states[i], rows)
            decision = player.act(obs, own, rng, deterministic=deterministic)
            actions[rows] = decision.action
            states[i] = put_tree(states[i], rows, decision.state)
        return Decision(actions, {"who": who, "states": tuple(states)})


class MixSeat(Seat):
    """A seat of a mix in training: who plays an episode is drawn by its row and number alone."""

    policy: MixPolicy

    def __init__(
        self,
        *args: Any,
        draws: EpisodeDraws,
        column: int,
        first_episode: int = 0,
        **kwargs: Any,
    ) -> None:
        """``column``: which of the numbers of ``draws`` is this seat's; others: see ``Seat``."""
        super().__init__(*args, **kwargs)
        self._draws, self._column = draws, column
        num_envs = len(self.memory["who"])
        self.episodes = np.full(num_envs, first_episode, dtype=np.int64)  # [B] of each env copy
        self._draw(np.arange(num_envs))

    def forget(self, rows: Array) -> None:
        """Begin the next episode in ``rows`` [R], with whoever is drawn for it."""
        super().forget(rows)
        self.episodes[rows] += 1
        self._draw(rows)

    def _draw(self, rows: Array) -> None:
        numbers = self._draws(rows, self.episodes[rows])[:, self._column]
        self.memory["who"][rows] = self.policy.drawn(numbers)
