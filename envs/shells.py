"""PettingZoo interfaces around the rules of an environment.

``ParallelShell`` is a ParallelEnv and ``TurnShell`` an AECEnv. They add only the parts that
PettingZoo requires: dicts by agent, the time limit, checks of actions, and rendering.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from corral.envs.arguments import optional_int
from corral.envs.core import (
    Array,
    Observation,
    Outcome,
    Rules,
    for_rendering,
    generator,
    with_limit,
)
from corral.envs.masks import MASK, checked_action, require_legal
from corral.errors import ActionError, IllegalActionWarning, ResetNeededError
from corral.hints import no_attribute

if TYPE_CHECKING:
    from corral.envs.render.window import Window


__all__ = ["Ordered", "ParallelShell", "TurnShell", "ordered", "warn_illegal"]


INSTEAD = {
    "seed": "pass the seed to reset: env.reset(seed=0)",
    "agent_iter last agent_selection observe": "in this ParallelEnv all agents act at once; make "
    'an AECEnv with corral.make(name, api="aec"), or with env() of its module',
    "dones done": "use terminations and truncations",
    "num_envs": "the environment is a single one; corral.adapters.make_batch makes several",
}
"""Attributes that a shell does not have, and what to use instead."""


class _Shell:
    """One environment (B = 1) of some rules: spaces, episode, checks and rendering.

    Three attributes may be set. ``max_cycles`` (the time limit; None: no limit) and ``np_random``
    (the generator of episodes) take effect in the next episode, ``render_mode`` in the next
    picture.
    """

    def __init__(
        self,
        rules: Rules[Any],
        render_mode: str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.rules = rules  # of this episode; a copy after ``max_cycles`` was set
        self.env_kwargs = env_kwargs  # arguments of registered rules
        self.render_mode = render_mode
        self.max_cycles = rules.max_cycles
        self.metadata: dict[str, Any] = {
            "name": rules.name,
            "render_modes": list(rules.render_modes),
            "is_parallelizable": rules.simultaneous,
            "render_fps": rules.render_fps,
        }
        self.possible_agents = list(rules.agents)
        self.agents: list[str] = []
        self.observation_spaces = {agent: rules.observation_space(agent) for agent in rules.agents}
        self.action_spaces = {agent: rules.action_space(agent) for agent in rules.agents}
        self.state_space = rules.state_space()
        self._sizes = {agent: int(space.n) for agent, space in self.action_spaces.items()}

        self.np_random: np.random.Generator = generator(None, "env")
        self._state: Any = None  # None before the first reset
        self._info: dict[str, Array] = {}  # [1, N] each
        self._observations: dict[str, Observation] = {}
        self._masks: dict[str, Array] = {}  # only if illegal="raise"
        self._elapsed = 0
        self._warned = False
        self._window: Window | None = None

    def _repr_html_(self) -> str:
        from corral.notebook import as_html  # late: only for notebooks

        play = "simultaneous" if self.rules.simultaneous else "in turns"
        facts = {"play": play, "max_cycles": self.max_cycles, "render mode": self.render_mode}
        rows = [
            (agent, str(self.observation_spaces[agent]), str(self.action_spaces[agent]))
            for agent in self.possible_agents
        ]
        columns = ["agent", "observation space", "action space"]
        return as_html(f"Environment {self.rules.name}", facts, columns, rows)

    @property
    def max_cycles(self) -> int | None:
        """The time limit of the next episodes, in steps."""
        return self._max_cycles

    @max_cycles.setter
    def max_cycles(self, value: int | None) -> None:
        self._max_cycles = optional_int("max_cycles", value, least=1)

    @property
    def render_mode(self) -> str | None:
        """The kind of picture: one of the rules' ``render_modes``, or None."""
        return self._render_mode

    @render_mode.setter
    def render_mode(self, value: str | None) -> None:
        if value is not None and value not in self.rules.render_modes:
            known = ", ".join(map(repr, self.rules.render_modes))
            raise ValueError(f"render_mode={value!r}: give one of {known}, or None")
        self._render_mode = value

    def observation_space(self, agent: str) -> gymnasium.spaces.Dict:
        """Return the space of an agent's observations. Raises KeyError for an unknown agent."""
        return self.observation_spaces[self._require_agent(agent)]

    def action_space(self, agent: str) -> gymnasium.spaces.Discrete:
        """Return the space of an agent's actions. Raises KeyError for an unknown agent."""
        return self.action_spaces[self._require_agent(agent)]

    def state(self) -> Array:
        """Return the global state: float32 [G]."""
        self._require_reset("state()")
        return np.asarray(self.rules.global_state(self._state)[0])

    def render(self) -> Any:
        """Draw the last step: text ("ansi"), uint8 [H, W, 3] ("rgb_array"), a window ("human")."""
        self._require_reset("render()")
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs a render_mode: pass it to the constructor")
            return None
        if self.render_mode != "human":
            return self.rules.render(self._state, self._info, self.render_mode)
        if self._window is None:
            from corral.envs.render.window import Window  # only needed for a window

            self._window = Window(self.rules.name, self.rules.render_fps)
        self._window.show(self.rules.render(self._state, self._info, "rgb_array"))
        return None

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None}  # a window cannot be pickled

    def __str__(self) -> str:
        return self.rules.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.rules.name}: {', '.join(self.possible_agents)}>"

    # --- Parts shared by both shells -------------------------------------------------------------

    if not TYPE_CHECKING:  # type checkers report unknown attributes themselves

        def __getattr__(self, name: str) -> Any:
            return no_attribute(self, name, INSTEAD)

    def _require_agent(self, agent: str) -> str:
        if agent not in self.possible_agents:
            agents = ", ".join(self.possible_agents)
            raise KeyError(f"no agent named {agent!r}; the agents are {agents}")
        return agent

    def _begin(self, seed: int | None) -> None:
        if seed is not None:
            self.np_random = generator(seed, "env")
        self.rules = with_limit(self.rules, self.max_cycles)
        if self.render_mode is not None:
            self.rules = for_rendering(self.rules)
        self._state = self.rules.start([self.np_random])
        self._info = self.rules.info(self._state)
        self._observe()
        self._elapsed = 0
        self.agents = list(self.possible_agents)

    def _advance(self, action: Array) -> tuple[Outcome[Any], bool]:
        """Play ``action`` [1, N]. Return the outcome, and whether the time limit is reached."""
        outcome = self.rules.step(self._state, action)
        self._state, self._info = outcome.state, outcome.info
        self._observe()
        self._elapsed += 1
        if not self._warned and self.rules.illegal == "penalise":
            self._warned = warn_illegal(self.rules, outcome.info)
        limit = self.rules.max_cycles
        return outcome, limit is not None and self._elapsed >= limit

    def _observe(self) -> None:
        """Store the observations of the current state."""
        self._observations = _first_copy(self.rules.observe(self._state))
        if self.rules.illegal == "raise":  # a copy: callers may change observations
            self._masks = {a: obs[MASK].copy() for a, obs in self._observations.items()}

    def _checked(self, agent: str, action: Any, acts: bool = True) -> int:
        number = checked_action(agent, action, self._sizes[agent])
        if acts and self.rules.illegal == "raise":
            require_legal(agent, number, self._masks[agent])
        return number

    def _infos(self) -> dict[str, dict[str, Any]]:
        """Return the info by agent, as plain Python numbers."""
        rows = zip(*(values[0].tolist() for values in self._info.values()), strict=True)
        return {
            agent: dict(zip(self._info, row, strict=True))
            for agent, row in zip(self.possible_agents, rows, strict=True)
        }

    def _require_reset(self, call: str) -> None:
        if self._state is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() before {call}")


