"""Reference policies and teams by name: opponents for training, and baselines for comparison.

``corral.registration`` names the module with the reference policies of an environment. In this
module, ``players_of(rules, agent)`` maps the names of the policies that can play ``agent`` to
functions that make them. The policy "random" can play any agent of any environment.

    player = reference_player("beat-last", make_rules("rps_v0"), "player_1")
    team = reference_team("nearest/still", make_rules("arena_v0"))

| environment | names of teams |
|---|---|
| all | random, and any other policy that can play all agents: beat-last in ``rps_v0`` |
| ``dfaas_v0`` | amounts of ``corral.envs.dfaas_v0.baselines``: overflow, ...; or overflow/two, |
| | if ``two`` is the route of the environment |
| other | the teams that the rules name: nearest/still in ``arena_v0``, greedy in ``tiles_v0`` |

Reference policies read only the observation of their agent, under the same conditions as a network.
Their actions are a function of the observation, of ``Decision.state`` and of ``rng``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from corral.envs.core import Rules
from corral.envs.policy import Policy, RandomPolicy
from corral.errors import InfeasibleError, UnknownNameError
from corral.extensions import extension

__all__ = [
    "Makers",
    "RandomPolicy",
    "player_names",
    "reference_player",
    "reference_players",
    "reference_team",
    "team_arguments",
    "team_names",
    "teams_of",
]

Makers = Mapping[str, Callable[[Any], Policy]]
"""Name -> a function that makes the policy for the rules passed to it."""


# --- Players -------------------------------------------------------------------------------------


def reference_player(name: str, rules: Rules[Any], agent: str) -> Policy:
    """Return the reference policy ``name`` for ``agent``.

    Raises UnknownNameError, with the nearest known name, if the agent has no policy of this name.
    Raises InfeasibleError if it cannot be computed for these rules, and ValueError for an unknown
    agent.
    """
    makers = _makers(rules, agent)
    if name not in makers:
        raise UnknownNameError.of(f"reference player of {rules.name}'s {agent}", name, makers)
    return makers[name](rules)


def player_names(rules: Rules[Any], agent: str) -> tuple[str, ...]:
    """Return the names that ``reference_player`` accepts for ``agent``. Raises ValueError."""
    return tuple(_makers(rules, agent))


def reference_players(
    rules: Rules[Any], agent: str
) -> tuple[dict[str, Policy], dict[str, InfeasibleError]]:
    """Return all reference policies for ``agent`` by name, "random" first; and errors by name.

    The errors are of policies that cannot be computed for these rules.
    """
    policies: dict[str, Policy] = {}
    infeasible: dict[str, InfeasibleError] = {}
    for name, make in _makers(rules, agent).items():
        try:
            policies[name] = make(rules)
        except InfeasibleError as error:
            infeasible[name] = error
    return policies, infeasible


def _makers(rules: Rules[Any], agent: str) -> Makers:
    if agent not in rules.agents:
        raise ValueError(f"agent {agent!r}: give one of {', '.join(rules.agents)}")
    module = _module(rules.name)
    of_module: Makers = {} if module is None else module.players_of(rules, agent)
    return {"random": lambda rules: RandomPolicy(), **of_module}


# --- Teams ---------------------------------------------------------------------------------------


def teams_of(rules: Rules[Any]) -> Mapping[str, Mapping[str, Policy]]:
    """Return the named reference teams of an environment: name -> agent -> policy; may be empty."""
    rules_teams: Callable[[], Any] | None = getattr(rules, "teams", None)
    if rules_teams is not None:
        return rules_teams()  # type: ignore[no-any-return]
    module = _module(rules.name)
    module_teams: Callable[[Any], Any] = getattr(module, "teams_of", lambda rules: {})
    return module_teams(rules)  # type: ignore[no-any-return]


def team_names(rules: Rules[Any]) -> tuple[str, ...]:
    """Return the names that ``reference_team`` accepts for these rules."""
    return tuple({**_uniform_teams(rules), **teams_of(rules)})


def reference_team(name: str, rules: Rules[Any]) -> dict[str, Policy]:
    """Return the team ``name``: agent -> policy.

    Raises UnknownNameError with the nearest known name. Raises ValueError if the name is a pair of
    dfaas_v0 with another route than that of the rules.
    """
    name, named, uniform = name.strip(), teams_of(rules), _uniform_teams(rules)
    if name in uniform and name not in named:
        return uniform[name]
    try:
        return dict(named[name])
    except KeyError:
        known = {*uniform, *named}
        raise UnknownNameError.of(f"team for {rules.name}", name, known) from None


def _uniform_teams(rules: Rules[Any]) -> dict[str, dict[str, Policy]]:
    """Return the teams in which all agents play policies of one name; "random" first."""
    players = {agent: reference_players(rules, agent)[0] for agent in rules.agents}
    return {
        name: {agent: policies[name] for agent, policies in players.items()}
        for name in players[rules.agents[0]]
        if all(name in policies for policies in players.values())
    }


def team_arguments(env: str, team: str) -> dict[str, Any]:
    """Return the environment arguments that a team's name sets, such as the route of a pair."""
    arguments: dict[str, Any] = getattr(_module(env), "arguments_of", lambda team: {})(team)
    return arguments


def _module(env: str) -> Any:
    """Return the module with the reference policies of an environment; None if it has no module."""
    return extension(f"players.{env}")
