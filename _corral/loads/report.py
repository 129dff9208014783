"""Write a replay to files: report.html (one self-contained file), results.json, results.csv."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.dfaas_v0 import baselines
from corral.files import write_file
from corral.loads.paired import a_day, per_day, rule_in_words, verdicts
from corral.loads.plots import TimeAxis, course_data, node_chart, policy_chart
from corral.loads.policy_picture import Picture
from corral.loads.replay import Replay, binned
from corral.loads.scores import Score
from corral.loads.text import describe, ordered
from corral.loads.waiting import time_text
from corral.trainers.evaluation.scores import Evaluation
from corral.trainers.report.page import controls, folded, learning_section, note, page, table
from corral.trainers.report.plots import LearningCurve
from corral.trainers.runs.run_config import versions

__all__ = [
    "about_teams",
    "course",
    "evaluation_of",
    "how_to_read",
    "losses_by_node",
    "ranking",
    "write_report",
]

MAX_NODES = 12
"""The time charts show at most this many nodes: those with the highest loss."""

MAX_RUNS = 8
"""The time charts show losses of at most this many learned teams: the cheapest ones."""

LEARNING = """The team's return per episode during training: the sum of all nodes' rewards, in
episodes of the training rows. One line for each run."""


HOW_TO_READ = """<p>A policy is <em>amount/route</em>: how much a node forwards, and how that is
split over its neighbors. With c the capacity of a step and Q the queue limit, a node keeps c
requests (<em>overflow</em>, <em>capacity=1</em>), x times c (<em>capacity=x</em>), c and the free
places of its queue (<em>patient</em>), c and the share x of Q (<em>backlog=x</em>), or forwards the
share s of its requests (<em>share=s</em>). The next forwarded request goes to the next neighbor in
turn (<em>equal</em>), in proportion to capacity (<em>weighted</em>), to the most reported spare
capacity (<em>least</em>), to the better of two drawn neighbors (<em>two-choices</em>), or to one
neighbor up to its limit and then to the next (<em>fill</em>). <em>all-to-shortest</em> and
<em>all-to-two</em> choose one neighbor for all requests of a step. <b>Served</b>, <b>lost</b> and
<b>forwarded</b> are shares of all arrivals. Requests that still wait at a window's end are neither
served nor lost; the optimum counts them as served. Forwarded counts all offers, including refused
ones; the optimum counts only accepted ones, because it makes no offer in vain. <b>Waiting</b> is
the mean number of requests that a node keeps in its queue from one step to the next. <b>Cost</b> is
lost + forward_cost * forwarded + wait_cost * waiting, as a share of the arrivals, or in requests a
day. <b>Above the best rule</b> is the cost of a policy minus that of the best rule in the same
windows; the best rule was chosen on other windows. The interval is that of this difference: if it
excludes 0, the difference is significant, even if the policies' own intervals overlap. <b>Of
optimum</b> is the gain of a policy (arrivals minus cost) divided by that of the optimum, in the
windows that the optimum covers.</p>
"""


def write_report(
    replay: Replay,
    folder: Path,
    *,
    learning: Sequence[LearningCurve] = (),
    levels: Mapping[str, float] | None = None,
    pictures: Sequence[Picture] = (),
    notes: Sequence[str] = (),
) -> dict[str, Path]:
    """Write the three files into ``folder`` (made if missing); return their paths by name.

    Each file is written whole or not at all.

    Args:
        learning: learning curves of the runs; a section of the page, if there are any.
        levels: reference returns for the curves, by name (random, local, ...), in the units of the
            curves: per episode of the training, not per window of the replay.
        pictures: the policies that the teams learned, from ``corral.loads.policy_picture``.
        notes: sentences about the replay, in addition to those of ``describe``.
    """
    text = _page(replay, learning, levels or {}, pictures, notes)
    path = write_file(folder / "report.html", text, folder=folder)
    return {"report.html": path, **evaluation_of(replay, notes).write(folder)}


def evaluation_of(replay: Replay, notes: Sequence[str] = ()) -> Evaluation:
    """Return the scores of a replay as an Evaluation, lowest cost first."""
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
    """Return the best rule with statistics of its windows, as JSON values."""
    rule = replay.best_rule
    if rule is None:
        return None
    counts = {name: rule.labels.count(name) for name in rule.names}
    summary = {"windows": counts, "chosen_on": rule.chosen_on, "among": rule.among}
    return {**summary, "lag_1": rule.lag_1, "largest_part": rule.largest_part}


# --- The page ------------------------------------------------------------------------------------


def _page(
    replay: Replay,
    learning: Sequence[LearningCurve],
    levels: Mapping[str, float],
    pictures: Sequence[Picture],
    notes: Sequence[str],
) -> str:
    trace_note, *more = [*describe(replay, agents=False), *notes]
    learned = learning_section(learning, levels, LEARNING)
    body = f"""{note(trace_note)}