class ParallelShell(_Shell, ParallelEnv[str, Observation, int]):
    """Rules as a PettingZoo ParallelEnv: every live agent acts in every step."""

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Begin an episode. Row 0 of a Batch with the same ``seed`` plays the same episode."""
        self._begin(seed)
        if self.render_mode == "human":
            self.render()
        return self._observations, self._infos()

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[
        dict[str, Observation],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Play one action per live agent.

        Raises ActionError or IllegalActionError before any change of state, and ResetNeededError.
        """
        self._require_reset("step()")
        if not self.agents:
            raise ResetNeededError(f"{self.rules.name}: the episode is over; call reset()")
        action = self._joint_action(actions)
        outcome, time_is_up = self._advance(action)

        live = self.agents
        indices = [self.possible_agents.index(agent) for agent in live]
        rewards, ended = outcome.reward[0].tolist(), outcome.terminated[0].tolist()
        reward = {agent: rewards[i] for agent, i in zip(live, indices, strict=True)}
        terminated = {agent: ended[i] for agent, i in zip(live, indices, strict=True)}
        truncated = {agent: time_is_up and not terminated[agent] for agent in live}
        infos = self._infos()
        self.agents = [a for a in live if not (terminated[a] or truncated[a])]
        if self.render_mode == "human":
            self.render()
        return (
            {agent: self._observations[agent] for agent in live},
            reward,
            terminated,
            truncated,
            {agent: infos[agent] for agent in live},
        )

    def _joint_action(self, actions: Mapping[str, int]) -> Array:
        """Return checked actions as int64 [1, N]; 0 for agents that do not act."""
        if not isinstance(actions, Mapping):
            raise ActionError(f"actions are {actions!r}; give a dict with one action per agent")
        for agent in actions:
            if agent not in self.agents:
                state = "has ended its episode" if agent in self.possible_agents else "is unknown"
                raise ActionError(f"{agent!r} {state}; give actions for {', '.join(self.agents)}")
        all_act = [True] * len(self.possible_agents)
        acting = all_act if self.rules.simultaneous else self.rules.acting(self._state)[0].tolist()
        joint = [0] * len(all_act)
        for i, agent in enumerate(self.possible_agents):
            if agent in actions:
                joint[i] = self._checked(agent, actions[agent], acting[i])
            elif acting[i] and agent in self.agents:
                raise ActionError(
                    f"no action for {agent}; give actions for {', '.join(self.agents)}"
                )
        return np.array([joint], dtype=np.int64)


