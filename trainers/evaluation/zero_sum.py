"""Evaluate players of a zero-sum game seat by seat, against players of the other seat.

    scores = evaluate_seats(make_rules("tictactoe_v0"), {"mine": team}, episodes=1000)

In a zero-sum game the returns of both players add up to 0, or to another constant, so the team
return carries no information. Each seat is evaluated separately, because moving first and moving
second are different tasks. For environments of corral the registry marks zero-sum games. For
third-party environments the played episodes show it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.adapters.seats import random_policy
from corral.envs.core import Array, Rules
from corral.envs.episode_stats import EndedEpisodes
from corral.envs.policy import Policy, PolicyLike
from corral.envs.reference import reference_players
from corral.envs.registry import REGISTERED
from corral.progress import Progress
from corral.trainers.evaluation.episodes import bootstrap_ratio, play_episodes
from corral.trainers.evaluation.players import Player, as_player

__all__ = [
    "SAME",
    "SeatScore",
    "constant_sum",
    "evaluate_seat",
    "evaluate_seats",
    "is_constant_sum",
    "is_zero_sum",
    "seat_players",
    "sum_in_words",
]

SAME = 1e-5
"""Tolerance for equal sums of rewards, in units of the largest return: rewards are float32, and a
return sums many of them."""


@dataclass(frozen=True)
class SeatScore:
    """The score of a policy in one seat against one opponent; means are over episodes."""

    policy: str
    mode: str  # "greedy", "sampled"; "" for reference players
    seat: str  # the agent played by the policy
    opponent: str  # the player of the other agent
    return_seat: float  # mean return of the seat
    low: float | None  # 95 % bootstrap interval of return_seat over episodes
    high: float | None
    won: float  # share of episodes with a return above a draw (0, or half the constant sum)
    drawn: float
    lost: float
    episodes: int
    mean_length: float  # steps
    illegal_actions: int  # number of masked actions chosen by the seat, over all episodes
    kpis: dict[str, float]  # mean per episode of the seat's info values, summed over steps


def is_zero_sum(rules: Rules[Any]) -> bool:
    """Return True if the registry lists these rules as a zero-sum game of two agents."""
    spec = REGISTERED.get(rules.name)
    return spec is not None and spec.zero_sum and len(rules.agents) == 2


def constant_sum(returns: Array) -> float | None:
    """Return the constant sum of the ``returns`` [E, N] of all agents in E episodes.

    None if the sum varies, or if each agent's return is the same in all episodes (then the agents
    share nothing).
    """
    sums, largest = returns.sum(axis=1), max(1e-9, float(np.abs(returns).max()))
    if np.ptp(sums) > SAME * largest or np.ptp(returns, axis=0).max() <= SAME * largest:
        return None
    middle = float(np.median(sums))
    return round(middle, 6) + 0.0  # avoids -0.0


def is_constant_sum(rules: Rules[Any], returns: Array) -> bool:
    """Return True if the returns of all agents always add up to the same constant.

    The registry may say so; otherwise mean ``returns`` [U, N] of episodes must show it.
    """
    if is_zero_sum(rules):
        return True
    if not len(returns):
        return False
    zero = abs(returns.sum(axis=1)).max() <= SAME * abs(returns).max()  # also for one row
    return constant_sum(returns) is not None or bool(zero and returns.any())


def sum_in_words(returns: Array) -> str:
    """Return a sentence on the sum of the ``returns`` [E, N] of all agents in E episodes."""
    episodes, agents = returns.shape
    players = "both agents" if agents == 2 else f"all {agents} agents"
    total = constant_sum(returns)
    sums = returns.sum(axis=1)
    text = f"{sums.min():.4g} to {sums.max():.4g}" if total is None else f"{total:.4g}"
    return f"The rewards of {players} sum to {text} in all {episodes:,} played episodes."


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
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
    draw: float = 0.0,
    on_played: Callable[[EndedEpisodes], None] = lambda played: None,
) -> SeatScore:
    """Play ``episodes`` episodes with ``policy`` in ``seat`` and ``opponent`` as the other agent.

    The opponent always samples its actions: a reference player that draws among equally good moves
    shows more of the game. Seeds are as in ``corral.trainers.evaluation.episodes.play``.
    ``labels`` are the names of the policy, its mode and the opponent in the score. ``draw`` is the
    return of each player in a draw. For ``workers``, ``progress`` and ``on_played`` see
    ``corral.trainers.evaluation.scores.evaluate_team``.

    Raises ValueError if the game does not have two agents, or has no agent ``seat``.
    """
    if len(rules.agents) != 2 or seat not in rules.agents:
        raise ValueError(f"seat={seat!r}: pass one of 2 agents, here {', '.join(rules.agents)}")
    other = next(agent for agent in rules.agents if agent != seat)
    played, illegal = play_episodes(
        rules,
        {seat: policy, other: opponent},
        {seat: deterministic, other: False},
        episodes=episodes,
        num_envs=num_envs,
        seed=seed,
        workers=workers,
        progress=functools.partial(progress, f"{labels[0]} as {seat}"),
    )
    on_played(played)
    i = rules.agents.index(seat)
    returns = played.returns[:, i]
    apart = SAME * abs(draw)  # 0 if a draw pays 0
    low, high = bootstrap_ratio(returns, np.ones(episodes))
    return SeatScore(
        policy=labels[0],
        mode=labels[1],
        seat=seat,
        opponent=labels[2],
        return_seat=float(returns.mean()),
        low=low,
        high=high,
        won=float((returns > draw + apart).mean()),
        drawn=float((abs(returns - draw) <= apart).mean()),
        lost=float((returns < draw - apart).mean()),
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
    others: Mapping[str, Mapping[str, Policy]] | None = None,
    episodes: int = 100,
    num_envs: int | None = None,
    seed: int = 0,
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
    draw: float = 0.0,
    on_played: Callable[[EndedEpisodes], None] = lambda played: None,
) -> list[SeatScore]:
    """Run ``evaluate_seat`` for each seat, each player and each opponent.

    The opponents are the reference players and the teams in ``others``, by name. In each seat, the
    reference players also get rows. ``seats``: the seats to evaluate; default: both. Reference
    players that are infeasible for these rules are left out, see
    ``corral.envs.reference.reference_players``.
    """
    plan: dict[str, Any] = {"episodes": episodes, "num_envs": num_envs, "seed": seed}
    plan |= {"workers": workers, "progress": progress, "draw": draw, "on_played": on_played}
    scores = []
    for seat in rules.agents if seats is None else seats:
        other = next(agent for agent in rules.agents if agent != seat)
        opponents = seat_players(rules, other)
        opponents |= {name: team[other] for name, team in (others or {}).items()}
        contestants = []
        for label, player in players.items():
            one = as_player(player, rules.agents)
            contestants.append((label, one.mode, one.team[seat], one.greedy))
        references = seat_players(rules, seat)
        contestants += [(name, "", policy, False) for name, policy in references.items()]
        for label, mode, policy, greedy in contestants:
            for name, opponent in opponents.items():
                labels = (label, mode, name)
                scores.append(
                    evaluate_seat(
                        rules, seat, policy, opponent, deterministic=greedy, labels=labels, **plan
                    )
                )
    return scores


def seat_players(rules: Rules[Any], agent: str) -> dict[str, Policy]:
    """Return the feasible reference players of ``agent``, random play first."""
    return reference_players(rules, agent)[0] | {"random": random_policy(rules.action_space(agent))}
