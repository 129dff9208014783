"""Environment that replays recorded steps."""

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
    """Rules with copies that replay recorded steps, independent of the actions.

    Each copy starts with a different episode. With ``in_turn`` it continues with every B-th
    episode, so that each episode is played once. Otherwise it draws episodes at random.
    """

    def __init__(self, rules: Rules[Any], steps: Steps, *, in_turn: bool = False) -> None:
        self.rules, self.steps, self.in_turn = rules, steps, in_turn

    def __getattr__(self, name: str) -> Any:
        if name in ("rules", "steps"):  # not set yet while a copy is made
            raise AttributeError(name)
        return getattr(self.rules, name)

    def make_batch(self, num_envs: int, seed: int = 0, *, workers: int = 0) -> Any:
        """Return a batch of ``num_envs`` copies; ``workers`` is ignored."""
        return RecordedBatch(self, num_envs, seed)


class RecordedBatch(Copies):
    """B copies that replay recorded episodes, with the interface of a Batch."""

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
        """Return the index of each copy's current step: int64 [B]."""
        return self._first[self._episode] + self._at

    def reset(self) -> dict[str, Observation]:
        """Return the observations at the start of each copy's episode."""
        return self._observe()

    def step(self, actions: Any) -> BatchStep:
        """Continue with the next recorded step; ``actions`` are ignored."""
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
            # The final observation is not recorded; the observation of the last step replaces it.
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
        """Return the recorded global state: float32 [B, G]. Raises StepsError if it is missing."""
        if "state" not in self.steps.arrays:
            rule = (
                "is missing, but the critic needs it. Set critic_input='observations', or record "
                "the state"
            )
            raise StepsError([StepFault(self.steps.name, "state", rule)])
        return self._state(self._rows)

    def snapshot(self) -> dict[str, Any]:
        """Return the complete state of the batch."""
        arrays = {"episode": self._episode, "at": self._at, "returns": self._returns}
        return {
            "rules": f"recorded steps {self.steps.digest}",
            "arrays": {name: values.copy() for name, values in arrays.items()},
            "generators": [rng.bit_generator.state for rng in self._rngs],
        }

    def restore(self, snapshot: dict[str, Any]) -> dict[str, Observation]:
        """Continue from a ``snapshot``. Raises ValueError if it does not fit."""
        if snapshot.get("rules") != f"recorded steps {self.steps.digest}":
            raise ValueError(f"the snapshot belongs to other steps than those in {self.steps.name}")
        arrays = snapshot["arrays"]
        current = {"episode": self._episode, "at": self._at, "returns": self._returns}
        for name, values in current.items():
            saved = np.asarray(arrays.get(name))
            if (saved.shape, saved.dtype) != (values.shape, values.dtype):
                raise ValueError(f"snapshot: {name} is {saved.dtype} {saved.shape}")
        lengths = self.steps.lengths
        episode, at = arrays["episode"], arrays["at"]
        inside = (episode >= 0) & (episode < len(lengths)) & (at >= 0)
        if not (inside.all() and (at < lengths[episode]).all()):
            raise ValueError("the snapshot refers to steps beyond the recorded ones")
        for name, values in current.items():
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
