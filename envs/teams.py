"""Reference teams by name: what plays, and what a learned team is measured by.

| environment | names |
|---|---|
| all | random |
| ``dfaas_v0`` | amounts of ``corral.envs.dfaas_v0.baselines``: overflow, ...; or overflow/two, |
| | where ``two`` is the route that the environment was made with |
| others | their teams: nearest/still in ``arena_v0``, greedy in ``tiles_v0``, ...; or a |
| | reference player that can play every agent: beat-last in ``rps_v0`` |
"""

from __future__ import annotations

from typing import Any

from corral.envs.core import Rules
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import AMOUNTS, baseline_team, split_pair
from corral.envs.policy import Policy
from corral.envs.reference import reference_players, reference_teams
from corral.errors import UnknownNameError

__all__ = ["reference_team", "team_names"]


def team_names(rules: Rules[Any]) -> tuple[str, ...]:
    """The names that ``reference_team`` knows for these rules."""
    return tuple(AMOUNTS) if isinstance(rules, DfaasRules) else tuple(_teams(rules))


def reference_team(name: str, rules: Rules[Any]) -> dict[str, Policy]:
    """The team of that name, by agent.

    Raises UnknownNameError with the nearest known name, and ValueError where a pair of dfaas_v0
    names another route than the rules have.
    """
    wanted = name.strip()
    if isinstance(rules, DfaasRules):
        amount, route = split_pair(wanted)
        if "/" in wanted and route != rules.route:
            raise ValueError(
                f"{name}: the environment was made with route={rules.route!r}; make it with "
                f"route={route!r}, or give {amount!r}"
            )
        return baseline_team(amount, rules)
    teams = _teams(rules)
    if wanted not in teams:
        raise UnknownNameError.of(f"team for {rules.name}", wanted, teams)
    return teams[wanted]


def _teams(rules: Rules[Any]) -> dict[str, dict[str, Policy]]:
    """All of them; "random" is the first."""
    players = {agent: reference_players(rules, agent)[0] for agent in rules.agents}
    shared = [
        name for name in players[rules.agents[0]] if all(name in own for own in players.values())
    ]
    alike = {name: {agent: players[agent][name] for agent in rules.agents} for name in shared}
    return alike | reference_teams(rules)
