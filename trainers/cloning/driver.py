"""Clone a teacher into a run, and record the play of a team.

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
    plays_all_agents_equally,
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
    """Train policies that decide like ``teacher``, and return the run.

    At the end, the policies are compared with the teacher on episodes not used for cloning. The
    result is agreement.json in the run's folder, see ``compare``.

    Args:
        env: see ``corral.train``.
        teacher: name of a reference team or player, folder of a run, file of recorded steps
            (.npz), or policies in Python, see ``corral.trainers.cloning.teachers``. To resume a
            run with a teacher in Python, pass it again: ``corral.resume(folder,
            trainer=corral.trainers.taught_by(teacher))``.
        steps: env steps played by the teacher, over all environments together.
        env_kwargs: arguments of the environment. Arguments in the teacher's name, such as the
            route of "overflow/two", are added, and a line on stderr reports them.
        episodes: number of episodes compared at the end.
        options: other arguments of ``corral.train``, and settings of the trainer "clone".

    Raises the errors of ``corral.train`` and ``find_teacher``, and ValueError if ``env_kwargs``
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
    """Return the run of ``clone``, and its agreement with the teacher."""
    episodes = nonnegative_int("episodes", episodes, least=1)
    if isinstance(teacher, Path):
        teacher = str(teacher)
    if isinstance(teacher, Run) and teacher.config.env_config.own_rules is None:
        teacher = teacher.name
    kwargs = with_teacher_arguments(env, teacher, env_kwargs, options.get("api"))
    unset = options.get("init") is None and "agent_id" not in options
    if unset and plays_all_agents_equally(env, teacher, kwargs):
        note = f"{teacher} plays all agents equally: agent_id=False is set (--agent-id undoes it)"
        print(f"corral: {visible(note)}", file=sys.stderr)
        options["agent_id"] = False
    if isinstance(teacher, str) and is_run(teacher):
        teacher = with_checkpoint(teacher)  # fixed, in case that run is resumed
    if isinstance(teacher, str):
        options |= {"trainer": "clone", "teacher": teacher}
    else:
        options |= {"trainer": taught_by(teacher), "teacher": GIVEN}
    run = train(env, steps=steps, env_kwargs=kwargs, **options)
    return run, compare(run, teacher, episodes=episodes)


def with_teacher_arguments(
    env: EnvLike, teacher: TeacherLike, env_kwargs: Mapping[str, Any] | None, api: Api | None = None
) -> dict[str, Any]:
    """Return ``env_kwargs`` with the arguments in the teacher's name; report the added ones.

    Raises ValueError if ``env_kwargs`` contradict the name.
    """
    kwargs = dict(env_kwargs or {})
    if not isinstance(env, str) or not isinstance(teacher, str):
        return kwargs
    name = resolve(env, kwargs, api=api).name
    for argument, value in arguments_of_teacher(name, teacher).items():
        if argument not in kwargs:
            note = f"{teacher} plays with {argument}={value}: added to the environment"
            print(f"corral: {visible(note)}", file=sys.stderr)
            kwargs[argument] = value
        elif kwargs[argument] != value:
            raise ValueError(
                f"{teacher} plays with {argument}={value!r}, but the environment has "
                f"{argument}={kwargs[argument]!r}. Leave one of them out. A clone learns the "
                f"teacher's actions; {argument} belongs to the environment"
            )
    return kwargs


