"""Matches: some seats played by one team, the rest by another, for many episodes.

    points = points_against(rules, team, {"old": other}, seats=rules.agents, episodes=200)

Whoever earned more has won. In a game of two whose rewards sum to a constant that is a return above
that of a draw: 0, or half the sum. Of more seats the mean of one side's returns is compared with
that of the other's.
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
    """E episodes of one casting."""

    returns: Array  # float64 [E, N], in the order in which all matches meet the episodes
    lengths: Array  # int64 [E] steps
    illegal: Array  # int64 [N] masked actions chosen
    same: bool  # whether actions and rewards were the same in all episodes, of two or more


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
    """Play ``team``, agent -> policy; arguments are as of
    ``corral.trainers.evaluation.episodes.play_episodes``. Every team meets the same episodes."""
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
    order = np.argsort(played.rows, kind="stable")  # not that in which they ended
    returns, lengths = played.returns[order], played.lengths[order]
    return Match(returns, lengths, illegal, episodes > 1 and len(same.ended) == 1)


class _Sameness:
    """Tells whether all episodes are the same, by the actions and rewards of every step."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}  # digest of the episode that each environment is in
        self.ended: set[int] = set()  # digests of whole episodes

    def look(self, turn: Turn) -> None:
        if len(self.ended) > 1:
            return  # it is known that they differ
        chosen = turn.actions
        rows = [*chosen.values()] if isinstance(chosen, Mapping) else [chosen]
        rows.append(turn.step.reward)
        for row in range(len(turn.asked)):
            entry = tuple(np.asarray(array[row]).tobytes() for array in rows)
            self.now[row] = hash((self.now.get(row, 0), entry))
        for row in turn.ended.rows.tolist():
            self.ended.add(self.now[row])
            self.now[row] = 0
        # An episode that goes on elsewhere is compared when it ends.


def points_of_side(returns: Array, own: Sequence[int]) -> Array:
    """Return the points [E] of the seats ``own``: 1 for a win, 1/2 for a draw, 0 for a loss.

    ``returns`` [E, N] are of all seats. The side with the larger mean return has won; means that
    differ by less than rewards of float32 can tell are equal.
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
    """Return the mean points of ``team`` against each of ``others``, by their names.

    A win is 1, a draw 1/2, a loss 0, see ``points_of_side``. The team plays each of ``seats`` in
    turn, for ``episodes`` episodes each, and the other the seats that remain; the mean is over all
    of them. Everybody meets the same episodes: what is compared is who plays.

    Args:
        rules: the game; any number of agents, two or more.
        team: agent -> policy, at least for ``seats``; whatever
            ``corral.envs.policy.as_policy`` takes.
        others: name -> agent -> policy, at least for the seats that the team leaves.
        seats: agents that the team plays one at a time, such as ``rules.agents``; or groups of
            agents that it plays together: ``[("p1", "p2"), ("p3", "p4")]`` for two against two.
        deterministic: whether all play greedily; default: actions are sampled.
        seed, workers: as of ``corral.trainers.evaluation.episodes.play``.

    Raises ValueError for seats that are no agents, or all of them, and for a seat that no policy
    plays; and what ``play`` raises.
    """
    groups = [(seat,) if isinstance(seat, str) else tuple(seat) for seat in seats]
    for group in groups:
        if not group or set(group) - set(rules.agents) or set(group) >= set(rules.agents):
            raise ValueError(f"seats={group}: give some of {', '.join(rules.agents)}, not all")
    greedy = dict.fromkeys(rules.agents, deterministic)
    found = {}
    for name, other in others.items():
        means = []
        for group in groups:
            sides = {agent: team if agent in group else other for agent in rules.agents}
            for agent, side in sides.items():
                if agent not in side:
                    who = "the team" if agent in group else name
                    raise ValueError(f"{who}: no policy plays {agent}; give one")
            cast = {agent: side[agent] for agent, side in sides.items()}
            match = play_match(rules, cast, greedy, episodes=episodes, seed=seed, workers=workers)
            own = [rules.agents.index(agent) for agent in group]
            means.append(float(points_of_side(match.returns, own).mean()))
        found[name] = float(np.mean(means))
    return found
