"""A batch wrapper that copies all its inputs and outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.envs.core import Array

__all__ = ["Witness", "flat_tree", "join_trees"]


class Witness:
    """Wraps a trainer's batch and keeps copies for the current rollout.

    ``observations`` and ``who_acts`` hold steps 0 .. T; ``actions`` and ``steps`` hold the T steps
    between them.
    """

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        self.observations: list[dict[str, Any]] = []
        self.who_acts: list[Array] = []  # bool [B, N] each
        self.states: list[Array] = []  # the global state, float32 [B, G] each
        self._returns = np.zeros((batch.num_envs, len(batch.agents)))
        self._known = np.zeros(batch.num_envs, dtype=bool)  # recorded from the episode's start
        self.begin()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)

    def begin(self) -> None:
        """Drop all records except the latest observations."""
        self.observations = self.observations[-1:]
        self.who_acts, self.states = self.who_acts[-1:], self.states[-1:]
        self.actions: list[Any] = []
        self.steps: list[Any] = []
        self.ended: list[Array] = []  # float64 [N] returns of an episode; NaN: incomplete

    def reset(self, *seed: Any) -> Any:
        observations = self.batch.reset(*seed)
        self._returns[...], self._known[...] = 0.0, True
        self.see(observations)
        return observations

    def restore(self, snapshot: Any) -> Any:
        observations = self.batch.restore(snapshot)
        self._known[...] = False
        self.see(observations)
        return observations

    def step(self, actions: Any) -> Any:
        self.actions.append(_copied(actions))
        step = self.batch.step(actions)
        kept = {
            name: np.array(getattr(step, name)) for name in ("reward", "terminated", "truncated")
        }
        info = {key: np.array(values) for key, values in step.info.items()}
        self.steps.append(dataclasses.replace(step, **kept, info=info))
        self._returns += kept["reward"]
        if step.finished is not None:
            for row in step.finished.rows.tolist():
                whole = self._returns[row] if self._known[row] else np.nan * self._returns[row]
                self.ended.append(whole.copy())
                self._returns[row], self._known[row] = 0.0, True
        self.see(step.observations)
        return step

    def see(self, observations: Mapping[str, Any]) -> None:
        """Record the current observations, acting agents and global state."""
        self.observations.append(
            {agent: _copied(observation) for agent, observation in observations.items()}
        )
        self.who_acts.append(np.array(self.batch.acting))
        self.states.append(np.array(self.batch.global_state()))


def _copied(tree: Any) -> Any:
    """Return a copy of all arrays of an observation or of actions."""
    if isinstance(tree, Mapping):
        return {key: _copied(part) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(_copied(part) for part in tree)
    return np.array(tree)


def join_trees(trees: list[Any]) -> Any:
    """Concatenate trees of arrays [R, ...] with equal structure into one tree."""
    if isinstance(trees[0], Mapping):
        return {key: join_trees([tree[key] for tree in trees]) for key in trees[0]}
    if isinstance(trees[0], tuple | list):
        return tuple(join_trees(list(parts)) for parts in zip(*trees, strict=True))
    return np.concatenate([np.asarray(tree) for tree in trees])


def flat_tree(tree: Any) -> Array:
    """Return all numbers of a tree of arrays [R, ...] as float64 [R, numbers]."""
    if isinstance(tree, Mapping):
        parts = [flat_tree(tree[key]) for key in sorted(tree)]
    elif isinstance(tree, tuple | list):
        parts = [flat_tree(part) for part in tree]
    else:
        array = np.asarray(tree)
        return array.reshape(len(array), -1).astype(np.float64)
    return np.concatenate(parts, axis=1)
