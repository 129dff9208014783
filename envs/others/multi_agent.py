"""Classes written for RLlib's MultiAgentEnv, without Ray: as PettingZoo's ParallelEnv.

    from corral.adapters import MultiAgentEnv  # instead of ray.rllib.env.multi_agent_env

    class MyEnv(MultiAgentEnv): ...

    env = from_multi_agent_env(MyEnv, {"width": 5})

Both forms of the interface are taken: ``reset() -> obs`` and ``step -> obs, rewards, dones,
infos``, or ``reset(seed=, options=) -> obs, infos`` and ``step -> obs, rewards, terminateds,
truncateds, infos``. Who is in the observations acts next. A parallel environment of PettingZoo
shows all live agents in every step: those who are not observed show what they observed last, wait,
and are paid as they earn.
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
from corral.envs.others.calls import called, short_name
from corral.errors import EnvironmentFault

__all__ = ["ParallelOfMultiAgent", "from_multi_agent_env"]

ALL = "__all__"

IDLE = 1_000
"""Steps in a row in which an environment may observe nobody."""

ENDLESS = 10_000
"""Steps after which an episode counts as one that never ends, where no max_cycles is given."""


def from_multi_agent_env(
    env: Any,
    env_config: Mapping[str, Any] | None = None,
    *,
    agents: Iterable[Hashable] | None = None,
    max_cycles: int | None = None,
    render_mode: str | None = None,
) -> ParallelEnv[str, Any, Any]:
    """Return an environment with RLlib's multi-agent interface as a ParallelEnv.

    Args:
        env: a class, a function that makes one, or one that is made.
        env_config: is given to the class or function as its one argument, as RLlib does.
        agents: the ids of all that may come; None: those that the environment names in
            ``possible_agents``, ``observation_spaces`` or ``agents``, else those of its first
            reset. A string names them with commas. An id that is no string gets a name: 0 is
            agent_0.
        max_cycles: steps after which an episode is cut, for one that never ends by itself.
        render_mode: as for PettingZoo; where its class names no modes, "ansi" is what ``render``
            prints or returns.

    Raises EnvironmentFault, in words of its class, where it breaks the rules of the interface.
    """
    if isinstance(env, type) or (callable(env) and not hasattr(env, "reset")):
        env = called(env, env_config or {}, config=True)
    elif env_config:
        raise ValueError(f"env_config={env_config}: {short_name(env)} is made already")
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
            self._fault("it has no reset and step", "give a class with RLlib's interface")
        self._started = False
        self._ids: dict[str, Any] = {}
        first, _ = self._first(None, None)
        agents = agents.split(",") if isinstance(agents, str) else agents  # --arg agents=a,b
        ids = list(agents) if agents is not None else _named_agents(env) or list(first)
        self._ids = {_name_of(each): each for each in ids}
        self._names = {each: name for name, each in self._ids.items()}
        if len(self._names) < len(ids) or not ids:
            self._fault(f"agents are {ids}", "name each once")
        self.possible_agents = list(self._ids)
        self.agents: list[str] = []
        self._observation = {name: self._space("observation", name) for name in self._ids}
        self._action = {name: self._space("action", name) for name in self._ids}
        self._known(first, "observations of reset()")
        self.waiting = frozenset(self._ids) - {self._names[each] for each in first}
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
        self._known(observations, "observations of reset()")
        self._started, self._elapsed = True, 0
        self.agents = list(self.possible_agents)
        self._ended: set[Any] = set()
        self._last: dict[str, Any] = {}
        return self._shown(observations, infos, self.agents)

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
            for each, value in paid.items():
                rewards[each] += value
        else:
            self._fault(
                f"step() observed nobody {IDLE} times in a row",
                f'put who is to act into the observations, or set dones["{ALL}"] to True',
            )
        self._elapsed += 1
        if self.max_cycles is None and self._elapsed > ENDLESS:
            self._fault(
                f"an episode goes on after {ENDLESS:,} steps",
                "let it end, or give max_cycles= (--arg max_cycles=1000), after which it is cut",
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
                f'every agent is done, and "{ALL}" is not',
                f'set dones["{ALL}"] (terminateds["{ALL}"]) to True when the episode is over',
            )
        shown, told = self._shown(observations, infos, before)
        named = {name: rewards[self._ids[name]] for name in before}
        return shown, named, terminations, truncations, told

    def state(self) -> Any:
        """Return the global state of a class that has one."""
        return self.env.state()

    def render(self) -> Any:
        """Return the class's picture; what it prints where it names no modes."""
        takes_mode = "mode" in inspect.signature(self.env.render).parameters
        words = {"mode": self.render_mode or "human"} if takes_mode else {}
        if self.render_mode != "ansi" or (self.env.metadata or {}).get("render_modes"):
            return self.env.render(**words)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            drawn = self.env.render(**words)
        return printed.getvalue() + (drawn if isinstance(drawn, str) else "")

    def close(self) -> None:
        if callable(close := getattr(self.env, "close", None)):
            close()

    # --- The interface of RLlib ------------------------------------------------------------------

    def _first(self, seed: int | None, options: Any) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        """Begin an episode; return observations and infos by id."""
        known = inspect.signature(self.env.reset).parameters
        every = any(each.kind is each.VAR_KEYWORD for each in known.values())
        asked = {"seed": seed, "options": options}
        given = {key: value for key, value in asked.items() if every or key in known}
        if seed is not None and "seed" not in given and callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)  # as in the old gym
        answer = self.env.reset(**given)
        observations, infos = answer if _is_tuple(answer, 2) else (answer, {})
        if not isinstance(observations, Mapping) or not observations:
            said = f"a {type(observations).__name__}" if observations != {} else "no observation"
            self._fault(f"reset() gave {said}", "give a dict of observations by agent, not empty")
        return observations, infos if isinstance(infos, Mapping) else {}

    def _play(self, actions: dict[Any, Any]) -> tuple[Any, dict[Any, Any], dict[Any, Any], Any]:
        """Play actions by id; return observations, rewards, (terminated, truncated) and infos."""
        answer = self.env.step(actions)
        if not (_is_tuple(answer, 4) or _is_tuple(answer, 5)):
            self._fault(
                f"step() gave {_brief(answer)}",
                "give obs, rewards, terminateds, truncateds, infos, or obs, rewards, dones, infos",
            )
        observations, rewards, ended, *cut, infos = answer
        cuts = cut[0] if cut else {}
        parts = ("observations", "rewards", "terminateds" if cut else "dones", "truncateds")
        for what, part in zip(parts, (observations, rewards, ended, cuts), strict=True):
            if not isinstance(part, Mapping):
                self._fault(f"step(): {what} are {_brief(part)}", "give a dict by agent")
            self._known([each for each in part if each != ALL], f"{what} of step()")
        if ALL not in ended:
            self._fault(
                f'step(): {parts[2]} {dict(ended)} lack "{ALL}"',
                f'set {parts[2]}["{ALL}"] to True when the episode is over, else to False',
            )
        infos = infos if isinstance(infos, Mapping) else {}
        ends = {}
        for each in {ALL, *ended, *cuts}:
            truncated = bool(cuts.get(each, False))
            if not cut and ended.get(each):  # the old gym's way to tell a time limit
                truncated = bool((infos.get(each) or {}).get("TimeLimit.truncated", False))
            ends[each] = (bool(ended.get(each, False)) and not truncated, truncated)
        for each in self._ended:
            if each in observations or rewards.get(each):
                what = "an observation" if each in observations else "a reward"
                self._fault(
                    f"step() gave {what} of {each!r}, which was done in an earlier step",
                    "leave out who is done, or do not let it be done yet",
                )
        return observations, dict(rewards), ends, infos

    def _known(self, ids: Iterable[Any], where: str) -> None:
        for each in ids:
            if each not in self._names:
                self._fault(
                    f"{each!r} is in the {where}, and is none of its agents {list(self._names)}",
                    "name all that may come in self.possible_agents, or give agents=[...]",
                )

    def _shown(
        self, observations: Mapping[Any, Any], infos: Mapping[Any, Any], names: list[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the agents ``names`` observe, and their infos."""
        self.waiting = frozenset(n for n in self.agents if self._ids[n] not in observations)
        shown, told = {}, {}
        for name in names:
            each = self._ids[name]
            if each in observations:
                self._last[name] = observations[each]
            elif name not in self._last:
                self._last[name] = _blank(self._observation[name])
            own, info = self._last[name], dict(infos.get(each) or {})
            acts, action = name not in self.waiting, self._action[name]
            if not acts and isinstance(own, Mapping) and has_mask(self._observation[name]):
                own = {**own, MASK: np.zeros_like(own[MASK])}
            elif isinstance(action, spaces.Discrete) and not self.metadata["is_parallelizable"]:
                whole = np.full(int(action.n), acts, dtype=np.int8)
                info[MASK] = info.get(MASK, whole) if acts else whole
            shown[name], told[name] = own, info
        return shown, told

    # --- Parts -----------------------------------------------------------------------------------

    def _space(self, kind: str, name: str) -> spaces.Space[Any]:
        each = self._ids[name]
        getter = getattr(type(self.env), f"get_{kind}_space", None)
        own = getter is not None and getter is not getattr(MultiAgentEnv, f"get_{kind}_space")
        ours = ".multi_agent_env" in str(getattr(getter, "__module__", ""))  # RLlib's own
        found = getattr(self.env, f"get_{kind}_space")(each) if own and not ours else None
        found = space_of(self.env, kind, each) if found is None else found
        if isinstance(found, spaces.Space):
            return found
        if found is None:
            self._fault(
                f"there is no {kind} space of {each!r}",
                f"set self.{kind}_space, one for all agents, or self.{kind}_spaces, a dict by "
                "agent, in __init__",
            )
        if type(found).__module__.partition(".")[0] == "gym":
            self._fault(
                f"the {kind} space {found} is one of the old gym",
                "import it from gymnasium.spaces",
            )
        self._fault(
            f"the {kind} space of {each!r} is {_brief(found)}", "give a gymnasium.spaces.Space"
        )

    def _render_metadata(self) -> dict[str, Any]:
        own = dict(getattr(self.env, "metadata", None) or {})
        if not own.get("render_modes") and type(self.env).render is not MultiAgentEnv.render:
            own["render_modes"] = ["ansi"]
        return {key: own[key] for key in ("render_modes", "render_fps") if key in own}

    def _fault(self, what: str, advice: str) -> NoReturn:
        raise EnvironmentFault.of(self.name, what, advice)


def _named_agents(env: Any) -> list[Any]:
    """Return the ids that an environment names beforehand; [] where it names none."""
    for name in ("possible_agents", "observation_spaces", "agents", "_agent_ids"):
        found = getattr(env, name, None)
        if isinstance(found, Iterable) and not isinstance(found, str) and len(list(found)):
            return sorted(found, key=str) if isinstance(found, set) else list(found)
    return []


def _name_of(agent: Hashable) -> str:
    return agent if isinstance(agent, str) else f"agent_{agent}"


def _blank(space: spaces.Space[Any]) -> Any:
    """Return the value of a space that is nearest to zeros."""
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
