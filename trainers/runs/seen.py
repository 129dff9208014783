"""The data rows that a run's weights have learned from, and a check that none is held out.

A run may start from another run (``--init``) or be cloned from one. Data that was used to train or
select that run is not unseen data for the new run, whatever rows the new run uses itself.
"""

from __future__ import annotations

from typing import Any

from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.run import Run

__all__ = ["seen_before", "seen_rows"]

Seen = list[Any]
"""Digest of a trace, and a range of its rows: [digest, low, high]."""


def seen_rows(run: Run) -> list[Seen]:
    """Return the training and validation rows of a run, and of the runs it is based on."""
    seen, trace = list(run.config.seen), run.config.env_config.trace
    if trace is None or (run.at is not None and not run.at.strip("0")):
        return seen
    current = [[trace.digest, *rows] for rows in _rows_of(run.config.env_config)]
    return seen + [rows for rows in current if rows not in seen]


def seen_before(env_config: EnvConfig, run: Run | None) -> list[Seen]:
    """Return the rows that ``run`` has seen, for a new run in ``env_config`` that learns from it.

    Raises ValueError if some of them are held out. Not checked if the new run itself trains or
    validates on rows that it holds out, which is allowed.
    """
    if run is None:
        return []
    seen, trace, rows = seen_rows(run), env_config.trace, env_config.held_out.get("rows")
    if trace is None or rows is None or _any(_rows_of(env_config), rows):
        return seen
    for digest, *learned in seen:
        if digest == trace.digest and _any([learned], rows):
            raise ValueError(
                f"{run.name} has learned from rows {_colon(learned)} of {trace.name}, but this run "
                f"holds out rows {_colon(rows)}, which must be unseen data. "
                f"{_remedy(env_config, run, seen)}"
            )
    return seen


def _remedy(env_config: EnvConfig, run: Run, seen: list[Seen]) -> str:
    """Return which rows can be held out: the held-out rows of ``run`` if they are unseen."""
    trace, origin = env_config.trace, run.config.env_config
    rows = origin.held_out.get("rows")
    seen_here = [
        learned for digest, *learned in seen if trace is not None and digest == trace.digest
    ]
    if rows is None or origin.trace != trace or _any(seen_here, rows):
        return "Hold out other rows (--held-out, held_out=)"
    return f"Hold out the same rows as that run: --held-out {_colon(rows)} (held_out={tuple(rows)})"


def _rows_of(env_config: EnvConfig) -> list[Any]:
    """Return the training and validation rows."""
    candidates = env_config.env_kwargs.get("rows"), env_config.validation.get("rows")
    return [rows for rows in candidates if rows is not None]


def _any(ranges: list[Any], rows: Any) -> bool:
    """Return True if any of the ``ranges`` overlaps ``rows``."""
    return any(low < rows[1] and rows[0] < high for low, high in ranges)


def _colon(rows: Any) -> str:
    return f"{rows[0]}:{rows[1]}"
