"""Convert classes written for RLlib's MultiAgentEnv into PettingZoo ParallelEnvs, without Ray.

    from corral.adapters import MultiAgentEnv  # instead of ray.rllib.env.multi_agent_env

    class MyEnv(MultiAgentEnv): ...

    env = from_multi_agent_env(MyEnv, {"width": 5})

Both versions of the interface are supported: ``reset() -> obs`` and ``step -> obs, rewards, dones,
infos``, or ``reset(seed=, options=) -> obs, infos`` and ``step -> obs, rewards, terminateds,
truncateds, infos``. The agents in the returned observations act next. A PettingZoo ParallelEnv
shows all live agents in every step. An unobserved agent therefore keeps its last observation, does
not act, and still gets its rewards.
"""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from corral.envs.arguments import optional_int
from corral.envs.masks import MASK, has_mask
from corral.envs.others.base import MultiAgentEnv, space_of
from corral.envs.others.calls import construct, short_name
from corral.errors import EnvironmentFault

__all__ = ["ParallelOfMultiAgent", "from_multi_agent_env"]

ALL = "__all__"

IDLE = 1_000
"""Maximum number of consecutive steps without any observation."""

ENDLESS = 10_000
"""Maximum length of an episode without max_cycles; a longer episode is a fault."""


def from_multi_agent_env(
    env: Any,
    env_config: Mapping[str, Any] | None = None,
    *,
    agents: Iterable[Hashable] | None = None,
    max_cycles: int | None = None,
    render_mode: str | None = None,
) -> ParallelEnv[str, Any, Any]:
    """Convert an environment with RLlib's multi-agent interface into a ParallelEnv.

    Args:
        env: a class, a function that returns an environment, or an environment.
        env_config: the single argument of the class or function, as in RLlib.
        agents: ids of all agents that can appear, as a list or a comma-separated string. None: the
            ids in ``possible_agents``, ``observation_spaces`` or ``agents``, else the ids in the
            first reset. An id that is not a string gets a name: 0 becomes agent_0.
        max_cycles: time limit in steps, for an environment that never ends an episode.
        render_mode: as in PettingZoo. If the class declares no modes, "ansi" returns the text that
            ``render`` prints or returns.

    Raises EnvironmentFault if the environment violates the rules of the interface.
    """
    if isinstance(env, type) or (callable(env) and not hasattr(env, "reset")):
        env = construct(env, env_config or {}, config=True)
    elif env_config:
        raise ValueError(
            f"env_config={env_config}: {short_name(env)} is already constructed; pass a class or "
            "omit env_config"
        )
    return ParallelOfMultiAgent(env, agents, max_cycles, render_mode)


