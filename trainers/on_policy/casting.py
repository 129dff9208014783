"""Seats that frozen actors play in the rollouts of in-house trainers.

Where somebody is cast, ``GroupBuffer.learned`` is False: nothing of it is in a loss, a metric or a
value that is learned.
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
        """Raises what ``Pool.also`` raises where it names players that are not there."""
        if seats.pool is None:
            raise ValueError("a casting needs a pool of snapshots")
        trained = {name: each for name, each in trainer.learners.items() if each.trained}
        self.actors = {name: FrozenActors(learner) for name, learner in trained.items()}
        super().__init__(
            seats.pool,
            trainer.rules,
            num_envs=trainer.settings.num_envs,
            seed=trainer.seed,
            policy_of={a: name for name, each in trained.items() for a in each.group.agents},
            frozen=self.actors,
            runs=seats.runs,
            clock=lambda: int(trainer.env_steps),
        )
        self.rng = torch_generator(trainer.seed, "opponent", STREAM - 1)
        self.hidden = {
            name: np.zeros((self.num_envs, len(self.agents), each.actor.memory), np.float32)
            for name, each in trained.items()
            if each.actor.memory
        }

    # --- Playing ---------------------------------------------------------------------------------

    def columns(self, buffer: ObservationBuffer, env_rows: Any = slice(None)) -> Array:
        """Return who is cast for the agents of a buffer, in ``env_rows``: int64 [R, P]."""
        found: Array = self.cast[env_rows][:, buffer.group.index]
        return found

    def play(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        """Let those that are cast act at moment ``at`` of a buffer.

        ``env_rows`` int64 [R]: the moment is not played on, and of these rows; no state changes.
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
            mine = np.flatnonzero(acting[:, j] & (cast[:, j] == number))
            if len(mine) and env_rows is None:
                buffer.action[at][mine, j] = seat.decide(observations[agent], mine).action
            elif len(mine):
                state = take_tree(seat.memory, rows[mine])
                decision = seat.policy.act(take_tree(observations[agent], mine), state, seat.rng)
                buffer.action[at][mine, j] = decision.action

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
        own = {key: each for key, each in files["casting"].items() if key != "chance"}
        chance = {key: each for key, each in files["casting"].items() if key == "chance"}
        require_arrays("casting", chance, shapes_of({"chance": self.rng.get_state().numpy()}))
        self.rng.set_state(torch.from_numpy(chance["chance"].copy()))
        super().load(document, {**files, "casting": own}, exact=exact)

    def _arrays(self) -> dict[str, Array]:
        return super()._arrays() | {f"memory.{name}": each for name, each in self.hidden.items()}


class CastPlayer:
    """A learner's player whose seats are others' in some episodes: see ``LearnedPlayer``."""

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
