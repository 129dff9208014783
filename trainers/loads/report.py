"""Write a replay down: report.html (one self-contained file), results.json, results.csv."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.dfaas_v0 import baselines
from corral.trainers.evaluation.scores import Evaluation
from corral.trainers.loads.paired import (
    paired_headings,
    paired_lines,
    verdicts,
    without_intervals,
)
from corral.trainers.loads.plots import node_chart, policy_chart
from corral.trainers.loads.policy_picture import Picture
from corral.trainers.loads.replay import Replay, binned
from corral.trainers.loads.scores import Score
from corral.trainers.loads.text import (
    beside_optimum,
    describe,
    losses_table,
    optimum_part,
    ordered,
    returns_table,
)
from corral.trainers.loads.waiting import waits_lines
from corral.trainers.report.page import learning_section, note, page
from corral.trainers.report.plots import Bar, LearningCurve, bar_chart
from corral.trainers.report.svg import cut
from corral.trainers.runs.files import replace_text
from corral.trainers.runs.run_config import versions

__all__ = ["evaluation_of", "write_report"]

MOST_NODES = 12
"""The course over time is drawn for at most this many nodes: those that lose most."""

LEARNING = """The team's return per episode as the runs played while they learned: the sum of all
nodes' rewards, in episodes of the training rows. One line for each run."""


def write_report(
    replay: Replay,
    folder: Path,
    *,
    learning: Sequence[LearningCurve] = (),
    levels: Mapping[str, float] | None = None,
    pictures: Sequence[Picture] = (),
    notes: Sequence[str] = (),
    verdict: Sequence[str] = (),
) -> dict[str, Path]:
    """Write the three files into ``folder`` (made if missing); return their paths by name.

    Each file is written whole or not at all.

    Args:
        learning: how the runs learned; a section of the page where there are any.
        levels: returns to compare the curves with, by name (random, local, ...), in the units of
            the curves: per episode as the runs played it, not per window of the replay.
        pictures: what the teams have learned, as ``corral.trainers.loads.policy_picture`` draws it.
        notes: sentences on what was played, besides those of ``describe``.
        verdict: sentences at the top of the page, the first of them in large letters; none: what
            ``paired.verdicts`` says of the teams.
    """
    text = _page(replay, learning, levels or {}, pictures, notes, verdict)
    path = replace_text(folder / "report.html", text)
    return {"report.html": path, **evaluation_of(replay, notes).write(folder)}


def evaluation_of(replay: Replay, notes: Sequence[str] = ()) -> Evaluation:
    """Return the scores of a replay, from the least cost to the largest, as an Evaluation."""
    return Evaluation(
        "dfaas_v0",
        ordered(replay.scores),
        env_kwargs=replay.settings,
        seed=replay.seed,
        versions=versions(),
        details={
            "trace": {"name": replay.trace.name, "digest": replay.trace.digest},
            "settings": replay.settings,
            "trace_rows": list(replay.rows),
            "window": replay.window,
            "windows": replay.windows,
            "remainder": replay.remainder,
            "optimum": {
                "method": replay.optimum_method,
                "windows": list(replay.optimum_windows),
                "all_windows": bool(replay.optimum_windows) and not replay.optimum_is_partial,
            },
            "best_rule": _best_rule(replay),
            "verdicts": verdicts(replay),
            "by_window": replay.to_dataframe().to_dict("list"),
            "teams": {label: dataclasses.asdict(team) for label, team in replay.teams.items()},
            "notes": list(notes),
        },
        replay=replay,
    )


def _best_rule(replay: Replay) -> dict[str, Any] | None:
    """Return which rule was the best, and of what size and kind its windows are."""
    rule = replay.best_rule
    if rule is None:
        return None
    counts = {name: rule.labels.count(name) for name in rule.names}
    found = {"windows": counts, "chosen_on": rule.chosen_on, "among": rule.among}
    return {**found, "lag_1": rule.lag_1, "largest_part": rule.largest_part}


# --- The page ------------------------------------------------------------------------------------


