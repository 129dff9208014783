"""Who plays the seats that are not the learner's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from corral.adapters.seats import Seat
from corral.envs.core import Observation, Rules, generator
from corral.envs.policy import Decision, Memoryless, Policy, RandomPolicy
from corral.envs.registry import make_rules
from corral.errors import UnknownNameError

__all__ = ["Chooser", "Opponents", "other_seats", "reseed", "rules_of", "seat_of"]

Chooser = Callable[[Observation], int]
"""A legal action for one observation."""

Opponents = str | Policy | Chooser | Mapping[str, Policy | Chooser] | None
"""Who plays the other seats: a reference team's name (``corral.envs.reference``), one policy for
all, or a mapping from agents to policies, that of the learner's seat not being asked; None:
uniformly random legal play."""


def rules_of(env: str | Rules[Any], env_kwargs: Mapping[str, Any]) -> Rules[Any]:
    """The rules of an environment by name, or those given; arguments go with a name alone."""
    if isinstance(env, str):
        return make_rules(env, **env_kwargs)
    if env_kwargs:
        raise ValueError(f"arguments {sorted(env_kwargs)} need an environment's name, not rules")
    return env


def seat_of(rules: Rules[Any], seat: str | None) -> str:
    """The agent of that name; None: the first. UnknownNameError has the nearest known one."""
    if seat is not None and seat not in rules.agents:
        raise UnknownNameError.of(f"agent of {rules.name}", seat, rules.agents)
    return rules.agents[0] if seat is None else seat


def other_seats(
    rules: Rules[Any], seat: str, opponents: Opponents, num_envs: int, deterministic: bool
) -> dict[str, Seat]:
    """Who plays the seats but ``seat``, in so many copies.

    Raises ValueError where ``opponents`` leave an agent without a policy, UnknownNameError.
    """
    team: Mapping[str, Policy | Chooser]
    if opponents is None:
        team = dict.fromkeys(rules.agents, RandomPolicy())
    elif isinstance(opponents, str):
        from corral.envs.reference import reference_team  # brings pandas, which takes its time

        team = reference_team(opponents, rules)
    elif isinstance(opponents, Mapping):
        team = opponents
    else:
        team = dict.fromkeys(rules.agents, opponents)
    for agent in team:
        if agent not in rules.agents:
            raise UnknownNameError.of(f"agent of {rules.name}", str(agent), rules.agents)
    others = {}
    for i, agent in enumerate(rules.agents):
        if agent == seat:
            continue
        if agent not in team:
            raise ValueError(f"opponents: no policy for {agent} of {rules.name}; give one")
        others[agent] = Seat(
            agent,
            _policy(team[agent]),
            num_envs=num_envs,
            actions=rules.action_space(agent),
            rng=generator(None, "policy", i),
            deterministic=deterministic,
        )
    return others


def reseed(rules: Rules[Any], others: Mapping[str, Seat], seed: int) -> None:
    """The opponent in place i draws from ``generator(seed, "policy", i)`` from now on."""
    for agent, other in others.items():
        other.rng = generator(seed, "policy", rules.agents.index(agent))


def _policy(given: Policy | Chooser) -> Policy:
    return cast("Policy", given) if hasattr(given, "act") else _Chosen(given)


class _Chosen(Memoryless):
    """A function of one observation as a policy."""

    def __init__(self, choose: Chooser) -> None:
        self.choose = choose

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """One call for each observation of the batch."""
        rows = range(len(observation["action_mask"]))
        return Decision(np.array([self.choose(_row(observation, row)) for row in rows]))


def _row(value: Any, row: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _row(part, row) for key, part in value.items()}
    return value[row]
