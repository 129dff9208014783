"""What the commands that judge policies share: their options as values, bar and table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from corral.cli.output import err

if TYPE_CHECKING:
    from corral.trainers.loads.replay import Replay, Score

__all__ = ["names", "row_range", "score_table", "watching"]


def row_range(rows: str | None, split: float | None, length: int) -> tuple[int, int] | None:
    """What --rows and --split say of a trace of that length; None: nothing."""
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


def names(text: str, is_run: Callable[[str], bool]) -> list[str]:
    """The policies and runs named, each once; "overflow" and "overflow/equal" are the same."""
    listed: dict[str, str] = {}
    for name in filter(None, map(str.strip, text.split(","))):
        listed.setdefault(name if "/" in name or is_run(name) else f"{name}/equal", name)
    if not listed:
        raise ValueError("--policies names none; leave it out to play all")
    return list(listed.values())


@contextlib.contextmanager
def watching() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr, and the function that moves it: what goes on, how much of how much."""
    with Progress(
        TextColumn("{task.description:22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    ) as bar:
        task = bar.add_task("reading", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield show


def score_table(result: Replay, scores: Sequence[Score]) -> Table:
    """The table of a replay, for 80 columns; with costs, they are the main figure."""
    costs = bool(result.settings.get("forward_cost") or result.settings.get("wait_cost"))
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
