"""Vectorize PettingZoo environments for Stable-Baselines3 with SuperSuit, and fix its omissions.

    from corral.envs import dfaas_v0
    vec_env = vectorize(dfaas_v0.parallel_env(), num_envs=8, cpus=2, seed=0)
    MaskablePPO("MultiInputPolicy", vec_env).learn(100_000)
    vec_env.close()

SuperSuit's ``pettingzoo_env_to_vec_env_v1`` and ``concat_vec_envs_v1`` run the copies. This module
restores data that SuperSuit 3.11 loses: the time limit (``TimeLimit.truncated``), seeds, a random
stream per copy, ``action_masks``, and the info of the last step of an episode. It also keeps the
program from hanging on worker processes at exit.

Copy r equals row r of ``Batch(seed)`` bit for bit. For columns, observations and infos see
``corral.adapters.sb3.vec_env``. In addition, ``infos[c]`` holds the environment's info in each
step.
"""

from __future__ import annotations

import atexit
import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from corral.adapters.sb3.vec_env import ColumnVecEnv
from corral.adapters.spaces import ColumnCodec, refuse_death, refuse_turns
from corral.adapters.zoo.workers import close_at_exit
from corral.envs.arguments import nonnegative_int, require_known_arguments
from corral.envs.core import Array, generator
from corral.envs.masks import MASK
from corral.envs.registry import env_spec, make, registered_name, rules_class
from corral.envs.shells import ParallelShell, TurnShell
from corral.errors import UnsupportedSpaceError
from corral.extras import require

__all__ = ["SuperSuitVecEnv", "vectorize"]


def vectorize(
    parallel_env: Any,
    num_envs: int,
    cpus: int = 0,
    seed: int | None = None,
    agent_id: bool = True,
    **env_kwargs: Any,
) -> SuperSuitVecEnv:
    """Return ``num_envs`` pickled copies of a ParallelEnv, vectorized as a VecEnv.

    Args:
        parallel_env: a ParallelEnv with equal spaces for all agents, which is not stepped itself;
            or a name, a module or a function that makes one with ``env_kwargs``.
        num_envs: number of copies, B. Column = copy * N + agent.
        cpus: number of worker processes, from 2 on; with 0 or 1 all copies run in this process, as
            in SuperSuit.
        seed: seed of the first reset; None: unpredictable. ``seed()`` sets the seed of the next.
        agent_id: add the one-hot identity of the agent to each observation.

    Raises:
        UnsupportedSpaceError: a turn-based environment, agents that differ, spaces that
            Stable-Baselines3 does not support; and, when stepping, an agent that ends early.
        MissingExtraError: SuperSuit is not installed.
        TypeError: arguments that ``parallel_env`` does not have.
        ValueError: fewer than 1 copies, negative cpus, or arguments of an existing environment.
    """
    num_envs, cpus = nonnegative_int("num_envs", num_envs, least=1), nonnegative_int("cpus", cpus)
    suit = require("supersuit", extra="supersuit", purpose="vectorize PettingZoo environments")
    parallel_env = _make_env(parallel_env, env_kwargs)
    name = str(getattr(parallel_env, "metadata", {}).get("name", parallel_env))
    if not isinstance(parallel_env, ParallelEnv):
        if isinstance(parallel_env, AECEnv) and parallel_env.metadata.get("is_parallelizable"):
            raise UnsupportedSpaceError(f"{name} is an AECEnv; pass the module's parallel_env()")
        refuse_turns(name)
    if not parallel_env.metadata.get("is_parallelizable", True):
        refuse_turns(name)
    codec = ColumnCodec.of(parallel_env, name, parallel_env.possible_agents, agent_id)
    workers = min(cpus, num_envs)
    # SuperSuit's division: this many copies per worker, and the remaining copies for the last.
    copy = _Copy(parallel_env, codec, math.ceil(num_envs / max(workers, 1)))
    vector = suit.pettingzoo_env_to_vec_env_v1(copy)
    vector = suit.concat_vec_envs_v1(vector, num_envs, num_cpus=cpus, base_class="gymnasium")
    return SuperSuitVecEnv(vector, copy, num_envs, seed)


def _make_env(env: Any, env_kwargs: dict[str, Any]) -> Any:
    """Return the environment of a name, a module or a function; an environment unchanged."""
    if isinstance(env, ModuleType):
        env = env.__name__.removeprefix("corral.envs.")
    if isinstance(env, str):
        if (name := registered_name(env)) is not None:
            require_known_arguments(vectorize, rules_class(name), env_kwargs)
            if not env_spec(name).simultaneous:
                refuse_turns(name)
        return make(env, api="parallel", **env_kwargs)
    if isinstance(env, ParallelEnv | AECEnv):
        if env_kwargs:
            raise ValueError(f"{env} already exists; pass its arguments when you make it")
        return env
    if not callable(env):
        raise TypeError(
            f"{env!r} of type {type(env).__name__} is not an environment; pass a ParallelEnv, as "
            "parallel_env() makes it, a name, a module or a function that makes one"
        )
    return env(**env_kwargs)


# --- In each copy, below SuperSuit ---------------------------------------------------------------


