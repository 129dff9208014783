"""The plan of a training: what is played, who learns, how long, and what looks on.

Keywords of ``corral.train``, a command line and a configuration file all become these four. Each
checks what can be checked without the others; ``Plan.begin`` brings them together.
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
    alike,
    arguments_of,
    check_saving,
    few_rows,
    instead_named,
    learning,
    named_after,
    one_for_all,
    played_by_others,
    policy_of_each,
    require_init,
    seed_of,
    whole_steps,
)
from corral.trainers.base import Algorithm, FoundTrainer, Trainer, find_trainer, trainers
from corral.trainers.callbacks.listeners import Listeners
from corral.trainers.kinds import Defaults, defaults_for
from corral.trainers.opponents.resolve import pinned, seen_by
from corral.trainers.planning import Minutes, beyond_the_plan
from corral.trainers.pool import Pool
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.folders import begun_folder
from corral.trainers.runs.inherited import Inherited, inherit
from corral.trainers.runs.own_model import LAYERS, OwnModel, require_no_layers
from corral.trainers.runs.run import Run
from corral.trainers.runs.run_config import RunConfig, versions
from corral.trainers.runs.seen import seen_before
from corral.trainers.session import Session
from corral.trainers.settings import make_settings, settings_by_policy

__all__ = ["STEPS", "Learning", "Length", "LookingOn", "Plan", "Task", "begun"]

STEPS = 100_000

CLONE_STARTS = (
    "starts from a clone, which a bonus for entropy would wash out: {} of the preset left out; "
    "--ent-coef (ent_coef=) gives one"
)


@dataclass(frozen=True)
class Task:
    """What is played."""

    env: EnvLike
    env_kwargs: Mapping[str, Any] | None = None
    api: Api | None = None
    held_out: float | tuple[int, int] | None = None
    validation: float | tuple[int, int] | None = None

    def arguments(self) -> Collection[str]:
        """Return the names of the environment's arguments, nothing of others."""
        return arguments_of(self.env) if isinstance(self.env, str) else ()

    def config(self) -> EnvConfig:
        """Return what a run keeps of it. Raises what the environment raises."""
        return EnvConfig.of(self.env, self.env_kwargs, self.held_out, self.api, self.validation)


@dataclass(frozen=True)
class Learning:
    """Who learns, by what, from where, and who plays beside them."""

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
        assert self.found.kind
        require_init(self.init, self.init_critic, self.settings)

    @cached_property
    def found(self) -> FoundTrainer:
        """The class of the trainer, and where it came from."""
        return find_trainer(self.trainer)

    @cached_property
    def own_model(self) -> OwnModel | None:
        """The network of a user's own."""
        return None if self.model is None else OwnModel.of(self.model)


@dataclass(frozen=True)
class Length:
    """How long it trains, and what it keeps on the way. Numbers such as 1e6 become ints."""

    steps: int = STEPS
    minutes: float | Minutes | None = None
    horizon: int | None = None
    seed: int = 0
    checkpoint_every: int | None = None
    keep: int | Literal["all"] = 3

    def __post_init__(self) -> None:
        """Raises ValueError for what is out of range, and for minutes beside steps."""
        steps = whole_steps("steps", self.steps)
        given = steps != STEPS or self.horizon is not None
        horizon = steps if self.horizon is None else whole_steps("horizon", self.horizon)
        checkpoint_every, keep = check_saving(self.checkpoint_every, self.keep)
        for name, value in {
            "steps": steps,
            "horizon": horizon,
            "minutes": Minutes.of(self.minutes, steps=given),
            "seed": seed_of(self.seed),
            "checkpoint_every": checkpoint_every,
            "keep": keep,
        }.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class LookingOn:
    """What looks on while it trains; nothing of it is kept with a run."""

    callbacks: Sequence[Any] = ()
    metrics: Mapping[str, Any] | None = None
    sinks: Sequence[Any] = ()
    stop: Sequence[str] = ()
    evaluate_every: int | None = None
    progress: bool | None = None

    def listeners(self) -> Listeners:
        """Return them, made anew. Raises ListenerError, ValueError, UnknownNameError."""
        return Listeners.of(
            self.callbacks, self.metrics, self.sinks, self.stop, self.evaluate_every
        )


# --- Who plays -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Team:
    """Who plays which agent, found out for some rules."""

    policies: dict[str, str]  # agent -> policy, of those that have one
    to_train: tuple[str, ...]
    opponents: dict[str, str]  # agent -> who plays it, as text
    names: dict[str, str]  # agent -> what config.json calls who plays it
    runs: dict[str, Any]  # of opponents and the pool: name -> its pinned checkpoint
    pool: Pool | None
    notes: list[str]  # what there is to say of the pool

    @classmethod
    def of(cls, plan: Learning, rules: Rules[Any], policies: Policies | None, steps: int) -> Team:
        """Return the team of a plan; ``policies`` as given, or as a preset has them.

        Raises ValueError, UnknownNameError, RunError and CheckpointError for who cannot play.
        """
        played, runs = pinned(played_by_others(plan.opponents, rules.agents), rules)
        learners = [agent for agent in rules.agents if agent not in played]
        if policies is None:
            policies = "shared" if alike(rules, learners) else "separate"
        learned = policy_of_each(policies, learners)
        others = named_after(played, rules)
        if both := set(learned.values()) & set(others.values()):
            raise ValueError(
                f"{', '.join(sorted(both))} is a policy and a reference player; call the policy "
                "something else"
            )
        trained = learning(plan.policies_to_train, learned)
        names = {agent: (learned | others)[agent] for agent in rules.agents}
        pool, notes = None, list[str]()
        if plan.self_play is not None:
            from corral.trainers.selfplay.also import pooled

            pool, pins, notes = pooled(plan.self_play, rules, learned, trained, steps)
            runs = {**runs, **pins}
        return cls(learned, trained, played, names, runs, pool, notes)


