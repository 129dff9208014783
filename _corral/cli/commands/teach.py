"""``corral clone`` and ``corral record``: learn what a teacher decides, and keep it in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from corral.cli.commands.train import interruptible
from corral.cli.help import TrainCommand
from corral.cli.mistakes import expect
from corral.cli.options import (
    ANY_OPTION,
    arguments_known,
    arguments_of,
    import_from_here,
    is_third_party,
    listed,
    named_as_options,
    policies_of,
    settings_of,
    share_or_rows,
    train_options,
    whole,
)
from corral.cli.output import out, reported, show_table
from corral.text import pasted

if TYPE_CHECKING:
    from corral.trainers.cloning.agreement import Agreement

__all__ = ["add_to"]

TRAINER = "clone"
POOR = 0.9
"""Share of agreement below which a line says what may help."""


class CloneCommand(TrainCommand):
    """``corral clone``: its --help lists the settings of cloning."""

    trainer = TRAINER
    stood_for = ("teacher",)


class RecordCommand(TrainCommand):
    """``corral record``: its --help lists the arguments of the environment alone."""

    trainer = None


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module to the ``corral`` command."""
    app.command(cls=CloneCommand, context_settings=ANY_OPTION)(clone)
    app.command(cls=RecordCommand, context_settings=ANY_OPTION)(record)


Env = Annotated[
    str | None,
    typer.Argument(help="An environment, as corral train takes it."),
]
Arg = Annotated[
    list[str] | None,
    typer.Option(
        metavar="<key=value>", help="An argument of an environment of others; may be repeated."
    ),
]
OneApi = Annotated[
    str | None, typer.Option(help="parallel or aec, for one of others that has both.")
]


@reported
def clone(
    context: typer.Context,
    env: Env = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Who decides: a reference team or player such as overflow/equal, a run (RUN, "
            "RUN@best), or recorded steps (FILE.npz).",
        ),
    ] = None,
    steps: Annotated[int, whole("Env steps that the teacher plays.")] = 30_000,
    seed: Annotated[int, whole("Seed of everything that is drawn.")] = 0,
    episodes: Annotated[
        int, whole("Episodes, not cloned from, in which both are compared at the end.")
    ] = 64,
    held_out: Annotated[
        str | None,
        typer.Option(
            help="Rows of a trace that are kept to compare on: a share, taken from the end, or "
            "LOW:HIGH; default: 0.3."
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(help="shared, separate, or agent=policy,agent=policy, as in training."),
    ] = None,
    policies_to_train: Annotated[
        str | None, typer.Option(help="Policies that learn, with commas. Default: all.")
    ] = None,
    arg: Arg = None,
    api: OneApi = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run; default: a new one in runs/.")
    ] = None,
    checkpoint_every: Annotated[
        int | None, whole("Env steps between checkpoints; default: a tenth of --steps.")
    ] = None,
) -> None:
    """Train policies that decide as a teacher does.

    They go to a folder, a run like any other: corral evaluate judges it, corral train --init RUN
    goes on from its weights, corral train --resume RUN goes on cloning. At the end a table says in
    which share of decisions, on episodes not cloned from, the greedy action is one that the teacher
    counts as best. Arguments of the environment and settings are options too.
    """
    if "--resume" in context.args or env == "--resume":
        words = [*([env] if env == "--resume" else []), *context.args]
        folder = next((word for word in words if not word.startswith("-") and word != env), "RUN")
        raise ValueError(f"a run goes on cloning: corral train --resume {folder}")
    expect("clone", env)
    assert env is not None  # else ``expect`` has said so
    if teacher is None:
        raise ValueError(f"name a teacher, as in: corral clone {env} --from {_example(env)}")
    from corral.trainers.cloning.driver import cloned

    arguments, settings = train_options(context, env, TRAINER)
    if settings.pop("teacher", None) is not None:
        raise ValueError("--teacher: give it as --from")
    theirs = _of_others(env, arg, api)
    known = [*arguments_known(env), *(field.name for field in settings_of(TRAINER))]
    found: list[Agreement] = []

    def begin() -> Any:
        run, agreement = cloned(
            env,
            teacher,
            steps,
            theirs["env_kwargs"] or arguments,
            episodes,
            api=theirs["api"],
            seed=seed,
            held_out=share_or_rows("--held-out", held_out),
            policies=None if policies is None else policies_of(policies),
            policies_to_train=None if policies_to_train is None else listed(policies_to_train),
            out=out_dir,
            checkpoint_every=checkpoint_every,
            progress=True,
            **settings,
        )
        found.append(agreement)
        return run

    with named_as_options(context, known):
        run = interruptible(begin)
    _show(found[0])
    if found[0].share < POOR:
        spread = "--smoothing, " if found[0].unit else ""
        out.print(
            f"Poor agreement: try more --steps, a larger --net-arch, {spread}--own-play 0.5, or "
            "--memory where the teacher remembers. A teacher that draws at random cannot be "
            "agreed with"
        )
    folder = run.config.named(run.folder)
    out.print(f"Run: {run.folder}", soft_wrap=True)
    again = "" if theirs["api"] is None else f" --api {theirs['api']}"
    out.print(
        f"Start another from it: corral train {env} --init {pasted(run.folder)}{again}",
        soft_wrap=True,
    )
    out.print(f"Evaluate it: corral evaluate {folder}", soft_wrap=True)


