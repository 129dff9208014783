"""The ladder of connect_four_v3: random play and one-ply play; and PettingZoo's own tutorial.

A rung knows the observation alone: planes [6, 7, 2] (own pieces, then the other's; row 0 is the
top) and the action_mask.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pettingzoo.utils
from pettingzoo.classic import connect_four_v3

from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, OBSERVATION, sample_legal
from corral.envs.policy import Heuristic, RandomPolicy

__all__ = ["RUNGS", "OnePly", "ThreePly", "Winning", "tutorial"]

SAVE_EVERY = 10_240
"""Env steps between two files of a model: five of its rollouts."""


# --- Rungs ---------------------------------------------------------------------------------------


class OnePly(Heuristic):
    """Wins at once where it can, else blocks a win of the other's next move, else plays by chance.

    Among several such moves it draws one.
    """

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return columns, int64 [R], for planes [R, 6, 7, 2]."""
        assert rng is not None
        planes, mask = np.asarray(observation[OBSERVATION]) != 0, np.asarray(observation[MASK])
        legal = mask != 0
        for side in (0, 1):
            wins = legal & winning(planes, side)
            found = wins.any(axis=1, keepdims=True)
            legal = np.where(found & (legal == (mask != 0)).all(axis=1, keepdims=True), wins, legal)
        return sample_legal(legal.astype(np.int8), rng)


class Winning(Heuristic):
    """Wins at once if possible, else plays at random: a search of one ply."""

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return columns, int64 [R], for planes [R, 6, 7, 2]."""
        assert rng is not None
        legal = np.asarray(observation[MASK]) != 0
        wins = legal & winning(np.asarray(observation[OBSERVATION]) != 0, 0)
        best = np.where(wins.any(axis=1, keepdims=True), wins, legal)
        return sample_legal(best.astype(np.int8), rng)


class ThreePly(Heuristic):
    """Searches three plies, and draws among the best moves: it wins now, or cannot be stopped from
    winning with its next move, or at least does not lose to the next reply."""

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return columns, int64 [R], for planes [R, 6, 7, 2]."""
        assert rng is not None
        planes, legal = (
            np.asarray(observation[OBSERVATION]) != 0,
            np.asarray(observation[MASK]) != 0,
        )
        wins = legal & winning(planes, 0)
        after = dropped(planes, 0)  # [R, 7, 6, 7, 2]
        loses = winning(after.reshape(-1, *planes.shape[1:]), 1).reshape(-1, 7, 7)
        replies = dropped(after.reshape(-1, *planes.shape[1:]), 1)  # [R * 7, 7, 6, 7, 2]
        again = winning(replies.reshape(-1, *planes.shape[1:]), 0).any(axis=1).reshape(-1, 7, 7)
        reply = ~after.any(axis=4)[:, :, 0]  # [R, 7, 7], columns that are not full
        loses = (loses & reply).any(axis=2)
        forced = (again | ~reply).all(axis=2) & reply.any(axis=2)
        value = np.where(wins, 2, np.where(loses, -1, np.where(forced, 1, 0)))
        value = np.where(legal, value, -2)
        return sample_legal((value == value.max(axis=1, keepdims=True)).astype(np.int8), rng)


def dropped(planes: Array, side: int) -> Array:
    """Return the boards [R, 7, 6, 7, 2] after a piece of ``side`` in each column.

    A full column changes nothing.
    """
    row = (~planes.any(axis=3)).sum(axis=1) - 1  # [R, 7]
    boards = np.repeat(planes[:, None], 7, axis=1)
    at, column = np.nonzero(row >= 0)
    boards[at, column, row[at, column], column, side] = True
    return boards


def winning(planes: Array, side: int) -> Array:
    """Return the columns, bool [R, 7], where a piece of ``side`` makes four in a row."""
    empty = ~planes.any(axis=3)  # [R, 6, 7]
    row = empty.sum(axis=1) - 1  # [R, 7], where a piece would land; -1: the column is full
    found = np.zeros(row.shape, dtype=bool)
    for column in range(row.shape[1]):
        own, rows = planes[..., side].copy(), np.flatnonzero(row[:, column] >= 0)
        own[rows, row[rows, column], column] = True
        found[rows, column] = four(own[rows])
    return found


def four(own: Array) -> Array:
    """Return which boards [R, 6, 7] hold four in a row, bool [R]."""
    lines = (
        own[:, :, :-3] & own[:, :, 1:-2] & own[:, :, 2:-1] & own[:, :, 3:],
        own[:, :-3] & own[:, 1:-2] & own[:, 2:-1] & own[:, 3:],
        own[:, :-3, :-3] & own[:, 1:-2, 1:-2] & own[:, 2:-1, 2:-1] & own[:, 3:, 3:],
        own[:, 3:, :-3] & own[:, 2:-1, 1:-2] & own[:, 1:-2, 2:-1] & own[:, :-3, 3:],
    )
    return np.logical_or.reduce([line.any(axis=(1, 2)) for line in lines])


RUNGS = {"random": RandomPolicy(), "one-ply": OnePly()}


# --- "SB3: Action Masked PPO for Connect Four", of PettingZoo's documentation ---------------------


class OneAgent(pettingzoo.utils.BaseWrapper, gymnasium.Env):  # type: ignore[misc, type-arg]
    """Both players as one agent, as the tutorial does it: what it observes is for whoever is next,
    what it earns is for whoever moved.

    So the loser's -1 reaches no move: the episode ends with the winner's. And since one player's
    moves follow the other's in one trajectory, the winner's +1 is passed back to both.
    """

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed, options)
        first = self.possible_agents[0]
        self.observation_space = super().observation_space(first)["observation"]
        self.action_space = super().action_space(first)
        return self.observe(self.agent_selection), {}

    def step(self, action: int) -> Any:
        mover = self.agent_selection
        super().step(action)
        return (
            self.observe(self.agent_selection),
            self._cumulative_rewards[mover],
            self.terminations[mover],
            self.truncations[mover],
            self.infos[mover],
        )

    def observe(self, agent: str) -> Any:
        return super().observe(agent)["observation"]

    def action_mask(self) -> Any:
        return super().observe(self.agent_selection)["action_mask"]


def tutorial(seed: int, steps: int, folder: Path, until: Any) -> dict[int, Path]:
    """Train MaskablePPO with the tutorial's settings, which are its defaults: env steps -> file.

    It goes on from its last file; between two files ``until()`` may end it.
    """
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
    from sb3_contrib.common.wrappers import ActionMasker

    folder.mkdir(parents=True, exist_ok=True)
    files = {int(path.stem): path for path in folder.glob("*.zip")}
    wrapped = OneAgent(connect_four_v3.env())
    wrapped.reset(seed=seed)
    env = ActionMasker(wrapped, OneAgent.action_mask)
    done = max(files, default=0)
    if done:
        model = MaskablePPO.load(files[done], env=env, device="cpu")
        model.set_random_seed(seed + done)
    else:
        model = MaskablePPO(MaskableActorCriticPolicy, env, device="cpu")
        model.set_random_seed(seed)
    while done < steps and not until():
        model.learn(min(SAVE_EVERY, steps - done), reset_num_timesteps=False)
        done = model.num_timesteps
        model.save(folder / "saving")
        files[done] = (folder / "saving.zip").replace(folder / f"{done}.zip")
    return files
