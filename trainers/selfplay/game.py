"""Environments with opponents, snapshots and episode statistics, for a custom trainer.

    self.game = Game(self, seats, policies, policies_to_train, num_envs, seed)
    self.game.begin()
    ...
    played = self.game.step(actions)  # fills in the actions of opponents and snapshots
    # played.learned [B, N] is True for actions of a learning policy: learn only from these.

A snapshot is a dict of named arrays: the result of ``trainer.weights_of(policy)`` when it was
taken. In-house trainers evaluate many networks in one pass, see
``corral.trainers.on_policy.casting``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from corral.envs.batch import BatchStep, make_batch
from corral.envs.core import Array, Observation, Rules, generator
from corral.envs.episode_stats import Episode, EpisodeStats
from corral.envs.policy import Policy, take_tree
from corral.errors import CheckpointError
from corral.files import sha256
from corral.trainers.capabilities import Seats
from corral.trainers.content import checkpoint_of
from corral.trainers.opponents.playing import Opponents
from corral.trainers.runs.checkpoint_format import encode_arrays
from corral.trainers.selfplay.cast import LEARNS, STREAM, Cast
from corral.trainers.selfplay.keeper import PoolKeeper

__all__ = ["FrozenPolicies", "Game", "Played", "SnapshotTrainer"]


class SnapshotTrainer(Protocol):
    """The methods and attributes of a trainer that ``Game`` uses."""

    rules: Rules[Any]
    env_steps: int

    def weights_of(self, policy: str) -> dict[str, Array]:
        """Return copies of the arrays of a policy."""
        ...

    def policy_of(self, weights: Mapping[str, Array], agent: str) -> Policy:
        """Return the policy of an agent from these arrays. It has no recurrent state."""
        ...


@dataclass(eq=False)
class _Snapshot:
    name: str
    env_steps: int
    weights: dict[str, Array]
    drawn: bool = True

    def __post_init__(self) -> None:
        self.digest = sha256(self.encoded())

    def encoded(self) -> bytes:
        return encode_arrays(f"{self.name}.safetensors", self.weights)


class FrozenPolicies:
    """The snapshots of one policy; implements ``corral.trainers.selfplay.cast.Frozen``."""

    stacks = False

    def __init__(self, trainer: SnapshotTrainer, policy: str) -> None:
        self.trainer, self.name = trainer, policy
        self.snapshots: list[_Snapshot] = []

    def add(self, env_steps: int) -> None:
        weights = self.trainer.weights_of(self.name)
        self.snapshots.append(_Snapshot(f"{self.name}@{env_steps}", env_steps, weights))

    def remove(self, chosen: Sequence[int]) -> None:
        self.snapshots = [one for i, one in enumerate(self.snapshots) if i not in chosen]

    def policy(self, number: int, agent: str) -> Policy:
        return self.trainer.policy_of(self.snapshots[number].weights, agent)

    def save(self) -> tuple[list[list[Any]], dict[str, Array]]:
        listed = [[one.env_steps, one.digest, one.drawn] for one in self.snapshots]
        arrays = {
            f"{snapshot.env_steps}.{key}": array
            for snapshot in self.snapshots
            for key, array in snapshot.weights.items()
        }
        return listed, arrays

    def load(self, document: Any, arrays: Mapping[str, Array]) -> None:
        snapshots = []
        for env_steps, digest, drawn in document:
            start = f"{int(env_steps)}."
            weights = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
            one = _Snapshot(f"{self.name}@{int(env_steps)}", int(env_steps), weights, bool(drawn))
            if one.digest != digest:
                raise CheckpointError(f"pool_{self.name}: the content of {one.name} has changed")
            snapshots.append(one)
        self.snapshots = snapshots


@dataclass(frozen=True)
class Played:
    """A step of B environments with N agents."""

    step: BatchStep
    learned: Array  # bool [B, N] True if a learning policy chose the action
    episodes: list[Episode]  # episodes that ended in this step, with their players


class Game:
    """B environments with opponents and snapshots in their seats, saved and loaded as a whole."""

    def __init__(
        self,
        trainer: SnapshotTrainer,
        seats: Seats,
        policies: Mapping[str, str],
        policies_to_train: Sequence[str],
        num_envs: int,
        seed: int,
    ) -> None:
        """``policies``: agent -> its policy. Raises the errors of ``Opponents`` and ``Cast``."""
        rules = trainer.rules
        self.agents = tuple(rules.agents)
        self.learns = np.array([policies.get(agent) in policies_to_train for agent in self.agents])
        self.opponents = Opponents(
            rules, seats.opponents, num_envs=num_envs, seed=seed, pins=seats.runs
        )
        self.batch: Any = make_batch(rules, num_envs, seed)
        self._wraps: list[Callable[[Any], Any]] = []  # applied at the first use
        self.observations: dict[str, Observation] = {}  # for the next decision, [B, ...]
        self.stats = EpisodeStats(rules.agents)
        self.rng = generator(seed, "opponent", STREAM - 1)
        self.cast: Cast | None = None
        if seats.pool is not None:
            self.cast = Cast(
                seats.pool,
                rules,
                num_envs=num_envs,
                seed=seed,
                policy_of={a: name for a, name in policies.items() if name in policies_to_train},
                frozen={name: FrozenPolicies(trainer, name) for name in policies_to_train},
                runs=seats.runs,
                clock=lambda: trainer.env_steps,
            )

    def callbacks(self) -> list[Any]:
        """Return the callbacks for the trainer's ``callbacks``."""
        return [] if self.cast is None else [PoolKeeper(self.cast)]

    def wrap_batches(self, wrap: Callable[[Any], Any]) -> bool:
        """Implement the trainer's ``wrap_batches``."""
        self._wraps.append(wrap)
        return True

    def _wrap(self) -> None:
        for wrap in self._wraps:
            self.batch = wrap(self.batch)
        self._wraps = []

    def begin(self) -> None:
        """Start episodes, unless they were loaded, and load the runs of opponents."""
        self._wrap()
        self.opponents.begin()
        if not self.observations:
            self.observations = self.batch.reset()
        if self.cast is not None:
            self.cast.begin()

    def end_update(self) -> dict[str, float]:
        """Take snapshots if they are due, and return metrics of the pool."""
        if self.cast is None:
            return {}
        self.cast.take()
        return self.cast.figures()

    def step(self, actions: Array) -> Played:
        """Step with ``actions`` int64 [B, N] of the trainer's policies; other players act, too."""
        acting = self.batch.acting
        actions, learned = actions.copy(), acting & self.learns
        for i, agent in enumerate(self.agents):
            observation = self.observations[agent]
            if agent in self.opponents:
                actions[:, i] = self.opponents.act(agent, observation, acting[:, i])
            elif self.cast is not None and agent in self.cast.policy_of:
                self._act_cast(self.cast, agent, observation, acting[:, i], actions[:, i])
                learned[:, i] &= self.cast.cast[:, i] == LEARNS
        step = self.batch.step(actions)
        self.observations = step.observations
        ended = self.stats.add(step)
        if step.finished is not None:
            for agent in self.opponents.policies:
                self.opponents.reset(agent, step.finished.rows)
            if self.cast is not None:
                self.cast.begin_rows(step.finished.rows)
        episodes = list(ended) if self.cast is None else self.cast.ended(ended)
        return Played(step, learned, episodes)

    def _act_cast(
        self, cast: Cast, agent: str, observation: Observation, acting: Array, actions: Array
    ) -> None:
        """Write the actions [B] of the players assigned to ``agent``."""
        numbers = cast.cast[:, self.agents.index(agent)]
        for number in np.unique(numbers[acting & (numbers != LEARNS)]).tolist():
            rows = np.flatnonzero(acting & (numbers == number))
            if number < LEARNS:
                seat = cast.others.seats()[cast.others.names[-2 - number], agent]
                actions[rows] = seat.act(observation, rows)
                continue
            policy = cast.frozen[cast.policy_of[agent]].policy(number, agent)
            actions[rows] = policy.act(take_tree(observation, rows), None, self.rng).action

    def save(self) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
        """Return a JSON value and arrays by file. Calls ``begin`` first."""
        self.begin()
        snapshot = dict(self.batch.snapshot())
        files = {"environment": snapshot.pop("arrays")}
        files["accounts"] = {key: sums.copy() for key, sums in self.stats.sums.items()}
        document = {"environment": snapshot, "rng": self.rng.bit_generator.state}
        document["opponents"], files["opponents"] = self.opponents.save()
        if self.cast is not None:
            document["pool"], pool_files = self.cast.save()
            files |= pool_files
        return document, files

    def load(self, document: Mapping[str, Any], files: Mapping[str, dict[str, Array]]) -> None:
        """Continue from the result of ``save``. Raises CheckpointError if it does not fit."""
        self._wrap()
        with checkpoint_of("game"):
            self.opponents.load(document["opponents"], files["opponents"])
            self.rng.bit_generator.state = document["rng"]
            self.stats.sums = {key: sums.copy() for key, sums in files["accounts"].items()}
            snapshot = {**document["environment"], "arrays": files["environment"]}
            self.observations = self.batch.restore(snapshot)
            if self.cast is not None:
                self.cast.load(document["pool"], files, exact=True)
