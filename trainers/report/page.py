"""The page of a report: one HTML file that stands alone."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0 import baselines
from corral.trainers.loads.policy_picture import Picture
from corral.trainers.loads.replay import Replay, Score
from corral.trainers.report import plots as charts
from corral.trainers.report.plots import LearningCurve
from corral.trainers.report.svg import cut
from corral.trainers.report.text import describe, ordered, versions

__all__ = ["MOST_NODES", "page"]

MOST_NODES = 12
"""The course over time is drawn for at most this many nodes: those that lose most."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto;
       max-width: 960px; padding: 24px }
h1 { font-size: 24px; margin: 0 0 8px } h2 { font-size: 18px; margin: 32px 0 8px }
p { margin: 4px 0 } .note { color: #555 }
table { border-collapse: collapse; margin: 16px 0; font-variant-numeric: tabular-nums }
th, td { padding: 4px 10px; text-align: right; border-bottom: 1px solid #e5e5e5 }
th { color: #555; font-weight: 600; vertical-align: bottom }
th:first-child, td:first-child { text-align: left }
tr.team td { background: #eef7f3 } tr.team td:first-child { font-weight: 600 }
tr.optimum td { border-top: 2px solid #999; color: #555 }
td small { color: #777; white-space: nowrap } .wide { overflow-x: auto }
.teams th { white-space: nowrap } .teams small { display: block }
.words td { text-align: left }
svg { display: block; width: 100%; height: auto }
"""


def page(
    replay: Replay,
    learning: Sequence[LearningCurve] = (),
    levels: Mapping[str, float] | None = None,
    pictures: Sequence[Picture] = (),
) -> str:
    """The whole page, with sections on learning and on what was learned where these are given."""
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
{_bars(scores)}
{_learning(learning, levels or {})}{_learned(replay, pictures)}<h2>Load and loss over time</h2>
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
    """The amounts of the reference policies, as ``dfaas_v0.baselines`` explains them."""
    rows = re.findall(r"^\| ([\w-]+) \| (.+) \|$", baselines.__doc__ or "", re.MULTILINE)
    cells = [f"<tr><td>{html.escape(a)}</td><td>{html.escape(b)}</td></tr>" for a, b in rows]
    return f"<table class='words'>{''.join(cells)}</table>"


def _table_html(scores: list[Score], replay: Replay) -> str:
    def percent(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.2f}"

    def interval(low: float | None, high: float | None) -> str:
        return "" if low is None else f" <small>{percent(low)} to {percent(high)}</small>"

    modes, illegal = bool(replay.teams), any(s.illegal_actions for s in scores)
    rows = []
    for s in scores:
        cells = [
            html.escape(s.policy),
            *([s.mode] if modes else []),
            percent(s.served) + interval(s.served_low, s.served_high),
            percent(s.lost),
            percent(s.forwarded),
            f"{s.mean_waiting:.2f}",
            percent(s.cost) + interval(s.cost_low, s.cost_high),
            percent(s.share_of_optimum),
            *([str(s.illegal_actions)] if illegal else []),
        ]
        row_class = "optimum" if s.policy == "optimum" else "team" if s.mode else ""
        kind = f" class='{row_class}'" if row_class else ""
        rows.append(f"<tr{kind}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    heads = ["policy", *(["play"] if modes else []), "served %", "lost %", "forwarded %"]
    heads += ["waiting", "cost %", "of optimum %", *(["illegal"] if illegal else [])]
    head = "".join(f"<th>{name}</th>" for name in heads)
    table = "<table class='teams'>" if modes else "<table>"
    return f"<div class='wide'>{table}<tr>{head}</tr>{''.join(rows)}</table></div>"


def _bars(scores: list[Score]) -> str:
    bars = [
        charts.Bar(
            _with_mode(s),
            100 * s.cost,
            _percent(s.cost_low),
            _percent(s.cost_high),
            marked=bool(s.mode),
        )
        for s in scores
    ]
    return charts.bar_chart(bars, "cost, % of arrivals (line: 95 % interval)")


def _with_mode(score: Score) -> str:
    """The policy's name and how it played, where the name does not say so itself."""
    said = score.policy.endswith(score.mode)  # always, where there is no mode
    return score.policy if said else f"{cut(score.policy, 24)}, {score.mode}"


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _learning(curves: Sequence[LearningCurve], levels: Mapping[str, float]) -> str:
    if not curves:
        return ""
    return f"""<h2>Learning</h2>
<p class='note'>The team's return per episode as the runs played while they learned: the sum of all
nodes' rewards, in episodes of the training rows. One line for each run.</p>
{charts.learning_chart(curves, levels)}"""


def _learned(replay: Replay, pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    agents = {f"node_{i}" for i in _worst_nodes(replay)}
    parts = [
        "<h2>What was learned</h2><p class='note'>How many requests a node forwards, greedily, at "
        "each load and capacity; queue and neighbours stand at their means over the replay. Below "
        "the dashed line a node has more arrivals than it can serve.</p>"
    ]
    if len(agents) < len(replay.trace.nodes):
        parts.append(f"<p class='note'>The {MOST_NODES} nodes that lose most.</p>")
    for label in dict.fromkeys(picture.policy for picture in pictures):
        own = [p for p in pictures if p.policy == label and (p.agent in agents or p.reference)]
        parts.append(charts.policy_chart(own, label))
    return "".join(parts)


def _shown(replay: Replay) -> list[str]:
    """Whose losses are drawn over time: the best team, the best reference and local play."""
    scores = [score for score in ordered(replay.scores) if score.policy != "optimum"]
    teams = [score.policy for score in scores if score.mode]
    references = [score.policy for score in scores if not score.mode]
    local = [policy for policy in references if policy.startswith("local/")]
    return list(dict.fromkeys(teams[:1] + references[:1] + local[:1]))


def _worst_nodes(replay: Replay) -> list[int]:
    """The nodes that lose most under the last of the policies shown, in the trace's order."""
    lost = replay.series[_shown(replay)[-1]].counts["lost"]
    worst = np.argsort(-lost.sum(axis=0), kind="stable")[:MOST_NODES]
    return sorted(worst.tolist())


def _course(replay: Replay) -> str:
    """Load against capacity, node by node, and what the policies shown made of it."""
    shown, nodes = _shown(replay), _worst_nodes(replay)
    first = replay.series[shown[0]]
    capacity = _mean_capacity(replay, first.rows, first.width)
    labels = [replay.trace.clock_text(int(row)) for row in first.rows]
    counts = {policy: replay.series[policy].counts for policy in shown}
    team = [policy for policy in shown if policy in replay.teams]
    what = f"Losses are shown of {' and of '.join(map(html.escape, shown))}"
    if team:
        what += f"; forwarded requests of {html.escape(team[0])}"
    parts = [f"<p class='note'>{what}.</p>"]
    if len(nodes) < len(replay.trace.nodes):
        parts.append(f"<p class='note'>The {MOST_NODES} nodes that lose most.</p>")
    if first.width > 1:
        parts.append(f"<p class='note'>Each point is the mean of {first.width} steps.</p>")
    for i in nodes:
        parts.append(
            charts.node_chart(
                f"node_{i} {replay.trace.nodes[i]}",
                labels,
                arrivals=first.counts["arrivals"][:, i],
                capacity=capacity[:, i],
                losses={policy: counts[policy]["lost"][:, i] for policy in shown},
                forwarded={policy: counts[policy]["forwarded"][:, i] for policy in team},
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
