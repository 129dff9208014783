"""Train a team and write a run; resume a run.

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
from corral.envs.registry import REGISTERED, Api
from corral.errors import ArgumentError, RunError, concise
from corral.hints import meant
from corral.trainers.arguments import (
    Policies,
    check_saving,
    suggesting_a_trainer,
    whole_steps,
)
from corral.trainers.base import Algorithm, Trainer
from corral.trainers.callbacks.sinks import past_rows
from corral.trainers.plan import STEPS, Learning, Length, LookingOn, Plan, Task
from corral.trainers.planning import Minutes, beyond_the_plan, require_its_plan, warn_of_versions
from corral.trainers.runs.folders import locked
from corral.trainers.runs.run import CHECKPOINTS, PROGRESS, Run, load_run
from corral.trainers.session import Session, say
from corral.trainers.settings import require_known, unknown_setting

__all__ = ["resume", "resume_session", "session", "train"]

P = ParamSpec("P")


@concise
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
    overwrite: bool = False,
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
    stop: Sequence[str] | Mapping[str, float] = (),
    evaluate_every: int | None = None,
    dry_run: bool = False,
    **settings: Any,
) -> Session:
    """Return a session that trains the agents of an environment, update by update.

    SIGINT (Ctrl-C) ends training after the current update: the run is saved, and KeyboardInterrupt
    is raised. SIGTERM ends the process in the same way.

    Args:
        env: a name or id, module:function, a module, a function that makes an environment, or an
            environment: see ``corral.adapters.sources``.
        trainer: a name from ``corral.trainers.trainers()``, a trainer class, a record of
            ``corral.algorithms``, or the text file.py:name or module:name of one.
        steps: env steps, summed over all environment copies. Only whole rollouts are played: as
            many as fit, at least one. A line on stderr reports the number if it differs.
        minutes: time budget in minutes, instead of ``steps``. Times the first rollouts, then
            restarts with as many steps as fit; the run keeps this number of steps. A ``Minutes``
            of trainers.planning can also limit the steps.
        horizon: env steps at which annealing (learning rate, entropy bonus) ends. Default:
            ``steps``. If it is larger, the run is the first part of a longer training. If it is
            smaller, annealed values stay constant afterwards. See ``resume``.
        seed: seed of all random numbers; the same seed gives the same weights.
        env_kwargs: arguments of the environment.
        api: "parallel" or "aec", for a third-party environment with both.
        held_out: data rows reserved for evaluation, if the environment replays data: a share of the
            last rows, or rows (low, high).
        validation: data rows reserved for validation during training, taken from the remaining
            rows: a share of the last rows, in whole windows, or rows (low, high); 0: none. Default:
            0.2, if at least one window remains for training.
        policies: "shared" for one policy of all agents, "separate" for one policy per agent, or
            agent -> name of its policy, as a mapping or a function. Default: shared if the spaces
            of all agents are equal, else separate; a ``preset`` can select separate.
        policies_to_train: names of the trained policies; the others only play. Default: all.
        opponents: agents that are not trained: agent -> its player. A player is a reference player
            ("beat-last", see ``corral.envs.reference``), the policy of a run for that agent (RUN,
            RUN@best, RUN@N; its checkpoint is pinned), or a weighted mix, sampled for each episode:
            "runs/a@best:2,beat-last:1", or {"runs/a@best": 2, "beat-last": 1}. Only for the
            in-house trainers (mappo, ippo, a2c, ...).
        self_play: a ``corral.Pool`` of frozen snapshots as additional opponents, or text such as
            "past=0.2,every=20000,keep=20,draw=pfsp". Only for the in-house trainers.
        model: a function ``make(observation_space, *, role) -> torch.nn.Module`` that builds the
            networks of actors and critics, or text that names one, "my_nets:make" or
            "my_file.py:make": see ``corral.adapters.models``. Only for the in-house trainers.
        out: the run's folder, empty or new; default: a new one in ``runs``.
        overwrite: if ``out`` contains a run, remove all files in it when training starts.
        checkpoint_every: env steps between checkpoints; default: a tenth of ``steps``. The end of
            the run is always saved.
        keep: number of latest checkpoints to keep, or "all"; the best is kept in addition.
        init: another run, or RUN@best, that provides the initial weights; the optimizer is fresh.
            Settings may differ, and so may the in-house trainer. Unset arguments of the environment
            and unset network settings are taken from that run. Lines on stderr list the inherited
            values. See ``corral.trainers.cloning.start``.
        init_critic: also load the critics of ``init``, if they fit.
        progress: show the progress on stderr; default: only in a terminal or a notebook.
        settings_of: settings of single policies, policy -> setting -> value, such as
            {"agent_0": {"learning_rate": 1e-3}}. Only for the in-house trainers.
        preset: "auto": unset settings get values for the kind of game, which is detected from its
            rules and up to 20 random episodes; "none": unset settings get the trainer's defaults;
            or a name from ``corral.trainers.kinds.PRESETS``.
        callbacks: each a ``corral.Callback``, a subclass of it, a function(row), or "file.py:name".
        metrics: name -> function of a whole episode, see ``corral.trainers.callbacks.metrics``; its
            mean, min and max become columns of progress.csv.
        sinks: additional destinations of rows, see ``corral.trainers.callbacks.sinks``.
        stop: bounds on columns of progress.csv that end training, such as "return_team>=15", or
            column -> lower bound. RLlib's names are accepted: {"training_iteration": 100}.
        evaluate_every: env steps between evaluations of greedy play, which then select the best
            checkpoint. The run does not store ``callbacks``, ``metrics``, ``sinks``, ``stop`` and
            ``evaluate_every``: pass them to ``resume`` again.
        dry_run: check all arguments, but do not train or write files. The returned run has no
            folder; its ``config`` contains the complete configuration.
        settings: settings of the trainer; they override presets.

    Raises UnknownNameError, MissingExtraError, TypeError for unknown settings, ValueError for
    values out of range, RunError for a folder in use, CallbackError if a callback, a metric or a
    sink raises (the run is saved), and exceptions of the environment. A run that fails before its
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
    kind, arguments = plan.learning.resolved.kind, plan.task.arguments()
    require_known(session, kind, arguments, env_kwargs or {}, settings)
    return plan.begin(out, dry_run=dry_run, overwrite=overwrite)


