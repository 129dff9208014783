"""Agreement: how often policies decide like their teacher, on episodes not used for cloning.

A decision agrees if the policy's greedy action is among the actions that the teacher considers
equally good. The teacher plays; the policies only decide, with their own recurrent states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from corral.envs.core import Array, Observation, Rules, amounts_of, generator
from corral.envs.policy import Decision, Policy, PolicyBase, PolicyLike, as_policy
from corral.results import Result, filled
from corral.trainers.cloning.recorded import RecordedRules
from corral.trainers.cloning.teachers import Teacher, TeacherLike, choices_of, find_teacher
from corral.trainers.evaluation.episodes import Interval, bootstrap_ratio, play_episodes

__all__ = ["Agreement", "AgreementRow", "agreement", "eval_seed"]

ALL = "all"


@dataclass(frozen=True)
class AgreementRow:
    """Agreement of one agent, or of all agents."""

    agent: str
    decisions: int
    share: float  # share of agreeing decisions
    interval: Interval  # 95 % bootstrap interval over whole episodes
    difference: float | None  # mean absolute difference in ``unit``; None: actions are not amounts


@dataclass(frozen=True, repr=False)
class Agreement(Result):
    """Agreement with ``teacher`` over ``episodes``. The last of ``rows`` is for all agents."""

    json_file = "agreement.json"

    teacher: str
    episodes: int
    rows: tuple[AgreementRow, ...]
    unit: str | None  # unit of differences, such as "requests"

    @property
    def share(self) -> float:
        """Return the share of agreeing decisions of all agents."""
        return self.rows[-1].share

    def text(self, width: int = 80) -> str:
        """Return the share of agreeing decisions of all agents, and the table."""
        decisions = self.rows[-1].decisions
        line = f"{self.share:.1%} of {decisions:,} decisions agree with {self.teacher}"
        return f"{filled([line], width)}\n{super().text(width)}"

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per agent, and one for all agents."""
        table = pd.DataFrame([{**vars(row), **row.interval._asdict()} for row in self.rows])
        return table.drop(columns="interval")

    to_dict = Result.to_json


def eval_seed(seed: int, use: int) -> int:
    """Return a seed of purpose "eval" for one ``use``, for episodes that training never plays."""
    return int(generator(seed, "eval", use).integers(2**31))


def agreement(
    policies: Mapping[str, PolicyLike],
    teacher: TeacherLike | Teacher,
    rules: Rules[Any],
    *,
    episodes: int = 64,
    seed: int = 0,
    num_envs: int | None = None,
) -> Agreement:
    """Return how often ``policies`` (agent -> policy) decide like ``teacher``.

    Agents without a policy are not compared. The teacher plays all agents. The rules determine the
    data: pass rules with held-out rows. Recorded steps are played once, with all their episodes.

    Raises the errors of ``find_teacher``, and ValueError for policies of unknown agents.
    """
    if not isinstance(teacher, Teacher):
        teacher = find_teacher(teacher, rules)
    if not policies or set(policies) - set(rules.agents):
        raise ValueError(
            f"policies of {', '.join(policies)}: pass policies of {', '.join(rules.agents)}"
        )
    unit, amounts = amounts_of(rules)
    played: Any = rules
    if teacher.steps is not None:
        played, episodes = (
            RecordedRules(rules, teacher.steps, in_turn=True),
            len(teacher.steps.lengths),
        )
    compared = {
        agent: _Compared(
            teacher.policies[agent],
            as_policy(policies[agent], agent, rules.agents),
            int(rules.action_space(agent).n),
            amounts,
        )
        for agent in rules.agents
        if agent in policies
    }
    team = {**teacher.policies, **compared}
    deterministic = dict.fromkeys(rules.agents, teacher.deterministic)
    play_episodes(played, team, deterministic, episodes=episodes, num_envs=num_envs, seed=seed)
    tallies = {agent: policy.tally() for agent, policy in compared.items()}
    rows = [_row(agent, tally, unit) for agent, tally in tallies.items()]
    size = max(len(tally) for tally in tallies.values())
    padded = [np.pad(one, ((0, size - len(one)), (0, 0))) for one in tallies.values()]
    total: Array = np.sum(padded, axis=0)
    rows.append(_row(ALL, total, unit))
    return Agreement(teacher.name, episodes, tuple(rows), unit)


def _row(agent: str, tally: Array, unit: str | None) -> AgreementRow:
    """Return the row of a ``tally`` float64 [E, 3]: decisions, agreements, sum of differences."""
    tally = tally[tally[:, 0] > 0]
    decisions, agreements, differences = tally.sum(axis=0)
    return AgreementRow(
        agent,
        int(decisions),
        float(agreements / decisions) if decisions else 0.0,
        bootstrap_ratio(tally[:, 1], tally[:, 0]),
        float(differences / decisions) if unit and decisions else None,
    )


class _Compared(PolicyBase):
    """Plays like the teacher, and records the decisions in which a policy agrees.

    Its state contains the number of the episode; a new state starts a new episode.
    """

    def __init__(
        self, teacher: Policy, policy: Policy, actions: int, amounts: Array | None
    ) -> None:
        self.teacher, self.policy, self.actions = teacher, policy, actions
        self.amounts = None if amounts is None else amounts[:actions]
        self.episodes = 0
        self._records: list[Array] = []  # [R, 4] columns: episode, 1, agrees, difference

    def initial_state(self, num_envs: int) -> Any:
        first, self.episodes = self.episodes, self.episodes + num_envs
        numbers = np.arange(first, self.episodes)
        return numbers, self.teacher.initial_state(num_envs), self.policy.initial_state(num_envs)

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        numbers, of_teacher, of_policy = state
        decision = self.teacher.act(observation, of_teacher, rng, deterministic=deterministic)
        answer = self.policy.act(observation, of_policy, rng, deterministic=True)
        choices = choices_of(decision, self.actions)
        action = np.asarray(answer.action)
        agrees = choices[np.arange(len(action)), action]
        apart = np.zeros(len(action))
        if self.amounts is not None:
            distance = np.abs(self.amounts - self.amounts[action][:, None])  # [R, A]
            apart = np.where(choices, distance, np.inf).min(axis=1)
        self._records.append(np.stack([numbers, np.ones(len(action)), agrees, apart], axis=1))
        return Decision(decision.action, (numbers, decision.state, answer.state))

    def tally(self) -> Array:
        """Return decisions, agreements and the sum of differences by episode: float64 [E, 3]."""
        sums = np.zeros((self.episodes, 3))
        for record in self._records:
            np.add.at(sums, record[:, 0].astype(np.int64), record[:, 1:])
        return sums
