"""The plan of a training: its task, its learning, its length, and its callbacks.

``corral.train``, the command line and configuration files all build these four parts. Each part
validates its own values; ``Plan.begin`` combines the parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from corral.adapters.sources import EnvLike
from corral.envs.core import Rules
from corral.envs.registry import Api
from corral.progress import is_quiet
from corral.trainers.arguments import (
    Policies,
    arguments_of,
    check_saving,
    few_rows,
    have_equal_spaces,
    learning,
    opponent_policy_names,
    opponent_texts,
    policy_of_each,
    require_init,
    seed_of,
    shared_for_any_number,
    suggesting_a_trainer,
    whole_steps,
)
from corral.trainers.base import Algorithm, ResolvedTrainer, Trainer, find_trainer, trainers
from corral.trainers.callbacks.listeners import Listeners
from corral.trainers.kinds import Defaults, defaults_for
from corral.trainers.opponents.resolve import pinned, seen_by
from corral.trainers.planning import Minutes, beyond_the_plan
from corral.trainers.pool import Pool
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.folders import begun_folder
from corral.trainers.runs.inherited import Inherited, inherit
from corral.trainers.runs.own_model import LAYERS, OwnModel, integers_of, require_no_layers
from corral.trainers.runs.run import Run
from corral.trainers.runs.run_config import RunConfig, versions
from corral.trainers.runs.seen import seen_before
from corral.trainers.session import Session
from corral.trainers.settings import make_settings, settings_by_policy

__all__ = ["STEPS", "Learning", "Length", "LookingOn", "Plan", "Task", "begun"]

STEPS = 100_000

CLONE_STARTS = (
    "starts from a clone, which an entropy bonus would overwrite: preset value of {} ignored; "
    "set --ent-coef (ent_coef=) to use a bonus"
)


@dataclass(frozen=True)
class Task:
    """The environment of a training."""

    env: EnvLike
    env_kwargs: Mapping[str, Any] | None = None
    api: Api | None = None
    held_out: float | tuple[int, int] | None = None
    validation: float | tuple[int, int] | None = None

    def arguments(self) -> Collection[str]:
        """Return the environment's argument names; () for a third-party environment."""
        return arguments_of(self.env) if isinstance(self.env, str) else ()

    def config(self) -> EnvConfig:
        """Return the environment configuration. Raises the exceptions of the environment."""
        return EnvConfig.of(self.env, self.env_kwargs, self.held_out, self.api, self.validation)


@dataclass(frozen=True)
class Learning:
    """The trainer, its settings and its initial weights, the policies and their opponents."""

    trainer: str | type[Trainer] | Algorithm = "mappo"
    settings: Mapping[str, Any] = field(default_factory=dict)
    settings_of: Mapping[str, Mapping[str, Any]] | None = None
    preset: str = "auto"
    policies: Policies | None = None
    policies_to_train: Sequence[str] | None = None
    opponents: Mapping[str, Any] | None = None
    self_play: Any = None
    model: str | Callable[..., Any] | None = None
    init: str | Path | Run | None = None
    init_critic: bool = True

    def __post_init__(self) -> None:
        """Raises UnknownNameError, MissingExtraError, ArgumentError, ValueError."""
        assert self.resolved.kind
        require_init(self.init, self.init_critic, self.settings)

    @cached_property
    def resolved(self) -> ResolvedTrainer:
        """The resolved trainer: its name, class and source."""
        return find_trainer(self.trainer)

    @cached_property
    def own_model(self) -> OwnModel | None:
        """The user's custom network."""
        return None if self.model is None else OwnModel.of(self.model)


