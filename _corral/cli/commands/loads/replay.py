"""``corral replay``: play a load trace with rules and trained teams."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    in_options,
    out,
    progress_bar,
    reported,
    show_replay,
    show_verdicts,
)
from corral.cli.run_options import RunModel

if TYPE_CHECKING:
    from corral.trainers.runs.run import Run

__all__ = ["free_folder", "replay"]


@reported
def replay(
    trace: Annotated[str, typer.Argument(help="A bundled trace (edge3, edge8) or a CSV file.")],
    policies: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated rules, amount/route, and folders of runs (or checkpoints: "
            "RUN@best); default: 16 pairs. "
            "Amounts: local, random, static, overflow, threshold, margin, patient, "
            "patient-margin, backlog=X, capacity=X, share=X. Routes: equal, weighted, least, "
            "two-choices, fill, capacity, spare, all-to-shortest, all-to-two."
        ),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(metavar="<LOW:HIGH>", help="Play rows LOW to HIGH - 1 only.")
    ] = None,
    split: Annotated[
        float | None, typer.Option(help="Play only the rows after this share, e.g. 0.7.")
    ] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of report.html, results.json and results.csv; default: runs/replay, or "
            "runs/replay-2 and so on.",
        ),
    ] = None,
    model: RunModel = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a report in the folder of --out.")
    ] = False,
    window: Window = None,
    capacity: Capacity = None,
    queue: Queue = None,
    forward_cost: ForwardCost = None,
    wait_cost: WaitCost = None,
    link_limit: LinkLimit = None,
    second_offer: SecondOffer = None,
    report_delay: ReportDelay = None,
    arrivals: Arrivals = None,
    beyond: Beyond = None,
    optimum_windows: OptimumWindows = 8,
    post_mortem: Annotated[
        str | None,
        typer.Option(
            metavar="<DAY>",
            help="Explain which steps of a day cost most: give its date, its number from 0, or "
            '"worst". Explains the first run of --policies, else the best policy.',
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of random policies, sampled actions and routes.")
    ] = 0,
) -> None:
    """Replay a load trace through forwarding policies.

    Prints requests served, lost and forwarded by each policy and by the optimum, and writes a
    report. Name a trained team by its run folder. The options --queue, --link-limit and so on then
    default to the values of its training.
    """
    from corral.data import load_trace
    from corral.envs.arguments import one_of
    from corral.envs.dfaas_v0.baselines import PAIRS
    from corral.envs.dfaas_v0.plain_rules import PlainRule
    from corral.errors import UnknownNameError
    from corral.loads import replay as engine
    from corral.loads.report import write_report
    from corral.trainers.runs.run import is_run, load_run, models_for

    expect("replay", trace)
    if out_dir is None:
        out_dir = free_folder(Path("runs/replay"))
    check_new(out_dir, folder=True, files=RESULTS, overwrite=overwrite)
    load = load_trace(trace)
    entries = PAIRS if policies is None else names(policies, is_run)
    for name in entries:
        if Path(name).is_dir() and not is_run(name):
            raise ValueError(f"--policies: {name} is a folder, but not a run")
        if "/" in name and not is_run(name):
            try:
                PlainRule.of(name)
            except UnknownNameError as error:
                raise ValueError(
                    f"--policies: {name} is not the folder of a run, and {error}"
                ) from None
    folders = [name for name in entries if is_run(name)]
    if model is not None:
        import_from_here()
        if not folders:
            raise ValueError(f"--model {model}: --policies contains no run; leave out --model")
    models = models_for(folders, model)
    runs = [
        load_run(name, model=run_model) for name, run_model in zip(folders, models, strict=True)
    ]
    players: dict[str, Any] = {name: name for name in entries if not is_run(name)}
    given = {
        "queue": queue,
        "forward_cost": forward_cost,
        "wait_cost": wait_cost,
        "link_limit": link_limit,
        "second_offer": second_offer,
        "report_delay": report_delay,
        "arrivals": arrivals,
    }
    settings: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    curves: list[Any] = []
    labels: dict[str, Run] = {}
    if runs:
        from corral.loads.judge import (
            as_trained,
            learning_curves,
            on_other_nodes,
            seen_rows,
            trained_differently,
            with_seen,
        )
        from corral.trainers.evaluation.judge import run_labels, run_players

        labels = run_labels(runs)
        settings = as_trained(runs, settings)
        players |= run_players(labels)
        curves = learning_curves(labels)
    if capacity is not None:
        settings["capacity"] = capacity_of(capacity)
    if beyond is not None:
        if not runs:
            raise ValueError(f"--beyond {beyond}: --policies contains no run; leave out --beyond")
        one_of("beyond", beyond, ("rule", "clip"))
    with progress_bar() as show:
        result = engine.replay(
            load,
            players,
            rows=row_range(rows, split, len(load)),
            window=window,
            seed=seed,
            optimum_windows=optimum_windows,
            progress=show,
            beyond=beyond,
            **settings,
        )
    seen = {label: seen_rows(label, run, load, result.rows) for label, run in labels.items()}
    if runs:
        result = with_seen(result, seen)
    show_replay(result, given)
    other = {label: trained_differently(label, run, settings) for label, run in labels.items()}
    elsewhere = {label: on_other_nodes(label, run, load) for label, run in labels.items()}
    all_notes = (note for label in labels for note in (seen[label], other[label], elsewhere[label]))
    notes = [note for note in all_notes if note is not None]
    for note in notes:
        out.print(in_options(note, [*given, "capacity"]), style="dim", markup=False)
    show_verdicts(result)
    paths = write_report(result, out_dir, learning=curves, notes=notes)
    out.print(f"\nReport: {paths['report.html']}", soft_wrap=True)
    if post_mortem is not None:
        from corral.loads.advise import post_mortem as post_mortem_of_day

        costs = {name: float(sums.cost.sum()) for name, sums in result.sums.items()}
        label = next(iter(result.teams), min(costs, key=costs.__getitem__))
        with progress_bar() as show:
            day = None if post_mortem == "worst" else post_mortem
            report = post_mortem_of_day.post_mortem(
                result, label, players[label], day=day, progress=show
            )
        out.print("", *report.lines(), sep="\n", soft_wrap=True)


def free_folder(folder: Path) -> Path:
    """Return ``folder`` if it is free, else the first free folder-2, folder-3 and so on."""
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([folder], numbered) if not path.exists())
