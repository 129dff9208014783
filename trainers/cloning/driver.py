"""Clone a teacher into a run, and record what a team does.

run = corral.clone("dfaas_v0", "overflow/equal", steps=60_000, out="runs/clone")
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corral.adapters.sources import EnvLike, resolve
from corral.data import Trace
from corral.envs.arguments import nonnegative_int
from corral.envs.core import Array, Rules
from corral.envs.masks import MASK, OBSERVATION
from corral.envs.policy import Decision, Policy, PolicyBase
from corral.envs.registry import Api
from corral.errors import UnsupportedSpaceError
from corral.text import visible
from corral.trainers.cloning.agreement import Agreement, agreement, eval_seed
from corral.trainers.cloning.steps import spaces_digest, write_steps
from corral.trainers.cloning.teachers import (
    TeacherLike,
    arguments_of_teacher,
    choices_of,
    find_teacher,
    plays_all_alike,
)
from corral.trainers.cloning.trainer import GIVEN, taught_by
from corral.trainers.driver import train
from corral.trainers.evaluation.episodes import play
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.run import Run, is_run, with_checkpoint

__all__ = ["AGREEMENT", "clone", "cloned", "compare", "record"]

AGREEMENT = Agreement.json_file
NUM_ENVS = 64


def clone(
    env: EnvLike,
    teacher: TeacherLike,
    *,
    steps: int = 30_000,
    env_kwargs: Mapping[str, Any] | None = None,
    episodes: int = 64,
    **options: Any,
) -> Run:
    """Train policies that decide as ``teacher`` does; return a run like any other.

    At the end they are compared with the teacher on episodes not cloned from: agreement.json in the
    run's folder, see ``compare``.

    Args:
        env: see ``corral.train``.
        teacher: a reference team or player by name, the folder of a run, recorded steps (.npz), or
            policies in Python: see ``corral.trainers.cloning.teachers``. One in Python is given
            again to go on: ``corral.resume(folder, trainer=corral.trainers.taught_by(teacher))``.
        steps: env steps that the teacher plays, over all environments together.
        env_kwargs: arguments of the environment. What the teacher's name says of them, such as the
            route of "overflow/two", is taken over, and a line on stderr says so.
        episodes: that are compared at the end.
        options: other arguments of ``corral.train``, and settings of the trainer "clone".

    Raises what ``corral.train`` and ``find_teacher`` raise, and ValueError where ``env_kwargs``
    contradict the teacher's name.
    """
    return cloned(env, teacher, steps, env_kwargs, episodes, **options)[0]


def cloned(
    env: EnvLike,
    teacher: TeacherLike,
    steps: int,
    env_kwargs: Mapping[str, Any] | None,
    episodes: int,
    **options: Any,
) -> tuple[Run, Agreement]:
    """Return the run of ``clone``, and how far it agrees with its teacher."""
    episodes = nonnegative_int("episodes", episodes, least=1)
    if isinstance(teacher, Path):
        teacher = str(teacher)
    if isinstance(teacher, Run) and teacher.config.env_config.own_rules is None:
        teacher = teacher.name
    kwargs = with_teacher_arguments(env, teacher, env_kwargs, options.get("api"))
    unsaid = options.get("init") is None and "agent_id" not in options
    if unsaid and plays_all_alike(env, teacher, kwargs):
        told = f"{teacher} plays all agents alike: agent_id=False; --agent-id tells them apart"
        print(f"corral: {visible(told)}", file=sys.stderr)
        options["agent_id"] = False
    if isinstance(teacher, str) and is_run(teacher):
        teacher = with_checkpoint(teacher)  # that run may go on, and this one must too
    if isinstance(teacher, str):
        options |= {"trainer": "clone", "teacher": teacher}
    else:
        options |= {"trainer": taught_by(teacher), "teacher": GIVEN}
    run = train(env, steps=steps, env_kwargs=kwargs, **options)
    return run, compare(run, teacher, episodes=episodes)


def with_teacher_arguments(
    env: EnvLike, teacher: TeacherLike, env_kwargs: Mapping[str, Any] | None, api: Api | None = None
) -> dict[str, Any]:
    """Return ``env_kwargs`` with what the teacher's name says of them; a line tells what it adds.

    Raises ValueError where they contradict it.
    """
    kwargs = dict(env_kwargs or {})
    if not isinstance(env, str) or not isinstance(teacher, str):
        return kwargs
    name = resolve(env, kwargs, api=api).name
    for argument, value in arguments_of_teacher(name, teacher).items():
        if argument not in kwargs:
            told = f"{teacher} plays with {argument}={value}: the environment is made so"
            print(f"corral: {visible(told)}", file=sys.stderr)
            kwargs[argument] = value
        elif kwargs[argument] != value:
            raise ValueError(
                f"{teacher} plays with {argument}={value!r}, and the environment is to have "
                f"{argument}={kwargs[argument]!r}: leave one of them out. What is learned is the "
                f"teacher's actions; {argument} is the environment's"
            )
    return kwargs


def compare(
    run: Run, teacher: TeacherLike | None = None, *, episodes: int = 64, seed: int = 0
) -> Agreement:
    """Return how far a run agrees with a teacher on episodes not cloned from; write agreement.json.

    Where the environment holds data out, they are of those rows; else of seeds that training never
    plays; of recorded steps the last fifth of the episodes. ``teacher``: default that of the run.
    """
    config = run.config
    if teacher is None:
        teacher = config.settings.get("teacher")
        if not teacher or teacher == GIVEN:
            raise ValueError(f"{run.name} keeps no teacher that a text names; give teacher=")
    env_config = config.env_config
    rules = env_config.rules(**env_config.held_out)
    found = find_teacher(teacher, rules)
    if found.steps is not None:
        _, held = found.steps.divided()
        found = type(found)(found.name, found.policies, found.deterministic, held, found.digest)
    learned = {
        agent: run.policies[agent] for agent in config.policies if agent not in config.opponents
    }
    seed = eval_seed(seed, 1)
    result = agreement(learned, found, rules, episodes=episodes, seed=seed)
    result.write(run.results)
    return result


# --- Recording -----------------------------------------------------------------------------------


def record(
    env: EnvLike,
    teacher: TeacherLike,
    *,
    out: str | Path,
    episodes: int = 100,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
) -> Path:
    """Record ``episodes`` that ``teacher`` plays to the file ``out``; return its path.

    The file is of the format of ``corral.trainers.cloning.steps``. Raises what ``find_teacher``
    raises, ValueError for episodes below 1, and FileExistsError.
    """
    episodes, seed = nonnegative_int("episodes", episodes, least=1), nonnegative_int("seed", seed)
    place = Path(out)
    if place.suffix != ".npz":
        raise ValueError(f"{place}: recorded steps go to a file .npz")
    if place.exists():
        raise FileExistsError(f"{place} exists; give another file, or remove it")
    kwargs = with_teacher_arguments(env, teacher, env_kwargs, api)
    rules = EnvConfig.of(env, kwargs, None, api).rules(**_rows(kwargs))
    found = find_teacher(teacher, rules)
    if found.steps is not None:
        raise UnsupportedSpaceError(f"{found.name} is recorded already; name who plays")
    told = {name: _plain(value) for name, value in kwargs.items()}
    header = {
        "env": rules.name,
        "env_kwargs": told,
        "agents": list(rules.agents),
        "teacher": found.name,
        "seed": seed,
        "spaces": spaces_digest(rules),
    }
    return write_steps(place, header, _played(rules, found, episodes, seed))


def _rows(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows that were asked for: what would be held out is no matter here."""
    return {"rows": kwargs["rows"]} if kwargs.get("rows") is not None else {}


