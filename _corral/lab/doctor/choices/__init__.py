"""Do choices matter, and does the observation show which is best? Asked of an environment alone.

    found = corral.learnable("tiles_v0", levels=1, budget=48)
    print(found.text())
    assert found.faults == ()

Scripts that need no learning (``scripts``) play the same episodes as random play; where no two of
them differ, there is little to learn. Then moments of play are forked (``forked``): actions are
tried at each of them, and what the best one is worth is compared with what can be had by one action
for all moments, and by actions that are chosen from the observation (``gains``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from gymnasium import spaces

from corral.adapters.seats import random_policy
from corral.adapters.sources import EnvLike, rules_of, rules_with
from corral.adapters.spaces import ObservationCodec
from corral.envs.core import Array, Rules, plays_as_arrays, with_limit
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
from corral.results import Result
from corral.trainers.evaluation.episodes import play

__all__ = ["Fault", "Forked", "Gain", "Learnable", "Script", "Scripts", "learnable"]

SECONDS = 20.0
"""Time that it may take; the last thing begun is finished."""

SCRIPTED = 0.3
"""Share of the time for scripts."""

WATCHED = 16
"""Episodes in which observations are compared."""


@dataclass(frozen=True)
class Learnable(Result):
    """What an environment gives to learn."""

    json_file, csv_file = "learnable.json", "learnable.csv"

    environment: str
    verdict: str  # in a sentence
    scripts: Scripts
    forked: tuple[Forked, ...]
    faults: tuple[Fault, ...]  # none: there is something to learn
    notes: tuple[str, ...]
    not_asked: tuple[str, ...]  # with the reason
    seconds: float

    def text(self, width: int = 80) -> str:
        """Return all of it, verdict first, in lines of at most ``width``."""
        from corral.lab.doctor.choices.text import learnable_text

        return learnable_text(self, width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each script, with the fields of ``Script`` as columns."""
        return pd.DataFrame([vars(row) for row in self.scripts.rows])


def learnable(
    env: EnvLike,
    *,
    seed: int = 0,
    seconds: float = SECONDS,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    **env_kwargs: Any,
) -> Learnable:
    """Return whether choices matter in an environment, and whether the observation shows which.

    Args:
        env: a name, a module, a function or an object, see ``corral.train``.
        seed: of all chance.
        seconds: about how long it may take; what was left out for want of time is said.
        progress: is called with what is looked at, and how much of how much is done.
        env_kwargs: arguments of the environment.

    Raises what ``corral.train`` raises for an environment that there is not, ValueError for
    ``seconds`` that are not above 0.
    """
    if not seconds > 0:
        raise ValueError(f"seconds={seconds}: give a number above 0")
    began = time.monotonic()
    rules = rules_with(learnable, env, env_kwargs) if env_kwargs else rules_of(env)
    not_asked: list[str] = []
    if rules.max_cycles is None or rules.max_cycles > LONGEST:
        rules = with_limit(rules, LONGEST)
    scripts = play_scripts(rules, seed=seed, seconds=SCRIPTED * seconds, progress=progress)
    if scripts.left_out:
        not_asked.append(f"for want of time: {', '.join(scripts.left_out)}")
    if scripts.steps >= LONGEST:
        not_asked.append(f"what comes after {LONGEST:,} steps: episodes were cut there")
    seen = Seen.of(rules, seed)
    if unread := [agent for agent in rules.agents if codec_of(rules, agent) is None]:
        not_asked.append(f"what {', '.join(unread)} observe: no arrays, or Dicts within Dicts")
    forked: list[Forked] = []
    if not plays_as_arrays(rules):
        not_asked.append(
            "which action is best at a moment, and whether the observation shows it: moments of a "
            "third-party environment cannot be copied"
        )
    else:
        left = seconds - (time.monotonic() - began)
        forked = list(_all_forked(rules, scripts, seed, left, progress, not_asked))
    for each in forked:
        if not each.complete:
            not_asked.append(
                f"{each.agent} ({each.others}): what comes after {each.followed} of its decisions"
            )
    faults = faults_of(scripts, forked, seen.never, seen.choices)
    notes = notes_of(scripts, forked, seen.never, seen.choices)
    return Learnable(
        environment=rules.name,
        verdict=verdict_of(scripts, forked, faults),
        scripts=scripts,
        forked=tuple(forked),
        faults=faults,
        notes=notes,
        not_asked=tuple(not_asked),
        seconds=round(time.monotonic() - began, 2),
    )


# --- Moments -------------------------------------------------------------------------------------


def _all_forked(
    rules: Rules[Any],
    scripts: Scripts,
    seed: int,
    seconds: float,
    progress: Callable[[str, int, int], None],
    not_asked: list[str],
) -> Iterator[Forked]:
    """Fork moments of each agent in random play, then in play of the best reference; and, where no
    action was better against random play, against others who always do the same."""
    ends = time.monotonic() + max(seconds, 1.0)
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
        agent, others, team = jobs[done]
        progress(f"{agent}, forked ({others})", done, len(jobs))
        # Room for what may yet be needed: others who always do the same.
        may = 0 if mattering or others == FIXED or len(rules.agents) == 1 else len(rules.agents)
        left = (ends - time.monotonic()) / (len(jobs) - done + may)
        done += 1
        if left <= 0:
            late.append(f"{agent} ({others})")
            continue
        if codec_of(rules, agent) is None:
            continue
        sample = sample_moments(rules, rules.agents.index(agent), team, seed)
        if sample is None:
            if others == "random":
                not_asked.append(f"{agent}: it has hardly ever two legal actions to choose from")
                jobs = [job for k, job in enumerate(jobs) if k < done or job[0] != agent]
            continue
        tried = try_actions(sample, team, seed=seed, seconds=0.8 * left)
        found = compare(others, tried)
        yield found
        if found.matters:
            mattering.add(agent)
        elif done == len(jobs) and len(rules.agents) > 1 and others != FIXED:
            spaces_of = {a: rules.action_space(a) for a in rules.agents}
            for each in rules.agents:
                if each not in mattering and any(job[0] == each for job in jobs):
                    fixed = {a: Fixed(space) for a, space in spaces_of.items()}
                    jobs.append((each, FIXED, {**fixed, each: random[each]}))
    if late:
        not_asked.append(f"for want of time: moments of {', '.join(late)}")


def codec_of(rules: Rules[Any], agent: str) -> ObservationCodec | None:
    """Return the codec of an agent's observations; None where they are no arrays."""
    try:
        return ObservationCodec.of(agent, rules.observation_space(agent))
    except UnsupportedSpaceError:
        return None


@dataclass(frozen=True)
class Seen:
    """What random play shows of the observations."""

    never: tuple[str, ...]  # agents whose observation is the same whenever they act
    choices: dict[str, float]  # decisions among two actions or more, per episode

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
