"""``corral trace import``: turn the files that other programs write into traces."""

from __future__ import annotations

import functools
import inspect
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.table import Table

from corral.cli.base import App, Group
from corral.cli.mistakes import option_of, unknown_command
from corral.cli.options import Capacity, capacity_of, listed
from corral.cli.output import check_new, err, in_options, out, reported, show_table
from corral.errors import CorralError
from corral.hints import meant
from corral.text import one_line, pasted, shortened

__all__ = ["Out", "Overwrite", "Step", "app", "size_of", "write"]


class Import(Group):
    """The group of importers; what is no name of one is a file, for the command ``file``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = [*self.list_commands(ctx), "-h", "--help"]
        if args and args[0] not in names:
            named = not args[0].startswith("-") and not Path(args[0]).exists()
            if named and meant(args[0], names) and not Path(args[0]).suffix:
                raise CorralError(unknown_command(ctx.command_path, args, names[:-2]))
            from corral.data.source import bundled_files

            if named and args[0] in bundled_files():
                raise CorralError(
                    f"{args[0]} is a trace already, bundled with corral: corral trace show "
                    f"{args[0]}; what is imported are files of other programs"
                )
            args = ["file", *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


app = App(
    cls=Import,
    help="Turn files into a trace. corral trace import FILE looks what a file is, and prints what "
    "it understood; with --out it writes the trace. ./series is a file of that name.",
)

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
Label = Annotated[
    str | None, typer.Option(help="Prometheus: the label that names the node, such as instance.")
]
IsCounter = Annotated[
    bool | None,
    typer.Option(
        "--counter/--no-counter",
        help="Prometheus: values are counters since a start, or not; default: refuse what may be.",
    ),
]
MaxBytes = Annotated[
    int | None,
    typer.Option(help="Largest file that is read, in bytes after unpacking; default: 192 MiB."),
]
MaxCells = Annotated[
    int | None,
    typer.Option(
        help="Most cells that are read: rows times columns, 10 a row at least; default: 25 million."
    ),
]


def write(trace: Any, path: Path, overwrite: bool) -> None:
    from corral.data import write_trace

    write_trace(trace, path, overwrite=overwrite)
    out.print(f"{path}: {size_of(trace)}", soft_wrap=True)


def size_of(trace: Any) -> str:
    from corral.loads.text import counted

    return f"{counted(len(trace), 'step')} x {counted(len(trace.nodes), 'node')}"


# --- corral trace import FILE --------------------------------------------------------------------


@app.command()
@reported
def file(
    files: Annotated[list[Path], typer.Argument(help="Files of one kind.")],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="File to write: .csv or .csv.gz; without it nothing is."),
    ] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Column of the time; DAY+CLOCK where it takes two.")
    ] = None,
    node_column: Annotated[
        str | None, typer.Option(help="Column that names the node; A+B where it takes two.")
    ] = None,
    one_node: Annotated[
        bool, typer.Option("--one-node", help="Rows are requests, all of one node.")
    ] = False,
    arrivals: Annotated[
        str | None,
        typer.Option(
            help="Column of the requests; of a wide table 'invoc_*' or names with commas."
        ),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(
            help="Requests per step, 1.25x of the mean load, a=100,b=80, a column, 'max_*', or a "
            "file of node,capacity rows."
        ),
    ] = None,
    rename: Annotated[
        str | None,
        typer.Option(
            metavar="<role=column,...>",
            help="Columns by role: time=timestamp,node=host,arrivals=requests; also capacity, "
            "zone.",
        ),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            help="Where clocks stand that name no zone: Z, -04:00, Europe/Rome, or a=ZONE,b=ZONE; "
            "default: Z."
        ),
    ] = None,
    date_order: Annotated[
        Literal["dmy", "mdy"] | None, typer.Option(help="How 05/01/2026 is read.")
    ] = None,
    time_format: Annotated[
        str | None, typer.Option(help="How times are written, such as '%d %b %Y %H:%M'.")
    ] = None,
    decimal: Annotated[str | None, typer.Option(help="Mark before decimals: . or a comma.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Mark between cells.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Such as cp1252; default: UTF-8.")] = None,
    scale: Annotated[
        float | None,
        typer.Option(help="Requests per step of a value of 1: 60 of a rate, in steps of 60 s."),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(help="Length of a step, in seconds; default: the file's own, of rows 60."),
    ] = None,
    snap: Annotated[
        int | None, typer.Option(help="Move times to the nearest multiple of so many seconds.")
    ] = None,
    gaps: Annotated[
        Literal["refuse", "zero", "previous", "interpolate"] | None,
        typer.Option(help="What to do where values are missing; default: refuse."),
    ] = None,
    names: Names = None,
    label: Label = None,
    counter: IsCounter = None,
    max_bytes: MaxBytes = None,
    max_cells: MaxCells = None,
    overwrite: Overwrite = False,
) -> None:
    """Any of these, or a table: looks what it is.

    Prints layout, nodes, unit, zone, step and holes, the option that changes each, and the first
    rows as they became.
    """
    from corral import data

    given = {key: value for key, value in locals().items() if key in OPTIONS and value}
    if counter is False:  # the other False ones are not said
        given["counter"] = False
    options = {key: value for key, value in given.items() if key not in ("files", "out_file")}
    if out_file is not None:
        check_new(out_file, overwrite=overwrite)
    if names is not None:
        options["names"] = listed(names)
    guesses: list[Any] = []
    try:
        imported = data.import_trace(files, guesses=guesses, **options)
    except Exception as error:
        _show_guesses(
            [guess for guess in guesses if guess.what != "gaps" or guess.found not in str(error)]
        )
        raise
    _show_guesses(imported.guesses)
    for note in imported.notes:
        out.print(in_options(shortened(f"note: {note}"), OPTIONS), soft_wrap=True)
    _show_first(imported.trace)
    level = " --capacity 1.25x" if imported.trace.capacity is None else ""
    if out_file is not None:
        write(imported.trace, out_file, overwrite)
        out.print(f"Next: corral advise {pasted(out_file)}{level}", soft_wrap=True)
        return
    words = " ".join([*map(pasted, files), *_typed(given)]) + level
    out.print("Nothing was written. To write it:")
    out.print(f"  corral trace import {words} --out loads.csv", soft_wrap=True)


OPTIONS = tuple(
    name
    for name in inspect.signature(file).parameters
    if name not in ("files", "out_file", "overwrite")
)


def _typed(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield options as they were typed."""
    for name, value in given.items():
        if name in OPTIONS:
            yield option_of(name) if value is not False else f"--no-{name}"
            if not isinstance(value, bool):
                yield shlex.quote(f"{value:g}" if isinstance(value, float) else str(value))


