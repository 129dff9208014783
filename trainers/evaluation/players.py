"""Players: a team of policies with its mode, greedy or sampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from corral.envs.policy import PolicyLike, as_policy
from corral.trainers.runs.run import RunPolicies

__all__ = ["Player", "as_player"]


@dataclass(frozen=True)
class Player:
    """A team and its mode of play."""

    team: Mapping[str, PolicyLike]  # one policy for each agent; several agents may share one
    deterministic: bool | None = None
    """True: greedy actions; False: sampled actions; None: as recorded for the policies of a run,
    else greedy actions."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment that determine the team's observations and actions, such as the
    scales of a load. They are set only if other players can have other values."""

    @property
    def greedy(self) -> bool:
        """Whether the team plays greedily."""
        if self.deterministic is not None:
            return self.deterministic
        return not isinstance(self.team, RunPolicies) or self.team.deterministic

    @property
    def mode(self) -> str:
        """Return "greedy" or "sampled", as in tables."""
        return "greedy" if self.greedy else "sampled"


def as_player(
    player: Player | PolicyLike | Mapping[str, PolicyLike], agents: Sequence[str]
) -> Player:
    """Return a Player for all ``agents`` from a Player, a team, or one policy for all agents.

    A policy is anything that ``as_policy`` takes. A policy or team without a Player plays greedily,
    and the policies of a run as recorded for it. If a run's policy can play any number of agents,
    it plays all ``agents``. Raises ValueError if the agents of a team differ from ``agents``, or
    one of its entries is not a policy.
    """
    if not isinstance(player, Player):
        player = Player(player if isinstance(player, Mapping) else dict.fromkeys(agents, player))
    player = replace(player, deterministic=player.greedy)
    shared = player.team.anybody if isinstance(player.team, RunPolicies) else None
    if shared is not None and set(player.team) != set(agents):
        player = replace(player, team=dict.fromkeys(agents, shared))
    if set(player.team) != set(agents):
        raise ValueError(
            f"the team has {len(player.team)} agents ({_some(player.team)}), but the environment "
            f"has {len(agents)} ({_some(agents)}). Pass one policy for each of these agents"
        )
    team = {agent: as_policy(one, agent, agents) for agent, one in player.team.items()}
    return replace(player, team=team)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:4] + ["..."] * (len(listed) > 4))
