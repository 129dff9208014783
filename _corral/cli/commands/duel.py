"""``corral duel``: players against each other in every seat, and ratings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from corral.cli.options import arguments_of, import_from_here, named_as_options, whole
from corral.cli.output import check_new, out, progress_bar, reported, show_table
from corral.cli.run_options import OwnApi, OwnArguments, OwnModel, OwnTrainer

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command of this module to the ``corral`` command."""
    app.command()(duel)


@reported
def duel(
    context: typer.Context,
    players: Annotated[
        list[str],
        typer.Argument(
            help="Two or more: folders of runs, RUN@best, RUN@N (env steps), and reference players "
            "or teams of the game, such as perfect and random."
        ),
    ],
    episodes: Annotated[int, whole("Episodes of each pairing.")] = 1000,
    env: Annotated[
        str | None,
        typer.Option(
            help="What is played, where no player is a run; of runs in environments of others, "
            "what they were trained in."
        ),
    ] = None,
    arg: OwnArguments = None,
    api: OwnApi = None,
    seed: Annotated[int, whole("Seed of the episodes, and of actions that are drawn.")] = 0,
    greedy: Annotated[
        bool,
        typer.Option(
            "--greedy/--sampled",
            help="Runs play their likeliest actions, or sample them, as they do in training.",
        ),
    ] = False,
    itself: Annotated[
        bool, typer.Option("--itself", help="Each also plays against itself, in the other seat.")
    ] = False,
    anchor: Annotated[
        str | None,
        typer.Option(help="The player whose rating is 0; default: the mean of all is."),
    ] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for the tables (CSV, JSON) and a picture; default: none."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the results in the folder of --out.")
    ] = False,
    workers: Annotated[
        int, typer.Option(help="Processes that step a third-party environment; 0: this one.")
    ] = 0,
    model: OwnModel = None,
    trainer: OwnTrainer = None,
) -> None:
    """Let players play each other in every seat, and rate them.

    Every ordered pair plays the same episodes. Of two agents, whoever earns more has won; ratings
    are on Elo's scale, with intervals, and it is said where who beats whom runs in circles. Of more
    agents each player sits in each seat once, and another's team in the rest.
    """
    from corral.trainers.selfplay.duels.driver import FILES
    from corral.trainers.selfplay.duels.driver import duel as play
    from corral.trainers.selfplay.duels.tables import duel_tables

    if out_dir is not None:
        check_new(out_dir, folder=True, files=FILES, overwrite=overwrite)
    import_from_here()
    theirs: dict[str, Any] = {"env_kwargs": arguments_of(arg) if arg else None, "api": api}
    with named_as_options(context, ["env", "out", "anchor"]), progress_bar() as show:
        result = play(
            *players,
            env=env,
            **theirs,
            episodes=episodes,
            seed=seed,
            sampled=not greedy,
            itself=itself,
            anchor=anchor,
            model=model,
            trainer=trainer,
            workers=workers,
            progress=show,
        )
    pairings = f"{len(result)} pairing" + "s" * (len(result) > 1)
    out.print(f"{result.env}: {pairings} of {episodes:,} episodes.")
    for part in duel_tables(result):
        out.print(part, style="dim") if isinstance(part, str) else show_table(part)
    if out_dir is not None:
        written = result.write(out_dir)
        out.print(f"Results: {written['duels.json'].parent}, {', '.join(written)}", soft_wrap=True)
