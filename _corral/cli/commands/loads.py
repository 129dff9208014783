"""``corral trace`` and ``corral replay``: load traces, and policies that play them."""

from __future__ import annotations

import ast
import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich import box
from rich.table import Table

from corral.cli.base import App
from corral.cli.commands import imports
from corral.cli.commands.imports import Out, Overwrite, Step, size_of, write
from corral.cli.mistakes import expect
from corral.cli.options import (
    Capacity,
    OptimumWindows,
    Window,
    capacity_of,
    import_from_here,
    names,
    row_range,
)
from corral.cli.output import (
    RESULTS,
    check_new,
    err,
    in_options,
    out,
    progress_bar,
    reported,
    show_replay,
    show_table,
    show_verdicts,
)
from corral.cli.run_options import OwnModel
from corral.text import one_line

if TYPE_CHECKING:
    from corral.trainers.runs.run import Run

__all__ = ["add_to"]

trace_app = App(help="Check, show, make and import load traces.")

trace_app.add_typer(imports.app, name="import")

SPARKS = " ▁▂▃▄▅▆▇█"
NAME = 16  # columns of a node's name
COURSE = 36  # characters of a course over time, so that a row fits 80 columns


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module to the ``corral`` command."""
    app.add_typer(trace_app, name="trace")
    app.command()(replay)


# --- check and show ------------------------------------------------------------------------------


@trace_app.command()
@reported
def check(files: Annotated[list[str], typer.Argument(help="Trace files to read.")]) -> None:
    """Read traces, and say what is wrong with them.

    Every fault comes with file, line, column, value and what to do about it.
    """
    from corral.data import load_trace
    from corral.errors import TraceError
    from corral.trainers.loads.text import about_clock

    faulty = 0
    for file in files:
        try:
            trace = load_trace(file)
        except TraceError as error:
            faulty += 1
            err.print(str(error), soft_wrap=True)
        else:
            capacity = "with capacity" if trace.capacity is not None else "without capacity"
            out.print(f"{file}: {size_of(trace)}, {capacity}", soft_wrap=True)
            for note in about_clock(trace):
                out.print(note, style="dim")
    if faulty:
        raise typer.Exit(1)


@trace_app.command()
@reported
def show(trace: Annotated[str, typer.Argument(help="A bundled trace or a CSV file.")]) -> None:
    """Show load and capacity of each node."""
    from corral.data import load_trace
    from corral.envs.render.columns import cut
    from corral.trainers.loads.text import about_clock

    expect("show", trace)
    load = load_trace(trace)
    unit = " s" if load.clock == "utc" else ""
    out.print(
        f"{load.name}: {size_of(load)}, a step is {load.step}{unit}, "
        f"{load.clock_text(0)} to {load.clock_text(len(load) - 1)}",
        markup=False,
    )
    for note in about_clock(load):
        out.print(note, style="dim")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    courses = [_course(load.arrivals[:, i]) for i in range(len(load.nodes))]
    top = max(float(course.max()) for course in courses)
    table.add_column("\nnode", no_wrap=True)
    for heading in ("mean\nload", "peak\nload", "mean\ncapacity"):
        table.add_column(heading, justify="right", no_wrap=True)
    steps = -(-len(load) // COURSE)
    means = f" means of {steps} steps," if steps > 1 else ""
    heading = f"load over time,{means}\nbars from 0 to {top:.0f} requests"
    table.add_column(heading, no_wrap=True)
    for i, node in enumerate(load.nodes):
        arrivals = load.arrivals[:, i]
        capacity = "" if load.capacity is None else f"{load.capacity[:, i].mean():.1f}"
        load_cells = f"{arrivals.mean():.1f}", str(arrivals.max())
        table.add_row(cut(one_line(node), NAME), *load_cells, capacity, _spark(courses[i], top))
    show_table(table)
    if load.capacity is not None:
        arrived = load.arrivals.sum()
        local = np.minimum(load.arrivals, load.capacity).sum() / arrived
        pooled = np.minimum(load.arrivals.sum(axis=1), load.capacity.sum(axis=1)).sum() / arrived
        out.print(f"Served if nobody forwards: {local:.2%}; at best, with forwarding: {pooled:.2%}")


def _course(values: Any) -> Any:
    """The mean of each of at most ``COURSE`` equal parts of ``values``."""
    return np.array([part.mean() for part in np.array_split(values, min(COURSE, len(values)))])


def _spark(values: Any, top: float) -> str:
    heights = values / max(top, 1e-9) * (len(SPARKS) - 1)
    return "".join(SPARKS[max(1, round(h)) if h > 0 else 0] for h in heights)


# --- make ----------------------------------------------------------------------------------------


@trace_app.command()
@reported
def make(
    out_file: Out,
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 3,
    days: Annotated[int, typer.Option(help="Length of the trace, in days.")] = 14,
    step: Step = 300,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    mean: Annotated[float, typer.Option(help="Mean load of a node, requests per step.")] = 24.0,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="<name=value>",
            help="Any other field of TraceSpec (data/README.md); may be repeated.",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Make a trace from a seed.

    It has days and weeks, noise, bursts, flash crowds, uneven capacity; see data/README.md.
    """
    from corral.data import make_trace

    check_new(out_file, overwrite=overwrite)
    options = dict(_setting(text) for text in option or [])
    given = {"nodes": nodes, "days": days, "step": step, "seed": seed, "mean": mean, **options}
    write(make_trace(name=out_file.name.split(".")[0], **given), out_file, overwrite)


