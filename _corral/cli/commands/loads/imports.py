"""``corral trace import``: convert files of other programs to traces."""

from __future__ import annotations

import functools
import inspect
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from corral import data
from corral.cli.base import App, Group
from corral.cli.declared import Declared, DeclaredNumber, declared
from corral.cli.mistakes import option_of, unknown_command
from corral.cli.options import Capacity, capacity_of, listed
from corral.cli.output import check_new, err, in_options, out, reported, show_table
from corral.errors import CorralError
from corral.hints import meant
from corral.text import one_line, pasted, shortened

if TYPE_CHECKING:
    from corral.data import Imported

__all__ = ["Out", "Overwrite", "Step", "app", "size_of", "write"]


class Import(Group):
    """The group of importers. A first word that is not an importer is a file for ``file``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = [*self.list_commands(ctx), "-h", "--help"]
        if args and args[0] not in names:
            named = not args[0].startswith("-") and not Path(args[0]).exists()
            if named and meant(args[0], names) and not Path(args[0]).suffix:
                raise CorralError(unknown_command(ctx.command_path, args, names[:-2]))
            from corral.data.source import bundled_files

            if named and args[0] in bundled_files():
                raise CorralError(
                    f"{args[0]} is already a trace, bundled with corral: corral trace show "
                    f"{args[0]}. Import only files of other programs."
                )
            args = ["file", *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


app = App(
    cls=Import,
    help="Convert files to a trace. corral trace import FILE detects the format of a file and "
    "prints its interpretation; --out writes the trace. corral trace import file --help lists "
    "its options. ./series means a file with that name.",
)

Out = Annotated[Path, typer.Option("--out", help="File to write: .csv or .csv.gz.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
Files = Annotated[
    list[Path], typer.Argument(help="One file per node, unless --names says otherwise.")
]
Step = Annotated[int, typer.Option(help="Length of a step, in seconds.")]
Label = Annotated[
    str | None, typer.Option(help="Prometheus: label with the name of the node, such as instance.")
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        help="Logs: format of the lines, such as nginx-upstream, vhost, alb, haproxy, envoy, w3c "
        "or json; default: recognized.",
    ),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        help="Logs: regular expression of a line, with groups (?P<time>...), and optionally "
        "(?P<node>...) and (?P<count>...)."
    ),
]
IsCounter = Annotated[
    bool | None,
    typer.Option(
        "--counter/--no-counter",
        help="Values are counters since a start, or are not; default: refuse values that may be "
        "counters.",
    ),
]


def check_files(out_file: Path | None, keep_requests: Path | None, overwrite: bool) -> None:
    """Raise ValueError if a file to write exists, is not CSV, or cannot be written."""
    from corral.data.write import check_csv_path

    for path, option in ((out_file, "--out"), (keep_requests, "--keep-requests")):
        if path is not None:
            check_new(path, overwrite=overwrite, option=option)
            check_csv_path(path, overwrite=overwrite)
    if keep_requests is None:
        return
    if out_file is None:
        raise ValueError("--keep-requests needs --out, the file of the trace of these requests")
    if keep_requests.absolute() == out_file.absolute():
        raise ValueError(f"--keep-requests and --out are both {out_file}; name two files")


def write(trace: Any, path: Path, overwrite: bool) -> None:
    from corral.data import write_trace

    write_trace(trace, path, overwrite=overwrite)
    out.print(f"{path}: {size_of(trace)}", soft_wrap=True)


def size_of(trace: Any) -> str:
    from corral.loads.text import counted

    return f"{counted(len(trace), 'step')} x {counted(len(trace.nodes), 'node')}"


# --- corral trace import FILE --------------------------------------------------------------------


@app.command()
@declared(lambda: data.import_table)
@reported
def file(
    files: Annotated[list[Path], typer.Argument(help="Files of one kind.")],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="File to write: .csv or .csv.gz; default: write nothing."),
    ] = None,
    format: LogFormat = None,
    pattern: Pattern = None,
    time_column: Annotated[Declared, typer.Option("--time-column", "--time-path")] = ...,
    node_column: Annotated[Declared, typer.Option("--node-column", "--node-path")] = ...,
    one_node: Declared = ...,
    arrivals: Annotated[Declared, typer.Option("--arrivals", "--value-path")] = ...,
    capacity: Declared = ...,
    rename: Annotated[Declared, typer.Option(metavar="<role=column,...>")] = ...,
    zone: Declared = ...,
    date_order: Declared = ...,
    time_format: Declared = ...,
    time_unit: Declared = ...,
    epoch: Declared = ...,
    where: Declared = ...,
    combine: Declared = None,
    node_pattern: Declared = ...,
    decimal: Annotated[str | None, typer.Option()] = None,
    delimiter: Declared = ...,
    encoding: Declared = None,
    header: DeclaredNumber = ...,
    columns: Declared = ...,
    scale: Declared = ...,
    step: DeclaredNumber = ...,
    snap: DeclaredNumber = ...,
    gaps: Declared = None,
    names: Declared = ...,
    label: Label = None,
    counter: IsCounter = None,
    nodes: Annotated[
        int | None,
        typer.Option(help="Azure Functions: number of nodes, onto which functions are grouped."),
    ] = None,
    keep_requests: Annotated[
        Path | None,
        typer.Option(
            help="Access logs: file for the time and node of all requests in the trace: .csv or "
            ".csv.gz."
        ),
    ] = None,
    max_bytes: DeclaredNumber = None,
    max_cells: DeclaredNumber = None,
    skip_malformed: Annotated[
        bool, typer.Option(help="Logs: skip malformed lines, however many.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Any of these formats or a table; detects which.

    Prints layout, nodes, unit, time zone, step and gaps, and the option that changes each of them.
    Prints also the first rows of the result.
    """
    typed = {key: value for key, value in locals().items() if key in OPTIONS and value}
    if counter is False:  # other options are False if they are not given
        typed["counter"] = False
    options = {key: value for key, value in typed.items() if key not in ("files", "out_file")}
    check_files(out_file, keep_requests, overwrite)
    if keep_requests is not None:
        options["overwrite"] = overwrite
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
        text = in_options(shortened(f"note: {note}"), (*OPTIONS, "forward_cost"))
        lines = textwrap.wrap(
            text, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        out.print("\n".join(lines), soft_wrap=True)
    _show_first(imported.trace)
    level = _levels_for(imported.trace)
    arguments = " ".join([*map(pasted, files), *_typed(typed)]) + level
    if out_file is not None:
        write(imported.trace, out_file, overwrite)
        if not level:
            out.print(f"Next: corral advise {pasted(out_file)}", soft_wrap=True)
            return
        out.print("Next, with the capacities of your nodes:")
        again = f"  corral trace import {arguments} --out {pasted(out_file)} --overwrite"
        out.print(again, soft_wrap=True)
    else:
        out.print("Nothing was written. To write it:")
        out.print(f"  corral trace import {arguments} --out loads.csv", soft_wrap=True)
    if level:
        for line in textwrap.wrap(_about_levels(imported.trace), 80, break_on_hyphens=False):
            out.print(line, soft_wrap=True)


NAMED = 12
"""At most this many nodes are named in a suggested --capacity; with more, a file is suggested."""


def _levels_for(trace: Any) -> str:
    """Return a --capacity for each node of a trace without capacities, with N to fill in."""
    if trace.capacity is not None:
        return ""
    if len(trace.nodes) > NAMED or any("," in node for node in trace.nodes):
        return " --capacity capacity.csv"
    return f" --capacity {shlex.quote(','.join(f'{node}=N' for node in trace.nodes))}"


def _about_levels(trace: Any) -> str:
    per = f"a step of {trace.step} s" if trace.clock == "utc" else "a step"
    file = "capacity.csv has the header node,capacity. " * ("capacity.csv" in _levels_for(trace))
    return (
        f"{file}Capacity is the number of requests that a node can serve in {per}. If you do not "
        "know it, --capacity 1.25x is a placeholder: it assumes 1.25 times the mean load of each "
        "node."
    )


OPTIONS = tuple(
    name
    for name in inspect.signature(inspect.unwrap(file)).parameters
    if name not in ("files", "out_file", "overwrite")
)


def _typed(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options as words of a command line."""
    for name, value in options.items():
        if name in OPTIONS:
            yield option_of(name) if value is not False else f"--no-{name}"
            if not isinstance(value, bool):
                yield shlex.quote(f"{value:g}" if isinstance(value, float) else str(value))


def _show_guesses(guesses: Sequence[Any]) -> None:
    """Print the interpretation of a file, each with the option that changes it."""
    previous = ""
    for guess in guesses:
        label = "" if guess.what == previous else guess.what
        previous = guess.what
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
        capacity = [] if trace.capacity is None else [str(trace.capacity[t, n])]
        table.add_row(
            trace.clock_text(t), one_line(trace.nodes[n]), str(trace.arrivals[t, n]), *capacity
        )
    show_table(table)
    last = trace.clock_text(len(trace) - 1)
    out.print(f"{size_of(trace)}, {trace.arrivals.sum():,} requests, to {last}")


# --- One command for each format -----------------------------------------------------------------


def _importer(
    library: Callable[[], Callable[..., Imported]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a command of the function that ``library`` returns.

    The decorated function provides the options by its signature, and the help by its docstring.
    """

    def decorate(options: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(options)
        def command(
            files: list[Path], out_file: Path, overwrite: bool, **options_given: Any
        ) -> None:
            from corral.data.trace import about_capacity

            keep_requests = options_given.get("keep_requests")
            check_files(out_file, keep_requests, overwrite)
            if keep_requests is not None:
                options_given["overwrite"] = overwrite
            if options_given.get("names") is not None:
                options_given["names"] = [
                    name.strip() for name in options_given["names"].split(",")
                ]
            options_given["capacity"] = capacity_of(options_given["capacity"])
            options_given = {
                key: value for key, value in options_given.items() if value is not None
            }
            imported = library()(files, **options_given)
            for note in [*imported.notes, *about_capacity(imported.trace)]:
                err.print(in_options(shortened(f"note: {note}"), options_given), soft_wrap=True)
            write(imported.trace, out_file, overwrite)

        name = options.__name__.replace("_", "-")
        return app.command(name)(declared(library)(reported(command)))

    return decorate


@_importer(lambda: data.import_series)
def series(
    files: Files,
    out_file: Out,
    names: Declared = ...,
    column: Declared = ...,
    time_column: Declared = ...,
    zone: Declared = ...,
    step: DeclaredNumber = ...,
    gaps: Declared = ...,
    round_values: Annotated[Declared, typer.Option("--round")] = ...,
    capacity: Capacity = None,
    max_bytes: DeclaredNumber = None,
    max_cells: DeclaredNumber = None,
    overwrite: Overwrite = False,
) -> None:
    """Files of timestamp,value rows (NAB)."""


@_importer(lambda: data.import_requests)
def requests(
    files: Files,
    out_file: Out,
    step: DeclaredNumber,
    column: Declared = ...,
    node_column: Declared = ...,
    names: Declared = ...,
    zone: Declared = ...,
    capacity: Capacity = None,
    keep_requests: Declared = ...,
    work_column: Declared = ...,
    max_bytes: DeclaredNumber = None,
    max_cells: DeclaredNumber = None,
    overwrite: Overwrite = False,
) -> None:
    """Files with one row per request (Azure LLM 2023)."""


@_importer(lambda: data.import_access_log)
def access_log(
    files: Files,
    out_file: Out,
    step: DeclaredNumber,
    format: Declared = ...,
    pattern: Declared = ...,
    time_column: Annotated[Declared, typer.Option("--time-column", "--time-path")] = ...,
    node_column: Annotated[Declared, typer.Option("--node-column", "--node-path")] = ...,
    zone: Declared = ...,
    time_format: Declared = ...,
    names: Declared = ...,
    skip_malformed: Declared = ...,
    capacity: Capacity = None,
    keep_requests: Declared = ...,
    max_bytes: DeclaredNumber = None,
    max_cells: DeclaredNumber = None,
    overwrite: Overwrite = False,
) -> None:
    """Logs of web servers, load balancers and proxies."""


@_importer(lambda: data.import_prometheus)
def prometheus(
    files: Annotated[list[Path], typer.Argument(help="JSON of query_range or CSV exports.")],
    out_file: Out,
    label: Label = None,
    counter: IsCounter = None,
    zone: Declared = ...,
    scale: Declared = ...,
    step: DeclaredNumber = ...,
    snap: DeclaredNumber = ...,
    gaps: Declared = ...,
    capacity: Capacity = None,
    max_bytes: DeclaredNumber = None,
    max_cells: DeclaredNumber = None,
    overwrite: Overwrite = False,
) -> None:
    """Prometheus results: JSON of query_range, or CSV."""


@_importer(lambda: data.import_azure_functions)
def azure_functions(
    files: Annotated[list[Path], typer.Argument(help="One file per day, in order.")],
    out_file: Out,
    nodes: DeclaredNumber,
    by: Declared = ...,
    pick: Declared = ...,
    start: Declared = ...,
    step: DeclaredNumber = ...,
    capacity: Capacity = None,
    max_bytes: DeclaredNumber = None,
    max_cells: DeclaredNumber = None,
    overwrite: Overwrite = False,
) -> None:
    """Azure Functions 2019: one column per minute."""