def _show_guesses(guesses: Sequence[Any]) -> None:
    """Print what a file was taken for, and below each the option that changes it."""
    said = ""
    for guess in guesses:
        label = "" if guess.what == said else guess.what
        said = guess.what
        change = f"  [{in_options(guess.change, OPTIONS)}]" if guess.change else ""
        text = textwrap.fill(
            one_line(guess.found + change),
            78,
            initial_indent=f"{label:10}",
            subsequent_indent=" " * 12,
            break_long_words=False,
            break_on_hyphens=False,
        )
        out.print(text, soft_wrap=True)


def _show_first(trace: Any) -> None:
    """Print the first rows of a trace."""
    columns = ["time (UTC)" if trace.clock == "utc" else "time", "node", "arrivals"] + (
        ["capacity"] if trace.capacity is not None else []
    )
    table = Table(*columns, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    cells = [(t, n) for t in range(len(trace)) for n in range(len(trace.nodes))][:6]
    for t, n in cells:
        roof = [] if trace.capacity is None else [str(trace.capacity[t, n])]
        table.add_row(
            trace.clock_text(t), one_line(trace.nodes[n]), str(trace.arrivals[t, n]), *roof
        )
    show_table(table)
    last = trace.clock_text(len(trace) - 1)
    out.print(f"{size_of(trace)}, {trace.arrivals.sum():,} requests, to {last}")


# --- One command for each format -----------------------------------------------------------------


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
        given = {key: value for key, value in given.items() if value is not None}
        imported = getattr(data, f"import_{options.__name__}")(files, **given)
        for note in imported.notes:
            err.print(in_options(shortened(f"note: {note}"), given), soft_wrap=True)
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
    max_bytes: MaxBytes = None,
    max_cells: MaxCells = None,
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
    max_bytes: MaxBytes = None,
    max_cells: MaxCells = None,
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
    max_bytes: MaxBytes = None,
    max_cells: MaxCells = None,
    overwrite: Overwrite = False,
) -> None:
    """Web-server access logs (Common, Combined)."""


@_import_command
def prometheus(
    files: Annotated[list[Path], typer.Argument(help="JSON of query_range, or CSV exports.")],
    out_file: Out,
    label: Label = None,
    counter: IsCounter = None,
    zone: Annotated[
        str | None, typer.Option(help="Where clocks of a CSV stand that name no zone; default: Z.")
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(help="Requests per step of a value of 1: 60 of a rate, in steps of 60 s."),
    ] = None,
    step: MaybeStep = None,
    snap: Annotated[
        int | None, typer.Option(help="Move times to the nearest multiple of so many seconds.")
    ] = None,
    gaps: Annotated[
        Literal["refuse", "zero", "previous", "interpolate"],
        typer.Option(help="What to do where values are missing."),
    ] = "refuse",
    capacity: Capacity = None,
    max_bytes: MaxBytes = None,
    max_cells: MaxCells = None,
    overwrite: Overwrite = False,
) -> None:
    """Answers of Prometheus (query_range), and its CSV."""


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
    max_bytes: MaxBytes = None,
    max_cells: MaxCells = None,
    overwrite: Overwrite = False,
) -> None:
    """Azure Functions 2019: a column per minute."""
