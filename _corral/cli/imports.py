"""``corral trace import``: turn public formats into traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from corral.cli.output import check_new, err, out, reported

__all__ = ["Out", "Overwrite", "Step", "app", "size_of", "write"]

app = typer.Typer(
    help="Turn a public format into a trace.", no_args_is_help=True, rich_markup_mode=None
)

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


def write(trace: Any, path: Path, overwrite: bool) -> None:
    from corral.data import write_trace

    write_trace(trace, path, overwrite=overwrite)
    out.print(f"{path}: {size_of(trace)}", markup=False, soft_wrap=True)


def size_of(trace: Any) -> str:
    from corral.trainers.loads.text import counted

    return f"{counted(len(trace), 'step')} x {counted(len(trace.nodes), 'node')}"


def _finish(imported: Any, path: Path, overwrite: bool) -> None:
    for note in imported.notes:
        err.print(f"note: {note}", markup=False, soft_wrap=True)
    write(imported.trace, path, overwrite)


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _capacity(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdigit() else text


@app.command("series")
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


@app.command("requests")
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


@app.command("access-log")
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


@app.command("azure-functions")
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
