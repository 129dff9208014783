"""True values, true advantages and better actions in states of a run, by forking.

All comparisons in one state use the same forks: the same future chance, redrawn or not, and the
same random numbers for the policies. Two forks then differ only in the first action. If chance is
redrawn, a critic with the global state keeps the information in that state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.adapters.snapshots import Copied, copyable
from corral.clock import Clock
from corral.envs.core import Array, Rules, amounts_of, places_of, redraw_of
from corral.envs.masks import MASK
from corral.envs.policy import Policy
from corral.lab.doctor.audit.audited import Decision
from corral.trainers.policy_iteration.forks import Moments, Story, Worth, standard_error, worth

__all__ = ["Asked", "Budget", "States", "Time", "Truth", "plan", "truth_of"]

Value = Callable[[Mapping[str, Any], Array], Array]

CANDIDATES = 6
"""Number of alternative actions that are tried."""

MAX_FORKS, FEWEST_FORKS = 64, 12
FEWEST_MOMENTS = 24
WORST = 10
"""Number of decisions that are kept."""

LARGEST_STORY = 20_000_000
"""Maximum number of recorded steps in a story."""


@dataclass(frozen=True)
class Asked:
    """K states of one agent to be audited."""

    agent: str
    moments: Moments
    t: Array  # int64 [K] steps of the rollout
    env_row: Array  # int64 [K]
    taken: Array  # int64 [K]
    value: Value | None  # V of the agent, see ``worth``
    told: bool = False  # True if the critic observes the global state

    def at(self, rows: Array) -> Asked:
        """Return the states ``rows`` [R]."""
        return Asked(
            self.agent,
            self.moments.at(rows),
            self.t[rows],
            self.env_row[rows],
            self.taken[rows],
            self.value,
            self.told,
        )


@dataclass(frozen=True)
class States:
    """Rules with states that can be copied, and the cost of play."""

    rules: Rules[Any]
    copied: Copied | None  # the way to copy states of a third-party environment

    @classmethod
    def of(cls, rules: Rules[Any]) -> States:
        """Return the states of ``rules``. Raises SnapshotError if they cannot be copied."""
        states: Any = copyable(rules)
        return cls(states, None if states is rules else states.copied)

    @property
    def same_future(self) -> bool:
        """True if all copies of a state have the same future chance."""
        redraws = self.copied is not None and self.copied.redraws
        return redraw_of(self.rules) is None and not redraws


@dataclass(frozen=True)
class Time:
    """CPU time of an audit."""

    seconds: float
    clock: Clock = field(default_factory=Clock)

    @property
    def left(self) -> float:
        return self.seconds - self.clock.seconds()


@dataclass(frozen=True)
class Budget:
    """Amount of play for an audit."""

    moments: int  # states per agent
    forks: int  # per state
    decisions: int  # states per agent for which better actions are searched
    time: Time | None = None  # for that search; None: no limit


@dataclass
class Truth:
    """True values and advantages in K states of one agent."""

    asked: Asked
    value: Worth
    advantages: Array  # float64 [K, F] of the taken actions, by fork
    stories: tuple[Story, Story] | None  # with the taken action, and with a sampled one
    forks: int
    steps: int
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    # the first number is a lower bound of the loss, from the forks that chose the action


def plan(
    questions: Sequence[Asked],
    team: Mapping[str, Policy],
    gamma: float,
    most_steps: int,
    time: Time,
    rng: np.random.Generator,
    *,
    running: bool = False,
) -> Budget:
    """Return the number of states and forks for ``most_steps``, from the measured cost of forks.

    Longer episodes get fewer states and forks, at least ``FEWEST_FORKS`` in ``FEWEST_MOMENTS``.
    ``running``: environments that step one after the other, with as many steps as there is time
    for. Raises ValueError if the time is far too short for the fewest forks.
    """
    longest = max((len(question.t) for question in questions), default=0)
    cost = 0.0  # env steps of one fork in one state of every agent
    steps, clock, limit = 0, Clock(), most_steps
    for question in questions:
        few = question.at(_spread(len(question.t), 8))
        if len(few.t):
            tried = worth(
                few.moments,
                team,
                gamma=gamma,
                forks=2,
                rng=rng,
                value=question.value,
                told=question.told,
            )
            cost += tried.steps / (2 * len(few.t))
            steps += tried.steps
    if not cost:
        return Budget(longest, MAX_FORKS, 0, time)
    if running:
        speed = steps / max(clock.seconds(), 1e-6)
        needed = 2 * FEWEST_FORKS * min(FEWEST_MOMENTS, longest) * cost / speed
        if needed > 2 * time.left:
            raise ValueError(
                f"the fewest forks take {needed:.0f} s of CPU time; {max(0.0, time.left):.0f} s "
                "are left"
            )
        limit = min(limit, int(speed * time.left))
    half = limit / 2 / cost  # number of forks of every agent
    forks = int(np.clip(half / (2 * longest), FEWEST_FORKS, MAX_FORKS))
    moments = int(np.clip(half / (2 * forks), min(FEWEST_MOMENTS, longest), longest))
    decisions = int(half / (forks * (CANDIDATES + 1)))
    return Budget(moments, forks, min(decisions, moments), time)


def _spread(count: int, limit: int) -> Array:
    """Return at most ``most`` of ``count`` indices, evenly spread."""
    if not count:
        return np.zeros(0, dtype=np.int64)
    return np.unique(np.linspace(0, count - 1, min(limit, count)).round().astype(np.int64))


def truth_of(
    question: Asked,
    team: Mapping[str, Policy],
    gamma: float,
    budget: Budget,
    rollout_steps: int,
    rng: np.random.Generator,
) -> Truth:
    """Return the true values and advantages of one agent, within the budget."""
    question = question.at(_spread(len(question.t), budget.moments))
    forks = budget.forks
    tell = question.value is not None and rollout_steps * len(question.t) * forks <= LARGEST_STORY
    stories = tuple(Story(rollout_steps, question.t, forks) for _ in range(2 if tell else 0))
    after = _same_forks(question, team, gamma, forks, int(rng.integers(2**63)))
    taken_worth = after(question.taken, question.told, stories[0] if tell else None)
    value = after(None, question.told, stories[1] if tell else None)
    truth = Truth(
        question,
        value,
        taken_worth.returns - value.returns,
        (stories[0], stories[1]) if tell else None,
        forks,
        value.steps + taken_worth.steps,
    )
    if budget.decisions:
        some = question.at(_spread(len(question.t), budget.decisions))
        _better(some, truth, team, gamma, budget, int(rng.integers(2**63)))
    return truth


def _same_forks(
    question: Asked, team: Mapping[str, Policy], gamma: float, forks: int, seed: int
) -> Callable[..., Worth]:
    def after(first: Array | None, told: bool = False, story: Story | None = None) -> Worth:
        return worth(
            question.moments,
            team,
            gamma=gamma,
            forks=forks,
            rng=np.random.default_rng(seed),
            first=first,
            value=question.value,
            story=story,
            told=told,
        )

    return after


# --- Better actions ------------------------------------------------------------------------------


def _better(
    question: Asked,
    truth: Truth,
    team: Mapping[str, Policy],
    gamma: float,
    budget: Budget,
    seed: int,
) -> None:
    """Record decisions for which another action is better.

    Every other fork selects the best action and the recorded decisions. The remaining forks measure
    the loss, so the selection does not inflate it.
    """
    moments, taken = question.moments, question.taken
    after = _same_forks(question, team, gamma, budget.forks, seed)
    taken_worth = after(taken)
    truth.steps += taken_worth.steps
    rows = np.arange(len(taken))
    best, chosen_by, surely = taken.copy(), np.zeros(len(taken)), np.zeros(len(taken))
    loss, error = np.zeros(len(taken)), np.zeros(len(taken))
    for candidate in candidates(np.asarray(moments.observation()[MASK]) != 0, taken).T:
        if budget.time is not None and budget.time.left <= 0:
            break
        tried = after(candidate)
        truth.steps += tried.steps
        difference = tried.returns - taken_worth.returns
        gain = difference[:, ::2].mean(axis=1)
        at = rows[(gain > chosen_by) & (candidate != taken)]
        best[at], chosen_by[at] = candidate[at], gain[at]
        surely[at] = gain[at] - 2 * standard_error(difference[at, ::2])
        loss[at] = difference[at, 1::2].mean(axis=1)
        error[at] = standard_error(difference[at, 1::2])
    places = places_of(moments.rules, moments.state)
    unit, amounts = amounts_of(moments.rules)
    tried_forks = taken_worth.returns[:, 1::2].shape[1]
    worst = sorted(rows[best != taken].tolist(), key=lambda k: -surely[k])[:WORST]
    for k in worst:
        chosen, better = int(taken[k]), int(best[k])
        step = int(moments.elapsed[k])
        decision = Decision(
            question.agent,
            int(question.env_row[k]),
            step,
            chosen,
            better,
            float(loss[k]),
            float(error[k]),
            f"step {step}" if places is None else places[k],
            None if amounts is None else (float(amounts[chosen]), float(amounts[better])),
            unit,
            tried_forks,
        )
        truth.decisions.append((float(surely[k]), decision))


def candidates(mask: Array, taken: Array) -> Array:
    """Return legal alternatives to the actions ``taken`` [K]: int64 [K, at most CANDIDATES].

    They are spread over all legal actions in ``mask`` [K, A]. If there are fewer, the taken action
    fills the rest.
    """
    alternatives = [
        np.setdiff1d(np.flatnonzero(row), [chosen]) for row, chosen in zip(mask, taken, strict=True)
    ]
    count = min(CANDIDATES, max((len(alternative) for alternative in alternatives), default=0))
    selected = np.repeat(taken[:, None], count, axis=1)
    for k, actions in enumerate(alternatives):
        at = _spread(len(actions), count)
        selected[k, : len(at)] = actions[at]
    return selected
