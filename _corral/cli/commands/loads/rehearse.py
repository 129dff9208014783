"""``corral rehearse``: play every request of a load through rules, teams and balancers."""

from __future__ import annotations

import signal
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
from corral.cli.commands.loads.replay import free_folder
from corral.cli.declared import Declared, DeclaredNumber, declared
from corral.cli.mistakes import expect
from corral.cli.options import (
    Capacity,
    Window,
    capacity_of,
    import_from_here,
    listed,
    row_range,
)
from corral.cli.output import (
    check_new,
    complain,
    in_options,
    out,
    progress_bar,
    reported,
    show_table,
)
from corral.cli.run_options import RunModel

if TYPE_CHECKING:
    from corral.data import Trace
    from corral.loads.rehearsal import Rehearsal
    from corral.loads.rehearsal.from_advice import AdviceDefaults
    from corral.trainers.runs.run import Run

__all__ = ["rehearse"]

FILES = ("report.html", "rehearsal.json", "rehearsal.csv")

RULE = "backlog=0.75/least"
"""The plan that is rehearsed by default, for nodes with a queue."""


@declared(lambda: corral.rehearse)
@reported
def rehearse(
    trace: Annotated[str, typer.Argument(help="A bundled trace (edge3, edge8) or a CSV file.")],
    advice: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of corral advise: its rules, team, settings and held-out rows are the "
            "defaults."
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated balancers (docs/rehearsal.md), rules, file.py:make, and folders "
            "of runs, exports or an advice; default: local, backlog=0.75/least and 12 balancers. "
            "The first one is the baseline."
        ),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(metavar="<LOW:HIGH>", help="Play rows LOW to HIGH - 1 only.")
    ] = None,
    split: Annotated[
        float | None, typer.Option(help="Play only the rows after this share, e.g. 0.7.")
    ] = None,
    days: DeclaredNumber = ...,
    window: Window = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of report.html, rehearsal.json and rehearsal.csv; default: "
            "runs/rehearsal, or runs/rehearsal-2 and so on.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a report in the folder of --out.")
    ] = False,
    times: Declared = ...,
    service: Annotated[
        str | None,
        typer.Option(
            metavar="<rate|step>",
            help="rate (default): a server serves one request after the other. step: the game of "
            "corral replay.",
        ),
    ] = None,
    work: Annotated[
        str | None,
        typer.Option(
            metavar="<deterministic|exponential>",
            help="Work of a request; default: deterministic, which is 1.",
        ),
    ] = None,
    servers: Annotated[
        int | None, typer.Option(help="Servers of a node, which share its capacity; default: 1.")
    ] = None,
    places: Annotated[
        int | None,
        typer.Option(help="Waiting places of a node; default: --queue and the rest of the step."),
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(help="Time of a forwarded request to its target, in seconds; default: 0."),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(help="Waits above these seconds are counted; default: one step."),
    ] = None,
    report_period: Annotated[
        float | None,
        typer.Option(
            help="Seconds between two reports of backlogs to balancers; default: 0, which means "
            "backlogs of the moment."
        ),
    ] = None,
    report_age: Annotated[
        float | None, typer.Option(help="Seconds until a report arrives; default: 0.")
    ] = None,
    no_parts: Annotated[
        bool,
        typer.Option("--no-parts", help="Do not compare plans with their replay, which is faster."),
    ] = False,
    requests: Annotated[
        Path | None,
        typer.Option(
            help="Request log of this load, written by trace import with --keep-requests: times, "
            "and sizes. With sizes, --capacity is work per second, or 1.25x of the mean work."
        ),
    ] = None,
    model: RunModel = None,
    capacity: Capacity = None,
    queue: Queue = None,
    forward_cost: ForwardCost = None,
    wait_cost: WaitCost = None,
    link_limit: LinkLimit = None,
    second_offer: SecondOffer = None,
    report_delay: ReportDelay = None,
    arrivals: Arrivals = None,
    beyond: Beyond = None,
    jobs: Annotated[int, typer.Option(help="Policies to play at once, in a process each.")] = 1,
    seed: DeclaredNumber = ...,
) -> None:
    """Play every request of a load through rules, teams and balancers.

    Prints the cost of each policy with an interval, and how long requests wait. For rules and
    teams also the difference to their replay, in three parts. Writes a report.
    """
    from corral.data import load_trace
    from corral.envs.dfaas_v0.arguments import with_capacity
    from corral.loads.rehearsal.from_advice import defaults_of, is_advice

    expect("rehearse", trace)
    if out_dir is None:
        out_dir = free_folder(Path("runs/rehearsal"))
    check_new(out_dir, folder=True, files=FILES, overwrite=overwrite)
    load = load_trace(trace)
    names = None if policies is None else list(dict.fromkeys(listed(policies)))
    if names is not None and not names:
        raise ValueError("--policies is empty; omit it to play the default policies")
    import_from_here()
    folder = advice or next((Path(name) for name in names or () if is_advice(name)), None)
    defaults = None if folder is None else defaults_of(folder)
    game = {
        "queue": queue,
        "forward_cost": forward_cost,
        "wait_cost": wait_cost,
        "link_limit": link_limit,
        "second_offer": second_offer,
        "report_delay": report_delay,
        "arrivals": arrivals,
    }
    machines = {
        "service": service,
        "work": work,
        "servers": servers,
        "places": places,
        "latency": latency,
        "deadline": deadline,
        "report_period": report_period,
        "report_age": report_age,
    }
    settings: dict[str, Any] = {key: value for key, value in game.items() if value is not None}
    if defaults is not None:
        settings = dict(defaults.settings) | settings
    runs = _runs(names or [], model)
    settings = _as_trained(runs, settings)
    settings |= {key: value for key, value in machines.items() if value is not None}
    if capacity is not None:
        settings["capacity"] = capacity_of(capacity)
    if beyond is not None:
        settings["beyond"] = beyond
    if names is None:
        names = _default_policies(defaults, settings)
    selected = row_range(rows, split, len(load))
    notes = []
    if selected is None and defaults is not None:
        # With sizes, capacity is work per second, and the load another one than that of an advice.
        capacities = None if requests is not None else settings.get("capacity")
        has_capacity = load.capacity is not None or capacities is not None
        played = with_capacity(load, capacities, None) if has_capacity else load
        selected = defaults.rows_of(played)
        if played.digest != defaults.digest:
            notes.append(f"{defaults.folder} is the advice for another load; all rows are played.")
    try:
        with progress_bar() as show:
            result = corral.rehearse(
                load,
                names,
                rows=selected,
                days=days,
                window=window,
                seed=seed,
                times=times,
                requests=requests,
                parts=not no_parts,
                jobs=jobs,
                progress=show,
                **settings,
            )
    except KeyboardInterrupt:
        complain("stopped; nothing was written")
        raise typer.Exit(128 + signal.SIGINT) from None
    notes += _seen(runs, load, result.rows)
    _show(result, notes, [*game, *machines, "capacity"])
    paths = result.write(out_dir)
    out.print(f"\nReport: {paths['report.html']}", soft_wrap=True)


