"""``corral advise``: recommend a rule or a trained team for the nodes of a load trace."""

from __future__ import annotations

import signal
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import corral
from corral.cli.commands.loads.options import (
    Arrivals,
    Beyond,
    ForwardCost,
    LinkLimit,
    Queue,
    ReportDelay,
    SecondOffer,
    WaitCost,
)
from corral.cli.declared import Declared, DeclaredNumber, declared
from corral.cli.mistakes import expect, option_of
from corral.cli.options import Capacity, Window, capacity_of, row_range
from corral.cli.output import (
    RESULTS,
    check_new,
    complain,
    err,
    in_options,
    out,
    progress_bar,
    reported,
    show_table,
)
from corral.progress import is_quiet

if TYPE_CHECKING:
    from corral.loads.advise.advice import Advice

__all__ = ["advise"]


@declared(lambda: corral.advise)
@reported
def advise(
    context: typer.Context,
    trace: Annotated[str, typer.Argument(help="A bundled trace (edge3, edge8) or a CSV file.")],
    recheck: Annotated[
        Path | None,
        typer.Option(
            "--recheck",
            metavar="<folder>",
            help="Folder of an advice. Its verdict is judged on TRACE, which holds later days, and "
            "recheck.json is written into it. No new advice is made.",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="<LOW:HIGH>", help="With --recheck: the rows of TRACE to play."),
    ] = None,
    beyond: Beyond = None,
    minutes: Declared = ...,
    steps: DeclaredNumber = ...,
    no_train: Annotated[
        bool, typer.Option("--no-train", help="Compare rules only; train no team.")
    ] = False,
    no_rehearse: Annotated[
        bool,
        typer.Option(
            "--no-rehearse",
            help="Play no day request by request, and compare no balancers of practice.",
        ),
    ] = False,
    arrivals: Arrivals = "unknown",
    today: Declared = ...,
    worth: Annotated[Declared, typer.Option(metavar="<%>")] = ...,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of report, advice.json and the team; default: runs/advice, or "
            "runs/advice-2 and so on. Name the folder of a stopped advice to resume it.",
        ),
    ] = None,
    overwrite: Declared = ...,
    window: Window = None,
    capacity: Capacity = None,
    route: Annotated[
        str | None,
        typer.Option(help="Fit only rules with this route, such as round-robin or least."),
    ] = None,
    queue: Queue = None,
    forward_cost: ForwardCost = None,
    wait_cost: WaitCost = None,
    link_limit: LinkLimit = None,
    second_offer: SecondOffer = None,
    report_delay: ReportDelay = None,
    load_scale: Annotated[
        float | None,
        typer.Option(
            help="Most requests of a node in a step that the team is trained for; set it if loads "
            "may grow. Default: the maximum of the trace."
        ),
    ] = None,
    capacity_scale: Annotated[
        float | None,
        typer.Option(
            help="Largest capacity of a node in a step that the team is trained for; default: the "
            "maximum of the trace."
        ),
    ] = None,
    seed: DeclaredNumber = ...,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also print how the verdict was found.")
    ] = False,
) -> None:
    """Recommend a rule or a trained team for a load.

    Fits plain rules to the load, plays what-if scenarios (a server is down, load x 1.5, ...),
    rehearses held-out days request by request with balancers of practice, trains a team and
    judges it on held-out days. The verdict states how certain it is. Writes a
    report and advice.json.
    """
    from corral.loads.advise.advice import ADVICE
    from corral.loads.advise.driver import TEAM
    from corral.loads.from_rule.plan import plan_of

    expect("advise", trace)
    if recheck is not None:
        _require_only(context)
        _recheck(recheck, trace, rows, beyond, capacity, seed)
        return
    for name, value in (("--rows", rows), ("--beyond", beyond)):
        if value is not None:
            raise ValueError(f"{name} {value}: only with --recheck; leave it out")
    given = {
        "route": route,
        "queue": queue,
        "forward_cost": forward_cost,
        "wait_cost": wait_cost,
        "link_limit": link_limit,
        "second_offer": second_offer,
        "report_delay": report_delay,
        "load_scale": load_scale,
        "capacity_scale": capacity_scale,
    }
    budgets = {"--minutes": minutes, "--steps": steps}
    if no_train and (
        training_options := [f"{name} {value:g}" for name, value in budgets.items() if value]
    ):
        raise ValueError(f"{training_options[0]} requires training; leave out --no-train")
    if out_dir is not None and (no_train or plan_of(out_dir / TEAM) is None):
        check_new(out_dir, folder=True, files=(ADVICE, *RESULTS), overwrite=overwrite)
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}

    def begin() -> Advice:
        with _progress() as show:
            return corral.advise(
                trace,
                arrivals=arrivals or "unknown",
                today=today,
                minutes=minutes,
                steps=steps,
                worth=worth,
                train=not no_train,
                rehearse=not no_rehearse,
                out=out_dir,
                overwrite=overwrite,
                seed=seed,
                capacity=capacity_of(capacity),
                window=window,
                progress=True,
                show=show,
                begins=_beginner(),
                **settings,
            )

    try:
        advice = begin()
    except KeyboardInterrupt as stopped:
        nothing = "stopped before the verdict: nothing was written; repeat the command"
        complain(in_options(str(stopped), ["out"]) or nothing)
        raise typer.Exit(128 + signal.SIGINT) from None
    _show(advice, [*given, "capacity"], verbose)


