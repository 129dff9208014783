"""``corral trace import``: turn public formats into traces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from corral.cli.base import App
from corral.cli.options import Capacity, capacity_of
from corral.cli.output import check_new, err, out, reported
from corral.text import shortened

__all__ = ["Out", "Overwrite", "Step", "app", "size_of", "write"]

app = App(help="Turn a public format into a trace.")

Out = Annotated[Path, typer.Option("--out", help="File to write: .csv or .csv.gz.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
Files = Annotated[
    list[Path], typer.Argument(help="One file per node, unless --names says otherwise.")
]
Names = Annotated[
    str | None, typer.Option(help="Names of the nodes, with commas; equal ones join their files.")
]
Zone = Annotated[str, typer.Option(help="Time zone of times that name none, such as -04:00.")]
Step = Annotated[int, typer.Option(help="Length of a step, in seconds.")]
MaybeStep = Annotated[
    int | None, typer.Option(help="Length of a step, in seconds; default: the files' own.")
]


def write(trace: Any, path: Path, overwrite: bool) -> None:
    from corral.data import write_trace

    write_trace(trace, path, overwrite=overwrite)
    out.print(f"{path}: {size_of(trace)}", soft_wrap=True)


def size_of(trace: Any) -> str:
    from corral.trainers.loads.text import counted

    return f"{counted(len(trace), 'step')} x {counted(len(trace.nodes), 'node')}"


def _import_command(options: Callable[..., None]) -> Callable[..., None]:
    """Make the command of ``corral.data.import_<name>`` from a function of that name: its
    signature is the options, its docstring the help."""

    @functools.wraps(options)
    def command(files: list[Path], out_file: Path, overwrite: bool, **given: Any) -> None:
        from corral import data

        check_new(out_file, overwrite=overwrite)
        if given.get("names") is not None:
            given["names"] = [name.strip() for name in given["names"].split(",")]
        given["capacity"] = capacity_of(given["capacity"])
        imported = getattr(data, f"import_{options.__name__}")(files, **given)
        for note in imported.notes:
            err.print(shortened(f"note: {note}"), soft_wrap=True)
        write(imported.trace, out_file, overwrite)

    return app.command(options.__name__.replace("_", "-"))(reported(command))


@_import_command
def series(
    files: Files,
    out_file: Out,
    names: Names = None,
    column: Annotated[
        str | None, typer.Option(help="Column of the load; default: the 2nd.")
    ] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Column of the time; default: the 1st.")
    ] = None,
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


@_import_command
def requests(
    files: Files,
    out_file: Out,
    step: Step,
    column: Annotated[
        str | None, typer.Option(help="Column of the time; default: the 1st.")
    ] = None,
    node_column: Annotated[str | None, typer.Option(help="Column that names the node.")] = None,
    names: Names = None,
    zone: Zone = "Z",
    capacity: Capacity = None,
    overwrite: Overwrite = False,
) -> None:
    """Files with one row per request (Azure LLM 2023)."""


@_import_command
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


@_import_command
def azure_functions(
    files: Annotated[list[Path], typer.Argument(help="One file per day, in order.")],
    out_file: Out,
    nodes: Annotated[int, typer.Option(help="Number of nodes to group the functions onto.")],
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
