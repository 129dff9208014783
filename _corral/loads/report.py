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
from corral.files import write_file
from corral.loads.paired import (
    paired_headings,
    paired_lines,
    request_lines,
    rule_in_words,
    verdicts,
    without_intervals,
)
from corral.loads.plots import TimeAxis, course_data, node_chart, policy_chart
from corral.loads.policy_picture import Picture
from corral.loads.replay import Replay, binned
from corral.loads.scores import Score
from corral.loads.text import (
    beside_optimum,
    describe,
    losses_table,
    optimum_part,
    ordered,
    returns_table,
)
from corral.loads.waiting import waits_lines
from corral.trainers.evaluation.scores import Evaluation
from corral.trainers.report.page import controls, learning_section, note, page, table
from corral.trainers.report.plots import Bar, LearningCurve, bar_chart
from corral.trainers.runs.run_config import versions

__all__ = ["evaluation_of", "write_report"]

MOST_NODES = 12
"""The course over time is drawn for at most this many nodes: those that lose most."""

MOST_RUNS = 8
"""Losses over time are drawn of at most this many learned teams: those that cost least."""

LEARNING = """The team's return per episode as the runs played while they learned: the sum of all
nodes' rewards, in episodes of the training rows. One line for each run."""


HOW_TO_READ = """<h2>How to read this</h2>
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
"""


def write_report(
    replay: Replay,
    folder: Path,
    *,
    learning: Sequence[LearningCurve] = (),
    levels: Mapping[str, float] | None = None,
    pictures: Sequence[Picture] = (),
    notes: Sequence[str] = (),
    verdict: Sequence[str] = (),
    texts: Sequence[tuple[str, Sequence[str]]] = (),
    title: str = "Replay of",
) -> dict[str, Path]:
    """Write the three files into ``folder`` (made if missing); return their paths by name.

    Each file is written whole or not at all.

    Args:
        learning: how the runs learned; a section of the page where there are any.
        levels: returns to compare the curves with, by name (random, local, ...), in the units of
            the curves: per episode as the runs played it, not per window of the replay.
        pictures: what the teams have learned, as ``corral.loads.policy_picture`` draws it.
        notes: sentences on what was played, besides those of ``describe``.
        verdict: sentences at the top of the page, the first of them in large letters; none: what
            ``paired`` says of the teams, and of the rules.
        texts: headings, and lines that stand as they are, below the tables of requests.
        title: of the page, before the name of the trace.
    """
    text = _page(replay, learning, levels or {}, pictures, notes, verdict, texts, title)
    path = write_file(folder / "report.html", text, folder=folder)
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
    texts: Sequence[tuple[str, Sequence[str]]],
    title: str,
) -> str:
    scores = _of_all_windows(ordered(replay.scores), replay)
    kinds = _kinds(replay)
    learned = learning_section(learning, levels, LEARNING) + _learned(replay, pictures)
    returns, lines = returns_table(replay)
    day = "a day" if replay.trace.steps_per_day else "a window"
    said, *more = [*describe(replay), *notes]
    body = f"""{note(said)}
<h2>Requests {day}</h2>
{table(*request_lines(replay), kinds=kinds)}{controls()}{_bars(scores)}
<h2>What each policy served and lost</h2>
{_score_table(scores, replay, kinds)}
{_paired_html(replay, kinds)}{_optimum_html(replay, kinds)}{_texts(texts)}
<h2>Load and loss over time</h2>
{_course(replay)}{learned}<h2>Return per whole window</h2>
{table(["policy", *returns], lines, kinds=kinds)}
{_losses_html(replay, kinds)}{_waits_html(replay, kinds)}"""
    answer = list(verdict) or [*verdicts(replay).values(), *rule_in_words(replay)]
    title, end = f"{title} {replay.trace.name}", f"{HOW_TO_READ}{_glossary()}"
    return page(title, more, body, versions(), verdict=answer, end=end)


