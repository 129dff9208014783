"""Test if choices matter in an environment, and if the observation shows the best action.

    found = corral.learnable("tiles_v0", levels=1, budget=48)
    print(found.text())
    assert found.faults == ()

Scripts that need no learning (``scripts``) play the same episodes as random play. If all returns
are equal, there is little to learn. Then states of play are forked (``forked``) and several actions
are tried in each. The gain of the best action is compared with that of one constant action and
with that of actions chosen from the observation (``gains``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from gymnasium import spaces

from corral.adapters.seats import random_policy
from corral.adapters.snapshots import Copied, SnapshotError, SnapshotRules, copyable
from corral.adapters.sources import EnvLike, rules_of, rules_with
from corral.adapters.spaces import ObservationCodec
from corral.clock import Clock
from corral.envs.core import Array, Rules, max_rows_of, with_limit
from corral.envs.masks import MASK
from corral.envs.policy import PolicyLike
from corral.envs.reference import reference_team, team_names
from corral.errors import UnsupportedSpaceError
from corral.lab.doctor.choices.forked import (
    FIXED,
    flattened,
    sample_moments,
    try_actions,
)
from corral.lab.doctor.choices.gains import Forked, Gain, compare
from corral.lab.doctor.choices.scripts import LONGEST, Fixed, Script, Scripts, play_scripts
from corral.lab.doctor.choices.verdict import Fault, faults_of, notes_of, verdict_of
from corral.progress import Progress, cell_progress
from corral.results import Result
from corral.trainers.evaluation.episodes import play

__all__ = ["Fault", "Forked", "Gain", "Learnable", "Script", "Scripts", "learnable"]

SECONDS = 20.0
"""CPU time in seconds; a step in progress is finished."""

SCRIPTED = 0.3
"""Share of the time for scripts."""

WATCHED = 16
"""Number of episodes in which observations are compared."""


@dataclass(frozen=True, repr=False)
class Learnable(Result):
    """Result of the test: verdict, scripts, forked states, faults and notes."""

    json_file, csv_file = "learnable.json", "learnable.csv"

    environment: str
    verdict: str  # one sentence
    scripts: Scripts
    forked: tuple[Forked, ...]
    faults: tuple[Fault, ...]  # empty: there is something to learn
    notes: tuple[str, ...]
    not_asked: tuple[str, ...]  # skipped tests with the reason
    seconds: float

    def text(self, width: int = 80) -> str:
        """Return the whole result, verdict first, in lines of at most ``width``."""
        from corral.lab.doctor.choices.text import learnable_text

        return learnable_text(self, width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per script, with the fields of ``Script`` as columns."""
        return pd.DataFrame([vars(row) for row in self.scripts.rows])


def learnable(
    env: EnvLike,
    *,
    seed: int = 0,
    seconds: float = SECONDS,
    progress: Progress = cell_progress,
    **env_kwargs: Any,
) -> Learnable:
    """Test if choices matter in an environment, and if the observation shows the best action.

    Args:
        env: a name, a module, a function or an object, see ``corral.train``.
        seed: seed of all random numbers.
        seconds: approximate time, without waiting for a CPU. The result lists the tests skipped
            for lack of time.
        progress: called with the name of the current part, the number done, and the total.
        env_kwargs: arguments of the environment.

    Raises the errors of ``corral.train`` for an unknown environment, and ValueError if ``seconds``
    is not above 0.
    """
    if not seconds > 0:
        raise ValueError(f"seconds={seconds}: pass a number above 0")
    clock, began = Clock(), time.monotonic()
    rules = rules_with(learnable, env, env_kwargs) if env_kwargs else rules_of(env)
    skipped: list[str] = []
    if rules.max_cycles is None or rules.max_cycles > LONGEST:
        rules = with_limit(rules, LONGEST)
    scripts = play_scripts(rules, seed=seed, seconds=SCRIPTED * seconds, progress=progress)
    if scripts.left_out:
        skipped.append(f"skipped for lack of time: {', '.join(scripts.left_out)}")
    if scripts.steps >= LONGEST:
        skipped.append(f"steps after {LONGEST:,}: episodes were cut at that step")
    seen = Seen.of(rules, seed)
    if unread := [agent for agent in rules.agents if codec_of(rules, agent) is None]:
        skipped.append(
            f"observations of {', '.join(unread)}: they contain no arrays, or nested Dicts"
        )
    forked: list[Forked] = []
    copied: Copied | None = None
    try:
        states: Any = copyable(rules)
    except SnapshotError as error:
        skipped.append(f"the best action in a state, and if the observation shows it: {error}")
    else:
        if isinstance(states, SnapshotRules):
            copied = states.copied
            states = with_limit(states, min(LONGEST, 2 * scripts.steps))
        remaining = seconds - clock.seconds()
        forked = list(_all_forked(states, scripts, seed, remaining, progress, skipped))
    for fork in forked:
        if not fork.complete:
            skipped.append(
                f"{fork.agent} ({fork.others}): rewards after {fork.followed} of its decisions"
            )
    faults = faults_of(scripts, forked, seen.never, seen.choices)
    notes = notes_of(scripts, forked, seen.never, seen.choices)
    if copied is not None:
        notes = (*notes, copied.text())
    return Learnable(
        environment=rules.name,
        verdict=verdict_of(scripts, forked, faults),
        scripts=scripts,
        forked=tuple(forked),
        faults=faults,
        notes=notes,
        not_asked=tuple(skipped),
        seconds=round(time.monotonic() - began, 2),
    )


