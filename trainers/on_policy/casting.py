"""Frozen actors that play seats in the rollouts of in-house trainers.

For seats of frozen actors ``GroupBuffer.learned`` is False: their decisions are not part of losses,
metrics and value targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from corral.envs.core import Array, Observation
from corral.envs.policy import take_tree
from corral.trainers.capabilities import Seats
from corral.trainers.content import require_arrays, shapes_of
from corral.trainers.on_policy.buffer import GroupBuffer, ObservationBuffer
from corral.trainers.on_policy.frozen import FrozenActors
from corral.trainers.on_policy.players import LearnedPlayer
from corral.trainers.rng import torch_generator
from corral.trainers.selfplay.cast import LEARNS, STREAM, Cast

__all__ = ["CastPlayer", "Casting"]


class Casting(Cast):
    """The ``Cast`` of an in-house trainer, which plays the frozen actors of its policies."""

    def __init__(self, trainer: Any, seats: Seats) -> None:
        """Raises the errors of ``Pool.also`` for unknown players."""
        if seats.pool is None:
            raise ValueError("a casting needs a pool of snapshots")
        trained = {name: learner for name, learner in trainer.learners.items() if learner.trained}
        self.actors = {name: FrozenActors(learner) for name, learner in trained.items()}
        super().__init__(
            seats.pool,
            trainer.rules,
            num_envs=trainer.settings.num_envs,
            seed=trainer.seed,
            policy_of={a: name for name, learner in trained.items() for a in learner.group.agents},
            frozen=self.actors,
            runs=seats.runs,
            clock=lambda: int(trainer.env_steps),
        )
        self.rng = torch_generator(trainer.seed, "opponent", STREAM - 1)
        self.hidden = {
            name: np.zeros((self.num_envs, len(self.agents), learner.actor.memory), np.float32)
            for name, learner in trained.items()
            if learner.actor.memory
        }

    # --- Playing ---------------------------------------------------------------------------------

    def columns(self, buffer: ObservationBuffer, env_rows: Any = slice(None)) -> Array:
        """Return the cast of a buffer's agents in ``env_rows``: int64 [R, P]."""
        cast: Array = self.cast[env_rows][:, buffer.group.index]
        return cast

    def play(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        """Let frozen and other cast players act at index ``at`` of a buffer.

        With ``env_rows`` int64 [R], the observations belong to these copies, and the actions are
        not played: states do not change.
        """
        rows = np.arange(self.num_envs) if env_rows is None else env_rows
        cast = self.columns(buffer, rows)
        acting = buffer.acting[at]
        frozen = acting & (cast >= 0)
        if frozen.any():
            self._play_frozen(buffer, at, frozen, cast, rows, moves=env_rows is None)
        if not self.also or not (acting & (cast < LEARNS)).any():
            return
        for (name, agent), seat in self.others.seats().items():
            if agent not in buffer.group.agents:
                continue
            j = buffer.group.agents.index(agent)
            number = -2 - self.others.names.index(name)
            indices = np.flatnonzero(acting[:, j] & (cast[:, j] == number))
            if len(indices) and env_rows is None:
                buffer.action[at][indices, j] = seat.decide(observations[agent], indices).action
            elif len(indices):
                state = take_tree(seat.memory, rows[indices])
                decision = seat.policy.act(take_tree(observations[agent], indices), state, seat.rng)
                buffer.action[at][indices, j] = decision.action

    def _play_frozen(
        self, buffer: Any, at: Any, frozen: Array, cast: Array, rows: Array, moves: bool
    ) -> None:
        group = buffer.group
        actors = self.actors[group.policy]
        columns = np.flatnonzero(frozen.reshape(-1))
        parts, mask = buffer.tensors(at, columns, actors.learner.device)
        row, agent = rows[columns // len(group.agents)], group.index[columns % len(group.agents)]
        hidden = self.hidden.get(group.policy)
        before = np.zeros((len(row), 0), np.float32) if hidden is None else hidden[row, agent]
        numbers = cast.reshape(-1)[columns]
        action, after = actors.sample(parts, mask, numbers, before, self.rng)
        if hidden is not None and moves:
            hidden[row, agent] = after
        target = buffer.action[at]
        target.reshape(-1, *target.shape[2:])[columns] = action.cpu().numpy()

    def begin_rows(self, env_rows: Array) -> None:
        for hidden in self.hidden.values():
            hidden[env_rows] = 0
        super().begin_rows(env_rows)

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
        document, files = super().save()
        files["casting"]["chance"] = self.rng.get_state().numpy().copy()
        return document, files

    def load(
        self, document: Mapping[str, Any], files: Mapping[str, dict[str, Array]], *, exact: bool
    ) -> None:
        rest = {key: values for key, values in files["casting"].items() if key != "chance"}
        chance = {key: values for key, values in files["casting"].items() if key == "chance"}
        require_arrays("casting", chance, shapes_of({"chance": self.rng.get_state().numpy()}))
        self.rng.set_state(torch.from_numpy(chance["chance"].copy()))
        super().load(document, {**files, "casting": rest}, exact=exact)

    def _arrays(self) -> dict[str, Array]:
        return super()._arrays() | {
            f"memory.{name}": values for name, values in self.hidden.items()
        }


class CastPlayer:
    """A learner's player with seats that other players take in some episodes: ``LearnedPlayer``."""

    def __init__(self, player: LearnedPlayer, casting: Casting) -> None:
        self.player, self.casting = player, casting

    def __getattr__(self, name: str) -> Any:
        return getattr(self.player, name)

    def act(self, buffer: GroupBuffer, t: int, observations: Mapping[str, Observation]) -> None:
        buffer.store_learned(t, self.casting.columns(buffer) == LEARNS)
        self.player.act(buffer, t, observations)
        self.casting.play(buffer, t, observations)

    def sample_unplayed(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        self.player.sample_unplayed(buffer, at, observations, env_rows)
        rows = np.arange(self.casting.num_envs) if env_rows is None else env_rows
        self.casting.play(buffer, at, observations, rows)

    def reset(self, env_rows: Array) -> None:
        self.player.reset(env_rows)
        self.casting.begin_rows(env_rows)
