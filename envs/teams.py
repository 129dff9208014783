"""Reference teams by name: what plays, and what a learned team is measured by.

| environment | names |
|---|---|
| all | random |
| ``dfaas_v0`` | amounts of ``corral.envs.baselines``: overflow, local, ...; or overflow/two, |
| | where ``two`` is the route that the environment was made with |
| ``arena_v0`` | pairs of ``corral.envs.arena_players``: nearest/still, random/chase, ... |
"""

from __future__ import annotations

from typing import Any

from corral.envs.arena_players import PAIRS, arena_team
from corral.envs.arena_v0 import ArenaRules
from corral.envs.baselines import AMOUNTS, baseline_team, split_pair
from corral.envs.core import Rules
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.policy import Policy, RandomPolicy
from corral.errors import UnknownNameError

__all__ = ["reference_team", "team_names"]


def team_names(rules: Rules[Any]) -> tuple[str, ...]:
    """The names that ``reference_team`` knows for these rules."""
    if isinstance(rules, ArenaRules):
        return ("random", *PAIRS)
    if isinstance(rules, DfaasRules):
        return tuple(AMOUNTS)
    return ("random",)


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
    if wanted == "random":
        return dict.fromkeys(rules.agents, RandomPolicy())
    if isinstance(rules, ArenaRules) and wanted in PAIRS:
        return arena_team(wanted, rules)
    raise UnknownNameError.of(f"team for {rules.name}", wanted, team_names(rules))
