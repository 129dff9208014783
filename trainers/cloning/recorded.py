"""Recorded steps as an environment: what is played in it is what was recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.envs.batch import BatchStep, Copies, Finished
from corral.envs.core import Array, Observation, Rules, generator
from corral.envs.masks import MASK
from corral.errors import StepFault, StepsError
from corral.trainers.cloning.steps import Steps

__all__ = ["RecordedRules"]


class RecordedRules:
    """Rules whose copies go through recorded steps, whatever actions they are given.

    Each copy begins with an episode of its own; ``in_turn`` it goes on with those that are B
    further, so that all are played once; else it draws them.
    """

    def __init__(self, rules: Rules[Any], steps: Steps, *, in_turn: bool = False) -> None:
        self.rules, self.steps, self.in_turn = rules, steps, in_turn

    def __getattr__(self, name: str) -> Any:
        if name in ("rules", "steps"):  # before they are set, as copies are made
            raise AttributeError(name)
        return getattr(self.rules, name)

    def make_batch(self, num_envs: int, seed: int = 0, *, workers: int = 0) -> Any:
        """Return ``num_envs`` copies; ``workers`` are of no use here."""
        return RecordedBatch(self, num_envs, seed)


class RecordedBatch(Copies):
    """B copies that go through recorded episodes, with the interface of a Batch."""

    def __init__(self, rules: RecordedRules, num_envs: int, seed: int) -> None:
        self.rules, self.num_envs = rules, num_envs
        self.agents, self.steps = rules.agents, rules.steps
        lengths = self.steps.lengths
        self._first = np.cumsum(lengths) - lengths
        self._rngs = [generator(seed, "env", row) for row in range(num_envs)]
        self._episode = np.arange(num_envs) % len(lengths)
        self._at = np.zeros(num_envs, dtype=np.int64)
        self._returns = np.zeros((num_envs, len(self.agents)), dtype=np.float64)

    @property
    def _rows(self) -> Array:
        """Where each copy is in the recorded steps: int64 [B]."""
        return self._first[self._episode] + self._at

    def reset(self) -> dict[str, Observation]:
        """Begin; each copy at the start of an episode."""
        return self._observe()

    def step(self, actions: Any) -> BatchStep:
        """Go on to the next recorded step; ``actions`` are not played."""
        rows = self._rows
        reward, terminated, truncated = (
            np.stack([self.steps.arrays[f"{agent}/{name}"][rows] for agent in self.agents], axis=1)
            for name in ("reward", "terminated", "truncated")
        )
        self._returns += reward
        self._at += 1
        lengths = self.steps.lengths
        over = np.flatnonzero(self._at == lengths[self._episode])
        finished = None
        if len(over):
            # What followed the last step is not recorded: its own observation stands for it.
            finished = Finished(
                rows=over,
                observations=self._observed(rows[over]),
                global_state=self._state(rows[over]),
                returns=self._returns[over],
                lengths=self._at[over],
            )
            self._returns[over], self._at[over] = 0.0, 0
            count = len(lengths)
            if self.rules.in_turn:
                self._episode[over] = (self._episode[over] + self.num_envs) % count
            else:
                self._episode[over] = [self._rngs[row].integers(count) for row in over]
        observations = self._observe()
        return BatchStep(observations, reward, terminated, truncated, self.acting, {}, finished)

    def global_state(self) -> Array:
        """Return the recorded global state: float32 [B, G]. Raises StepsError where it is not."""
        if "state" not in self.steps.arrays:
            rule = (
                "is missing, and the critic observes it; give critic_input='observations', or "
                "record it"
            )
            raise StepsError([StepFault(self.steps.name, "state", rule)])
        return self._state(self._rows)

    def snapshot(self) -> dict[str, Any]:
        """Return all that decides what comes next."""
        arrays = {"episode": self._episode, "at": self._at, "returns": self._returns}
        return {
            "rules": f"recorded steps {self.steps.digest}",
            "arrays": {name: values.copy() for name, values in arrays.items()},
            "generators": [rng.bit_generator.state for rng in self._rngs],
        }

    def restore(self, snapshot: dict[str, Any]) -> dict[str, Observation]:
        """Go on from a ``snapshot``. Raises ValueError where it does not fit."""
        if snapshot.get("rules") != f"recorded steps {self.steps.digest}":
            raise ValueError(f"the snapshot is of other steps than {self.steps.name} holds now")
        arrays = snapshot["arrays"]
        own = {"episode": self._episode, "at": self._at, "returns": self._returns}
        for name, values in own.items():
            saved = np.asarray(arrays.get(name))
            if (saved.shape, saved.dtype) != (values.shape, values.dtype):
                raise ValueError(f"snapshot: {name} is {saved.dtype} {saved.shape}")
        lengths = self.steps.lengths
        episode, at = arrays["episode"], arrays["at"]
        inside = (episode >= 0) & (episode < len(lengths)) & (at >= 0)
        if not (inside.all() and (at < lengths[episode]).all()):
            raise ValueError("the snapshot is beyond the recorded steps")
        for name, values in own.items():
            values[...] = arrays[name]
        for rng, state in zip(self._rngs, snapshot["generators"], strict=True):
            rng.bit_generator.state = state
        return self._observe()

    def _observe(self) -> dict[str, Observation]:
        rows = self._rows
        masks = [self.steps.arrays[f"{agent}/{MASK}"][rows] for agent in self.agents]
        self.acting = np.stack([mask.any(axis=1) for mask in masks], axis=1)
        return self._observed(rows)

    def _observed(self, rows: Array) -> dict[str, Observation]:
        return {agent: self.steps.observation(agent, rows) for agent in self.agents}

    def _state(self, rows: Array) -> Array:
        state = self.steps.arrays.get("state")
        if state is None:
            return np.zeros((len(rows), 0), dtype=np.float32)
        return np.asarray(state[rows], dtype=np.float32)
