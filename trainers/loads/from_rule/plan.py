"""Where a run that begins with a rule keeps its plan. No torch."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PLAN", "plan_of"]

PLAN = "from_rule.json"


def plan_of(folder: str | Path) -> Path | None:
    """Return the plan of the run in ``folder``; None where it began otherwise."""
    path = Path(folder) / PLAN
    return path if path.is_file() else None