class TurnShell(_Shell, AECEnv[str, Observation, int]):
    """Rules as a PettingZoo AECEnv: acting agents choose one after the other.

    If several agents act at once, their actions are collected, and played after the last one.
    """

    agent_selection: str

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode. Row 0 of a Batch with the same ``seed`` plays the same episode."""
        self._begin(seed)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = self._infos()
        self._skip_agent_selection = None  # PettingZoo's: the next agent after dead steps
        self._begin_turn()
        if self.render_mode == "human":
            self.render()

    def observe(self, agent: str) -> Observation:
        self._require_reset("observe()")
        return dict(self._observations[agent])  # a new dict, from which callers may remove the mask

    def step(self, action: int | None) -> None:
        """Play the selected agent's action; None for an agent that has ended its episode.

        Raises ActionError or IllegalActionError before any change of state, and ResetNeededError.
        """
        self._require_reset("step()")
        if not self.agents:
            raise ResetNeededError(f"{self.rules.name}: the episode is over; call reset()")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            _require_none(agent, action)
            self._was_dead_step(None)
            return
        self._joint[0, self.possible_agents.index(agent)] = self._checked(agent, action)
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._to_act.remove(agent)
        if self._to_act:
            self.agent_selection = self._to_act[0]
        else:
            self._finish_turn()

    def _begin_turn(self) -> None:
        acting = self.rules.acting(self._state)[0].tolist()
        self._to_act = [
            agent
            for agent, acts in zip(self.possible_agents, acting, strict=True)
            if acts and agent in self.agents and not self.terminations[agent]
        ]
        self._joint = np.zeros((1, len(self.possible_agents)), dtype=np.int64)
        self.agent_selection = self._to_act[0]

    def _finish_turn(self) -> None:
        outcome, time_is_up = self._advance(self._joint)
        rewards, ended = outcome.reward[0].tolist(), outcome.terminated[0].tolist()
        infos = self._infos()
        for i, agent in enumerate(self.possible_agents):
            if agent in self.agents:
                self.rewards[agent] = rewards[i]
                self.terminations[agent] = ended[i]
                self.truncations[agent] = time_is_up and not ended[i]
                self.infos[agent] = infos[agent]
        self._accumulate_rewards()
        if not all(self.terminations[a] or self.truncations[a] for a in self.agents):
            self._begin_turn()
        self._deads_step_first()
        if self.render_mode == "human":
            self.render()


class Ordered(OrderEnforcingWrapper):
    """PettingZoo's OrderEnforcingWrapper with errors in place of asserts, which ``-O`` removes."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set settable attributes of the environment on the environment itself."""
        settable = name in ("max_cycles", "np_random", "render_mode")
        object.__setattr__(self.env if settable else self, name, value)

    def _repr_html_(self) -> str:
        return str(self.unwrapped._repr_html_())

    def step(self, action: int | None) -> None:
        self._require_reset("step()")
        super().step(action)

    def observe(self, agent: str) -> Observation:
        self._require_reset("observe()")
        observation: Observation = super().observe(agent)
        return observation

    def state(self) -> Array:
        self._require_reset("state()")
        return np.asarray(super().state())

    def render(self) -> Any:
        self._require_reset("render()")
        return super().render()

    def _require_reset(self, call: str) -> None:
        if not self._has_reset:
            raise ResetNeededError(f"{self}: call reset() before {call}")


def ordered(env: AECEnv[str, Observation, int]) -> AECEnv[str, Observation, int]:
    """Wrap ``env`` in PettingZoo's wrapper that enforces the order of calls."""
    return Ordered(env)


def warn_illegal(rules: Rules[Any], info: Mapping[str, Array]) -> bool:
    """Warn and return True if ``info`` counts illegal actions ([B, N])."""
    illegal = info.get("illegal_actions")
    if illegal is None or not np.count_nonzero(illegal):
        return False
    agents = [rules.agents[i] for i in np.flatnonzero(illegal.any(axis=0))]
    warnings.warn(
        f"{rules.name}: {', '.join(agents)} played an action that the mask forbids. The policy "
        f'ignores observation["{MASK}"]: mask its logits, or sample with '
        "action_space.sample(mask). The environment applies its penalty; pass "
        'illegal="raise" to raise an error instead. Further illegal actions are only counted, '
        "in info.",
        IllegalActionWarning,
        stacklevel=_callers_level(),
    )
    return True


def _callers_level() -> int:
    """Return the ``stacklevel`` of the first caller outside of corral and PettingZoo."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals["__name__"].startswith(("corral.", "pettingzoo.")):
        level, frame = level + 1, frame.f_back
    return level


def _require_none(agent: str, action: object) -> None:
    if action is not None:
        raise ActionError(f"{agent} has ended its episode; give action None, not {action!r}")


def _first_copy(observations: Mapping[str, Observation]) -> dict[str, Observation]:
    """Return batched observations without the axis B."""
    return {agent: _first(observation) for agent, observation in observations.items()}


def _first(value: Any) -> Any:
    return {k: _first(v) for k, v in value.items()} if isinstance(value, dict) else value[0]
