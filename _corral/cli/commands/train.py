"""``corral train``: from an environment to a trained team."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.help import TrainCommand
from corral.cli.mistakes import expect, kind_of, option_of
from corral.cli.options import (
    ANY_OPTION,
    arguments_known,
    import_from_here,
    is_third_party,
    named_as_options,
    settings_of,
    train_options,
)
from corral.cli.output import last_of, out, reported
from corral.cli.train_options import (
    OPTIONS,
    TrainOption,
    arguments_given,
    given_options,
    with_options,
)
from corral.text import one_line

if TYPE_CHECKING:
    from corral.trainers.runs.run import Run

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command of this module to the ``corral`` command."""
    app.command(cls=TrainCommand, context_settings=ANY_OPTION)(train)


@reported
@with_options(OPTIONS)
def train(
    context: typer.Context,
    env: Annotated[
        str | None,
        typer.Argument(
            help="An environment (corral envs lists them), an id of PettingZoo such as "
            "classic/connect_four-v3, or module:function; with --resume only one of others."
        ),
    ] = None,
    **options: Any,
) -> None:
    """Train a team and write it to a folder.

    The folder (a run) holds weights, checkpoints and the progress of learning. Arguments of the
    environment and settings of the trainer are options too, such as --trace loads.csv --queue 50
    --gamma 0.9. With both names, as in corral train dfaas_v0 --trainer mappo --help, all of them
    are listed below. Ctrl-C saves and ends.
    """
    folder = options["resume"]
    if env is not None and is_third_party(env):
        import_from_here()
    elif options["arg"] or options["api"]:
        raise ValueError(
            "--arg and --api are for environments of others; give --name value for corral's own"
        )
    given = {option: options[option.name] for option in given_options(context)}
    run = _begun(context, env, given) if folder is None else _resumed(context, folder, env, given)
    _summarize(run)


def _begun(context: typer.Context, env: str | None, given: Mapping[TrainOption, Any]) -> Run:
    """Train from the start, with the options that were ``given``."""
    from corral.trainers import driver as training

    expect("train", env)
    env = _environment(env, context)
    values = arguments_given(given)
    if "stretch" in values:
        raise ValueError("--stretch is for --resume")
    trainer = values.get("trainer", "mappo")
    arguments, settings = train_options(context, env, trainer)
    if not is_third_party(env):
        values["env_kwargs"] = arguments
    known = [*arguments_known(env), *(field.name for field in settings_of(trainer))]
    with named_as_options(context, known):
        begin = functools.partial(training.train, env, progress=True, **values, **settings)
        return _interruptible(begin)


def _resumed(
    context: typer.Context, folder: Path, env: str | None, given: Mapping[TrainOption, Any]
) -> Run:
    """Go on with the run in ``folder``; what it is, stays."""
    from corral.trainers import driver as training

    expect("--resume", str(folder))
    fixed = [env] if env is not None and not is_third_party(env) else []
    fixed += context.args[:1]
    fixed += [option_of(option.name) for option in given if option.used == "train"]
    if fixed:
        raise ValueError(f"--resume goes on with what the run is; leave out {fixed[0]}")
    values = {"env": env, "progress": True, **arguments_given(given)}
    return _interruptible(functools.partial(training.resume, folder, **values))


def _interruptible(begin: Callable[[], Run]) -> Run:
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
