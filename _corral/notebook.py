"""Tables and bars for notebooks: the HTML of results, runs, traces and environments.

The colors are those of the notebook, light or dark. All texts are escaped.
"""

from __future__ import annotations

import html
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corral.text import one_line, shortened, visible

__all__ = ["NotebookBar", "as_html", "show_in_cell"]

MAX_ROWS = 20
"""Maximum rows of a table; the number of left-out rows follows."""

STYLE = "border-collapse:collapse;color:inherit;background:transparent;font-size:0.9em"
CELL = "padding:0.15em 0.8em;border-bottom:1px solid rgba(128,128,128,0.4);text-align:"


def as_html(
    title: str,
    facts: Mapping[str, Any] | None = None,
    columns: Sequence[str] = (),
    rows: Iterable[Sequence[Any]] = (),
    *,
    lines: Sequence[str] = (),
) -> str:
    """Return a title, sentences, facts (name -> value) and a table as HTML.

    Facts of None are left out. Numbers have four digits and stand on the right.
    """
    parts = [
        f"<div><strong>{_sentence(title)}</strong>",
        *(f"<div>{_sentence(line)}</div>" for line in lines),
    ]
    present = [(name, value) for name, value in (facts or {}).items() if value is not None]
    if present:
        parts.append(_table((), present))
    cells = [tuple(row) for row in rows]
    if columns:
        parts.append(_table(columns, cells[:MAX_ROWS]))
    if len(cells) > MAX_ROWS:
        parts.append(f"<div>{len(cells) - MAX_ROWS:,} more rows</div>")
    return "".join([*parts, "</div>"])


class NotebookBar:
    """A progress bar in the output of a notebook's cell."""

    def __init__(self) -> None:
        from IPython import display  # only in a notebook

        output: Any = display  # has no types
        self._html, self._shown = output.HTML, 0.0
        self._handle = output.display(output.HTML(""), display_id=True)

    def show(self, done: int, total: int, text: str) -> None:
        """Show ``done`` of ``total`` and a text; at most ten times a second, and at the end."""
        now = time.monotonic()
        if done < total and now - self._shown < 0.1:
            return
        self._shown = now
        part = f' value="{done}" max="{total}"' if total else ""  # unknown total: a moving bar
        self._handle.update(self._html(f"<div><progress{part}></progress> {_text(text)}</div>"))

    def remove(self) -> None:
        self._handle.update(self._html(""))


class _Cell:
    """The bar of the running cell: it appears after ``DELAY_S``, and is removed with its end."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._bar: NotebookBar | None = None

    def show(self, label: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = now
            _events().register("post_run_cell", self._end)
        if now - self._began >= DELAY_S:
            self._bar = self._bar or NotebookBar()
            self._bar.show(done, total, f"{label}: {done:,} of {total:,}" if total else label)

    def _end(self, result: Any) -> None:
        _events().unregister("post_run_cell", self._end)
        if self._bar is not None:
            self._bar.remove()
        self._began = self._bar = None


DELAY_S = 1.0

show_in_cell = _Cell().show


def _events() -> Any:
    from IPython import get_ipython  # only in a notebook

    shell: Any = get_ipython()  # has no types
    return shell.events


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f'<th style="{CELL}left">{_text(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    head = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f'<table style="{STYLE}">{head}<tbody>{body}</tbody></table>'


def _cell(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, float):
        value = f"{value:.4g}" if math.isfinite(value) else ""
    elif number:
        value = f"{value:,}"
    align = "right" if number else "left"
    return f'<td style="{CELL}{align}">{_text("" if value is None else value)}</td>'


def _sentence(text: str) -> str:
    return html.escape(shortened(visible(text)))


def _text(value: Any) -> str:
    return html.escape(one_line(value))