def _runs(names: list[str], model: str | None) -> dict[str, Run]:
    """Return the runs among the policies, by name."""
    from corral.trainers.runs.run import is_run, load_run, models_for

    folders = [name for name in names if is_run(name)]
    if model is not None and not folders:
        raise ValueError(f"--model {model}: --policies contains no run; leave out --model")
    models = models_for(folders, model)
    return {
        name: load_run(name, model=run_model)
        for name, run_model in zip(folders, models, strict=True)
    }


def _as_trained(runs: dict[str, Run], game: dict[str, Any]) -> dict[str, Any]:
    """Complete the arguments of dfaas_v0 with those that the runs trained with."""
    if not runs:
        return game
    from corral.loads.judge import as_trained

    complete = as_trained([*runs.values()], game)
    # A rehearsal has a default of its own: nodes decide before the requests of a step exist.
    complete.pop("arrivals", None)
    return {**complete, **({"arrivals": game["arrivals"]} if "arrivals" in game else {})}


def _seen(runs: dict[str, Run], load: Trace, rows: tuple[int, int]) -> list[str]:
    """Return sentences on runs that trained on some of the rows, or on other numbers of nodes."""
    from corral.loads.judge import on_other_nodes, seen_rows

    notes = [seen_rows(name, run, load, rows) for name, run in runs.items()]
    notes += [on_other_nodes(name, run, load) for name, run in runs.items()]
    return [note for note in notes if note is not None]


def _default_policies(defaults: AdviceDefaults | None, settings: dict[str, Any]) -> list[str]:
    """Return the policies of an advice, or local play and a plan; and the default balancers."""
    from corral.loads.rehearsal.balancers import DEFAULT

    by_step = settings.get("service") == "step"
    policies = ["local", *([RULE] if settings.get("queue") else [])]
    if defaults is not None:
        policies = defaults.policies()
    if by_step:  # balancers decide by the state of the moment, which this game does not have
        return ["local/equal" if name == "local" else name for name in policies]
    return list(dict.fromkeys([*policies, *DEFAULT]))


def _show(result: Rehearsal, notes: list[str], options: list[str]) -> None:
    """Print the tables, how the rehearsal was played, and the verdict."""
    for table in result.tables():
        show_table(table)
    for line in [*result.about(), *notes]:
        out.print(in_options(line, options), style="dim")
    verdict = result.verdict()
    for number, line in enumerate(verdict):
        out.print(f"\n{line}" if number == 0 else line)