def _setting(text: str) -> tuple[str, Any]:
    from corral.data import TraceSpec
    from corral.errors import UnknownNameError

    name, equals, value = text.partition("=")
    known = [field.name for field in dataclasses.fields(TraceSpec)]
    if not equals:
        raise ValueError(f"--set {text!r}: give NAME=VALUE, for example bursts=12")
    if name not in known:
        raise UnknownNameError.of("field of TraceSpec", name, known)
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


# --- corral replay -------------------------------------------------------------------------------


@reported
def replay(
    trace: Annotated[str, typer.Argument(help="A bundled trace (edge3, edge8) or a CSV file.")],
    policies: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated amount/route pairs and folders of runs (or checkpoints: "
            "RUN@best); default: 13 pairs. "
            "Amounts: local, random, static, overflow, threshold, margin, patient, "
            "patient-margin. Routes: equal, capacity, spare, shortest, two."
        ),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(metavar="<LOW:HIGH>", help="Play rows LOW to HIGH - 1 only.")
    ] = None,
    split: Annotated[
        float | None, typer.Option(help="Play what follows this share of the rows, e.g. 0.7.")
    ] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of report.html, results.json and results.csv; default: runs/replay, or "
            "with a number after it.",
        ),
    ] = None,
    model: OwnModel = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a report in the folder of --out.")
    ] = False,
    window: Window = None,
    capacity: Capacity = None,
    queue: Annotated[
        int | None,
        typer.Option(help="Requests that a node can hold until the next step; default: 0."),
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
    report_delay: Annotated[
        int | None,
        typer.Option(
            help="Steps after which nodes know what others had spare; 0: at once; default: 1."
        ),
    ] = None,
    optimum_windows: OptimumWindows = 8,
    seed: Annotated[
        int, typer.Option(help="Seed of random policies, sampled actions and routes.")
    ] = 0,
) -> None:
    """Replay a load trace through forwarding policies.

    Prints what each serves, loses and forwards beside the optimum, and writes a report. Learned
    teams are named by the folders of their runs; the default of --queue, of the costs and of
    limits is then what they were trained with.
    """
    from corral.data import load_trace
    from corral.envs.dfaas_v0.baselines import AMOUNTS, PAIRS
    from corral.trainers.loads import replay as engine
    from corral.trainers.loads.report import write_report
    from corral.trainers.runs.run import is_run, load_run, models_for

    expect("replay", trace)
    if out_dir is None:
        out_dir = _free_folder(Path("runs/replay"))
    check_new(out_dir, folder=True, files=RESULTS, overwrite=overwrite)
    load = load_trace(trace)
    entries = PAIRS if policies is None else names(policies, is_run)
    for name in entries:
        if Path(name).is_dir() and not is_run(name):
            raise ValueError(f"--policies: {name} is a folder, but holds no run")
        if "/" in name and not is_run(name) and name.partition("/")[0] not in AMOUNTS:
            raise ValueError(
                f"--policies: {name} is neither the folder of a run nor amount/route; amounts are "
                f"{', '.join(AMOUNTS)}"
            )
    folders = [name for name in entries if is_run(name)]
    if model is not None:
        import_from_here()
        if not folders:
            raise ValueError(f"--model {model}: no run is among --policies; leave it out")
    models = models_for(folders, model)
    runs = [load_run(name, model=own) for name, own in zip(folders, models, strict=True)]
    chosen: dict[str, Any] = {name: name for name in entries if not is_run(name)}
    given = {
        "queue": queue,
        "forward_cost": forward_cost,
        "wait_cost": wait_cost,
        "link_limit": link_limit,
        "second_offer": second_offer,
        "report_delay": report_delay,
    }
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    curves: list[Any] = []
    labels: dict[str, Run] = {}
    if runs:
        from corral.trainers.evaluation.judge import run_labels, run_players
        from corral.trainers.loads.judge import (
            as_trained,
            learning_curves,
            seen_rows,
            trained_otherwise,
            with_seen,
        )

        labels = run_labels(runs)
        settings = as_trained(runs, settings)
        chosen |= run_players(labels)
        curves = learning_curves(labels)
    if capacity is not None:
        settings["capacity"] = capacity_of(capacity)
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
    seen = {label: seen_rows(label, run, load, result.rows) for label, run in labels.items()}
    if runs:
        result = with_seen(result, seen)
    show_replay(result, given)
    other = {label: trained_otherwise(label, run, settings) for label, run in labels.items()}
    notes = [note for label in labels for note in (seen[label], other[label]) if note is not None]
    for note in notes:
        out.print(in_options(note, [*given, "capacity"]), style="dim", markup=False)
    show_verdicts(result)
    paths = write_report(result, out_dir, learning=curves, notes=notes)
    out.print(f"\nReport: {paths['report.html']}", soft_wrap=True)


def _free_folder(folder: Path) -> Path:
    """Return ``folder``, or with the first number after it that is free."""
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([folder], numbered) if not each.exists())
