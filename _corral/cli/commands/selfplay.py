"""``corral duel``: rate players against each other. ``corral exploit``: attack a frozen team."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import corral
from corral.cli.declared import Declared, DeclaredNumber, declared
from corral.cli.mistakes import expect
from corral.cli.options import arguments_of, import_from_here, named_as_options
from corral.cli.output import check_new, out, progress_bar, reported, show_table
from corral.cli.run_options import RunApi, RunArguments, RunEnv, RunModel, RunTrainer
from corral.extras import require

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module to the ``corral`` command."""
    app.command()(duel)
    app.command()(exploit)


@declared(lambda: corral.duel)
@reported
def duel(
    context: typer.Context,
    players: Annotated[
        list[str],
        typer.Argument(
            help="Two or more: folders of runs, RUN@best, RUN@N (env steps), and reference players "
            "or teams of the environment, such as perfect and random."
        ),
    ],
    episodes: Declared = ...,
    env: Annotated[
        str | None,
        typer.Option(
            help="Environment to play, if no player is a run. For runs in a third-party "
            "environment: its name."
        ),
    ] = None,
    arg: RunArguments = None,
    api: RunApi = None,
    seed: Declared = ...,
    greedy: Annotated[
        bool,
        typer.Option(
            "--greedy/--sampled",
            help="Runs play greedily, or sample their actions as in training.",
        ),
    ] = False,
    itself: Declared = ...,
    anchor: Declared = ...,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for the tables (CSV, JSON) and a picture; default: none."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the results in the folder of --out.")
    ] = False,
    workers: DeclaredNumber = ...,
    model: RunModel = None,
    trainer: RunTrainer = None,
) -> None:
    """Let players play each other in every seat, and rate them.

    Every ordered pair plays the same episodes. With two agents, the higher return wins. Ratings
    are on the Elo scale, with intervals; cycles, such as A beats B beats C beats A, are reported.
    With more agents, each player takes each seat once, and the other player's team the rest.
    """
    from corral.lab.duels.driver import FILES
    from corral.lab.duels.tables import duel_tables
    from corral.trainers.runs.run import without_logs

    players = without_logs(players) or players
    if out_dir is not None:
        check_new(out_dir, folder=True, files=FILES, overwrite=overwrite)
    import_from_here()
    env_options: dict[str, Any] = {"env_kwargs": arguments_of(arg) if arg else None, "api": api}
    with named_as_options(context, ["env", "out", "anchor"]), progress_bar() as show:
        result = corral.duel(
            *players,
            env=env,
            **env_options,
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


@declared(lambda: corral.exploit)
@reported
def exploit(
    run: Annotated[
        str | None,
        typer.Argument(
            help="Folder of a run, RUN@best or RUN@N; or, with --env, a reference player."
        ),
    ] = None,
    seat: Annotated[
        list[str] | None,
        typer.Option(
            help="Agent that the attacker plays; may be repeated. Default: every agent that faces "
            "a trained policy."
        ),
    ] = None,
    greedy: Annotated[
        bool,
        typer.Option("--greedy", help="The team plays greedily; default: it samples its actions."),
    ] = False,
    exact: Annotated[Declared, typer.Option("--exact/--attackers")] = ...,
    steps: Declared = ...,
    seeds: Declared = ...,
    episodes: Declared = ...,
    attacker: Declared = ...,
    seed: Declared = ...,
    show: Annotated[
        bool, typer.Option("--show", help="Print the attack, if the result is exact.")
    ] = False,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for results and attackers' runs; default: RUN/exploit."),
    ] = None,
    overwrite: Declared = ...,
    env: RunEnv = None,
    arg: RunArguments = None,
    api: RunApi = None,
    model: RunModel = None,
    trainer: RunTrainer = None,
) -> None:
    """Measure how exploitable a frozen team is.

    In small games the result is exact: a best response to the policies' action probabilities. In
    other games, attackers are trained against the policies, and the best attacker counts. One seat
    is attacked at a time. Attackers are kept as runs, for use as opponents in further training.
    """
    from corral.lab.exploit.text import parts, shown

    if env is None or run is None:
        expect("exploit", run)
    assert run is not None
    import_from_here()
    if out_dir is not None:
        check_new(out_dir, folder=True)
    if exact is False:
        require("torch", extra="mappo", purpose="train attackers")
    env_options: dict[str, Any] = {"api": api, "trainer": trainer, "model": model}
    env_options["env_kwargs"] = arguments_of(arg) if arg else None
    with progress_bar() as bar:
        result = corral.exploit(
            run,
            env,
            seats=seat,
            exact=exact,
            sampled=not greedy,
            steps=steps,
            seeds=seeds,
            episodes=episodes,
            attacker=attacker,
            seed=seed,
            out=out_dir,
            overwrite=overwrite,
            progress=bar,
            **env_options,
        )
    for i, part in enumerate(parts(result)):
        if isinstance(part, str):
            out.print(part, style=None if i == 0 else "dim", soft_wrap="corral train" in part)
        else:
            show_table(part)
    for row in result.rows if show else ():
        out.print()
        for line in shown(row):
            out.print(line, soft_wrap=True)
    if result.folder is not None:
        out.print(f"Results: {result.folder / 'exploit.json'}", soft_wrap=True)
