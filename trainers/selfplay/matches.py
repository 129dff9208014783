"""Matches: one team plays some seats, another team plays the rest, for many episodes.

    points = points_against(rules, team, {"old": other}, seats=rules.agents, episodes=200)

The side with the higher return wins. In a constant-sum game of two agents this is a return above
that of a draw (0, or half the sum). With more seats, the mean returns of both sides are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array, Rules
from corral.envs.policy import PolicyLike
from corral.trainers.evaluation.episodes import Turn, play_episodes
from corral.trainers.evaluation.zero_sum import SAME

__all__ = ["Match", "play_match", "points_against", "points_of_side"]


@dataclass(frozen=True, eq=False)
class Match:
    """E episodes of one assignment of policies to agents."""

    returns: Array  # float64 [E, N], in the same order of episodes for all matches
    lengths: Array  # int64 [E] steps
    illegal: Array  # int64 [N] number of masked actions chosen
    same: bool  # True if all episodes (two or more) had the same actions and rewards


def play_match(
    rules: Rules[Any],
    team: Mapping[str, PolicyLike],
    deterministic: Mapping[str, bool],
    *,
    episodes: int,
    seed: int = 0,
    workers: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Match:
    """Play the policies of ``team``, agent -> policy. Every team plays the same episodes.

    For the arguments see ``corral.trainers.evaluation.episodes.play_episodes``.
    """
    same = _Sameness()
    played, illegal = play_episodes(
        rules,
        team,
        deterministic,
        episodes=episodes,
        seed=seed,
        workers=workers,
        progress=progress,
        on_turn=same.look,
    )
    order = np.argsort(played.rows, kind="stable")  # not the order of their ends
    returns, lengths = played.returns[order], played.lengths[order]
    return Match(returns, lengths, illegal, episodes > 1 and len(same.ended) == 1)


class _Sameness:
    """Detects whether all episodes are equal, by the actions and rewards of every step."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}  # digest of the current episode of each environment
        self.ended: set[int] = set()  # digests of whole episodes

    def look(self, turn: Turn) -> None:
        if len(self.ended) > 1:
            return  # episodes differ: nothing more to detect
        chosen = turn.actions
        rows = [*chosen.values()] if isinstance(chosen, Mapping) else [chosen]
        rows.append(turn.step.reward)
        for row in range(len(turn.asked)):
            entry = tuple(np.asarray(array[row]).tobytes() for array in rows)
            self.now[row] = hash((self.now.get(row, 0), entry))
        for row in turn.ended.rows.tolist():
            self.ended.add(self.now[row])
            self.now[row] = 0
        # Unfinished episodes of other environments are compared when they end.


def points_of_side(returns: Array, own: Sequence[int]) -> Array:
    """Return the points [E] of the seats ``own``: 1 for a win, 1/2 for a draw, 0 for a loss.

    ``returns`` [E, N] are the returns of all seats. The side with the larger mean return wins.
    Differences within the precision of float32 rewards count as a draw.
    """
    rest = [i for i in range(returns.shape[1]) if i not in own]
    ahead = returns[:, list(own)].mean(axis=1) - returns[:, rest].mean(axis=1)
    apart = SAME * abs(returns).max(initial=0.0)
    points: Array = np.where(abs(ahead) <= apart, 0.5, ahead > 0)
    return points


def points_against(
    rules: Rules[Any],
    team: Mapping[str, PolicyLike],
    others: Mapping[str, Mapping[str, PolicyLike]],
    *,
    seats: Sequence[str | Sequence[str]],
    episodes: int,
    seed: int = 0,
    deterministic: bool = False,
    workers: int = 0,
) -> dict[str, float]:
    """Return the mean points of ``team`` against each team of ``others``, by name.

    A win is 1, a draw 1/2, a loss 0, see ``points_of_side``. The team plays each entry of ``seats``
    for ``episodes`` episodes, and the other team plays the remaining seats. The mean is over all
    these episodes. All teams play the same episodes, so only the policies differ.

    Args:
        rules: the game, with two or more agents.
        team: agent -> policy, at least for ``seats``. A policy is anything that
            ``corral.envs.policy.as_policy`` takes.
        others: name -> agent -> policy, at least for the remaining seats.
        seats: agents that the team plays one at a time, such as ``rules.agents``; or groups of
            agents that it plays together: ``[("p1", "p2"), ("p3", "p4")]`` for two against two.
        deterministic: True: all policies play greedily; default: actions are sampled.
        seed, workers: as in ``corral.trainers.evaluation.episodes.play``.

    Raises ValueError if seats are not agents, are all agents, or have no policy; and the errors of
    ``play``.
    """
    groups = [(seat,) if isinstance(seat, str) else tuple(seat) for seat in seats]
    for group in groups:
        if not group or set(group) - set(rules.agents) or set(group) >= set(rules.agents):
            raise ValueError(f"seats={group}: pass some, but not all, of {', '.join(rules.agents)}")
    greedy = dict.fromkeys(rules.agents, deterministic)
    points = {}
    for name, other in others.items():
        means = []
        for group in groups:
            sides = {agent: team if agent in group else other for agent in rules.agents}
            for agent, side in sides.items():
                if agent not in side:
                    owner = "the team" if agent in group else name
                    raise ValueError(f"{owner}: a policy for {agent} is missing; add it")
            cast = {agent: side[agent] for agent, side in sides.items()}
            match = play_match(rules, cast, greedy, episodes=episodes, seed=seed, workers=workers)
            own = [rules.agents.index(agent) for agent in group]
            means.append(float(points_of_side(match.returns, own).mean()))
        points[name] = float(np.mean(means))
    return points
