"""``corral trace``: check, show, make and import load traces."""

from __future__ import annotations

import ast
import dataclasses
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from corral.cli.base import App
from corral.cli.commands.loads import imports
from corral.cli.commands.loads.imports import Out, Overwrite, Step, size_of, write
from corral.cli.mistakes import expect
from corral.cli.output import check_new, err, out, reported, show_table
from corral.text import one_line

__all__ = ["app"]

app = App(help="Check, show, make and import load traces.")

app.add_typer(imports.app, name="import")

SPARKS = " ▁▂▃▄▅▆▇█"
NAME = 16  # columns of a node's name
COURSE = 36  # characters of a course over time, so that a row fits 80 columns


# --- check and show ------------------------------------------------------------------------------


@app.command()
@reported
def check(files: Annotated[list[str], typer.Argument(help="Trace files to read.")]) -> None:
    """Check traces for faults.

    Each fault is printed with file, line, column, value and a remedy.
    """
    from corral.data import load_trace
    from corral.errors import TraceError
    from corral.loads.text import about_clock

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


@app.command()
@reported
def show(trace: Annotated[str, typer.Argument(help="A bundled trace or a CSV file.")]) -> None:
    """Show load and capacity of each node."""
    import numpy as np

    from corral.data import load_trace
    from corral.envs.render.columns import cut
    from corral.loads.text import about_clock

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
        table.add_row(
            cut(one_line(node), NAME),
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
        out.print(f"Served without forwarding: {local:.2%}; with forwarding, at best: {pooled:.2%}")


def _course(values: Any) -> Any:
    """Return the mean of each of at most ``COURSE`` equal parts of ``values``."""
    import numpy as np

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
        typer.Option(
            "--set",
            metavar="<name=value>",
            help="Another field of TraceSpec (data/README.md); may be repeated.",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Generate a trace from a seed.

    It has daily and weekly cycles, noise, bursts, flash crowds and uneven capacity. See
    data/README.md.
    """
    from corral.data import make_trace

    check_new(out_file, overwrite=overwrite)
    options = dict(_setting(text) for text in option or [])
    trace = make_trace(
        name=out_file.name.split(".")[0],
        nodes=nodes,
        days=days,
        step=step,
        seed=seed,
        mean=mean,
        **options,
    )
    write(trace, out_file, overwrite)


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
