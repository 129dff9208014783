"""Train a team and leave a run behind; go on with one that stopped.

run = corral.train("dfaas_v0", trainer="sb3_ppo", steps=60_000, seed=1)
with corral.session("dfaas_v0", steps=60_000) as session:  # the same, update by update
    for row in session: ...
decision = run.policies["node_0"].act(observation, deterministic=True)
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, ParamSpec

from corral.adapters.sources import EnvLike
from corral.envs.registry import Api
from corral.errors import RunError
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
from corral.trainers.base import Algorithm, Trainer, find_trainer, trainers
from corral.trainers.callbacks.listeners import Listeners
from corral.trainers.callbacks.sinks import past_rows
from corral.trainers.kinds import defaults_for
from corral.trainers.opponents.resolve import pinned, seen_by
from corral.trainers.planning import Minutes, beyond_the_plan, require_its_plan, tell_of_versions
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.folders import begun_folder, locked
from corral.trainers.runs.own_model import LAYERS, OwnModel, require_no_layers
from corral.trainers.runs.run import CHECKPOINTS, PROGRESS, Run, load_run
from corral.trainers.runs.run_config import RunConfig, versions
from corral.trainers.runs.seen import seen_before
from corral.trainers.session import Session, say
from corral.trainers.settings import make_settings, require_known, settings_by_policy

__all__ = ["resume", "resume_session", "session", "train"]

P = ParamSpec("P")

STEPS = 100_000

CLONE_STARTS = (
    "starts from a clone, which a bonus for entropy would wash out: {} of the preset left out; "
    "--ent-coef (ent_coef=) gives one"
)


def session(
    env: EnvLike,
    *,
    trainer: str | type[Trainer] | Algorithm = "mappo",
    steps: int = STEPS,
    minutes: float | Minutes | None = None,
    horizon: int | None = None,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    held_out: float | tuple[int, int] | None = None,
    validation: float | tuple[int, int] | None = None,
    policies: Policies | None = None,
    policies_to_train: Sequence[str] | None = None,
    opponents: Mapping[str, Any] | None = None,
    self_play: Any = None,
    model: str | Callable[..., Any] | None = None,
    out: str | Path | None = None,
    checkpoint_every: int | None = None,
    keep: int | Literal["all"] = 3,
    init: str | Path | Run | None = None,
    init_critic: bool = True,
    progress: bool | None = None,
    settings_of: Mapping[str, Mapping[str, Any]] | None = None,
    preset: str = "auto",
    callbacks: Sequence[Any] = (),
    metrics: Mapping[str, Any] | None = None,
    sinks: Sequence[Any] = (),
    stop: Sequence[str] = (),
    evaluate_every: int | None = None,
    dry_run: bool = False,
    **settings: Any,
) -> Session:
    """Return a session that trains the agents of an environment, update by update.

    SIGINT (Ctrl-C) ends training after the update under way: the run is saved, and
    KeyboardInterrupt is raised. SIGTERM ends the process in the same way.

    Args:
        env: a name or id, module:function, a module, a function that makes an environment, or an
            environment: see ``corral.adapters.sources``.
        trainer: a name of ``corral.trainers.trainers()``, a class of that kind, a record of
            ``corral.algorithms``, or the text file.py:name or module:name of one.
        steps: env steps, over all environments together. They are played in whole rollouts: as many
            as fit, at least one; a line on stderr says how many, where that is not all.
        minutes: how long it may take, in place of ``steps``: the first rollouts are played to
            measure their speed, then the run begins anew with the steps that fit. These are the
            run's from then on. ``Minutes`` of trainers.planning also say how many they are at most.
        horizon: the env steps after which what is annealed (learning rate, entropy bonus) has come
            to its end. Default: ``steps``. With more than ``steps`` the run is the first portion
            of a longer one; after less, what is annealed stays at its end. See ``resume``.
        seed: of everything that is drawn; the same seed gives the same weights.
        env_kwargs: arguments of the environment.
        api: "parallel" or "aec", for an environment of others that has both.
        held_out: the rows of its data that are kept for evaluation, where the environment has
            some: a share of the last, or rows (low, high).
        validation: those of the rest that validation plays while policies learn, and training does
            not: a share of the last, in whole windows, or rows (low, high); 0: none. Default: 0.2,
            where that leaves a window to train on.
        policies: one policy "shared" by all agents, "separate" ones named like their agents, or
            agent -> name of its policy, as a mapping or a function. Default: shared, where the
            spaces of all agents are equal; else separate, or where the ``preset`` says so.
        policies_to_train: those that learn; the others only play. Default: all.
        opponents: agents that never learn, agent -> who plays them: a reference player
            ("beat-last", see ``corral.envs.reference``), the policy of a run for that agent (RUN,
            RUN@best, RUN@N; its checkpoint is pinned), or a mix with weights, drawn for each
            episode: "runs/a@best:2,beat-last:1", or {"runs/a@best": 2, "beat-last": 1}. For the
            trainers in corral itself (mappo, ippo, a2c, ...).
        self_play: a ``corral.Pool`` of frozen snapshots that policies also play against, or text
            such as "past=0.2,every=20000,keep=20,draw=pfsp". For the trainers in corral itself.
        model: a function ``make(observation_space, *, role) -> torch.nn.Module`` that makes the
            networks of actors and critics, or text that names one, "my_nets:make" or
            "my_file.py:make": see ``corral.adapters.models``. For the trainers in corral itself
            (mappo, ippo, a2c, ...).
        out: the run's folder, empty or new; default: one in ``runs``.
        checkpoint_every: env steps between checkpoints; default: a tenth of ``steps``. There is
            always one at the end.
        init: another run, or RUN@best, whose weights this one starts from, with a fresh optimizer;
            other settings, and another trainer in house, are allowed. Arguments of the environment
            and settings of networks that are not given are that run's. Lines on stderr say what was
            taken. See ``corral.trainers.cloning.start``.
        init_critic: whether critics are taken too, where they fit.
        keep: how many of the latest checkpoints to keep, or "all"; the best is kept besides.
        progress: show it on stderr; default: where stderr is a terminal.
        settings_of: settings that a policy has for itself, policy -> setting -> value, such as
            {"agent_0": {"learning_rate": 1e-3}}. For the trainers in corral itself (mappo, ippo,
            a2c, ...).
        callbacks: each a ``corral.Callback``, a class of them, a function(row), or "file.py:name".
        metrics: name -> function of a whole episode, see ``corral.trainers.callbacks.metrics``; its
            mean, min and max become columns of progress.csv.
        sinks: where rows go besides, see ``corral.trainers.callbacks.sinks``.
        stop: bounds of columns of progress.csv at which training ends, such as "return_team>=15".
        evaluate_every: env steps between evaluations of greedy play; the best checkpoint is then
            the best by them. None of these five is kept with the run: they are given again to
            ``resume``.
        dry_run: check everything, but train nothing and write nothing. The run that is returned has
            no folder; its ``config`` says all that would be played.
        preset: "auto": settings that are left out suit the kind of game, which is read off it and
            found in 20 random episodes; "none": they are the trainer's own; or the name of one of
            ``corral.trainers.kinds.PRESETS``.
        settings: of the trainer; they go before a preset.

    Raises UnknownNameError, MissingExtraError, TypeError for unknown settings, ValueError for
    values out of range, RunError for a folder in use, CallbackError where a callback, a metric or a
    sink raises (the run is saved), and what the environment raises. A run that fails before its
    first update leaves no folder behind.
    """
    steps, seed = whole_steps("steps", steps), seed_of(seed)
    limit = Minutes.of(minutes, steps != STEPS or horizon is not None, self_play is not None)
    horizon = steps if horizon is None else whole_steps("horizon", horizon)
    checkpoint_every, keep = check_saving(checkpoint_every, keep)
    found = find_trainer(trainer)
    name, kind = found.name, found.kind
    arguments = arguments_of(env) if isinstance(env, str) else ()
    require_known(session, kind, arguments, env_kwargs or {}, settings)
    require_init(init, init_critic, settings)
    taken: Any = None
    said: list[str] = []
    if init is not None:
        from corral.trainers.cloning.inherited import inherit

        taken = inherit(init, env, kind, env_kwargs, settings, model=model is not None)
        env_kwargs, settings = taken.env_kwargs, taken.settings
    env_kwargs = kind.env_kwargs_for(env, env_kwargs, settings, api)
    env_config = EnvConfig.of(env, env_kwargs, held_out, api, validation)
    own_model = None if model is None else OwnModel.of(model)
    if own_model is not None:
        require_no_layers(settings)
    layers = dict.fromkeys(() if own_model is None else LAYERS)
    rules = env_config.rules()
    policies, settings = one_for_all(rules, kind, policies, settings)
    defaults = defaults_for(rules, kind, seed, preset)
    if taken is not None:
        layers, said = {**layers, **dict.fromkeys(taken.without)}, [*taken.lines]
        if left := sorted(defaults.settings.keys() & set(taken.without)):
            said.append(CLONE_STARTS.format(", ".join(left)))
    defaults = defaults.without({**layers, **settings, "policies": policies})
    agents = rules.agents
    played, opponent_runs = pinned(played_by_others(opponents, agents), rules)
    learners = [agent for agent in agents if agent not in played]
    if policies is None:
        policies = defaults.policies or ("shared" if alike(rules, learners) else "separate")
    learned = policy_of_each(policies, learners)
    others = named_after(played, rules)
    if both := set(learned.values()) & set(others.values()):
        raise ValueError(
            f"{', '.join(sorted(both))} is a policy and a reference player; call the policy "
            "something else"
        )
    pool: Any = None
    if self_play is not None:
        from corral.trainers.selfplay.also import pooled

        trained = learning(policies_to_train, learned)
        pool, pins, notes = pooled(self_play, rules, learned, trained, steps)
        opponent_runs, said = {**opponent_runs, **pins}, [*said, *notes]
    chosen = vars(make_settings(kind, {**defaults.settings, **settings}))
    config = RunConfig(
        env_config=env_config,
        trainer=name,
        settings=chosen,
        settings_of=settings_by_policy(kind, chosen, settings_of or {}, learned.values()),
        defaults=defaults.saved(),
        seed=seed,
        steps=steps,
        horizon=horizon,
        keep=keep,
        policies={agent: (learned | others)[agent] for agent in agents},
        policies_to_train=learning(policies_to_train, learned),
        versions=versions(learning=True),
        opponents=played,
        self_play=None if pool is None else pool.as_json(),
        opponent_runs=opponent_runs,
        trainer_source=found.source,
        own_trainer=None if isinstance(trainer, str) and not found.source else kind,
        own_model=own_model,
    )
    listeners = Listeners.of(callbacks, metrics, sinks, stop, evaluate_every)
    learner = _begun(config)  # wrong settings are refused before a folder is made
    if limit is not None and not dry_run:
        config, told = limit.planned(config, learner, evaluate_every)
        learner, listeners = _begun(config), limit.watched(listeners)
        said.append(told)
    remark = learner.remark or ""
    said = [defaults.words(), few_rows(env_config), remark, beyond_the_plan(config), *said]
    if found.source is not None and name in trainers():
        said.append(f"this is a changed {name}; give it a name: .but(name=...)")
    seen = seen_before(env_config, learner.learns_from)
    seen += [each for each in seen_by(opponent_runs, env_config, rules) if each not in seen]
    if init is not None:
        from corral.trainers.cloning.start import start_from

        origin, rows, lines = start_from(learner, init, env_config, critic=init_critic)
        seen += [each for each in rows if each not in seen]
        config, said = dataclasses.replace(config, init=origin), [*said, *lines]
    config = dataclasses.replace(config, seen=seen)
    place = begun_folder(out, f"{env_config.env}-{name}-seed{seed}")
    said = [] if is_quiet() else said
    return Session(config, learner, place, listeners, checkpoint_every, progress, said)


def _to_its_end(begin: Callable[P, Session], name: str) -> Callable[P, Run]:
    """Return a function that takes what ``begin`` takes, and runs the session to its end."""

    @functools.wraps(begin)
    def train(*args: P.args, **kwargs: P.kwargs) -> Run:
        session = begin(*args, **kwargs)
        if kwargs.get("dry_run"):
            session.learner.close()
            return Run(Path("."), session.config)
        with session, instead_named(session.config):
            return session.finish()

    train.__name__ = train.__qualname__ = name
    train.__annotations__ = {**begin.__annotations__, "return": "Run"}
    train.__doc__ = (begin.__doc__ or "").replace(
        "Return a session that trains the agents of an environment, update by update.",
        "Train the agents of an environment, and return the run.",
    )
    own = inspect.signature(begin).replace(return_annotation="Run")
    train.__signature__ = own  # type: ignore[attr-defined]
    return train


train = _to_its_end(session, "train")


def resume_session(
    folder: str | Path,
    *,
    env: EnvLike | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    trainer: str | type[Trainer] | Algorithm | None = None,
    model: str | Callable[..., Any] | None = None,
    steps: int | None = None,
    stretch: bool = False,
    checkpoint_every: int | None = None,
    keep: int | Literal["all"] | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Any] = (),
    metrics: Mapping[str, Any] | None = None,
    sinks: Sequence[Any] = (),
    stop: Sequence[str] = (),
    evaluate_every: int | None = None,
) -> Session:
    """Go on with a run from its latest checkpoint, to ``steps`` env steps in all.

    ``resume`` does so to the end and returns the run; ``resume_session`` returns the session, which
    begins where its block is entered.

    Default: the steps it was begun with. Over Batch it then goes on bit for bit as if it had never
    stopped. Beyond the steps that were planned (``horizon`` of ``train``), what is annealed stays
    at its end; with ``stretch`` the plan is made anew, to end at ``steps``.

    ``keep`` replaces what ``train`` was told. A line on stderr says so where episodes begin anew;
    where the run was killed before its first checkpoint, and all begins anew; beyond the plan; and
    where versions or torch's threads are others than those that the run was begun with.

    ``callbacks``, ``metrics``, ``sinks``, ``stop`` and ``evaluate_every`` are not kept with a run:
    see ``train``.

    ``env`` and what follows, ``trainer``, ``model``: see ``load_run``. Raises RunError, where
    another process or thread trains it too, and CheckpointError; KeyboardInterrupt as ``train``
    does.
    """
    checkpoint_every, kept = check_saving(checkpoint_every, 1 if keep is None else keep)
    run = load_run(folder, env, env_kwargs=env_kwargs, api=api, trainer=trainer, model=model)
    if run.at not in (None, "latest"):
        raise RunError(
            f"{run.name}: a run goes on from its latest checkpoint alone; give {run.folder}, or "
            f"begin another run from this one: --init {run.name} (init=)"
        )
    require_its_plan(run.folder, callbacks)
    if keep is not None:
        run.config = dataclasses.replace(run.config, keep=kept)
    if steps is not None:
        steps = whole_steps("steps", steps)
        horizon = steps if stretch else run.config.horizon
        run.config = dataclasses.replace(run.config, steps=steps, horizon=horizon)
    elif stretch:
        raise ValueError("stretch plans a run anew, to end at steps=; give that too")
    listeners = Listeners.of(callbacks, metrics, sinks, stop, evaluate_every)

    @contextmanager
    def place() -> Iterator[Path]:
        with locked(run.folder):
            go_on()
            yield run.folder

    def go_on() -> None:
        # What a kill left half written is hidden, and no checkpoint.
        if any((run.folder / CHECKPOINTS).glob("[!.]*")):
            begun.load(run, stretch=stretch)
            for line in listeners.missing(next(iter(past_rows(run.folder / PROGRESS, 1)), ())):
                say(run.folder, line)
        else:
            say(run.folder, "no checkpoint yet; it begins anew")
        if steps is not None and steps < learner.env_steps:
            raise RunError(
                f"steps={steps}: {run.folder} is at {learner.env_steps:,} env steps already; "
                "give more than that, or leave it out"
            )
        if told := beyond_the_plan(run.config):
            say(run.folder, f"{told}. --stretch (stretch=True) plans it anew")
        tell_of_versions(run.folder, run.config)
        if steps is not None or keep is not None:
            run.config.write(run.folder)
        if stretch and learner.env_steps:
            run.save_again(learner.env_steps)  # with what is planned from here on
        if run.config.steps > learner.env_steps:  # how a clone agreed with its teacher before
            (run.folder / "agreement.json").unlink(missing_ok=True)

    learner = run.begun()
    begun = Session(run.config, learner, place(), listeners, checkpoint_every, progress)
    begun.keep_folder()
    return begun


resume = _to_its_end(resume_session, "resume")


def _begun(config: RunConfig) -> Trainer:
    """Return the trainer as it begins."""
    with instead_named(config):
        learner = config.make_trainer()
    learner.check()
    return learner
