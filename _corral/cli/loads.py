"""``corral trace``: check, show, make and import load traces."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich import box
from rich.table import Table

from corral.cli.output import check_new, err, out, reported, show_table

__all__ = ["app"]

app = typer.Typer(
    help="Check, show, make and import load traces.", no_args_is_help=True, rich_markup_mode=None
)
importer = typer.Typer(
    help="Turn a public format into a trace.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(importer, name="import")

SPARKS = " ▁▂▃▄▅▆▇█"
COURSE = 36  # characters of a course over time, so that a row fits 80 columns

Out = Annotated[Path, typer.Option("--out", help="File to write: .csv or .csv.gz.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
Files = Annotated[list[Path], typer.Argument(help="One file per node, unless --names says else.")]
Names = Annotated[
    str | None, typer.Option(help="Comma-separated node names; equal ones join their files.")
]
Capacity = Annotated[
    str | None, typer.Option(help="Requests per step, or 1.25x each node's mean load.")
]
Zone = Annotated[str, typer.Option(help="Zone of times that name none, such as -04:00.")]
Step = Annotated[int, typer.Option(help="Length of a step, in seconds.")]
MaybeStep = Annotated[
    int | None, typer.Option(help="Length of a step, in seconds; default: the files' own.")
]


# --- check and show ------------------------------------------------------------------------------


@app.command()
@reported
def check(files: Annotated[list[str], typer.Argument(help="Trace files to read.")]) -> None:
    """Read traces strictly, and say what is wrong.

    Every fault comes with file, line, column, value and what to do about it.
    """
    from corral.data import load_trace
    from corral.errors import TraceError

    faulty = 0
    for file in files:
        try:
            trace = load_trace(file)
        except TraceError as error:
            faulty += 1
            err.print(str(error), markup=False, soft_wrap=True)
        else:
            capacity = "with capacity" if trace.capacity is not None else "without capacity"
            out.print(
                f"{file}: {_size(trace)}, {capacity}",
                markup=False,
                soft_wrap=True,
            )
    if faulty:
        raise typer.Exit(1)


@app.command()
@reported
def show(trace: Annotated[str, typer.Argument(help="A bundled trace or a CSV file.")]) -> None:
    """Show load and capacity of each node."""
    from corral.data import load_trace

    load = load_trace(trace)
    unit = " s" if load.clock == "utc" else ""
    out.print(
        f"{load.name}: {_size(load)}, a step is {load.step}{unit}, "
        f"{load.clock_text(0)} to {load.clock_text(len(load) - 1)}",
        markup=False,
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    courses = [_course(load.arrivals[:, i]) for i in range(len(load.nodes))]
    top = max(float(course.max()) for course in courses)
    table.add_column("\nnode", overflow="fold", max_width=16)
    for heading in ("mean\nload", "peak\nload", "mean\ncapacity"):
        table.add_column(heading, justify="right", no_wrap=True)
    steps = -(-len(load) // COURSE)
    heading = f"load over time, 0 to {top:.0f}" + (f",\nmean of {steps} steps" if steps > 1 else "")
    table.add_column(heading, no_wrap=True)
    for i, node in enumerate(load.nodes):
        arrivals = load.arrivals[:, i]
        capacity = "" if load.capacity is None else f"{load.capacity[:, i].mean():.1f}"
        table.add_row(
            node,
            f"{arrivals.mean():.1f}",
            str(arrivals.max()),
            capacity,
            _spark(courses[i], top),
        )
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


@app.command()
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
        typer.Option("--set", help="NAME=VALUE, any other field of TraceSpec; repeatable."),
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
    _write(make_trace(name=out_file.name.split(".")[0], **given), out_file, overwrite)


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


def _write(trace: Any, path: Path, overwrite: bool) -> None:
    from corral.data import write_trace

    write_trace(trace, path, overwrite=overwrite)
    out.print(f"{path}: {_size(trace)}", markup=False, soft_wrap=True)


def _size(trace: Any) -> str:
    from corral.trainers.loads.text import counted

    return f"{counted(len(trace), 'step')} x {counted(len(trace.nodes), 'node')}"


# --- import --------------------------------------------------------------------------------------


def _finish(imported: Any, path: Path, overwrite: bool) -> None:
    for note in imported.notes:
        err.print(f"note: {note}", markup=False, soft_wrap=True)
    _write(imported.trace, path, overwrite)


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _capacity(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdigit() else text


@importer.command("series")
@reported
def series(
    files: Files,
    out_file: Out,
    names: Names = None,
    column: Annotated[str | None, typer.Option(help="Column of the load; default: 2nd.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Column of time; default: 1st.")] = None,
    zone: Zone = "Z",
    step: MaybeStep = None,
    gaps: Annotated[
        Literal["refuse", "zero", "previous", "interpolate"],
        typer.Option(help="What to do where times are missing."),
    ] = "refuse",
    round_values: Annotated[
        bool, typer.Option("--round", help="Round fractions to whole requests.")
    ] = False,
    capacity: Capacity = None,
    overwrite: Overwrite = False,
) -> None:
    """Files of timestamp,value rows (NAB)."""
    from corral.data import import_series

    check_new(out_file, overwrite=overwrite)
    imported = import_series(
        files,
        names=_list(names),
        column=column,
        time_column=time_column,
        zone=zone,
        step=step,
        gaps=gaps,
        round_values=round_values,
        capacity=_capacity(capacity),
    )
    _finish(imported, out_file, overwrite)


@importer.command("requests")
@reported
def requests(
    files: Files,
    out_file: Out,
    step: Step,
    column: Annotated[str | None, typer.Option(help="Column of time; default: 1st.")] = None,
    node_column: Annotated[str | None, typer.Option(help="Column that names the node.")] = None,
    names: Names = None,
    zone: Zone = "Z",
    capacity: Capacity = None,
    overwrite: Overwrite = False,
) -> None:
    """Files with one row per request (Azure LLM 2023)."""
    from corral.data import import_requests

    check_new(out_file, overwrite=overwrite)
    imported = import_requests(
        files,
        step=step,
        column=column,
        node_column=node_column,
        names=_list(names),
        zone=zone,
        capacity=_capacity(capacity),
    )
    _finish(imported, out_file, overwrite)


@importer.command("access-log")
@reported
def access_log(
    files: Files,
    out_file: Out,
    step: Step,
    names: Names = None,
    skip_malformed: Annotated[
        bool, typer.Option("--skip-malformed", help="Leave out unreadable lines, however many.")
    ] = False,
    capacity: Capacity = None,
    overwrite: Overwrite = False,
) -> None:
    """Web-server access logs (Common, Combined)."""
    from corral.data import import_access_log

    check_new(out_file, overwrite=overwrite)
    imported = import_access_log(
        files,
        step=step,
        names=_list(names),
        skip_malformed=skip_malformed,
        capacity=_capacity(capacity),
    )
    _finish(imported, out_file, overwrite)


@importer.command("azure-functions")
@reported
def azure_functions(
    files: Annotated[list[Path], typer.Argument(help="One file per day, in order.")],
    out_file: Out,
    nodes: Annotated[int, typer.Option(help="Nodes to group the functions onto.")],
    by: Annotated[
        Literal["app", "function"], typer.Option(help="What stays together on a node.")
    ] = "app",
    pick: Annotated[
        Literal["hash", "top"], typer.Option(help="Group all, or the busiest, one per node.")
    ] = "hash",
    start: Annotated[str, typer.Option(help="Time of the first file's first minute.")] = (
        "2019-07-15T00:00:00Z"
    ),
    step: MaybeStep = None,
    capacity: Capacity = None,
    overwrite: Overwrite = False,
) -> None:
    """Azure Functions 2019: a column per minute."""
    from corral.data import import_azure_functions

    check_new(out_file, overwrite=overwrite)
    imported = import_azure_functions(
        files,
        nodes=nodes,
        by=by,
        pick=pick,
        start=start,
        step=step,
        capacity=_capacity(capacity),
    )
    _finish(imported, out_file, overwrite)