<h2>Policies</h2>
{ranking(replay)}{controls()}<h2>Load and loss over time</h2>
{course(replay)}{learned}{about_teams(replay, pictures)}{losses_by_node(replay)}"""
    answer = [*verdicts(replay).values(), *rule_in_words(replay)]
    title = f"Replay of {replay.trace.name}"
    return page(title, more, body, versions(), verdict=answer, end=how_to_read())


def how_to_read() -> str:
    """Return the meaning of rules and columns."""
    return folded("How to read this", f"{HOW_TO_READ}{_glossary()}")


def _glossary() -> str:
    """Return a table of the amounts of the reference policies, from ``dfaas_v0.baselines``."""
    rows = re.findall(r"^\| ([\w-]+) \| (.+) \|$", baselines.__doc__ or "", re.MULTILINE)
    cells = [f"<tr><td>{html.escape(a)}</td><td>{html.escape(b)}</td></tr>" for a, b in rows]
    return f"<div class='wide'><table class='words'>{''.join(cells)}</table></div>"


def _kinds(replay: Replay) -> dict[str, str]:
    """Return the table lines that stand out: learned teams, and the optimum."""
    return {"optimum": "optimum"} | dict.fromkeys(replay.teams, "team")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def ranking(replay: Replay) -> str:
    """Return the table of all policies, the cheapest first."""
    scores = ordered(replay.scores)
    if replay.optimum_is_partial:
        scores = [score for score in scores if score.policy != "optimum"]
    low, high = replay.rows
    arrivals = float(replay.trace.arrivals[low:high].sum()) * replay.window / (high - low)
    daily, unit = arrivals * per_day(replay), a_day(replay)

    def requests(share: float | None, *ends: float | None, sign: str = "") -> str:
        if share is None:
            return ""
        if sign and set(ends) == {0.0}:
            return "the same"
        text = f"{daily * share:{sign},.0f}"
        return text + "".join(
            f"{word}{daily * end:{sign},.0f}"
            for word, end in zip(("\n", " to "), ends, strict=True)
            if end is not None
        )

    columns: dict[str, list[str]] = {
        "policy": [score.policy for score in scores],
        "play": [score.mode for score in scores],
        f"cost {unit}": [requests(s.cost, s.cost_low, s.cost_high) for s in scores],
        f"above the best rule, {unit}": [
            requests(s.difference, s.difference_low, s.difference_high, sign="+") for s in scores
        ],
        f"lost {unit}": [requests(s.lost, None, None) for s in scores],
        "lost %": [_percent(score.lost) for score in scores],
        "forwarded %": [_percent(score.forwarded) for score in scores],
        "waiting": [f"{score.mean_waiting:.2f}" for score in scores],
        "wait, 95 % in": [_wait(score) for score in scores],
        "of optimum %": [_percent(score.share_of_optimum) for score in scores],
        "illegal": [f"{score.illegal_actions or ''}" for score in scores],
    }
    lines = list(zip(*columns.values(), strict=True))
    return table(list(columns), lines, kinds=_kinds(replay))


def _wait(score: Score) -> str:
    """Return the mean wait of served requests, and the time in which 95 % were served."""
    if score.mean_wait is None:
        return ""
    if score.mean_wait_s is None or score.p95_wait_s is None:
        return f"{score.mean_wait:.2f} steps\n{score.p95_wait} steps"
    return f"{time_text(score.mean_wait_s)}\n{time_text(score.p95_wait_s)}"


def losses_by_node(replay: Replay) -> str:
    """Return the losses of each node with the drawn policies; "" for a single node."""
    trace, (low, high) = replay.trace, replay.rows
    if len(trace.nodes) < 2:
        return ""
    drawn = [score for score in ordered(replay.scores) if score.policy in _drawn(replay)]
    shares = np.array([[*score.lost_by_node.values()] for score in drawn])  # [P, N]
    daily = trace.arrivals[low:high].mean(axis=0) * replay.window * per_day(replay)
    lines = [
        [node, f"{load:,.0f}", *(_percent(share) for share in shares[:, i])]
        for i, (node, load) in enumerate(zip(trace.nodes, daily.tolist(), strict=True))
    ]
    headings = ["server", f"arrivals {a_day(replay)}", *(f"lost %, {s.policy}" for s in drawn)]
    return folded("Lost by each server", table(headings, lines, policies=False))


def about_teams(replay: Replay, pictures: Sequence[Picture]) -> str:
    """Return heat maps of the teams' plans; "" without ``pictures``."""
    if not pictures:
        return ""
    agents = {f"node_{i}" for i in _worst_nodes(replay)}
    text = (
        "Number of requests that a node forwards with greedy play, by load and capacity. Queue and "
        "neighbors are at their means over the training rows. Below the dashed line a node has "
        "more arrivals than it can serve. Blank: the training rows have no such load and "
        "capacity."
    )
    parts = ["<h2>What was learned</h2>", note(text), *_about_nodes(replay)]
    for label in dict.fromkeys(picture.policy for picture in pictures):
        shown = [p for p in pictures if p.policy == label and (p.agent in agents or p.reference)]
        parts.append(policy_chart(shown, label))
    return "".join(parts)


