"""Draw the charts of a report as HTML and SVG text, without a library or external files.

An SVG is stretched to its frame, and words are placed around it as HTML. So a chart fits any width
while its words keep their size. Colors come from page.css, for light and dark pages.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array
from corral.trainers.report import svg as pen

__all__ = [
    "COLORS",
    "Bar",
    "LearningCurve",
    "bar_chart",
    "data",
    "frame",
    "learning_chart",
    "legend_entry",
    "line",
]

COLORS, DASHES = 6, 3
"""Numbers of colors and dash patterns of curves, ``c0`` .. and ``d0`` .. in page.css."""


@dataclass(frozen=True)
class Bar:
    """One bar, with an optional interval."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    marked: bool = False  # highlighted, for a team among the references
    policy: str = ""  # policy with which it is hidden and shown; default: its name


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Learning curve of a run: the team's return per episode by env steps."""

    label: str
    env_steps: Array  # [U]
    returns: Array  # float [U]; NaN if no episode ended
    group: str = ""  # runs of one group share a color and are hidden and shown together


def data(**values: object) -> str:
    """Return element attributes for the script: `` data-NAME="VALUE"`` ..."""
    return "".join(
        f' data-{name}="{html.escape(str(value), quote=True)}"' for name, value in values.items()
    )


def line(x: Array, y: Array) -> str:
    """Return the SVG path through the points x, y."""
    return "M" + "L".join(f"{a:.6g} {b:.4g}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def frame(
    shapes: Sequence[str],
    *,
    width: float,
    height: float = 100,
    x: Iterable[tuple[float, str]] = (),
    y: Iterable[tuple[float, str]] = (),
    levels: Iterable[tuple[float, str]] = (),
    below: str = "",
    kind: str = "",
    label: str = "",
    more: str = "",
) -> str:
    """Return shapes, drawn in 0 .. ``width`` and (downwards) 0 .. ``height``, in a stretched SVG.

    ``x`` and ``y`` are labels along the edges, with positions as shares from the left and from
    below. ``levels`` are labels inside; ``below`` is a title under the labels of ``x``. ``label``
    describes the chart for screen readers; ``more`` are attributes of the frame.
    """
    words = [
        f"<span class='y' style='bottom:{100 * at:.2f}%'>{html.escape(word)}</span>"
        for at, word in y
    ]
    words += [
        f"<span class='x{' minor' * (k % 2)}' style='left:{100 * at:.2f}%'>"
        f"{html.escape(word)}</span>"
        for k, (at, word) in enumerate(x)
    ]
    words += [
        f"<span class='level' style='bottom:{100 * at:.2f}%'>{html.escape(word)}</span>"
        for at, word in levels
    ]
    words += [f"<span class='below'>{html.escape(below)}</span>"] if below else []
    return (
        f"<div class='frame {kind}'{more}>"
        f'<svg viewBox="0 0 {width:g} {height:g}" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(label, quote=True)}">{"".join(shapes)}</svg>'
        f"{''.join(words)}</div>\n"
    )


def bar_chart(bars: Sequence[Bar], title: str) -> str:
    """Return horizontal bars with their values; a thin line shows the interval."""
    largest = max([bar.high or bar.value for bar in bars] + [1e-9])
    rows = []
    for bar in bars:
        digits = 0 if abs(bar.value) >= 100 else 1 if abs(bar.value) >= 10 else 2
        kind = "optimum" if bar.name == "optimum" else "team" if bar.marked else ""
        marks = f"<i style='width:{100 * max(0.0, bar.value) / largest:.2f}%'></i>"
        if bar.low is not None and bar.high is not None:
            left, wide = 100 * bar.low / largest, 100 * (bar.high - bar.low) / largest
            marks += f"<i class='span' style='left:{left:.2f}%;width:{wide:.2f}%'></i>"
        rows.append(
            f"<div class='bar {kind}'{data(policy=bar.policy or bar.name)}>"
            f"<span class='name'>{html.escape(bar.name)}</span><span class='track'>{marks}</span>"
            f"<span class='value'>{bar.value:,.{digits}f}</span></div>"
        )
    return f"<div class='bars'><p>{html.escape(title)}</p>{''.join(rows)}</div>\n"


