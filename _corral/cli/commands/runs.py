"""``corral runs``: list runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.table import Table

from corral.cli.output import out, print_json, reported, show_table
from corral.errors import RunError
from corral.text import one_line

if TYPE_CHECKING:
    from corral.loads.serve.advised import Advised
    from corral.trainers.listing import RunSummary

__all__ = ["add_to"]

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Seconds of a unit, and its name."""

KEYS = {
    "run": "folder",
    "env": "env",
    "trainer": "trainer",
    "steps": "env_steps",
    "return": "return_team",
    "best": "best",
}
"""Column -> field of a ``RunSummary``."""


def add_to(app: typer.Typer) -> None:
    """Add the command to ``corral``."""
    app.command()(runs)


@reported
def runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders with runs, at any depth; default: runs."),
    ] = None,
    env: Annotated[str | None, typer.Option(help="Only runs in this environment.")] = None,
    trainer: Annotated[str | None, typer.Option(help="Only runs of this trainer.")] = None,
    sort: Annotated[
        Literal["time", "run", "env", "trainer", "steps", "return", "best"],
        typer.Option(help="Column to sort by; numbers and times from high to low."),
    ] = "time",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the runs and advices as JSON.")
    ] = False,
) -> None:
    """List runs: environment, trainer, progress, return and age.

    The return is the sum of all agents' returns, mean of the last 100 episodes. Best is the value
    by which RUN@best was selected; empty if the run has no such value, as in self-play. Below the
    table, each advice of corral advise has a line.
    """
    from corral.loads.serve.advised import Advised, advised_in
    from corral.trainers.listing import list_runs

    if folders is None:
        folders = [folder for folder in (Path("runs"),) if folder.is_dir()]
    summaries = [
        run
        for run in list_runs(folders)
        if env in (None, run.env) and trainer in (None, run.trainer)
    ]
    if sort != "time":
        text = sort in ("run", "env", "trainer")
        present = [run for run in summaries if _key(run, sort) is not None]
        present.sort(key=lambda run: _key(run, sort), reverse=not text)
        summaries = [*present, *(run for run in summaries if _key(run, sort) is None)]
    advices = [] if env or trainer else [*advised_in(folders)]
    if as_json:
        listed = [run.to_json() for run in summaries]
        print_json({"runs": listed, "advices": [_advice(*advice) for advice in advices]})
        return
    if summaries:
        _show(summaries)
    for folder, verdict in advices:
        line = f"{verdict}"
        if isinstance(verdict, Advised):
            line = f"advice on {verdict.trace}: run {verdict.policy}"
        out.print(one_line(f"{folder}: {line}"), soft_wrap=True)
    if not summaries and not advices:
        where = (
            ", ".join(f'"{folder}"' for folder in folders)
            or 'the folder "runs" (it does not exist)'
        )
        filters = {"--env": env, "--trainer": trainer}
        chosen = "".join(f" with {name} {value}" for name, value in filters.items() if value)
        out.print(one_line(f"No runs{chosen} in {where}."), soft_wrap=True)
        if not chosen:
            out.print('"corral train arena_v0" starts one.')


def _advice(folder: Path, verdict: Advised | RunError) -> dict[str, str | None]:
    """Return the line of an advice as JSON values; ``fault``: why it cannot be read."""
    if isinstance(verdict, RunError):
        return {"folder": str(folder), "trace": None, "policy": None, "fault": str(verdict)}
    known = {"trace": verdict.trace, "policy": verdict.policy, "fault": None}
    return {"folder": str(folder), **known}


def _key(run: RunSummary, column: str) -> Any:
    return getattr(run, KEYS[column])


def _show(summaries: list[RunSummary]) -> None:
    """Print the table. If it is too wide, a line states what all runs have in common."""
    texts = {
        "environment": [run.fault or run.env or "" for run in summaries],
        "trainer": [run.trainer or "" for run in summaries],
    }
    table = _table(summaries, texts)
    if out.measure(table, options=out.options.update(width=10_000)).maximum > out.width:
        common = {name: cells[0] for name, cells in texts.items() if len({*cells}) == 1}
        if common and not any(run.fault for run in summaries):
            out.print(one_line(", ".join(f"{k} {v}" for k, v in common.items())), soft_wrap=True)
            texts = {name: cells for name, cells in texts.items() if name not in common}
        table = _table(summaries, texts)
    show_table(table)


def _table(summaries: list[RunSummary], texts: Mapping[str, list[str]]) -> Table:
    """Return the table of runs; ``texts``: further columns."""
    table = Table("run", *texts, box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("seed", "env steps", "return", "best", "updated"):
        table.add_column(heading, justify="right", no_wrap=True)
    now = datetime.now(UTC)
    for run, *cells in zip(summaries, *texts.values(), strict=True):
        steps = "" if run.steps is None else f"{run.env_steps or 0:,} of {run.steps:,}"
        if run.env_steps == run.steps and run.steps is not None:
            steps = f"{run.steps:,}"
        age = "training" if run.training else _age((now - run.modified).total_seconds())
        table.add_row(
            one_line(run.folder),
            *map(one_line, cells),
            _text(run.seed),
            steps,
            _text(run.return_team),
            _text(run.best),
            age,
        )
    return table


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _age(seconds: float) -> str:
    """Return an age in words: "3 h ago"."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"
