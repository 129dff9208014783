"""Convert Gymnasium environments into PettingZoo environments with one agent, ``agent_0``.

env = from_gymnasium("CartPole-v1")
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from pettingzoo import ParallelEnv

from corral.envs.arguments import optional_int
from corral.envs.masks import MASK, has_mask
from corral.envs.others.calls import accepts, construct, short_name
from corral.errors import EnvironmentFault, MissingExtraError, UnknownNameError

__all__ = ["AGENT", "ParallelOfGymnasium", "from_gymnasium", "is_gymnasium_id", "near_ids"]

AGENT = "agent_0"

ENDLESS = 50_000
"""Maximum length of an episode without a known time limit; a longer episode is a fault."""


def from_gymnasium(
    env: Any, *, max_cycles: int | None = None, render_mode: str | None = None, **env_kwargs: Any
) -> ParallelEnv[str, Any, Any]:
    """Convert a Gymnasium environment into a ParallelEnv with one agent, ``agent_0``.

    Args:
        env: an id such as "CartPole-v1", a class, a function that returns an environment, or an
            environment.
        max_cycles: time limit in steps, in addition to the environment's own limit.
        render_mode: as for ``gymnasium.make``.
        env_kwargs: arguments of the id, class or function.

    A time limit (Gymnasium's TimeLimit wrapper) truncates an episode and does not terminate it.
    Masks are read from infos or observations ("action_mask"), or from a method ``action_masks``.

    Raises UnknownNameError for an unknown id, MissingExtraError if the id needs a package that is
    not installed, and TypeError for an object that is not a Gymnasium environment.
    """
    if isinstance(env, str):
        result = make_gymnasium(env, env_kwargs, render_mode)
    elif isinstance(env, gymnasium.Env):
        if env_kwargs:
            raise ValueError(
                f"env_kwargs={env_kwargs}: {env} is already constructed. Pass its class, or omit "
                "env_kwargs"
            )
        result = env
    elif callable(env):
        mode = {"render_mode": render_mode} if render_mode and accepts(env, "render_mode") else {}
        result = construct(env, {**env_kwargs, **mode})
    else:
        result = env
    return ParallelOfGymnasium(result, max_cycles)


def is_gymnasium_id(text: str) -> bool:
    """Return True if Gymnasium's registry has this id and it is not one of corral's."""
    return text in gymnasium.registry and not text.startswith("corral/")


def near_ids(text: str) -> list[str]:
    """Return ids of Gymnasium's registry with a similar spelling, closest first."""
    ids = {id.lower(): id for id in gymnasium.registry if not id.startswith("corral/")}
    near = difflib.get_close_matches(text.lower(), ids, n=3, cutoff=0.75)
    return [ids[name] for name in near]


def make_gymnasium(id: str, kwargs: Mapping[str, Any], render_mode: str | None) -> Any:
    """Return ``gymnasium.make(id)`` without its checker; ``corral check`` does the checking."""
    arguments: dict[str, Any] = {**kwargs, **({"render_mode": render_mode} if render_mode else {})}
    try:
        return gymnasium.make(id, disable_env_checker=True, **arguments)
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtraError(f"{id}: {error}") from error
    except gymnasium.error.UnregisteredEnv as error:
        raise UnknownNameError(f"Gymnasium has no environment {id!r}: {error}") from error


class ParallelOfGymnasium(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # no types
    """See ``from_gymnasium``."""

    def __init__(self, env: Any, max_cycles: int | None = None) -> None:
        if not isinstance(env, gymnasium.Env):
            raise TypeError(f"{short_name(env)} is not a gymnasium.Env: {env!r}")
        limit = optional_int("max_cycles", max_cycles, least=1)
        self.env: Any = env if limit is None else TimeLimit(env, limit)
        spec = env.spec
        self._limited = limit is not None or (spec is not None and bool(spec.max_episode_steps))
        self._elapsed = 0
        self.name = spec.id if spec is not None else short_name(env.unwrapped)
        for kind in ("observation", "action"):
            space = getattr(env, f"{kind}_space", None)
            if not isinstance(space, spaces.Space):
                old = type(space).__module__.partition(".")[0] == "gym"
                fault = f"{kind}_space {space} is " + ("of the old gym" if old else "not a space")
                advice = f"set self.{kind}_space in __init__, to a space of gymnasium.spaces"
                raise EnvironmentFault.of(self.name, fault, advice)
        metadata: dict[str, Any] = env.metadata or {}
        self.metadata: dict[str, Any] = {
            "name": self.name,
            "is_parallelizable": True,
            **{key: metadata[key] for key in ("render_modes", "render_fps") if key in metadata},
        }
        self.render_mode = getattr(env, "render_mode", None)
        self.possible_agents = [AGENT]
        self.agents: list[str] = []
        masks = getattr(env.unwrapped, "action_masks", None)
        self._masks = masks if callable(masks) and not has_mask(env.observation_space) else None

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:
        return self.env.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        answer = self.env.reset(seed=seed, options=options)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            fault = f"reset() returned a {type(answer).__name__}"
            raise EnvironmentFault.of(self.name, fault, "return observation, info")
        self.agents, self._elapsed = [AGENT], 0
        return {AGENT: answer[0]}, {AGENT: self._info_with_mask(answer[1])}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        answer = self.env.step(actions[AGENT])
        if not (isinstance(answer, tuple) and len(answer) == 5):
            count = len(answer) if isinstance(answer, tuple) else 1
            raise EnvironmentFault.of(
                self.name,
                f"step() returned {count} values",
                "return observation, reward, terminated, truncated, info",
            )
        observation, reward, terminated, truncated, info = answer
        self._elapsed += 1
        if self._elapsed > ENDLESS and not self._limited:
            raise EnvironmentFault.of(
                self.name,
                f"an episode has not ended after {ENDLESS:,} steps",
                "end the episode, or set a time limit: max_cycles= (--arg max_cycles=1000)",
            )
        ended, cut = bool(terminated), bool(truncated) and not terminated
        self.agents = [] if ended or cut else [AGENT]
        info = self._info_with_mask(info)
        return {AGENT: observation}, {AGENT: reward}, {AGENT: ended}, {AGENT: cut}, {AGENT: info}

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _info_with_mask(self, info: Any) -> dict[str, Any]:
        result = dict(info)
        if self._masks is not None and MASK not in result:
            result[MASK] = np.asarray(self._masks(), dtype=np.int8)
        return result
