"""Episodes on fixed seeds, so that the returns of two teams can be compared in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.adapters.seats import random_policy
from corral.clock import Clock
from corral.envs.core import (
    Array,
    Rules,
    best_returns_of,
    generator,
    third_party,
    with_limit,
)
from corral.envs.policy import PolicyLike
from corral.errors import CorralError
from corral.lab.exploit.exact import best_response, team_returns
from corral.trainers.evaluation.episodes import play
from corral.trainers.evaluation.zero_sum import SAME, constant_sum, is_zero_sum

__all__ = ["Episodes", "Responses", "Table", "random_team"]

SIZES = (128, 64, 32, 16, 8)
"""Numbers of episodes; the largest that fits into the time is played."""

PILOT = 8
"""Number of episodes that are played to measure their speed."""


STATES = 10_000
"""Maximum number of states of a game for exact best responses, which take about a second."""


@dataclass(frozen=True)
class Responses:
    """Exact expected returns against the opponents, summed over the learning agents."""

    best: float  # of the best response of each learning agent
    random: float  # of random play

    @property
    def hopeless(self) -> bool:
        """True if no policy earns more than random play."""
        return self.best <= self.random + 1e-9


@dataclass(frozen=True)
class Episodes:
    """Returns of the learning agents [E, L], and lengths [E], in the order of the seeds."""

    returns: Array
    lengths: Array
    illegal: int  # illegal actions of the learning agents

    @property
    def team(self) -> Array:
        """Return the sum over the learning agents: [E]."""
        return np.asarray(self.returns.sum(axis=1))

    @property
    def differ(self) -> bool:
        """Return True if the returns of two learning agents differ in some episode."""
        largest = float(np.abs(self.returns).max(initial=1e-9))
        return bool(np.ptp(self.returns, axis=1).max() > SAME * largest)

    @property
    def distinct(self) -> int:
        """Return the number of episodes that differ in a return or in the length."""
        return len(np.unique(np.column_stack([self.returns, self.lengths]), axis=0))


def random_team(rules: Rules[Any]) -> dict[str, PolicyLike]:
    """Return uniformly random legal play for all agents."""
    return {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}


@dataclass
class Table:
    """Plays teams on the same seeds, one episode per environment copy.

    With ``seatwise``, each learning agent plays its own episodes, and the other learning agents are
    replaced by random play. ``plan`` sets it if the returns of all agents sum to a constant: the
    sum of the learning agents then carries no information.
    """

    rules: Rules[Any]
    learners: tuple[str, ...]
    opponents: Mapping[str, PolicyLike]  # policies of the other agents
    seed: int = 0
    size: int = PILOT
    limit: int | None = None  # steps after which slow episodes are cut
    seatwise: bool = False

    def plan(self, team: Mapping[str, PolicyLike], seconds: float, teams: int) -> None:
        """Set the number of episodes so that ``teams`` teams play for about ``seconds``."""
        plays = teams * (len(self.learners) if self.seatwise else 1)
        clock = Clock()
        steps = 0
        quota = np.ones(PILOT, dtype=np.int64)
        greedy = dict.fromkeys(self.rules.agents, False)
        turns = play(self.rules, {**self.opponents, **team}, greedy, quota=quota, seed=self.seed)
        returns = [np.zeros((0, len(self.rules.agents)))]
        for turn in turns:
            steps = turn.t + 1
            returns.append(turn.ended.returns)
            if clock.seconds() > 2 * seconds / plays:
                turns.close()  # type: ignore[attr-defined]
                self.limit = steps
                self.rules = with_limit(self.rules, steps)
                break
        self.seatwise = self.seatwise or self._sums_are_constant(np.concatenate(returns))
        cost = clock.seconds() * teams / PILOT * (len(self.learners) if self.seatwise else 1)
        if not third_party(self.rules):  # the time hardly grows with the number of copies
            cost /= 4
        fitting = [size for size in SIZES if size * cost <= seconds]
        self.size = max(fitting, default=SIZES[-1])

    def _sums_are_constant(self, returns: Array) -> bool:
        if len(self.learners) < len(self.rules.agents) or len(self.learners) < 2:
            return False
        constant = len(returns) > 1 and constant_sum(returns) is not None
        return is_zero_sum(self.rules) or constant

    @property
    def beside(self) -> dict[str, PolicyLike]:
        """Return the other agents' play for a learning agent alone: opponents, else random play."""
        return {**random_team(self.rules), **self.opponents}

    def optimum(self) -> Array | None:
        """Return the optimum of the team return in the same episodes [E]; None if unknown."""
        if self.seatwise or len(self.learners) < len(self.rules.agents):
            return None
        rngs = [generator(self.seed, "env", row) for row in range(self.size)]
        return best_returns_of(self.rules, rngs)

    def responses(self) -> Responses | None:
        """Return the best responses to the opponents; None if they are unknown.

        Only a seat that faces fixed opponents has a best response: with several learners, each of
        them must play alone against random play.
        """
        if len(self.rules.agents) == 1 or not (self.seatwise or len(self.learners) == 1):
            return None
        team = self.beside
        try:
            values = team_returns(self.rules, team, max_states=STATES)
            best = [
                best_response(self.rules, team, seat, max_states=STATES).value
                for seat in self.learners
            ]
        except CorralError:  # too many states, or an opponent without probabilities
            return None
        return Responses(sum(best), sum(values[seat] for seat in self.learners))

    def play(self, team: Mapping[str, PolicyLike], *, greedy: bool) -> Episodes:
        """Play ``team``, a policy for each learning agent, in all episodes.

        Raises the errors of the policies and of the environment.
        """
        if not self.seatwise:
            return self._play({**self.opponents, **team}, greedy, self.learners)
        beside = self.beside
        parts = [
            self._play({**beside, agent: team[agent]}, greedy, (agent,)) for agent in self.learners
        ]
        return Episodes(
            np.concatenate([part.returns for part in parts], axis=1),
            np.mean([part.lengths for part in parts], axis=0),
            sum(part.illegal for part in parts),
        )

    def _play(
        self, team: Mapping[str, PolicyLike], greedy: bool, learners: tuple[str, ...]
    ) -> Episodes:
        columns = [self.rules.agents.index(agent) for agent in learners]
        deterministic = {agent: greedy and agent in learners for agent in self.rules.agents}
        returns = np.zeros((self.size, len(learners)))
        lengths = np.zeros(self.size)
        illegal = 0
        quota = np.ones(self.size, dtype=np.int64)
        for turn in play(self.rules, team, deterministic, quota=quota, seed=self.seed):
            illegal += int(turn.illegal[columns].sum())
            if len(turn.ended):
                returns[turn.ended.rows] = turn.ended.returns[:, columns]
                lengths[turn.ended.rows] = turn.ended.lengths
        return Episodes(returns, lengths, illegal)