def _page(
    replay: Replay,
    learning: Sequence[LearningCurve],
    levels: Mapping[str, float],
    pictures: Sequence[Picture],
    notes: Sequence[str],
    verdict: Sequence[str],
) -> str:
    scores = ordered(replay.scores)
    learned = learning_section(learning, levels, LEARNING) + _learned(replay, pictures)
    body = f"""<h2>What each policy served and lost</h2>
{_table_html(_of_all_windows(scores, replay), replay)}
{_bars(_of_all_windows(scores, replay))}
{_paired_html(replay)}{_optimum_html(replay)}<h2>Return per whole window</h2>
{_parts_html(*returns_table(replay))}
{_losses_html(replay)}{_waits_html(replay)}{learned}<h2>Load and loss over time</h2>
{_course(replay)}
<h2>How to read this</h2>
<p>A policy is <em>amount/route</em>: how much a node forwards, and how that is split over its
neighbours. <b>Served</b>, <b>lost</b> and <b>forwarded</b> are shares of all arrivals; requests
that still wait at a window's end are neither served nor lost. Forwarded counts what was offered,
also what was refused; the optimum's counts what was accepted, for it offers nothing in vain, and
its served counts what waits at a window's end.
<b>Waiting</b> is the mean number of requests that a node holds from one step to the next;
<b>cost</b> is lost + forward_cost * forwarded + wait_cost * waiting, as a share of the arrivals, or
in requests a day. <b>Above the best rule</b> is what a policy costs more than the best of the
amounts and routes in the same windows, which was chosen on others; the interval is that of this
difference: where it excludes 0, the two can be told apart, though their own intervals may overlap.
<b>Of optimum</b> is what a policy gains (arrivals minus cost) over what the optimum gains, in the
windows that the optimum covers.</p>
{_glossary()}"""
    said = [*describe(replay), *notes]
    said_first = list(verdict or verdicts(replay).values())
    return page(f"Replay of {replay.trace.name}", said, body, versions(), verdict=said_first)


def _glossary() -> str:
    """Return the amounts of the reference policies, as ``dfaas_v0.baselines`` explains them."""
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
            *([] if replay.optimum_is_partial else [percent(s.share_of_optimum)]),
            *([str(s.illegal_actions)] if illegal else []),
        ]
        row_class = "optimum" if s.policy == "optimum" else "team" if s.mode else ""
        kind = f" class='{row_class}'" if row_class else ""
        rows.append(f"<tr{kind}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    heads = ["policy", *(["play"] if modes else []), "served %", "lost %", "forwarded %"]
    heads += ["waiting", "cost %", *([] if replay.optimum_is_partial else ["of optimum %"])]
    heads += ["illegal"] if illegal else []
    head = "".join(f"<th>{name}</th>" for name in heads)
    table = "<table class='teams'>" if modes else "<table>"
    return f"<div class='wide'>{table}<tr>{head}</tr>{''.join(rows)}</table></div>"


def _of_all_windows(scores: list[Score], replay: Replay) -> list[Score]:
    """Return the scores over all windows: without the optimum, where it covers some of them."""
    return [s for s in scores if not (replay.optimum_is_partial and s.policy == "optimum")]


def _paired_html(replay: Replay) -> str:
    """Return what policies cost beside the best rule; nothing where there is none."""
    if replay.best_rule is None:
        return ""
    said = "".join(f"<p>{html.escape(line)}</p>" for line in verdicts(replay).values())
    headings = [heading.replace("\n", " ") for heading in paired_headings(replay)]
    why = note(without_intervals(replay)) if without_intervals(replay) else ""
    return f"""<h2>Beside the best rule, in the same windows</h2>
{said}{_parts_html(headings, paired_lines(replay))}
{why}"""


def _optimum_html(replay: Replay) -> str:
    """Return policies beside an optimum that covers some of the windows, in these; else nothing."""
    if not replay.optimum_is_partial:
        return ""
    rows = []
    for s in beside_optimum(replay):
        assert s.cost_in_optimum_windows is not None
        assert s.share_of_optimum is not None
        kind = " class='optimum'" if s.policy == "optimum" else ""
        shares = (s.cost_in_optimum_windows, s.share_of_optimum)
        cells = (s.policy, *(f"{100 * share:.2f}" for share in shares))
        rows.append(f"<tr{kind}>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>")
    head = "<tr><th>policy</th><th>cost %</th><th>of optimum %</th></tr>"
    return f"""<h2>Beside the optimum, in {optimum_part(replay)}</h2>
<table>{head}{"".join(rows)}</table>
"""


def _losses_html(replay: Replay) -> str:
    """Return what each node lost; nothing for one node, whose losses are all there are."""
    if len(replay.trace.nodes) < 2:
        return ""
    return f"""<h2>Lost by each node, % of its own arrivals</h2>
{_parts_html(*losses_table(replay))}
"""


def _waits_html(replay: Replay) -> str:
    """Return how long requests waited until they were served; nothing without a queue."""
    if not replay.settings.get("queue"):
        return ""
    return f"""<h2>Wait of the requests that were served</h2>
{_parts_html(*waits_lines(ordered(replay.scores)))}
"""


def _parts_html(headings: list[str], lines: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("policy", *headings))
    rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in lines]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<div class='wide'><table><tr>{head}</tr>{body}</table></div>"


