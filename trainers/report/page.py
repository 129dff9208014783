"""The page of a report: one HTML file that stands alone."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from corral.text import visible
from corral.trainers.report.plots import LearningCurve, learning_chart

__all__ = ["learning_section", "note", "page"]

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
.verdict p:first-child { font-size: 19px }
svg { display: block; width: 100%; height: auto }
"""


def page(
    title: str,
    notes: Sequence[str],
    body: str,
    made_with: Mapping[str, str],
    *,
    verdict: Sequence[str] = (),
) -> str:
    """Return the whole page: ``notes`` and ``verdict`` are plain text, ``body`` is HTML.

    The sentences of ``verdict`` stand first, as the answer that the rest of the page is about.
    """
    made = ", ".join(f"{name} {version}" for name, version in made_with.items())
    text = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
<h1>{html.escape(title)}</h1>
{_verdict(verdict)}
{"".join(map(note, notes))}
{body}
<p class="note">Made with {html.escape(made)}.</p>
</html>
"""
    return visible(text)  # names of folders may hold what no file in UTF-8 can


def _verdict(lines: Sequence[str]) -> str:
    said = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    return f"<div class='verdict'>{said}</div>" if lines else ""


def note(text: str) -> str:
    """Return a paragraph of small print."""
    return f"<p class='note'>{html.escape(text)}</p>"


def learning_section(
    curves: Sequence[LearningCurve], levels: Mapping[str, float], text: str
) -> str:
    """Return the section on how runs learned, with its ``text``; nothing without ``curves``."""
    if not curves:
        return ""
    return f"""<h2>Learning</h2>
<p class='note'>{text}</p>
{learning_chart(curves, levels)}"""