def _to_its_end(begin: Callable[P, Session], name: str) -> Callable[P, Run]:
    """Return a function with the parameters of ``begin`` that runs the session to its end."""

    @concise
    @functools.wraps(begin)
    def train(*args: P.args, **kwargs: P.kwargs) -> Run:
        if len(args) > 1:
            message = f"{name}() takes one argument without a name; pass steps= and others by name"
            raise TypeError(message)
        session = begin(*args, **kwargs)
        if kwargs.get("dry_run"):
            session.learner.close()
            return Run(Path("."), session.config)
        with session, suggesting_a_trainer(session.config):
            return session.finish()

    train.__name__ = train.__qualname__ = name
    train.__annotations__ = {**begin.__annotations__, "return": "Run"}
    train.__doc__ = (begin.__doc__ or "").replace(
        "Return a session that trains the agents of an environment, update by update.",
        "Train the agents of an environment, and return the run.",
    )
    signature = inspect.signature(begin).replace(return_annotation="Run")
    train.__signature__ = signature  # type: ignore[attr-defined]
    return train


train = _to_its_end(session, "train")


@concise
def resume_session(
    folder: str | Path | Run,
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
    stop: Sequence[str] | Mapping[str, float] = (),
    evaluate_every: int | None = None,
    **settings: Any,
) -> Session:
    """Continue a run from its latest checkpoint, up to ``steps`` env steps in total.

    ``resume`` trains to the end and returns the run. ``resume_session`` returns the session, and
    training starts inside its ``with`` block.

    ``steps`` defaults to the steps of the run. If the environment runs in a ``Batch``, the result
    is then bit-identical to an uninterrupted run. After the planned steps (``horizon`` of
    ``train``), annealed values stay constant; ``stretch`` extends the plan to end at ``steps``.

    ``keep`` overrides the value of ``train``. Lines on stderr report: episodes that restart, a run
    that restarts because it has no checkpoint, training beyond the plan, and changed versions or a
    changed number of torch threads.

    A run does not store ``callbacks``, ``metrics``, ``sinks``, ``stop`` and ``evaluate_every``: see
    ``train``.

    A run keeps its ``settings``: they raise ArgumentError, a TypeError, with the call that starts a
    new run from the weights of this one.

    ``env``, ``env_kwargs``, ``api``, ``trainer`` and ``model``: see ``load_run``. Raises RunError,
    also if another process or thread is training the run, CheckpointError, and KeyboardInterrupt
    like ``train``.
    """
    checkpoint_every, checked_keep = check_saving(checkpoint_every, 1 if keep is None else keep)
    run = load_run(folder, env, env_kwargs=env_kwargs, api=api, trainer=trainer, model=model)
    if settings:
        raise ArgumentError(_refusal(next(iter(settings)), run))
    if run.at not in (None, "latest"):
        raise RunError(
            f"{run.name}: a run resumes only from its latest checkpoint; pass {run.folder}, or "
            f"start a new run from this checkpoint: --init {run.name} (init=)"
        )
    require_its_plan(run.folder, callbacks)
    if keep is not None:
        run.config = dataclasses.replace(run.config, keep=checked_keep)
    if steps is not None:
        steps = whole_steps("steps", steps)
        horizon = steps if stretch else run.config.horizon
        run.config = dataclasses.replace(run.config, steps=steps, horizon=horizon)
    elif stretch:
        raise ValueError("stretch extends the plan to end at steps=; pass that too")
    looking_on = LookingOn(callbacks, metrics, sinks, stop, evaluate_every, progress)
    listeners = looking_on.listeners()

    @contextmanager
    def place() -> Iterator[Path]:
        with locked(run.folder):
            restore()
            yield run.folder

    def restore() -> None:
        # Incomplete checkpoints of a killed process are hidden files and do not count.
        if any((run.folder / CHECKPOINTS).glob("[!.]*")):
            resumed.load(run, stretch=stretch)
            for line in listeners.missing(next(iter(past_rows(run.folder / PROGRESS, 1)), ())):
                say(run.folder, line)
        else:
            say(run.folder, "no checkpoint yet; training restarts from the beginning")
        if steps is not None and steps < learner.env_steps:
            raise RunError(
                f"steps={steps}: {run.folder} is at {learner.env_steps:,} env steps already; "
                "pass more, or omit it"
            )
        if note := beyond_the_plan(run.config):
            say(run.folder, f"{note}. --stretch (stretch=True) extends the plan")
        warn_of_versions(run.folder, run.config)
        if steps is not None or keep is not None:
            run.config.write(run.folder)
        if stretch and learner.env_steps:
            run.save_again(learner.env_steps)  # so that the checkpoint has the new plan

    learner = run.begun()
    resumed = Session(run.config, learner, place(), listeners, checkpoint_every, progress)
    resumed.keep_folder()
    return resumed


