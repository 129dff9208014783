"""Playing one agent in many copies: a policy, what it remembers, and its random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, Observation
from corral.envs.masks import sample_legal
from corral.envs.policy import Policy
from corral.errors import ActionError

__all__ = ["Seat", "count_rows", "put_tree", "random_actions", "take_tree"]


class Seat:
    """A policy that plays one agent in B copies, with its memory and its random numbers.

    The policy is asked for the rows that act, and for no others: what it remembers of the rest
    stays as it is.
    """

    def __init__(
        self,
        agent: str,
        policy: Policy,
        *,
        num_envs: int,
        actions: spaces.Space[Any],
        rng: np.random.Generator,
        deterministic: bool,
    ) -> None:
        self.agent = agent
        self.policy = policy
        self.actions = actions
        self.rng = rng
        self.deterministic = deterministic
        self.memory = policy.initial_state(num_envs)

    def act(self, observation: Observation, rows: Array | None = None) -> Array:
        """Actions [R, ...] for the given rows of ``observation`` [B, ...]; None: for all.

        Raises ActionError where they are of another shape than R actions, and for Discrete actions
        where they are anything but whole numbers of 0 .. n - 1.
        """
        if rows is None:
            seen, memory = observation, self.memory
        else:
            seen, memory = take_tree(observation, rows), take_tree(self.memory, rows)
        decision = self.policy.act(seen, memory, self.rng, deterministic=self.deterministic)
        if rows is None:
            self.memory = decision.state
        else:
            self.memory = put_tree(self.memory, rows, decision.state)
        return self._checked(decision.action, count_rows(seen))

    def forget(self, rows: Array) -> None:
        """Begin anew in the given rows: their episodes are over."""
        self.memory = put_tree(self.memory, rows, self.policy.initial_state(len(rows)))

    def _checked(self, action: Any, count: int) -> Array:
        given = np.asarray(action)
        shape = (count, *(self.actions.shape or ()))
        kinds = "iu" if isinstance(self.actions, spaces.Discrete | spaces.MultiDiscrete) else "fiu"
        if given.dtype.kind not in kinds or given.shape != shape:
            what = "integers" if kinds == "iu" else "numbers"
            raise ActionError(
                f"{self.agent}: the policy's actions are {given.dtype} {given.shape}; "
                f"give {what} of shape {shape}"
            )
        if isinstance(self.actions, spaces.Discrete) and count:
            wrong = given[(given < 0) | (given >= self.actions.n)]
            if len(wrong):
                raise ActionError(
                    f"{self.agent}: the policy's action {wrong[0]} is out of range; "
                    f"give 0..{self.actions.n - 1}"
                )
        return given


def count_rows(observation: Any) -> int:
    """R of an observation [R, ...]."""
    if isinstance(observation, Mapping):
        mask = observation.get("action_mask")
        return count_rows(next(iter(observation.values())) if mask is None else mask)
    return len(observation)


# --- Trees: None, arrays [B, ...], and tuples, lists and dicts of trees --------------------------


def take_tree(tree: Any, rows: Array) -> Any:
    """The given rows of every array of an observation or of a policy's state."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: take_tree(part, rows) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        return _like(tree, [take_tree(part, rows) for part in tree])
    return np.asarray(tree)[rows]


def put_tree(tree: Any, rows: Array, source: Any) -> Any:
    """``tree`` with the given rows replaced by those of ``source``; neither is changed.

    Raises ValueError where the two are not built alike.
    """
    if tree is None and source is None:
        return None
    if isinstance(tree, Mapping) and isinstance(source, Mapping) and set(tree) == set(source):
        return {key: put_tree(part, rows, source[key]) for key, part in tree.items()}
    if isinstance(tree, tuple | list) and isinstance(source, tuple | list):
        parts = zip(tree, source, strict=True)
        return _like(tree, [put_tree(part, rows, new) for part, new in parts])
    if tree is None or source is None or isinstance(tree, Mapping | tuple | list):
        raise ValueError(
            f"a policy's state was {type(tree).__name__} and became {type(source).__name__}; give "
            "what initial_state gives: None, or arrays [B, ...] in tuples, lists or dicts"
        )
    old, new = np.asarray(tree), np.asarray(source)
    filled = old.astype(np.result_type(old, new))  # a copy
    filled[rows] = new
    return filled


def _like(tree: tuple[Any, ...] | list[Any], parts: list[Any]) -> Any:
    """``parts`` as a tree of the same kind; a named tuple takes them one by one."""
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def random_actions(
    space: Any, mask: Array | None, num_envs: int, rng: np.random.Generator
) -> Array:
    """Return random actions [B, ...] of one agent, legal ones where it has a mask [B, A].

    Where a Box has no bound, they are drawn within 1 of 0, or of the bound that it has.
    """
    shape = (num_envs, *space.shape)
    if mask is not None:
        return sample_legal(mask, rng)
    if isinstance(space, spaces.MultiDiscrete):
        numbers: Array = rng.integers(space.nvec, size=shape) + space.start
        return numbers.astype(space.dtype)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    lower = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 1, -1.0))
    upper = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 1, 1.0))
    if space.dtype.kind in "iu":
        whole: Array = np.floor(rng.random(shape) * (upper - lower + 1)) + lower
        return whole.astype(space.dtype)
    drawn: Array = rng.random(shape) * (upper - lower) + lower
    return np.asarray(np.clip(drawn.astype(space.dtype), space.low, space.high))