def _drawn_teams(replay: Replay) -> list[str]:
    """Return the learned teams, cheapest first; for a run in two modes, only the cheaper one."""
    teams = [score for score in ordered(replay.scores) if score.policy in replay.teams]
    runs = {score.policy.removesuffix(f", {score.mode}"): score.policy for score in reversed(teams)}
    return [score.policy for score in teams if score.policy in runs.values()]


def _drawn(replay: Replay) -> list[str]:
    """Return the policies in the charts of losses: the teams, the best reference and local play."""
    others = [s.policy for s in ordered(replay.scores) if s.policy not in replay.teams]
    references = [policy for policy in others if policy != "optimum"]
    local = [policy for policy in references if policy.partition("/")[0] == "local"]
    teams = _drawn_teams(replay)[:MAX_RUNS]
    return list(dict.fromkeys(teams + references[:1] + local[:1]))


def _worst_nodes(replay: Replay) -> list[int]:
    """Return the nodes with the highest loss under the last policy drawn, in the trace's order."""
    lost = replay.series[_drawn(replay)[-1]].counts["lost"]
    worst = np.argsort(-lost.sum(axis=0), kind="stable")[:MAX_NODES]
    return sorted(worst.tolist())


def _about_nodes(replay: Replay) -> list[str]:
    some = len(replay.trace.nodes) > MAX_NODES
    return [note(f"Only the {MAX_NODES} nodes with the highest loss.")] if some else []


def course(replay: Replay) -> str:
    """Return time charts of load, capacity and losses for each node."""
    drawn, nodes = _drawn(replay), _worst_nodes(replay)
    first = replay.series[drawn[0]]
    assert replay.trace.capacity is not None  # a replay's trace has one
    capacity = binned(replay.trace.capacity[slice(*replay.rows)], first.width)
    counts = {policy: replay.series[policy].counts for policy in drawn}
    team = [policy for policy in drawn if policy in replay.teams][:1]
    losses = f"Losses are shown for {', '.join(drawn)}"
    text = f"{losses}; forwarded requests for {team[0]}." if team else f"{losses}."
    more = len(_drawn_teams(replay)) - MAX_RUNS
    text += f" {more} more expensive teams are not drawn." if more > 0 else ""
    clock = "Times are in UTC, lines mark midnight" if replay.trace.clock == "utc" else ""
    parts = [
        note(text),
        note(
            f"{clock}{'. ' * bool(clock)}Each node has its own scale, shown at the left in "
            "requests per step; its rows of losses share one scale."
        ),
        *_about_nodes(replay),
        "<div class='zoomer'></div>",
    ]
    axis = TimeAxis.of(replay.trace, replay.rows, first.width, replay.window)
    drawn_width = first.width * axis.joined
    if drawn_width > 1:
        finer = "each" if first.width == 1 else f"the means of {first.width}"
        parts.append(
            note(f"Points are means of {drawn_width} steps; a single {axis.unit} shows {finer}.")
        )
    kept = {}
    for i in nodes:
        name = replay.trace.nodes[i]
        arrivals = first.counts["arrivals"][:, i]
        losses_of = {policy: counts[policy]["lost"][:, i] for policy in drawn}
        forwarded = {policy: counts[policy]["forwarded"][:, i] for policy in team}
        kept[name] = [arrivals, capacity[:, i], *forwarded.values(), *losses_of.values()]
        parts.append(
            node_chart(
                name,
                axis,
                arrivals=arrivals,
                capacity=capacity[:, i],
                losses=losses_of,
                forwarded=forwarded,
            )
        )
    return f"<div class='course'>{''.join(parts)}{course_data(axis, kept)}</div>"