def _texts(texts: Sequence[tuple[str, Sequence[str]]]) -> str:
    parts = []
    for heading, lines in texts:
        text = html.escape("\n".join(lines))
        parts.append(f"<h2>{html.escape(heading)}</h2><div class='wide'><pre>{text}</pre></div>")
    return "".join(parts)


def _glossary() -> str:
    """Return the amounts of the reference policies, as ``dfaas_v0.baselines`` explains them."""
    rows = re.findall(r"^\| ([\w-]+) \| (.+) \|$", baselines.__doc__ or "", re.MULTILINE)
    cells = [f"<tr><td>{html.escape(a)}</td><td>{html.escape(b)}</td></tr>" for a, b in rows]
    return f"<div class='wide'><table class='words'>{''.join(cells)}</table></div>"


def _kinds(replay: Replay) -> dict[str, str]:
    """Return which lines of a table stand out: those of learned teams, and of the optimum."""
    return {"optimum": "optimum"} | dict.fromkeys(replay.teams, "team")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def _score_table(scores: list[Score], replay: Replay, kinds: Mapping[str, str]) -> str:
    def share(value: float, low: float | None, high: float | None) -> str:
        return _percent(value) + ("" if low is None else f"\n{_percent(low)} to {_percent(high)}")

    modes, illegal = bool(replay.teams), any(s.illegal_actions for s in scores)
    lines = [
        [
            s.policy,
            *([s.mode] if modes else []),
            share(s.served, s.served_low, s.served_high),
            _percent(s.lost),
            _percent(s.forwarded),
            f"{s.mean_waiting:.2f}",
            share(s.cost, s.cost_low, s.cost_high),
            *([] if replay.optimum_is_partial else [_percent(s.share_of_optimum)]),
            *([str(s.illegal_actions)] if illegal else []),
        ]
        for s in scores
    ]
    heads = ["policy", *(["play"] if modes else []), "served %", "lost %", "forwarded %"]
    heads += ["waiting", "cost %", *([] if replay.optimum_is_partial else ["of optimum %"])]
    return table(heads + (["illegal"] if illegal else []), lines, kinds=kinds)


def _of_all_windows(scores: list[Score], replay: Replay) -> list[Score]:
    """Return the scores over all windows: without the optimum, where it covers some of them."""
    return [s for s in scores if not (replay.optimum_is_partial and s.policy == "optimum")]


def _paired_html(replay: Replay, kinds: Mapping[str, str]) -> str:
    """Return what policies cost beside the best rule; nothing where there is none."""
    if replay.best_rule is None:
        return ""
    said = "".join(f"<p>{html.escape(line)}</p>" for line in verdicts(replay).values())
    headings = [heading.replace("\n", " ") for heading in paired_headings(replay)]
    why = note(without_intervals(replay)) if without_intervals(replay) else ""
    return f"""<h2>Beside the best rule, in the same windows</h2>
{said}{table(["policy", *headings], paired_lines(replay), kinds=kinds)}
{why}"""


def _optimum_html(replay: Replay, kinds: Mapping[str, str]) -> str:
    """Return policies beside an optimum that covers some of the windows, in these; else nothing."""
    if not replay.optimum_is_partial:
        return ""
    lines = [
        [s.policy, _percent(s.cost_in_optimum_windows), _percent(s.share_of_optimum)]
        for s in beside_optimum(replay)
    ]
    return f"""<h2>Beside the optimum, in {optimum_part(replay)}</h2>
{table(["policy", "cost %", "of optimum %"], lines, kinds=kinds)}
"""


def _losses_html(replay: Replay, kinds: Mapping[str, str]) -> str:
    """Return what each node lost; nothing for one node, whose losses are all there are."""
    if len(replay.trace.nodes) < 2:
        return ""
    headings, lines = losses_table(replay)
    return f"""<h2>Lost by each node, % of its own arrivals</h2>
{table(["policy", *headings], lines, kinds=kinds)}
"""