def _plain(value: Any) -> Any:
    """Return what a header says of an argument: JSON as it is, a trace by name and digest."""
    if isinstance(value, Trace):
        return {"trace": value.name, "digest": value.digest}
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(type(value).__name__)
    return value


def _played(rules: Rules[Any], teacher: Any, episodes: int, seed: int) -> dict[str, Array]:
    """Return the entries of whole episodes, one after the other."""
    size = min(episodes, NUM_ENVS)
    quota = episodes // size + (np.arange(size) < episodes % size)
    notes = {agent: _Noting(policy, rules, agent) for agent, policy in teacher.policies.items()}
    deterministic = dict.fromkeys(rules.agents, teacher.deterministic)
    moments: list[dict[str, Array]] = []  # of each step, [B, ...] by entry
    began = np.zeros(size, dtype=np.int64)
    spans: list[tuple[int, int, int]] = []  # of each episode: environment, first step, end
    plan: dict[str, Any] = {"quota": quota, "seed": seed, "states": True}
    for turn in play(rules, notes, deterministic, **plan):
        moment: dict[str, Array] = {"state": np.asarray(turn.state, dtype=np.float32)}
        for i, agent in enumerate(rules.agents):
            observation, asked = turn.observations[agent], turn.asked[:, i]
            inner = observation[OBSERVATION]
            parts = inner if isinstance(inner, Mapping) else {"": inner}
            for key, values in parts.items():
                moment[f"{agent}/{OBSERVATION}" + f"/{key}" * bool(key)] = np.array(values)
            mask = np.array(observation[MASK]) * asked[:, None].astype(np.int8)
            moment[f"{agent}/{MASK}"] = mask
            actions = turn.actions[agent] if isinstance(turn.actions, dict) else turn.actions[:, i]
            moment[f"{agent}/action"] = np.where(asked, actions, 0)
            choices = np.zeros(mask.shape, dtype=bool)
            choices[asked] = notes[agent].latest if asked.any() else False
            moment[f"{agent}/choices"] = choices
            moment[f"{agent}/reward"] = turn.step.reward[:, i].copy()
            moment[f"{agent}/terminated"] = turn.step.terminated[:, i].copy()
            moment[f"{agent}/truncated"] = turn.step.truncated[:, i].copy()
        moments.append(moment)
        for row in turn.ended.rows:
            spans.append((int(row), int(began[row]), turn.t + 1))
        began[np.flatnonzero(turn.step.over)] = turn.t + 1
    t = np.concatenate([np.arange(first, end) for _, first, end in spans])
    row = np.concatenate([np.full(end - first, row) for row, first, end in spans])
    entries = {key: np.stack([each[key] for each in moments])[t, row] for key in moments[0]}
    if not entries["state"].shape[-1]:
        del entries["state"]
    lengths = np.array([end - first for _, first, end in spans], dtype=np.int64)
    return {"lengths": lengths, **entries}


class _Noting(PolicyBase):
    """Plays as ``policy``, and holds what it last counted as equally good: bool [R, A]."""

    def __init__(self, policy: Policy, rules: Rules[Any], agent: str) -> None:
        self.policy, self.actions = policy, int(rules.action_space(agent).n)

    def initial_state(self, num_envs: int) -> Any:
        return self.policy.initial_state(num_envs)

    def act(
        self,
        observation: Any,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        decision = self.policy.act(observation, state, rng, deterministic=deterministic)
        self.latest = choices_of(decision, self.actions)
        return decision
