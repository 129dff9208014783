"""Draw a ladder: one bar for the cost of each rung, in a table of their savings."""

from __future__ import annotations

import html

from corral.loads.advise.verdict import Saving
from corral.loads.ladder.result import Ladder
from corral.trainers.report.page import note

__all__ = ["picture_of"]

KEY = (
    "Bars: cost on the held-out days. Pale green: saved over the rung before; red: added. More "
    "capacity is compared with rung 1. Thin line: 95 % interval of the saving."
)


def picture_of(ladder: Ladder) -> str:
    """Return the ladder as HTML: a table with a column of bars, and its sentences."""
    headings, rows = ladder.headings(), ladder.rows()
    levels = [*_levels(ladder)]
    largest = max([before for before, _, _ in levels] + [after for _, after, _ in levels] + [1e-9])
    head = "".join(f"<th>{html.escape(name)}</th>" for name in [headings[0], "", *headings[2:]])
    kinds = [*("optimum" if rung.name == "future" else "" for rung in ladder.rungs), "other"]
    lines = []
    drawn = iter(levels)
    for (label, policy, cost, *cells), kind in zip(rows, kinds, strict=False):
        first = f"{html.escape(label)}<small>{html.escape(policy)}</small>"
        bar = _bar(*next(drawn), largest) if cost else ""
        numbers = "".join(f"<td>{html.escape(cell)}</td>" for cell in (cost, *cells))
        row = f"<tr class='{kind}'>" if kind else "<tr>"
        lines.append(f"{row}<td>{first}</td><td class='track'>{bar}</td>{numbers}</tr>")
    texts = "".join(f"<p>{html.escape(line)}</p>" for line in ladder.sentences()[:1])
    notes = "".join(note(line) for line in (KEY, *ladder.sentences()[1:]))
    return (
        f"{texts}<div class='wide'><table class='ladder'><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>\n{notes}\n"
    )


def _levels(ladder: Ladder) -> list[tuple[float, float, Saving | None]]:
    """Return the cost of the rung below, the cost and the saving of each row with figures."""
    levels = []
    below = 0.0
    for rung in ladder.rungs:
        if rung.cost is not None:
            levels.append((below if rung.saving else rung.cost, rung.cost, rung.saving))
            below = rung.cost
    rule = ladder.rung("rule").cost
    if ladder.capacity is not None and rule is not None:
        levels.append((rule, rule - ladder.capacity.requests, ladder.capacity))
    return levels


def _bar(before: float, after: float, saving: Saving | None, largest: float) -> str:
    """Return the bar of a rung that costs ``after``, above one that costs ``before``."""
    low, high = sorted((before, after))
    marks = [_mark("", 0, low, largest)]
    if low < high:
        marks.append(_mark("less" if after < before else "more", low, high, largest))
    if saving is not None and saving.low is not None and saving.high is not None:
        first, last = (before - end * saving.arrivals for end in (saving.high, saving.low))
        if not saving.same:
            marks.append(_mark("span", max(0.0, first), min(last, largest), largest))
    return f"<div>{''.join(marks)}</div>"


def _mark(kind: str, low: float, high: float, largest: float) -> str:
    place = f"left:{100 * low / largest:.2f}%;width:{100 * (high - low) / largest:.2f}%"
    return f"<i class='{kind}' style='{place}'></i>" if kind else f"<i style='{place}'></i>"
