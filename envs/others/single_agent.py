"""Gymnasium's environments of one agent, as PettingZoo environments with the agent ``agent_0``.

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
from corral.envs.others.calls import called, short_name, takes
from corral.errors import EnvironmentFault, MissingExtraError, UnknownNameError

__all__ = ["AGENT", "ParallelOfGymnasium", "from_gymnasium", "is_gymnasium_id", "near_ids"]

AGENT = "agent_0"

ENDLESS = 50_000
"""Steps after which an episode counts as one that never ends, where no time limit is known."""


def from_gymnasium(
    env: Any, *, max_cycles: int | None = None, render_mode: str | None = None, **env_kwargs: Any
) -> ParallelEnv[str, Any, Any]:
    """Return an environment of Gymnasium as a ParallelEnv of one agent, ``agent_0``.

    Args:
        env: an id such as "CartPole-v1", a class, a function that makes one, or one that is made.
        max_cycles: steps after which an episode is cut, besides the environment's own limit.
        render_mode: as for ``gymnasium.make``.
        env_kwargs: arguments of the id, class or function.

    A time limit (Gymnasium's wrapper TimeLimit) truncates: it cuts an episode, and does not end it.
    Masks are taken from infos or observations ("action_mask"), or of a method ``action_masks``.

    Raises UnknownNameError, MissingExtraError for an id whose environment needs a package that is
    not installed, and TypeError for what is no environment of Gymnasium.
    """
    if isinstance(env, str):
        made = make_gymnasium(env, env_kwargs, render_mode)
    elif isinstance(env, gymnasium.Env):
        if env_kwargs:
            raise ValueError(f"env_kwargs={env_kwargs}: {env} is made already")
        made = env
    elif callable(env):
        drawn = {"render_mode": render_mode} if render_mode and takes(env, "render_mode") else {}
        made = called(env, {**env_kwargs, **drawn})
    else:
        made = env
    return ParallelOfGymnasium(made, max_cycles)


def is_gymnasium_id(text: str) -> bool:
    """Return whether Gymnasium's registry has an environment of that id, not one of corral's."""
    return text in gymnasium.registry and not text.startswith("corral/")


def near_ids(text: str) -> list[str]:
    """Return ids of Gymnasium's registry that are spelled much alike, the nearest first."""
    known = {id.lower(): id for id in gymnasium.registry if not id.startswith("corral/")}
    near = difflib.get_close_matches(text.lower(), known, n=3, cutoff=0.75)
    return [known[each] for each in near]


def make_gymnasium(id: str, kwargs: Mapping[str, Any], render_mode: str | None) -> Any:
    """Return ``gymnasium.make(id)``, without its checker: ``corral check`` looks for faults."""
    words: dict[str, Any] = {**kwargs, **({"render_mode": render_mode} if render_mode else {})}
    try:
        return gymnasium.make(id, disable_env_checker=True, **words)
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtraError(f"{id}: {error}") from error
    except gymnasium.error.UnregisteredEnv as error:
        raise UnknownNameError(f"no environment of Gymnasium named {id!r}: {error}") from error


class ParallelOfGymnasium(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # no types
    """See ``from_gymnasium``."""

    def __init__(self, env: Any, max_cycles: int | None = None) -> None:
        if not isinstance(env, gymnasium.Env):
            raise TypeError(f"{short_name(env)} is no gymnasium.Env: {env!r}")
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
                what = f"{kind}_space {space} is " + ("one of the old gym" if old else "no space")
                do = f"set self.{kind}_space in __init__, to a space of gymnasium.spaces"
                raise EnvironmentFault.of(self.name, what, do)
        own: dict[str, Any] = env.metadata or {}
        self.metadata: dict[str, Any] = {
            "name": self.name,
            "is_parallelizable": True,
            **{key: own[key] for key in ("render_modes", "render_fps") if key in own},
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
            what = f"reset() gave a {type(answer).__name__}"
            raise EnvironmentFault.of(self.name, what, "give observation, info")
        self.agents, self._elapsed = [AGENT], 0
        return {AGENT: answer[0]}, {AGENT: self._told(answer[1])}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        answer = self.env.step(actions[AGENT])
        if not (isinstance(answer, tuple) and len(answer) == 5):
            count = len(answer) if isinstance(answer, tuple) else 1
            raise EnvironmentFault.of(
                self.name,
                f"step() gave {count} values",
                "give observation, reward, terminated, truncated, info",
            )
        observation, reward, terminated, truncated, info = answer
        self._elapsed += 1
        if self._elapsed > ENDLESS and not self._limited:
            raise EnvironmentFault.of(
                self.name,
                f"an episode goes on after {ENDLESS:,} steps",
                "let it end, or give max_cycles= (--arg max_cycles=1000), after which it is cut",
            )
        ended, cut = bool(terminated), bool(truncated) and not terminated
        self.agents = [] if ended or cut else [AGENT]
        told = self._told(info)
        return {AGENT: observation}, {AGENT: reward}, {AGENT: ended}, {AGENT: cut}, {AGENT: told}

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _told(self, info: Any) -> dict[str, Any]:
        told = dict(info)
        if self._masks is not None and MASK not in told:
            told[MASK] = np.asarray(self._masks(), dtype=np.int8)
        return told
