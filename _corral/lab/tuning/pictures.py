"""Pictures of a study as SVG: learning curves of its trials, and importance of settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corral.files import write_file
from corral.lab.axes import Axes, picture, words
from corral.lab.tuning.judging import curve
from corral.lab.tuning.phrases import counted, in_numbers, percents
from corral.lab.tuning.space import text_of
from corral.text import shortened
from corral.trainers.report import svg as pen

if TYPE_CHECKING:
    from corral.lab.tuning.result import Study, Trial

__all__ = ["curves", "importance"]

BEST, OTHER, PRUNED = pen.GREEN, pen.GRAY, pen.ORANGE
POINTS = 200
"""Number of points at which the curves of a trial's seeds are averaged."""
KEY = 18
"""Height of a line of the legend."""


def curves(study: Study, path: Path) -> Path | None:
    """Draw the learning curve of each trial, mean over its seeds. The best trial is highlighted.

    Returns None and draws nothing if no trial has two rows with finished episodes.
    """
    best, equal = study.best, study.equal
    lines: list[tuple[Any, Any, str]] = []  # env steps, values, color
    key: dict[str, str] = {}  # label of a line -> its color
    for trial in study.trials:
        is_best = best is not None and trial.number in (best.number, *equal)
        steps, values = _mean_curve(study, trial)
        if not len(steps):
            continue
        label = trial.state
        if is_best:
            best_label = (
                f"{in_numbers(equal)} are equal" if equal else f"best: trial {trial.number}"
            )
            label = best_label if equal else f"{best_label}, {_parameters_text(trial)}"
        color = BEST if is_best else PRUNED if trial.state == "pruned" else OTHER
        lines.append((steps, values, color))
        key[label] = color
    if not lines:
        return None
    all_values = np.concatenate([values for _, values, _ in lines])
    low, high, marks = pen.ticks(float(np.nanmin(all_values)), float(np.nanmax(all_values)))
    last = max(float(steps[-1]) for steps, _, _ in lines)
    axes = Axes(76, 52 + KEY * len(key), pen.WIDTH - 76 - 32, 360, (0.0, last), (low, high))
    axes.rows(marks)
    axes.columns(mark for mark in pen.ticks(0.0, last)[2] if mark <= last)
    for steps, values, color in sorted(lines, key=lambda line: line[2] == BEST):  # best on top
        axes.curve(steps, values, color, 2.6 if color == BEST else 1.2)
    env, _, trainer, *options = study.plan.arguments
    validated = any(word.partition("=")[0] == "--evaluate-every" for word in options)
    axes.titles("env steps", _label(study, "validation" if validated else "training"))
    title = f"{shortened(env, 40)}, {shortened(trainer, 30)}: {counted(len(study.trials))}"
    parts = [words(16, 26, title, size=15, weight=600)]
    for row, (label, color) in enumerate(key.items()):
        y = 48 + KEY * row
        parts.append(pen.line(16, y - 4, 38, y - 4, color, 2.6 if color == BEST else 1.2))
        parts.append(words(46, y, shortened(label, 120)))
    return _saved(picture(axes.bottom + 56, [*parts, *axes.parts], title), path)


def _label(study: Study, kind: str) -> str:
    summed = "sum of learning agents" if len(study.learners) > 1 else ""
    averaged = "mean over seeds" if len(study.plan.seeds) > 1 else ""
    return ", ".join(filter(None, [f"return in {kind}", summed, averaged]))


def importance(study: Study, path: Path) -> Path:
    """Draw a bar for the importance of each setting."""
    names, shares = [*study.importance], [*percents([*study.importance.values()])]
    left = 16 + pen.room(names, least=90)
    wide = (pen.WIDTH - left - 80) / max(1, *shares)
    title = study.about_importance()
    parts = [words(16, 26, title, size=15, weight=600)]
    for row, (name, share) in enumerate(zip(names, shares, strict=True)):
        y = 46 + 30 * row
        parts.append(words(left - 12, y + 15, pen.cut(name), anchor="end", size=13))
        parts.append(pen.box(left, y, max(1.0, share * wide), 20, BEST))
        parts.append(words(left + share * wide + 8, y + 15, f"{share}%", size=13))
    return _saved(picture(46 + 30 * len(names) + 14, parts, title), path)


def _mean_curve(study: Study, trial: Trial) -> tuple[Any, Any]:
    """Return env steps and values of a trial, over the range that all its seeds have played."""
    curves_of_seeds = [
        points for run in trial.runs.values() if (points := curve(run, study.learners))
    ]
    if not curves_of_seeds:
        return np.empty(0), np.empty(0)
    low = max(points[0][0] for points in curves_of_seeds)
    high = min(points[-1][0] for points in curves_of_seeds)
    if high <= low:  # a single row
        return np.empty(0), np.empty(0)
    steps = np.linspace(low, high, POINTS)
    return steps, np.mean(
        [np.interp(steps, *np.array(points).T) for points in curves_of_seeds], axis=0
    )


def _parameters_text(trial: Trial) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {text_of(value)}"
        for name, value in trial.parameters.items()
    )


def _saved(drawn: str, path: Path) -> Path:
    """Write a picture deterministically."""
    return write_file(path, drawn, folder=path.parent)
