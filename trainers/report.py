"""Write a replay down: report.html (one self-contained file), results.json, results.csv."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import os
import platform
import re
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs import baselines
from corral.envs.core import Array
from corral.trainers import charts
from corral.trainers.replay import Replay, Score

__all__ = ["counted", "describe", "ordered", "versions", "write_report"]

MOST_NODES = 12
"""The course over time is drawn for at most this many nodes: those that lose most."""

FEW_WINDOWS = 10
"""With fewer windows than this, a bootstrap interval is called rough."""


def write_report(replay: Replay, folder: Path) -> dict[str, Path]:
    """Write the three files into ``folder`` (made if missing); their paths by name.

    Each file is written whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "report.html": _page(replay),
        "results.json": json.dumps(_results(replay), indent=2, allow_nan=False) + "\n",
        "results.csv": _table_csv(replay),
    }
    for name, text in contents.items():
        _write(folder / name, text)
    return {name: folder / name for name in contents}


def _write(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="", dir=path.parent, delete=False
    ) as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    os.replace(file.name, path)


def ordered(scores: list[Score]) -> list[Score]:
    """The policies from the least cost to the largest; the optimum, if there, at the end."""
    return sorted(scores, key=lambda score: (score.policy == "optimum", score.cost))


def versions() -> dict[str, str]:
    """What the figures were made with."""
    packages = ("corral", "numpy", "pandas", "gymnasium", "pettingzoo", "scipy")
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def describe(replay: Replay) -> list[str]:
    """What was played and how, in sentences."""
    trace, (low, high) = replay.trace, replay.rows
    settings = ", ".join(f"{key} {value}" for key, value in replay.settings.items())
    windows = replay.windows + bool(replay.remainder)
    played = f"{counted(replay.windows, 'window')} of {counted(replay.window, 'step')}"
    if replay.remainder:
        played += f" and one of {replay.remainder}"
    few = " (so few of them that intervals are rough)" if windows < FEW_WINDOWS else ""
    lines = [
        f"Trace {trace.name}: rows {low}:{high} of {len(trace)}, "
        f"{counted(len(trace.nodes), 'node')} "
        f"({trace.clock_text(low)} to {trace.clock_text(high - 1)}).",
        f"Played as {played}; queues and last-step information start empty in each. "
        f"95 % intervals by bootstrap over the windows{few}.",
        "Served, lost and forwarded (refused offers included) in % of the arrivals; waiting in "
        "requests per node and step.",
        f"Settings of dfaas_v0: {settings or 'default'}.",
    ]
    if replay.unit > 1:
        lines.append(
            f"An action stands for whole units of {replay.unit} requests: the load is larger than "
            "max_level. A higher max_level lets policies forward to the request."
        )
    lines.append(_about_optimum(replay))
    return lines


def _about_optimum(replay: Replay) -> str:
    if not replay.optimum_windows:
        return f"No optimum: {replay.optimum_method}."
    if replay.optimum_method == "closed form":
        exact = replay.unit == 1 and replay.settings.get("second_offer", True)
        reach = "overflow reaches it" if exact else "a bound, which no policy need reach"
        return f"Optimum: closed form, over all windows; {reach}."
    count = len(replay.optimum_windows)
    places = ", ".join(str(k + 1) for k in replay.optimum_windows)
    which = (
        "all whole windows"
        if count == replay.windows
        else f"{counted(count, 'window')} of {replay.windows} (number {places})"
    )
    return (
        f"Optimum: {replay.optimum_method} over {which}; its row, and the shares of it, are over "
        "these alone. It knows the future: a bound, no policy."
    )


def counted(number: int, what: str) -> str:
    """ "1 window", "2 windows"."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def _results(replay: Replay) -> dict[str, Any]:
    return {
        "environment": "dfaas_v0",
        "trace": {"name": replay.trace.name, "digest": replay.trace.digest},
        "settings": replay.settings,
        "trace_rows": list(replay.rows),
        "window": replay.window,
        "windows": replay.windows,
        "remainder": replay.remainder,
        "optimum": {"method": replay.optimum_method, "windows": list(replay.optimum_windows)},
        "versions": versions(),
        "rows": [dataclasses.asdict(score) for score in ordered(replay.scores)],
    }


def _table_csv(replay: Replay) -> str:
    names = [field.name for field in dataclasses.fields(Score)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(score) for score in ordered(replay.scores))
    return text.getvalue()


# --- The page ------------------------------------------------------------------------------------

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto;
       max-width: 960px; padding: 24px }
h1 { font-size: 24px; margin: 0 0 8px } h2 { font-size: 18px; margin: 32px 0 8px }
p { margin: 4px 0 } .note { color: #555 }
table { border-collapse: collapse; margin: 16px 0; font-variant-numeric: tabular-nums }
th, td { padding: 4px 12px; text-align: right; border-bottom: 1px solid #e5e5e5 }
th { color: #555; font-weight: 600; vertical-align: bottom }
th:first-child, td:first-child { text-align: left }
tr.optimum td { border-top: 2px solid #999; color: #555 }
td small { color: #777; white-space: nowrap } .wide { overflow-x: auto }
.words td { text-align: left } svg { display: block; width: 100%; height: auto }
"""