@reported
def record(
    context: typer.Context,
    env: Env = None,
    policies: Annotated[
        str | None,
        typer.Option(help="Who plays: a reference team or player, or a run (RUN, RUN@best)."),
    ] = None,
    episodes: Annotated[int, whole("Episodes to record.")] = 100,
    seed: Annotated[int, whole("Seed of the episodes, and of who draws.")] = 0,
    arg: Arg = None,
    api: OneApi = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="The file to write, .npz; it must be new.")
    ] = None,
) -> None:
    """Record what a team observes and decides.

    corral clone ENV --from FILE.npz learns from the file. The format is open: docs/cloning.md says
    how to make such a file of one's own logs.
    """
    expect("record", env)
    assert env is not None  # else ``expect`` has said so
    if policies is None:
        raise ValueError(f"name who plays: corral record {env} --policies {_example(env)}")
    if out_file is None:
        raise ValueError("name the file to write, as in --out steps.npz")
    from corral.cli.options import read_options
    from corral.trainers.cloning.driver import record as recorded
    from corral.trainers.runs.env_config import SET_BY_TRAINING

    given, _ = read_options(context, arguments_known(env), unlisted=SET_BY_TRAINING)
    theirs = _of_others(env, arg, api)
    with named_as_options(context, arguments_known(env)):
        path = recorded(
            env,
            policies,
            out=out_file,
            episodes=episodes,
            seed=seed,
            env_kwargs=theirs["env_kwargs"] or given,
            api=theirs["api"],
        )
    size = path.stat().st_size
    out.print(f"Recorded {episodes:,} episodes of {policies} in {path}, {size:,} bytes")
    out.print(f"Clone them: corral clone {env} --from {pasted(path)}", soft_wrap=True)


def _of_others(env: str, arg: list[str] | None, api: str | None) -> dict[str, Any]:
    """Return arguments and interface of an environment of others. Raises ValueError for ours."""
    if is_third_party(env):
        import_from_here()
        return {"env_kwargs": arguments_of(arg) if arg else None, "api": api}
    if arg or api:
        raise ValueError(
            "--arg and --api are for environments of others; give --name value for corral's own"
        )
    return {"env_kwargs": None, "api": None}


def _example(env: str) -> str:
    """Return the name of a teacher for an environment."""
    teams = {"dfaas_v0": "overflow/equal", "tictactoe_v0": "perfect", "tiles_v0": "greedy"}
    return teams.get(env, "runs/NAME@best")


def _show(agreement: Agreement) -> None:
    """Print agreement by agent, and of all."""
    unit = agreement.unit
    columns = ["agent", "decisions", "agree, %", "95 % interval"]
    table = Table(*columns, *([f"difference, {unit}"] if unit else []), box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in agreement.rows:
        low, high = row.interval
        interval = "" if low is None or high is None else f"{100 * low:.2f} to {100 * high:.2f}"
        cells = [row.agent, f"{row.decisions:,}", f"{100 * row.share:.2f}", interval]
        apart = [] if row.difference is None else [f"{row.difference:.3g}"]
        table.add_row(*cells, *apart)
    out.print(
        f"Decisions of {agreement.teacher} in {agreement.episodes} episodes not cloned from:",
        soft_wrap=True,
    )
    show_table(table)
