"""``corral clone`` and ``corral record``: imitate a teacher, or write its decisions to a file."""

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
"""Share of agreement below which advice is printed."""


class CloneCommand(TrainCommand):
    """``corral clone``: --help lists the settings of cloning."""

    trainer = TRAINER
    stood_for = ("teacher",)


class RecordCommand(TrainCommand):
    """``corral record``: --help lists only the arguments of the environment."""

    trainer = None


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module to the ``corral`` command."""
    app.command(cls=CloneCommand, context_settings=ANY_OPTION)(clone)
    app.command(cls=RecordCommand, context_settings=ANY_OPTION)(record)


Env = Annotated[
    str | None,
    typer.Argument(help="An environment, as in corral train."),
]
Arg = Annotated[
    list[str] | None,
    typer.Option(
        metavar="<key=value>", help="Argument for a third-party environment; may be repeated."
    ),
]
OneApi = Annotated[
    str | None, typer.Option(help="API of a third-party environment: parallel or aec.")
]


@reported
def clone(
    context: typer.Context,
    env: Env = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Teacher: a reference team or player such as overflow/equal, a run (RUN, "
            "RUN@best), or recorded steps (FILE.npz).",
        ),
    ] = None,
    steps: Annotated[int, whole("Env steps that the teacher plays.")] = 30_000,
    seed: Annotated[int, whole("Seed of all random numbers.")] = 0,
    episodes: Annotated[
        int, whole("Episodes of the final comparison; cloning does not use them.")
    ] = 64,
    held_out: Annotated[
        str | None,
        typer.Option(
            help="Rows of the trace held out for the comparison: a share, taken from the end, or "
            "LOW:HIGH; default: 0.3."
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(help="shared, separate, or agent=policy,agent=policy, as in training."),
    ] = None,
    policies_to_train: Annotated[
        str | None, typer.Option(help="Policies to train, separated by commas. Default: all.")
    ] = None,
    arg: Arg = None,
    api: OneApi = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the run; default: a new folder in runs/."),
    ] = None,
    checkpoint_every: Annotated[
        int | None, whole("Env steps between checkpoints; default: a tenth of --steps.")
    ] = None,
) -> None:
    """Train policies to imitate a teacher.

    The result is a run: corral evaluate evaluates it, corral train --init RUN starts from its
    weights, and corral train --resume RUN continues cloning. At the end, a table shows the
    agreement: the share of decisions, in new episodes, in which the greedy action is a best action
    of the teacher. Arguments of the environment and settings are options too.
    """
    if "--resume" in context.args or env == "--resume":
        words = [*([env] if env == "--resume" else []), *context.args]
        folder = next((word for word in words if not word.startswith("-") and word != env), "RUN")
        raise ValueError(f"to resume cloning, type corral train --resume {folder}")
    expect("clone", env)
    assert env is not None  # ``expect`` raises for None
    if teacher is None:
        raise ValueError(f"name a teacher, as in: corral clone {env} --from {_example(env)}")
    from corral.trainers.cloning.driver import cloned

    arguments, settings = train_options(context, env, TRAINER)
    if settings.pop("teacher", None) is not None:
        raise ValueError("--teacher: name the teacher with --from")
    env_options = _third_party_options(env, arg, api)
    option_names = [*arguments_known(env), *(field.name for field in settings_of(TRAINER))]
    agreements: list[Agreement] = []

    def begin() -> Any:
        run, agreement = cloned(
            env,
            teacher,
            steps,
            env_options["env_kwargs"] or arguments,
            episodes,
            api=env_options["api"],
            seed=seed,
            held_out=share_or_rows("--held-out", held_out),
            policies=None if policies is None else policies_of(policies),
            policies_to_train=None if policies_to_train is None else listed(policies_to_train),
            out=out_dir,
            checkpoint_every=checkpoint_every,
            progress=True,
            **settings,
        )
        agreements.append(agreement)
        return run

    with named_as_options(context, option_names):
        run = interruptible(begin)
    _show(agreements[0])
    if agreements[0].share < POOR:
        spread = "--smoothing, " if agreements[0].unit else ""
        out.print(
            f"Poor agreement: try more --steps, a larger --net-arch, {spread}--own-play 0.5, or "
            "--memory if the teacher has memory. A teacher with random actions cannot be matched."
        )
    folder = run.config.named(run.folder)
    out.print(f"Run: {run.folder}", soft_wrap=True)
    again = "" if env_options["api"] is None else f" --api {env_options['api']}"
    out.print(
        f"Start training from it: corral train {env} --init {pasted(run.folder)}{again}",
        soft_wrap=True,
    )
    out.print(f"Evaluate it: corral evaluate {folder}", soft_wrap=True)


@reported
def record(
    context: typer.Context,
    env: Env = None,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Policy of the agents: a reference team or player, or a run (RUN, RUN@best)."
        ),
    ] = None,
    episodes: Annotated[int, whole("Episodes to record.")] = 100,
    seed: Annotated[int, whole("Seed of the episodes and of random policies.")] = 0,
    arg: Arg = None,
    api: OneApi = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="File to write, .npz; it must not exist.")
    ] = None,
) -> None:
    """Record the observations and decisions of a team.

    corral clone ENV --from FILE.npz learns from the file. docs/cloning.md describes the file
    format, so that other logs can be converted to it.
    """
    expect("record", env)
    assert env is not None  # ``expect`` raises for None
    if policies is None:
        raise ValueError(
            f"name the policies, as in: corral record {env} --policies {_example(env)}"
        )
    if out_file is None:
        raise ValueError("name the file to write, as in --out steps.npz")
    from corral.cli.options import read_options
    from corral.trainers.cloning.driver import record as recorded
    from corral.trainers.runs.env_config import SET_BY_TRAINING

    arguments, _ = read_options(context, arguments_known(env), unlisted=SET_BY_TRAINING)
    env_options = _third_party_options(env, arg, api)
    with named_as_options(context, arguments_known(env)):
        path = recorded(
            env,
            policies,
            out=out_file,
            episodes=episodes,
            seed=seed,
            env_kwargs=env_options["env_kwargs"] or arguments,
            api=env_options["api"],
        )
    size = path.stat().st_size
    out.print(f"Recorded {episodes:,} episodes of {policies} in {path}, {size:,} bytes")
    out.print(f"Clone from it: corral clone {env} --from {pasted(path)}", soft_wrap=True)


def _third_party_options(env: str, arg: list[str] | None, api: str | None) -> dict[str, Any]:
    """Return the arguments and API of a third-party environment.

    Raises ValueError if they are given for a built-in environment.
    """
    if is_third_party(env):
        import_from_here()
        return {"env_kwargs": arguments_of(arg) if arg else None, "api": api}
    if arg or api:
        raise ValueError(
            "--arg and --api are for third-party environments; write --name value for built-in ones"
        )
    return {"env_kwargs": None, "api": None}


def _example(env: str) -> str:
    """Return the name of a teacher for an environment."""
    teams = {"dfaas_v0": "overflow/equal", "tictactoe_v0": "perfect", "tiles_v0": "greedy"}
    return teams.get(env, "runs/NAME@best")


def _show(agreement: Agreement) -> None:
    """Print the agreement of each agent and of all agents together."""
    unit = agreement.unit
    columns = ["agent", "decisions", "agree, %", "95 % interval"]
    table = Table(*columns, *([f"difference, {unit}"] if unit else []), box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in agreement.rows:
        low, high = row.interval
        interval = "" if low is None or high is None else f"{100 * low:.2f} to {100 * high:.2f}"
        cells = [row.agent, f"{row.decisions:,}", f"{100 * row.share:.2f}", interval]
        difference = [] if row.difference is None else [f"{row.difference:.3g}"]
        table.add_row(*cells, *difference)
    out.print(
        f"Decisions of {agreement.teacher} in {agreement.episodes} new episodes:",
        soft_wrap=True,
    )
    show_table(table)
