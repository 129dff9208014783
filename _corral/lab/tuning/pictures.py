"""Pictures of a study, as SVG on white: they can be read on dark pages, too."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corral.extras import require
from corral.files import write_file
from corral.lab.tuning.judging import curve
from corral.lab.tuning.phrases import counted, in_numbers, percents
from corral.lab.tuning.space import text_of
from corral.text import shortened

if TYPE_CHECKING:
    from corral.lab.tuning.result import Study, Trial

__all__ = ["curves", "importance", "matplotlib"]

BEST, OTHER, PRUNED = "#0b6e4f", "#9aa5b1", "#d9a441"
POINTS = 200
"""Places at which the curves of a trial's seeds are averaged."""


def matplotlib() -> Any:
    """Return the module of matplotlib's figures. Raises MissingExtraError."""
    return require("matplotlib.figure", extra="plot", purpose="draw pictures")


def curves(study: Study, path: Path) -> Path | None:
    """Draw how each trial learned, mean over its seeds; the best one stands out.

    Returns None, and draws nothing, where no trial has two rows with an episode that ended.
    """
    figure = matplotlib().Figure(figsize=(7.2, 4.2), facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    best, equal = study.best, study.equal
    named: set[str] = set()
    for trial in study.trials:
        is_best = best is not None and trial.number in (best.number, *equal)
        steps, values = _mean_curve(study, trial)
        if not len(steps):
            continue
        label = trial.state
        if is_best:
            said = f"{in_numbers(equal)} are equal" if equal else f"best: trial {trial.number}"
            label = said if equal else f"{said}, {_told(trial)}"
        axes.plot(
            *(steps, values),
            color=BEST if is_best else PRUNED if trial.state == "pruned" else OTHER,
            linewidth=2.2 if is_best else 1.0,
            zorder=3 if is_best else 2,
            label=label if label not in named else None,
        )
        named.add(label)
    if not named:
        return None
    env, _, trainer, *words = study.plan.arguments
    validated = any(word.partition("=")[0] == "--evaluate-every" for word in words)
    axes.set_xlabel("env steps")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel(_label(study, "validation" if validated else "training"))
    title = f"{shortened(env, 40)}, {shortened(trainer, 30)}: {counted(len(study.trials))}"
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, frameon=False)
    return _saved(figure, path)


def _label(study: Study, where: str) -> str:
    summed = "sum of learning agents" if len(study.learners) > 1 else ""
    averaged = "mean over seeds" if len(study.plan.seeds) > 1 else ""
    return ", ".join(filter(None, [f"return in {where}", summed, averaged]))


def importance(study: Study, path: Path) -> Path:
    """Draw a bar for each setting."""
    names, shares = [*study.importance], [*percents([*study.importance.values()])]
    size = (7.2, 1.2 + 0.4 * len(names))
    figure = matplotlib().Figure(figsize=size, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh(names, shares, color=BEST, height=0.6)
    axes.bar_label(bars, labels=[f"{share}%" for share in shares], padding=3, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1, *shares) * 1.15)
    axes.xaxis.set_visible(False)
    axes.set_title(study.about_importance(), loc="left", fontsize=10)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    return _saved(figure, path)


def _mean_curve(study: Study, trial: Trial) -> tuple[Any, Any]:
    """Return env steps and values of a trial, over the part that all its seeds have played."""
    found = [points for run in trial.runs.values() if (points := curve(run, study.learners))]
    if not found:
        return np.empty(0), np.empty(0)
    low = max(points[0][0] for points in found)
    high = min(points[-1][0] for points in found)
    if high <= low:  # one row is no line
        return np.empty(0), np.empty(0)
    steps = np.linspace(low, high, POINTS)
    return steps, np.mean([np.interp(steps, *np.array(points).T) for points in found], axis=0)


def _told(trial: Trial) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {text_of(value)}"
        for name, value in trial.parameters.items()
    )


def _saved(figure: Any, path: Path) -> Path:
    """Write a figure, the same bytes each time."""
    from matplotlib import rc_context

    drawn = io.BytesIO()
    with rc_context({"svg.hashsalt": "corral", "svg.fonttype": "path"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return write_file(path, drawn.getvalue(), folder=path.parent)
