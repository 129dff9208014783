"""``corral train``: from an environment to a trained team."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.help import TrainCommand
from corral.cli.mistakes import expect, kind_of
from corral.cli.options import (
    ANY_OPTION,
    arguments_known,
    arguments_of,
    held_out_of,
    import_from_here,
    is_third_party,
    listed,
    named_as_options,
    opponents_of,
    policies_of,
    settings_of,
    train_options,
    whole,
)
from corral.cli.output import last_of, out, reported
from corral.text import one_line

if TYPE_CHECKING:
    from corral.trainers.runs.run import Run

__all__ = ["add_to", "interruptible"]


def add_to(app: typer.Typer) -> None:
    """Add the command of this module to the ``corral`` command."""
    app.command(cls=TrainCommand, context_settings=ANY_OPTION)(train)


@reported
def train(
    context: typer.Context,
    env: Annotated[
        str | None,
        typer.Argument(
            help="An environment (corral envs lists them), an id of PettingZoo such as "
            "classic/connect_four-v3, or module:function; with --resume only one of others."
        ),
    ] = None,
    trainer: Annotated[
        str, typer.Option(help="What learns; corral trainers lists them.")
    ] = "mappo",
    steps: Annotated[
        int | None,
        whole("Env steps over all environments together, in whole rollouts; default: 100000."),
    ] = None,
    horizon: Annotated[
        int | None,
        whole(
            "Env steps that are planned in all, where --steps is a first portion: what is "
            "annealed ends there. Default: --steps."
        ),
    ] = None,
    seed: Annotated[
        int,
        whole("Seed of everything that is drawn."),
    ] = 0,
    held_out: Annotated[
        str | None,
        typer.Option(
            help="Rows of a trace that are kept for evaluation: a share of them, taken from the "
            "end, or LOW:HIGH; default: 0.3."
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            help="shared: one for all agents; separate: one each; or agent=policy,agent=policy. "
            "Default: shared where the spaces of all agents are equal, else separate."
        ),
    ] = None,
    policies_to_train: Annotated[
        str | None,
        typer.Option(help="Policies that learn, with commas; the others only play. Default: all."),
    ] = None,
    opponent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<agent=player>",
            help="Let a reference player play this agent, such as player_1=beat-last; may be "
            "repeated. For the trainers mappo and ippo.",
        ),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<key=value>",
            help="An argument of an environment of others; may be repeated.",
        ),
    ] = None,
    api: Annotated[
        str | None, typer.Option(help="parallel or aec, for one of others that has both.")
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run; default: a new one in runs/.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    stretch: Annotated[
        bool,
        typer.Option(
            "--stretch",
            help="With --resume and --steps: plan anew, so that what is annealed ends at --steps.",
        ),
    ] = False,
    checkpoint_every: Annotated[
        int | None,
        whole("Env steps between checkpoints; default: a tenth of --steps."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="Checkpoints to keep, besides the best: a number, or all; default: 3."),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            metavar="<RUN>",
            help="Start from the weights of another run, RUN or RUN@best, with a fresh optimizer. "
            "For the trainers in house: mappo, ippo and clone.",
        ),
    ] = None,
    init_critic: Annotated[
        bool,
        typer.Option(
            "--init-critic/--no-init-critic", help="With --init: take the critic too, if it fits."
        ),
    ] = True,
) -> None:
    """Train a team and write it to a folder.

    The folder (a run) holds weights, checkpoints and the progress of learning. Arguments of the
    environment and settings of the trainer are options too, such as --trace loads.csv --queue 50
    --gamma 0.9. With both names, as in corral train dfaas_v0 --trainer mappo --help, all of them
    are listed below. Ctrl-C saves and ends.
    """
    from corral.trainers import driver as training

    options: dict[str, Any] = {}
    if resume is not None:
        expect("--resume", str(resume))
    else:
        expect("train", env)
        options = train_options(context, _environment(env, context), trainer)
    theirs: dict[str, Any] = {}
    if env is not None and is_third_party(env):
        import_from_here()
        theirs = {"env": env, "env_kwargs": arguments_of(arg) if arg else None, "api": api}
    elif arg or api:
        raise ValueError(
            "--arg and --api are for environments of others; give --name value for corral's own"
        )
    saving: dict[str, Any] = {"checkpoint_every": checkpoint_every, "progress": True}
    if keep is not None:
        saving["keep"] = int(keep) if keep.isdigit() else keep
    if resume is not None:
        fixed = [env] if env is not None and not theirs else []
        fixed += context.args[:1]
        own = [option for option in context.command.params if option.name in FIXED]
        fixed += [option.opts[0] for option in own if _is_given(context, option.name)]
        if fixed:
            raise ValueError(f"--resume goes on with what the run is; leave out {fixed[0]}")
        begin = functools.partial(
            training.resume, resume, steps=steps, stretch=stretch, **theirs, **saving
        )
        run = interruptible(begin)
    else:
        if stretch:
            raise ValueError("--stretch is for --resume")
        assert env is not None  # else ``expect`` has said so
        known = [*arguments_known(env), *(field.name for field in settings_of(trainer))]
        with named_as_options(context, known):
            begin = functools.partial(
                training.train,
                trainer=trainer,
                steps=100_000 if steps is None else steps,
                horizon=horizon,
                seed=seed,
                held_out=held_out_of(held_out),
                policies=None if policies is None else policies_of(policies),  # type: ignore[arg-type]
                policies_to_train=None if policies_to_train is None else listed(policies_to_train),
                opponents=opponents_of(opponent or []),
                out=out_dir,
                init=init,
                init_critic=init_critic,
                **saving,
                **{"env": env, **options, **theirs},
            )
            run = interruptible(begin)
    _summarize(run)


FIXED = [
    *("trainer", "horizon", "seed", "held_out"),
    *("policies", "policies_to_train", "opponent", "out_dir", "init", "init_critic"),
]
"""Options that a run keeps once it was begun."""


def interruptible(begin: Callable[[], Run]) -> Run:
    """Return the run of ``begin``; Ctrl-C, which says itself what was saved, ends the command."""
    try:
        return begin()
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None  # as shells have it: not done, and why


def _environment(env: str | None, context: typer.Context) -> str:
    """Return ``env``. Raises ValueError where an option stands before it."""
    if env is None or env.startswith("-"):
        words = [word for word in context.args if kind_of(word) == "environment"]
        name = words[0] if words else "dfaas_v0"
        raise ValueError(f"name the environment first, as in: corral train {name} ...")
    return env


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _summarize(run: Run) -> None:
    from corral.trainers.evaluation.zero_sum import is_constant_sum
    from corral.trainers.runs.run import Run

    progress, task = run.progress, run.config.env_config
    last = progress.iloc[-1]
    wall_s = last["wall_s"]
    rows = ""
    if task.trace is not None:
        (low, high), (first, end) = task.env_kwargs["rows"], task.held_out["rows"]
        held_out = "played again to evaluate it" if first < high and low < end else "held out"
        rows = f", trace {task.trace.name} rows {low}:{high} ({first}:{end} {held_out})"
    out.print(f"{run.config.trainer} on {task.env}{rows}, seed {run.config.seed}")
    out.print(
        f"{last['env_steps']:,.0f} env steps in {wall_s:.{int(wall_s < 10)}f} s "
        f"({last['env_steps'] / max(wall_s, 1e-9):,.0f}/s)"
    )
    columns = {"team return": "return_team"}
    agents = [f"return_{agent}" for agent in run.config.policies]
    # A sum that is the same whatever they play says nothing.
    if is_constant_sum(task.rules(), progress[agents].dropna().to_numpy()):
        learned = [agent for agent in run.config.policies if agent not in run.config.opponents]
        columns = {f"return of {one_line(agent)}": f"return_{agent}" for agent in learned}
    for what, column in columns.items():
        known = progress.dropna(subset=[column])
        if len(known):
            (value, ended), (first, before) = (
                known.iloc[at][[column, "episodes"]] for at in (-1, 0)
            )
            change = f" (at first {first:.4g})" if before < ended else ""
            out.print(f"{what} of {last_of(int(ended))}: {value:.4g}{change}")
    if run.best_by is not None:
        out.print(f"@best is {Run(run.folder, run.config, 'best').source()}")
    out.print(f"Run: {run.folder}", soft_wrap=True)
    out.print(f"Evaluate it: corral evaluate {task.named(run.folder)}", soft_wrap=True)