def _waits_html(replay: Replay, kinds: Mapping[str, str]) -> str:
    """Return how long requests waited until they were served; nothing without a queue."""
    if not replay.settings.get("queue"):
        return ""
    headings, lines = waits_lines(ordered(replay.scores))
    return f"""<h2>Wait of the requests that were served</h2>
{table(["policy", *headings], lines, kinds=kinds)}
"""


def _bars(scores: list[Score]) -> str:
    def percent(value: float | None) -> float | None:
        return None if value is None else 100 * value

    bars = [
        Bar(
            *(_with_mode(s), 100 * s.cost, percent(s.cost_low), percent(s.cost_high), bool(s.mode)),
            policy=s.policy,
        )
        for s in scores
    ]
    line = " (line: 95 % interval)" * any(bar.low is not None for bar in bars)
    return bar_chart(bars, f"cost, % of arrivals{line}")


def _with_mode(score: Score) -> str:
    """Return the policy's name and how it played, where the name does not say so itself."""
    said = score.policy.endswith(score.mode)  # always, where there is no mode
    return score.policy if said else f"{score.policy}, {score.mode}"


def _learned(replay: Replay, pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    agents = {f"node_{i}" for i in _worst_nodes(replay)}
    text = (
        "How many requests a node forwards, greedily, at each load and capacity; queue and "
        "neighbours stand at their means over the rows that it was trained on. Below the dashed "
        "line a node has more arrivals than it can serve. Nothing is painted where these rows had "
        "no such load and capacity."
    )
    parts = ["<h2>What was learned</h2>", note(text), *_about_nodes(replay)]
    for label in dict.fromkeys(picture.policy for picture in pictures):
        own = [p for p in pictures if p.policy == label and (p.agent in agents or p.reference)]
        parts.append(policy_chart(own, label))
    return "".join(parts)


def _drawn_teams(replay: Replay) -> list[str]:
    """Return the learned teams, the cheapest first; of a run that played in two ways the better."""
    teams = [score for score in ordered(replay.scores) if score.policy in replay.teams]
    runs = {score.policy.removesuffix(f", {score.mode}"): score.policy for score in reversed(teams)}
    return [score.policy for score in teams if score.policy in runs.values()]


def _drawn(replay: Replay) -> list[str]:
    """Return whose losses are drawn over time: the teams, the best reference and local play."""
    others = [s.policy for s in ordered(replay.scores) if s.policy not in replay.teams]
    references = [policy for policy in others if policy != "optimum"]
    local = [policy for policy in references if policy.partition("/")[0] == "local"]
    teams = _drawn_teams(replay)[:MOST_RUNS]
    return list(dict.fromkeys(teams + references[:1] + local[:1]))


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
    counts = {policy: replay.series[policy].counts for policy in drawn}
    team = [policy for policy in drawn if policy in replay.teams][:1]
    losses = f"Losses are shown of {' and of '.join(drawn)}"
    said = f"{losses}; forwarded requests of {team[0]}." if team else f"{losses}."
    more = len(_drawn_teams(replay)) - MOST_RUNS
    said += f" {more} more that cost more are not drawn." if more > 0 else ""
    clock = "Times are in UTC, lines stand at midnight" if replay.trace.clock == "utc" else ""
    parts = [
        note(said),
        note(
            f"{clock}{'. ' * bool(clock)}A node has a scale of its own, told at the left in "
            "requests per step; its rows of losses share one."
        ),
        *_about_nodes(replay),
        "<div id='zoom'></div>",
    ]
    axis = TimeAxis.of(replay.trace, replay.rows, first.width, replay.window)
    drawn_width = first.width * axis.joined
    if drawn_width > 1:
        finer = "each" if first.width == 1 else f"the means of {first.width}"
        parts.append(
            note(f"Drawn are means of {drawn_width} steps; a single {axis.unit} shows {finer}.")
        )
    kept = {}
    for i in nodes:
        name = f"node_{i} {replay.trace.nodes[i]}"
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
    return f"<div class='course'>{''.join(parts)}</div>{course_data(axis, kept)}"
