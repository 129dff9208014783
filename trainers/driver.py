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
from corral.trainers.arguments import (
    Policies,
    check_saving,
    instead_named,
    whole_steps,
)
from corral.trainers.base import Algorithm, Trainer
from corral.trainers.callbacks.sinks import past_rows
from corral.trainers.plan import STEPS, Learning, Length, LookingOn, Plan, Task
from corral.trainers.planning import Minutes, beyond_the_plan, require_its_plan, tell_of_versions
from corral.trainers.runs.folders import locked
from corral.trainers.runs.run import CHECKPOINTS, PROGRESS, Run, load_run
from corral.trainers.session import Session, say
from corral.trainers.settings import require_known

__all__ = ["resume", "resume_session", "session", "train"]

P = ParamSpec("P")


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
    plan = Plan(
        Task(
            env,
            env_kwargs=env_kwargs,
            api=api,
            held_out=held_out,
            validation=validation,
        ),
        Learning(
            trainer,
            settings=settings,
            settings_of=settings_of,
            preset=preset,
            policies=policies,
            policies_to_train=policies_to_train,
            opponents=opponents,
            self_play=self_play,
            model=model,
            init=init,
            init_critic=init_critic,
        ),
        Length(
            steps=steps,
            minutes=minutes,
            horizon=horizon,
            seed=seed,
            checkpoint_every=checkpoint_every,
            keep=keep,
        ),
        LookingOn(
            callbacks=callbacks,
            metrics=metrics,
            sinks=sinks,
            stop=stop,
            evaluate_every=evaluate_every,
            progress=progress,
        ),
    )
    kind, arguments = plan.learning.found.kind, plan.task.arguments()
    require_known(session, kind, arguments, env_kwargs or {}, settings)
    return plan.begin(out, dry_run=dry_run)


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
    looking_on = LookingOn(callbacks, metrics, sinks, stop, evaluate_every, progress)
    listeners = looking_on.listeners()

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