def _refusal(name: str, run: Run) -> str:
    """Return the message about an argument that ``resume`` does not have, and a call that works."""
    kind, env = run.config.trainer_class(), run.config.env_config
    of_resume, of_train = (
        [
            one.name
            for one in inspect.signature(function).parameters.values()
            if one.kind is not one.VAR_KEYWORD
        ]
        for function in (resume_session, session)
    )
    names = [*of_train, *(one.name for one in dataclasses.fields(kind.Settings))]
    candidates = [name] if name in names else meant(name, [*names, *of_resume])
    if not candidates:
        return f"resume: {unknown_setting(name, kind.name, names)}"
    if candidates[0] in of_resume:
        return f"resume has no argument named {name!r}; did you mean {candidates[0]!r}?"
    start = repr(env.source or env.env) if env.source or env.env in REGISTERED else "env"
    if run.config.own_trainer is not None:
        start += ", trainer=trainer"
    elif run.config.trainer != "mappo":
        start += f", trainer={run.config.trainer!r}"
    if run.config.own_model is not None:
        start += ", model=model"
    weights = ""
    if kind.capabilities.pool:  # the in-house trainers
        start, weights = f"{start}, init={str(run.folder)!r}", " its weights and"
    return (
        f"resume keeps the setup of the run; omit {name}=. To start a new run with{weights} "
        f"another {candidates[0]}: corral.train({start}, {candidates[0]}=...)"
    )


resume = _to_its_end(resume_session, "resume")