def _bars(scores: list[Score]) -> str:
    def percent(value: float | None) -> float | None:
        return None if value is None else 100 * value

    bars = [
        Bar(_with_mode(s), 100 * s.cost, percent(s.cost_low), percent(s.cost_high), bool(s.mode))
        for s in scores
    ]
    return bar_chart(bars, "cost, % of arrivals (line: 95 % interval)")


def _with_mode(score: Score) -> str:
    """Return the policy's name and how it played, where the name does not say so itself."""
    said = score.policy.endswith(score.mode)  # always, where there is no mode
    return score.policy if said else f"{cut(score.policy, 24)}, {score.mode}"


def _learned(replay: Replay, pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    agents = {f"node_{i}" for i in _worst_nodes(replay)}
    text = (
        "How many requests a node forwards, greedily, at each load and capacity; queue and "
        "neighbours stand at their means over the rows that it was trained on. Below the dashed "
        "line a node has more arrivals than it can serve."
    )
    parts = ["<h2>What was learned</h2>", note(text), *_about_nodes(replay)]
    for label in dict.fromkeys(picture.policy for picture in pictures):
        own = [p for p in pictures if p.policy == label and (p.agent in agents or p.reference)]
        parts.append(policy_chart(own, label))
    return "".join(parts)


def _drawn(replay: Replay) -> list[str]:
    """Return whose losses are drawn over time: the best team, the best reference and local play."""
    scores = [score for score in ordered(replay.scores) if score.policy != "optimum"]
    teams = [score.policy for score in scores if score.mode]
    references = [score.policy for score in scores if not score.mode]
    local = [policy for policy in references if policy.partition("/")[0] == "local"]
    return list(dict.fromkeys(teams[:1] + references[:1] + local[:1]))


def _worst_nodes(replay: Replay) -> list[int]:
    """Return the nodes that lose most under the last policy drawn, in the trace's order."""
    lost = replay.series[_drawn(replay)[-1]].counts["lost"]
    worst = np.argsort(-lost.sum(axis=0), kind="stable")[:MOST_NODES]
    return sorted(worst.tolist())


def _about_nodes(replay: Replay) -> list[str]:
    some = len(replay.trace.nodes) > MOST_NODES
    return [note(f"The {MOST_NODES} nodes that lose most.")] if some else []


def _course(replay: Replay) -> str:
    """Return charts of load against capacity, node by node, and what policies made of it."""
    drawn, nodes = _drawn(replay), _worst_nodes(replay)
    first = replay.series[drawn[0]]
    assert replay.trace.capacity is not None  # a replay's trace has one
    capacity = binned(replay.trace.capacity[slice(*replay.rows)], first.width)
    labels = [replay.trace.clock_text(int(row)) for row in first.rows]
    counts = {policy: replay.series[policy].counts for policy in drawn}
    team = [policy for policy in drawn if policy in replay.teams]
    losses = f"Losses are shown of {' and of '.join(drawn)}"
    parts = [note(f"{losses}; forwarded requests of {team[0]}." if team else f"{losses}.")]
    parts += _about_nodes(replay)
    if first.width > 1:
        parts.append(note(f"Each point is the mean of {first.width} steps."))
    for i in nodes:
        parts.append(
            node_chart(
                f"node_{i} {replay.trace.nodes[i]}",
                labels,
                arrivals=first.counts["arrivals"][:, i],
                capacity=capacity[:, i],
                losses={policy: counts[policy]["lost"][:, i] for policy in drawn},
                forwarded={policy: counts[policy]["forwarded"][:, i] for policy in team},
            )
        )
    return "".join(parts)
