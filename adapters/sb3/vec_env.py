"""Batch as a fast Stable-Baselines3 VecEnv.

    from stable_baselines3 import PPO
    from corral.adapters import MaskedPolicy, make_vec_env
    PPO(MaskedPolicy, make_vec_env("dfaas_v0", num_envs=64, seed=0)).learn(100_000)

The agents of B copies, with equal spaces, are columns of one VecEnv (``ColumnVecEnv``):
column = copy * N + agent, C = B * N columns. Observations are one level of Dict, see
``corral.adapters.spaces``. ``corral.adapters.supersuit`` gives the same results, bit for bit, from
PettingZoo environments.

When an episode ends, the same ``step`` begins the next one. Only then, ``infos[c]`` holds

| key | value |
|---|---|
| ``terminal_observation`` | the last observation of the episode that ended |
| ``TimeLimit.truncated`` | True if the time limit ended it, so that learners bootstrap |
| ``episode`` | ``r``: the agent's return; ``l``: length; ``t``: seconds since the VecEnv was made |
| ``kpis`` | the agent's numbers in the environment's info, summed over the episode |
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from corral.adapters.seats import require_all_act, require_common_end
from corral.adapters.sources import EnvLike, rules_with
from corral.adapters.spaces import ColumnCodec, refuse_masks, refuse_turns
from corral.envs.arguments import nonnegative_int
from corral.envs.batch import BatchStep, make_batch
from corral.envs.core import Array, Observation, generator, plays_as_arrays
from corral.envs.masks import MASK, require_integers
from corral.errors import ActionError, ResetNeededError

__all__ = ["BatchVecEnv", "ColumnVecEnv", "make_vec_env"]

Indices = int | Iterable[int] | None


def make_vec_env(
    env: EnvLike,
    num_envs: int = 64,
    seed: int | None = None,
    *,
    agent_id: bool = True,
    render_mode: str | None = None,
    **env_kwargs: Any,
) -> BatchVecEnv:
    """Return ``num_envs`` copies of an environment as a VecEnv.

    ``env`` is a name, a function, or an environment, see ``corral.adapters.sources``.
    ``env_kwargs`` are its arguments. ``seed`` is the seed of the first reset; None: unpredictable.
    In third-party environments without masks, all Discrete actions are legal. MultiDiscrete and Box
    actions have no masks, and work with the standard PPO. Raises UnknownNameError for an unknown
    name, and UnsupportedSpaceError for turn-based games and agents that differ.
    """
    num_envs = nonnegative_int("num_envs", num_envs, least=1)
    batch = make_batch(rules_with(make_vec_env, env, env_kwargs), num_envs, seed)
    return BatchVecEnv(batch, agent_id=agent_id, render_mode=render_mode)


# --- Columns of any copies -----------------------------------------------------------------------


class ColumnVecEnv(VecEnv):
    """The columns of ``num_envs`` copies. Subclasses step the copies."""

    def __init__(
        self, codec: ColumnCodec, num_envs: int, seed: int | None, render_mode: str | None
    ):
        self.codec = codec
        self.copies = num_envs  # VecEnv's num_envs counts columns
        self._next_seed = seed  # for the next reset; None continues the random streams
        self._masks: Array | None = None  # bool [C, A] of the current observations, if Discrete
        self._begun = False
        self._actions: Array | None = None
        self._made = time.monotonic()
        self.render_mode = render_mode  # VecEnv reads it with get_attr
        columns = num_envs * len(codec.agents)
        super().__init__(columns, codec.observation_space, codec.action_space)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Set the seed of the next reset. Copy r then draws from its own stream r.

        None sets an unpredictable seed. Returns the seed once per column. The stream of a copy is
        derived from the seed and the number of the copy, so all streams differ.
        """
        if seed is None:
            seed = int(np.random.default_rng().integers(2**32))
        self._next_seed = seed
        return [seed] * self.num_envs

    @abstractmethod
    def reset(self) -> dict[str, Array]:
        """Begin an episode in every copy. Return entries [C, ...]."""

    def step_async(self, actions: Array) -> None:
        """Take one action per column, [C, ...]. Raises ActionError, ResetNeededError."""
        if not self._begun:
            raise ResetNeededError(f"{self.codec.name}: call reset() first")
        axes = f"{self.copies} copies of {len(self.codec.agents)} agents"
        shape = (self.num_envs, *(self.action_space.shape or ()))
        if np.dtype(self.action_space.dtype).kind == "f":  # the bounds are checked in the step
            self._actions = np.asarray(actions)
            if self._actions.shape != shape:
                raise ActionError(f"actions are {self._actions.shape}; pass {shape}: {axes}")
        else:
            self._actions = require_integers(actions, shape, axes)

    def action_masks(self) -> Array:
        """Return the current legal actions: bool [C, A].

        Raises UnsupportedSpaceError if actions have no masks.
        """
        refuse_masks(self.codec.name, self.action_space)
        if self._masks is None:
            raise ResetNeededError(f"{self.codec.name}: call reset() first")
        return self._masks

    def _present(self, observations: dict[str, Array]) -> dict[str, Array]:
        """Store the masks of the current observations, and return the observations."""
        self._begun = True
        if MASK in observations:
            self._masks = observations[MASK].astype(bool)
        return observations

    def _final(
        self, truncated: bool, total: float, length: int, kpis: Mapping[str, float]
    ) -> dict[str, Any]:
        """Return the info of a column with an ended episode, without the terminal observation."""
        seconds = round(time.monotonic() - self._made, 6)
        return {
            "TimeLimit.truncated": bool(truncated),
            "episode": {"r": float(total), "l": int(length), "t": seconds},
            "kpis": dict(kpis),
        }

    # --- Access to the environments of a VecEnv --------------------------------------------------

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return an attribute per column: ``render_mode``, ``action_masks``, or of the rules."""
        columns = self._columns(indices)
        if attr_name == "action_masks":
            return [partial(self._mask_of, column) for column in columns]
        if attr_name == "render_mode":
            return [self.render_mode] * len(columns)
        value = None if attr_name.startswith("_") else getattr(self._environment(), attr_name, None)
        if value is None or callable(value):  # a method would act on a single copy
            raise AttributeError(f"the columns of {self.codec.name} have no {attr_name!r}")
        return [value] * len(columns)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        raise AttributeError(
            f"{attr_name!r} cannot be set, because all copies of {self.codec.name} are equal; make "
            "a new VecEnv with other arguments"
        )

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call ``action_masks`` for each column. Other methods are not available per column."""
        if method_name != "action_masks":
            raise AttributeError(f"the columns of {self.codec.name} have no {method_name}()")
        masks = self.action_masks()
        return list(masks) if indices is None else [masks[c] for c in self._columns(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Return True only for Monitor: infos hold the ``episode`` that a Monitor would add."""
        return [wrapper_class is Monitor] * len(self._columns(indices))

    def get_images(self) -> Sequence[Array | None]:
        """Return the picture of copy 0."""
        return [self._render()]

    def render(self, mode: str | None = None) -> Any:
        """Render copy 0 in the VecEnv's render_mode."""
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
        """Return the object that has the attributes of all columns."""

    @abstractmethod
    def _render(self) -> Any:
        """Render copy 0."""


# --- Columns of a Batch --------------------------------------------------------------------------


class BatchVecEnv(ColumnVecEnv):
    """The B x N agents of a Batch or a ZooBatch as B * N columns: column = copy * N + agent.

    ``agent_id`` adds the agent's identity to each observation. ``seed()`` applies to the next
    reset; without it, the seed of the Batch applies. Raises UnsupportedSpaceError for turn-based
    games and agents that differ, and, when stepping, for agents that end early or join late.
    """

    def __init__(self, batch: Any, agent_id: bool = True, render_mode: str | None = None) -> None:
        rules = batch.rules
        if not rules.simultaneous:
            refuse_turns(rules.name)
        if render_mode not in (None, "ansi", "rgb_array") or (
            render_mode is not None and render_mode not in rules.render_modes
        ):
            raise ValueError(f"render_mode={render_mode!r} must be 'ansi', 'rgb_array' or None")
        self.batch = batch
        codec = ColumnCodec.of(rules, rules.name, batch.agents, agent_id, any_actions=True)
        # The keys and types of the sums come from the info of a temporary episode. For third-party
        # environments, they are added on first appearance.
        is_array_code = plays_as_arrays(rules)
        sample = rules.info(rules.start([generator(0, "env")])) if is_array_code else {}
        shape = (batch.num_envs, len(batch.agents))
        self._kpis = {
            key: np.zeros(shape, np.float64 if values.dtype.kind == "f" else np.int64)
            for key, values in sample.items()
        }
        self._info: dict[str, Array] | None = None  # of copy 0's last step, for pictures
        super().__init__(codec, batch.num_envs, None, render_mode)

    def reset(self) -> dict[str, Array]:
        """Begin an episode in every copy. Return entries [C, ...]."""
        observations = self.batch.reset(self._next_seed)
        self._next_seed = None
        for sums in self._kpis.values():
            sums[...] = 0
        self._info = None
        self._reset_options()
        return self._shown(observations)

    def step_wait(
        self,
    ) -> tuple[dict[str, Array], Array, Array, list[dict[str, Any]]]:
        """Return observations [C, ...], rewards float32 [C], dones bool [C], and infos."""
        assert self._actions is not None  # step_async came first
        n = len(self.batch.agents)
        split: Any = self._actions.reshape(self.copies, n, *self._actions.shape[1:])  # [B, N, ...]
        if not isinstance(self.action_space, spaces.Discrete):
            split = {agent: split[:, i] for i, agent in enumerate(self.batch.agents)}
        step = self.batch.step(split)
        for key, values in step.info.items():
            if key not in self._kpis:
                self._kpis[key] = np.zeros(values.shape, np.float64)
            self._kpis[key] += values
        self._info = step.info
        infos: list[dict[str, Any]] = [{}] * self.num_envs  # one shared dict for running episodes
        ended = step.terminated | step.truncated  # [B, N]
        if step.finished is not None or np.count_nonzero(ended):
            require_common_end(self.codec.name, self.batch.agents, ended, step.over)
            self._put_ends(step, infos)
        return (
            self._shown(step.observations),
            np.array(step.reward, dtype=np.float32).reshape(-1),  # [C]; SB3 adds to it in place
            ended.reshape(-1),  # [C]
            infos,
        )

    def close(self) -> None:
        """Close third-party environments. A Batch holds only arrays."""
        self.batch.close()

    # --- Saving and restoring --------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the Batch's ``snapshot``, with the sums of running episodes in its arrays."""
        saved: dict[str, Any] = self.batch.snapshot()
        saved["arrays"] |= {f"kpis.{key}": sums.copy() for key, sums in self._kpis.items()}
        return saved

    def restore(self, snapshot: dict[str, Any]) -> dict[str, Array]:
        """Restore a ``snapshot``. Return its observations.

        Raises ValueError, before anything changes, if the snapshot does not fit.
        """
        arrays = dict(snapshot.get("arrays", {}))
        sums = {key: arrays.pop(f"kpis.{key}", None) for key in self._kpis}
        for key, current in self._kpis.items():
            saved = sums[key]
            if saved is None or (saved.shape, saved.dtype) != (current.shape, current.dtype):
                raise ValueError(f"snapshot: kpis.{key} must be {current.dtype} {current.shape}")
        observations = self.batch.restore({**snapshot, "arrays": arrays})
        self._kpis = {key: saved.copy() for key, saved in sums.items()}
        self._next_seed, self._info = None, None
        return self._present(self.codec.columns(observations))

    # --- Parts -----------------------------------------------------------------------------------

    def _shown(self, observations: Mapping[str, Observation]) -> dict[str, Array]:
        """Return the current observations as entries [C, ...]."""
        require_all_act(self.codec.name, self.batch.agents, self.batch.acting)
        return self._present(self.codec.columns(observations))

    def _put_ends(self, step: BatchStep, infos: list[dict[str, Any]]) -> None:
        """Fill in the infos of columns with ended episodes, and reset their sums."""
        finished = step.finished
        assert finished is not None  # an early end was refused
        last = self.codec.columns(finished.observations)  # [D * N, ...]
        n = len(self.batch.agents)
        for d, row in enumerate(finished.rows.tolist()):
            for i in range(n):
                kpis = {key: sums[row, i].item() for key, sums in self._kpis.items()}
                info = self._final(
                    step.truncated[row, i], finished.returns[d, i], finished.lengths[d], kpis
                )
                info["terminal_observation"] = {key: a[d * n + i] for key, a in last.items()}
                infos[row * n + i] = info
        for sums in self._kpis.values():
            sums[finished.rows] = 0
        if finished.rows[0] == 0:
            self._info = None  # copy 0 shows the start of its next episode

    def _environment(self) -> Any:
        return self.batch.rules

    def _render(self) -> Any:
        assert self.render_mode is not None  # checked in render()
        return self.batch.render(self._info, self.render_mode)
