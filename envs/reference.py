"""Reference players and teams by name: opponents to train against, rows to be judged beside.

An environment's entry in the registry names the module with its reference players; there
``players_of(rules, agent)`` maps the names of those that can play ``agent`` to what makes them.
"random" can play any agent of any environment.

    player = reference_player("beat-last", make_rules("rps_v0"), "player_1")
    team = reference_team("nearest/still", make_rules("arena_v0"))

| environment | names of teams |
|---|---|
| all | random, and every other player that can play all agents: beat-last in ``rps_v0`` |
| ``dfaas_v0`` | amounts of ``corral.envs.dfaas_v0.baselines``: overflow, ...; or overflow/two, |
| | where ``two`` is the route that the environment was made with |
| others | the teams that their rules name: nearest/still in ``arena_v0``, greedy in ``tiles_v0`` |

All of them read nothing but the agent's own observation, under the same conditions as a network.
What they play is a function of it, of ``Decision.state`` and of the ``rng`` passed to them.
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
    "player_names",
    "reference_player",
    "reference_players",
    "reference_team",
    "team_arguments",
    "team_names",
    "teams_of",
]

Makers = Mapping[str, Callable[[Any], Policy]]
"""Name -> a function that makes that player for given rules."""


# --- Players -------------------------------------------------------------------------------------


def reference_player(name: str, rules: Rules[Any], agent: str) -> Policy:
    """Return the reference player of that name for ``agent``.

    Raises UnknownNameError, with the nearest known name, where the agent has none of that name;
    InfeasibleError where it is out of reach for these rules; ValueError for an unknown agent.
    """
    makers = _makers(rules, agent)
    if name not in makers:
        raise UnknownNameError.of(f"reference player of {rules.name}'s {agent}", name, makers)
    return makers[name](rules)


def player_names(rules: Rules[Any], agent: str) -> tuple[str, ...]:
    """Return the names that ``reference_player`` knows for ``agent``. Raises ValueError."""
    return tuple(_makers(rules, agent))


def reference_players(
    rules: Rules[Any], agent: str
) -> tuple[dict[str, Policy], dict[str, InfeasibleError]]:
    """Return all reference players for ``agent`` by name, "random" first; and the reasons of those
    that are out of reach for these rules."""
    made: dict[str, Policy] = {}
    left_out: dict[str, InfeasibleError] = {}
    for name, make in _makers(rules, agent).items():
        try:
            made[name] = make(rules)
        except InfeasibleError as error:
            left_out[name] = error
    return made, left_out


def _makers(rules: Rules[Any], agent: str) -> Makers:
    if agent not in rules.agents:
        raise ValueError(f"agent {agent!r}: give one of {', '.join(rules.agents)}")
    module = _module(rules.name)
    own: Makers = {} if module is None else module.players_of(rules, agent)
    return {"random": lambda rules: RandomPolicy(), **own}


# --- Teams ---------------------------------------------------------------------------------------


def teams_of(rules: Rules[Any]) -> Mapping[str, Mapping[str, Policy]]:
    """Return the reference teams that an environment has by names of its own; others have none."""
    own: Callable[[], Any] | None = getattr(rules, "teams", None)
    if own is not None:
        return own()  # type: ignore[no-any-return]
    module = _module(rules.name)
    of_rules: Callable[[Any], Any] = getattr(module, "teams_of", lambda rules: {})
    return of_rules(rules)  # type: ignore[no-any-return]


def team_names(rules: Rules[Any]) -> tuple[str, ...]:
    """Return the names that ``reference_team`` knows for these rules."""
    return tuple({**_uniform_teams(rules), **teams_of(rules)})


def reference_team(name: str, rules: Rules[Any]) -> dict[str, Policy]:
    """Return the team of that name, by agent.

    Raises UnknownNameError with the nearest known name, and ValueError where a pair of dfaas_v0
    names another route than the rules have.
    """
    wanted, own, uniform = name.strip(), teams_of(rules), _uniform_teams(rules)
    if wanted in uniform and wanted not in own:
        return uniform[wanted]
    try:
        return dict(own[wanted])
    except KeyError:
        known = {*uniform, *own}
        raise UnknownNameError.of(f"team for {rules.name}", wanted, known) from None


def _uniform_teams(rules: Rules[Any]) -> dict[str, dict[str, Policy]]:
    """Return the teams of players of one name, where it can play all agents; "random" first."""
    players = {agent: reference_players(rules, agent)[0] for agent in rules.agents}
    return {
        name: {agent: own[name] for agent, own in players.items()}
        for name in players[rules.agents[0]]
        if all(name in own for own in players.values())
    }


def team_arguments(env: str, team: str) -> dict[str, Any]:
    """Return the arguments that a team's name says the environment is made with."""
    arguments: dict[str, Any] = getattr(_module(env), "arguments_of", lambda team: {})(team)
    return arguments


def _module(env: str) -> Any:
    """Return the module with the reference players of an environment; None where there is none."""
    spec = REGISTERED.get(env)
    if spec is None or spec.players is None:
        return None
    return importlib.import_module(f"corral.envs.{spec.players}")
