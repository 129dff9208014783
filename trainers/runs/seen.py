"""Which rows of a load the weights of a run have learned from, and that none of them is held out.

A run may start from another (``--init``), or be cloned from one. What that one was trained on, or
chosen by, is then no data that the new one has never seen, whatever its own rows are.
"""

from __future__ import annotations

from typing import Any

from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.run import Run

__all__ = ["seen_before", "seen_rows"]

Seen = list[Any]
"""A trace's digest, and rows of it: [digest, low, high]."""


def seen_rows(run: Run) -> list[Seen]:
    """Return the rows that a run trained and validated on, and those of what it came of."""
    found, trace = list(run.config.seen), run.config.env_config.trace
    if trace is None or (run.at is not None and not run.at.strip("0")):
        return found
    own = [[trace.digest, *rows] for rows in _rows_of(run.config.env_config)]
    return found + [each for each in own if each not in found]


def seen_before(env_config: EnvConfig, run: Run | None) -> list[Seen]:
    """Return the rows that ``run``, which a new run in ``env_config`` learns from, has seen.

    Raises ValueError where some of them are held out. Where a run is to train or validate on
    rows that it holds out, as it may, nothing is kept apart.
    """
    if run is None:
        return []
    seen, trace, rows = seen_rows(run), env_config.trace, env_config.held_out.get("rows")
    if trace is None or rows is None or _any(_rows_of(env_config), rows):
        return seen
    for digest, *learned in seen:
        if digest == trace.digest and _any([learned], rows):
            raise ValueError(
                f"{run.name} has learned from rows {_colon(learned)} of {trace.name}, and rows "
                f"{_colon(rows)} are to be held out here: they would be no data that it has never "
                f"seen. {_remedy(env_config, run, seen)}"
            )
    return seen


def _remedy(env_config: EnvConfig, run: Run, seen: list[Seen]) -> str:
    """Return which rows can be held out: those of ``run``, where it holds out unseen ones."""
    trace, theirs = env_config.trace, run.config.env_config
    rows = theirs.held_out.get("rows")
    known = [each for digest, *each in seen if trace is not None and digest == trace.digest]
    if rows is None or theirs.trace != trace or _any(known, rows):
        return "Hold out others (--held-out, held_out=)"
    return f"Hold out those that it did, --held-out {_colon(rows)} (held_out={tuple(rows)})"


def _rows_of(env_config: EnvConfig) -> list[Any]:
    """Return the rows that are trained and validated on."""
    found = env_config.env_kwargs.get("rows"), env_config.validation.get("rows")
    return [rows for rows in found if rows is not None]


def _any(found: list[Any], rows: Any) -> bool:
    """Return whether any of the rows ``found`` are among others."""
    return any(low < rows[1] and rows[0] < high for low, high in found)


def _colon(rows: Any) -> str:
    return f"{rows[0]}:{rows[1]}"