def learning_chart(curves: Sequence[LearningCurve], levels: Mapping[str, float]) -> str:
    """Return a chart of team return per episode over env steps.

    Each run is one line; ``levels`` are horizontal lines.
    """
    lines = [_thinned(curve) for curve in curves]
    values = [*(y[np.isfinite(y)] for _, y in lines), np.array(list(levels.values()))]
    every = np.concatenate(values)
    every = every if len(every) else np.zeros(1)
    low, high, marks = pen.ticks(float(every.min()), float(every.max()))
    last_step = max([float(x[-1]) for x, _ in lines if len(x)] + [1.0])

    def height(returns: Array) -> Array:
        return np.asarray(100 - (returns - low) / (high - low) * 100)

    y_marks = [((tick - low) / (high - low), f"{tick:g}") for tick in marks]
    x_marks = [
        (k / last_step, pen.thousands(k)) for k in pen.ticks(0.0, last_step)[2] if k <= last_step
    ]
    shapes = [f'<path class="mark" d="M0 {100 - 100 * at:.4g}H1000"/>' for at, _ in y_marks]
    flat = [(level - low) / (high - low) for level in levels.values()]
    shapes += [f'<path class="level" d="M0 {100 - 100 * at:.4g}H1000"/>' for at in flat]
    key = []
    groups = list(dict.fromkeys(curve.group or curve.label for curve in curves))
    for curve, (steps, returns) in zip(curves, lines, strict=True):
        group = curve.group or curve.label
        number = groups.index(group)
        kind = f"c{number % COLORS} d{number // COLORS % DASHES}"
        attributes = data(run=group, name=curve.label)
        across, heights = 1000 * steps / last_step, height(returns)
        pieces = _runs(np.isfinite(returns))
        shape = "".join(line(across[a:b], heights[a:b]) for a, b in pieces)
        shapes.append(f'<path class="{kind}" d="{shape}"{attributes}/>')
        for first, after in pieces:
            if after - first == 1:  # draw a dot, because one point makes no line
                dot = f"M{across[first]:.6g} {heights[first]:.4g}h.01"
                shapes.append(f'<path class="{kind} dot" d="{dot}"{data(run=group)}/>')
        entry = legend_entry(group, kind, data(run=group))
        key += [entry] if entry not in key else []
    chart = frame(
        shapes,
        width=1000,
        x=x_marks,
        y=y_marks,
        levels=zip(pen.apart(flat, 0.062, 0.0, 0.94), levels, strict=True),
        below="env steps",
        kind="learning",
        label="team return per episode over env steps",
        more=data(scale=f"{last_step:g} {low:g} {high:g}"),
    )
    return (
        f"<figure class='curves'><figcaption>team return per episode</figcaption>{chart}"
        f"<ul class='legend'>{''.join(key)}</ul></figure>\n"
    )


def legend_entry(name: str, kind: str, more: str = "") -> str:
    """Return an entry of a legend: a sample of a curve of classes ``kind``, and its name."""
    sample = (
        f"<svg viewBox='0 0 26 9' aria-hidden='true'><path class='{kind}' d='M0 4.5H26'/></svg>"
    )
    return f"<li{more}>{sample}{html.escape(name)}</li>"


def _runs(valid: Array) -> list[tuple[int, int]]:
    """Return (low, high) of each run of True in ``valid`` bool [U]."""
    edges = np.flatnonzero(np.diff(valid.astype(np.int8), prepend=0, append=0)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _thinned(curve: LearningCurve, most: int = 400) -> tuple[Array, Array]:
    """Return steps and returns of at most ``most`` points; a point is the mean of its interval."""
    steps = np.asarray(curve.env_steps, dtype=np.float64)
    returns = np.asarray(curve.returns, dtype=np.float64)
    if steps.shape != returns.shape or steps.ndim != 1:
        raise ValueError(
            f"curve {curve.label}: env_steps {steps.shape} and returns {returns.shape}; "
            "pass two arrays of shape [U]"
        )
    width = -(-len(steps) // most)
    if width <= 1:
        return steps, returns
    starts = np.arange(0, len(steps), width)
    valid = np.isfinite(returns)
    counts = np.add.reduceat(valid.astype(np.float64), starts)
    sums = np.add.reduceat(np.where(valid, returns, 0.0), starts)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return steps[np.minimum(starts + width, len(steps)) - 1], means
