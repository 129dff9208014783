"""Build a report page: one self-contained HTML file that is readable without its script."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
from collections.abc import Mapping, Sequence
from importlib import resources

from corral.text import visible
from corral.trainers.report.plots import LearningCurve, data, learning_chart

__all__ = ["controls", "folded", "learning_section", "note", "page", "table"]


def page(
    title: str,
    notes: Sequence[str],
    body: str,
    made_with: Mapping[str, str],
    *,
    verdict: Sequence[str] = (),
    end: str = "",
) -> str:
    """Return the whole page: ``notes`` and ``verdict`` are plain text, ``body`` and ``end`` HTML.

    The sentences of ``verdict`` come first. ``notes`` explain the method, after the ``body``.
    """
    style, script = (visible(f"\n{_packed(name)}") for name in ("page.css", "page.js"))
    made = ", ".join(f"{name} {version}" for name, version in made_with.items())
    text = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{style}</style>
<h1>{html.escape(title)}</h1>
{_verdict(verdict)}
{body}
{folded("How this was found", "".join(map(note, notes)))}
{end}
<p class="note">Made with {html.escape(made)}.</p>
<script>{script}</script>
</html>
"""
    return visible(text)  # folder names may contain characters that UTF-8 cannot encode


def _policy(style: str, script: str) -> str:
    """Return a content policy that allows this style, this script, and inline style attributes."""
    style, script = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    )
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src-elem 'sha256-{style}'; "
        "style-src-attr 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )


@functools.cache
def _packed(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


def _verdict(lines: Sequence[str]) -> str:
    paragraphs = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    return f"<div class='verdict'>{paragraphs}</div>" if lines else ""


def controls(what: str = "Policies") -> str:
    """Return the element in which the script lets a reader hide and show ``what``."""
    return f"<div id='controls'{data(what=what)}></div>\n"


def folded(heading: str, content: str) -> str:
    """Return a section with HTML ``content`` that a click on its heading shows."""
    summary = f"<summary><h2>{html.escape(heading)}</h2></summary>"
    return f"<details class='part'>{summary}\n{content}</details>\n"


def note(text: str) -> str:
    """Return a paragraph in small print."""
    return f"<p class='note'>{html.escape(text)}</p>"


def table(
    headings: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    kinds: Mapping[str, str] | None = None,
    policies: bool = True,
) -> str:
    """Return a table that the script can sort; headings and cells are plain text.

    A line break in a cell begins small print. ``kinds`` maps the first cell of a line to the line's
    class ("team", "optimum"). With ``policies``, a line is hidden and shown with its policy.
    Columns without any text are left out.
    """
    filled = [k for k in range(len(headings)) if any(line[k] for line in lines)]
    headings = [headings[k] for k in filled]
    lines = [[line[k] for k in filled] for line in lines]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in headings)
    rows = []
    for line in lines:
        kind = (kinds or {}).get(line[0], "")
        attributes = f" class='{kind}'" if kind else ""
        attributes += data(policy=line[0]) if policies else ""
        rows.append(f"<tr{attributes}>{''.join(map(_cell, line))}</tr>")
    return (
        f"<div class='wide'><table class='sort'><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>\n"
    )


def _cell(text: str) -> str:
    large, _, small = text.partition("\n")
    small = f" <small>{html.escape(small)}</small>" if small else ""
    return f"<td>{html.escape(large)}{small}</td>"


def learning_section(
    curves: Sequence[LearningCurve], levels: Mapping[str, float], text: str
) -> str:
    """Return the section about learning with its ``text``; "" without ``curves``."""
    if not curves:
        return ""
    return f"""<h2>Learning</h2>
<p class='note'>{text}</p>
{learning_chart(curves, levels)}"""
