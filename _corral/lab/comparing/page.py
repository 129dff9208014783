"""The report of a comparison as one self-contained HTML file: verdict, groups and runs."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from corral.trainers.report import svg as pen
from corral.trainers.report.page import controls, learning_section, note, page, table
from corral.trainers.report.plots import COLORS, LearningCurve, data, frame

if TYPE_CHECKING:
    from corral.lab.comparing.comparison import Comparison

__all__ = ["comparison_page"]

LEARNING = """Training return of every run: one line per run, one color per group."""
READ = """IQM: interquartile mean over runs. Difference: difference of the IQMs. P: probability that
a run of the first group scores higher than a run of the second, ties counted half. p: p-value of a
permutation test."""


def comparison_page(comparison: Comparison) -> str:
    """Return the page: verdict, groups, pairs of groups, scores and learning curves."""
    names = [str(name) for name in comparison.table.index]
    level = f"{100 * comparison.pairs[0].level:.4g} %"
    groups = [
        [
            name,
            f"{row['runs']:.0f}",
            _number(row["iqm"]),
            _interval(row["low"], row["high"]),
            _number(row["min"]),
            _number(row["max"]),
        ]
        for name, (_, row) in zip(names, comparison.table.iterrows(), strict=True)
    ]
    pairs = [
        [
            f"{pair.better} - {pair.other}",
            _number(pair.difference),
            _interval(*pair.interval),
            f"{pair.probability:.2f}",
            f"{pair.p:.2g}",
        ]
        for pair in comparison.pairs
    ]
    runs = [
        [
            *(name, run.name, _number(run.score)),
            *("" if run.seed is None else str(run.seed), f"{run.env_steps:,}"),
        ]
        for name in names
        for run in comparison.groups[name]
    ]
    curves = [
        LearningCurve(f"{name}: {run.name}", run.steps, run.returns, group=name)
        for name in names
        for run in comparison.groups[name]
        if len(run.steps)
    ]
    body = f"""<h2>Groups</h2>
{table(["group", "runs", "IQM", "95 % interval", "min", "max"], groups)}{controls("Groups")}
{_scores(comparison, names)}<h2>Differences</h2>
{table(["", "difference", f"{level} interval", "P", "p"], pairs, policies=False)}
<h2>Every run</h2>
{table(["group", "run", "score", "seed", "env steps"], runs)}
{learning_section(curves, {}, LEARNING)}"""
    notes = [f"Score: {comparison.metric}; higher is better.", READ, *comparison.notes]
    title = f"Comparison on {comparison.env}"
    return page(title, notes, body, comparison.versions, verdict=[comparison.verdict])


def _scores(comparison: Comparison, names: list[str]) -> str:
    """Return one row per group: a dot for each run, the IQM and its interval."""
    scores = [score for scores in comparison.scores.values() for score in scores]
    low, high, marks = pen.ticks(min(scores), max(scores))
    x_marks = [((mark - low) / (high - low), f"{mark:g}") for mark in marks]

    def x(score: float) -> float:
        return 1000 * (score - low) / (high - low)

    rows = []
    for number, name in enumerate(names):
        row, color = comparison.table.iloc[number], f"c{number % COLORS}"
        shapes = [f'<path class="mark" d="M{1000 * at:.5g} 0V100"/>' for at, _ in x_marks]
        if math.isfinite(row["low"]):
            ends = f"M{x(max(low, row['low'])):.5g} 70H{x(min(high, row['high'])):.5g}"
            shapes.append(f'<path class="{color} thick" d="{ends}"/>')
        shapes.append(f'<path class="{color} thick" d="M{x(row["iqm"]):.5g} 50V90"/>')
        dots = "".join(f"M{x(score):.5g} 25h.01" for score in comparison.scores[name])
        shapes.append(f'<path class="{color} dot" d="{dots}"/>')
        is_last = name == names[-1]
        strip = frame(
            shapes,
            width=1000,
            x=x_marks if is_last else (),
            below="score" if is_last else "",
            kind="ends" if is_last else "",
            label=f"scores of {name}",
        )
        label = f"<p class='strip'>{html.escape(name)}</p>"
        rows.append(f"<div{data(policy=name)}>{label}{strip}</div>")
    legend = note(
        "Each dot is the score of a run. The IQM and its 95 % interval are below the dots."
    )
    return f"{legend}<figure>{''.join(rows)}</figure>\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e8 else f"{value:.4g}"


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None or math.isnan(low):
        return ""
    return f"{_number(low)} to {_number(high)}"
