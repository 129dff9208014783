"""What both ways to Stable-Baselines3 share: like agents of many copies as columns of one VecEnv.

    column = copy * N + agent                     C = B * N columns

Observations are one level of Dict: see ``corral.adapters.spaces``.

``step`` begins the next episode in the step that ends one. Then, and only then, ``infos[c]`` holds

| key | value |
|---|---|
| ``terminal_observation`` | the last observation of the episode that ended |
| ``TimeLimit.truncated`` | whether it was cut by the time limit: the value goes on |
| ``episode`` | ``r``: the agent's return; ``l``: length; ``t``: seconds since the VecEnv was made |
| ``kpis`` | the sums, over the episode, of what the environment's info says of the agent |
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from corral.adapters.spaces import ColumnCodec
from corral.envs.core import Array
from corral.errors import ActionError, ResetNeededError

__all__ = ["ColumnVecEnv"]

Indices = int | Iterable[int] | None


# --- The VecEnv ----------------------------------------------------------------------------------


class ColumnVecEnv(VecEnv):
    """Columns of a ColumnCodec, for ``num_envs`` copies; subclasses move the copies."""

    def __init__(
        self, layout: ColumnCodec, num_envs: int, seed: int | None, render_mode: str | None
    ):
        self.layout = layout
        self.copies = num_envs  # VecEnv's own num_envs counts columns
        self._next_seed = seed  # for the next reset; None: go on with the generators
        self._masks: Array | None = None  # bool [C, A] of the present observations
        self._actions: Array | None = None
        self._made = time.monotonic()
        self.render_mode = render_mode  # VecEnv asks for it by get_attr
        columns = num_envs * len(layout.agents)
        super().__init__(columns, layout.observation_space, layout.action_space)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Take ``seed`` for the next reset; copy r then draws from its own stream r.

        None: an unpredictable seed. Returns the seed once per column: a copy's stream comes of the
        seed and the copy's number, so that no two copies share one.
        """
        if seed is None:
            seed = int(np.random.default_rng().integers(2**32))
        self._next_seed = seed
        return [seed] * self.num_envs

    @abstractmethod
    def reset(self) -> dict[str, Array]:
        """Begin an episode in every copy; entries [C, ...]."""

    def step_async(self, actions: Array) -> None:
        """Take one action per column, int [C]. Raises ActionError, ResetNeededError."""
        if self._masks is None:
            raise ResetNeededError(f"{self.layout.name}: call reset() first")
        given = np.asarray(actions)
        if given.shape != (self.num_envs,) or given.dtype.kind not in "iu":
            raise ActionError(
                f"actions are {given.dtype} {given.shape}; give integers of shape "
                f"({self.num_envs},): {self.copies} copies of {len(self.layout.agents)} agents"
            )
        self._actions = given

    def action_masks(self) -> Array:
        """What is legal now: bool [C, A]."""
        if self._masks is None:
            raise ResetNeededError(f"{self.layout.name}: call reset() first")
        return self._masks

    def _shown(self, observations: dict[str, Array]) -> dict[str, Array]:
        """Keep the masks of what is about to be handed out, which is then the caller's."""
        self._masks = observations["action_mask"].astype(bool)
        return observations

    def _final(
        self, truncated: bool, total: float, length: int, kpis: Mapping[str, float]
    ) -> dict[str, Any]:
        """The info of a column whose episode ended, but for the terminal observation."""
        seconds = round(time.monotonic() - self._made, 6)
        return {
            "TimeLimit.truncated": bool(truncated),
            "episode": {"r": float(total), "l": int(length), "t": seconds},
            "kpis": dict(kpis),
        }

    # --- What Stable-Baselines3 asks of the environments behind a VecEnv -------------------------

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """An attribute, per column: ``render_mode``, ``action_masks``, or of the environment."""
        columns = self._columns(indices)
        if attr_name == "action_masks":
            return [partial(self._mask_of, column) for column in columns]
        if attr_name == "render_mode":
            return [self.render_mode] * len(columns)
        value = None if attr_name.startswith("_") else getattr(self._environment(), attr_name, None)
        if value is None or callable(value):  # a method would move or show one copy alone
            raise AttributeError(f"the columns of {self.layout.name} have no {attr_name!r}")
        return [value] * len(columns)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        raise AttributeError(
            f"{attr_name!r} cannot be set: all copies of {self.layout.name} are alike; make "
            "another VecEnv with other arguments"
        )

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call ``action_masks`` for each column; there is no other method per column."""
        if method_name != "action_masks":
            raise AttributeError(f"the columns of {self.layout.name} have no {method_name}()")
        masks = self.action_masks()
        return list(masks) if indices is None else [masks[c] for c in self._columns(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """True for Monitor alone: the infos hold the ``episode`` that a Monitor would add."""
        return [wrapper_class is Monitor] * len(self._columns(indices))

    def get_images(self) -> Sequence[Array | None]:
        """The picture of copy 0."""
        return [self._render()]

    def render(self, mode: str | None = None) -> Any:
        """Copy 0 in the render_mode that the environment was made with."""
        if self.render_mode is None or mode not in (None, self.render_mode):
            raise ValueError(
                f"render mode {mode!r}: the environments were made with {self.render_mode!r}; "
                "pass render_mode when making them"
            )
        return self._render()

    def _columns(self, indices: Indices) -> list[int]:
        if indices is None:
            return list(range(self.num_envs))
        return [indices] if isinstance(indices, int) else list(indices)

    def _mask_of(self, column: int) -> Array:
        return np.asarray(self.action_masks()[column])

    @abstractmethod
    def _environment(self) -> Any:
        """Whose attributes the columns show."""

    @abstractmethod
    def _render(self) -> Any:
        """Copy 0."""