OF_RECHECK = ("trace", "recheck", "rows", "beyond", "capacity", "seed")


def _require_only(context: typer.Context) -> None:
    """Raise ValueError for options that have no effect with --recheck."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in OF_RECHECK and source is not None and source.name != "DEFAULT":
            option = {"out_dir": "--out"}.get(name, option_of(name))
            raise ValueError(
                f"{option}: a recheck plays the settings of its advice; leave it out with --recheck"
            )


def _recheck(
    folder: Path,
    trace: str,
    rows: str | None,
    beyond: str | None,
    capacity: str | None,
    seed: int,
) -> None:
    """Recheck an advice, and print the result. The verdict is last."""
    from corral.data import load_trace

    load = load_trace(trace)
    with _progress() as show:
        result = corral.recheck(
            folder,
            load,
            rows=row_range(rows, None, len(load)),
            capacity=capacity_of(capacity),
            beyond=beyond,
            seed=seed,
            progress=show,
        )
    show_table(result.table())
    for line in result.lines():
        wrapped = textwrap.fill(line.replace(" %", "\u00a0%"), min(out.width, 80), **_WHOLE)
        out.print(wrapped.replace("\u00a0", " "), soft_wrap=True, highlight=False, markup=False)
    out.print(f"\nRecheck: {folder / result.json_file}", soft_wrap=True)


EVERY = 5.0
"""Seconds between two progress lines in a log."""


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar in a terminal; in a log, write a line with the remaining time every 5 seconds."""
    if err.can_animate or is_quiet():
        with progress_bar() as show:
            yield show
        return
    current_part, began = "", time.monotonic()
    written = began

    def log(part: str, done: int, total: int) -> None:
        nonlocal current_part, began, written
        now = time.monotonic()
        if part != current_part:
            current_part, began = part, now
        if min(now - written, now - began) < EVERY or not 0 < done < total or now == began:
            return
        written = now
        remaining = (now - began) / done * (total - done)
        line = f"corral: {part}: {done:,} of {total:,}, about {remaining:,.0f} s left in this part"
        err.print(line, soft_wrap=True, highlight=False, markup=False)

    yield log


def _beginner() -> Callable[[str], None]:
    """Return a function that prints the plan on stderr, and, in a log, each part as it begins."""
    printed: list[str] = []

    def begins(part: str) -> None:
        if not is_quiet() and not (printed and err.can_animate):
            err.print(f"corral: {part}", soft_wrap=True, highlight=False, markup=False)
        printed.append(part)

    return begins


def _show(advice: Advice, options: list[str], verbose: bool) -> None:
    """Print the first screen of an advice; with ``verbose`` also all its sections."""
    from corral.loads.advise.screen import screen_of

    for line in screen_of(advice).lines():
        out.print(line, soft_wrap=True)
    if verbose:
        _show_all(advice, options)


def _show_all(advice: Advice, options: list[str]) -> None:
    """Print the sections of an advice, the table of rules, and further results."""
    from corral.loads.advise.advice import LADDER

    for heading, lines in advice.sections():
        if lines:
            out.print(f"\n{heading}", style="bold")
        if heading == LADDER and advice.ladder is not None:
            for line in advice.ladder.table_lines():
                out.print(line, soft_wrap=True)
            lines = advice.ladder.sentences()
        for place, line in enumerate(lines):
            sentence = in_options(line, options).replace(" %", "\u00a0%")  # no break
            wrapped = textwrap.fill(sentence, min(out.width, 80), **_INDENTED)
            out.print(wrapped.replace("\u00a0", " "), soft_wrap=True)
            if heading == "Verdict":
                for code in advice.code_below(place):
                    out.print(f"    {code}", soft_wrap=True)
    show_table(advice.table())
    for report in advice.more.values():  # includes tables and trees, printed unchanged
        for line in ("", *report.lines()):
            out.print(line, soft_wrap=True)


_WHOLE: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
_INDENTED: dict[str, Any] = {
    **{"initial_indent": "  ", "subsequent_indent": "    "},
    **_WHOLE,
}
