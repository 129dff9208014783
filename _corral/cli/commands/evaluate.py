"""``corral evaluate``: evaluate a team against reference policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import corral
from corral.cli.declared import Declared, DeclaredNumber, declared
from corral.cli.mistakes import expect
from corral.cli.options import (
    OptimumWindows,
    Window,
    arguments_of,
    import_from_here,
    listed,
    names,
    row_range,
)
from corral.cli.output import (
    RESULTS,
    check_new,
    out,
    progress_bar,
    reported,
    show_replay,
    show_table,
    show_verdicts,
    written,
)
from corral.cli.run_options import RunApi, RunArguments, RunEnv, RunModel, RunTrainer
from corral.extensions import extension
from corral.text import pasted

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command of this module to the ``corral`` command."""
    app.command()(evaluate)


@declared(lambda: corral.evaluate)
@reported
def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folder of a run, and of further runs to compare with it. RUN plays its latest "
            "checkpoint. RUN@best, RUN@latest and RUN@N (env steps) are checkpoints of a run; "
            "RUN@0 holds its initial weights."
        ),
    ],
    policies: Annotated[
        str | None,
        typer.Option(
            help="Reference policies for dfaas_v0, separated by commas; default: 13 of them. In "
            "other games use corral duel."
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            help="Trace to play instead of the run's held-out rows: a bundled name or a CSV file."
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="<LOW:HIGH>", help="Rows to play; default: the rows held out from training."
        ),
    ] = None,
    window: Window = None,
    beyond: Annotated[
        str | None,
        typer.Option(
            metavar="<clip|rule>",
            help="For numbers of --trace above the scales of the run: clip limits its "
            "observations; rule lets all nodes follow the rule of a residual run. Default: as "
            "trained.",
        ),
    ] = None,
    episodes: Declared = ...,
    optimum_windows: OptimumWindows = 8,
    seed: Declared = ...,
    workers: DeclaredNumber = ...,
    zero_sum: Declared = ...,
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<name>=number>",
            help="Bound on a column of the first row in results.json, such as "
            "'served>=0.95', or on its interval, 'served.low>=0.95'; may be repeated. If a bound "
            "does not hold, the exit code is 1.",
        ),
    ] = None,
    env: RunEnv = None,
    arg: RunArguments = None,
    api: RunApi = None,
    model: RunModel = None,
    trainer: RunTrainer = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder of the report; default: the run's folder.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a report in the folder of --out.")
    ] = False,
) -> None:
    """Evaluate a run next to random and reference policies.

    The team plays greedily and with sampled actions. In dfaas_v0 it plays the held-out rows, and
    the optimum is computed for comparison. In two-player zero-sum games, each agent plays against
    every reference player and against the other runs. For a run on a probe, the expected result
    is printed next to the measured one.
    """
    from corral.data import load_trace
    from corral.trainers.evaluation.judge import judge_of, run_labels
    from corral.trainers.evaluation.required import Required
    from corral.trainers.evaluation.tables import tables
    from corral.trainers.runs.run import load_each, without_logs

    runs = without_logs(runs) or runs
    for folder in runs:
        expect("evaluate", str(folder))
    import_from_here()
    env_options: dict[str, Any] = {"env_kwargs": arguments_of(arg) if arg else None, "api": api}
    loaded, *others = load_each(runs, env, **env_options, trainer=trainer, model=model)
    folder = loaded.results if out_dir is None else out_dir
    # An evaluation in the run's folder overwrites earlier results.
    in_run_folder = folder.resolve() == loaded.results.resolve()
    judged = judge_of(loaded.config.env_config.env) is not None
    _require_load(judged, loaded.config.env_config.env, runs, policies, rows)
    check_new(folder, folder=True, files=RESULTS, overwrite=overwrite or in_run_folder)
    before = written(folder)
    load = loaded.config.env_config.trace if trace is None else load_trace(trace)
    options: dict[str, Any] = {
        "trace": None if trace is None else load,
        "rows": None if load is None else row_range(rows, None, len(load)),
        "window": window,
        "beyond": beyond,
    }
    if judged:
        options["optimum_windows"] = optimum_windows
        if policies is not None:
            options["references"] = names(policies, lambda name: False)
    plan: dict[str, Any] = {"beside": others, "episodes": episodes, "seed": seed, "out": folder}
    plan |= {"workers": workers, "zero_sum": zero_sum, "require": require or ()}
    with progress_bar() as show:
        result = corral.evaluate(loaded, progress=show, **plan, **options)
    for label, run in run_labels([loaded, *others]).items():
        if run.at is not None:
            out.print(f"{label} is {run.source()}.", soft_wrap=True)
    after = written(folder)
    if replaced := [name for name in before if after.get(name) != before[name]]:
        out.print(f"Replaced in {folder}: {', '.join(replaced)}", soft_wrap=True, style="dim")
    if (replay := result.replay) is not None:
        show_replay(replay)
        if (recommendation := loaded.recommendation) is not None:
            for line in recommendation.lines():
                out.print(line, soft_wrap=True)
        for note in result.details["notes"]:
            out.print(note, style="dim", markup=False)
        show_verdicts(replay)
        out.print(f"\nReport: {folder / 'report.html'}", soft_wrap=True)
    else:
        for part in tables(result, loaded.config.env_config.rules()):
            out.print(part, style="dim") if isinstance(part, str) else show_table(part)
        out.print(f"Results: {folder / 'results.json'}", soft_wrap=True)
        examination = extension("examination")
        if examination and (judged := examination.judged_run(loaded, seed=seed)) is not None:
            text = examination.result_text(judged, out.width)
            out.print(f"\n{text}", soft_wrap=True, markup=False)
    for bound in result.details.get("required", ()):
        out.print(f"Required: {Required(**bound)}", soft_wrap=True)
    if not result.holds:
        raise typer.Exit(1)


def _require_load(
    judged: bool, env: str, runs: list[Path], policies: str | None, rows: str | None
) -> None:
    """Raise ValueError for options of loads if the environment replays no load."""
    if judged:
        return
    if policies is not None:
        raise ValueError(
            f"--policies {policies}: {env} replays no load. To play against named players: "
            f"corral duel {pasted(str(runs[0]))} {' '.join(map(pasted, listed(policies)))}"
        )
    if rows is not None:
        raise ValueError(f"--rows {rows}: {env} replays no load; pass --episodes")
