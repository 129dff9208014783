"""The ``corral`` command: a thin front door. What it does is done by the packages behind it."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import corral
from corral import trace_cli
from corral.console import check_new, err, out, reported, show_table
from corral.errors import UnknownNameError

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
    from corral.envs import ENVIRONMENTS

    if name is not None:
        if name not in ENVIRONMENTS:
            raise UnknownNameError.of("environment", name, ENVIRONMENTS)
        module = importlib.import_module(ENVIRONMENTS[name].module)
        out.print(Markdown(inspect.getdoc(module) or ""))
        out.print(_arguments(getattr(module, ENVIRONMENTS[name].rules)))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("environment", "play", "what it is"):
        table.add_column(heading)
    for spec in ENVIRONMENTS.values():
        play = "at once" if spec.simultaneous else "in turns"
        table.add_row(spec.name, play, spec.summary)
    out.print(table)
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
            help="Comma-separated amount/route pairs; default: 13 of them. Amounts: local, random, "
            "static, overflow, threshold, margin, patient, patient-margin. Routes: equal, "
            "capacity, spare, shortest, two."
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
    queue: Annotated[int, typer.Option(help="Requests that a node can hold.")] = 0,
    forward_cost: Annotated[float, typer.Option(help="Cost of a forwarded request.")] = 0.0,
    wait_cost: Annotated[float, typer.Option(help="Cost of a request that waits a step.")] = 0.0,
    link_limit: Annotated[
        int | None, typer.Option(help="Requests per directed link and step.")
    ] = None,
    second_offer: Annotated[
        bool, typer.Option(help="Offer refused requests once more to all neighbours.")
    ] = True,
    max_level: Annotated[
        int,
        typer.Option(help="Levels of an action; larger loads are forwarded in coarser units."),
    ] = 100,
    optimum_windows: Annotated[
        int, typer.Option(help="Windows that get a linear program, where one is needed.")
    ] = 8,
    seed: Annotated[int, typer.Option(help="Of random policies and routes.")] = 0,
) -> None:
    """Replay a load trace through forwarding policies.

    Prints what each serves, loses and forwards beside the optimum, and writes a report.
    """
    from corral.data import load_trace
    from corral.envs.baselines import PAIRS
    from corral.envs.dfaas_v0 import DfaasRules
    from corral.trainers import replay as engine
    from corral.trainers.report import describe, ordered, write_report

    check_new(out_dir, folder=True)
    load = load_trace(trace)
    chosen = list(PAIRS) if policies is None else _names(policies)
    given: dict[str, Any] = {
        "capacity": _capacity(capacity),
        "queue": queue,
        "forward_cost": forward_cost,
        "wait_cost": wait_cost,
        "link_limit": link_limit,
        "second_offer": second_offer,
        "max_level": max_level,
    }
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(DfaasRules).parameters.items()
    }
    settings = {key: value for key, value in given.items() if value != defaults[key]}
    with _progress() as bar:
        task = bar.add_task("reading", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        result = engine.replay(
            load,
            chosen,
            rows=_rows(rows, split, len(load)),
            window=window,
            seed=seed,
            optimum_windows=optimum_windows,
            progress=show,
            **settings,
        )
    show_table(_score_table(result, ordered(result.scores), costs=bool(forward_cost or wait_cost)))
    for line in describe(result):
        out.print(line, style="dim")
    paths = write_report(result, out_dir)
    out.print(f"\nReport: {paths['report.html']}", soft_wrap=True)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    )


def _capacity(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdigit() else text


def _rows(rows: str | None, split: float | None, length: int) -> tuple[int, int] | None:
    if rows is not None and split is not None:
        raise ValueError("give --rows or --split, not both")
    if split is not None:
        if not 0 <= split < 1:
            raise ValueError(f"--split {split}: give a share of 0 or more, below 1")
        return int(split * length), length
    if rows is None:
        return None
    low, colon, high = rows.partition(":")
    if not colon or not all(part.isdigit() for part in (low or "0", high or "0")):
        raise ValueError(f"--rows {rows}: give LOW:HIGH, for example 0:288")
    return int(low or 0), int(high or length)


def _names(text: str) -> list[str]:
    """The policies named, each once; "overflow" and "overflow/equal" are the same."""
    names: dict[str, str] = {}
    for name in filter(None, map(str.strip, text.split(","))):
        names.setdefault(name if "/" in name else f"{name}/equal", name)
    if not names:
        raise ValueError("--policies names none; leave it out to play all")
    return list(names.values())


def _score_table(result: Any, scores: list[Any], *, costs: bool) -> Table:
    """The table of a replay, for 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("\npolicy", no_wrap=True)
    main_figure = "cost" if costs else "served"
    headings = [f"{main_figure}\n%", "95 %\ninterval", "lost\n%", "forw.\n%", "wait-\ning"]
    headings.append("of\nopt. %")
    if costs:
        headings.insert(0, "served\n%")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for score in scores:
        if score.policy == "optimum":
            table.add_section()
        low, high = getattr(score, f"{main_figure}_low"), getattr(score, f"{main_figure}_high")
        cells = [
            f"{100 * getattr(score, main_figure):.2f}",
            "" if low is None else f"{100 * low:.2f}-{100 * high:.2f}",
            f"{100 * score.lost:.2f}",
            f"{100 * score.forwarded:.2f}",
            f"{score.mean_waiting:.2f}",
            "" if score.share_of_optimum is None else f"{100 * score.share_of_optimum:.2f}",
        ]
        if costs:
            cells.insert(0, f"{100 * score.served:.2f}")
        label, some = score.policy, len(result.optimum_windows)
        if label == "optimum" and some < result.windows:
            label = f"optimum, {some} of {result.windows}"
        table.add_row(label, *cells)
    return table
