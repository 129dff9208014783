"""Teachers: the policies or recorded steps that are cloned.

| argument | teacher |
|---|---|
| "overflow", "greedy", "perfect" | a reference team, or a player that can play all agents |
| "agent_1=nearest,agent_2=still" | reference players by agent |
| "runs/mappo", "runs/mappo@best" | another run, of any trainer; it decides greedily |
| "steps.npz" | recorded steps, see ``corral.trainers.cloning.steps`` |
| a Run, a policy, agent -> policy | the same in Python; a policy is anything for ``as_policy`` |

``Decision.extra["choices"]`` lists the actions that a teacher considers equally good. Without this
entry, only the played action counts.
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
    "plays_all_agents_equally",
    "require_same_spaces",
]

TeacherLike = str | Path | Run | Steps | PolicyLike | Mapping[str, str | PolicyLike]
"""Accepted teachers, see the table above."""


@dataclass(frozen=True, eq=False)
class Teacher:
    """A teacher for every agent."""

    name: str
    policies: Mapping[str, Policy]
    deterministic: bool = False  # True for runs that play greedily
    steps: Steps | None = None  # the recorded decisions, if it is a file
    digest: str | None = None  # digest of its weights or its file
    run: Run | None = None  # the teaching run


def choices_of(decision: Decision, actions: int) -> Array:
    """Return the actions that a teacher considers equally good: bool [R, A]."""
    chosen = np.asarray(decision.action)
    choices = decision.extra.get("choices")
    if choices is None:
        choices_taken: Array = np.arange(actions) == chosen[:, None]
        return choices_taken
    return np.asarray(choices, dtype=bool)


def arguments_of_teacher(env: str, teacher: Any) -> dict[str, Any]:
    """Return the environment arguments in a teacher's name, for example {"route": "two"}.

    An unknown name gives no arguments; ``find_teacher`` reports it.
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


def plays_all_agents_equally(env: Any, teacher: Any, env_kwargs: Mapping[str, Any]) -> bool:
    """Return True if ``teacher`` is one reference player or team with the same class for all agents
    of an environment of corral. Errors give False; ``find_teacher`` reports them."""
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
    """Return the teacher for the agents of these rules; see the table above.

    Raises UnknownNameError with the closest name; ValueError if a name needs another environment
    argument or a team lacks an agent; RunError for a run with other spaces; UnsupportedSpaceError
    if actions are not Discrete; and StepsError for recorded steps that do not fit.
    """
    for agent in rules.agents:
        if not isinstance(space := rules.action_space(agent), spaces.Discrete):
            raise UnsupportedSpaceError(
                f"{agent} plays {space}, but cloning supports only Discrete actions"
            )
    if isinstance(teacher, Path):
        teacher = str(teacher)
    if isinstance(teacher, str) and teacher.endswith(".npz"):
        teacher = read_steps(teacher, rules)
    if isinstance(teacher, Steps):
        teacher.require_fit(rules)
        players = {agent: RecordedTeacher() for agent in rules.agents}
        return Teacher(teacher.name, players, steps=teacher, digest=teacher.digest)
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
            f"the teacher has policies for {', '.join(map(str, teacher))}, but the agents are "
            f"{', '.join(rules.agents)}. Pass one policy per agent"
        )
    policies = {
        agent: reference_player(one, rules, agent)
        if isinstance(one, str)
        else as_policy(one, agent, rules.agents)
        for agent, one in teacher.items()
    }
    return Teacher("policies given in Python", policies)


def _is_team(name: str, rules: Rules[Any]) -> bool:
    """Return True if a text with "=" names a team, such as "backlog=0.75/least", instead of one
    player per agent."""
    try:
        reference_team(name, rules)
    except (UnknownNameError, ArgumentError):
        return False
    except ValueError:  # unsuitable for the rules; ``reference_team`` raises it again
        return True
    return True


def _named(name: str, rules: Rules[Any]) -> Mapping[str, Policy]:
    """Return reference players by agent, or the team with this name."""
    if "=" in name and not _is_team(name, rules):
        pairs = [pair.partition("=") for pair in name.split(",")]
        players = {agent.strip(): player.strip() for agent, _, player in pairs}
        if set(players) != set(rules.agents):
            raise ValueError(
                f"teacher {name!r}: list one player for each of {', '.join(rules.agents)}"
            )
        return {agent: reference_player(players[agent], rules, agent) for agent in rules.agents}
    try:  # first: its error explains an infeasible player; for a team it would be unknown
        return {agent: reference_player(name, rules, agent) for agent in rules.agents}
    except UnknownNameError:
        pass
    try:
        return reference_team(name, rules)
    except UnknownNameError as error:
        if "/" in name and (name.startswith((".", "/", "runs/")) or Path(name).parent.is_dir()):
            raise RunError(
                f"{name} is a path, but contains no run; pass the folder of a run, RUN or RUN@best"
            ) from None
        names = team_names(rules)
        text = str(error) if names else f"no teacher named {shortened(name, 200)!r}"
        raise UnknownNameError(
            f"{text}. For a run pass its folder (RUN or RUN@best), for recorded steps a .npz file"
        ) from None


def _of_run(run: Run, rules: Rules[Any]) -> Teacher:
    require_same_spaces(run, rules, "clones it")
    before, current = carried_by(run.config.env_config.rules()), carried_by(rules)
    if differ := [f"{k}={before.get(k)!r}" for k in current if current[k] != before.get(k)]:
        raise RunError(
            f"{run.name} was trained with {', '.join(differ)}, which determine its observations "
            "and actions. Pass the same environment arguments"
        )
    policies = {agent: run.policies[agent] for agent in rules.agents}
    return Teacher(run.name, policies, run.deterministic, digest=checkpoint_digest(run), run=run)


def checkpoint_digest(run: Run) -> str | None:
    """Return the digest of the checkpoint of a run; None for its initial weights (RUN@0)."""
    if run.at is not None and not run.at.strip("0"):
        return None
    return sha256(read_file(run.checkpoint() / "manifest.json", 2**20))


def require_same_spaces(run: Run, rules: Rules[Any], purpose: str) -> None:
    """Raise RunError if the agents of ``run`` or their spaces differ from those of ``rules``."""
    config = run.config.env_config
    trained = config.rules()
    any_agent = trained.agents[0] if any_number(trained) and any_number(rules) else None
    if tuple(trained.agents) != tuple(rules.agents) and any_agent is None:
        raise RunError(
            f"{run.name} was trained in {config.env} with agents {', '.join(trained.agents)}, but "
            f"the run that {purpose} has {', '.join(rules.agents)}. Choose a run of the same "
            "environment"
        )
    for agent in rules.agents:
        for kind in ("observation_space", "action_space"):
            before, now = getattr(trained, kind)(any_agent or agent), getattr(rules, kind)(agent)
            if before != now:
                raise RunError(
                    f"{run.name} has another {kind.replace('_', ' ')} than the run that {purpose}: "
                    f"{agent} has {space_in_words(before)} there, {space_in_words(now)} here. "
                    f"Pass the environment arguments of {run.folder} (see its config.json), or "
                    "train without it"
                )
