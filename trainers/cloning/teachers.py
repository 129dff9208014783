"""Teachers: whoever makes the decisions that are cloned.

| what is named or given | is |
|---|---|
| "overflow", "greedy", "perfect" | a reference team, or a player that can play all agents |
| "agent_1=nearest,agent_2=still" | reference players by agent |
| "runs/mappo", "runs/mappo@best" | another run, of any trainer; it decides greedily |
| "steps.npz" | recorded steps, see ``corral.trainers.cloning.steps`` |
| a Run, a policy, agent -> policy | the same in Python; a policy is what ``as_policy`` takes |

Which actions a teacher counts as equally good stands in ``Decision.extra["choices"]``, where it
tells; else there is one: the action that it took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, Rules, any_number, carried_by
from corral.envs.policy import Decision, Policy, PolicyLike, as_policy
from corral.envs.reference import reference_player, reference_team, team_arguments, team_names
from corral.envs.registry import REGISTERED, make_rules, registered_name
from corral.errors import (
    ArgumentError,
    CorralError,
    RunError,
    UnknownNameError,
    UnsupportedSpaceError,
)
from corral.files import sha256
from corral.text import shortened
from corral.trainers.cloning.steps import RecordedTeacher, Steps, read_steps, recorded_arguments
from corral.trainers.opponents.resolve import space_in_words
from corral.trainers.runs.checkpoint_format import read_file
from corral.trainers.runs.run import Run, is_run, load_run

__all__ = [
    "Teacher",
    "TeacherLike",
    "arguments_of_teacher",
    "checkpoint_digest",
    "choices_of",
    "find_teacher",
    "plays_all_alike",
    "require_same_spaces",
]

TeacherLike = str | Path | Run | Steps | PolicyLike | Mapping[str, str | PolicyLike]
"""See the table above."""


@dataclass(frozen=True, eq=False)
class Teacher:
    """Who decides, for every agent."""

    name: str
    policies: Mapping[str, Policy]
    deterministic: bool = False  # of networks: they decide greedily
    steps: Steps | None = None  # where its decisions were recorded
    digest: str | None = None  # of the weights or the file behind it
    run: Run | None = None  # that decides


def choices_of(decision: Decision, actions: int) -> Array:
    """Return the actions that a teacher counts as equally good: bool [R, A]."""
    chosen = np.asarray(decision.action)
    choices = decision.extra.get("choices")
    if choices is None:
        found: Array = np.arange(actions) == chosen[:, None]
        return found
    return np.asarray(choices, dtype=bool)


def arguments_of_teacher(env: str, teacher: Any) -> dict[str, Any]:
    """Return the arguments of an environment that a teacher's name says: {"route": "two"}.

    An unknown name says nothing here: ``find_teacher`` tells of it.
    """
    if not isinstance(teacher, str) or env not in REGISTERED:
        return {}
    if teacher.endswith(".npz"):
        return recorded_arguments(teacher, env)
    if is_run(teacher):
        return {}
    try:
        return team_arguments(env, teacher)
    except (UnknownNameError, ArgumentError):
        return {}


def plays_all_alike(env: Any, teacher: Any, env_kwargs: Mapping[str, Any]) -> bool:
    """Return whether ``teacher`` names one reference player or team that is one class for all
    agents of an environment of corral; what is wrong with it, ``find_teacher`` tells."""
    name = registered_name(env) if isinstance(env, str) else None
    if name is None or not isinstance(teacher, str):
        return False
    if teacher.endswith(".npz") or is_run(teacher):
        return False
    try:
        policies = _named(teacher, make_rules(name, **env_kwargs))
    except (CorralError, TypeError, ValueError):
        return False
    return len({type(policy) for policy in policies.values()}) == 1


def find_teacher(teacher: TeacherLike, rules: Rules[Any]) -> Teacher:
    """Return the teacher of these rules' agents; see the table above.

    Raises UnknownNameError with the nearest name, ValueError where a name needs another argument
    of the environment or a team lacks an agent, RunError for a run with other spaces,
    UnsupportedSpaceError where actions are not Discrete, StepsError for recorded steps that do not
    fit.
    """
    for agent in rules.agents:
        if not isinstance(space := rules.action_space(agent), spaces.Discrete):
            raise UnsupportedSpaceError(
                f"{agent} plays {space}: decisions are cloned where actions are Discrete"
            )
    if isinstance(teacher, Path):
        teacher = str(teacher)
    if isinstance(teacher, str) and teacher.endswith(".npz"):
        teacher = read_steps(teacher, rules)
    if isinstance(teacher, Steps):
        teacher.require_fit(rules)
        decided = {agent: RecordedTeacher() for agent in rules.agents}
        return Teacher(teacher.name, decided, steps=teacher, digest=teacher.digest)
    if isinstance(teacher, str) and is_run(teacher):
        teacher = load_run(teacher, None if rules.name in REGISTERED else rules)
    if isinstance(teacher, Run):
        return _of_run(teacher, rules)
    if isinstance(teacher, str):
        return Teacher(teacher, _named(teacher, rules))
    if not isinstance(teacher, Mapping):
        teacher = dict.fromkeys(rules.agents, teacher)
    if set(teacher) != set(rules.agents):
        raise ValueError(
            f"the teacher has policies of {', '.join(map(str, teacher))}; the agents are "
            f"{', '.join(rules.agents)}: give one for each"
        )
    policies = {
        agent: reference_player(one, rules, agent)
        if isinstance(one, str)
        else as_policy(one, agent, rules.agents)
        for agent, one in teacher.items()
    }
    return Teacher("policies given in Python", policies)


def _is_team(name: str, rules: Rules[Any]) -> bool:
    """Return whether a text with "=" names a team, such as "backlog=0.75/least", and not a player
    for each agent."""
    try:
        reference_team(name, rules)
    except (UnknownNameError, ArgumentError):
        return False
    except ValueError:  # it does not fit the rules, which ``reference_team`` says again
        return True
    return True


def _named(name: str, rules: Rules[Any]) -> Mapping[str, Policy]:
    """Return reference players by agent, or the team of that name."""
    if "=" in name and not _is_team(name, rules):
        pairs = [pair.partition("=") for pair in name.split(",")]
        given = {agent.strip(): player.strip() for agent, _, player in pairs}
        if set(given) != set(rules.agents):
            raise ValueError(
                f"teacher {name!r}: name a player of each of {', '.join(rules.agents)}"
            )
        return {agent: reference_player(given[agent], rules, agent) for agent in rules.agents}
    try:  # first: it says why a player is out of reach, where a team would be unknown
        return {agent: reference_player(name, rules, agent) for agent in rules.agents}
    except UnknownNameError:
        pass
    try:
        return reference_team(name, rules)
    except UnknownNameError as error:
        if "/" in name and (name.startswith((".", "/", "runs/")) or Path(name).parent.is_dir()):
            raise RunError(
                f"{name} is a path, and no run is there: give the folder of one, RUN or RUN@best"
            ) from None
        known = team_names(rules)
        said = str(error) if known else f"no teacher named {shortened(name, 200)!r}"
        raise UnknownNameError(
            f"{said}. A run is named by its folder, RUN or RUN@best; recorded steps by a file .npz"
        ) from None


def _of_run(run: Run, rules: Rules[Any]) -> Teacher:
    require_same_spaces(run, rules, "clones from")
    before, here = carried_by(run.config.env_config.rules()), carried_by(rules)
    if differ := [f"{k}={before.get(k)!r}" for k in here if here[k] != before.get(k)]:
        raise RunError(
            f"{run.name} learned with {', '.join(differ)}, which its observations and actions "
            "depend on: give the environment the same"
        )
    policies = {agent: run.policies[agent] for agent in rules.agents}
    return Teacher(run.name, policies, True, digest=checkpoint_digest(run), run=run)


def checkpoint_digest(run: Run) -> str | None:
    """Return the digest of the checkpoint that a run plays by; None: as it began."""
    if run.at is not None and not run.at.strip("0"):
        return None
    return sha256(read_file(run.checkpoint() / "manifest.json", 2**20))


def require_same_spaces(run: Run, rules: Rules[Any], what: str) -> None:
    """Raise RunError where the agents of ``run``, or their spaces, are not those of ``rules``."""
    config = run.config.env_config
    theirs = config.rules()
    any_agent = theirs.agents[0] if any_number(theirs) and any_number(rules) else None
    if tuple(theirs.agents) != tuple(rules.agents) and any_agent is None:
        raise RunError(
            f"{run.name} is of {config.env} with agents {', '.join(theirs.agents)}, and what "
            f"{what} it has {', '.join(rules.agents)}: give a run of the same environment"
        )
    for agent in rules.agents:
        for kind in ("observation_space", "action_space"):
            before, here = getattr(theirs, kind)(any_agent or agent), getattr(rules, kind)(agent)
            if before != here:
                raise RunError(
                    f"{run.name} has another {kind.replace('_', ' ')} than what {what} it: {agent} "
                    f"has {space_in_words(before)} there, {space_in_words(here)} here. Give the "
                    f"environment the arguments that {run.folder} was trained with (its "
                    "config.json), or train without it"
                )