@dataclass(frozen=True)
class Length:
    """The length, seed and checkpoints of a training. Numbers such as 1e6 become ints."""

    steps: int = STEPS
    minutes: float | Minutes | None = None
    horizon: int | None = None
    seed: int = 0
    checkpoint_every: int | None = None
    keep: int | Literal["all"] = 3

    def __post_init__(self) -> None:
        """Raises ValueError for values out of range, and for minutes combined with steps."""
        steps = whole_steps("steps", self.steps)
        steps_set = steps != STEPS or self.horizon is not None
        horizon = steps if self.horizon is None else whole_steps("horizon", self.horizon)
        checkpoint_every, keep = check_saving(self.checkpoint_every, self.keep)
        for name, value in {
            "steps": steps,
            "horizon": horizon,
            "minutes": Minutes.of(self.minutes, steps=steps_set),
            "seed": seed_of(self.seed),
            "checkpoint_every": checkpoint_every,
            "keep": keep,
        }.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class LookingOn:
    """Callbacks, metrics, sinks and stop criteria; they are not stored with the run."""

    callbacks: Sequence[Any] = ()
    metrics: Mapping[str, Any] | None = None
    sinks: Sequence[Any] = ()
    stop: Sequence[str] | Mapping[str, float] = ()
    evaluate_every: int | None = None
    progress: bool | None = None

    def listeners(self) -> Listeners:
        """Return new listeners. Raises ListenerError, ValueError, UnknownNameError."""
        return Listeners.of(
            self.callbacks, self.metrics, self.sinks, self.stop, self.evaluate_every
        )


# --- Players -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Team:
    """The player of each agent, for specific rules."""

    policies: dict[str, str]  # agent -> policy, without agents of opponents
    to_train: tuple[str, ...]
    opponents: dict[str, str]  # agent -> its opponent, as text
    names: dict[str, str]  # agent -> name of its player in config.json
    runs: dict[str, Any]  # opponents and pool: name -> its pinned checkpoint
    pool: Pool | None
    notes: list[str]  # warnings about the pool

    @classmethod
    def of(cls, plan: Learning, rules: Rules[Any], policies: Policies | None, steps: int) -> Team:
        """Return the team of a plan; ``policies`` by the user or a preset.

        Raises ValueError, UnknownNameError, RunError and CheckpointError for invalid players.
        """
        played, runs = pinned(opponent_texts(plan.opponents, rules.agents), rules)
        learners = [agent for agent in rules.agents if agent not in played]
        if policies is None:
            policies = "shared" if have_equal_spaces(rules, learners) else "separate"
        learned = policy_of_each(policies, learners)
        opponent_names = opponent_policy_names(played, rules)
        if both := set(learned.values()) & set(opponent_names.values()):
            raise ValueError(
                f"{', '.join(sorted(both))}: name of both a policy and a reference player; rename "
                "the policy"
            )
        trained = learning(plan.policies_to_train, learned)
        names = {agent: (learned | opponent_names)[agent] for agent in rules.agents}
        pool, notes = None, list[str]()
        if plan.self_play is not None:
            from corral.trainers.selfplay.also import pooled

            pool, pins, notes = pooled(plan.self_play, rules, learned, trained, steps)
            runs = {**runs, **pins}
        return cls(learned, trained, played, names, runs, pool, notes)


