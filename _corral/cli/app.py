"""The ``corral`` command: a thin front door. What it does is done by the packages behind it."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markdown import Markdown
from rich.table import Table

import corral
from corral.cli import check as check_cli
from corral.cli import games as watch_cli
from corral.cli import loads as trace_cli
from corral.cli import runs as train_cli
from corral.cli.options import names, row_range
from corral.cli.output import check_new, out, progress_bar, reported, show_table

if TYPE_CHECKING:
    from corral.trainers.runs.run import Run

__all__ = ["app", "main"]

app = typer.Typer(
    name="corral",
    help="Multi-agent environments with action masks, and what is needed to judge who plays them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(trace_cli.app, name="trace")
train_cli.add_to(app)
check_cli.add_to(app)
watch_cli.add_to(app)


def main() -> None:
    """Entry point of the ``corral`` command."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"corral {corral.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, help="Print the version.")
    ] = False,
) -> None: ...


# --- corral envs ---------------------------------------------------------------------------------


@app.command()
@reported
def envs(
    name: Annotated[str | None, typer.Argument(help="Print this environment's manual.")] = None,
) -> None:
    """List the environments, or print the manual of one."""
    from corral.envs import ENVIRONMENTS, PROBES
    from corral.envs.registry import env_spec, rules_class

    if name is not None:
        # Probes share a module: the manual of one is its class's.
        module = importlib.import_module(env_spec(name).module)
        manual = rules_class(name) if name in PROBES else module
        out.print(Markdown(inspect.getdoc(manual) or ""))
        out.print(_arguments(rules_class(name)))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("environment", "play", "what it is"):
        table.add_column(heading)
    for spec in ENVIRONMENTS.values():
        play = "at once" if spec.simultaneous else "in turns"
        table.add_row(spec.name, play, spec.summary)
    out.print(table)
    out.print(f"And probes with exact answers: {min(PROBES)} .. {max(PROBES)}.")
    out.print("corral envs NAME prints its manual: spaces, rewards, rules, arguments.")


def _arguments(rules: type) -> Table:
    """The arguments of an environment: name, default, and what its docstring says of it."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("argument", "default", "meaning"):
        table.add_column(heading)
    documented = (inspect.getdoc(rules) or "").partition("Args:\n")[2].partition("\n\n")[0]
    modes = ", ".join(rules.render_modes)  # type: ignore[attr-defined]
    table.add_row("render_mode", "None", f"one of {modes}; or None.")
    meanings = dict(re.findall(r"^    (\w+): (.*(?:\n      .*)*)", documented, re.MULTILINE))
    for name, parameter in inspect.signature(rules).parameters.items():
        meaning = " ".join(meanings.get(name, "").split())
        table.add_row(name, repr(parameter.default), meaning)
    return table


# --- corral replay -------------------------------------------------------------------------------


@app.command()
@reported
def replay(
    trace: Annotated[str, typer.Argument(help="A bundled trace (edge3, edge8) or a CSV file.")],
    policies: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated amount/route pairs and folders of runs; default: 13 pairs. "
            "Amounts: local, random, static, overflow, threshold, margin, patient, "
            "patient-margin. Routes: equal, capacity, spare, shortest, two."
        ),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="LOW:HIGH, play rows LOW to HIGH - 1 only.")
    ] = None,
    split: Annotated[
        float | None, typer.Option(help="Play what follows this share of the rows, e.g. 0.7.")
    ] = None,
    out_dir: Annotated[
        Path, typer.Option("--out", help="Folder of report.html, results.json and results.csv.")
    ] = Path("runs/replay"),
    window: Annotated[
        int | None, typer.Option(help="Steps of a window; default: a day, else 288.")
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(help="Requests per step, or 1.25x each node's mean load.")
    ] = None,
    queue: Annotated[
        int | None, typer.Option(help="Requests that a node can hold; default: 0 (see below).")
    ] = None,
    forward_cost: Annotated[
        float | None, typer.Option(help="Cost of a forwarded request; default: 0.")
    ] = None,
    wait_cost: Annotated[
        float | None, typer.Option(help="Cost of a request that waits a step; default: 0.")
    ] = None,
    link_limit: Annotated[
        int | None, typer.Option(help="Requests per directed link and step; default: no limit.")
    ] = None,
    second_offer: Annotated[
        bool | None,
        typer.Option(
            "--second-offer/--no-second-offer",
            help="Offer refused requests once more to all neighbours; default: yes.",
        ),
    ] = None,
    max_level: Annotated[
        int | None,
        typer.Option(
            help="Levels of an action; larger loads are forwarded in coarser units; default: 100."
        ),
    ] = None,
    optimum_windows: Annotated[
        int, typer.Option(help="Windows that get a linear program, where one is needed.")
    ] = 8,
    seed: Annotated[int, typer.Option(help="Of random policies, sampled actions, routes.")] = 0,
) -> None:
    """Replay a load trace through forwarding policies.

    Prints what each serves, loses and forwards beside the optimum, and writes a report. Learned
    teams are named by the folders of their runs; the defaults of the game are then those of the
    runs.
    """
    from corral.data import load_trace
    from corral.envs.dfaas_v0.baselines import AMOUNTS, PAIRS
    from corral.trainers.loads import replay as engine
    from corral.trainers.loads.report import write_report
    from corral.trainers.loads.text import describe, score_table
    from corral.trainers.runs.run import is_run, load_run

    check_new(out_dir, folder=True)
    load = load_trace(trace)
    chosen: dict[str, Any] = {
        name: name for name in (PAIRS if policies is None else names(policies, is_run))
    }
    for name in chosen:
        if Path(name).is_dir() and not is_run(name):
            raise ValueError(f"--policies: {name} is a folder, but holds no run")
        if "/" in name and not is_run(name) and name.partition("/")[0] not in AMOUNTS:
            raise ValueError(
                f"--policies: {name} is neither the folder of a run nor amount/route; amounts are "
                f"{', '.join(AMOUNTS)}"
            )
    runs = [load_run(name) for name in chosen if is_run(name)]
    chosen = {name: pair for name, pair in chosen.items() if not is_run(name)}
    given = {
        "queue": queue,
        "forward_cost": forward_cost,
        "wait_cost": wait_cost,
        "link_limit": link_limit,
        "second_offer": second_offer,
        "max_level": max_level,
    }
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    curves: list[Any] = []
    labels: dict[str, Run] = {}
    if runs:
        from corral.trainers.evaluation.judge import run_labels
        from corral.trainers.loads.judge import as_trained, learning_curves, seen_rows, teams_of

        labels = run_labels(runs)
        settings = as_trained(runs, settings)
        chosen |= teams_of(labels)
        curves = learning_curves(labels)
    if capacity is not None:
        settings["capacity"] = int(capacity) if capacity.isdigit() else capacity
    with progress_bar() as show:
        result = engine.replay(
            load,
            chosen,
            rows=row_range(rows, split, len(load)),
            window=window,
            seed=seed,
            optimum_windows=optimum_windows,
            progress=show,
            **settings,
        )
    show_table(score_table(result))
    for line in describe(result):
        out.print(line, style="dim")
    for label, run in labels.items():
        if seen := seen_rows(label, run, load, result.rows):
            out.print(seen)
    paths = write_report(result, out_dir, learning=curves)
    out.print(f"\nReport: {paths['report.html']}", soft_wrap=True)
