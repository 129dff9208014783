"""Exercises on environments: 1, the loop of an episode; 12, the reward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pettingzoo.utils import BaseParallelWrapper

from corral.envs.core import Array
from corral.envs.registry import make
from corral.lab.course.exercise import Probe, exercise

__all__ = ["environment_loop", "reward_shaping"]

AGENTS = ("agent_1", "agent_2")

# --- 1: the environment loop ---------------------------------------------------------------------


def choose(agent: str, observation: Any) -> int:
    """Return an action that depends on the agent, on its field and on the other's."""
    own, other = observation["observation"].reshape(2, -1).argmax(axis=1).tolist()
    return int(own // 3 + other + (agent == "agent_2")) % 4


class EarlyLeave(BaseParallelWrapper):  # type: ignore[misc]  # PettingZoo ships no types
    """An arena_v0 that agent_2 leaves in its third step; agent_1 plays until the end."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        results = self.env.reset(seed=seed, options=options)
        self.agents = list(self.env.agents)
        return results

    def step(self, actions: dict[Any, Any]) -> Any:
        results = self.env.step({"agent_2": 0} | actions)  # it stays in the arena, with action 0
        observations, rewards, terminations, truncations, infos = (
            {agent: values[agent] for agent in self.agents} for values in results
        )
        self.steps += 1
        if self.steps == 3:
            terminations["agent_2"] = True
        self.agents = list(self.env.agents) if self.steps < 3 else self.env.agents[:1]
        return observations, rewards, terminations, truncations, infos

    def __str__(self) -> str:
        return f"{self.env}, without agent_2 after step 3"


def _episodes() -> list[Probe]:
    probes = [
        {
            "env": make("arena_v0", width=width, height=width, max_cycles=steps),
            "choose": choose,
            "seed": seed,
        }
        for seed, (width, steps) in enumerate(((4, 12), (3, 7), (10, 100), (4, 8)))
    ]
    probes[-1]["env"] = EarlyLeave(probes[-1]["env"])
    return probes


def _rewards(p: Probe) -> list[dict[str, float]]:
    """Play an episode; return the rewards of each step."""
    observations, _ = p["env"].reset(seed=p["seed"])
    steps = []
    while p["env"].agents:
        actions = {agent: p["choose"](agent, observations[agent]) for agent in p["env"].agents}
        observations, rewards, *_ = p["env"].step(actions)
        steps.append(rewards)
    return steps


def _of_agents(steps: list[dict[str, float]]) -> dict[str, list[float]]:
    return {agent: [step[agent] for step in steps if agent in step] for agent in AGENTS}


def _sums(steps: list[dict[str, float]]) -> dict[str, float]:
    return {agent: float(sum(rewards)) for agent, rewards in _of_agents(steps).items()}


def _until_first_end(p: Probe) -> dict[str, float]:
    steps = _rewards(p)
    return _sums(steps[: min(map(len, _of_agents(steps).values()))])


def _with_first_observations(choose: Callable[..., Any]) -> Callable[..., Any]:
    first: dict[str, Any] = {}
    return lambda agent, observation: choose(agent, first.setdefault(agent, observation))


def _with_one_action(choose: Callable[..., Any]) -> Callable[..., Any]:
    actions: list[Any] = []  # of agent_1, which comes first

    def repeat(agent: str, observation: Any) -> Any:
        actions.extend([choose(agent, observation)] * (agent == "agent_1"))
        return actions[-1]

    return repeat


environment_loop = exercise(
    1,
    _episodes,
    lambda p: _sums(_rewards(p)),
    {
        "last-reward": lambda p: {a: each[-1] for a, each in _of_agents(_rewards(p)).items()},
        "one-reward-for-both": lambda p: dict.fromkeys(AGENTS, _sums(_rewards(p))["agent_1"]),
        "team-return": lambda p: dict.fromkeys(AGENTS, sum(_sums(_rewards(p)).values())),
        "last-step-lost": lambda p: _sums(_rewards(p)[:-1]),
        "agents-that-leave": lambda p: {
            agent: sum(rewards[:-1]) for agent, rewards in _of_agents(_rewards(p)).items()
        },
        "first-end": _until_first_end,
        "first-observation": lambda p: _sums(
            _rewards(p | {"choose": _with_first_observations(p["choose"])})
        ),
        "one-action-for-both": lambda p: _sums(
            _rewards(p | {"choose": _with_one_action(p["choose"])})
        ),
    },
)

# --- 12: reward shaping --------------------------------------------------------------------------


def _shaped_episodes() -> list[Probe]:
    rng = np.random.default_rng(12)
    return [
        {
            "rewards": rng.integers(-1, 2, steps).astype(float),
            "potentials": rng.normal(2, 1, steps + 1).round(1),
            "terminated": terminated,
            "gamma": gamma,
        }
        for steps, terminated, gamma in ((4, False, 0.5), (4, True, 0.9), (1, True, 0.8))
    ]


def _bonus(p: Probe) -> Array:
    following = p["potentials"][1:].copy()
    following[-1] *= not p["terminated"]
    return np.asarray(p["gamma"] * following - p["potentials"][:-1])


def _end_unshaped(p: Probe) -> Array:
    return np.append((p["rewards"] + _bonus(p))[:-1], p["rewards"][-1])


reward_shaping = exercise(
    12,
    _shaped_episodes,
    lambda p: p["rewards"] + _bonus(p),
    {
        "bonus-per-step": (
            lambda p: p["rewards"] + p["potentials"][1:],
            lambda p: p["rewards"] + p["gamma"] * p["potentials"][1:],
            lambda p: p["rewards"] + p["potentials"][:-1],
        ),
        "without-gamma": (
            lambda p: p["rewards"] + _bonus(p | {"gamma": 1.0}),
            lambda p: p["rewards"] + _bonus(p | {"gamma": 1.0, "terminated": False}),
        ),
        "reversed": lambda p: p["rewards"] - _bonus(p),
        "potential-after-termination": lambda p: p["rewards"] + _bonus(p | {"terminated": False}),
        "rewards-not-added": (_bonus, lambda p: _bonus(p | {"terminated": False})),
        "truncation-as-termination": lambda p: p["rewards"] + _bonus(p | {"terminated": True}),
        "every-step-terminated": lambda p: (
            p["rewards"] - p["potentials"][:-1] if p["terminated"] else p["rewards"] + _bonus(p)
        ),
        "last-step-not-shaped": (
            lambda p: _end_unshaped(p) if p["terminated"] else p["rewards"] + _bonus(p),
            _end_unshaped,
        ),
    },
)