def _page(replay: Replay) -> str:
    scores = ordered(replay.scores)
    title = f"Replay of {replay.trace.name}"
    notes = "".join(f"<p class='note'>{html.escape(line)}</p>" for line in describe(replay))
    made = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
<h1>{html.escape(title)}</h1>
{notes}
<h2>What each policy served and lost</h2>
{_table_html(scores, replay)}
{_bars(scores, replay)}
<h2>Load and loss over time</h2>
{_course(replay)}
<h2>How to read this</h2>
<p>A policy is <em>amount/route</em>: how much a node forwards, and how that is split over its
neighbours. <b>Served</b>, <b>lost</b> and <b>forwarded</b> are shares of all arrivals; requests
that still wait at a window's end are neither served nor lost. Forwarded counts what was offered,
also what was refused; the optimum's counts what was accepted, for it offers nothing in vain.
<b>Waiting</b> is the mean number of requests that a node holds from one step to the next;
<b>cost</b> is lost + forward_cost * forwarded + wait_cost * waiting, as a share of the arrivals.
<b>Of optimum</b> is what a policy gains (arrivals minus cost) over what the optimum gains.</p>
{_glossary()}
<p class="note">Made with {html.escape(made)}.</p>
</html>
"""


def _glossary() -> str:
    """The amounts of the reference policies, as ``corral.envs.baselines`` explains them."""
    rows = re.findall(r"^\| ([\w-]+) \| (.+) \|$", baselines.__doc__ or "", re.MULTILINE)
    cells = [f"<tr><td>{html.escape(a)}</td><td>{html.escape(b)}</td></tr>" for a, b in rows]
    return f"<table class='words'>{''.join(cells)}</table>"


def _table_html(scores: list[Score], replay: Replay) -> str:
    def percent(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.2f}"

    def interval(low: float | None, high: float | None) -> str:
        return "" if low is None else f" <small>{percent(low)} to {percent(high)}</small>"

    rows = []
    for s in scores:
        cells = [
            html.escape(s.policy),
            percent(s.served) + interval(s.served_low, s.served_high),
            percent(s.lost),
            percent(s.forwarded),
            f"{s.mean_waiting:.2f}",
            percent(s.cost) + interval(s.cost_low, s.cost_high),
            percent(s.share_of_optimum),
        ]
        kind = " class='optimum'" if s.policy == "optimum" else ""
        rows.append(f"<tr{kind}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    heads = ("policy", "served %", "lost %", "forwarded %", "waiting", "cost %", "of optimum %")
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f"<div class='wide'><table><tr>{head}</tr>{''.join(rows)}</table></div>"


def _bars(scores: list[Score], replay: Replay) -> str:
    bars = [
        charts.Bar(s.policy, 100 * s.cost, _percent(s.cost_low), _percent(s.cost_high))
        for s in scores
    ]
    return charts.bar_chart(bars, "cost, % of arrivals (line: 95 % interval)")


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _course(replay: Replay) -> str:
    """Load against capacity, and what was lost, node by node: with the best policy and locally."""
    blind = [score.policy for score in ordered(replay.scores) if score.policy != "optimum"]
    shown = blind[:1] + [p for p in blind if p.startswith("local/")][:1]
    shown = list(dict.fromkeys(shown))
    first = replay.series[shown[0]]
    capacity = _mean_capacity(replay, first.rows, first.width)
    labels = [replay.trace.clock_text(int(row)) for row in first.rows]
    losses = {policy: replay.series[policy].counts["lost"] for policy in shown}
    nodes = np.argsort(-losses[shown[-1]].sum(axis=0), kind="stable")[:MOST_NODES]
    parts = [f"<p class='note'>Losses are shown of {' and of '.join(map(html.escape, shown))}.</p>"]
    if len(nodes) < len(replay.trace.nodes):
        parts.append(f"<p class='note'>The {MOST_NODES} nodes that lose most.</p>")
    if first.width > 1:
        parts.append(f"<p class='note'>Each point is the mean of {first.width} steps.</p>")
    for i in sorted(nodes.tolist()):
        parts.append(
            charts.node_chart(
                f"node_{i} {replay.trace.nodes[i]}",
                labels,
                arrivals=first.counts["arrivals"][:, i],
                capacity=capacity[:, i],
                losses={policy: lost[:, i] for policy, lost in losses.items()},
            )
        )
    return "".join(parts)


def _mean_capacity(replay: Replay, rows: Array, width: int) -> Array:
    """Capacity in the bins of a series: float64 [P, N]."""
    low, high = replay.rows
    assert replay.trace.capacity is not None  # a replay's trace has one
    part = replay.trace.capacity[low:high]
    sizes = np.diff(rows - low, append=high - low)[:, None]
    return np.asarray(np.add.reduceat(part, rows - low, axis=0) / sizes)