class ParallelOfMultiAgent(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # no types
    """See ``from_multi_agent_env``; ``waiting`` holds the live agents that do not act now."""

    def __init__(
        self,
        env: Any,
        agents: Iterable[Hashable] | None = None,
        max_cycles: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.env, self.name = env, short_name(env)
        self.max_cycles = optional_int("max_cycles", max_cycles, least=1)
        self.render_mode = render_mode
        if not (callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None))):
            self._fault("reset() or step() is missing", "pass a class with RLlib's interface")
        self._started = False
        self._ids: dict[str, Any] = {}
        first, _ = self._first(None, None)
        agents = agents.split(",") if isinstance(agents, str) else agents  # --arg agents=a,b
        ids = list(agents) if agents is not None else _named_agents(env) or list(first)
        self._ids = {_name_of(id): id for id in ids}
        self._names = {id: name for name, id in self._ids.items()}
        if len(self._names) < len(ids) or not ids:
            self._fault(f"agents are {ids}", "list each agent once, and at least one agent")
        self.possible_agents = list(self._ids)
        self.agents: list[str] = []
        self._observation = {name: self._space("observation", name) for name in self._ids}
        self._action = {name: self._space("action", name) for name in self._ids}
        self._check_ids(first, "observations of reset()")
        self.waiting = frozenset(self._ids) - {self._names[id] for id in first}
        self.metadata = {
            "name": self.name,
            "is_parallelizable": not self.waiting,
            **self._render_metadata(),
        }
        if render_mode is not None and render_mode in (env.metadata or {}).get("render_modes", ()):
            env.render_mode = render_mode

    def observation_space(self, agent: str) -> Any:
        return self._observation[agent]

    def action_space(self, agent: str) -> Any:
        return self._action[agent]

    # --- Episodes --------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        observations, infos = self._first(seed, options)
        self._check_ids(observations, "observations of reset()")
        self._started, self._elapsed = True, 0
        self.agents = list(self.possible_agents)
        self._ended: set[Any] = set()
        self._last: dict[str, Any] = {}
        return self._agent_views(observations, infos, self.agents)

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        if not self._started:
            self._fault("step() before reset()", "call reset() first")
        acting = [name for name in self.agents if name not in self.waiting]
        observations, paid, ends, infos = self._play({self._ids[n]: actions[n] for n in acting})
        rewards = {self._ids[name]: paid.get(self._ids[name], 0.0) for name in self.agents}
        for _ in range(IDLE):
            if observations or any(ends[ALL]):
                break
            observations, paid, ends, infos = self._play({})
            for id, value in paid.items():
                rewards[id] += value
        else:
            self._fault(
                f"step() returned no observation {IDLE} times in a row",
                f'return observations of the agents that act next, or set dones["{ALL}"] to True',
            )
        self._elapsed += 1
        if self.max_cycles is None and self._elapsed > ENDLESS:
            self._fault(
                f"an episode has not ended after {ENDLESS:,} steps",
                "end the episode, or set a time limit: max_cycles= (--arg max_cycles=1000)",
            )
        before, cut = self.agents, self._elapsed == self.max_cycles
        terminations, truncations = {}, {}
        for name in before:
            terminated, truncated = ends.get(self._ids[name], (False, False))
            if not (terminated or truncated):
                terminated, truncated = ends[ALL]
            terminations[name] = terminated and not truncated
            truncations[name] = truncated or (cut and not terminated)
        self.agents = [n for n in before if not (terminations[n] or truncations[n])]
        self._ended |= {self._ids[name] for name in before if name not in self.agents}
        if not self.agents and not cut and not any(ends[ALL]):
            self._fault(
                f'all agents are done, but "{ALL}" is False',
                f'set dones["{ALL}"] (terminateds["{ALL}"]) to True at the end of the episode',
            )
        views, agent_infos = self._agent_views(observations, infos, before)
        named = {name: rewards[self._ids[name]] for name in before}
        return views, named, terminations, truncations, agent_infos

    def state(self) -> Any:
        """Return the global state, if the class has one."""
        return self.env.state()

    def render(self) -> Any:
        """Render the environment. For "ansi" without declared modes, return the printed text."""
        takes_mode = "mode" in inspect.signature(self.env.render).parameters
        arguments = {"mode": self.render_mode or "human"} if takes_mode else {}
        if self.render_mode != "ansi" or (self.env.metadata or {}).get("render_modes"):
            return self.env.render(**arguments)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            drawn = self.env.render(**arguments)
        return printed.getvalue() + (drawn if isinstance(drawn, str) else "")

    def close(self) -> None:
        if callable(close := getattr(self.env, "close", None)):
            close()

    # --- The interface of RLlib ------------------------------------------------------------------

    def _first(self, seed: int | None, options: Any) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        """Start an episode and return observations and infos by id."""
        parameters = inspect.signature(self.env.reset).parameters
        any_keyword = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        arguments = {"seed": seed, "options": options}
        passed = {k: value for k, value in arguments.items() if any_keyword or k in parameters}
        if seed is not None and "seed" not in passed and callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)  # as in the old gym
        answer = self.env.reset(**passed)
        observations, infos = answer if _is_tuple(answer, 2) else (answer, {})
        if not isinstance(observations, Mapping) or not observations:
            result = f"a {type(observations).__name__}" if observations != {} else "no observation"
            self._fault(f"reset() returned {result}", "return a dict with an observation per agent")
        return observations, infos if isinstance(infos, Mapping) else {}

    def _play(self, actions: dict[Any, Any]) -> tuple[Any, dict[Any, Any], dict[Any, Any], Any]:
        """Step with actions by id. Return observations, rewards, (terminated, truncated), infos."""
        answer = self.env.step(actions)
        if not (_is_tuple(answer, 4) or _is_tuple(answer, 5)):
            self._fault(
                f"step() returned {_brief(answer)}",
                "return obs, rewards, terminateds, truncateds, infos, or the 4 values with dones",
            )
        observations, rewards, ended, *cut, infos = answer
        cuts = cut[0] if cut else {}
        parts = ("observations", "rewards", "terminateds" if cut else "dones", "truncateds")
        for label, part in zip(parts, (observations, rewards, ended, cuts), strict=True):
            if not isinstance(part, Mapping):
                self._fault(f"step(): {label} are {_brief(part)}", "return a dict by agent")
            self._check_ids([id for id in part if id != ALL], f"{label} of step()")
        if ALL not in ended:
            self._fault(
                f'step(): "{ALL}" is missing in {parts[2]} {dict(ended)}',
                f'set {parts[2]}["{ALL}"] to True at the end of the episode, else to False',
            )
        infos = infos if isinstance(infos, Mapping) else {}
        ends = {}
        for id in {ALL, *ended, *cuts}:
            truncated = bool(cuts.get(id, False))
            if not cut and ended.get(id):  # a time limit in the old gym interface
                truncated = bool((infos.get(id) or {}).get("TimeLimit.truncated", False))
            ends[id] = (bool(ended.get(id, False)) and not truncated, truncated)
        for id in self._ended:
            if id in observations or rewards.get(id):
                result = "an observation" if id in observations else "a reward"
                self._fault(
                    f"step() returned {result} for {id!r}, which was done in an earlier step",
                    "leave out agents that are done, or set them to done later",
                )
        return observations, dict(rewards), ends, infos

    def _check_ids(self, ids: Iterable[Any], place: str) -> None:
        for id in ids:
            if id not in self._names:
                self._fault(
                    f"{id!r} is in the {place}, but not among the agents {list(self._names)}",
                    "list all possible agents in self.possible_agents, or pass agents=[...]",
                )

    def _agent_views(
        self, observations: Mapping[Any, Any], infos: Mapping[Any, Any], names: list[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the observations and infos of the agents ``names``."""
        self.waiting = frozenset(n for n in self.agents if self._ids[n] not in observations)
        views, agent_infos = {}, {}
        for name in names:
            id = self._ids[name]
            if id in observations:
                self._last[name] = observations[id]
            elif name not in self._last:
                self._last[name] = _blank(self._observation[name])
            own, info = self._last[name], dict(infos.get(id) or {})
            acts, action = name not in self.waiting, self._action[name]
            if not acts and isinstance(own, Mapping) and has_mask(self._observation[name]):
                own = {**own, MASK: np.zeros_like(own[MASK])}
            elif isinstance(action, spaces.Discrete) and not self.metadata["is_parallelizable"]:
                whole = np.full(int(action.n), acts, dtype=np.int8)
                info[MASK] = info.get(MASK, whole) if acts else whole
            views[name], agent_infos[name] = own, info
        return views, agent_infos

    # --- Parts -----------------------------------------------------------------------------------

    def _space(self, kind: str, name: str) -> spaces.Space[Any]:
        id = self._ids[name]
        getter = getattr(type(self.env), f"get_{kind}_space", None)
        own = getter is not None and getter is not getattr(MultiAgentEnv, f"get_{kind}_space")
        ours = ".multi_agent_env" in str(getattr(getter, "__module__", ""))  # RLlib's base class
        space = getattr(self.env, f"get_{kind}_space")(id) if own and not ours else None
        space = space_of(self.env, kind, id) if space is None else space
        if isinstance(space, spaces.Space):
            return space
        if space is None:
            self._fault(
                f"{id!r} has no {kind} space",
                f"in __init__, set self.{kind}_space (one space for all agents) or "
                f"self.{kind}_spaces (a dict by agent)",
            )
        if type(space).__module__.partition(".")[0] == "gym":
            self._fault(
                f"the {kind} space {space} belongs to the old gym package",
                "import it from gymnasium.spaces",
            )
        self._fault(
            f"the {kind} space of {id!r} is {_brief(space)}", "return a gymnasium.spaces.Space"
        )

    def _render_metadata(self) -> dict[str, Any]:
        metadata = dict(getattr(self.env, "metadata", None) or {})
        if not metadata.get("render_modes") and type(self.env).render is not MultiAgentEnv.render:
            metadata["render_modes"] = ["ansi"]
        return {key: metadata[key] for key in ("render_modes", "render_fps") if key in metadata}

    def _fault(self, fault: str, advice: str) -> NoReturn:
        raise EnvironmentFault.of(self.name, fault, advice)


def _named_agents(env: Any) -> list[Any]:
    """Return the agent ids that an environment declares before a reset; [] if it declares none."""
    for name in ("possible_agents", "observation_spaces", "agents", "_agent_ids"):
        ids = getattr(env, name, None)
        if isinstance(ids, Iterable) and not isinstance(ids, str) and len(list(ids)):
            return sorted(ids, key=str) if isinstance(ids, set) else list(ids)
    return []


def _name_of(agent: Hashable) -> str:
    return agent if isinstance(agent, str) else f"agent_{agent}"


def _blank(space: spaces.Space[Any]) -> Any:
    """Return the value of a space that is closest to zero."""
    if isinstance(space, spaces.Dict):
        return {key: _blank(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_blank(part) for part in space.spaces)
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, spaces.Discrete):
        return space.start
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.copy()
    return np.zeros(space.shape or (), space.dtype)


def _is_tuple(answer: Any, length: int) -> bool:
    return isinstance(answer, tuple | list) and len(answer) == length


def _brief(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"