# --- The whole plan ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """A complete plan; ``begin`` returns the session that trains it."""

    task: Task
    learning: Learning
    length: Length
    looking_on: LookingOn

    def __post_init__(self) -> None:
        """Raises ValueError for minutes combined with a self-play pool."""
        minutes = self.length.minutes
        if isinstance(minutes, Minutes) and self.learning.self_play is not None:
            raise ValueError(
                f"minutes={minutes.minutes:g}: a self-play pool needs a number of steps; pass "
                "steps="
            )

    def begin(
        self, out: str | Path | None, *, dry_run: bool = False, overwrite: bool = False
    ) -> Session:
        """Return the session, with the folder ``out`` or a new one in ``runs``. ``overwrite``: see
        ``begun_folder``.

        Files are written only inside the session's ``with`` block. Raises the errors of the parts,
        and errors for parts that do not match.
        """
        start = self._start()
        env_config = dataclasses.replace(self.task, env_kwargs=start.env_kwargs).config()
        config, defaults, notes = self._config(env_config, start)
        learner = begun(config)  # reject wrong settings before creating the folder
        listeners = self.looking_on.listeners()
        limit = self.length.minutes
        lines = [*start.lines, *notes]
        if isinstance(limit, Minutes) and not dry_run:
            config, message = limit.planned(config, learner, self.looking_on.evaluate_every)
            learner, listeners = begun(config), limit.watched(listeners)
            lines.append(message)
        remark = learner.remark or ""
        integers = integers_of(config.own_model, env_config.rules(), config.learners)
        messages = [defaults.words(), few_rows(env_config), remark, integers]
        messages += [beyond_the_plan(config), *lines]
        if config.trainer_source is not None and config.trainer in trainers():
            messages.append(f"this is a changed {config.trainer}; rename it with .but(name=...)")
        config, started = self._with_rows_seen(config, learner)
        name = f"{env_config.env}-{config.trainer}-seed{config.seed}"
        place = begun_folder(out, name, overwrite=overwrite)
        messages = [] if is_quiet() else [*messages, *started]
        every, progress = self.length.checkpoint_every, self.looking_on.progress
        return Session(config, learner, place, listeners, every, progress, messages)

    def _start(self) -> Inherited:
        """Return the environment's arguments and the settings, completed by the run of ``init`` and
        by the trainer."""
        learns, task = self.learning, self.task
        start = Inherited(dict(task.env_kwargs or {}), dict(learns.settings))
        kind = learns.resolved.kind
        if learns.init is not None:
            custom = learns.model is not None
            start = inherit(
                learns.init, task.env, kind, start.env_kwargs, start.settings, model=custom
            )
        env_kwargs = kind.env_kwargs_for(task.env, start.env_kwargs, start.settings, task.api)
        return dataclasses.replace(start, env_kwargs=env_kwargs)

    def _config(
        self, env_config: EnvConfig, start: Inherited
    ) -> tuple[RunConfig, Defaults, list[str]]:
        """Return the configuration of the run, its default settings, and messages."""
        learns, length, resolved = self.learning, self.length, self.learning.resolved
        if (own_model := learns.own_model) is not None:
            require_no_layers(start.settings)
        rules = env_config.rules()
        policies, settings = shared_for_any_number(
            rules, resolved.kind, learns.policies, start.settings
        )
        defaults = defaults_for(rules, resolved.kind, length.seed, learns.preset)
        notes = []
        if dropped := sorted(defaults.settings.keys() & set(start.without)):
            notes.append(CLONE_STARTS.format(", ".join(dropped)))
        layers = () if own_model is None else LAYERS
        explicit = {**dict.fromkeys([*layers, *start.without]), **settings, "policies": policies}
        defaults = defaults.without(explicit)
        team = Team.of(learns, rules, policies or defaults.policies, length.steps)
        chosen = vars(make_settings(resolved.kind, {**defaults.settings, **settings}))
        registered = isinstance(learns.trainer, str) and not resolved.source
        config = RunConfig(
            env_config=env_config,
            trainer=resolved.name,
            settings=chosen,
            settings_of=settings_by_policy(
                resolved.kind, chosen, learns.settings_of or {}, team.policies.values()
            ),
            defaults=defaults.saved(),
            seed=length.seed,
            steps=length.steps,
            horizon=length.horizon or length.steps,
            keep=length.keep,
            policies=team.names,
            policies_to_train=team.to_train,
            versions=versions(learning=True),
            opponents=team.opponents,
            self_play=None if team.pool is None else team.pool.as_json(),
            opponent_runs=team.runs,
            trainer_source=resolved.source,
            own_trainer=None if registered else resolved.kind,
            own_model=own_model,
        )
        return config, defaults, [*notes, *team.notes]

    def _with_rows_seen(self, config: RunConfig, learner: Trainer) -> tuple[RunConfig, list[str]]:
        """Let the learner start from ``init``, and record data rows that were already learned from.

        Return the configuration with the rows seen by the initial run, the teacher and the
        opponents, and messages about the start."""
        env_config, init, lines = config.env_config, self.learning.init, list[str]()
        seen = seen_before(env_config, learner.learns_from)
        rows = seen_by(config.opponent_runs, env_config, env_config.rules())
        if init is not None:
            from corral.trainers.cloning.start import start_from

            critic = self.learning.init_critic
            origin, own_rows, lines = start_from(learner, init, env_config, critic=critic)
            config, rows = dataclasses.replace(config, init=origin), [*rows, *own_rows]
        seen += [entry for i, entry in enumerate(rows) if entry not in [*seen, *rows[:i]]]
        return dataclasses.replace(config, seen=seen), lines


def begun(config: RunConfig) -> Trainer:
    """Return the trainer at the start of a run, with its requirements checked."""
    with suggesting_a_trainer(config):
        learner = config.make_trainer()
    learner.check()
    return learner