def compare(
    run: Run, teacher: TeacherLike | None = None, *, episodes: int = 64, seed: int = 0
) -> Agreement:
    """Compare a run with a teacher on episodes not used for cloning, and write agreement.json.

    With held-out data, the episodes use the held-out rows. Otherwise they have seeds that training
    never plays. For recorded steps they are the last fifth of the episodes. ``teacher``: default is
    the teacher of the run.
    """
    config = run.config
    if teacher is None:
        teacher = config.settings.get("teacher")
        if not teacher or teacher == GIVEN:
            raise ValueError(f"the config of {run.name} does not name its teacher; pass teacher=")
    env_config = config.env_config
    rules = env_config.rules(**env_config.held_out)
    source = find_teacher(teacher, rules)
    if source.steps is not None:
        _, held = source.steps.divided()
        source = type(source)(
            source.name, source.policies, source.deterministic, held, source.digest
        )
    learned = {
        agent: run.policies[agent] for agent in config.policies if agent not in config.opponents
    }
    seed = eval_seed(seed, 1)
    result = agreement(learned, source, rules, episodes=episodes, seed=seed)
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
    """Record ``episodes`` episodes played by ``teacher`` to the file ``out``; return its path.

    For the file format see ``corral.trainers.cloning.steps``. Raises the errors of
    ``find_teacher``, ValueError for ``episodes`` below 1, and FileExistsError.
    """
    episodes, seed = nonnegative_int("episodes", episodes, least=1), nonnegative_int("seed", seed)
    place = Path(out)
    if place.suffix != ".npz":
        raise ValueError(f"{place}: recorded steps need a file name that ends in .npz")
    if place.exists():
        raise FileExistsError(f"{place} exists; choose another file, or remove it")
    kwargs = with_teacher_arguments(env, teacher, env_kwargs, api)
    rules = EnvConfig.of(env, kwargs, None, api).rules(**_rows(kwargs))
    source = find_teacher(teacher, rules)
    if source.steps is not None:
        raise UnsupportedSpaceError(f"{source.name} is recorded already; pass another teacher")
    arguments = {name: _plain(value) for name, value in kwargs.items()}
    header = {
        "env": rules.name,
        "env_kwargs": arguments,
        "agents": list(rules.agents),
        "teacher": source.name,
        "seed": seed,
        "spaces": spaces_digest(rules),
    }
    return write_steps(place, header, _played(rules, source, episodes, seed))


def _rows(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested rows. Held-out rows are not excluded here."""
    return {"rows": kwargs["rows"]} if kwargs.get("rows") is not None else {}


def _plain(value: Any) -> Any:
    """Return the header value of an argument: JSON unchanged, a trace by name and digest."""
    if isinstance(value, Trace):
        return {"trace": value.name, "digest": value.digest}
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(type(value).__name__)
    return value


def _played(rules: Rules[Any], teacher: Any, episodes: int, seed: int) -> dict[str, Array]:
    """Return the entries of whole episodes, concatenated."""
    size = min(episodes, NUM_ENVS)
    quota = episodes // size + (np.arange(size) < episodes % size)
    recorders = {a: _Recorder(policy, rules, a) for a, policy in teacher.policies.items()}
    deterministic = dict.fromkeys(rules.agents, teacher.deterministic)
    frames: list[dict[str, Array]] = []  # one per step, [B, ...] by entry
    starts = np.zeros(size, dtype=np.int64)
    spans: list[tuple[int, int, int]] = []  # per episode: environment, first step, end
    plan: dict[str, Any] = {"quota": quota, "seed": seed, "states": True}
    for turn in play(rules, recorders, deterministic, **plan):
        frame: dict[str, Array] = {"state": np.asarray(turn.state, dtype=np.float32)}
        for i, agent in enumerate(rules.agents):
            observation, decided = turn.observations[agent], turn.asked[:, i]
            inner = observation[OBSERVATION]
            parts = inner if isinstance(inner, Mapping) else {"": inner}
            for key, values in parts.items():
                frame[f"{agent}/{OBSERVATION}" + f"/{key}" * bool(key)] = np.array(values)
            mask = np.array(observation[MASK]) * decided[:, None].astype(np.int8)
            frame[f"{agent}/{MASK}"] = mask
            actions = turn.actions[agent] if isinstance(turn.actions, dict) else turn.actions[:, i]
            frame[f"{agent}/action"] = np.where(decided, actions, 0)
            choices = np.zeros(mask.shape, dtype=bool)
            choices[decided] = recorders[agent].latest if decided.any() else False
            frame[f"{agent}/choices"] = choices
            frame[f"{agent}/reward"] = turn.step.reward[:, i].copy()
            frame[f"{agent}/terminated"] = turn.step.terminated[:, i].copy()
            frame[f"{agent}/truncated"] = turn.step.truncated[:, i].copy()
        frames.append(frame)
        for row in turn.ended.rows:
            spans.append((int(row), int(starts[row]), turn.t + 1))
        starts[np.flatnonzero(turn.step.over)] = turn.t + 1
    t = np.concatenate([np.arange(first, end) for _, first, end in spans])
    row = np.concatenate([np.full(end - first, row) for row, first, end in spans])
    entries = {key: np.stack([frame[key] for frame in frames])[t, row] for key in frames[0]}
    if not entries["state"].shape[-1]:
        del entries["state"]
    lengths = np.array([end - first for _, first, end in spans], dtype=np.int64)
    return {"lengths": lengths, **entries}


class _Recorder(PolicyBase):
    """Plays like ``policy`` and stores its latest equally good actions: bool [R, A]."""

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