# --- Forked states -------------------------------------------------------------------------------


def _all_forked(
    rules: Rules[Any],
    scripts: Scripts,
    seed: int,
    seconds: float,
    progress: Progress,
    skipped: list[str],
) -> Iterator[Forked]:
    """Fork states of each agent in random play, then in play of the best reference team.

    If no action is better against random play, also fork states with opponents that always play
    their lowest legal action.
    """
    clock, seconds = Clock(), max(seconds, 1.0)
    share = 0.8 if max_rows_of(rules) is None else 0.5
    random: dict[str, PolicyLike] = {a: random_policy(rules.action_space(a)) for a in rules.agents}
    jobs: list[tuple[str, str, Mapping[str, PolicyLike]]] = []
    for agent in rules.agents:
        jobs.append((agent, "random", random))
    if scripts.best is not None and scripts.best in team_names(rules):
        reference = reference_team(scripts.best, rules)
        jobs += [(agent, scripts.best, reference) for agent in rules.agents]
    mattering: set[str] = set()
    late: list[str] = []
    done = 0
    while done < len(jobs):
        agent, kind, team = jobs[done]
        progress(f"{agent}, forked ({kind})", done, len(jobs))
        # Reserve time for a possible test with fixed opponents.
        may = 0 if mattering or kind == FIXED or len(rules.agents) == 1 else len(rules.agents)
        remaining = (seconds - clock.seconds()) / (len(jobs) - done + may)
        done += 1
        if remaining <= 0:
            late.append(f"{agent} ({kind})")
            continue
        if codec_of(rules, agent) is None:
            continue
        sample = sample_moments(rules, rules.agents.index(agent), team, seed, 0.3 * remaining)
        if sample is None:
            if kind == "random":
                skipped.append(f"{agent}: it almost never has two legal actions")
                jobs = [job for k, job in enumerate(jobs) if k < done or job[0] != agent]
            continue
        tried = try_actions(sample, team, seed=seed, seconds=share * remaining)
        result = compare(kind, tried)
        yield result
        if result.matters:
            mattering.add(agent)
        elif done == len(jobs) and len(rules.agents) > 1 and kind != FIXED:
            spaces_of = {a: rules.action_space(a) for a in rules.agents}
            for item in rules.agents:
                if item not in mattering and any(job[0] == item for job in jobs):
                    fixed = {a: Fixed(space) for a, space in spaces_of.items()}
                    jobs.append((item, FIXED, {**fixed, item: random[item]}))
    if late:
        skipped.append(f"skipped for lack of time: tests in forked states for {', '.join(late)}")


def codec_of(rules: Rules[Any], agent: str) -> ObservationCodec | None:
    """Return the codec of an agent's observations; None if they are not arrays."""
    try:
        return ObservationCodec.of(agent, rules.observation_space(agent))
    except UnsupportedSpaceError:
        return None


@dataclass(frozen=True)
class Seen:
    """Observations and choices in random play."""

    never: tuple[str, ...]  # agents with the same observation in every decision
    choices: dict[str, float]  # decisions with two or more legal actions, per episode

    @classmethod
    def of(cls, rules: Rules[Any], seed: int) -> Seen:
        team = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
        codecs = {agent: codec_of(rules, agent) for agent in rules.agents}
        first: dict[str, Array] = {}
        changes: set[str] = set()
        choices = dict.fromkeys(rules.agents, 0)
        quota, sampled = np.ones(WATCHED, dtype=np.int64), dict.fromkeys(rules.agents, False)
        for turn in play(rules, team, sampled, quota=quota, seed=seed):
            for i, agent in enumerate(rules.agents):
                rows = np.flatnonzero(turn.asked[:, i])
                if not len(rows):
                    continue
                observation = turn.observations[agent]
                if isinstance(rules.action_space(agent), spaces.Discrete):
                    legal = np.asarray(observation[MASK])[rows] != 0
                    choices[agent] += int((legal.sum(axis=1) > 1).sum())
                else:
                    choices[agent] += len(rows)
                codec = codecs[agent]
                if codec is not None and agent not in changes:
                    flat = flattened(codec, observation)[rows]
                    if (flat != first.setdefault(agent, flat[0].copy())).any():
                        changes.add(agent)
        never = tuple(agent for agent in rules.agents if agent in first and agent not in changes)
        return cls(never, {agent: count / WATCHED for agent, count in choices.items()})
