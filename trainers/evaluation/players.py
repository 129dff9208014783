"""Teams at play: who plays which agent, greedily or by chance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from corral.envs.policy import PolicyLike, as_policy

__all__ = ["Player", "as_player"]


@dataclass(frozen=True)
class Player:
    """A team and how it plays."""

    team: Mapping[str, PolicyLike]  # one for each agent; several agents may share one
    deterministic: bool = True  # greedy; False: actions are sampled
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment that its observations and actions depend on, if others may have
    other ones: the scales of a load."""

    @property
    def mode(self) -> str:
        """ "greedy" or "sampled", as tables name it."""
        return "greedy" if self.deterministic else "sampled"


def as_player(
    player: Player | PolicyLike | Mapping[str, PolicyLike], agents: Sequence[str]
) -> Player:
    """Return a Player of all ``agents``: from a Player, a team, or one policy for everybody.

    A policy is whatever ``as_policy`` takes. It or a team alone plays greedily. The team of a run
    whose policy plays any number of agents plays these. Raises ValueError
    where a team's agents are not ``agents``, or one of its players is no policy.
    """
    if not isinstance(player, Player):
        player = Player(player if isinstance(player, Mapping) else dict.fromkeys(agents, player))
    anybody = getattr(player.team, "anybody", None)
    if anybody is not None and set(player.team) != set(agents):
        player = replace(player, team=dict.fromkeys(agents, anybody))
    if set(player.team) != set(agents):
        raise ValueError(
            f"a team of {len(player.team)} agents ({_some(player.team)}), but here are "
            f"{len(agents)} agents ({_some(agents)}); give one policy for each of these"
        )
    team = {agent: as_policy(one, agent, agents) for agent, one in player.team.items()}
    return replace(player, team=team)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:4] + ["..."] * (len(listed) > 4))