@dataclass(frozen=True)
class _Seed:
    """A seed that records the additions of SuperSuit, to derive the number of the copy.

    SuperSuit derives the seed of a copy by additions: first the number of the worker process, then
    the number of the copy in the worker. Such sums coincide for different copies, such as copy 1 of
    worker 0 and copy 0 of worker 1. Therefore this class keeps the summands separate.
    """

    seed: int
    path: tuple[int, ...] = ()

    def __add__(self, number: int) -> _Seed:
        return _Seed(self.seed, (*self.path, number))

    def copy(self, per_worker: int) -> int:
        worker, within = self.path if len(self.path) == 2 else (0, self.path[0])
        return worker * per_worker + within


class _Copy(BaseParallelWrapper):  # type: ignore[misc]  # PettingZoo ships no types
    """One environment for SuperSuit, with flat observations, and infos that survive a reset.

    SuperSuit overwrites the last info of an episode with the info of the next reset. Therefore
    resets return empty infos, and the last info also holds the sums over the episode.
    """

    def __init__(self, env: Any, codec: ColumnCodec, per_worker: int) -> None:
        super().__init__(env)
        self.codec = codec
        self.per_worker = per_worker

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.codec.observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.codec.action_space

    def reset(
        self, seed: _Seed | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, Array]], dict[str, dict[str, Any]]]:
        number = None
        if seed is not None:
            rng = generator(seed.seed, "env", seed.copy(self.per_worker))
            if isinstance(self.env.unwrapped, ParallelShell | TurnShell):
                self.env.unwrapped.np_random = rng  # the same as row r of a Batch
            else:
                number = int(rng.integers(2**31))  # other environments take only numbers
        observations, _ = self.env.reset(seed=number, options=options)
        self._require_all(observations)
        self._length = 0
        self._returns = dict.fromkeys(self.possible_agents, 0.0)
        self._kpis: dict[str, dict[str, Any]] = {agent: {} for agent in self.possible_agents}
        return self._flat(observations, over=False), {agent: {} for agent in self.possible_agents}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[
        dict[str, dict[str, Array]],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._require_all(observations)
        self._length += 1
        all_infos: dict[str, dict[str, Any]] = {}
        ended = []
        for agent in self.possible_agents:
            self._returns[agent] += float(rewards[agent])
            all_infos[agent] = dict(infos.get(agent, {}))
            sums = self._kpis[agent]
            for key, value in all_infos[agent].items():
                if isinstance(value, int | float | np.number | np.bool_):
                    sums[key] = sums.get(key, 0) + value
            if terminated[agent] or truncated[agent]:
                ended.append(agent)
        over = len(ended) == len(self.possible_agents)
        if ended and not over:
            refuse_death(self.codec.name, ended)
        if over:
            for agent, info in all_infos.items():
                info["episode"] = {"r": self._returns[agent], "l": self._length}
                info["kpis"] = self._kpis[agent]
        return self._flat(observations, over), rewards, terminated, truncated, all_infos

    def _flat(self, observations: dict[str, Any], over: bool) -> dict[str, dict[str, Array]]:
        flat = {}
        for i, agent in enumerate(self.possible_agents):
            flat[agent] = self.codec.flat(observations[agent], agent=i)
            if not over and not flat[agent][MASK].any():
                refuse_turns(self.codec.name)
        return flat

    def _require_all(self, observations: dict[str, Any]) -> None:
        missing = [agent for agent in self.possible_agents if agent not in observations]
        if missing:
            refuse_death(self.codec.name, missing)


# --- Above SuperSuit -----------------------------------------------------------------------------


class SuperSuitVecEnv(ColumnVecEnv):
    """SuperSuit's vector of copies as a Stable-Baselines3 VecEnv; made by ``vectorize``.

    Close it after use. Otherwise the workers end at the exit of the program.
    """

    def __init__(self, vector: Any, copy: _Copy, num_envs: int, seed: int | None) -> None:
        self.vector = vector
        self._example = copy.env  # never stepped; all copies have the same attributes
        self._started = False
        self._at_exit = close_at_exit(vector)
        super().__init__(copy.codec, num_envs, seed, getattr(copy.unwrapped, "render_mode", None))

    def reset(self) -> dict[str, Array]:
        """Begin an episode in every copy. Return entries [C, ...]."""
        if self._next_seed is None and not self._started:
            self.seed(None)  # otherwise all copies, pickled from one environment, would be equal
        seed = None if self._next_seed is None else _Seed(self._next_seed)
        observations, _ = self.vector.reset(seed=seed)
        self._next_seed, self._started = None, True
        self._reset_options()
        return self._present(dict(observations))

    def step_async(self, actions: Array) -> None:
        """Take one action per column, int [C]. Raises ActionError, ResetNeededError."""
        super().step_async(actions)
        self.vector.step_async(self._actions)

    def step_wait(
        self,
    ) -> tuple[dict[str, Array], Array, Array, list[dict[str, Any]]]:
        """Return observations [C, ...], rewards float32 [C], dones bool [C], and infos."""
        observations, rewards, terminated, truncated, infos = self.vector.step_wait()
        terminated, truncated = terminated.astype(bool), truncated.astype(bool)
        dones = terminated | truncated
        for column in np.flatnonzero(dones):
            info = infos[column]
            cut = truncated[column] and not terminated[column]
            info |= self._final(cut, info["episode"]["r"], info["episode"]["l"], info["kpis"])
        return self._present(dict(observations)), rewards, dones, infos

    def close(self) -> None:
        """End the worker processes. Repeated calls are allowed."""
        atexit.unregister(self._at_exit)
        self.vector.close()

    def _environment(self) -> Any:
        return self._example

    def _render(self) -> Any:
        return self.vector.render()
