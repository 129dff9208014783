"""Agreement: how often policies decide as their teacher does, on episodes not cloned from.

A decision agrees where the policy's greedy action is among those that the teacher counts as equally
good. The teacher plays; the policies are asked what they would do, with hidden states of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from corral.envs.core import Array, Observation, Rules, amounts_of, generator
from corral.envs.policy import Decision, Policy, PolicyBase, PolicyLike, as_policy
from corral.results import Result
from corral.trainers.cloning.recorded import RecordedRules
from corral.trainers.cloning.teachers import Teacher, TeacherLike, choices_of, find_teacher
from corral.trainers.evaluation.episodes import Interval, bootstrap_ratio, play_episodes

__all__ = ["Agreement", "AgreementRow", "agreement", "eval_seed"]

ALL = "all"


@dataclass(frozen=True)
class AgreementRow:
    """Agreement of one agent, or of all."""

    agent: str
    decisions: int
    share: float  # of the decisions
    interval: Interval  # 95 %, of whole episodes
    difference: float | None  # mean absolute, in ``unit``; None: actions amount to nothing


@dataclass(frozen=True)
class Agreement(Result):
    """Agreement with ``teacher`` over ``episodes``; the last of the ``rows`` is that of all."""

    json_file = "agreement.json"

    teacher: str
    episodes: int
    rows: tuple[AgreementRow, ...]
    unit: str | None  # of differences, such as "requests"

    @property
    def share(self) -> float:
        """The share of all agents' decisions."""
        return self.rows[-1].share

    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each agent, and one for all."""
        table = pd.DataFrame([{**vars(row), **row.interval._asdict()} for row in self.rows])
        return table.drop(columns="interval")

    to_dict = Result.to_json


def eval_seed(seed: int, use: int) -> int:
    """Return a seed of purpose "eval", one for each use: of episodes that training never plays."""
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
    """Return how often ``policies`` (agent -> policy) decide as ``teacher`` does.

    Agents without a policy are left out; the teacher plays them as it does all others. Rules say
    which data are played: give those of held-out rows. Recorded steps are gone through once, all of
    their episodes.

    Raises what ``find_teacher`` raises, and ValueError for policies of other agents.
    """
    if not isinstance(teacher, Teacher):
        teacher = find_teacher(teacher, rules)
    if not policies or set(policies) - set(rules.agents):
        raise ValueError(
            f"policies of {', '.join(policies)}; give some of {', '.join(rules.agents)}"
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
    tallies = {agent: each.tally() for agent, each in compared.items()}
    rows = [_row(agent, tally, unit) for agent, tally in tallies.items()]
    size = max(len(tally) for tally in tallies.values())
    padded = [np.pad(each, ((0, size - len(each)), (0, 0))) for each in tallies.values()]
    everybody: Array = np.sum(padded, axis=0)
    rows.append(_row(ALL, everybody, unit))
    return Agreement(teacher.name, episodes, tuple(rows), unit)


def _row(agent: str, tally: Array, unit: str | None) -> AgreementRow:
    """Return the row of a ``tally`` float64 [E, 3]: decisions, agreeing ones, differences."""
    tally = tally[tally[:, 0] > 0]
    decisions, agreeing, differences = tally.sum(axis=0)
    return AgreementRow(
        agent,
        int(decisions),
        float(agreeing / decisions) if decisions else 0.0,
        bootstrap_ratio(tally[:, 1], tally[:, 0]),
        float(differences / decisions) if unit and decisions else None,
    )


class _Compared(PolicyBase):
    """Plays as the teacher, and notes in which decisions a policy would have agreed.

    Its state holds the number of the episode, which begins anew where the state does.
    """

    def __init__(
        self, teacher: Policy, policy: Policy, actions: int, amounts: Array | None
    ) -> None:
        self.teacher, self.policy, self.actions = teacher, policy, actions
        self.amounts = None if amounts is None else amounts[:actions]
        self.episodes = 0
        self._noted: list[Array] = []  # [R, 4] each: episode, 1, agrees, difference

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
        self._noted.append(np.stack([numbers, np.ones(len(action)), agrees, apart], axis=1))
        return Decision(decision.action, (numbers, decision.state, answer.state))

    def tally(self) -> Array:
        """Return, by episode, decisions, agreeing ones and the sum of differences: [E, 3]."""
        found = np.zeros((self.episodes, 3))
        for noted in self._noted:
            np.add.at(found, noted[:, 0].astype(np.int64), noted[:, 1:])
        return found