# --- All together --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """A training, planned: ``begin`` gives the session that carries it out."""

    task: Task
    learning: Learning
    length: Length
    looking_on: LookingOn

    def __post_init__(self) -> None:
        """Raises ValueError for a pool of self-play beside minutes."""
        minutes = self.length.minutes
        if isinstance(minutes, Minutes) and self.learning.self_play is not None:
            raise ValueError(
                f"minutes={minutes.minutes:g}: a pool of self-play is laid out by steps; give "
                "steps="
            )

    def begin(self, out: str | Path | None, *, dry_run: bool = False) -> Session:
        """Return the session, whose folder is ``out`` or one in ``runs``.

        Nothing is written before the session's block is entered. Raises what the parts raise where
        they do not fit together.
        """
        start = self._start()
        env_config = dataclasses.replace(self.task, env_kwargs=start.env_kwargs).config()
        config, defaults, notes = self._config(env_config, start)
        learner = begun(config)  # wrong settings are refused before a folder is made
        listeners = self.looking_on.listeners()
        limit = self.length.minutes
        lines = [*start.lines, *notes]
        if isinstance(limit, Minutes) and not dry_run:
            config, told = limit.planned(config, learner, self.looking_on.evaluate_every)
            learner, listeners = begun(config), limit.watched(listeners)
            lines.append(told)
        remark = learner.remark or ""
        said = [defaults.words(), few_rows(env_config), remark, beyond_the_plan(config), *lines]
        if config.trainer_source is not None and config.trainer in trainers():
            said.append(f"this is a changed {config.trainer}; give it a name: .but(name=...)")
        config, started = self._with_rows_seen(config, learner)
        place = begun_folder(out, f"{env_config.env}-{config.trainer}-seed{config.seed}")
        said = [] if is_quiet() else [*said, *started]
        every, progress = self.length.checkpoint_every, self.looking_on.progress
        return Session(config, learner, place, listeners, every, progress, said)

    def _start(self) -> Inherited:
        """Return the environment's arguments and the settings, with what the run that it starts
        from and the trainer itself add to them."""
        learns, task = self.learning, self.task
        start = Inherited(dict(task.env_kwargs or {}), dict(learns.settings))
        kind = learns.found.kind
        if learns.init is not None:
            own = learns.model is not None
            start = inherit(
                learns.init, task.env, kind, start.env_kwargs, start.settings, model=own
            )
        env_kwargs = kind.env_kwargs_for(task.env, start.env_kwargs, start.settings, task.api)
        return dataclasses.replace(start, env_kwargs=env_kwargs)

    def _config(
        self, env_config: EnvConfig, start: Inherited
    ) -> tuple[RunConfig, Defaults, list[str]]:
        """Return what defines the run, its defaults, and what to say."""
        learns, length, found = self.learning, self.length, self.learning.found
        if (own_model := learns.own_model) is not None:
            require_no_layers(start.settings)
        rules = env_config.rules()
        policies, settings = one_for_all(rules, found.kind, learns.policies, start.settings)
        defaults = defaults_for(rules, found.kind, length.seed, learns.preset)
        notes = []
        if left := sorted(defaults.settings.keys() & set(start.without)):
            notes.append(CLONE_STARTS.format(", ".join(left)))
        layers = () if own_model is None else LAYERS
        given = {**dict.fromkeys([*layers, *start.without]), **settings, "policies": policies}
        defaults = defaults.without(given)
        team = Team.of(learns, rules, policies or defaults.policies, length.steps)
        chosen = vars(make_settings(found.kind, {**defaults.settings, **settings}))
        registered = isinstance(learns.trainer, str) and not found.source
        config = RunConfig(
            env_config=env_config,
            trainer=found.name,
            settings=chosen,
            settings_of=settings_by_policy(
                found.kind, chosen, learns.settings_of or {}, team.policies.values()
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
            trainer_source=found.source,
            own_trainer=None if registered else found.kind,
            own_model=own_model,
        )
        return config, defaults, [*notes, *team.notes]

    def _with_rows_seen(self, config: RunConfig, learner: Trainer) -> tuple[RunConfig, list[str]]:
        """Let the learner start from ``init``; return the configuration with the rows of data that
        it, its teacher and its opponents have learned from, and what to say of the start."""
        env_config, init, lines = config.env_config, self.learning.init, list[str]()
        seen = seen_before(env_config, learner.learns_from)
        rows = seen_by(config.opponent_runs, env_config, env_config.rules())
        if init is not None:
            from corral.trainers.cloning.start import start_from

            critic = self.learning.init_critic
            origin, own, lines = start_from(learner, init, env_config, critic=critic)
            config, rows = dataclasses.replace(config, init=origin), [*rows, *own]
        seen += [each for i, each in enumerate(rows) if each not in [*seen, *rows[:i]]]
        return dataclasses.replace(config, seen=seen), lines


def begun(config: RunConfig) -> Trainer:
    """Return the trainer as it begins, checked."""
    with instead_named(config):
        learner = config.make_trainer()
    learner.check()
    return learner
