"""Judge players of a zero-sum game seat by seat, against reference players in the other seat.

    scores = evaluate_seats(make_rules("tictactoe_v0"), {"mine": team}, episodes=1000)

The rewards of both players of such a game add up to 0: the return of a team says nothing. Each seat
is judged by itself, since moving first is another task than moving second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Rules
from corral.envs.policy import PolicyLike
from corral.envs.reference import reference_players
from corral.envs.registry import REGISTERED
from corral.trainers.evaluation.episodes import bootstrap_ratio, play_episodes
from corral.trainers.evaluation.players import Player, as_player

__all__ = ["SeatScore", "evaluate_seat", "evaluate_seats", "is_zero_sum"]


@dataclass(frozen=True)
class SeatScore:
    """The score of a policy in one seat against one opponent; means are over episodes."""

    policy: str
    mode: str  # "greedy", "sampled"; "" for reference players
    seat: str  # the agent that it played
    opponent: str  # who played the other agent
    return_seat: float  # mean return of the seat
    low: float | None  # 95 % bootstrap interval of return_seat over episodes
    high: float | None
    won: float  # share of the episodes with a return above 0
    drawn: float
    lost: float
    episodes: int
    mean_length: float  # steps
    illegal_actions: int  # masked actions that the seat chose, over all episodes
    kpis: dict[str, float]  # mean per episode of the seat's info, summed over steps


def is_zero_sum(rules: Rules[Any]) -> bool:
    """Return whether these are the rules of a zero-sum game of two, as the registry says."""
    spec = REGISTERED.get(rules.name)
    return spec is not None and spec.zero_sum and len(rules.agents) == 2


def evaluate_seat(
    rules: Rules[Any],
    seat: str,
    policy: PolicyLike,
    opponent: PolicyLike,
    *,
    episodes: int = 100,
    num_envs: int | None = None,
    seed: int = 0,
    deterministic: bool = True,
    labels: tuple[str, str, str] = ("policy", "", "opponent"),
) -> SeatScore:
    """Let ``policy`` play ``seat``, and ``opponent`` the other agent, for so many episodes.

    The opponent always plays with chance: a reference player that draws among equal moves shows
    more of the game. Seeds are as in ``corral.trainers.evaluation.episodes.play``.
    ``labels`` name the policy, its mode and the opponent in the score.

    Raises ValueError where the game is not one of two agents, or has no agent ``seat``.
    """
    if len(rules.agents) != 2 or seat not in rules.agents:
        raise ValueError(f"seat={seat!r}: the agents are {', '.join(rules.agents)}; give one of 2")
    other = next(agent for agent in rules.agents if agent != seat)
    played, illegal = play_episodes(
        rules,
        {seat: policy, other: opponent},
        {seat: deterministic, other: False},
        episodes=episodes,
        num_envs=num_envs,
        seed=seed,
    )
    i = rules.agents.index(seat)
    returns = played.returns[:, i]
    low, high = bootstrap_ratio(returns, np.ones(episodes))
    return SeatScore(
        policy=labels[0],
        mode=labels[1],
        seat=seat,
        opponent=labels[2],
        return_seat=float(returns.mean()),
        low=low,
        high=high,
        won=float((returns > 0).mean()),
        drawn=float((returns == 0).mean()),
        lost=float((returns < 0).mean()),
        episodes=episodes,
        mean_length=float(played.lengths.mean()),
        illegal_actions=int(illegal[i]),
        kpis={key: float(sums[:, i].mean()) for key, sums in played.infos.items()},
    )


def evaluate_seats(
    rules: Rules[Any],
    players: Mapping[str, Player | PolicyLike | Mapping[str, PolicyLike]],
    *,
    seats: Sequence[str] | None = None,
    episodes: int = 100,
    num_envs: int | None = None,
    seed: int = 0,
) -> list[SeatScore]:
    """Return ``evaluate_seat`` for each seat, each of ``players``, and each reference opponent.

    In every seat the reference players follow as rows of their own. ``seats``: those to judge;
    default: both. Reference players that are out of reach for these rules are left out, see
    ``corral.envs.reference.reference_players``.
    """
    plan: dict[str, Any] = {"episodes": episodes, "num_envs": num_envs, "seed": seed}
    scores = []
    for seat in rules.agents if seats is None else seats:
        other = next(agent for agent in rules.agents if agent != seat)
        opponents, _ = reference_players(rules, other)
        contestants = []
        for label, player in players.items():
            one = as_player(player, rules.agents)
            contestants.append((label, one.mode, one.team[seat], one.deterministic))
        own, _ = reference_players(rules, seat)
        contestants += [(name, "", policy, False) for name, policy in own.items()]
        for label, mode, policy, greedy in contestants:
            for name, opponent in opponents.items():
                labels = (label, mode, name)
                scores.append(
                    evaluate_seat(
                        rules, seat, policy, opponent, deterministic=greedy, labels=labels, **plan
                    )
                )
    return scores
