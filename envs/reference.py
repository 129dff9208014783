"""Reference players by name: what learned policies are judged beside, and may train against.

An environment's entry in the registry names the module that holds its reference players; there
``players_of(rules, agent)`` gives what can play that agent, name -> what makes it. "random" can
play any agent of any environment.

    player = reference_player("beat-last", make_rules("rps_v0"), "player_1")

All of them read nothing but the agent's own observation, under the same conditions as a network.
What they play is a function of it, of what they remember (``Decision.state``) and of the ``rng``
that they are given.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from corral.envs.core import Rules
from corral.envs.policy import Policy, RandomPolicy
from corral.envs.registry import REGISTERED
from corral.errors import InfeasibleError, UnknownNameError

__all__ = [
    "Makers",
    "RandomPolicy",
    "reference_player",
    "reference_players",
    "reference_teams",
    "team_arguments",
]

Makers = Mapping[str, Callable[[Any], Policy]]
"""name -> what makes that player for given rules."""


def reference_player(name: str, rules: Rules[Any], agent: str) -> Policy:
    """The reference player of that name for ``agent``.

    Raises UnknownNameError, with the nearest known name, where the agent has none of that name;
    InfeasibleError where it is out of reach for these rules; ValueError for an unknown agent.
    """
    makers = _makers(rules, agent)
    if name not in makers:
        raise UnknownNameError.of(f"reference player of {rules.name}'s {agent}", name, makers)
    return makers[name](rules)


def reference_players(
    rules: Rules[Any], agent: str
) -> tuple[dict[str, Policy], dict[str, InfeasibleError]]:
    """All reference players for ``agent`` by name, "random" first; and those that are out of reach
    for these rules, with the reason."""
    made: dict[str, Policy] = {}
    left_out: dict[str, InfeasibleError] = {}
    for name, make in _makers(rules, agent).items():
        try:
            made[name] = make(rules)
        except InfeasibleError as error:
            left_out[name] = error
    return made, left_out


def reference_teams(rules: Rules[Any]) -> dict[str, dict[str, Policy]]:
    """Teams of reference players by name, where the environment says which go together."""
    module = _module(rules.name)
    teams: dict[str, dict[str, Policy]] = getattr(module, "teams_of", lambda rules: {})(rules)
    return teams


def team_arguments(env: str, team: str) -> dict[str, Any]:
    """Return the arguments that a team's name says the environment is made with."""
    arguments: dict[str, Any] = getattr(_module(env), "arguments_of", lambda team: {})(team)
    return arguments


def _makers(rules: Rules[Any], agent: str) -> Makers:
    if agent not in rules.agents:
        raise ValueError(f"agent {agent!r}: give one of {', '.join(rules.agents)}")
    module = _module(rules.name)
    own: Makers = {} if module is None else module.players_of(rules, agent)
    return {"random": lambda rules: RandomPolicy(), **own}


def _module(env: str) -> Any:
    """Return the module with the reference players of an environment; None where there is none."""
    spec = REGISTERED.get(env)
    if spec is None or spec.players is None:
        return None
    return importlib.import_module(f"corral.envs.{spec.players}")
